package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/flight"
)

// setting is one setting. A flag overrides the environment, which overrides the file, which overrides the default.
type setting struct {
	name   string // in the file
	flag   string // without its dashes
	env    string
	preset string // the default; may be empty
	about  string
}

// defaultText returns the default for the help.
func (s setting) unsaid() string { return cmp.Or(s.preset, "none") }

// settings is the table of all settings.
func settings() []setting {
	return []setting{
		{"server", "server", "FLIGHTD_ADDR", defaultServer, "addresses of servers, tried in turn"},
		{"namespace", "namespace", "FLIGHTD_NAMESPACE", "default", "namespace of keys without one"},
		{"output", "output", "FLIGHTD_OUTPUT", "table", "table, json, yaml or id"},
		{"no_color", "no-color", "NO_COLOR", "false", "no colours, even on a terminal; any value of NO_COLOR counts"},
		{"data", "data", "FLIGHTD_DATA", "flightd-data", "data directory of flightd dev"},
		{"listen", "listen", "FLIGHTD_LISTEN", "127.0.0.1:7420", "address of the API of flightd dev"},
		{"listen_metrics", "listen-metrics", "FLIGHTD_LISTEN_METRICS", "", "second address for metrics and health of flightd dev"},
		{"log_level", "log-level", "FLIGHTD_LOG_LEVEL", "info", "log level of flightd dev: debug, info, warn or error"},
		{"log_format", "log-format", "FLIGHTD_LOG_FORMAT", "text", "log format of flightd dev: text or json"},
	}
}

// settingValue is the effective value of a setting and its source.
type decided struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag --x, env X, file PATH or default
	byFlag bool
}

// settingSource returns the value of a setting in one source; "": not set there.
type said func(setting) string

// resolveValues takes every setting from the flags, the environment or the file, in this order, else from its default.
func decide(flag, env, file said, path string) []decided {
	all := make([]decided, 0, len(settings()))
	for _, s := range settings() {
		d := decided{Name: s.name, Value: s.preset, Origin: "default"}
		if v := flag(s); v != "" {
			d.Value, d.Origin, d.byFlag = v, "flag --"+s.flag, true
		} else if v := env(s); v != "" {
			d.Value, d.Origin = v, "env "+s.env
		} else if v := file(s); v != "" {
			d.Value, d.Origin = v, "file "+path
		}
		all = append(all, d)
	}
	return all
}

// flagSource reads settings from the flags of a command line.
func flagsOf(cmd *cobra.Command) said {
	return func(s setting) string {
		f := cmd.Flag(s.flag)
		if f == nil || !f.Changed {
			return ""
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			return strings.Join(list.GetSlice(), ",")
		}
		return f.Value.String()
	}
}

// envSource reads settings from the environment. By convention, NO_COLOR means yes with any value
// (https://no-color.org).
func environment(env func(string) string) said {
	return func(s setting) string {
		v := env(s.env)
		if s.name == "no_color" && v != "" {
			return "true"
		}
		return v
	}
}

// resolveSettings reads and validates all settings.
func (a *app) settle(cmd *cobra.Command) error {
	file, err := a.readConfig()
	if err != nil {
		return err
	}
	a.decided = decide(flagsOf(cmd), environment(a.env), file.say, a.configPath())
	a.servers = addresses(a.setting("server").Value)
	a.namespace = a.setting("namespace").Value
	a.format = a.setting("output").Value
	if a.noColor, err = strconv.ParseBool(a.setting("no_color").Value); err != nil {
		return a.unsettled(a.setting("no_color"), "true or false", "")
	}
	if !isFormat(a.format) {
		return a.unsettled(a.setting("output"), "the formats are table, json, yaml and id", nearest(a.format, formats()))
	}
	if len(a.servers) == 0 {
		return a.unsettled(a.setting("server"), "no server is named", "")
	}
	if _, err := flight.NewKey(a.namespace, "name", "id"); err != nil {
		return a.unsettled(a.setting("namespace"), err.Error(), "")
	}
	return nil
}

// setting returns the value of one setting.
func (a *app) setting(name string) decided {
	for _, d := range a.decided {
		if d.Name == name {
			return d
		}
	}
	return decided{Name: name, Origin: "default"}
}

// invalidSetting rejects a value: with exitUsage if a flag set it, else with exitConfig.
func (a *app) unsettled(d decided, rule, meant string) error {
	if !d.byFlag {
		return &coded{code: exitConfig, err: fmt.Errorf("%s: %q from %s: %s", d.Name, d.Value, d.Origin, rule), hint: didYouMean(meant)}
	}
	name, _ := strings.CutPrefix(d.Origin, "flag ")
	return &coded{code: exitUsage, err: fmt.Errorf("%s %s: %s", name, d.Value, rule), hint: didYouMean(meant)}
}

// addresses splits a list of servers and adds http:// where it is missing.
func addresses(list string) []string {
	servers := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	for i, s := range servers {
		if !strings.Contains(s, "://") {
			servers[i] = "http://" + s
		}
	}
	return servers
}

func formats() []string { return []string{"table", "json", "yaml", "id"} }

func isFormat(s string) bool {
	for _, f := range formats() {
		if s == f {
			return true
		}
	}
	return false
}
