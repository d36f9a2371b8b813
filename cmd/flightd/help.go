package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpTemplate shows examples first: most people need no more.
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

// helpCommand shows the help of a command or of a topic.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND or TOPIC]",
		Short:  "Help about a command or a topic",
		Hidden: true, // every help says --help
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
					return noSuchCommand(about, rest)
				}
				return noSuchCommand(root, args)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// topics are pages of help that belong to no command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesPage()},
		{Use: "settings", Short: "What the environment and the settings file decide", Long: settingsPage()},
	}
}

func exitCodesPage() string {
	var b strings.Builder
	b.WriteString("The exit codes of every command. flightd exec ends with the command's own code, once it ran or is replayed.\n")
	for _, e := range exitCodes() {
		fmt.Fprintf(&b, "\n  %3d  %s", e.code, e.means)
	}
	return b.String()
}

func settingsPage() string {
	var b strings.Builder
	b.WriteString(`Flags come before the environment, the environment before the file, the file before the defaults.
flightd config show --origin tells what stands and why. The file is $XDG_CONFIG_HOME/flightd/config.yaml, or
~/.config/flightd/config.yaml; a field that it should not have is refused.
`)
	for _, s := range settings() {
		fmt.Fprintf(&b, "\n  %-14s  --%-14s  %-22s  %s (%s)", s.name, s.flag, s.env, s.about, s.unsaid())
	}
	b.WriteString(`

Elsewhere: reports that no server has taken yet wait in $XDG_STATE_HOME/flightd/reports, or ~/.local/state/flightd/reports.`)
	return b.String()
}

// noSuchCommand refuses words behind a command that has only commands of its own, with the nearest of them.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	e := &coded{code: exitUsage, err: fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		e.hint = didYouMean(cmd.CommandPath() + " " + strings.Join(near, ", "))
	} else {
		e.hint = "see " + cmd.CommandPath() + " --help"
	}
	return e
}
