package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
)

// terminal holds the standard streams and the environment: data goes to out, messages go to err.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	etc      string // directory of the machine's settings; "": there is none
}

// app is one invocation of the program: its terminal and its settings.
type app struct {
	terminal
	config       configLocation
	settings     []settingValue // all settings; the fields below are derived from them
	servers      []string
	namespace    string
	format       string
	noColor      bool
	yes          bool
	unknownTopic error  // help was requested for an unknown command
	version      string // of this program
	silent       bool   // flightd dev --nodes has started this process, and prints the banner itself
}

// defaultServer is the default address of flightd dev and serve.
const defaultServer = "http://127.0.0.1:7420"

// run parses the command line, runs one command, and returns its exit code.
func run(ctx context.Context, term terminal, args []string) int {
	a := &app{terminal: term, version: buildVersion()}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.unknownTopic
	}
	code, message, hint := explain(err)
	if code == exitBusy && message != "" && a.env(insideExecEnv) != "" { // a command's own exit code has no message
		code = exitBusyInside
	}
	if a.settings == nil {
		_ = a.resolveSettings(root) // for the colour of an error that came first
	}
	a.complain(message, hint)
	return code
}

// complain prints an error message and a hint without control characters and credentials; either may be empty.
func (a *app) complain(says, hint string) {
	if says != "" {
		_, _ = fmt.Fprintln(a.err, a.paint(a.err, red, "flightd:")+" "+message(says))
	}
	if hint != "" {
		_, _ = fmt.Fprintln(a.err, "  "+message(hint))
	}
}

func (a *app) root() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "flightd",
		Short: "One key, one flight, one receipt: every business intent is performed once",
		Example: `  flightd dev                                        # run a server on this machine, ready in a second
  flightd exec --key charge/order-42 -- ./charge.sh  # run once; a later call replays the output
  flightd why charge/order-42                        # the history of a flight, in plain English
  flightd doubt ls                                   # flights that a person must resolve`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return a.printVersion()
			}
			return cmd.Help()
		},

		SuggestionsMinimumDistance: 2,
	}
	root.SetHelpTemplate(helpTemplate)
	root.SetHelpCommand(helpCommand(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			return noSuchCommand(cmd, words) // the flag belongs to the unknown command
		}
		return &exitError{code: exitUsage, err: badValue(err), hint: flagHint(cmd, err)}
	})
	root.Flags().BoolVar(&version, "version", false, "print the version, as flightd version")
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			a.unknownTopic = noSuchCommand(cmd, cmd.Flags().Args())
		}
		if a.unknownTopic != nil {
			return
		}
		help(cmd, args)
	})
	flags := root.PersistentFlags()
	flags.StringSlice("server", nil, "address of a server; several are tried in turn (FLIGHTD_ADDR; http://127.0.0.1:7420)")
	flags.StringP("namespace", "n", "", "namespace of keys (FLIGHTD_NAMESPACE; default)")
	flags.StringP("config", "c", "", "settings file (FLIGHTD_CONFIG; see flightd help settings)")
	flags.String("token-file", "", "file with the token (FLIGHTD_TOKEN_FILE); the token itself is set by FLIGHTD_TOKEN or in the settings file")
	flags.String("ca-file", "", "PEM file of the CAs of servers (FLIGHTD_CA_FILE; the system's)")
	flags.String("client-cert", "", "PEM file of a client certificate (FLIGHTD_CLIENT_CERT)")
	flags.String("client-key", "", "PEM file of its key (FLIGHTD_CLIENT_KEY)")
	flags.StringP("output", "o", "", "table, json, yaml or id (FLIGHTD_OUTPUT; table)")
	flags.Bool("no-color", false, "no colours (NO_COLOR)")
	flags.BoolVar(&a.yes, "yes", false, "answer yes to every question; required for irreversible commands without a terminal")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetContext(client.WithTraceparent(cmd.Context(), a.env("TRACEPARENT")))
		if skipsSettings(cmd) {
			return nil
		}
		return a.resolveSettings(cmd)
	}
	for _, section := range a.sections() {
		root.AddGroup(&cobra.Group{ID: section.id, Title: section.title})
		for _, c := range section.commands {
			c.GroupID = section.id
			root.AddCommand(c)
		}
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetCompletionCommandGroupID("operate")
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil { // cobra would print its help for an unknown shell
		c.SuggestionsMinimumDistance, c.Args = 2, noSuchCommand
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
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

// sections returns all commands in the order of the help.
func (a *app) sections() []section {
	return []section{
		{"use", "Use:", []*cobra.Command{a.devCommand(), a.serveCommand(), a.execCommand()}},
		{"look", "Inspect:", []*cobra.Command{a.flightsCommand(), a.whyCommand(), a.tailCommand()}},
		{"resolve", "Resolve:", []*cobra.Command{a.doubtCommand()}},
		{"operate", "Operate:", []*cobra.Command{
			a.importCommand(), a.backupCommand(), a.restoreCommand(), a.tokenCommand(), a.namespaceCommand(), a.auditCommand(), a.whoamiCommand(), a.certCommand(), a.clusterCommand(),
			a.doctorCommand(), a.readyCommand(), a.drillCommand(), a.configCommand(), a.versionCommand(),
		}},
	}
}

// skipsSettings reports whether a command must work with invalid settings: it helps to correct them, or a shell runs it
// at every start.
func skipsSettings(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case cobra.ShellCompRequestCmd, "help", "man":
		return true
	}
	return cmd.HasParent() && (cmd.Parent().Name() == "completion" || cmd.CommandPath() == "flightd config path")
}

// commandGroup returns a command that only has subcommands.
func commandGroup(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: noSuchCommand, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(subs...)
	return c
}

// exactArgs requires n arguments; what describes them.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return &exitError{code: exitUsage, hint: "see " + cmd.CommandPath() + " --help",
				err: fmt.Errorf("%s takes %s; %s given", cmd.CommandPath(), what, pluralize(len(args), "argument is", "arguments are"))}
		}
		return nil
	}
}
