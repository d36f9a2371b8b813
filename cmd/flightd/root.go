package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// run parses the command line, runs one command, and returns its exit code.
func run(ctx context.Context, term cli.Terminal, args []string) int {
	a := &cli.App{Terminal: term, Version: buildVersion()}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.UnknownTopic
	}
	code, message, hint := cli.Explain(err)
	if code == cli.ExitBusy && message != "" && a.Env(cli.InsideExecEnv) != "" { // a command's own exit code has no message
		code = cli.ExitBusyInside
	}
	if a.Values == nil {
		_ = a.ResolveSettings(root) // for the colour of an error that came first
	}
	a.Complain(message, hint)
	return code
}

func newRoot(a *cli.App) *cobra.Command {
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
		Args:          cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return printVersion(a)
			}
			return cmd.Help()
		},

		SuggestionsMinimumDistance: 2,
	}
	root.SetHelpTemplate(helpTemplate)
	root.SetHelpCommand(helpCommand(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			return cli.NoSuchCommand(cmd, words) // the flag belongs to the unknown command
		}
		return &cli.Error{Code: cli.ExitUsage, Err: cli.BadValue(err), Hint: cli.FlagHint(cmd, err)}
	})
	root.Flags().BoolVar(&version, "version", false, "print the version, as flightd version")
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			a.UnknownTopic = cli.NoSuchCommand(cmd, cmd.Flags().Args())
		}
		if a.UnknownTopic != nil {
			return
		}
		help(cmd, args)
	})
	flags := root.PersistentFlags()
	cli.AddSettings(flags, "server", "namespace", "token_file", "ca_file", "client_cert", "client_key", "output", "no_color")
	flags.StringP("config", "c", "", "settings file (FLIGHTD_CONFIG; see flightd help settings)")
	flags.BoolVar(&a.Yes, "yes", false, "answer yes to every question; required for irreversible commands without a terminal")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetContext(client.WithTraceparent(cmd.Context(), a.Env("TRACEPARENT")))
		if skipsSettings(cmd) {
			return nil
		}
		for _, name := range a.UnknownVariables() {
			a.Say("the variable %s is not used; %s", name, cmp.Or(cli.DidYouMean(a.NearVariable(name)), "flightd help settings lists the variables"))
		}
		return a.ResolveSettings(cmd)
	}
	for _, section := range sections(a) {
		root.AddGroup(&cobra.Group{ID: section.id, Title: section.title})
		for _, c := range section.commands {
			c.GroupID = section.id
			root.AddCommand(c)
		}
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetCompletionCommandGroupID("operate")
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil { // cobra would print its help for an unknown shell
		c.SuggestionsMinimumDistance, c.Args = 2, cli.NoSuchCommand
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	root.AddCommand(topics()...)
	root.AddCommand(newManCommand(a))
	completeAll(a, root)
	return root
}

// section is a group of commands under one heading of the help.
type section struct {
	id, title string
	commands  []*cobra.Command
}

// sections returns all commands in the order of the help.
func sections(a *cli.App) []section {
	return []section{
		{"use", "Use:", []*cobra.Command{newDevCommand(a), newServeCommand(a), newExecCommand(a), newSubmitCommand(a), newWorkCommand(a), newActionsCommand(a), newSagasCommand(a)}},
		{"look", "Inspect:", []*cobra.Command{newFlightsCommand(a), newWhyCommand(a), newTailCommand(a), newQueuesCommand(a), newLanesCommand(a)}},
		{"resolve", "Resolve:", []*cobra.Command{newDoubtCommand(a), newApprovalsCommand(a)}},
		{"operate", "Operate:", []*cobra.Command{
			newImportCommand(a), newBackupCommand(a), newRestoreCommand(a), newTokenCommand(a), newNamespaceCommand(a), newNotifyCommand(a), newAuditCommand(a), newWhoamiCommand(a), newCertCommand(a), newClusterCommand(a),
			newDoctorCommand(a), newReadyCommand(a), newDrillCommand(a), newConfigCommand(a), newVersionCommand(a),
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
