package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

// follower is a running `flightd tail -o json`.
type follower struct {
	t      testing.TB
	cmd    *exec.Cmd
	events chan wire.Event
}

func (s *server) tail(args ...string) *follower {
	s.t.Helper()
	f := &follower{t: s.t, cmd: exec.Command(program, append([]string{"tail", "-o", "json"}, args...)...), events: make(chan wire.Event, 1000)}
	f.cmd.Env = append(os.Environ(), "FLIGHTD_ADDR="+s.url(), "XDG_STATE_HOME="+s.state)
	out, err := f.cmd.StdoutPipe()
	require.NoError(s.t, err)
	err = f.cmd.Start()
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		if f.cmd.ProcessState == nil {
			_ = f.cmd.Process.Kill()
			_ = f.cmd.Wait()
		}
	})
	go f.read(out)
	return f
}

func (f *follower) read(out io.Reader) {
	defer close(f.events)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e wire.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			f.t.Errorf("tail said %q", lines.Text())
			return
		}
		f.events <- e
	}
}

// expect reads one event of each kind, in order, all of one key.
func (f *follower) expect(key string, kinds ...string) {
	f.t.Helper()
	for _, kind := range kinds {
		select {
		case e := <-f.events:
			require.Equal(f.t, key, e.Key, "got %s %s, want %s %s", e.Key, e.Kind, key, kind)
			require.Equal(f.t, kind, e.Kind, "got %s %s, want %s %s", e.Key, e.Kind, key, kind)
			require.NotEmpty(f.t, e.ID, "got %s %s, want %s %s", e.Key, e.Kind, key, kind)
		case <-time.After(20 * time.Second):
			f.t.Fatalf("no event %s %s", key, kind)
		}
	}
}

// TestTail_OutlivesTheServer: every event is printed once and in order, across SIGTERM and kill -9 of the server. A
// later tail prints the events that it missed.
func TestTail_OutlivesTheServer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	f := s.tail()
	flown := []string{"submitted", "opened", "reported"}
	s.flightd("exec", "--key", "t/1", "--", "true")
	f.expect("default/t/1", flown...)
	asked := time.Now()
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	require.NoError(t, err)
	err = s.cmd.Wait()
	require.NoError(t, err, "with a stream open, flightd stopped after %v: %v", time.Since(asked), err)
	require.LessOrEqual(t, time.Since(asked), 5*time.Second, "with a stream open, flightd stopped after %v: %v", time.Since(asked), err)
	s.start()
	s.flightd("exec", "--key", "t/2", "--", "true")
	f.expect("default/t/2", flown...)
	s.flightd("exec", "--key", "t/2", "--", "true")
	f.expect("default/t/2", "duplicates")
	err = f.cmd.Process.Signal(syscall.SIGINT)
	require.NoError(t, err)
	for range f.events {
		t.Error("an event was printed twice")
	}
	err = f.cmd.Wait()
	require.NoError(t, err, "it ended with %v", err)

	var page wire.EventPage
	if s.get("/v1/events?after=0.0", &page); len(page.Events) != 7 {
		t.Fatalf("the feed has %d events", len(page.Events))
	}
	s.kill()
	s.start()
	s.tail("--after", page.Events[2].ID, "--action", "t").expect("default/t/2", append(flown, "duplicates")...)
	past := s.flightd("tail", "--no-follow", "--after", page.Events[2].ID)
	require.Equal(t, 0, past.code, "%v", past)
	require.Equal(t, 4, strings.Count(past.out, "\n"), "%v", past)
	require.Contains(t, past.out, "a duplicate call of", "%v", past)
	r := s.flightd("tail", "--no-follow", "--after", "999999.0")
	require.Equal(t, cli.ExitFailed, r.code, "%v", r)
	require.Contains(t, r.err, "flights ls --since", "%v", r)
}

// TestWhy_TellsOfDuplicates: number, first and last time and the last eight callers, also after a restart.
func TestWhy_TellsOfDuplicates(t *testing.T) {
	s := startServer(t)
	for range 12 {
		r := s.flightd("exec", "--key", "t/1", "--", "true")
		require.Equal(t, 0, r.code, r)
	}
	check := func() {
		t.Helper()
		r := s.flightd("why", "t/1")
		if !strings.Contains(r.out, "11 duplicate calls were answered without another effect, the first at ") {
			t.Errorf("%v", r)
		}
		var story struct {
			Duplicates wire.DuplicateStats `json:"duplicates"`
		}
		r = s.flightd("why", "t/1", "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &story); err != nil || story.Duplicates.Count != 11 || len(story.Duplicates.Callers) != 8 {
			t.Errorf("%v: %v", err, r)
		}
	}
	Eventually(t, "the duplicate statistics are in the ledger", 10*time.Second, func() bool {
		var page wire.EventPage
		s.get("/v1/events?kind=duplicates&limit=100", &page)
		var n uint64
		for _, e := range page.Events {
			n += e.Count
		}
		return n == 11
	})
	check()
	s.kill()
	s.start()
	check()
}

// TestWatch: a flight is watched until it ends, across kill -9 of the server; the exit code is its outcome.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for id, end := range map[string]struct {
		args []string
		code int
		want string
	}{
		"1": {[]string{"--happened", "--external-id", "ch_1"}, 0, "resolved it"},
		"2": {[]string{"--fail"}, cli.ExitFailed, "resolved it"},
	} {
		key := "t/" + id
		s.flightd("exec", "--key", key, "--", "false")
		w := s.begin("flights", "watch", key)
		if id == "1" {
			s.kill()
			s.start()
		}
		if r := s.flightd(append([]string{"doubt", "resolve", key, "--reason", "looked", "--yes"}, end.args...)...); r.code != 0 {
			t.Fatal(r)
		}
		r := w.wait()
		require.Equal(t, end.code, r.code, "%v", r)
		require.GreaterOrEqual(t, strings.Count(r.out, "\n"), 5, "%v", r)
		require.Contains(t, r.out, end.want, "%v", r)
		require.Contains(t, r.err, fmt.Sprintf("default/%s: ", key), "%v", r)
	}
	r := s.flightd("flights", "watch", "t/none")
	require.Equal(t, cli.ExitFailed, r.code, "%v", r)
	require.Contains(t, r.err, "not_found", "%v", r)
}

func TestEventText_NamesPeople(t *testing.T) {
	for actor, want := range map[string]string{"ann": "ann resolved it (it happened: the log)", "unknown": "an unnamed person resolved it (it happened: the log)", "": "an unnamed person resolved it (it happened: the log)"} {
		require.Equal(t, want, eventText(client.Event{Kind: "resolved", Actor: actor, Note: "happened: the log"}))
	}
}
