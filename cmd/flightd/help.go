package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// helpTemplate shows examples first: most readers need no more.
const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}
{{end}}{{if .HasExample}}
Examples:
{{.Example}}
{{end}}{{if or .Runnable .HasAvailableSubCommands}}
Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}
{{end}}{{$all := .Commands}}{{if .HasAvailableSubCommands}}{{if .Groups}}{{range .Groups}}{{$id := .ID}}
{{.Title}}{{range $all}}{{if and (eq .GroupID $id) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{else}}
Commands:{{range $all}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{end}}{{if .HasHelpSubCommands}}
Topics:{{range $all}}{{if .IsAdditionalHelpTopicCommand}}
  help {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if or .Runnable .HasAvailableSubCommands}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{end}}`

// helpCommand prints the help of a command or a topic.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND or TOPIC]",
		Short:  "Help about a command or a topic",
		Hidden: true, // every help text names --help
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			within, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var words []string
			for _, c := range within.Commands() {
				if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
					words = append(words, c.Name()+"\t"+c.Short)
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				if err == nil {
					return cli.NoSuchCommand(about, rest)
				}
				return cli.NoSuchCommand(root, args)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// topics are help pages without a command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "The exit codes", Long: exitCodesPage()},
		{Use: "settings", Short: "Settings by flag, environment and file", Long: settingsPage()},
	}
}

func exitCodesPage() string {
	var b strings.Builder
	b.WriteString("The exit codes of every command. flightd exec returns the command's own code if the command ran or is replayed.\n")
	for _, e := range cli.ExitCodes() {
		fmt.Fprintf(&b, "\n  %3d  %s", e.Code, e.Means)
	}
	return b.String()
}

func settingsPage() string {
	var b strings.Builder
	b.WriteString(`Flags override the environment, the environment overrides the file, and the file overrides the defaults.
flightd config show --origin prints every value and its source, flightd config path the file.

The file is the one that -c, --config or FLIGHTD_CONFIG names; it must exist. Without it, flightd serve reads
/etc/flightd/flightd.yaml, and so does flightd ready if that file exists. Every other command reads
$XDG_CONFIG_HOME/flightd/config.yaml, or ~/.config/flightd/config.yaml, and if you have none, /etc/flightd/flightd.yaml;
flightd dev never reads the latter. One file may have the settings of a server and of its callers. An unknown or duplicate
name or a value of another type is an error.
`)
	for _, s := range cli.AllSettings() {
		fmt.Fprintf(&b, "\n  %-16s  %-18s  %-24s  %s (%s)", s.Name, s.FlagText(), s.Env, s.About, s.DefaultText())
	}
	b.WriteString(`

A token is a secret and has no flag, because other users of the machine see flags. --token-file overrides FLIGHTD_TOKEN,
FLIGHTD_TOKEN overrides FLIGHTD_TOKEN_FILE, and these override token and token_file of the settings file. A token of one
namespace ends with its name, which is then the default of namespace.

Reports that no server has stored yet are in $XDG_STATE_HOME/flightd/reports, or ~/.local/state/flightd/reports.`)
	return b.String()
}

func newManCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIRECTORY",
		Short:   "Write the manual, one page per command, into a directory",
		Example: "  flightd man man1 && man ./man1/flightd.1",
		Hidden:  true, // for packagers
		Args:    cli.ExactArgs(1, "a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := newRoot(a) // a tree of its own, since the texts are changed
			root.DisableAutoGenTag = true
			root.Long = root.Short + ".\n\nData goes to standard output, messages go to standard error.\n\n" + exitCodesPage() + "\n\n" + settingsPage()
			fenceTables(root)
			return doc.GenManTree(root, &doc.GenManHeader{Source: "flightd " + a.Version, Manual: "User Commands"}, args[0])
		},
	}
}

// fenceTables marks the indented paragraphs of all descriptions as code, so that their lines are kept as they are.
func fenceTables(cmd *cobra.Command) {
	paragraphs := strings.Split(cmd.Long, "\n\n")
	for i, p := range paragraphs {
		if strings.HasPrefix(p, "  ") {
			paragraphs[i] = "```\n" + p + "\n```"
		}
	}
	cmd.Long = strings.Join(paragraphs, "\n\n")
	for _, c := range cmd.Commands() {
		fenceTables(c)
	}
}
