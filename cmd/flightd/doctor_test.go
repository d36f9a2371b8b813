package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
)

func TestDoctor_Checks(t *testing.T) {
	now := time.Now()
	fast := func(d ...time.Duration) renewals { return renewals{took: d} }
	disk := func(median, worst time.Duration, free uint64) checkResult {
		return checkDisk("/d", syncs{took: []time.Duration{median, median, worst}, free: free})
	}
	etcd := func(change func(*wire.Etcd)) checkResult {
		e := wire.Etcd{Version: "3.7.3", Revision: 1_000_000, Compacted: 990_000, InUse: 1 << 20, Quota: 1 << 30}
		change(&e)
		return checkEtcd(&e)
	}
	problem := func(code wire.Code) error { return &client.Error{Problem: client.Problem{Code: code, Detail: "no"}} }
	me := func(rest time.Duration) *client.WhoAmI {
		w := &client.WhoAmI{Name: "billing", Namespace: "shop", Verbs: []string{"submit", "read"}}
		if rest > 0 {
			w.ExpiresAt.Time = now.Add(rest)
		}
		return w
	}
	resolved := func(key, result string, age, opened time.Duration) client.Flight { // opened: the age of its attempt
		f := client.Flight{Key: key, Resolution: &wire.Resolution{Result: result}}
		f.Resolution.At.Time = now.Add(-age)
		if opened > 0 {
			f.LastAttempt = &wire.Attempt{OpenedAt: wire.Time{Time: now.Add(-opened)}}
		}
		return f
	}
	v := func(version, api string) wire.Version { return wire.Version{Version: version, API: api} }
	for name, test := range map[string]struct {
		got  checkResult
		want string
		says string
	}{
		"folders":                  {checkFolders(folders{config: "/c", spool: "/s"}), statusOK, "/s"},
		"spool not mine":           {checkFolders(folders{config: "/c", spool: "/s", spoolErr: errors.New("no")}), statusFail, "cannot be spooled"},
		"no reports":               {checkSpool("/s", spooledReports{}), statusOK, "no report is waiting"},
		"a report waits":           {checkSpool("/s", spooledReports{waiting: 1}), statusWarn, "1 report waits on"},
		"reports wait":             {checkSpool("/s", spooledReports{waiting: 2}), statusWarn, "2 reports wait"},
		"quarantined reports":      {checkSpool("/s", spooledReports{quarantined: []string{"x.rejected"}}), statusWarn, "x.rejected"},
		"server's spool":           {checkNodeSpool("/d", wire.Spool{}), statusOK, "no report waits"},
		"it has something":         {checkNodeSpool("/d", wire.Spool{Waiting: 1}), statusWarn, "1 report waits on the server's disk"},
		"the node has quarantined": {checkNodeSpool("/d", wire.Spool{Waiting: 1, Quarantined: 2}), statusWarn, "2 quarantined"},
		"one of two":               {checkServer(serverAnswer{address: "a", err: errors.New("no")}, false), statusWarn, "does not answer"},
		"none of them":             {checkServer(serverAnswer{address: "a", err: errors.New("no")}, true), statusFail, "does not answer"},
		"token rejected":           {checkServer(serverAnswer{address: "a", err: problem(wire.Unauthenticated)}, false), statusFail, "rejects the token"},
		"not trusted":              {checkServer(serverAnswer{address: "a", err: x509.UnknownAuthorityError{}}, true), statusFail, "does not answer"},
		"no token demanded":        {checkToken(access{err: problem(wire.NotFound)}), statusOK, "demands no token"},
		"no token set":             {checkToken(access{err: problem(wire.Unauthenticated)}), statusFail, "none is set"},
		"unknown token":            {checkToken(access{set: true, origin: "env FLIGHTD_TOKEN", err: problem(wire.Unauthenticated)}), statusFail, "does not know the token from env FLIGHTD_TOKEN"},
		"token of another":         {checkToken(access{set: true, err: problem(wire.Forbidden)}), statusFail, "forbidden"},
		"token unknown":            {checkToken(access{set: true, err: errors.New("no")}), statusWarn, "does not answer"},
		"token":                    {checkToken(access{set: true, me: me(0), now: now}), statusOK, "billing of namespace shop may submit, read, never expires"},
		"token ends soon":          {checkToken(access{set: true, me: me(time.Hour), now: now}), statusWarn, "expires"},
		"token ends late":          {checkToken(access{set: true, me: me(60 * 24 * time.Hour), now: now}), statusOK, "expires"},
		"readable token":           {checkToken(access{set: true, me: me(0), now: now, exposed: "/t"}), statusWarn, "other users of this machine may read the token in /t"},
		"token in plain text":      {checkToken(access{set: true, me: me(0), now: now, insecure: "http://a"}), statusWarn, "plain text"},
		"certificate":              {checkCertificate(certificate{"https://a", now.AddDate(1, 0, 0), nil}, now), statusOK, "https://a"},
		"certificate ends":         {checkCertificate(certificate{"https://a", now.AddDate(0, 0, 3), nil}, now), statusWarn, "expires"},
		"bad certificate":          {checkCertificate(certificate{"https://a", time.Time{}, errors.New("no")}, now), statusFail, "https://a: no"},
		"ready":                    {checkParts([]wire.Check{{Name: "etcd", OK: true}}), statusOK, "etcd"},
		"not ready":                {checkParts([]wire.Check{{Name: "etcd"}, {Name: "ledger", OK: true}}), statusFail, "not ready: etcd"},
		"same version":             {checkVersions(v("1", "v1"), v("1", "v1")), statusOK, "1"},
		"other version":            {checkVersions(v("1", "v1"), v("2", "v1")), statusWarn, "client 1, server 2"},
		"no version":               {checkVersions(v("devel", "v1"), v("v0.0.0-20261122001122-e17c766aabbc", "v1")), statusOK, "cannot be compared"},
		"same commit":              {checkVersions(v("devel-e17c766aabbc", "v1"), v("v0.0.0-20261122001122-e17c766aabbc", "v1")), statusOK, "the same commit"},
		"other commit":             {checkVersions(v("devel-e17c766aabbd", "v1"), v("v0.0.0-20261122001122-e17c766aabbc", "v1")), statusWarn, "client devel-"},
		"local changes":            {checkVersions(v("devel-e17c766aabbc-dirty", "v1"), v("devel-e17c766aabbc", "v1")), statusWarn, "client devel-"},
		"no doubts":                {checkDoubts(flightsFound{}), statusOK, "no flight is in doubt"},
		"a doubt":                  {checkDoubts(flightsFound{flights: make([]client.Flight, 1)}), statusWarn, "1 flight is in doubt"},
		"many doubts":              {checkDoubts(flightsFound{flights: make([]client.Flight, 500), more: true}), statusWarn, "at least 500 flights are in doubt"},
		"doubts unknown":           {checkDoubts(flightsFound{err: errors.New("no")}), statusWarn, "cannot be listed"},
		"a doubt of mine":          {checkDoubts(flightsFound{flights: make([]client.Flight, 1), namespace: "shop"}), statusWarn, "1 flight is in doubt in namespace shop"},
		"nothing to run again":     {checkRerun(flightsFound{flights: []client.Flight{{Key: "a"}, resolved("b", "happened", 5*time.Hour, 0), resolved("c", "not_happened", 5*time.Hour, time.Hour)}}, now), statusOK, "no flight that was resolved"},
		"run again soon":           {checkRerun(flightsFound{flights: []client.Flight{resolved("a", "not_happened", time.Minute, 2*time.Hour)}}, now), statusOK, "the oldest, a, for 1 min"},
		"nobody runs it again":     {checkRerun(flightsFound{flights: []client.Flight{resolved("a", "not_happened", time.Minute, 0), resolved("b", "not_happened", 5*time.Hour, 6*time.Hour)}}, now), statusWarn, "2 flights were resolved as not happened and not run again; the oldest, b, for 5 h"},
		"rerun not allowed":        {checkRerun(flightsFound{err: problem(wire.Forbidden)}, now), statusSkip, "read"},
		"TLS over plain HTTP":      {checkServer(serverAnswer{address: "http://a", err: problem(wire.Forbidden), speaksTLS: true}, false), statusFail, "http://a speaks TLS"},
		"other API":                {checkVersions(v("1", "v1"), v("9", "v2")), statusFail, "uses API v1"},

		"clock":                {checkClock(clockReading{offset: 900 * time.Microsecond, local: now}, 0), statusOK, "agrees"},
		"clock, slow way":      {checkClock(clockReading{offset: 2 * time.Second, roundTrip: 4 * time.Second, local: now}, 0), statusOK, "agrees"},
		"clock, nearly":        {checkClock(clockReading{offset: 500 * time.Millisecond, local: now}, 0), statusOK, "500ms behind"},
		"clock behind":         {checkClock(clockReading{offset: 3 * time.Second, local: now}, 0), statusWarn, "3s behind"},
		"clock far ahead":      {checkClock(clockReading{offset: -time.Hour, local: now}, 0), statusFail, "1h0m0s ahead"},
		"clock of 1970":        {checkClock(clockReading{local: time.Unix(0, 0)}, 0), statusFail, "1970"},
		"clock being set":      {checkClock(clockReading{stepped: -time.Second, local: now}, 0), statusWarn, "was set by -1s"},
		"ledger time deviates": {checkClock(clockReading{local: now}, time.Minute), statusWarn, "ledger"},
		"etcd":                 {etcd(func(*wire.Etcd) {}), statusOK, "compacted up to revision 990000 of 1000000"},
		"no etcd":              {checkEtcd(nil), statusFail, "does not answer"},
		"old etcd":             {etcd(func(e *wire.Etcd) { e.Problem = "too old" }), statusFail, "too old"},
		"etcd member away": {etcd(func(e *wire.Etcd) {
			e.Endpoints = []wire.EtcdMember{{URL: "https://a:2379"}, {URL: "https://b:2379", Error: "x"}}
		}), statusWarn, "https://b:2379 does not answer"},
		"etcd never forgets":  {etcd(func(e *wire.Etcd) { e.Compacted = 0 }), statusWarn, "not compacted"},
		"etcd fills up":       {etcd(func(e *wire.Etcd) { e.InUse = e.Quota * 7 / 10 }), statusWarn, "716.8 MiB"},
		"etcd is nearly full": {etcd(func(e *wire.Etcd) { e.InUse = e.Quota * 9 / 10 }), statusFail, "rejects new claims"},

		"lease not allowed":      {checkLease(15*time.Second, renewals{err: problem(wire.Forbidden)}), statusSkip, "it needs a token with submit"},
		"doubts not allowed":     {checkDoubts(flightsFound{err: problem(wire.Forbidden)}), statusSkip, "it needs a token with read"},
		"lease":                  {checkLease(15*time.Second, fast(time.Millisecond, 2*time.Millisecond)), statusOK, "at worst 2ms; a TTL of 15s leaves 7s"},
		"slow lease":             {checkLease(15*time.Second, fast(time.Millisecond, time.Second)), statusWarn, "at worst 1s"},
		"hopeless":               {checkLease(15*time.Second, fast(4*time.Second)), statusFail, "at worst 4s"},
		"no lease":               {checkLease(15*time.Second, renewals{err: errors.New("no")}), statusFail, "could not be renewed"},
		"disk":                   {disk(time.Millisecond, 5*time.Millisecond, 50<<30), statusOK, "/d syncs 4 KiB in 1ms, at worst 5ms; 50.0 GiB"},
		"slow disk":              {disk(20*time.Millisecond, 30*time.Millisecond, 50<<30), statusWarn, "20ms"},
		"stalling disk":          {disk(time.Millisecond, time.Second, 50<<30), statusWarn, "at worst 1s"},
		"hopeless disk":          {disk(300*time.Millisecond, time.Second, 50<<30), statusFail, "300ms"},
		"filling disk":           {disk(time.Millisecond, time.Millisecond, 500<<20), statusWarn, "500.0 MiB"},
		"full disk":              {disk(time.Millisecond, time.Millisecond, 50<<20), statusFail, "50.0 MiB"},
		"disk under the reserve": {disk(time.Millisecond, time.Millisecond, 200<<20), statusFail, "are free"},
		"disk without a byte":    {checkDisk("/d", syncs{err: fmt.Errorf("write /d/doctor-1: %w", syscall.ENOSPC)}), statusFail, "no space left"},
		"foreign disk":           {checkDisk("/d", syncs{err: errors.New("no")}), statusWarn, "measure /d"},
	} {
		f := test.got
		require.Equal(t, test.want, f.Status, "%s: want %s %q, got %+v", name, test.want, test.says, f)
		require.Contains(t, f.Says, test.says, "%s: want %s %q, got %+v", name, test.want, test.says, f)
		require.Equal(t, f.Status == statusOK || f.Status == statusSkip, f.Do == "", "%s: want %s %q, got %+v", name, test.want, test.says, f)
	}
	d := summarize([]checkResult{{Status: statusOK}, {Status: statusFail}, {Status: statusWarn}})
	require.Equal(t, statusFail, d.Status, "the worst of them is %s", d.Status)
	d = summarize([]checkResult{{Status: statusSkip}, {Status: statusWarn}, {Status: statusSkip}})
	require.Equal(t, statusWarn, d.Status, "a skipped check is no finding")
}

// TestDoctor_TimeoutIsNotConnectionRefused: the remedy for a server that does not answer is not to start another one.
func TestDoctor_TimeoutIsNotConnectionRefused(t *testing.T) {
	for cause, missing := range map[error]bool{
		context.DeadlineExceeded: false,
		syscall.ECONNREFUSED:     true,
		errors.Join(context.DeadlineExceeded, syscall.ECONNREFUSED): true, // the last of several tries timed out
	} {
		f := checkServer(serverAnswer{address: "a", err: &effect.Unavailable{Code: "unreachable", Cause: cause}}, true)
		require.Equal(t, statusFail, f.Status, "%v: %+v", cause, f)
		require.Equal(t, missing, strings.Contains(f.Do, "nothing listens there"), "%v: %+v", cause, f)
	}
}

// runDoctor runs doctor and returns its findings by check.
func (s *server) runDoctor(args ...string) (by map[string]checkResult, r result) {
	s.t.Helper()
	r = s.flightd(append([]string{"doctor", "-o", "json"}, args...)...)
	var d doctorReport
	err := json.Unmarshal([]byte(r.out), &d)
	require.NoError(s.t, err, "%v: %v", err, r)
	by = make(map[string]checkResult)
	for _, f := range d.Findings {
		by[f.Check] = f
	}
	return by, r
}

// TestDoctor_RunningServer: every check has measured figures. doctor leaves no file behind and changes no report.
func TestDoctor_RunningServer(t *testing.T) {
	s := startServer(t)
	reports := filepath.Join(s.state, "flightd", "reports")
	err := os.MkdirAll(reports, 0o700)
	require.NoError(t, err)
	for _, name := range []string{"a.report", "b.report", "c.report.rejected"} {
		err := os.WriteFile(filepath.Join(reports, name), []byte("x"), 0o600)
		require.NoError(t, err)
	}
	by, r := s.runDoctor()
	require.Equal(t, 0, r.code, "%v", r)
	require.Empty(t, r.err, "%v", r)
	for check, fact := range map[string]string{
		"folders": "reports", "reports": "waiting", "server": "address", "parts": "", "versions": "server",
		"clock": "offset_ms", "etcd": "compacted", "spool": "quarantined", "lease": "renewal_worst_ms", "disk": "fsync_worst_ms",
	} {
		f := by[check]
		require.NotEmpty(t, f.Status, "%s: %+v", check, f)
		require.NotEqual(t, statusFail, f.Status, "%s: %+v", check, f)
		require.False(t, fact != "" && f.Facts[fact] == nil, "%s: %+v", check, f)
	}
	f := by["reports"]
	require.Equal(t, statusWarn, f.Status, "reports: %+v", f)
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
	if r := s.flightd("doctor", "-o", "id"); !strings.HasPrefix(r.out, "reports\n") || strings.Contains(r.out, "server") || r.code != 0 {
		t.Errorf("what is not well: %v", r)
	}
	if r := s.flightd("doctor"); !strings.Contains(r.out, "ok    server ") || !strings.Contains(r.out, "warn  reports ") || strings.Contains(r.out, "\x1b") {
		t.Errorf("for people: %v", r)
	}
}

// TestDoctor_NoServer: the finding has a remedy, and the checks that need no server still run.
func TestDoctor_NoServer(t *testing.T) {
	s := startServer(t)
	s.kill()
	r := s.flightd("doctor", "--data", s.data)
	require.Equal(t, exitUnreachable, r.code, "%v", r)
	require.Contains(t, r.out, "fail  server", "%v", r)
	require.Contains(t, r.out, "nothing listens there: check that a server runs at", "%v", r)
	require.Contains(t, r.out, s.data+" syncs", "%v", r)
	by, r := s.runDoctor("--server", "http://127.0.0.1:1,"+s.url())
	require.Equal(t, exitUnreachable, r.code, "%v", r)
	require.Equal(t, statusFail, by["server"].Status, "%v", r)
	require.Empty(t, by["etcd"].Check, "%v", r)
	require.Equal(t, statusOK, by["disk"].Status, "%v", r)
	s.start()
	by, r = s.runDoctor("--server", s.url()+",http://127.0.0.1:1")
	require.Equal(t, 0, r.code, "one of two: %v", r)
	require.Equal(t, statusWarn, by["server"].Status, "one of two: %v", r)
	require.NotEqual(t, statusFail, by["lease"].Status, "one of two: %v", r)
}

// TestDoctor_CountsDoubts of all namespaces, and names the command that lists them. A doubt is no failure.
func TestDoctor_CountsDoubts(t *testing.T) {
	s := startServer(t)
	by, r := s.runDoctor()
	require.Equal(t, statusOK, by["doubts"].Status, "%v", r)
	s.flightd("exec", "--key", "a", "--", "sh", "-c", "exit 3")
	s.flightd("exec", "-n", "other", "--key", "b", "--", "sh", "-c", "exit 3")
	by, r = s.runDoctor()
	require.Zero(t, r.code, "%v", r)
	require.Equal(t, statusWarn, by["doubts"].Status)
	require.Equal(t, 2.0, by["doubts"].Facts["count"])
	require.Contains(t, by["doubts"].Do, "flightd doubt ls -A")
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
			r := cli(env, args...)
			require.Zero(t, r.code, "%v", r)
			require.Equal(t, warned, strings.Contains(r.err, "chmod 600 "+path), "%v: %v", mode, r)
			require.NotContains(t, r.err, "fltd_")
		}
	}
}

// TestDoctor_OfATeam: a token of one namespace, and an address with the wrong scheme.
func TestDoctor_OfATeam(t *testing.T) {
	s := startTeam(t)
	billing := strings.TrimSpace(s.flightd(s.admin(), "token", "create", "billing", "-n", "billing").out)
	require.NotZero(t, s.flightd(billing, "exec", "--key", "pay-7", "--", "false").code)
	require.NotZero(t, s.flightd(s.admin(), "exec", "--key", "pay-8", "--", "false").code)
	for token, says := range map[string]string{billing: "warn  doubts    1 flight is in doubt in namespace billing", s.admin(): "warn  doubts    2 flights are in doubt"} {
		r := s.flightd(token, "doctor")
		require.Zero(t, r.code, "%v", r)
		require.Contains(t, r.out, says, "%v", r)
		require.Contains(t, r.out, "ok    rerun", "%v", r)
	}
	r := s.flightd("", "doctor", "--server", "http://"+s.address)
	require.Equal(t, exitFailed, r.code, "%v", r)
	require.Contains(t, r.out, "fail  server    http://"+s.address+" speaks TLS, and was asked over plain HTTP", "%v", r)
	require.Contains(t, r.out, "https://", "%v", r)
	require.NotContains(t, strings.ReplaceAll(r.out, "revoke a token", ""), "token", "no token is to blame")
}
