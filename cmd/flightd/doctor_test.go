package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/cmd/flightd/internal/doctor"
)

// runDoctor runs doctor and returns its findings by check.
func (s *server) runDoctor(args ...string) (by map[string]doctor.Finding, r result) {
	s.t.Helper()
	r = s.flightd(append([]string{"doctor", "-o", "json"}, args...)...)
	var d doctor.Report
	err := json.Unmarshal([]byte(r.out), &d)
	require.NoError(s.t, err, "%v: %v", err, r)
	by = make(map[string]doctor.Finding)
	for _, f := range d.Findings {
		by[f.Check] = f
	}
	return by, r
}

// TestDoctor_RunningServer: every check has measured figures. doctor leaves no file behind and changes no report.
func TestDoctor_RunningServer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	reports := filepath.Join(s.state, "flightd", "reports")
	err := os.MkdirAll(reports, 0o700)
	require.NoError(t, err)
	for _, name := range []string{"a.report", "b.report", "c.report.rejected"} {
		err := os.WriteFile(filepath.Join(reports, name), []byte("x"), 0o600)
		require.NoError(t, err)
	}
	by, r := s.runDoctor()
	require.Equal(t, cli.ExitFailed, r.code, "reports wait: %v", r)
	require.Empty(t, r.err, "%v", r)
	for check, fact := range map[string]string{
		"folders": "reports", "reports": "waiting", "server": "address", "parts": "", "versions": "server",
		"clock": "offset_ms", "etcd": "compacted", "spool": "quarantined", "lease": "renewal_worst_ms", "disk": "fsync_worst_ms",
	} {
		f := by[check]
		require.NotEmpty(t, f.Status, "%s: %+v", check, f)
		require.NotEqual(t, doctor.StatusFail, f.Status, "%s: %+v", check, f)
		require.False(t, fact != "" && f.Facts[fact] == nil, "%s: %+v", check, f)
	}
	f := by["reports"]
	require.Equal(t, doctor.StatusWarn, f.Status, "reports: %+v", f)
	require.EqualValues(t, 2.0, f.Facts["waiting"], "reports: %+v", f)
	require.EqualValues(t, 1.0, f.Facts["quarantined"], "reports: %+v", f)
	f = by["disk"]
	require.True(t, f.Facts["data"] == s.data, "disk: %+v", f)
	require.False(t, f.Facts["fsync_worst_ms"].(float64) <= 0, "disk: %+v", f)
	f = by["etcd"]
	require.NotEmpty(t, f.Facts["version"], "etcd: %+v", f)
	require.False(t, f.Facts["quota"].(float64) <= 0, "etcd: %+v", f)
	left, _ := filepath.Glob(filepath.Join(s.data, "doctor-*"))
	require.LessOrEqual(t, len(left), 0, "left behind: %v", left)
	left, _ = filepath.Glob(filepath.Join(reports, "[abc].report*"))
	require.Len(t, left, 3, "the reports are %v", left)
	require.Equal(t, filepath.Join(reports, "a.report"), left[0], "the reports are %v", left)
	if r := s.flightd("doctor", "-o", "id"); !strings.HasPrefix(r.out, "reports\n") || strings.Contains(r.out, "server") || r.code != cli.ExitFailed {
		t.Errorf("what is not well: %v", r)
	}
	if r := s.flightd("doctor"); !strings.Contains(r.out, "ok    server ") || !strings.Contains(r.out, "warn  reports ") || strings.Contains(r.out, "\x1b") {
		t.Errorf("for people: %v", r)
	}
}

// TestDoctor_NoServer: the finding has a remedy, and the checks that need no server still run.
func TestDoctor_NoServer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.kill()
	r := s.flightd("doctor", "--data", s.data).want(t, cli.ExitUnreachable, "fail  server", "")
	require.Contains(t, r.out, "nothing listens there: check that a server runs at", "%v", r)
	require.Contains(t, r.out, s.data+" syncs", "%v", r)
	by, r := s.runDoctor("--server", "http://127.0.0.1:1,"+s.url())
	require.Equal(t, cli.ExitUnreachable, r.code, "%v", r)
	require.Equal(t, doctor.StatusFail, by["server"].Status, "%v", r)
	require.Empty(t, by["etcd"].Check, "%v", r)
	require.Equal(t, doctor.StatusOK, by["disk"].Status, "%v", r)
	s.start()
	by, r = s.runDoctor("--server", s.url()+",http://127.0.0.1:1")
	require.Equal(t, cli.ExitFailed, r.code, "one of two: %v", r)
	require.Equal(t, doctor.StatusWarn, by["server"].Status, "one of two: %v", r)
	require.NotEqual(t, doctor.StatusFail, by["lease"].Status, "one of two: %v", r)
	require.Empty(t, by["cluster"].Status, "a lone node is no cluster")
	other, _ := startFake(t)
	by, r = s.runDoctor("--server", s.url()+","+other.url())
	require.Equal(t, cli.ExitFailed, r.code, "two ledgers in one list: %v", r)
	require.Equal(t, doctor.StatusFail, by["servers"].Status, "%v", r)
	require.Contains(t, by["servers"].Do, "FLIGHTD_DEPLOYMENT")
	by, _ = s.runDoctor("--server", s.url()+","+s.url())
	require.Equal(t, doctor.StatusOK, by["servers"].Status)
}

// A token that other users of the machine may read is not used without a word.
func TestToken_FileThatOthersMayReadIsSaid(t *testing.T) {
	_, env := doubtful(t, "text/plain", "x")
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("fltd_x\n"), 0o600))
	env["FLIGHTD_TOKEN_FILE"] = path
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		require.NoError(t, os.Chmod(path, mode))
		for _, args := range [][]string{{"flights", "ls"}, {"exec", "--key", mode.String(), "--", "true"}} {
			r := flightd(env, args...).want(t, cli.ExitOK, "", "")
			require.Equal(t, warned, strings.Contains(r.err, "chmod 600 "+path), "%v: %v", mode, r)
			require.NotContains(t, r.err, "fltd_")
		}
	}
}

// TestDoctor_OfATeam: a token of one namespace, and an address with the wrong scheme.
func TestDoctor_OfATeam(t *testing.T) {
	t.Parallel()
	s := startTeam(t)
	billing := strings.TrimSpace(s.flightd(s.admin(), "token", "create", "billing", "-n", "billing").out)
	require.NotZero(t, s.flightd(billing, "exec", "--key", "pay-7", "--", "false").code)
	require.NotZero(t, s.flightd(s.admin(), "exec", "--key", "pay-8", "--", "false").code)
	for token, says := range map[string]string{billing: "warn  doubts    1 flight is in doubt in namespace billing", s.admin(): "warn  doubts    2 flights are in doubt"} {
		r := s.flightd(token, "doctor").want(t, cli.ExitFailed, says, "")
		require.Contains(t, r.out, "ok    rerun", "%v", r)
	}
	r := s.flightd("", "doctor", "--server", "http://"+s.address).
		want(t, cli.ExitFailed, "fail  server    http://"+s.address+" speaks TLS, and was asked over plain HTTP", "")
	require.Contains(t, r.out, "https://", "%v", r)
	require.NotContains(t, strings.ReplaceAll(r.out, "revoke a token", ""), "token", "no token is to blame")
}
