package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	return commandGroup("config", "Show the settings and the source of each", a.configShow(), a.configPathCommand())
}

func (a *app) configShow() *cobra.Command {
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
		Args: exactArgs(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error { return a.showConfig(origin) },
	}
	c.Flags().BoolVar(&origin, "origin", false, "show the source of each setting")
	return c
}

func (a *app) showConfig(origin bool) error {
	switch a.format {
	case "id":
		for _, d := range a.settings {
			if _, err := fmt.Fprintln(a.out, d.Name); err != nil {
				return err
			}
		}
		return nil
	case "table":
		heading, rows := []string{"SETTING", "VALUE"}, [][]string{}
		for _, d := range a.shownSettings() {
			row := []string{d.Name, d.Value}
			if origin {
				row = append(row, d.Origin)
			}
			rows = append(rows, row)
		}
		if origin {
			heading = append(heading, "ORIGIN")
		}
		return writeTable(a.out, heading, rows)
	}
	if origin {
		return a.printData(a.shownSettings())
	}
	return a.printData(a.resolvedFile())
}

// shownSettings returns all settings without secrets.
func (a *app) shownSettings() (all []settingValue) {
	for _, d := range a.settings {
		all = append(all, d.shown())
	}
	return all
}

// resolvedFile returns the effective settings in the form of the settings file. It has no secrets.
func (a *app) resolvedFile() map[string]any {
	file := make(map[string]any)
	for _, s := range settings() {
		switch d := a.setting(s.name); {
		case d.Value == "" || s.kind == secretSetting:
		case s.kind == boolSetting:
			yes, err := strconv.ParseBool(d.Value)
			if file[s.name] = yes; err != nil { // the command that uses it rejects it
				file[s.name] = d.Value
			}
		case s.kind == listSetting:
			file[s.name] = addresses(d.shown().Value)
		default:
			file[s.name] = d.Value
		}
	}
	return file
}

func (a *app) configPathCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "path",
		Short:   "Print the path of the settings file",
		Example: "  ${EDITOR:-vi} \"$(flightd config path)\"",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = a.resolveSettings(cmd) // the path of an invalid file is printed, too
			if a.format == "json" || a.format == "yaml" {
				return a.printData(map[string]string{"path": a.config.path})
			}
			_, err := fmt.Fprintln(a.out, a.config.path)
			return err
		},
	}
}
