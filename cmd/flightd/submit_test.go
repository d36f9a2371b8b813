package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// jobsFile writes a file of n jobs and returns its path.
func jobsFile(t *testing.T, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"o-%d","input":{"cents":%d},"lane":"customer/%d"}`+"\n", i, i, i%7)
	}
	return tempFile(t, b.String())
}

func decodeSubmitted(t *testing.T, r result) (sum submitSummary) {
	require.NoError(t, json.Unmarshal([]byte(r.out), &sum), "%v", r)
	return sum
}

// A file of jobs is submitted whole however often: what an interrupted submission has queued is a duplicate of the next one.
func TestSubmit_File_SafeToRunAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	file, dir := jobsFile(t, 5000), t.TempDir()
	first := s.beginCommand("/bin/sh", "-c", `(head -n 3 "$2"; while [ ! -e "$3"/go ]; do sleep 0.02; done; cat "$2") | sh -c 'echo $$ >"$2"/pid; exec "$1" submit charge -f -' sh "$1" "$3"`, "sh", program, file, dir)
	Eventually(t, "lines are submitted before the file has ended", func() bool { return s.flight("charge/o-2").State == "ready" })
	killed := shop{t, dir}
	require.NoError(t, syscall.Kill(killed.Pids("pid")[0], syscall.SIGKILL))
	killed.release() // so that its shell ends
	first.wait()

	r := s.flightd("submit", "charge", "-f", file).want(t, cli.ExitOK, "", "")
	require.Regexp(t, `^5,000 read: [0-9,]+ queued, [0-9]+ duplicates, 0 conflicts; safe to run again\n$`, r.out)
	again := decodeSubmitted(t, s.flightd("submit", "charge", "-f", file, "-o", "json"))
	require.Equal(t, submitSummary{Read: 5000, Duplicates: 5000}, again)
	s.kill()
	s.start()
	require.Equal(t, again, decodeSubmitted(t, s.flightd("submit", "charge", "-f", file, "-o", "json")), "after a crash of the server")
}

// Each rejected line is printed with its number, its code and a hint, and changes nothing for the others.
func TestSubmit_RejectedLines(t *testing.T) {
	s, _ := startFake(t)
	require.Zero(t, s.flightd("submit", "charge", "first", "--input", `{"cents":1}`).code)
	file := tempFile(t, `{"id":"first","input":{"cents":1}}

{"id":"first","input":{"cents":2}}
{"id":"cut"
{"id":"good","priority":7}
{"id":"greedy","priority":7000}
{"input":{"cents":1}}
{"id":"typo","actoin":1}
{"id":"other","action":"mail"}
{"id":"long","input":"`+strings.Repeat("x", maxLine)+`"}
{"id":"last"}
`)
	r := s.flightd("submit", "charge", "-f", file, "-o", "json").want(t, cli.ExitFailed, "", "")
	require.Equal(t, submitSummary{Read: 10, Queued: 2, Duplicates: 1, Conflicts: 1, Rejected: 6}, decodeSubmitted(t, r))
	for _, want := range []string{
		"line 3: idempotency_conflict: default/charge/first was first used with another input",
		"line 4: input_invalid: invalid JSON",
		"line 6: input_invalid: /priority: must be -1000 to 1000",
		"line 7: idempotency_key_required: /id: missing\n  send action and id",
		"line 8: input_invalid: /actoin: unknown field\n  remove it or fix the spelling",
		"line 9: input_invalid: /action: is mail; the command submits jobs of charge",
		"line 10: input_invalid: longer than 1048576 bytes",
	} {
		require.Contains(t, r.err, want)
	}
	for _, id := range []string{"good", "last"} {
		require.Equal(t, "ready", s.flight("charge/"+id).State, id)
	}
	require.Empty(t, s.flight("charge/greedy").State)

	many := s.flightd("submit", "charge", "-f", tempFile(t, strings.Repeat("{}\n", 500)))
	require.Equal(t, cli.ExitFailed, many.code)
	require.Equal(t, maxInvalidLines, strings.Count(many.err, ": idempotency_key_required"), "the rest is only counted")
	require.Contains(t, many.out, "500 read: 0 queued, 0 duplicates, 0 conflicts, 500 rejected")
}

// The flags are for the lines without the field.
func TestSubmit_FlagsAreDefaults(t *testing.T) {
	s, _ := startFake(t)
	file := tempFile(t, `{"id":"bare"}
{"id":"own","recovery":"hold","delay_ms":3600000}
`)
	r := s.flightd("submit", "charge", "-f", file, "--recovery", "resend", "--provider-window", "24h", "--timeout", "30s", "--lane", "l", "--lane-limit", "2", "--priority", "5", "--run-at", "2099-01-31T09:30:00Z")
	require.Zero(t, r.code, "%v", r)
	bare, own := s.flight("charge/bare"), s.flight("charge/own")
	require.Equal(t, "resend", bare.Recovery)
	require.Equal(t, 2099, bare.NotBefore.Year())
	require.Equal(t, "hold", own.Recovery)
	require.WithinDuration(t, time.Now().Add(time.Hour), own.NotBefore.Time, 10*time.Minute)
}

// One job is submitted with its input, and its receipt can be waited for.
func TestSubmit_OneJob(t *testing.T) {
	s, _ := startFake(t)
	r := s.flightd("submit", "charge", "o-1", "--input", "@"+tempFile(t, `{"cents":1}`))
	require.Equal(t, "default/charge/o-1: queued, ready\n", r.out)
	require.Contains(t, r.err, "no worker has asked for jobs of the action charge")
	require.Zero(t, r.code)
	r = s.flightd("submit", "charge", "o-1", "--input", `{"cents":1}`)
	require.Equal(t, "default/charge/o-1: duplicate, ready\n", r.out)
	require.Zero(t, r.code)
	s.flightd("submit", "charge", "o-1", "--input", `{"cents":2}`).want(t, cli.ExitUsage, "", "idempotency_conflict")
	r = s.flightd("submit", "charge", "o-1", "--input", `{"cents":1}`, "--wait", "100ms").
		want(t, cli.ExitBusy, "", "\n  run flightd why default/charge/o-1")
	require.Empty(t, r.out)
	require.Equal(t, cli.ExitBusy, s.flightd("flights", "wait", "charge/o-1", "--wait", "0").code)
}
