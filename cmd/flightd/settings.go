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

// setting is one thing that a flag, the environment, the file or a default decides, in this order.
type setting struct {
	name   string // in the file
	flag   string // without its dashes
	env    string
	preset string // what stands when nobody said anything; "": nothing does
	about  string
}

// unsaid is the default as the help shows it.
func (s setting) unsaid() string { return cmp.Or(s.preset, "none") }

// settings is the one table of what can be set outside the command line.
func settings() []setting {
	return []setting{
		{"server", "server", "FLIGHTD_ADDR", defaultServer, "addresses of flightd, tried in turn"},
		{"namespace", "namespace", "FLIGHTD_NAMESPACE", "default", "namespace of keys that name none"},
		{"output", "output", "FLIGHTD_OUTPUT", "table", "table, json, yaml or id"},
		{"no_color", "no-color", "NO_COLOR", "false", "no colours, also on a terminal; any value of NO_COLOR counts"},
		{"data", "data", "FLIGHTD_DATA", "flightd-data", "directory that holds everything of flightd dev"},
		{"listen", "listen", "FLIGHTD_LISTEN", "127.0.0.1:7420", "address of the API of flightd dev"},
		{"listen_metrics", "listen-metrics", "FLIGHTD_LISTEN_METRICS", "", "address of its metrics and health apart from the API"},
		{"log_level", "log-level", "FLIGHTD_LOG_LEVEL", "info", "of flightd dev: debug, info, warn or error"},
		{"log_format", "log-format", "FLIGHTD_LOG_FORMAT", "text", "of flightd dev: text or json"},
	}
}

// decided is a setting's value and who decided it.
type decided struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag --x, env X, file PATH or default
	byFlag bool
}

// said is one place where settings may be said: empty is nothing.
type said func(setting) string

// decide asks flags, environment and file, in this order, and takes the default where none of them says anything.
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

// flagsOf gives what the flags of a command line say.
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

// environment gives what the environment says. NO_COLOR is the convention of others: whatever it holds means yes.
func environment(env func(string) string) said {
	return func(s setting) string {
		v := env(s.env)
		if s.name == "no_color" && v != "" {
			return "true"
		}
		return v
	}
}

// settle reads what was set, wherever, and refuses what cannot be.
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

// setting finds what was decided of one setting.
func (a *app) setting(name string) decided {
	for _, d := range a.decided {
		if d.Name == name {
			return d
		}
	}
	return decided{Name: name, Origin: "default"}
}

// unsettled refuses a value: a flag is a mistake of the command line, everything else one of the configuration.
func (a *app) unsettled(d decided, rule, meant string) error {
	if !d.byFlag {
		return &coded{code: exitConfig, err: fmt.Errorf("%s: %q from %s: %s", d.Name, d.Value, d.Origin, rule), hint: didYouMean(meant)}
	}
	name, _ := strings.CutPrefix(d.Origin, "flag ")
	return &coded{code: exitUsage, err: fmt.Errorf("%s %s: %s", name, d.Value, rule), hint: didYouMean(meant)}
}

// addresses splits a list of servers; http:// may be left out.
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
