package cli

import (
	"cmp"
	"fmt"
	"regexp"
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
	Name         string // in the file
	flag         string // without its dashes; "": there is no flag
	Env          string
	defaultValue string // the default; may be empty
	Kind         settingKind
	About        string
}

// settingKind is the type of a setting's value in the file.
type settingKind int

const (
	textSetting   settingKind = iota
	BoolSetting               // true or false
	ListSetting               // one text, or a list of texts
	SecretSetting             // a text that is never printed; other users see flags, so it has none
)

// FlagText returns the flag for the help.
func (s setting) FlagText() string {
	if s.flag == "" {
		return ""
	}
	return "--" + s.flag
}

// DefaultText returns the default for the help.
func (s setting) DefaultText() string { return cmp.Or(s.defaultValue, "none") }

// AllSettings is the table of all settings, those of callers first.
func AllSettings() []setting {
	return []setting{
		{"server", "server", "FLIGHTD_ADDR", DefaultServer, ListSetting, "addresses of servers, tried in turn"},
		{"namespace", "namespace", "FLIGHTD_NAMESPACE", "default", textSetting, "namespace of keys without one"},
		{"token", "", "FLIGHTD_TOKEN", "", SecretSetting, "token for the servers"},
		{"token_file", "token-file", "FLIGHTD_TOKEN_FILE", "", textSetting, "file with the token, which FLIGHTD_TOKEN or the settings file can hold itself"},
		{"ca_file", "ca-file", "FLIGHTD_CA_FILE", "", textSetting, "PEM file of the CAs of servers, instead of the system's"},
		{"client_cert", "client-cert", "FLIGHTD_CLIENT_CERT", "", textSetting, "PEM file of a client certificate"},
		{"client_key", "client-key", "FLIGHTD_CLIENT_KEY", "", textSetting, "PEM file of its key"},
		{"deployment", "", "FLIGHTD_DEPLOYMENT", "", textSetting, "the only deployment that commands talk to, and whose ledger flightd serve and dev open"},
		{"output", "output", "FLIGHTD_OUTPUT", "table", textSetting, "table, json, yaml or id"},
		{"no_color", "no-color", "NO_COLOR", "false", BoolSetting, "no colours, even on a terminal; any value of NO_COLOR counts"},
		{"data", "data", "FLIGHTD_DATA", "flightd-data", textSetting, "data directory of flightd dev; without it, serve uses " + ServeData},
		{"cluster", "cluster", "FLIGHTD_CLUSTER", "", textSetting, "directory of this node that flightd cluster found made, for flightd serve; without it, a lone node"},
		{"etcd", "etcd", "FLIGHTD_ETCD", "", ListSetting, "URLs of the members of an etcd of your own, as in https://10.0.0.1:2379, instead of the one in the process of flightd serve"},
		{"etcd_cert", "etcd-cert", "FLIGHTD_ETCD_CERT", "", textSetting, "PEM file of the client certificate for that etcd, read again when it changes"},
		{"etcd_key", "etcd-key", "FLIGHTD_ETCD_KEY", "", textSetting, "PEM file of its key"},
		{"etcd_ca", "etcd-ca", "FLIGHTD_ETCD_CA", "", textSetting, "PEM file of the CAs of that etcd, instead of the system's"},
		{"etcd_prefix", "etcd-prefix", "FLIGHTD_ETCD_PREFIX", "", textSetting, "prefix of all keys in that etcd, ending in /; without it, flightd/"},
		{"etcd_allow_plain_http", "etcd-allow-plain-http", "FLIGHTD_ETCD_ALLOW_PLAIN_HTTP", "false", BoolSetting, "that etcd may be on another machine without TLS"},
		{"listen", "listen", "FLIGHTD_LISTEN", "127.0.0.1:7420", textSetting, "address of the API of flightd serve and dev"},
		{"listen_metrics", "listen-metrics", "FLIGHTD_LISTEN_METRICS", "", textSetting, "second address, for metrics and health, of flightd serve and dev"},
		{"public_url", "public-url", "FLIGHTD_PUBLIC_URL", "", textSetting, "URL of the API of flightd serve and dev as providers reach it, for callbacks; without it, serve takes none, and dev uses its own address"},
		{"notify_private", "notify-private", "FLIGHTD_NOTIFY_PRIVATE", "false", BoolSetting, "notifications of flightd serve and dev may go to private networks and this machine"},
		{"tls_cert", "tls-cert", "FLIGHTD_TLS_CERT", "", textSetting, "PEM file of the certificate of flightd serve and its chain, read again when it changes; without it, plain HTTP"},
		{"tls_key", "tls-key", "FLIGHTD_TLS_KEY", "", textSetting, "PEM file of its key"},
		{"tls_client_ca", "tls-client-ca", "FLIGHTD_TLS_CLIENT_CA", "", textSetting, "PEM file of the CA of client certificates, which flightd serve then demands besides the token"},
		{"allow_plain_http", "allow-plain-http", "FLIGHTD_ALLOW_PLAIN_HTTP", "false", BoolSetting, "flightd serve may speak plain HTTP to other machines, and clients send them a token: a proxy ends TLS"},
		{"first_token_file", "first-token-file", "FLIGHTD_FIRST_TOKEN_FILE", "", textSetting, "file that gets the first token, readable by its owner alone; without it, it is printed"},
		{"log_level", "log-level", "FLIGHTD_LOG_LEVEL", "info", textSetting, "log level of flightd serve and dev: debug, info, warn or error"},
		{"log_format", "log-format", "FLIGHTD_LOG_FORMAT", "text", textSetting, "log format of flightd serve and dev: text or json"},
	}
}

// variables returns the environment variables that this program reads or sets for commands and its own processes.
func variables() []string {
	names := []string{ConfigEnv, InsideExecEnv, "FLIGHTD_KEY", "FLIGHTD_FENCING_TOKEN", "FLIGHTD_ATTEMPT", "FLIGHTD_DEV_CHILD", "FLIGHTD_WALL_OFFSET", "FLIGHTD_CRASH_AT"}
	for _, s := range AllSettings() {
		names = append(names, s.Env)
	}
	return names
}

// foreignVariable matches the variables that Kubernetes sets for a service named flightd, and the variables of this project's tests.
var foreignVariable = regexp.MustCompile(`^FLIGHTD_(.*_)?(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?)$|^FLIGHTD_(TEST|CHAOS|CLIENTS|SOAKS?|BENCH|MODEL|SCREENSHOTS)(_|$)`)

// UnknownVariables returns the environment variables that look like settings but are not.
func (t *Terminal) UnknownVariables() (names []string) {
	for _, v := range t.Environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "FLIGHTD_") && !slices.Contains(variables(), name) && !foreignVariable.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// NearVariable returns the variable that an unknown name probably means, or "".
func (t *Terminal) NearVariable(name string) string {
	setting := strings.ToLower(strings.TrimPrefix(name, "FLIGHTD_"))
	if s := namedSetting(setting); s != nil { // FLIGHTD_SERVER, after the flag --server, means FLIGHTD_ADDR
		return s.Env
	}
	return Nearest(name, variables())
}

// Value is the effective value of a setting and its source.
type Value struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // flag --x, env X, file PATH or default
	Source int    // fromFlag to fromDefault
	secret bool
}

// The sources of a value, the strongest first.
const (
	FromFlag = iota
	FromEnv
	FromFile
	FromDefault
)

// Shown returns the value for people, without secrets.
func (v Value) Shown() Value {
	if v.secret && v.Value != "" {
		v.Value = "(hidden)"
	}
	if (v.Name == "server" || v.Name == "etcd") && strings.Contains(v.Value, "@") {
		v.Value = HideUser(strings.Join(Addresses(v.Value), ","))
	}
	return v
}

// AddSettings adds the flags of these settings to those of a command.
func AddSettings(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		s := *namedSetting(name)
		about := fmt.Sprintf("%s (%s; %s)", s.About, s.Env, s.DefaultText())
		short := map[string]string{"namespace": "n", "output": "o"}[name]
		switch s.Kind {
		case BoolSetting:
			flags.Bool(s.flag, false, about)
		case ListSetting:
			flags.StringSlice(s.flag, nil, about)
		default:
			flags.StringP(s.flag, short, "", about)
		}
	}
}

// namedSetting returns the setting of a name, or nil if there is none.
func namedSetting(name string) *setting {
	all := AllSettings()
	if i := slices.IndexFunc(all, func(s setting) bool { return s.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// resolveValues takes every setting from the flags, the environment or the file, in this order, else from its default. By
// convention, NO_COLOR means yes with any value (https://no-color.org).
func resolveValues(cmd *cobra.Command, env func(string) string, file map[string]string, path string) (all []Value) {
	for _, s := range AllSettings() {
		d := Value{Name: s.Name, Value: s.defaultValue, Origin: "default", Source: FromDefault, secret: s.Kind == SecretSetting}
		if v := flagValue(cmd, s.flag); v != "" {
			d.Value, d.Origin, d.Source = v, "flag --"+s.flag, FromFlag
		} else if v := env(s.Env); v != "" {
			d.Value, d.Origin, d.Source = v, "env "+s.Env, FromEnv
			if s.Name == "no_color" {
				d.Value = "true"
			}
		} else if v := file[s.Name]; v != "" {
			d.Value, d.Origin, d.Source = v, "file "+path, FromFile
		}
		all = append(all, d)
	}
	return all
}

// flagValue returns the value of a flag of the command line, a list joined by commas, or "" if the flag is not given.
func flagValue(cmd *cobra.Command, name string) string {
	f := cmd.Flag(name)
	if name == "" || f == nil || !f.Changed {
		return ""
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return f.Value.String()
}

// Settings are the settings of an invocation. The zero value has none.
type Settings struct {
	Config    configLocation
	Values    []Value // all settings; the fields below are derived from them
	Servers   []string
	Namespace string
	Format    string
	noColor   bool
}

// ResolveSettings reads all settings, and validates those of every command.
func (a *App) ResolveSettings(cmd *cobra.Command) error {
	a.Config = a.FindConfig(cmd)
	file, err := a.Config.read()
	if err != nil {
		return err
	}
	a.Values = resolveValues(cmd, a.Env, file, a.Config.Path)
	a.Servers = Addresses(a.Setting("server").Value)
	a.adoptTokenNamespace()
	a.Namespace = a.Setting("namespace").Value
	a.Format = a.Setting("output").Value
	if a.noColor, err = a.BoolSetting("no_color"); err != nil {
		return err
	}
	if !slices.Contains(Formats(), a.Format) {
		return a.InvalidSetting(a.Setting("output"), "the formats are table, json, yaml and id", Nearest(a.Format, Formats()))
	}
	if len(a.Servers) == 0 {
		return a.InvalidSetting(a.Setting("server"), "no server is named", "")
	}
	if _, err := flight.NewKey(a.Namespace, "name", "id"); err != nil {
		return a.InvalidSetting(a.Setting("namespace"), err.Error(), "")
	}
	return nil
}

// adoptTokenNamespace makes the namespace of the token the default of the setting namespace. A token that cannot be read
// is reported by the command that needs it.
func (s *Settings) adoptTokenNamespace() {
	token, from, err := s.Token()
	bound := wire.TokenNamespace(token)
	i := slices.IndexFunc(s.Values, func(d Value) bool { return d.Name == "namespace" })
	if err == nil && bound != "" && s.Values[i].Source == FromDefault {
		s.Values[i].Value, s.Values[i].Origin, s.Values[i].Source = bound, from.Name+" from "+from.Origin, from.Source
	}
}

// Setting returns the value of one setting.
func (s *Settings) Setting(name string) Value {
	for _, d := range s.Values {
		if d.Name == name {
			return d
		}
	}
	return Value{Name: name, Origin: "default", Source: FromDefault}
}

// InvalidSetting rejects a value: with ExitUsage if a flag set it, else with ExitConfig.
func (s *Settings) InvalidSetting(d Value, rule, suggestion string) error {
	if d.Source != FromFlag {
		return &Error{Code: ExitConfig, Err: fmt.Errorf("%s: %q from %s: %s", d.Name, d.Value, d.Origin, rule), Hint: DidYouMean(suggestion)}
	}
	name, _ := strings.CutPrefix(d.Origin, "flag ")
	return &Error{Code: ExitUsage, Err: fmt.Errorf("%s %s: %s", name, d.Value, rule), Hint: DidYouMean(suggestion)}
}

// BoolSetting returns the value of a setting that is true or false.
func (s *Settings) BoolSetting(name string) (bool, error) {
	d := s.Setting(name)
	yes, err := strconv.ParseBool(d.Value)
	if err != nil {
		return false, s.InvalidSetting(d, "true or false", "")
	}
	return yes, nil
}

// Addresses splits a list of servers and adds http:// where it is missing.
func Addresses(list string) []string {
	servers := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	for i, s := range servers {
		if !strings.Contains(s, "://") {
			servers[i] = "http://" + s
		}
	}
	return servers
}

// Formats are the values of -o, the default first.
func Formats() []string { return []string{"table", "json", "yaml", "id"} }

// DefaultServer is the default address of flightd dev and serve.
const DefaultServer = "http://127.0.0.1:7420"

// ServeData is the data directory of flightd serve if neither the settings nor systemd name another one. It is absolute,
// so that it does not depend on the directory in which flightd is started.
const ServeData = "/var/lib/flightd"
