package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// sh returns the arguments of an exec of a shell script.
func sh(key string, flags []string, script string) []string {
	args := append([]string{"exec", "--key", key, "--ttl", ttl.String()}, flags...)
	return append(args, "--", "/bin/sh", "-c", script)
}

func TestExec_OutcomesAndExitCodes(t *testing.T) {
	s, _ := startFake(t)
	runs := filepath.Join(t.TempDir(), "runs")
	for _, test := range []struct {
		key, flags string
		exit       int    // of the command
		state      string // of the flight after it
		again      int    // exit code of the same exec once more
		runs       int    // how often the command has run then
		says       string // on stderr of the first run
	}{
		{"ok", "", 0, "succeeded", 0, 1, ""},
		{"unknown", "", 3, "in_doubt", cli.ExitInDoubt, 1, "flightd doubt resolve default/exec/unknown --reason WHY --happened"},
		{"resend", "--recovery resend", 3, "ready", 3, 2, "the next exec runs the command again"},
		{"temporary", "--not-done-exit 75", 75, "ready", 75, 2, "the key is free"},
		{"harmless", "--failure not_done", 4, "ready", 4, 2, "the key is free"},
		{"refused", "--failure refused", 5, "failed", 5, 1, ""},
		{"killed", "--failure not_done", -9, "in_doubt", cli.ExitInDoubt, 1, "in doubt"}, // --failure does not apply to a killed command
	} {
		t.Run(test.key, func(t *testing.T) {
			script := fmt.Sprintf("echo out; echo err >&2; echo x >> %s.%s; exit %d", runs, test.key, test.exit)
			want := test.exit
			if test.exit < 0 {
				script = fmt.Sprintf("echo out; echo x >> %s.%s; kill %d $$", runs, test.key, test.exit)
				want = 128 - test.exit
			}
			args := sh(test.key, strings.Fields(test.flags), script)
			first := s.flightd(args...)
			require.Equal(t, want, first.code, "the first time: %v", first)
			require.Equal(t, "out\n", first.out, "the first time: %v", first)
			require.Contains(t, first.err, test.says, "the first time: %v", first)
			f := s.flight(test.key)
			require.Equal(t, test.state, f.State, "the flight is %s", f.State)
			again := s.flightd(args...)
			data, err := os.ReadFile(runs + "." + test.key)
			require.NoError(t, err, "once more: %v\nruns: %q, %v", again, data, err)
			require.Equal(t, test.again, again.code, "once more: %v\nruns: %q, %v", again, data, err)
			require.Equal(t, test.runs, strings.Count(string(data), "x"), "once more: %v\nruns: %q, %v", again, data, err)
			require.False(t, test.again == test.exit && test.runs == 1 && (again.out != first.out || !strings.HasPrefix(again.err, "err\nflightd: default/exec/"+test.key+": replayed")), "the replay is %v", again)
		})
	}
}

func TestExec_NotStartedLeavesTheKeyFree(t *testing.T) {
	s, _ := startFake(t)
	script := filepath.Join(t.TempDir(), "pay.sh")
	err := os.WriteFile(script, []byte("#!/bin/sh\necho paid\n"), 0o600)
	require.NoError(t, err)
	r := s.flightd("exec", "--key", "typo", "--", "/does/not/exist")
	require.Equal(t, 127, r.code, "a misspelt command: %v", r)
	require.Contains(t, r.err, "--fingerprint none", "a misspelt command: %v", r)
	r = s.flightd("exec", "--key", "typo", "--", "true")
	require.Equal(t, cli.ExitUsage, r.code, "the corrected command: %v", r)
	require.Contains(t, r.err, "--fingerprint none", "the corrected command: %v", r)
	r = s.flightd("exec", "--key", "typo", "--fingerprint", "none", "--", "true")
	require.Equal(t, 0, r.code, "with the flag of the hint: %v", r)
	r = s.flightd("exec", "--key", "a", "--fingerprint", "none", "--", "/does/not/exist")
	require.Equal(t, 127, r.code, "a missing program: %v", r)
	require.Contains(t, r.err, "the key is free", "a missing program: %v", r)
	r = s.flightd("exec", "--key", "b", "--", script)
	require.Equal(t, 126, r.code, "a file without execute permission: %v", r)
	err = os.Chmod(script, 0o700)
	require.NoError(t, err)
	bare := filepath.Join(t.TempDir(), "bare.sh")
	err = os.WriteFile(bare, []byte("echo paid\n"), 0o700)
	require.NoError(t, err)
	r = s.flightd("exec", "--key", "c", "--", bare)
	require.Equal(t, 126, r.code, "a script without an interpreter: %v", r)
	require.Contains(t, r.err, "#!/bin/sh", "a script without an interpreter: %v", r)
	for _, key := range []string{"a", "b"} {
		r := s.flightd("exec", "--key", key, "--fingerprint", "none", "--", script)
		require.Equal(t, 0, r.code, "%s afterwards: %v", key, r)
		require.Equal(t, "paid\n", r.out, "%s afterwards: %v", key, r)
	}
}

func TestExec_TellsTheCommandItsAttempt(t *testing.T) {
	s, _ := startFake(t)
	r := s.flightd(sh("shop/order-1", nil, `echo "$FLIGHTD_KEY $FLIGHTD_FLIGHT_ID $FLIGHTD_ATTEMPT"; echo "${#FLIGHTD_FENCING_TOKEN} ${#IDEMPOTENCY_KEY}"; cat; echo end`)...)
	f := s.flight("shop/order-1")
	lines := strings.Split(r.out, "\n")
	require.Equal(t, 0, r.code, "%v\nflight %s", r, f.ID)
	require.GreaterOrEqual(t, len(lines), 3, "%v\nflight %s", r, f.ID)
	require.Equal(t, "default/shop/order-1 "+f.ID+" 1", lines[0], "%v\nflight %s", r, f.ID)
	require.Equal(t, "end", lines[2], "%v\nflight %s", r, f.ID)
	var token, key int
	_, err := fmt.Sscan(lines[1], &token, &key)
	require.NoError(t, err, "token and idempotency key: %q", lines[1])
	require.GreaterOrEqual(t, token, 20, "token and idempotency key: %q", lines[1])
	require.GreaterOrEqual(t, key, 20, "token and idempotency key: %q", lines[1])
	require.LessOrEqual(t, key, 64, "token and idempotency key: %q", lines[1])
}

func TestExec_InputIsStoredAndFed(t *testing.T) {
	s, _ := startFake(t)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for name, text := range map[string]string{one: "first\x00input\xff", two: "second"} {
		err := os.WriteFile(name, []byte(text), 0o600)
		require.NoError(t, err)
	}
	args := func(key, input string, flags ...string) []string {
		return sh(key, append(flags, "--not-done-exit", "75", "--input", input), `cat; [ "$FLIGHTD_ATTEMPT" -gt 1 ] || exit 75`)
	}
	r := s.flightd(args("in", one)...)
	require.Equal(t, 75, r.code, "the first: %v", r)
	require.Equal(t, "first\x00input\xff", r.out, "the first: %v", r)
	r = s.flightd(args("in", two)...)
	require.Equal(t, cli.ExitUsage, r.code, "another input: %v", r)
	require.Contains(t, r.err, "idempotency_conflict", "another input: %v", r)
	r = s.flightd(args("in", two, "--fingerprint", "none")...)
	require.Equal(t, 0, r.code, "with --fingerprint none, the first input is used: %v", r)
	require.Equal(t, "first\x00input\xff", r.out, "with --fingerprint none, the first input is used: %v", r)
}

// Processes that a command has started are ended before its attempt ends; they would act at the same time as the next
// attempt.
func TestExec_CutShortCommandLeavesNoProcess(t *testing.T) {
	for name, cut := range map[string]struct {
		flags  []string
		signal bool
	}{"time-out": {flags: []string{"--timeout", "3s"}}, "signal": {signal: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			shop := NewShop(t, true)
			i := s.begin(sh("orphan", cut.flags, "sh -c 'trap \"\" TERM; echo $$ >> "+shop.path("started")+"; while :; do sleep 0.05; done' >&2 & wait")...)
			Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
			if cut.signal {
				i.signal(syscall.SIGTERM)
			}
			r := i.wait()
			require.Equal(t, 128+int(syscall.SIGTERM), r.code, "%v", r)
			if orphan := shop.Pids("started")[0]; Alive(orphan) {
				t.Errorf("process %d goes on", orphan)
				_ = syscall.Kill(orphan, syscall.SIGKILL)
			}
		})
	}
}

// A command that was cut short may have acted or not, whatever its exit code: neither 0 nor a code of --not-done-exit counts.
func TestExec_CutShortIsUnknownWhateverTheCode(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const term = 128 + int(syscall.SIGTERM)
	const trapped, asIs, children = "trap 'exit %d' TERM; echo charged > %s; while :; do sleep 0.05; done", ": %d; echo charged > %s; exec sleep 600", "trap : USR1 USR2; (echo charged > %[2]s; sleep 60) || exit %[1]d"
	for key, row := range map[string]struct {
		flags, script string
		code          int            // of the command
		signal        syscall.Signal // 0: its time-out ends it
		state         string         // "": in doubt
		want          int            // of exec
	}{
		"signal":                     {"", trapped, 0, syscall.SIGTERM, "", term},
		"signal-not-done":            {"--failure not_done", trapped, 1, syscall.SIGTERM, "", 1},
		"signal-refused":             {"--failure refused", trapped, 1, syscall.SIGTERM, "", 1},
		"signal-code":                {"--not-done-exit 75", trapped, 75, syscall.SIGTERM, "", 75},
		"timeout":                    {"", trapped, 0, 0, "", term},
		"timeout-kills":              {"--failure not_done", asIs, 0, 0, "", term},
		"timeout-resent":             {"--recovery resend", trapped, 0, 0, "ready", term},
		"usr1, which ends its child": {"--not-done-exit 75", children, 75, syscall.SIGUSR1, "", 75},
		"usr2, which ends its child": {"--not-done-exit 75", children, 75, syscall.SIGUSR2, "", 75},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			key, mark, flags := strings.ReplaceAll(key, ", which ends its child", ""), filepath.Join(t.TempDir(), "mark"), strings.Fields(row.flags)
			if row.signal == 0 {
				flags = append(flags, "--timeout", "3s")
			}
			line := s.begin(sh(key, flags, fmt.Sprintf(row.script, row.code, mark))...)
			if row.signal != 0 {
				Eventually(t, "it runs", func() bool { _, err := os.Stat(mark); return err == nil })
				line.signal(row.signal)
			}
			r := line.wait()
			require.Equal(t, cmp.Or(row.state, "in_doubt"), s.flight(key).State, "%v", r)
			require.Equal(t, row.want, r.code, "%v", r)
			if row.state == "" {
				require.Contains(t, r.err, "in doubt")
				require.NotContains(t, r.err, "when nothing was done", "the hint names a flag that does not apply")
				require.NotContains(t, r.err, "--failure", "the hint names a flag that does not apply")
				require.Contains(t, r.err, "--recovery resend")
			}
			require.Equal(t, row.signal == 0, strings.Contains(r.err, "the command was ended: its time-out has passed (--timeout)"), "%v", r)
		})
	}
}

// Signals that are ignored when exec starts, as under nohup and a shell's &, end neither exec nor its command.
func TestExec_LeavesIgnoredSignalsIgnored(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	args := append([]string{"-c", `trap "" HUP INT; exec "$0" "$@"`, program, "exec", "--key", "nohup", "--"}, shop.path("pay.sh"))
	i := s.beginCommand("/bin/sh", args...)
	Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		i.signal(signal)
		err := syscall.Kill(shop.Pids("started")[0], signal)
		require.NoError(t, err)
	}
	shop.release()
	r := i.wait().want(t, cli.ExitOK, "", "")
	require.True(t, strings.HasPrefix(r.out, "paid by"), "%v", r)
	f := s.flight("nohup")
	require.Equal(t, "succeeded", f.State, "the flight is %s", f.State)
}

// A waiter prints for whom it waits, gets the receipt, and leaves with a signal. The holder prints no notice.
func TestExec_WaitFlag(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	first := s.begin("exec", "--key", "w", "--", shop.path("pay.sh"))
	Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
	r := s.flightd("exec", "--key", "w", "--wait", "0", "--", shop.path("pay.sh"))
	require.Equal(t, cli.ExitBusy, r.code, "--wait 0: %v", r)
	require.Contains(t, r.err, "idempotency_in_flight", "--wait 0: %v", r)
	require.Contains(t, r.err, "flightd why default/exec/w", "--wait 0: %v", r)
	waiter := s.begin("exec", "--key", "w", "--wait", "forever", "--", shop.path("pay.sh"))
	gone := s.begin("exec", "--key", "w", "--wait", "forever", "--", shop.path("pay.sh"))
	notice := "default/exec/w: waiting for another caller: attempt 1 is held by " + s.flight("w").LastAttempt.Owner + " since "
	Eventually(t, "both wait", func() bool {
		return strings.Contains(gone.err.String(), notice) && strings.Contains(waiter.err.String(), notice)
	})
	gone.signal(syscall.SIGTERM)
	r = gone.wait()
	require.Equal(t, 128+int(syscall.SIGTERM), r.code, "a waiter that gets SIGTERM: %v", r)
	require.Contains(t, r.err, "nothing was started", "a waiter that gets SIGTERM: %v", r)
	shop.release()
	a, b := first.wait(), waiter.wait()
	require.Equal(t, 0, a.code, "the first: %v\nthe waiter: %v", a, b)
	require.Equal(t, a.out, b.out, "the first: %v\nthe waiter: %v", a, b)
	require.Equal(t, 0, b.code, "the first: %v\nthe waiter: %v", a, b)
	require.Contains(t, b.err, "nothing was run", "the first: %v\nthe waiter: %v", a, b)
	require.NotContains(t, a.err, "waiting for")
}

// A signal ends exec with its code also while the server has not answered at all.
func TestExec_SignalBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	s := &server{t: t, address: silent.Addr().String(), state: t.TempDir()}
	i := s.begin("exec", "--key", "k", "--", "true")
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	i.signal(syscall.SIGTERM)
	r := i.wait()
	require.Equal(t, 128+int(syscall.SIGTERM), r.code, "%v", r)
	require.Contains(t, r.err, "nothing was started", "%v", r)
}

func TestExec_LongOutputIsShortenedAndSaysSo(t *testing.T) {
	s, _ := startFake(t)
	args := sh("long", []string{"--capture", "1KiB"}, "i=0; while [ $i -lt 200 ]; do echo 'line of output'; i=$((i+1)); done")
	first, again := s.flightd(args...), s.flightd(args...)
	require.Equal(t, 0, first.code, "the first: %d bytes, exit %d\nthe replay: %v", len(first.out), first.code, again)
	require.Len(t, first.out, 3000, "the first: %d bytes, exit %d\nthe replay: %v", len(first.out), first.code, again)
	require.Contains(t, first.err, "of 3000 and 0 bytes, 1024 and 0 were kept", "the first: %v", first)
	require.Equal(t, cli.ExitTruncated, again.code, "the first: %d bytes, exit %d\nthe replay: %v", len(first.out), first.code, again)
	require.Equal(t, first.out[:1024], again.out, "the first: %d bytes, exit %d\nthe replay: %v", len(first.out), first.code, again)
	require.Contains(t, again.err, "--allow-truncated", "the replay: %v", again)
	require.Contains(t, again.err, "of 3000 and 0 bytes, 1024 and 0 were kept", "the first: %d bytes, exit %d\nthe replay: %v", len(first.out), first.code, again)
	allowed := s.flightd(append([]string{"exec", "--allow-truncated"}, args[1:]...)...)
	require.Equal(t, 0, allowed.code, "%v", allowed)
	require.Equal(t, again.out, allowed.out, "%v", allowed)
	require.NotContains(t, allowed.err, "--allow-truncated", "%v", allowed)
}

// TestExec_SpoolFailureIsReported: if the report cannot be spooled, the message says that the outcome is lost.
func TestExec_SpoolFailureIsReported(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	first := s.begin("exec", "--key", "lost", "--report-wait", "100ms", "--", shop.path("pay.sh"))
	Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
	s.kill()
	reports := filepath.Join(s.state, "flightd", "reports")
	err := os.RemoveAll(reports)
	require.NoError(t, err)
	err = os.WriteFile(reports, nil, 0o600)
	require.NoError(t, err)
	shop.release()
	r := first.wait().want(t, cli.ExitOK, "", "")
	require.NotContains(t, r.err, "waits on disk", "%v", r)
	require.NotContains(t, r.err, "stays on disk", "%v", r)
	require.Contains(t, r.err, "lost with this process", "%v", r)
}

// TestExec_SignalsWhileItReports: the first signal prints a message, the second ends the report, and the outcome is not
// lost.
func TestExec_SignalsWhileItReports(t *testing.T) {
	for name, twice := range map[string]bool{"one": false, "two": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			shop := NewShop(t, true)
			args := []string{"exec", "--key", "late", "--report-wait", "10m", "--", shop.path("pay.sh")}
			i := s.begin(args...)
			Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
			s.kill()
			shop.release()
			Eventually(t, "its outcome is on disk", func() bool {
				spooled, err := filepath.Glob(filepath.Join(s.state, "flightd", "reports", "*.report"))
				return err == nil && len(spooled) == 1
			})
			i.signal(syscall.SIGINT)
			if twice {
				i.signal(syscall.SIGTERM)
			} else {
				s.start()
			}
			r := i.wait().want(t, cli.ExitOK, "", "its outcome is being reported")
			require.Equal(t, twice, strings.Contains(r.err, "not stored yet"), "%v", r)
			if twice {
				s.start()
			}
			again := s.flightd(args...)
			require.Equal(t, 0, again.code, "the next one: %v", again)
			require.Equal(t, r.out, again.out, "the next one: %v", again)
			require.Len(t, shop.Pids("started"), 1, "the next one: %v", again)
		})
	}
}

func TestExec_LeaseLostKillsWhereThatIsWanted(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	i := s.begin("exec", "--key", "lost", "--ttl", ttl.String(), "--on-lease-lost", "kill", "--report-wait", "30s", "--", shop.path("pay.sh"))
	Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
	s.kill()
	Eventually(t, "the command is dead", func() bool { return !Alive(shop.Pids("started")[0]) })
	s.start()
	r := i.wait()
	require.Equal(t, 128+int(syscall.SIGTERM), r.code, "%v", r)
	require.Contains(t, r.err, "--on-lease-lost kill", "%v", r)
	Eventually(t, "it is in doubt", func() bool { return s.flight("lost").State == "in_doubt" })
}

// TestHazard36: a server that restarts within the TTL adopts no claim of its previous incarnation, and neither releases
// nor takes over the claims of running callers.
func TestHazard36_FastRestartAdoptsNoClaim(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	first := s.begin("exec", "--key", "pay", "--ttl", "15s", "--recovery", "resend", "--", shop.path("pay.sh"))
	Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
	s.kill()
	s.start()
	r := s.flightd("exec", "--key", "pay", "--wait", "1s", "--recovery", "resend", "--", shop.path("pay.sh"))
	require.Equal(t, cli.ExitBusy, r.code, "another one: %v", r)
	shop.release()
	r = first.wait()
	require.Equal(t, 0, r.code, "the first: %v\nstarted: %v", r, shop.Pids("started"))
	require.Len(t, shop.Pids("started"), 1, "the first: %v\nstarted: %v", r, shop.Pids("started"))
	f := s.flight("pay")
	require.Equal(t, "succeeded", f.State, "the flight is %+v", f)
	require.EqualValues(t, 1, f.Attempts, "the flight is %+v", f)
}
