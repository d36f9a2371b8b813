package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// setting is one setting. A flag overrides the environment, which overrides the file, which overrides the default.
type setting struct {
	name         string // in the file
	flag         string // without its dashes; "": there is no flag
	env          string
	defaultValue string // the default; may be empty
	kind         settingKind
	about        string
}

// settingKind is the type of a setting's value in the file.
type settingKind int

const (
	textSetting   settingKind = iota
	boolSetting               // true or false
	listSetting               // one text, or a list of texts
	secretSetting             // a text that is never printed; other users see flags, so it has none
)

// flagText returns the flag for the help.
func (s setting) flagText() string {
	if s.flag == "" {
		return ""
	}
	return "--" + s.flag
}

// defaultText returns the default for the help.
func (s setting) defaultText() string { return cmp.Or(s.defaultValue, "none") }

// settings is the table of all settings, those of callers first.
func settings() []setting {
	return []setting{
		{"server", "server", "FLIGHTD_ADDR", defaultServer, listSetting, "addresses of servers, tried in turn"},
		{"namespace", "namespace", "FLIGHTD_NAMESPACE", "default", textSetting, "namespace of keys without one"},
		{"token", "", "FLIGHTD_TOKEN", "", secretSetting, "token for the servers"},
		{"token_file", "token-file", "FLIGHTD_TOKEN_FILE", "", textSetting, "file with the token"},
		{"ca_file", "ca-file", "FLIGHTD_CA_FILE", "", textSetting, "PEM file of the CAs of servers, instead of the system's"},
		{"client_cert", "client-cert", "FLIGHTD_CLIENT_CERT", "", textSetting, "PEM file of a client certificate"},
		{"client_key", "client-key", "FLIGHTD_CLIENT_KEY", "", textSetting, "PEM file of its key"},
		{"deployment", "", "FLIGHTD_DEPLOYMENT", "", textSetting, "the only deployment that commands talk to, and whose ledger flightd serve and dev open"},
		{"output", "output", "FLIGHTD_OUTPUT", "table", textSetting, "table, json, yaml or id"},
		{"no_color", "no-color", "NO_COLOR", "false", boolSetting, "no colours, even on a terminal; any value of NO_COLOR counts"},
		{"data", "data", "FLIGHTD_DATA", "flightd-data", textSetting, "data directory of flightd dev; without it, serve uses " + serveData},
		{"cluster", "cluster", "FLIGHTD_CLUSTER", "", textSetting, "directory of this node that flightd cluster found made, for flightd serve"},
		{"etcd", "etcd", "FLIGHTD_ETCD", "", listSetting, "URLs of the members of an etcd of your own for flightd serve, instead of the one in its process"},
		{"etcd_cert", "etcd-cert", "FLIGHTD_ETCD_CERT", "", textSetting, "PEM file of the client certificate for that etcd, read again when it changes"},
		{"etcd_key", "etcd-key", "FLIGHTD_ETCD_KEY", "", textSetting, "PEM file of its key"},
		{"etcd_ca", "etcd-ca", "FLIGHTD_ETCD_CA", "", textSetting, "PEM file of the CAs of that etcd, instead of the system's"},
		{"etcd_prefix", "etcd-prefix", "FLIGHTD_ETCD_PREFIX", "", textSetting, "prefix of all keys in that etcd, ending in /; without it, flightd/"},
		{"etcd_allow_plain_http", "etcd-allow-plain-http", "FLIGHTD_ETCD_ALLOW_PLAIN_HTTP", "false", boolSetting, "that etcd may be on another machine without TLS"},
		{"listen", "listen", "FLIGHTD_LISTEN", "127.0.0.1:7420", textSetting, "address of the API of flightd serve and dev"},
		{"listen_metrics", "listen-metrics", "FLIGHTD_LISTEN_METRICS", "", textSetting, "second address, for metrics and health, of flightd serve and dev"},
		{"tls_cert", "tls-cert", "FLIGHTD_TLS_CERT", "", textSetting, "PEM file of the certificate of flightd serve, read again when it changes"},
		{"tls_key", "tls-key", "FLIGHTD_TLS_KEY", "", textSetting, "PEM file of its key"},
		{"tls_client_ca", "tls-client-ca", "FLIGHTD_TLS_CLIENT_CA", "", textSetting, "PEM file of the CA of client certificates, which flightd serve then demands"},
		{"allow_plain_http", "allow-plain-http", "FLIGHTD_ALLOW_PLAIN_HTTP", "false", boolSetting, "flightd serve may speak plain HTTP to other machines, and clients send them a token: a proxy ends TLS"},
		{"first_token_file", "first-token-file", "FLIGHTD_FIRST_TOKEN_FILE", "", textSetting, "file that gets the first token of flightd serve"},
		{"log_level", "log-level", "FLIGHTD_LOG_LEVEL", "info", textSetting, "log level of flightd serve and dev: debug, info, warn or error"},
		{"log_format", "log-format", "FLIGHTD_LOG_FORMAT", "text", textSetting, "log format of flightd serve and dev: text or json"},
	}
}

// settingValue is the effective value of a setting and its source.
type settingValue struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag --x, env X, file PATH or default
	source int    // fromFlag to fromDefault
	secret bool
}

// The sources of a value, the strongest first.
const (
	fromFlag = iota
	fromEnv
	fromFile
	fromDefault
)

// shown returns the value for people, without secrets.
func (v settingValue) shown() settingValue {
	if v.secret && v.Value != "" {
		v.Value = "(hidden)"
	}
	if (v.Name == "server" || v.Name == "etcd") && strings.Contains(v.Value, "@") {
		v.Value = hideUser(strings.Join(addresses(v.Value), ","))
	}
	return v
}

// settingSource returns the value of a setting in one source; "": not set there.
type settingSource func(setting) string

// resolveValues takes every setting from the flags, the environment or the file, in this order, else from its default.
func resolveValues(flag, env, file settingSource, path string) []settingValue {
	all := make([]settingValue, 0, len(settings()))
	for _, s := range settings() {
		d := settingValue{Name: s.name, Value: s.defaultValue, Origin: "default", source: fromDefault, secret: s.kind == secretSetting}
		if v := flag(s); v != "" {
			d.Value, d.Origin, d.source = v, "flag --"+s.flag, fromFlag
		} else if v := env(s); v != "" {
			d.Value, d.Origin, d.source = v, "env "+s.env, fromEnv
		} else if v := file(s); v != "" {
			d.Value, d.Origin, d.source = v, "file "+path, fromFile
		}
		all = append(all, d)
	}
	return all
}

// flagSource reads settings from the flags of a command line.
func flagSource(cmd *cobra.Command) settingSource {
	return func(s setting) string {
		f := cmd.Flag(s.flag)
		if s.flag == "" || f == nil || !f.Changed {
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

// resolveSettings reads all settings, and validates those of every command.
func (a *app) resolveSettings(cmd *cobra.Command) error {
	a.config = a.findConfig(cmd)
	file, err := a.config.read()
	if err != nil {
		return err
	}
	a.settings = resolveValues(flagSource(cmd), envSource(a.env), file.value, a.config.path)
	a.servers = addresses(a.setting("server").Value)
	a.adoptTokenNamespace()
	a.namespace = a.setting("namespace").Value
	a.format = a.setting("output").Value
	if a.noColor, err = a.boolSetting("no_color"); err != nil {
		return err
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

// adoptTokenNamespace makes the namespace of the token the default of the setting namespace. A token that cannot be read
// is reported by the command that needs it.
func (a *app) adoptTokenNamespace() {
	token, from, err := a.token()
	bound := wire.TokenNamespace(token)
	i := slices.IndexFunc(a.settings, func(d settingValue) bool { return d.Name == "namespace" })
	if err == nil && bound != "" && a.settings[i].source == fromDefault {
		a.settings[i].Value, a.settings[i].Origin, a.settings[i].source = bound, from.Name+" from "+from.Origin, from.source
	}
}

// setting returns the value of one setting.
func (a *app) setting(name string) settingValue {
	for _, d := range a.settings {
		if d.Name == name {
			return d
		}
	}
	return settingValue{Name: name, Origin: "default", source: fromDefault}
}

// invalidSetting rejects a value: with exitUsage if a flag set it, else with exitConfig.
func (a *app) invalidSetting(d settingValue, rule, suggestion string) error {
	if d.source != fromFlag {
		return &exitError{code: exitConfig, err: fmt.Errorf("%s: %q from %s: %s", d.Name, d.Value, d.Origin, rule), hint: didYouMean(suggestion)}
	}
	name, _ := strings.CutPrefix(d.Origin, "flag ")
	return &exitError{code: exitUsage, err: fmt.Errorf("%s %s: %s", name, d.Value, rule), hint: didYouMean(suggestion)}
}

// boolSetting returns the value of a setting that is true or false.
func (a *app) boolSetting(name string) (bool, error) {
	d := a.setting(name)
	yes, err := strconv.ParseBool(d.Value)
	if err != nil {
		return false, a.invalidSetting(d, "true or false", "")
	}
	return yes, nil
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
