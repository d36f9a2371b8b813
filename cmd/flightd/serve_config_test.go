package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/node"
)

// TestServe_ConfigOfTheNode: every setting of serve reaches the node, from flags, environment and file.
func TestServe_ConfigOfTheNode(t *testing.T) {
	dir, _ := makeCertificates(t)
	cert, key := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	env := withConfig(t, "listen: 0.0.0.0:7420\ntls_cert: "+cert+"\nallow_plain_http: true\nfirst_token_file: /file/token\n")
	env["FLIGHTD_TLS_KEY"], env["FLIGHTD_FIRST_TOKEN_FILE"], env["STATE_DIRECTORY"] = key, "/env/token", "/state"
	a := &cli.App{Terminal: cli.Terminal{Env: func(k string) string { return env[k] }}}
	serve, flags, err := newRoot(a).Find([]string{"serve", "--tls-client-ca", "/ca.crt"})
	require.NoError(t, err)
	require.NoError(t, serve.ParseFlags(flags))
	require.NoError(t, a.ResolveSettings(serve))
	cfg, err := serveConfig(a, onceFlags{raiseLeaseEpoch: "etcd is gone", newAdminToken: "lost"})
	require.NoError(t, err)
	require.Equal(t, node.TLSFiles{Cert: cert, Key: key, ClientCA: "/ca.crt"}, cfg.Listen.TLS)
	require.Equal(t, [...]string{"0.0.0.0:7420", "/state", "/env/token", "lost", "etcd is gone"},
		[...]string{cfg.Listen.Address, cfg.Data, cfg.FirstToken.File, cfg.Operator.NewAdminToken, cfg.Operator.RaiseLeaseEpoch})
	require.True(t, cfg.Listen.AllowPlainHTTP)
	require.False(t, cfg.NoCredentials, "serve never serves without credentials")
	delete(env, "STATE_DIRECTORY")
	cfg, err = serveConfig(a, onceFlags{})
	require.NoError(t, err)
	require.Equal(t, cli.ServeData, cfg.Data)
}

// TestServe_RejectedStartsHaveHints: a node that does not start because of a setting ends with ExitConfig and the remedy.
func TestServe_RejectedStartsHaveHints(t *testing.T) {
	open := node.Config{Listen: node.Listen{Address: "0.0.0.0:7420"}}
	secure := node.Config{Listen: node.Listen{Address: "7420", TLS: node.TLSFiles{Cert: "c"}}}
	for name, test := range map[string]struct {
		field string
		cfg   node.Config
		hint  string
	}{
		"plain":           {"listen", open, "run flightd cert init DIR and set --tls-cert and --tls-key, or set --allow-plain-http if a proxy in front ends TLS"},
		"no address":      {"listen", secure, "as in 0.0.0.0:7420"},
		"dev":             {"listen", node.Config{NoCredentials: true, Listen: node.Listen{Address: "0.0.0.0:1"}}, "flightd serve serves other machines"},
		"certificate":     {"tls_cert", secure, "flightd cert init DIR"},
		"no directory":    {"first_token_file", secure, "--first-token-file"},
		"monitoring":      {"listen_metrics", secure, "--listen-metrics"},
		"monitoring, dev": {"listen_metrics", node.Config{NoCredentials: true}, "loopback"},
	} {
		code, message, hint := cli.Explain(startError(&flight.InvalidError{Field: test.field, Detail: "no"}, &test.cfg))
		require.Equal(t, cli.ExitConfig, code, name)
		require.Contains(t, message, test.field, name)
		require.Contains(t, hint, test.hint, name)
	}
	dir, _ := makeCertificates(t)
	other, _ := makeCertificates(t)
	for name, args := range map[string][]string{
		"no key":       {"--tls-cert", dir + "/server.crt"},
		"no cert":      {"--tls-client-ca", dir + "/ca.crt"},
		"missing file": {"--tls-cert", "/none.crt", "--tls-key", dir + "/server.key"},
		"another key":  {"--tls-cert", dir + "/server.crt", "--tls-key", other + "/server.key"},
	} {
		r := flightd(nil, append([]string{"serve", "--data", filepath.Join(t.TempDir(), "data")}, args...)...)
		require.Equal(t, cli.ExitConfig, r.code, "%s: %v", name, r)
		require.Contains(t, r.err, "flightd cert init", "%s: %v", name, r)
	}
	require.Equal(t, cli.ExitUsage, flightd(nil, "serve", "--new-admin-token", "").code, "a start without a reason would replace nothing")
	flightd(map[string]string{"FLIGHTD_ALLOW_PLAIN_HTTP": "maybe"}, "serve").want(t, cli.ExitConfig, "", "FLIGHTD_ALLOW_PLAIN_HTTP")
}

// TestServe_Banner says who can use the API. The first token is printed to standard error alone.
func TestServe_Banner(t *testing.T) {
	for want, cfg := range map[string]node.Config{
		"(this machine only, no credentials)": {NoCredentials: true},
		"(plain HTTP, tokens)":                {},
		"(TLS, tokens)":                       {Listen: node.Listen{TLS: node.TLSFiles{Cert: "c"}}},
		"(TLS, client certificates, tokens)":  {Listen: node.Listen{TLS: node.TLSFiles{Cert: "c", ClientCA: "a"}}},
	} {
		var out, talk bytes.Buffer
		a := &cli.App{Terminal: cli.Terminal{Out: &out, Err: &talk}}
		require.NoError(t, printBanner(a, node.Ready{URL: "https://10.0.0.7:7420", Data: "/d", Metrics: "http://10.0.0.7:9464", Ledger: wire.LedgerInfo{Empty: true}}, &cfg))
		require.Contains(t, talk.String(), want)
		require.Contains(t, talk.String(), "http://10.0.0.7:9464/metrics")
		require.Contains(t, talk.String(), "/d   (new and empty)")
		require.Equal(t, cfg.NoCredentials, strings.Contains(talk.String(), "try in another terminal"))
		require.Equal(t, "https://10.0.0.7:7420\n", out.String())
		for _, format := range cli.Formats() {
			var data bytes.Buffer
			shown := &cli.App{Terminal: cli.Terminal{Out: &data, Err: io.Discard}, Settings: cli.Settings{Format: format}}
			require.NoError(t, printBanner(shown, node.Ready{URL: "https://10.0.0.7:7420"}, &cfg))
			require.Contains(t, data.String(), "https://10.0.0.7:7420")
			require.NoError(t, checkReadable(format, data.String()))
		}
		printFirstToken(a, testToken)
		require.NotContains(t, out.String(), testToken)
		require.Contains(t, talk.String(), "\n  "+testToken+"\n")
		require.Contains(t, talk.String(), "shown only now")
	}
}

// TestWatchdog_IsFedWhileTheNodeIsAlive: once per interval, not after a failed or a hanging proof, and not after the stop.
func TestWatchdog_IsFedWhileTheNodeIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var alive func(context.Context) error
		fed := 0
		ended := make(chan struct{})
		go func() {
			feedWatchdog(ctx, time.Second, func(ctx context.Context) error { return alive(ctx) },
				func(state string) {
					if state != "WATCHDOG=1" {
						t.Errorf("said %q", state)
					}
					fed++
				}, slog.New(slog.NewTextHandler(io.Discard, nil)))
			close(ended)
		}()
		for _, step := range []struct {
			alive func(context.Context) error
			fed   int
		}{
			{func(context.Context) error { return nil }, 10},
			{func(context.Context) error { return errors.New("no leader") }, 10},
			{func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 10},
			{func(context.Context) error { return nil }, 20},
		} {
			alive = step.alive
			time.Sleep(10*time.Second + time.Millisecond)
			synctest.Wait()
			require.InDelta(t, step.fed, fed, 1)
		}
		cancel()
		<-ended
		last := fed
		time.Sleep(10 * time.Second)
		require.Equal(t, last, fed)
	})
}

// TestWatchdog_Interval: a third of systemd's bound, for this process only.
func TestWatchdog_Interval(t *testing.T) {
	for want, env := range map[time.Duration]map[string]string{
		0:                {},
		10 * time.Second: {"WATCHDOG_USEC": "30000000"},
		5 * time.Second:  {"WATCHDOG_USEC": "15000000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())},
	} {
		setWatchdog(t, env)
		require.Equal(t, want, watchdogInterval())
	}
	for _, env := range []map[string]string{{"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "-1"}} {
		setWatchdog(t, env)
		require.Zero(t, watchdogInterval(), "%v", env)
	}
}

func setWatchdog(t *testing.T, env map[string]string) {
	for _, name := range []string{"WATCHDOG_USEC", "WATCHDOG_PID"} {
		t.Setenv(name, env[name])
	}
}

// TestUnit_StartsACommandThatThereIs: the unit of systemd starts an existing command and has type notify.
func TestUnit_StartsACommandThatThereIs(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/systemd/flightd.service")
	require.NoError(t, err)
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/flightd (.*)$`).FindStringSubmatch(string(unit))
	require.NotNil(t, start)
	require.NotContains(t, start[1], "--init", "a restart must not make a ledger")
	for _, line := range []string{"Type=notify", "WatchdogSec=30", "EnvironmentFile=-/etc/flightd/env"} {
		require.Contains(t, string(unit), "\n"+line+"\n")
	}
	require.NotContains(t, string(unit), "IPAddress", "callers are on other machines")
	flightd(nil, append(strings.Fields(start[1]), "--help")...).want(t, cli.ExitOK, "flightd serve", "")
}

// TestSample_IsAValidSettingsFile: every line of the sample, also a commented one, is a valid setting.
func TestSample_IsAValidSettingsFile(t *testing.T) {
	data, err := os.ReadFile("../../deploy/flightd.yaml")
	require.NoError(t, err)
	f, err := cli.ParseConfig(data)
	require.NoError(t, err)
	require.NotEmpty(t, f["tls_cert"])
	var all strings.Builder
	for line := range strings.Lines(string(data)) {
		if setting, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(setting, " ") {
			line = setting
		}
		all.WriteString(line)
	}
	f, err = cli.ParseConfig([]byte(all.String()))
	require.NoError(t, err, all.String())
	for _, s := range cli.AllSettings() {
		if strings.Contains(s.About, "flightd serve") || s.Name == "tls_key" {
			require.NotEmpty(t, f[s.Name], "the sample has no %s", s.Name)
		}
	}
}
