package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/remote"
)

func submitFlight(t *testing.T, w *httpapitest.Fake, n int) {
	w.Apply(t, &flight.Submit{Key: flight.MustKey(fmt.Sprintf("default/charge/%d", n))})
}

// TestFlightsList_MoreThanAPage: --limit may exceed the page size of the server.
func TestFlightsList_MoreThanAPage(t *testing.T) {
	s, world := startFake(t)
	for n := range 1203 {
		submitFlight(t, world, n)
	}
	for limit, want := range map[string]int{"501": 501, "1100": 1100, "5000": 1203} {
		r := s.flightd("flights", "ls", "--limit", limit, "-o", "id")
		lines := strings.Count(r.out, "\n")
		require.Equal(t, 0, r.code, "--limit %s: %d lines, exit %d, %s", limit, lines, r.code, r.err)
		require.Equal(t, want, lines, "--limit %s: %d lines, exit %d, %s", limit, lines, r.code, r.err)
		require.Equal(t, (want < 1203), strings.Contains(r.err, "there may be more"), "--limit %s: %d lines, exit %d, %s", limit, lines, r.code, r.err)
	}
	seen, cursor := map[string]bool{}, ""
	for range 3 {
		r := s.flightd("flights", "ls", "--limit", "500", "-o", "id", "--cursor", cursor).want(t, cli.ExitOK, "", "")
		for id := range strings.Lines(r.out) {
			require.False(t, seen[id], "%s is on two pages", id)
			seen[id] = true
		}
		_, cursor, _ = strings.Cut(strings.TrimSpace(r.err), "--cursor ")
	}
	require.Len(t, seen, 1203)
	require.Empty(t, cursor, "the last page names none")
}

// TestTail_NoFollowEndsUnderLoad: events that arrive during the read do not prolong it.
func TestTail_NoFollowEndsUnderLoad(t *testing.T) {
	for name, flags := range map[string][]string{"everything": nil, "what is not there": {"--kind", "overlap"}} {
		world := httpapitest.New(t)
		for n := range 250 {
			submitFlight(t, world, n)
		}
		api := httpapi.New(world.Config())
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := asked.Add(1); r.URL.Path == "/v1/events" && n < 200 {
				submitFlight(t, world, 1000+int(n))
			}
			api.ServeHTTP(w, r)
		}))
		env := map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}
		r := flightd(env, append([]string{"tail", "--no-follow", "--after", "0.0", "--last", "100", "-o", "id"}, flags...)...)
		server.Close()
		n := asked.Load()
		require.Equal(t, 0, r.code, "%s: %d requests, exit %d, %s", name, n, r.code, r.err)
		require.False(t, n > 50, "%s: %d requests, exit %d, %s", name, n, r.code, r.err)
		lines := strings.Count(r.out, "\n")
		require.False(t, flags == nil && lines < 250, "%s: %d events", name, lines)
	}
}

// TestWatch_ATombstone: the exit code reports the outcome of an expired flight.
func TestWatch_ATombstone(t *testing.T) {
	s, world := startFake(t)
	for outcome, want := range map[flight.Outcome]int{flight.OutcomeSucceeded: 0, flight.OutcomeRefused: cli.ExitFailed} {
		key := flight.MustKey("default/charge/" + outcome.String())
		world.Apply(t, &flight.Import{Key: key, Outcome: outcome, FinishedAt: 1})
		world.Apply(t, &flight.Expire{Key: key, Generation: 1})
		r := flightd(map[string]string{"FLIGHTD_ADDR": s.url()}, "flights", "watch", "charge/"+outcome.String())
		require.Equal(t, want, r.code, "%s: exit %d, %s", outcome, r.code, r.err)
		require.Contains(t, r.err, "no longer stored", "%s: exit %d, %s", outcome, r.code, r.err)
	}
}

// TestGet_ATombstone: only known fields are printed; not the source of the receipt, the size of its body or the
// attempts.
func TestGet_ATombstone(t *testing.T) {
	s, world := startFake(t)
	key := flight.MustKey("default/charge/1")
	world.Apply(t, &flight.Import{Key: key, Outcome: flight.OutcomeSucceeded, FinishedAt: 1, Body: flight.NewBlob("text/plain", []byte("paid"), 100)})
	world.Apply(t, &flight.Expire{Key: key, Generation: 1})
	r := s.flightd("flights", "get", "charge/1")
	require.Equal(t, 0, r.code, "exit %d: %s%s", r.code, r.out, r.err)
	require.Contains(t, r.out, "succeeded; its body is no longer stored, sha256:", "exit %d: %s%s", r.code, r.out, r.err)
	for _, untrue := range []string{"report", "0 bytes", "attempts"} {
		require.NotContains(t, r.out, untrue, "the output contains %q: %s", untrue, r.out)
	}
}

// TestGet_SaysWhoseTheLastAttemptWas: also if its caller set no owner.
func TestGet_SaysWhoseTheLastAttemptWas(t *testing.T) {
	f := client.Flight{ID: "fl_x", State: "in_doubt"}
	for want, attempt := range map[string]wire.Attempt{
		"1 by an unnamed caller: succeeded":           {Attempt: 1, Outcome: "succeeded"},
		"2 by web-1:47: open":                         {Attempt: 2, Owner: "web-1:47"},
		"3 by web-1:47: unknown (its holder is gone)": {Attempt: 3, Owner: "web-1:47", Outcome: "unknown", Error: "its holder is gone"},
	} {
		f.LastAttempt = &attempt
		rows := flightRows(&f)
		require.True(t, slices.ContainsFunc(rows, func(r []string) bool { return r[0] == "last attempt" && r[1] == want }), "want %s, got %v", want, rows)
	}
}

// TestOutput_ForeignTextStaysOnOneLine: text of providers and callers may not break a table, forge a line of a history,
// or control the terminal.
func TestOutput_ForeignTextStaysOnOneLine(t *testing.T) {
	const said = "no\n  2026-11-22  ann settled it\ta\x1b[2Jb\u202ec"
	f := client.Flight{Key: "default/charge/1", State: "in_doubt", Recovery: "hold", Cause: said, Attempts: 1,
		LastAttempt:     &wire.Attempt{Attempt: 1, Owner: said, Outcome: "unknown", Error: said},
		CancelRequested: &wire.Attribution{Actor: said, Reason: said}}
	running := f
	running.State = "running"
	story := &client.History{Events: []client.Event{{Kind: "reported", Actor: said, Note: said}, {Kind: "opened", Actor: said}},
		Duplicates: &client.Duplicates{Count: 1, Callers: []wire.Caller{{Actor: said}}}}
	for name, write := range map[string]func(w *strings.Builder){
		"doubt ls":     func(w *strings.Builder) { doubtTable(w, []client.Flight{f}, []string{said}, time.Now()) },
		"flights get":  func(w *strings.Builder) { cli.WriteTable(w, []string{"FLIGHT", f.ID}, flightRows(&f)) },
		"reason":       func(w *strings.Builder) { writeHistory(w, &f, story) },
		"why, running": func(w *strings.Builder) { writeHistory(w, &running, story) },
	} {
		var out strings.Builder
		write(&out)
		require.False(t, strings.ContainsAny(out.String(), "\t\x1b\u202e"), "%s: %q", name, out.String())
		require.NotContains(t, out.String(), "\n  2026-11-22  ann", "%s: %q", name, out.String())
	}
	var out strings.Builder
	a := &cli.App{Terminal: cli.Terminal{Out: &out}, Settings: cli.Settings{Format: "table"}}
	err := writeEvent(a, client.Event{Key: "default/charge/1", Kind: "reported", Note: said})
	require.NoError(t, err, "tail: %v %q", err, out.String())
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "tail: %v %q", err, out.String())
	require.NotContains(t, out.String(), "\x1b", "tail: %v %q", err, out.String())
}

// TestDoubtTable_SaysWhatWentWrong: the table shows the error of the attempt, not the constant cause of recovery hold.
func TestDoubtTable_SaysWhatWentWrong(t *testing.T) {
	for want, f := range map[string]client.Flight{
		"exit status 3":               {Recovery: "hold", Cause: "its recovery is hold", LastAttempt: &wire.Attempt{Error: "exit status 3"}},
		"cut off; look-ups ended":     {Recovery: "verify", Cause: "look-ups ended", LastAttempt: &wire.Attempt{Error: "cut off"}},
		"its recovery is hold":        {Recovery: "hold", Cause: "its recovery is hold", LastAttempt: &wire.Attempt{}},
		"an import without attempts?": {Recovery: "hold", Cause: "an import without attempts?"},
	} {
		var out strings.Builder
		doubtTable(&out, []client.Flight{f}, []string{""}, time.Now())
		require.True(t, strings.HasSuffix(out.String(), "  "+want+"\n"), "want %s, got %s", want, out.String())
	}
}

// TestSince_IsReadAsTheAPIReadsIt: a duration, also in days, or a time; the error names the allowed forms.
func TestSince_IsReadAsTheAPIReadsIt(t *testing.T) {
	s, world := startFake(t)
	submitFlight(t, world, 1)
	for _, command := range [][]string{{"flights", "ls"}, {"tail", "--no-follow"}} {
		for _, since := range []string{"1h", "90s", "30d", "1d12h", "0", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+01:00"} {
			r := s.flightd(append(command, "--since", since)...)
			require.Equal(t, 0, r.code, "%v --since %s: %v", command, since, r)
			require.Contains(t, r.out, "default/charge/1", "%v --since %s: %v", command, since, r)
		}
		for _, since := range []string{"yesterday", "", "1w", "-1h", "9999-01-31T12:00:00Z"} {
			r := s.flightd(append(command, "--since", since)...)
			require.Equal(t, cli.ExitUsage, r.code, "%v --since %q: %v", command, since, r)
			require.Contains(t, r.err, "30d", "%v --since %q: %v", command, since, r)
			require.NotContains(t, r.err, "time:", "%v --since %q: %v", command, since, r)
		}
	}
	r := flightd(nil, "flights", "ls", "--help")
	require.NotContains(t, r.out, "(default 0", "help: %v", r)
}

// TestFind_FreedKey: the error says that the flight was freed, and why still prints its history.
func TestFind_FreedKey(t *testing.T) {
	s, world := startFake(t)
	key := flight.MustKey("default/charge/1")
	world.Apply(t, &flight.Import{Key: key, Outcome: flight.OutcomeSucceeded})
	world.Apply(t, &flight.FreeKey{Key: key, Generation: 1, Actor: "ann", Reason: "a new order"})
	for _, look := range [][]string{{"flights", "get"}, {"flights", "watch"}, {"flights", "retry", "--reason", "a test", "--yes"}} {
		for _, word := range []string{"charge/1", key.String(), key.FlightID().String()} {
			r := s.flightd(append(look, word)...)
			require.Equal(t, cli.ExitFailed, r.code, "%v %s: exit %d: %s%s", look, word, r.code, r.out, r.err)
			require.Contains(t, r.err, "by ann: a new order; its state was succeeded", "%v %s: exit %d: %s%s", look, word, r.code, r.out, r.err)
			require.Contains(t, r.err, "flightd why default/charge/1", "%v %s: exit %d: %s%s", look, word, r.code, r.out, r.err)
		}
	}
	r := s.flightd("why", "charge/1")
	require.Equal(t, 0, r.code, "why: exit %d: %s%s", r.code, r.out, r.err)
	require.Contains(t, r.out, "ann freed the key (a new order)", "why: exit %d: %s%s", r.code, r.out, r.err)
	require.Contains(t, r.out, "now: free; the next call with this key acts", "why: exit %d: %s%s", r.code, r.out, r.err)
	if r := s.flightd("why", "charge/2"); r.code != cli.ExitFailed || !strings.Contains(r.err, "no flight for charge/2") {
		t.Errorf("one that was never used: exit %d: %s%s", r.code, r.out, r.err)
	}
	r = s.flightd("why", "charge/1")
	require.Equal(t, 0, r.code, "its story: %v", r)
	require.Contains(t, r.out, "freed the key", "its story: %v", r)
}

// TestWhy_RunningFlightShowsCancelRequestAndEpochHold: get and why show a requested cancellation, and until when a
// raised lease epoch keeps other callers from the flight.
func TestWhy_RunningFlightShowsCancelRequestAndEpochHold(t *testing.T) {
	s, world := startFake(t)
	key := flight.MustKey("default/charge/1")
	_, err := world.Remote().Open(t.Context(), remote.OpenRequest{Key: key, Nonce: flight.Nonce{1}, Owner: "host:1"})
	require.NoError(t, err)
	says := func(wanted bool, words ...string) {
		t.Helper()
		for _, word := range words {
			for _, look := range [][]string{{"flights", "get", "charge/1"}, {"why", "charge/1"}} {
				if r := s.flightd(look...); r.code != 0 || strings.Contains(r.out[max(0, strings.LastIndex(r.out, "now: ")):], word) != wanted {
					t.Errorf("%v says %q: %v is wanted\n%s%s", look, word, wanted, r.out, r.err)
				}
			}
		}
	}
	says(false, "requested", "no other caller takes it over")
	world.Apply(t, &flight.Cancel{Key: key, Generation: 1, Actor: "ada", Reason: "the customer called"})
	says(true, "ada", "the customer called")
	world.Apply(t, &flight.RaiseEpoch{From: 1, Hold: time.Hour})
	says(true, "no other caller takes it over before "+cli.FormatTime(world.Ledger.Header().EpochHold.AsTime()))
}

// TestConnect_DrainsTheSpoolFirst: all spooled reports are sent before the first request of a command.
func TestConnect_DrainsTheSpoolFirst(t *testing.T) {
	const waiting = 100
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	world := httpapitest.New(t)
	submitFlight(t, world, 1)
	api := httpapi.New(world.Config())
	var outage atomic.Bool
	var reported sync.Map // paths: a late request of the first client may be a second one for its flight
	var sent, early atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch report := strings.HasSuffix(r.URL.Path, "/report"); {
		case report && outage.Load():
			http.Error(w, `{"code":"no_leader","retryable":true}`, http.StatusServiceUnavailable)
			return
		case report:
			if _, twice := reported.LoadOrStore(r.URL.Path, true); !twice {
				sent.Add(1)
			}
		case strings.HasPrefix(r.URL.Path, "/v1/") && sent.Load() < waiting:
			early.Add(1)
		}
		api.ServeHTTP(w, r)
	}))
	defer server.Close()
	outage.Store(true)
	c, err := client.Connect(t.Context(), server.URL, client.WithReportTimeout(time.Millisecond), client.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	for n := range waiting {
		_, _ = c.Record(flight.MustKey(fmt.Sprintf("default/charge/%d", n)), client.ReportRequest{FencingToken: "x", Outcome: "succeeded"})
	}
	err = c.Close(t.Context())
	require.NoError(t, err, "the spool holds %d reports; %v", c.SpooledReports(), err)
	require.Equal(t, waiting, c.SpooledReports(), "the spool holds %d reports; %v", c.SpooledReports(), err)
	outage.Store(false)
	r := flightd(map[string]string{"FLIGHTD_ADDR": server.URL}, "flights", "get", "charge/1")
	require.Equal(t, 0, r.code, "%d of %d reports were sent, and %d questions asked before the last of them; %v", sent.Load(), waiting, early.Load(), r.code)
	require.EqualValues(t, waiting, sent.Load(), "%d of %d reports were sent, and %d questions asked before the last of them; %v", sent.Load(), waiting, early.Load(), r.code)
	require.EqualValues(t, 0, early.Load(), "%d of %d reports were sent, and %d questions asked before the last of them; %v", sent.Load(), waiting, early.Load(), r.code)
}

// TestFind_AnIDAloneNamesTheOnlyFlightWithIt, whatever its name. A command that changes a flight for good only names it.
func TestFind_AnIDAloneNamesTheOnlyFlightWithIt(t *testing.T) {
	world, env := doubtful(t, "text/plain", "x") // default/charge/1
	world.Apply(t, &flight.Import{Key: flight.MustKey("default/charge/2"), Outcome: flight.OutcomeSucceeded})
	for _, key := range []string{"default/charge/3", "default/mail/3", "default/exec/4", "default/mail/4", "billing/charge/5"} {
		world.Apply(t, &flight.Submit{Key: flight.MustKey(key)})
	}
	for _, args := range [][]string{{"why"}, {"why", "-o", "json"}, {"flights", "get"}, {"doubt", "show"}} {
		flightd(env, append(args, "1")...).want(t, cli.ExitOK, "default/charge/1", "1 is read as default/charge/1")
		r := flightd(env, append(args, "4")...)
		require.Contains(t, r.out, "default/exec/4", "a key of exec comes first: %v", r)
		require.Empty(t, r.err, "%v", r)
		r = flightd(env, append(args, "3")...).want(t, cli.ExitFailed, "", "")
		require.Regexp(t, "did you mean (default/charge/3 or default/mail/3|default/mail/3 or default/charge/3)", r.err)
		for _, none := range []string{"5", "6", "a/1"} {
			flightd(env, append(args, none)...).want(t, cli.ExitFailed, "", "not_found: no flight for "+none)
		}
	}
	flightd(env, "flights", "free", "2", "--reason", "a test", "--yes").want(t, cli.ExitFailed, "", "did you mean default/charge/2?")
	require.Equal(t, flight.StateSucceeded, world.Flight(flight.MustKey("default/charge/2")).State)
	flightd(env, "doubt", "resolve", "1", "--did-not-happen", "--reason", "looked", "--yes").
		want(t, cli.ExitOK, "", "1 is read as default/charge/1")
	require.Equal(t, flight.StateReady, world.Flight(flight.MustKey("default/charge/1")).State)
}
