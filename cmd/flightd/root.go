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

// app is one invocation of the program: its terminal and the flags that all commands share.
type app struct {
	terminal
	servers   []string
	namespace string
	format    string
	noColor   bool
	yes       bool
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
	code, message, hint := explain(err)
	if message != "" {
		_, _ = fmt.Fprintln(term.err, "flightd: "+message)
	}
	if hint != "" {
		_, _ = fmt.Fprintln(term.err, "  "+hint)
	}
	return code
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
	root.SetHelpTemplate(helpTemplate)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &coded{code: exitUsage, err: err, hint: flagHint(cmd, err)}
	})
	flags := root.PersistentFlags()
	flags.StringSliceVar(&a.servers, "server", nil, "address of flightd; several are tried in turn (FLIGHTD_ADDR; http://127.0.0.1:7420)")
	flags.StringVarP(&a.namespace, "namespace", "n", "", "namespace of keys (FLIGHTD_NAMESPACE; default)")
	flags.StringVarP(&a.format, "output", "o", "table", "table, json, yaml or id")
	flags.BoolVar(&a.noColor, "no-color", false, "no colours (NO_COLOR)")
	flags.BoolVar(&a.yes, "yes", false, "ask nothing")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetContext(client.WithTraceparent(cmd.Context(), a.env("TRACEPARENT")))
		return a.settle()
	}
	root.AddCommand(a.devCommand(), a.execCommand(), a.flightsCommand(), a.whyCommand(), a.tailCommand(), a.doubtCommand(), a.importCommand(), a.drillCommand(), a.versionCommand())
	return root
}

// helpTemplate shows examples first: most people need no more.
const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}
{{end}}{{if .HasExample}}
Examples:
{{.Example}}
{{end}}
Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}
{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`

// settle fills in what flags left open, and refuses what they must not say.
func (a *app) settle() error {
	if len(a.servers) == 0 {
		a.servers = strings.FieldsFunc(a.env("FLIGHTD_ADDR"), func(r rune) bool { return r == ',' || r == ' ' })
	}
	if len(a.servers) == 0 {
		a.servers = []string{defaultServer}
	}
	for i, s := range a.servers {
		if !strings.Contains(s, "://") {
			a.servers[i] = "http://" + s
		}
	}
	if a.namespace == "" {
		a.namespace = a.env("FLIGHTD_NAMESPACE")
	}
	if a.namespace == "" {
		a.namespace = "default"
	}
	if a.env("NO_COLOR") != "" {
		a.noColor = true
	}
	switch a.format {
	case "table", "json", "yaml", "id":
		return nil
	}
	return usage("-o %s: the formats are table, json, yaml and id", a.format)
}

// noSuchCommand refuses words behind a command that has only commands of its own, with the nearest of them.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	e := &coded{code: exitUsage, err: fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		e.hint = "did you mean " + cmd.CommandPath() + " " + strings.Join(near, ", ") + "?"
	} else {
		e.hint = "see " + cmd.CommandPath() + " --help"
	}
	return e
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
			return usage("%s takes %s; there are %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}
