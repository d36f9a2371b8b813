package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
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

func newConfigCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("config", "Show the settings and the source of each", newConfigShowCommand(a),
		&cobra.Command{
			Use:     "path",
			Short:   "Print the path of the settings file",
			Example: "  ${EDITOR:-vi} \"$(flightd config path)\"",
			RunE: func(cmd *cobra.Command, _ []string) error {
				_ = a.ResolveSettings(cmd) // the path of an invalid file is printed, too
				return a.PrintLine(a.Config.Path, map[string]string{"path": a.Config.Path})
			},
		})
}

func newConfigShowCommand(a *cli.App) *cobra.Command {
	var origin bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the effective settings",
		Long: `Shows the effective settings. Flags override the environment, the environment overrides the settings file, and the
file overrides the defaults. With -o yaml and without --origin, the output is a valid settings file, less the token and the
user and password of an address: a secret is never printed.`,
		Example: `  flightd config show --origin
  flightd config show --origin -c /etc/flightd/flightd.yaml
  flightd config show -o yaml > ~/.config/flightd/config.yaml`,
		RunE: func(*cobra.Command, []string) error { return showConfig(a, origin) },
	}
	c.Flags().BoolVar(&origin, "origin", false, "show the source of each setting")
	return c
}

func showConfig(a *cli.App, origin bool) error {
	var data any = resolvedFile(a)
	heading, rows, names := []string{"SETTING", "VALUE"}, [][]string{}, []string{}
	for _, d := range shownSettings(a) {
		rows, names = append(rows, []string{d.Name, d.Value}), append(names, d.Name)
		if origin {
			rows[len(rows)-1] = []string{d.Name, d.Value, d.Origin}
		}
	}
	if origin {
		heading, data = append(heading, "ORIGIN"), shownSettings(a)
	}
	return a.PrintList(heading, rows, names, data)
}

// shownSettings returns all settings without secrets.
func shownSettings(a *cli.App) (all []cli.Value) {
	for _, d := range a.Values {
		all = append(all, d.Shown())
	}
	return all
}

// resolvedFile returns the effective settings in the form of the settings file. It has no secrets.
func resolvedFile(a *cli.App) map[string]any {
	file := make(map[string]any)
	for _, s := range cli.AllSettings() {
		switch d := a.Setting(s.Name); {
		case d.Value == "" || s.Kind == cli.SecretSetting:
		case s.Kind == cli.BoolSetting:
			yes, err := strconv.ParseBool(d.Value)
			if file[s.Name] = yes; err != nil { // the command that uses it rejects it
				file[s.Name] = d.Value
			}
		case s.Kind == cli.ListSetting:
			file[s.Name] = cli.Addresses(d.Shown().Value)
		default:
			file[s.Name] = d.Value
		}
	}
	return file
}

// stamped is the version of a release. Only the linker sets it (-X main.stamped=v1.2.3), which requires a package
// variable.
var stamped string

// buildVersion returns the release's version, else the version in the binary's build info: the module's version, else
// the commit, else cli.UnknownVersion.
func buildVersion() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cli.UnknownVersion
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if len(commit) < 12 {
		return cli.UnknownVersion
	}
	return "devel-" + commit[:12] + dirty
}

func newVersionCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  flightd version\n  flightd version -o json",
		RunE:    func(*cobra.Command, []string) error { return printVersion(a) },
	}
}

func printVersion(a *cli.App) error {
	return a.PrintLine(a.Version, struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{a.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
}
