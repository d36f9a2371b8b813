package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/node"
)

// serve with an etcd of its own: the settings reach it, --init makes a ledger on it, doctor describes it, and mistakes have hints.
func TestServe_OwnEtcd(t *testing.T) {
	p := etcdtest.StartProcesses(t, etcdtest.Member{Name: "e1"})
	url := p.Members[0].URL()
	t.Setenv("FLIGHTD_ETCD", url)
	t.Setenv("FLIGHTD_ETCD_PREFIX", "team/")
	s := startTeam(t)
	require.NoDirExists(t, s.path("data/etcd"))
	s.flightd(s.admin(), "exec", "-n", "a", "--key", "pay-7", "--", "true").want(t, cli.ExitOK, "", "")
	r := s.flightd(s.admin(), "doctor", "-o", "json")
	require.Contains(t, r.out, url, "%v", r)
	require.Contains(t, r.out, "an etcd of your own with 1 members", "%v", r)
	s.stop()
	for name, test := range map[string]struct {
		flags []string
		hint  string
	}{
		"another prefix": {[]string{"--etcd-prefix", "elsewhere/"}, "correct --etcd and --etcd-prefix"},
		"plain HTTP":     {[]string{"--etcd", "http://10.0.0.1:2379"}, "help settings"},
		"half of a pair": {[]string{"--etcd-cert", "client.crt"}, "help settings"},
	} {
		r := s.flightd("", append([]string{"serve", "--data", s.path("data"), "--first-token-file", s.path("first-token")}, test.flags...)...)
		require.Equal(t, cli.ExitConfig, r.code, "%s: %v", name, r)
		require.Contains(t, r.err, test.hint, name)
	}
	s.start()
	r = s.flightd(s.admin(), "exec", "-n", "a", "--key", "pay-7", "--", "true")
	require.Zero(t, r.code, "a replay: %v", r)
	p.Process(0).Kill()
	r = s.flightd(s.admin(), "doctor", "-o", "json")
	require.NotZero(t, r.code)
	require.Contains(t, r.out, "etcd does not answer the server", "%v", r)
	require.NoError(t, s.cmd.Process.Kill()) // a stop would wait for etcd
}

// Every setting of an etcd reaches the node, and no password in an address is shown.
func TestServe_OwnEtcdSettings(t *testing.T) {
	env := withConfig(t, "etcd: [https://a:2379, https://b:2379]\netcd_cert: c\netcd_key: k\netcd_prefix: team/\netcd_allow_plain_http: true\n")
	env["FLIGHTD_ETCD_CA"] = "ca"
	a := &cli.App{Terminal: cli.Terminal{Env: func(k string) string { return env[k] }}}
	serve, flags, err := newRoot(a).Find([]string{"serve", "--etcd-prefix", "flag/"})
	require.NoError(t, err)
	require.NoError(t, serve.ParseFlags(flags))
	require.NoError(t, a.ResolveSettings(serve))
	cfg, err := serveConfig(a, onceFlags{})
	require.NoError(t, err)
	require.Equal(t, node.ExternalEtcd{Endpoints: []string{"https://a:2379", "https://b:2379"}, Cert: "c", Key: "k", CA: "ca", Prefix: "flag/", AllowPlainHTTP: true}, cfg.Etcd)
	for _, format := range []string{"table", "yaml", "json"} {
		r := flightd(map[string]string{"FLIGHTD_ETCD": "https://root:secret@a:2379"}, "config", "show", "-o", format)
		require.Zero(t, r.code, "%v", r)
		require.NotContains(t, r.out, "secret")
		require.Contains(t, r.out, "a:2379")
	}
	require.NotContains(t, strings.ToLower(flightd(nil, "dev", "--help").out), "--etcd", "dev embeds its etcd")
}
