package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
)

// terminal is what a command sees of the world around it: data goes to out, talk to err.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
}

// app is one invocation of the program: its terminal and what was set for it.
type app struct {
	terminal
	decided   []decided // every setting; what follows is taken from it
	servers   []string
	namespace string
	format    string
	noColor   bool
	yes       bool
	misled    error // what was asked for help about is no command
}

// defaultServer is where flightd dev listens.
const defaultServer = "http://127.0.0.1:7420"

// run is the program: it parses, runs one command, and gives its exit code.
func run(ctx context.Context, term terminal, args []string) int {
	a := &app{terminal: term}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(term.in)
	root.SetOut(term.out)
	root.SetErr(term.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.misled
	}
	code, message, hint := explain(err)
	if code == exitBusy && message != "" && a.env(insideExec) != "" { // a command's own exit code has no message
		code = exitBusyInside
	}
	if a.decided == nil {
		_ = a.settle(root) // for the colours of an error that came before it
	}
	a.complain(message, hint)
	return code
}

// complain says what is wrong, and what to do about it; "" for nothing.
func (a *app) complain(message, hint string) {
	if message != "" {
		_, _ = fmt.Fprintln(a.err, a.paint(a.err, red, "flightd:")+" "+message)
	}
	if hint != "" {
		_, _ = fmt.Fprintln(a.err, "  "+hint)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "flightd",
		Short: "One key, one flight, one receipt: every business intent is performed once",
		Example: `  flightd dev                                        # everything on this machine, ready in a second
  flightd exec --key charge/order-42 -- ./charge.sh  # runs once; again: replays what it printed
  flightd why charge/order-42                        # what happened, in plain English
  flightd doubt ls                                   # what a person has to settle`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpTemplate(helpTemplate)
	root.SetHelpCommand(helpCommand(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			return noSuchCommand(cmd, words) // its flags are not this one's
		}
		return &coded{code: exitUsage, err: badValue(err), hint: flagHint(cmd, err)}
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			a.misled = noSuchCommand(cmd, cmd.Flags().Args())
		}
		if a.misled != nil {
			return
		}
		var page strings.Builder
		root.SetOut(&page)
		help(cmd, args)
		root.SetOut(a.out)
		_, _ = io.WriteString(a.out, narrowed(page.String(), columns(a.out)))
	})
	flags := root.PersistentFlags()
	flags.StringSlice("server", nil, "address of flightd; several are tried in turn (FLIGHTD_ADDR; http://127.0.0.1:7420)")
	flags.StringP("namespace", "n", "", "namespace of keys (FLIGHTD_NAMESPACE; default)")
	flags.StringP("output", "o", "", "table, json, yaml or id (FLIGHTD_OUTPUT; table)")
	flags.Bool("no-color", false, "no colours (NO_COLOR)")
	flags.BoolVar(&a.yes, "yes", false, "answer yes to every question; where there is no terminal to ask at, it must be said")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetContext(client.WithTraceparent(cmd.Context(), a.env("TRACEPARENT")))
		if unsettling(cmd) {
			return nil
		}
		return a.settle(cmd)
	}
	for _, section := range a.sections() {
		root.AddGroup(&cobra.Group{ID: section.id, Title: section.title})
		for _, c := range section.commands {
			c.GroupID = section.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(topics()...)
	root.AddCommand(a.manCommand())
	a.completeAll(root)
	return root
}

// section is a group of commands under one heading of the help.
type section struct {
	id, title string
	commands  []*cobra.Command
}

// sections are all commands, in the order of the help.
func (a *app) sections() []section {
	return []section{
		{"use", "Use:", []*cobra.Command{a.devCommand(), a.execCommand()}},
		{"look", "Look:", []*cobra.Command{a.flightsCommand(), a.whyCommand(), a.tailCommand()}},
		{"settle", "Settle:", []*cobra.Command{a.doubtCommand()}},
		{"operate", "Operate:", []*cobra.Command{
			a.importCommand(),
			a.doctorCommand(), a.drillCommand(), a.configCommand(), a.completionCommand(), a.versionCommand(),
		}},
	}
}

// unsettling reports whether a command must work though the settings are wrong: it helps to write them, or a shell runs
// it at every start.
func unsettling(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case cobra.ShellCompRequestCmd, "help", "man":
		return true
	}
	return cmd.HasParent() && (cmd.Parent().Name() == "completion" || cmd.CommandPath() == "flightd config path")
}

// group is a command that has only commands of its own.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: noSuchCommand, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(subs...)
	return c
}

// exactly wants so many arguments; what says which.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return &coded{code: exitUsage, hint: "see " + cmd.CommandPath() + " --help",
				err: fmt.Errorf("%s takes %s; %s given", cmd.CommandPath(), what, counted(len(args), "argument is", "arguments are"))}
		}
		return nil
	}
}
