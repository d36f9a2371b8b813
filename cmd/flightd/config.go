package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

func newConfigCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("config", "Show the settings and the source of each", newConfigShowCommand(a), newConfigPathCommand(a))
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

func newConfigPathCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "path",
		Short:   "Print the path of the settings file",
		Example: "  ${EDITOR:-vi} \"$(flightd config path)\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = a.ResolveSettings(cmd) // the path of an invalid file is printed, too
			return a.PrintLine(a.Config.Path, map[string]string{"path": a.Config.Path})
		},
	}
}
