package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// script writes a shell script in the folder of a shop, and returns its path.
func (s *shop) script(text string) string {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path("job.sh"), []byte("#!/bin/sh\ncd "+s.dir+" || exit 1\n"+text), 0o700))
	return s.path("job.sh")
}

// A job that is submitted three times is done once: its input is on the command's standard input, and its output is the receipt.
func TestWork_EachJobOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, false)
	worker := s.begin("work", "charge", "mail", "--concurrency", "4", "--", shop.script(
		`input=$(cat); echo "$FLIGHTD_KEY" >>done; printf '{"of":%s,"key":"%s","token":%s,"attempt":%s}\n' "$input" "$IDEMPOTENCY_KEY" "${FLIGHTD_FENCING_TOKEN:+true}" "$FLIGHTD_ATTEMPT"; echo "a log line" >&2`))
	const n = 40
	file := jobsFile(t, n)
	for range 3 {
		require.Zero(t, s.flightd("submit", "charge", "-f", file).code)
	}
	for i := range n {
		r := s.flightd("flights", "wait", fmt.Sprint("charge/o-", i)).want(t, cli.ExitOK, "", "")
		require.Regexp(t, fmt.Sprintf(`^{"of":{"cents":%d},"key":"[^"]+","token":true,"attempt":1}`, i), r.out)
	}
	s.flightd("submit", "mail", "m-1", "--input", `"hello"`, "--wait", "forever").want(t, cli.ExitOK, `{"of":"hello",`, "")
	done, err := os.ReadFile(shop.path("done"))
	require.NoError(t, err)
	require.Equal(t, n+1, strings.Count(string(done), "\n"))
	require.Contains(t, string(done), "default/mail/m-1\n")

	worker.signal(syscall.SIGTERM)
	stopped := worker.wait()
	require.Zero(t, stopped.code, "%v", stopped)
	require.Contains(t, stopped.err, "a log line\n")
	require.Empty(t, stopped.out)
}

// If the time-out of an attempt ends its command, the history has the word time-out and not only a signal.
func TestWork_TimeOut(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, false)
	s.begin("work", "charge", "--timeout", "500ms", "--", shop.script(`exec sleep 60`))
	Eventually(t, "it is declared", func() bool { return s.flightd("actions", "show", "charge").code == 0 })
	r := s.flightd("submit", "charge", "o-1", "--input", "1", "--wait", "forever")
	require.NotZero(t, r.code)
	why := s.flightd("why", "charge/o-1")
	require.Contains(t, why.out, "time-out: the command took longer than its attempt may", "%v", why)
	require.NotContains(t, why.out, "killed by")
}

// The exit code of the command says what became of the job, as in exec.
func TestWork_ExitCodes(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, false)
	s.begin("work", "charge", "--concurrency", "4", "--not-done-exit", "75", "--", shop.script(`code=$(tr -d '"'); echo $code >>tries; echo '{"said":"'$code'"}'; case $code in kill) kill -9 $$;; *) exit $code;; esac`))
	s.begin("work", "refund", "--failure", "refused", "--", shop.path("job.sh"))
	for _, test := range []struct {
		input string
		args  []string
		exit  int
		state string
		out   string
	}{
		{input: "0", state: "succeeded", out: `{"said":"0"}`},
		{input: "3", exit: cli.ExitInDoubt, state: "in_doubt"},
		{input: `"kill"`, exit: cli.ExitInDoubt, state: "in_doubt"},
		{input: "75", args: []string{"--attempts", "2"}, exit: cli.ExitFailed, state: "failed"},
	} {
		id := strings.Trim(test.input, `"`)
		r := s.flightd(append([]string{"submit", "charge", id, "--input", test.input, "--wait", "forever"}, test.args...)...)
		require.Equal(t, test.exit, r.code, "%s: %v", test.input, r)
		require.Equal(t, test.out, strings.TrimSpace(r.out), test.input)
		require.Equal(t, test.state, s.flight("charge/"+id).State, test.input)
	}
	r := s.flightd("submit", "refund", "r-1", "--input", "4", "--wait", "forever").want(t, cli.ExitFailed, "", "")
	require.Equal(t, `{"said":"4"}`, strings.TrimSpace(r.out), "the provider's answer")
	tries, err := os.ReadFile(shop.path("tries"))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(tries), "75\n"), "not done: again, until the attempts are used up")
	require.Equal(t, 1, strings.Count(string(tries), "3\n"))
}

// A killed worker's commands die with it, and the recovery of each job decides.
func TestWork_KilledWorker(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	args := []string{"work", "charge", "--concurrency", "2", "--ttl", "5s", "--", shop.path("pay.sh")}
	first := s.begin(args...)
	require.Zero(t, s.flightd("submit", "charge", "hold").code)
	require.Zero(t, s.flightd("submit", "charge", "resend", "--recovery", "resend").code)
	Eventually(t, "both run", func() bool { return len(shop.Pids("started")) == 2 })
	first.signal(syscall.SIGKILL)
	first.wait()
	Eventually(t, "the commands are dead, too", func() bool {
		return !Alive(shop.Pids("started")[0]) && !Alive(shop.Pids("started")[1])
	})
	shop.release()
	s.begin(args...)
	s.flightd("flights", "wait", "charge/resend").want(t, cli.ExitOK, "as default/charge/resend, attempt 2\n", "")
	require.Equal(t, cli.ExitInDoubt, s.flightd("flights", "wait", "charge/hold").code)
	require.Len(t, shop.Pids("paid"), 1)
}

// A worker that gets SIGTERM claims nothing more, and waits for its commands; a second signal ends them.
func TestWork_Signals(t *testing.T) {
	t.Parallel()
	for _, second := range []bool{false, true} {
		s := startServer(t)
		shop := NewShop(t, true)
		worker := s.begin("work", "charge", "--drain", "10m", "--", shop.path("pay.sh"))
		for _, id := range []string{"1", "2"} {
			require.Zero(t, s.flightd("submit", "charge", id).code)
		}
		Eventually(t, "the first runs", func() bool { return len(shop.Pids("started")) == 1 })
		worker.signal(syscall.SIGTERM)
		if second {
			worker.signal(syscall.SIGINT)
		} else {
			shop.release()
		}
		worker.wait().want(t, cli.ExitOK, "", "no more jobs are claimed")
		require.Len(t, shop.Pids("started"), 1)
		require.Equal(t, map[bool]string{false: "succeeded", true: "in_doubt"}[second], s.flight("charge/1").State)
		require.Equal(t, "ready", s.flight("charge/2").State)
	}
}
