package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

// queue returns what the server says of an action.
func (s *server) queue(action string) (found client.Queue) {
	r := s.flightd("queues", "-o", "json").want(s.t, cli.ExitOK, "", "")
	var list struct{ Queues []client.Queue }
	require.NoError(s.t, json.Unmarshal([]byte(r.out), &list), "%v", r)
	for _, q := range list.Queues {
		if q.Action == action {
			return q
		}
	}
	return found
}

// The jobs that keep failing stand below the table, and their number if they are many.
func TestWriteQueues_Failing(t *testing.T) {
	var b strings.Builder
	writeQueues(&b, []client.Queue{{Namespace: "default", Action: "mail", Failing: 7, FailingJobs: []wire.FailingJob{{Key: "default/mail/1", Cause: "no\nMail"}}}}, false)
	_, notes, _ := strings.Cut(b.String(), "0.0\n")
	require.Equal(t, "mail: default/mail/1 keeps failing: no Mail\nmail: 6 more jobs keep failing\n", notes)
}

// A paused action hands out no job: why, lanes and queues say so. Package remote tests the pause, and that it survives a restart.
func TestQueues_PauseAndResume(t *testing.T) {
	s, _ := startFake(t)
	r := s.flightd("queues", "pause", "charge")
	require.Equal(t, cli.ExitUsage, r.code, "a reason is needed: %v", r)
	s.flightd("queues", "pause", "charge", "--reason", "the bank is down", "--actor", "ann").
		want(t, cli.ExitOK, "", "the action charge is paused; 0 of its jobs are still running")
	require.Zero(t, s.flightd("submit", "charge", "o-1", "--lane", "ann").code)
	require.Zero(t, s.flightd("submit", "charge", "o-2", "--lane", "ann").code)
	require.Contains(t, s.flightd("why", "charge/o-1").out, "blocked: no worker has asked for jobs of the action charge within a minute\n")
	var session wire.SessionAnswer
	s.post("/v1/sessions", `{}`, &session)
	s.post("/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":"n","actions":["charge"],"slots":1,"wait_ms":0}`, session.Session), nil) // a worker asks
	require.Regexp(t, `now: ready\n     blocked: the action charge is paused since [^ ]+ by ann: the bank is down\n$`, s.flightd("why", "charge/o-1").out)
	require.Contains(t, s.flightd("why", "charge/o-2").out, "blocked: default/charge/o-1 stands before it in the lane ann, and is ready\n")
	r = s.flightd("lanes", "show", "charge/o-2")
	require.Contains(t, r.out, "lane ann of default/charge: 2 jobs\n")
	require.Contains(t, r.out, "blocked: default/charge/o-1: the action charge is paused")
	require.Equal(t, r.out, s.flightd("lanes", "show", "charge", "ann").out)
	r = s.flightd("queues")
	require.Regexp(t, `ACTION +READY +RUNNING +OLDEST +WORKERS +DOUBTS +RATE/s\ncharge +1 +0 +\d+ \w+ +1 +0 +0\.0\ncharge is paused since .* by ann: the bank is down\n$`, r.out)
	require.Zero(t, s.flightd("queues", "resume", "charge", "--reason", "the bank is back").code)
	require.NotContains(t, s.flightd("why", "charge/o-1").out, "blocked")
}

// Drain waits for the jobs that run, and hands out no other. A watch that is no terminal prints a line for each change.
func TestQueues_DrainAndWatch(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	watch := s.begin("queues", "watch", "--every", "100ms")
	worker := s.begin("work", "charge", "--", shop.path("pay.sh"))
	for _, id := range []string{"1", "2"} {
		require.Zero(t, s.flightd("submit", "charge", id).code)
	}
	Eventually(t, "the first runs", func() bool { return len(shop.Pids("started")) == 1 })
	Eventually(t, "the watch shows it", func() bool { return strings.Contains(watch.out.String(), "running 1") })
	s.flightd("queues", "drain", "charge", "--reason", "a new version", "--wait", "1s").
		want(t, cli.ExitFailed, "", "the action stays paused; 1 of its jobs is still running")
	drain := s.begin("queues", "drain", "charge", "--reason", "a new version")
	shop.release()
	drain.wait().want(t, cli.ExitOK, "", "the action charge is paused, and none of its jobs is running")
	require.Equal(t, "succeeded", s.flight("charge/1").State)
	require.Equal(t, "ready", s.flight("charge/2").State)
	q := s.queue("charge")
	require.Equal(t, []int{1, 0}, []int{q.Ready, q.Running})
	worker.signal(syscall.SIGTERM)
	require.Zero(t, worker.wait().code)
	shown := regexp.MustCompile(`charge  ready \d  running 1  .*\n(.*\n)*.*charge  ready 1  running 0  .*  paused: a new version\n`)
	Eventually(t, "the watch shows the end", func() bool { return shown.MatchString(watch.out.String()) })
	watch.signal(syscall.SIGINT)
	watch.wait().want(t, cli.ExitOK, "", "")
}
