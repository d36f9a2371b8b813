package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// ttl is the shortest TTL: these tests wait for it to expire.
const ttl = 2 * time.Second

func TestDev_ReadySoon(t *testing.T) {
	s := startServer(t)
	t.Logf("first start: ready after %v", s.took)
	s.kill()
	s.start()
	t.Logf("next start: ready after %v", s.took)
	if s.took > 12*time.Second { // 1.5 s on an idle machine; it must not wait for the end of a session
		t.Errorf("that is much too long")
	}
}

func TestDev_SecondStartOnSameDataIsRefused(t *testing.T) {
	s := startServer(t)
	r := s.flightd("dev", "--data", s.data, "--listen", "127.0.0.1:0")
	require.Equal(t, cli.ExitConfig, r.code, "the second one: %v", r)
	require.Contains(t, r.err, fmt.Sprint(s.cmd.Process.Pid), "the second one: %v", r)
	require.Empty(t, r.out, "the second one: %v", r)
	r = s.flightd("dev", "--data", t.TempDir(), "--listen", s.address)
	require.Equal(t, cli.ExitUnreachable, r.code, "one on the same address: %v", r)
	require.Contains(t, r.err, "address already in use", "one on the same address: %v", r)
}

func TestDev_StopsOnSIGTERM(t *testing.T) {
	s := startServer(t)
	shop := NewShop(t, true)
	first := s.begin("exec", "--key", "pay-1", "--", shop.path("pay.sh"))
	Eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.Pids("started")) == 1 })
	waiter := s.begin("exec", "--key", "pay-1", "--wait", "forever", "--", shop.path("pay.sh"))
	_ = waiter
	start := time.Now()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	err := s.cmd.Wait()
	t.Logf("stopped in %v", time.Since(start))
	require.NoError(t, err, "it ended with %v\n%s", err, s.log)
	took := time.Since(start)
	require.LessOrEqual(t, took, 5*time.Second, "it took %v", took)
	s.start()
	shop.release()
	a, b := first.wait(), waiter.wait()
	require.Equal(t, 0, a.code, "the runner: %v\nthe waiter: %v\npaid by %v", a, b, shop.Pids("paid"))
	require.Equal(t, 0, b.code, "the runner: %v\nthe waiter: %v\npaid by %v", a, b, shop.Pids("paid"))
	require.Equal(t, b.out, a.out, "the runner: %v\nthe waiter: %v\npaid by %v", a, b, shop.Pids("paid"))
	require.Len(t, shop.Pids("paid"), 1, "the runner: %v\nthe waiter: %v\npaid by %v", a, b, shop.Pids("paid"))
}

// TestDev_StopsWhenItsTerminalCloses: SIGHUP stops the node like SIGTERM, except under nohup.
func TestDev_StopsWhenItsTerminalCloses(t *testing.T) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // under nohup, the children would inherit the ignored signal
	defer signal.Stop(hup)
	s := startServer(t)
	err := s.cmd.Process.Signal(syscall.SIGHUP)
	require.NoError(t, err)
	err = s.cmd.Wait()
	require.NoError(t, err, "it ended with %v\n%s", err, s.log)
	s.cmd = nil

	i := s.beginCommand("/bin/sh", "-c", `trap "" HUP; exec "$0" "$@"`, program, "dev", "--data", s.data, "--listen", s.address)
	Eventually(t, "it is ready", 10*time.Second, func() bool { return s.flightd("flights", "ls").code == 0 })
	i.signal(syscall.SIGHUP)
	r := s.flightd("exec", "--key", "pay", "--", "echo", "paid")
	require.Equal(t, 0, r.code, "after an ignored SIGHUP: %v", r)
	i.signal(syscall.SIGTERM)
	r = i.wait()
	require.Equal(t, 0, r.code, "it ended: %v", r)
}

// runMany runs exec many times at once.
func (s *server) runMany(n int, args ...string) []result {
	s.t.Helper()
	results := make([]result, n)
	var all sync.WaitGroup
	for i := range results {
		command := s.begin(args...)
		all.Go(func() { results[i] = command.wait() })
	}
	all.Wait()
	return results
}

func TestExec_HundredAtOnceRunOnce(t *testing.T) {
	s := startServer(t)
	shop := NewShop(t, false)
	args := []string{"exec", "--key", "pay-7", "--wait", "forever", "--", shop.path("pay.sh")}
	start := time.Now()
	first := s.runMany(100, args...)
	t.Logf("100 at once: %v", time.Since(start))
	s.kill()
	s.start()
	second := s.runMany(100, args...)
	paid := shop.Pids("paid")
	require.Len(t, paid, 1, "paid by %v", paid)
	want := first[0].out
	require.True(t, strings.HasPrefix(want, fmt.Sprintf("paid by %d at ", shop.Pids("paid")[0])), "the output is %q", want)
	for i, r := range append(first, second...) {
		require.Equal(t, want, r.out, "number %d differs: %v\nthe first: %v", i, r, first[0])
		require.Equal(t, 0, r.code, "number %d differs: %v\nthe first: %v", i, r, first[0])
		require.Contains(t, r.err, "thank you\n", "number %d differs: %v\nthe first: %v", i, r, first[0])
	}
	for _, other := range [][]string{
		{"exec", "--key", "pay-7", "--", shop.path("pay.sh"), "twice"},
		{"exec", "--key", "pay-7", "--input", shop.path("pay.sh"), "--", shop.path("pay.sh")},
	} {
		r := s.flightd(other...)
		require.Equal(t, cli.ExitUsage, r.code, "%v: %v", other, r)
		require.Contains(t, r.err, "idempotency_conflict", "%v: %v", other, r)
		require.Empty(t, r.out, "%v: %v", other, r)
	}
	r := s.flightd("exec", "--key", "pay-7", "--fingerprint", "none", "--", "/bin/false")
	require.Equal(t, 0, r.code, "with the key alone deciding: %v", r)
	require.Equal(t, want, r.out, "with the key alone deciding: %v", r)
}

func TestExec_ServerKilledInMidRun(t *testing.T) {
	for _, test := range []struct {
		name string
		away time.Duration
	}{{"back after a second", time.Second}, {"back after three TTLs", 3 * ttl}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			shop := NewShop(t, true)
			args := []string{"exec", "--key", "pay-8", "--ttl", ttl.String(), "--", shop.path("pay.sh")}
			first := s.begin(args...)
			Eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.Pids("started")) == 1 })
			s.kill()
			pid := shop.Pids("started")[0]
			<-time.After(test.away) // the absence itself is tested
			require.True(t, Alive(pid), "the command was killed with the server")
			s.start()
			shop.release()
			r := first.wait()
			require.Equal(t, 0, r.code, "the runner: %v", r)
			require.True(t, strings.HasPrefix(r.out, fmt.Sprintf("paid by %d ", pid)), "the runner: %v", r)
			Eventually(t, "the receipt is stored", 20*time.Second, func() bool { return s.flight("pay-8").State == "succeeded" })
			again := s.flightd(args...)
			require.Equal(t, r.out, again.out, "the next one: %v\nstarted: %v", again, shop.Pids("started"))
			require.Equal(t, 0, again.code, "the next one: %v\nstarted: %v", again, shop.Pids("started"))
			require.Len(t, shop.Pids("started"), 1, "the next one: %v\nstarted: %v", again, shop.Pids("started"))
			f := s.flight("pay-8")
			require.EqualValues(t, 1, f.Attempts, "the flight is %+v", f)
			require.NotNil(t, f.Receipt, "the flight is %+v", f)
			require.Equal(t, "report", f.Receipt.From, "the flight is %+v", f)
		})
	}
}

func TestExec_KilledUnderHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	args := []string{"exec", "--key", "pay-9", "--ttl", ttl.String(), "--", shop.path("pay.sh")}
	first := s.begin(args...)
	Eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.Pids("started")) == 1 })
	first.signal(syscall.SIGKILL)
	first.wait()
	Eventually(t, "the command is dead, too", 5*time.Second, func() bool { return !Alive(shop.Pids("started")[0]) })
	shop.release()
	Eventually(t, "it is in doubt without another call", 30*time.Second, func() bool { return s.flight("pay-9").State == "in_doubt" })
	if r := s.flightd(args...); r.code != cli.ExitInDoubt || len(shop.Pids("started")) != 1 || !strings.Contains(r.err, "flightd doubt resolve") {
		t.Fatalf("the second one: %v\nstarted: %v", r, shop.Pids("started"))
	}
	if r := s.flightd("doubt", "ls", "-o", "id"); strings.TrimSpace(r.out) != s.flight("pay-9").ID {
		t.Errorf("doubt ls: %v", r)
	}
	err := os.WriteFile(shop.path("receipt.json"), []byte(`{"paid": "by hand"}`), 0o600)
	require.NoError(t, err)
	r := s.flightd("doubt", "resolve", "pay-9", "--happened", "--receipt", "@"+shop.path("receipt.json"), "--reason", "looked", "--actor", "ada", "--yes")
	require.Equal(t, 0, r.code, "resolve: %v", r)
	again := s.flightd(args...)
	require.Equal(t, 0, again.code, "the next one: %v", again)
	require.Equal(t, `{"paid": "by hand"}`, again.out, "the next one: %v", again)
	require.Len(t, shop.Pids("started"), 1, "the next one: %v", again)
	why := s.flightd("why", "pay-9")
	for _, want := range []string{"attempt 1 was opened", "declared lost", "in doubt", "ada resolved it", "now: succeeded"} {
		require.Contains(t, why.out, want, "why does not say %q:\n%s", want, why.out)
	}
}

func TestExec_KilledUnderResend(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	args := []string{"exec", "--key", "pay-10", "--ttl", ttl.String(), "--recovery", "resend", "--wait", "forever", "--", shop.path("pay.sh")}
	first := s.begin(args...)
	Eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.Pids("started")) == 1 })
	orphan := shop.Pids("started")[0]
	first.signal(syscall.SIGKILL)
	second := s.begin(args...)
	Eventually(t, "the next attempt is opened", 30*time.Second, func() bool {
		if s.flight("pay-10").Attempts < 2 {
			return false
		}
		if Alive(orphan) {
			t.Fatal("the orphan runs at the same time as the next attempt")
		}
		return true
	})
	first.wait()
	shop.release()
	r := second.wait()
	paid := shop.Pids("paid")
	require.Equal(t, 0, r.code, "the second one: %v\npaid by %v", r, paid)
	require.Len(t, paid, 1, "the second one: %v\npaid by %v", r, paid)
	require.NotEqual(t, orphan, paid[0], "the second one: %v\npaid by %v", r, paid)
}

func TestExec_FrozenCallerReportsLate(t *testing.T) {
	for _, test := range []struct {
		name     string
		recovery string
		other    bool // another attempt is opened meanwhile
	}{{"accepted", "hold", false}, {"fenced", "resend", true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			shop := NewShop(t, true)
			args := []string{"exec", "--key", "pay-11", "--ttl", ttl.String(), "--recovery", test.recovery, "--wait", "forever", "--", shop.path("pay.sh")}
			first := s.begin(args...)
			Eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.Pids("started")) == 1 })
			first.signal(syscall.SIGSTOP)
			<-time.After(3 * ttl) // the freeze itself is tested
			shop.release()
			if test.other {
				r := s.flightd(args...)
				require.Equal(t, 0, r.code, "the other one: %v", r)
				require.NotContains(t, r.out, "attempt 1", "the other one: %v", r)
			} else {
				Eventually(t, "it is in doubt", 30*time.Second, func() bool { return s.flight("pay-11").State == "in_doubt" })
			}
			first.signal(syscall.SIGCONT)
			r, f := first.wait(), s.flight("pay-11")
			require.Equal(t, "succeeded", f.State, "the flight is %+v", f)
			require.NotNil(t, f.Receipt, "the flight is %+v", f)
			if test.other {
				require.Len(t, f.Evidence, 1, "the flight is %+v\nthe frozen one: %v", f, r)
				require.EqualValues(t, 1, f.Evidence[0].Attempt, "the flight is %+v\nthe frozen one: %v", f, r)
				require.NotEqualValues(t, 1, f.Receipt.Attempt, "the flight is %+v\nthe frozen one: %v", f, r)
				require.True(t, f.Overlap, "the flight is %+v\nthe frozen one: %v", f, r)
				require.Equal(t, cli.ExitInDoubt, r.code, "the flight is %+v\nthe frozen one: %v", f, r)
				require.Contains(t, r.err, "does not count", "the flight is %+v\nthe frozen one: %v", f, r)
			} else if f.Receipt.Attempt != 1 || len(f.Evidence) != 0 || r.code != 0 {
				t.Errorf("the flight is %+v\nthe frozen one: %v", f, r)
			}
		})
	}
}
