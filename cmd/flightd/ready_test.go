package main

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// fakeReady starts a server whose /readyz has this answer; with a directory of flightd cert init it speaks TLS.
func fakeReady(t *testing.T, tlsDir string, status int, body string) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if tlsDir == "" {
		s.Start()
	} else {
		pair, err := tls.LoadX509KeyPair(filepath.Join(tlsDir, "server.crt"), filepath.Join(tlsDir, "server.key"))
		require.NoError(t, err)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestReady_SaysYesOrWhyNot with the exit code of a probe.
func TestReady_SaysYesOrWhyNot(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		code   int
		says   string
	}{
		"ready":       {http.StatusOK, `{"ready":true}`, cli.ExitOK, "ready\n"},
		"not ready":   {http.StatusServiceUnavailable, `{"ready":false,"checks":[{"name":"etcd","ok":true},{"name":"ledger","ok":false,"error":"the ledger has no leader"}]}`, cli.ExitUnreachable, "ledger: the ledger has no leader"},
		"starting":    {http.StatusServiceUnavailable, `{"code":"draining","detail":"the node is starting"}`, cli.ExitUnreachable, "draining: the node is starting"},
		"another one": {http.StatusOK, "<html>", cli.ExitUnreachable, "not as flightd does"},
		"a liar":      {http.StatusServiceUnavailable, `{"ready":true}`, cli.ExitUnreachable, "answers 503"},
	} {
		r := flightd(map[string]string{"FLIGHTD_ADDR": fakeReady(t, "", test.status, test.body), "FLIGHTD_TOKEN": "fltd_x"}, "ready")
		require.Equal(t, test.code, r.code, "%s: %v", name, r)
		require.Contains(t, r.out+r.err, test.says, "%s: %v", name, r)
		require.Equal(t, test.code != cli.ExitOK, r.out == "", "%s: %v", name, r)
	}
	flightd(map[string]string{"FLIGHTD_ADDR": "127.0.0.1:1"}, "ready").want(t, cli.ExitUnreachable, "", "127.0.0.1:1 is not ready")
}

// TestReady_Waits for a server that starts, and gives up in the end.
func TestReady_Waits(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, `{"ready":`+strconv.FormatBool(asked >= 3)+`}`)
	}))
	t.Cleanup(s.Close)
	env := map[string]string{"FLIGHTD_ADDR": s.URL}
	require.Equal(t, cli.ExitUnreachable, flightd(env, "ready").code)
	require.Equal(t, cli.ExitOK, flightd(env, "ready", "--wait", "1m").code)
	require.Equal(t, 3, asked)
	require.Equal(t, cli.ExitUnreachable, flightd(map[string]string{"FLIGHTD_ADDR": "127.0.0.1:1"}, "ready", "--wait", "300ms").code)
	require.Equal(t, cli.ExitUsage, flightd(env, "ready", "--wait", "-1s").code)
}

// TestReady_FindsTheNodeOfTheSettings: the monitoring address, else the API's, over TLS if the node speaks it; a server
// that is named comes first.
func TestReady_FindsTheNodeOfTheSettings(t *testing.T) {
	dir, _ := makeCertificates(t)
	plain, secure := fakeReady(t, "", http.StatusOK, `{"ready":true}`), fakeReady(t, dir, http.StatusOK, `{"ready":true}`)
	_, port, err := net.SplitHostPort(plain)
	require.NoError(t, err)
	_, securePort, err := net.SplitHostPort(secure)
	require.NoError(t, err)
	certificate := "tls_cert: " + dir + "/server.crt\ntls_key: " + dir + "/server.key\n"
	for name, test := range map[string]struct {
		file string
		env  map[string]string
		code int
	}{
		"monitoring":           {"listen_metrics: 0.0.0.0:" + port + "\nlisten: 127.0.0.1:1\n" + certificate, nil, cli.ExitOK},
		"plain API":            {"listen: \":" + port + "\"\n", nil, cli.ExitOK},
		"API over TLS":         {"listen: 0.0.0.0:" + securePort + "\n" + certificate, nil, cli.ExitOK},
		"the settings' server": {"server: " + plain + "\n", nil, cli.ExitOK},
		"a listener comes before the settings' server":  {"server: 127.0.0.1:1\nlisten: " + plain + "\n", nil, cli.ExitOK},
		"the environment's server":                      {"listen_metrics: 127.0.0.1:1\n", map[string]string{"FLIGHTD_ADDR": plain}, cli.ExitOK},
		"a named server over TLS":                       {"ca_file: " + dir + "/ca.crt\n", map[string]string{"FLIGHTD_ADDR": "https://" + secure}, cli.ExitOK},
		"a named server is verified":                    {"", map[string]string{"FLIGHTD_ADDR": "https://" + secure}, cli.ExitUnreachable},
		"the environment's listener, as in a container": {"", map[string]string{"FLIGHTD_LISTEN": "0.0.0.0:" + port}, cli.ExitOK},
	} {
		env := withConfig(t, test.file)
		for k, v := range test.env {
			env[k] = v
		}
		r := flightd(env, "ready")
		require.Equal(t, test.code, r.code, "%s: %v", name, r)
	}
	r := flightd(map[string]string{"FLIGHTD_ADDR": "https://" + secure}, "ready")
	require.Contains(t, r.err, "FLIGHTD_CA_FILE", "%v", r)
	r = flightd(map[string]string{"FLIGHTD_ADDR": "https://" + plain}, "ready")
	require.Contains(t, r.err, "speaks plain HTTP", "%v", r)
}

func TestReady_LocalAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:7420": "127.0.0.1:7420", ":7420": "127.0.0.1:7420", "[::]:7420": "[::1]:7420", "10.0.0.7:7420": "10.0.0.7:7420",
		"localhost:7420": "localhost:7420", "nonsense": "nonsense",
	} {
		require.Equal(t, want, localAddress(listen))
	}
}

// TestSettings_WhichFile: serve and ready read the machine's file, dev never does, and other commands read it if the user
// has none. A file that is named must exist.
func TestSettings_WhichFile(t *testing.T) {
	etc := t.TempDir()
	machine := filepath.Join(etc, "flightd", "flightd.yaml")
	require.NoError(t, os.Mkdir(filepath.Dir(machine), 0o700))
	require.NoError(t, os.WriteFile(machine, []byte("namespace: machine\n"), 0o600))
	user := withConfig(t, "namespace: user\n")
	none := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	named := filepath.Join(t.TempDir(), "named.yaml")
	require.NoError(t, os.WriteFile(named, []byte("namespace: named\n"), 0o600))
	userFile := filepath.Join(user["XDG_CONFIG_HOME"], "flightd", "config.yaml")
	with := func(env map[string]string, value string) map[string]string {
		return map[string]string{"XDG_CONFIG_HOME": env["XDG_CONFIG_HOME"], cli.ConfigEnv: value}
	}
	for name, test := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"a user's":             {user, []string{"why"}, userFile},
		"a user without":       {none, []string{"why"}, machine},
		"serve":                {user, []string{"serve"}, machine},
		"ready":                {user, []string{"ready"}, machine},
		"dev":                  {none, []string{"dev"}, filepath.Join(none["XDG_CONFIG_HOME"], "flightd", "config.yaml")},
		"named":                {user, []string{"serve", "-c", named}, named},
		"named by environment": {with(user, named), []string{"why"}, named},
		"named twice":          {with(user, "/none"), []string{"why", "--config", named}, named},
	} {
		a := &cli.App{Terminal: cli.Terminal{Env: func(k string) string { return test.env[k] }, Etc: etc}}
		cmd, rest, err := newRoot(a).Find(test.args)
		require.NoError(t, err, name)
		require.NoError(t, cmd.ParseFlags(rest), name)
		require.Equal(t, test.want, a.FindConfig(cmd).Path, name)
	}
	for _, args := range [][]string{{"version", "-c", "/none/flightd.yaml"}, {"serve", "-c", "/none/flightd.yaml"}} {
		r := flightd(nil, args...)
		require.Equal(t, cli.ExitConfig, r.code, "%v: %v", args, r)
		require.Contains(t, r.err, "from flag --config: open /none/flightd.yaml", "%v: %v", args, r)
	}
}
