package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/cmd/flightd/internal/doctor"
	"github.com/flightd/flightd/httpapi/wire"
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
	Eventually(te.t, "serve is ready", 30*time.Second, func() bool { return te.flightd("", "ready").code == cli.ExitOK })
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
	return result{out: out.String(), err: errOut.String(), code: c.ProcessState.ExitCode()}
}

// TestServe_OneTokenPerCaller: the first token makes the others; each acts in its namespace only, and not after it was
// revoked.
func TestServe_OneTokenPerCaller(t *testing.T) {
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
	r := s.flightd(s.admin(), "token", "revoke", "billing", "-n", "billing", "--reason", "it was in a log", "--yes")
	require.Zero(t, r.code, "%v", r)
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
		r := s.flightd("", "serve", "--data", typo, "--listen", s.address, "--first-token-file", s.path("first-token"))
		require.Equal(t, cli.ExitConfig, r.code, "%v", r)
		require.Contains(t, r.err, typo+" does not exist")
		require.Contains(t, r.err, "flightd serve --init")
		require.NoDirExists(t, typo)
	}
	r := s.flightd("", "serve", "--init", "--data", s.path("data"))
	require.Equal(t, cli.ExitConfig, r.code, "%v", r)
	require.Contains(t, r.err, "not empty")
	r = s.flightd("", "serve", "--init", "--data", typo, "--first-token-file", s.path("first-token"))
	require.Equal(t, cli.ExitConfig, r.code, "the token of another ledger: %v", r)
	require.Contains(t, r.err, "deployment")
	require.NoDirExists(t, typo)
	s.start()
	require.Equal(t, first.out, s.flightd(s.admin(), pay...).out, "a replay")
	s.stop()
	require.Regexp(t, `\(1 flight, newest \d+ s ago\)`, s.log.String())
}

// TestDeployment_IsPinned for callers and for the server: FLIGHTD_DEPLOYMENT allows one ledger, whatever answers at the
// address or lies in the directory.
func TestDeployment_IsPinned(t *testing.T) {
	s := startServer(t)
	var version wire.Version
	s.get("/version", &version)
	pinned := "FLIGHTD_DEPLOYMENT=" + version.Deployment
	const another = "FLIGHTD_DEPLOYMENT=d-another"
	run := func(pin string, args ...string) result {
		return s.beginCommand("env", append([]string{pin, program}, args...)...).wait()
	}
	paid := filepath.Join(t.TempDir(), "paid")
	pay := []string{"exec", "--key", "pay-7", "--", "touch", paid}
	r := run(another, pay...)
	require.Equal(t, cli.ExitConfig, r.code, "%v", r)
	require.Contains(t, r.err, "wrong_deployment")
	require.Contains(t, r.err, "FLIGHTD_DEPLOYMENT")
	require.NoFileExists(t, paid)
	r = run(another, "doctor")
	require.Equal(t, cli.ExitFailed, r.code, "%v", r)
	require.Contains(t, r.out, "belongs to deployment")
	require.Zero(t, run(pinned, pay...).code)
	require.FileExists(t, paid)
	s.kill()

	r = run(another, "dev", "--data", s.data, "--listen", s.address)
	require.Equal(t, cli.ExitConfig, r.code, "%v", r)
	require.Contains(t, r.err, version.Deployment)
	empty := filepath.Join(t.TempDir(), "empty")
	for _, args := range [][]string{{"dev"}, {"serve"}, {"serve", "--init"}} {
		r = run(pinned, append(args, "--data", empty, "--listen", s.address)...)
		require.Equal(t, cli.ExitConfig, r.code, "%v: %v", args, r)
		require.Contains(t, r.err, "FLIGHTD_DEPLOYMENT", "%v: %v", args, r)
		require.NoDirExists(t, empty)
	}
	s.start(pinned)
}

// TestDeletedLedgerEndsTheNode: no effect starts and nothing is acknowledged for long after the files have lost their
// names, and the next start does not take the empty directory for a new ledger.
func TestDeletedLedgerEndsTheNode(t *testing.T) {
	s := startTeam(t)
	require.NoError(t, os.RemoveAll(s.path("data/ledger")))
	require.Error(t, s.cmd.Wait())
	code := s.cmd.ProcessState.ExitCode()
	s.cmd = nil
	require.Equal(t, cli.ExitDied, code, "%s", s.log.String())
	require.Contains(t, s.log.String(), "was deleted or replaced")
	r := s.flightd("", "serve", "--data", s.path("data"), "--listen", s.address)
	require.Equal(t, cli.ExitConfig, r.code, "%v", r)
	require.Contains(t, r.err, "restore")
}

// TestServe_AdminTokenIsReplaced at a start with a reason, and at no other start.
func TestServe_AdminTokenIsReplaced(t *testing.T) {
	dir, _ := makeCertificates(t)
	s := &team{t: t, dir: filepath.Dir(dir), address: proctest.Address(t)}
	t.Cleanup(s.stop)
	s.init()
	require.Contains(t, s.log.String(), "is in first_token_file\" file="+s.path("first-token"))
	first := s.admin()
	s.start()
	require.Equal(t, first, s.admin())
	s.stop()
	require.NoError(t, os.Remove(s.path("first-token")))
	s.start()
	s.stop()
	require.Contains(t, s.log.String(), "first_token_file is unused")
	require.Equal(t, cli.ExitUsage, flightd(nil, "serve", "--new-admin-token", "").code, "a start without a reason would replace nothing")
	s.start("--new-admin-token", "the laptop is lost")
	second := s.admin()
	require.NotEqual(t, first, second)
	require.Zero(t, s.flightd(second, "whoami").code)
	require.Equal(t, cli.ExitForbidden, s.flightd(first, "whoami").code)
	require.Contains(t, s.flightd(second, "audit", "ls").out, "the laptop is lost")
}

// TestServe_CertificateIsRenewedWithoutRestart: new connections get the new certificate.
func TestServe_CertificateIsRenewedWithoutRestart(t *testing.T) {
	t.Parallel()
	s := startTeam(t)
	serial := func() string {
		conn, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: roots(t, s.path("tls"))})
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	require.Zero(t, flightd(nil, "cert", "init", s.path("tls")).code)
	Eventually(t, "the new certificate is used", 30*time.Second, func() bool { return serial() != before })
}

// TestServe_DemandsClientCertificates besides tokens; health checks use the monitoring address.
func TestServe_DemandsClientCertificates(t *testing.T) {
	dir, _ := makeCertificates(t)
	require.Zero(t, flightd(nil, "cert", "client", dir, "billing").code)
	s := &team{t: t, dir: filepath.Dir(dir), address: proctest.Address(t)}
	s.init()
	metrics := proctest.Address(t)
	s.cmd = exec.Command(program, "serve", "--data", s.path("data"), "--listen", s.address, "--first-token-file", s.path("first-token"), "--listen-metrics", metrics,
		"--tls-cert", s.path("tls/server.crt"), "--tls-key", s.path("tls/server.key"), "--tls-client-ca", s.path("tls/ca.crt"))
	s.cmd.Stderr = &s.log
	require.NoError(t, s.cmd.Start())
	t.Cleanup(s.stop)
	Eventually(t, "serve is ready", 30*time.Second, func() bool {
		r := flightd(map[string]string{"FLIGHTD_LISTEN_METRICS": metrics}, "ready")
		require.True(t, r.code != cli.ExitOK || r.out == "ready; its ledger: new and empty\n", "%v", r)
		return r.code == cli.ExitOK
	})
	r := s.flightd(s.admin(), "whoami")
	require.NotZero(t, r.code, "%v", r)
	r = s.flightd(s.admin(), "whoami", "--client-cert", s.path("tls/client-billing.crt"), "--client-key", s.path("tls/client-billing.key"))
	require.Zero(t, r.code, "%v", r)
}

// TestServe_RejectsAddressesWithoutTLS that other machines reach.
func TestServe_RejectsAddressesWithoutTLS(t *testing.T) {
	for _, args := range [][]string{{"--listen", "0.0.0.0:0"}, {"--listen", ":0"}} {
		r := flightd(nil, append([]string{"serve", "--data", filepath.Join(t.TempDir(), "data")}, args...)...)
		require.Equal(t, cli.ExitConfig, r.code, "%v: %v", args, r)
		require.Contains(t, r.err, "flightd cert init", "%v: %v", args, r)
	}
}

// TestServe_PlainHTTPAtATLSAddress is rejected, with a hint.
func TestServe_PlainHTTPAtATLSAddress(t *testing.T) {
	s := startTeam(t)
	r := s.flightd(s.admin(), "whoami", "--server", "http://"+s.address)
	require.Equal(t, cli.ExitForbidden, r.code, "%v", r)
	require.Contains(t, r.err, "https", "%v", r)
}
