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
	"github.com/flightd/flightd/flight"
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
		case <-time.After(limit):
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
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	require.NoError(t, err)
	err = s.cmd.Wait()
	require.NoError(t, err, "with a stream open")
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
	s.flightd("tail", "--no-follow", "--after", "999999.0").want(t, cli.ExitFailed, "", "flights ls --since")
}

// TestWhy_TellsOfDuplicates: their number and the first and last time.
func TestWhy_TellsOfDuplicates(t *testing.T) {
	s, world := startFake(t)
	for range 3 {
		r := s.flightd("exec", "--key", "t/1", "--", "true")
		require.Equal(t, 0, r.code, r)
	}
	stats := world.DuplicateStats(flight.MustKey("default/t/1").FlightID())
	world.Apply(t, &flight.CountDuplicates{Key: flight.MustKey("default/t/1"), ID: flight.CountID{Source: 1, Number: 1}, Stats: stats})
	require.Contains(t, s.flightd("why", "t/1").out, "2 duplicate calls were answered without another effect, the first at ")
	require.Contains(t, s.flightd("why", "t/1", "-o", "json").out, `"count": 2`)
}

// TestWatch: a flight is watched until it ends; the exit code is its outcome. Package client tests streams across restarts of the server.
func TestWatch(t *testing.T) {
	s, _ := startFake(t)
	for id, end := range map[string]struct {
		args []string
		code int
	}{
		"1": {[]string{"--happened", "--external-id", "ch_1"}, 0},
		"2": {[]string{"--fail"}, cli.ExitFailed},
	} {
		key := "t/" + id
		s.flightd("exec", "--key", key, "--", "false")
		watched := make(chan result, 1)
		go func() { watched <- s.flightd("flights", "watch", key) }()
		if r := s.flightd(append([]string{"doubt", "resolve", key, "--reason", "looked", "--yes"}, end.args...)...); r.code != 0 {
			t.Fatal(r)
		}
		r := <-watched
		require.Equal(t, end.code, r.code, "%v", r)
		require.GreaterOrEqual(t, strings.Count(r.out, "\n"), 5, "%v", r)
		require.Contains(t, r.out, "resolved it", "%v", r)
		require.Contains(t, r.err, fmt.Sprintf("default/%s: ", key), "%v", r)
	}
	s.flightd("flights", "watch", "t/none").want(t, cli.ExitFailed, "", "not_found")
}

func TestEventText_NamesPeople(t *testing.T) {
	for actor, want := range map[string]string{"ann": "ann resolved it (it happened: the log)", "unknown": "an unnamed person resolved it (it happened: the log)", "": "an unnamed person resolved it (it happened: the log)"} {
		require.Equal(t, want, eventText(client.Event{Kind: "resolved", Actor: actor, Note: "happened: the log"}))
	}
}
