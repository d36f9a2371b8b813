package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "Show the settings, and where each comes from", a.configShow(), a.configWhere())
}

func (a *app) configShow() *cobra.Command {
	var origin bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the settings as they stand: flags over environment over file over defaults",
		Long: `Shows the settings as they stand here and now. Flags come before the environment, the environment before the file,
the file before the defaults. As YAML without --origin it is a settings file.`,
		Example: `  flightd config show --origin
  flightd config show -o yaml > ~/.config/flightd/config.yaml`,
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error { return a.showConfig(origin) },
	}
	c.Flags().BoolVar(&origin, "origin", false, "say of each setting who decided it")
	return c
}

func (a *app) showConfig(origin bool) error {
	switch a.format {
	case "id":
		for _, d := range a.decided {
			if _, err := fmt.Fprintln(a.out, d.Name); err != nil {
				return err
			}
		}
		return nil
	case "table":
		heading, rows := []string{"SETTING", "VALUE"}, [][]string{}
		for _, d := range a.decided {
			row := []string{d.Name, d.Value}
			if origin {
				row = append(row, d.Origin)
			}
			rows = append(rows, row)
		}
		if origin {
			heading = append(heading, "ORIGIN")
		}
		return table(a.out, heading, rows)
	}
	if origin {
		return a.print(a.decided)
	}
	return a.print(a.settledFile())
}

// settledFile is the settings as they stand, as the file would say them.
func (a *app) settledFile() configFile {
	colourless, _ := strconv.ParseBool(a.setting("no_color").Value) // settle has refused what is neither
	return configFile{
		Server: a.servers, Namespace: a.namespace, Output: a.format, NoColor: &colourless,
		Data: a.setting("data").Value, Listen: a.setting("listen").Value, ListenMetrics: a.setting("listen_metrics").Value,
		LogLevel: a.setting("log_level").Value, LogFormat: a.setting("log_format").Value,
	}
}

func (a *app) configWhere() *cobra.Command {
	return &cobra.Command{
		Use:     "path",
		Short:   "Say where the settings file is looked for",
		Example: "  ${EDITOR:-vi} \"$(flightd config path)\"",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = a.settle(cmd) // a file that is wrong must be found all the same
			if a.format == "json" || a.format == "yaml" {
				return a.print(map[string]string{"path": a.configPath()})
			}
			_, err := fmt.Fprintln(a.out, a.configPath())
			return err
		},
	}
}
