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
	name         string // in the file
	flag         string // without its dashes
	env          string
	defaultValue string // the default; may be empty
	about        string
}

// defaultText returns the default for the help.
func (s setting) defaultText() string { return cmp.Or(s.defaultValue, "none") }

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
type settingValue struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Origin   string `json:"origin"` // flag --x, env X, file PATH or default
	fromFlag bool
}

// settingSource returns the value of a setting in one source; "": not set there.
type settingSource func(setting) string

// resolveValues takes every setting from the flags, the environment or the file, in this order, else from its default.
func resolveValues(flag, env, file settingSource, path string) []settingValue {
	all := make([]settingValue, 0, len(settings()))
	for _, s := range settings() {
		d := settingValue{Name: s.name, Value: s.defaultValue, Origin: "default"}
		if v := flag(s); v != "" {
			d.Value, d.Origin, d.fromFlag = v, "flag --"+s.flag, true
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
func flagSource(cmd *cobra.Command) settingSource {
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
func envSource(env func(string) string) settingSource {
	return func(s setting) string {
		v := env(s.env)
		if s.name == "no_color" && v != "" {
			return "true"
		}
		return v
	}
}

// resolveSettings reads and validates all settings.
func (a *app) resolveSettings(cmd *cobra.Command) error {
	file, err := a.readConfig()
	if err != nil {
		return err
	}
	a.settings = resolveValues(flagSource(cmd), envSource(a.env), file.value, a.configPath())
	a.servers = addresses(a.setting("server").Value)
	a.namespace = a.setting("namespace").Value
	a.format = a.setting("output").Value
	if a.noColor, err = strconv.ParseBool(a.setting("no_color").Value); err != nil {
		return a.invalidSetting(a.setting("no_color"), "true or false", "")
	}
	if !isFormat(a.format) {
		return a.invalidSetting(a.setting("output"), "the formats are table, json, yaml and id", nearest(a.format, formats()))
	}
	if len(a.servers) == 0 {
		return a.invalidSetting(a.setting("server"), "no server is named", "")
	}
	if _, err := flight.NewKey(a.namespace, "name", "id"); err != nil {
		return a.invalidSetting(a.setting("namespace"), err.Error(), "")
	}
	return nil
}

// setting returns the value of one setting.
func (a *app) setting(name string) settingValue {
	for _, d := range a.settings {
		if d.Name == name {
			return d
		}
	}
	return settingValue{Name: name, Origin: "default"}
}

// invalidSetting rejects a value: with exitUsage if a flag set it, else with exitConfig.
func (a *app) invalidSetting(d settingValue, rule, suggestion string) error {
	if !d.fromFlag {
		return &exitError{code: exitConfig, err: fmt.Errorf("%s: %q from %s: %s", d.Name, d.Value, d.Origin, rule), hint: didYouMean(suggestion)}
	}
	name, _ := strings.CutPrefix(d.Origin, "flag ")
	return &exitError{code: exitUsage, err: fmt.Errorf("%s %s: %s", name, d.Value, rule), hint: didYouMean(suggestion)}
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
