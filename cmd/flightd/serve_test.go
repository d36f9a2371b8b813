package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/cmd/flightd/internal/doctor"
	"github.com/flightd/flightd/internal/proctest"
)

// team is a `flightd serve` process over TLS, with the directories of its certificates and data.
type team struct {
	t            testing.TB
	dir, address string
	cmd          *exec.Cmd
	log          bytes.Buffer
}

// startTeam starts a node with tokens on a new data directory. It ends with the test.
func startTeam(t testing.TB, flags ...string) *team {
	t.Helper()
	tlsDir, _ := makeCertificates(t)
	s := &team{t: t, dir: filepath.Dir(tlsDir), address: proctest.Address(t)}
	s.init()
	s.start(flags...)
	t.Cleanup(s.stop)
	return s
}

// init makes the ledger, and returns the id of its deployment.
func (te *team) init() string {
	te.t.Helper()
	r := te.flightd("", "serve", "--init", "--data", te.path("data"), "--first-token-file", te.path("first-token"))
	require.Zero(te.t, r.code, "%v", r)
	te.log.WriteString(r.err)
	return strings.TrimSpace(r.out)
}

func (te *team) start(flags ...string) {
	te.t.Helper()
	te.log.Reset()
	te.cmd = exec.Command(program, append([]string{"serve", "--data", te.path("data"), "--listen", te.address, "--first-token-file", te.path("first-token"),
		"--tls-cert", te.path("tls/server.crt"), "--tls-key", te.path("tls/server.key")}, flags...)...)
	te.cmd.Stderr = &te.log
	require.NoError(te.t, te.cmd.Start())
	Eventually(te.t, "serve is ready", func() bool { return te.flightd("", "ready").code == cli.ExitOK })
}

func (te *team) stop() {
	if te.cmd != nil {
		_ = te.cmd.Process.Signal(syscall.SIGTERM)
		_ = te.cmd.Wait()
		te.cmd = nil
	}
}

func (te *team) path(name string) string { return filepath.Join(te.dir, name) }

// admin returns the first token.
func (te *team) admin() string {
	te.t.Helper()
	data, err := os.ReadFile(te.path("first-token"))
	require.NoError(te.t, err)
	return strings.TrimSpace(string(data))
}

// flightd runs a command with this token.
func (te *team) flightd(token string, args ...string) result {
	te.t.Helper()
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "FLIGHTD_ADDR=https://"+te.address, "FLIGHTD_CA_FILE="+te.path("tls/ca.crt"), "FLIGHTD_TOKEN="+token, "XDG_STATE_HOME="+te.path("state"))
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if err := c.Run(); c.ProcessState == nil {
		require.NoError(te.t, err)
	}
	return result{args: args, out: out.String(), err: errOut.String(), code: c.ProcessState.ExitCode()}
}

// TestServe_OneTokenPerCaller: the first token makes the others; each acts in its namespace only, and not after it was
// revoked.
func TestServe_OneTokenPerCaller(t *testing.T) {
	t.Parallel()
	s := startTeam(t)
	info, err := os.Stat(s.path("first-token"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	me := s.flightd(s.admin(), "whoami", "-o", "json")
	require.Zero(t, me.code, "%v", me)
	require.Contains(t, me.out, `"namespace": "*"`)
	made := s.flightd(s.admin(), "token", "create", "billing", "-n", "billing")
	require.Zero(t, made.code, "%v", made)
	billing := strings.TrimSpace(made.out)
	require.Regexp(t, `^fltd_\S+$`, billing)
	pay := []string{"exec", "-n", "billing", "--key", "pay-7", "--", "sh", "-c", "echo paid by $$"}
	first := s.flightd(billing, pay...)
	require.Zero(t, first.code, "%v", first)
	require.Equal(t, first.out, s.flightd(billing, pay...).out, "a replay")
	for name, r := range map[string]result{
		"no token":          s.flightd("", "flights", "ls"),
		"unknown token":     s.flightd("fltd_unknown", "flights", "ls"),
		"another namespace": s.flightd(billing, "flights", "ls", "-n", "default"),
		"another right":     s.flightd(billing, "token", "ls"),
		"all namespaces":    s.flightd(billing, "flights", "ls", "-A"),
	} {
		require.Equal(t, cli.ExitForbidden, r.code, "%s: %v", name, r)
	}
	checked := s.flightd(billing, "doctor", "-n", "billing")
	require.Zero(t, checked.code, "%v", checked)
	require.Contains(t, checked.out, "skip  parts     not checked: it needs a token with operate or admin")
	for _, command := range []string{"why pay-7 -n billing", "flights ls -n billing"} {
		require.Zero(t, s.flightd(billing, strings.Fields(command)...).code, command)
	}
	s.flightd(s.admin(), "token", "revoke", "billing", "-n", "billing", "--reason", "it was in a log", "--yes").want(t, cli.ExitOK, "", "")
	require.Equal(t, cli.ExitForbidden, s.flightd(billing, "why", "pay-7", "-n", "billing").code)
	audit := s.flightd(s.admin(), "audit", "ls")
	require.Contains(t, audit.out, "it was in a log")
	require.NotContains(t, audit.out+s.log.String(), billing)
	require.NotContains(t, s.log.String(), s.admin(), "it went to the file")
	require.Contains(t, s.log.String(), "(TLS, tokens)")
	examined := s.flightd(s.admin(), "doctor", "-o", "json")
	var report doctor.Report
	require.NoError(t, json.Unmarshal([]byte(examined.out), &report), "%v", examined)
	for _, f := range report.Findings {
		require.NotEqual(t, doctor.StatusFail, f.Status, "%+v", f)
	}
}

// TestServe_NeedsALedger: a directory that is absent, empty or another one stays as it is, so that a mistyped name does not
// run every effect again. --init makes a ledger once.
func TestServe_NeedsALedger(t *testing.T) {
	t.Parallel()
	s := startTeam(t)
	pay := []string{"exec", "--key", "pay-7", "--", "sh", "-c", "echo paid by $$"}
	require.Contains(t, s.flightd("", "ready").out, "new and empty")
	first := s.flightd(s.admin(), pay...)
	require.Zero(t, first.code, "%v", first)
	require.Equal(t, "ready\n", s.flightd("", "ready").out)
	require.Regexp(t, `ok +ledger +1 flight, newest \d+ s ago; deployment \S+\n`, s.flightd(s.admin(), "doctor").out)
	s.stop()
	require.Contains(t, s.log.String(), s.path("data")+"   (new and empty)")

	typo := s.path("dat")
	for range 2 {
		r := s.flightd("", "serve", "--data", typo, "--listen", s.address, "--first-token-file", s.path("first-token")).
			want(t, cli.ExitConfig, "", typo+" does not exist")
		require.Contains(t, r.err, "flightd serve --init")
		require.NoDirExists(t, typo)
	}
	s.flightd("", "serve", "--init", "--data", s.path("data")).want(t, cli.ExitConfig, "", "not empty")
	r := s.flightd("", "serve", "--init", "--data", typo, "--first-token-file", s.path("first-token"))
	require.Equal(t, cli.ExitConfig, r.code, "the token of another ledger: %v", r)
	require.Contains(t, r.err, "deployment")
	require.NoDirExists(t, typo)
	s.start()
	require.Equal(t, first.out, s.flightd(s.admin(), pay...).out, "a replay")
	s.stop()
	require.Regexp(t, `\(1 flight, newest \d+ s ago\)`, s.log.String())
}

// TestDeployment_IsPinned for callers and for the server: FLIGHTD_DEPLOYMENT allows one ledger, whatever answers at the address. A start
// that it binds makes none.
func TestDeployment_IsPinned(t *testing.T) {
	s, world := startFake(t)
	paid := filepath.Join(t.TempDir(), "paid")
	pay := []string{"exec", "--key", "pay-7", "--", "touch", paid}
	env := map[string]string{"FLIGHTD_ADDR": s.url(), "FLIGHTD_DEPLOYMENT": "d-another"}
	r := flightd(env, pay...).want(t, cli.ExitConfig, "", "wrong_deployment")
	require.Contains(t, r.err, "FLIGHTD_DEPLOYMENT")
	require.NoFileExists(t, paid)
	require.Contains(t, flightd(env, "doctor").out, "belongs to deployment")
	empty := filepath.Join(t.TempDir(), "empty")
	for _, args := range [][]string{{"dev"}, {"serve"}, {"serve", "--init"}} {
		r = flightd(env, append(args, "--data", empty, "--listen", "127.0.0.1:0")...)
		require.Equal(t, cli.ExitConfig, r.code, "%v: %v", args, r)
		require.Contains(t, r.err, "FLIGHTD_DEPLOYMENT", "%v: %v", args, r)
		require.NoDirExists(t, empty)
	}
	env["FLIGHTD_DEPLOYMENT"] = world.Ledger.Header().Deployment
	require.Zero(t, flightd(env, pay...).code)
	require.FileExists(t, paid)
}

// TestDeletedLedgerEndsTheNode: no effect starts and nothing is acknowledged for long after the files have lost their
// names, and the next start does not take the empty directory for a new ledger.
func TestDeletedLedgerEndsTheNode(t *testing.T) {
	t.Parallel()
	s := startTeam(t)
	require.NoError(t, os.RemoveAll(s.path("data/ledger")))
	require.Error(t, s.cmd.Wait())
	code := s.cmd.ProcessState.ExitCode()
	s.cmd = nil
	require.Equal(t, cli.ExitDied, code, "%s", s.log.String())
	require.Contains(t, s.log.String(), "was deleted or replaced")
	s.flightd("", "serve", "--data", s.path("data"), "--listen", s.address).want(t, cli.ExitConfig, "", "restore")
}
