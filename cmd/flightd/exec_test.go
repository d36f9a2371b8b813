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
)

// ttl is the shortest TTL: these tests wait for it to expire.
const ttl = 2 * time.Second

func TestDev_ReadySoon(t *testing.T) {
	s := startServer(t)
	t.Logf("first start: ready after %v", s.took)
	s.kill()
	s.start()
	t.Logf("next start: ready after %v", s.took)
	if s.took > 5*time.Second { // 1.5 s on an idle machine
		t.Errorf("that is much too long")
	}
}

func TestDev_SecondStartOnSameDataIsRefused(t *testing.T) {
	s := startServer(t)
	r := s.flightd("dev", "--data", s.data, "--listen", "127.0.0.1:0")
	if r.code != exitConfig || !strings.Contains(r.err, fmt.Sprint(s.cmd.Process.Pid)) || r.out != "" {
		t.Errorf("the second one: %v", r)
	}
	r = s.flightd("dev", "--data", t.TempDir(), "--listen", s.address)
	if r.code != exitUnreachable || !strings.Contains(r.err, "address already in use") {
		t.Errorf("one on the same address: %v", r)
	}
}

func TestDev_StopsOnSIGTERM(t *testing.T) {
	s := startServer(t)
	shop := newShop(t, true)
	first := s.begin("exec", "--key", "pay-1", "--", shop.path("pay.sh"))
	eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.pids("started")) == 1 })
	waiter := s.begin("exec", "--key", "pay-1", "--wait", "forever", "--", shop.path("pay.sh"))
	_ = waiter
	start := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := s.cmd.Wait()
	t.Logf("stopped in %v", time.Since(start))
	if err != nil {
		t.Errorf("it ended with %v\n%s", err, s.log)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	s.start()
	shop.release()
	a, b := first.wait(), waiter.wait()
	if a.code != 0 || b.code != 0 || a.out != b.out || len(shop.pids("paid")) != 1 {
		t.Errorf("the runner: %v\nthe waiter: %v\npaid by %v", a, b, shop.pids("paid"))
	}
}

// TestDev_StopsWhenItsTerminalCloses: SIGHUP stops the node like SIGTERM, except under nohup.
func TestDev_StopsWhenItsTerminalCloses(t *testing.T) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // under nohup, the children would inherit the ignored signal
	defer signal.Stop(hup)
	s := startServer(t)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, s.log)
	}
	s.cmd = nil

	i := s.beginCommand("/bin/sh", "-c", `trap "" HUP; exec "$0" "$@"`, program, "dev", "--data", s.data, "--listen", s.address)
	eventually(t, "it is ready", 10*time.Second, func() bool { return s.flightd("flights", "ls").code == 0 })
	i.signal(syscall.SIGHUP)
	if r := s.flightd("exec", "--key", "pay", "--", "echo", "paid"); r.code != 0 {
		t.Errorf("after an ignored SIGHUP: %v", r)
	}
	i.signal(syscall.SIGTERM)
	if r := i.wait(); r.code != 0 {
		t.Errorf("it ended: %v", r)
	}
}

// runMany runs exec many times at once.
func (s *server) runMany(n int, args ...string) []result {
	s.t.Helper()
	results := make([]result, n)
	var all sync.WaitGroup
	for i := range results {
		one := s.begin(args...)
		all.Go(func() { results[i] = one.wait() })
	}
	all.Wait()
	return results
}

func TestExec_HundredAtOnceRunOnce(t *testing.T) {
	s := startServer(t)
	shop := newShop(t, false)
	args := []string{"exec", "--key", "pay-7", "--wait", "forever", "--", shop.path("pay.sh")}
	start := time.Now()
	first := s.runMany(100, args...)
	t.Logf("100 at once: %v", time.Since(start))
	s.kill()
	s.start()
	second := s.runMany(100, args...)
	if paid := shop.pids("paid"); len(paid) != 1 {
		t.Fatalf("paid by %v", paid)
	}
	want := first[0].out
	if !strings.HasPrefix(want, fmt.Sprintf("paid by %d at ", shop.pids("paid")[0])) {
		t.Fatalf("the output is %q", want)
	}
	for i, r := range append(first, second...) {
		if r.out != want || r.code != 0 || !strings.Contains(r.err, "thank you\n") {
			t.Fatalf("number %d differs: %v\nthe first: %v", i, r, first[0])
		}
	}
	for _, other := range [][]string{
		{"exec", "--key", "pay-7", "--", shop.path("pay.sh"), "twice"},
		{"exec", "--key", "pay-7", "--input", shop.path("pay.sh"), "--", shop.path("pay.sh")},
	} {
		if r := s.flightd(other...); r.code != exitUsage || !strings.Contains(r.err, "idempotency_conflict") || r.out != "" {
			t.Errorf("%v: %v", other, r)
		}
	}
	r := s.flightd("exec", "--key", "pay-7", "--fingerprint", "none", "--", "/bin/false")
	if r.code != 0 || r.out != want {
		t.Errorf("with the key alone deciding: %v", r)
	}
}

func TestExec_ServerKilledInMidRun(t *testing.T) {
	for _, test := range []struct {
		name string
		away time.Duration
	}{{"back after a second", time.Second}, {"back after three TTLs", 3 * ttl}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			shop := newShop(t, true)
			args := []string{"exec", "--key", "pay-8", "--ttl", ttl.String(), "--", shop.path("pay.sh")}
			first := s.begin(args...)
			eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.pids("started")) == 1 })
			s.kill()
			pid := shop.pids("started")[0]
			<-time.After(test.away) // the absence itself is tested
			if !alive(pid) {
				t.Fatal("the command was killed with the server")
			}
			s.start()
			shop.release()
			r := first.wait()
			if r.code != 0 || !strings.HasPrefix(r.out, fmt.Sprintf("paid by %d ", pid)) {
				t.Fatalf("the runner: %v", r)
			}
			eventually(t, "the receipt is stored", 20*time.Second, func() bool { return s.flight("pay-8").State == "succeeded" })
			again := s.flightd(args...)
			if again.out != r.out || again.code != 0 || len(shop.pids("started")) != 1 {
				t.Errorf("the next one: %v\nstarted: %v", again, shop.pids("started"))
			}
			if f := s.flight("pay-8"); f.Attempts != 1 || f.Receipt == nil || f.Receipt.From != "report" {
				t.Errorf("the flight is %+v", f)
			}
		})
	}
}

func TestExec_KilledUnderHold(t *testing.T) {
	s := startServer(t)
	shop := newShop(t, true)
	args := []string{"exec", "--key", "pay-9", "--ttl", ttl.String(), "--", shop.path("pay.sh")}
	first := s.begin(args...)
	eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.pids("started")) == 1 })
	first.signal(syscall.SIGKILL)
	first.wait()
	eventually(t, "the command is dead, too", 5*time.Second, func() bool { return !alive(shop.pids("started")[0]) })
	shop.release()
	eventually(t, "it is in doubt without another call", 30*time.Second, func() bool { return s.flight("pay-9").State == "in_doubt" })
	if r := s.flightd(args...); r.code != exitInDoubt || len(shop.pids("started")) != 1 || !strings.Contains(r.err, "flightd doubt resolve") {
		t.Fatalf("the second one: %v\nstarted: %v", r, shop.pids("started"))
	}
	if r := s.flightd("doubt", "ls", "-o", "id"); strings.TrimSpace(r.out) != s.flight("pay-9").ID {
		t.Errorf("doubt ls: %v", r)
	}
	if err := os.WriteFile(shop.path("receipt.json"), []byte(`{"paid": "by hand"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.flightd("doubt", "resolve", "pay-9", "--happened", "--receipt", "@"+shop.path("receipt.json"), "--reason", "looked", "--actor", "ada", "--yes")
	if r.code != 0 {
		t.Fatalf("resolve: %v", r)
	}
	again := s.flightd(args...)
	if again.code != 0 || again.out != `{"paid": "by hand"}` || len(shop.pids("started")) != 1 {
		t.Errorf("the next one: %v", again)
	}
	why := s.flightd("why", "pay-9")
	for _, want := range []string{"attempt 1 was opened", "declared lost", "in doubt", "ada resolved it", "now: succeeded"} {
		if !strings.Contains(why.out, want) {
			t.Errorf("why does not say %q:\n%s", want, why.out)
		}
	}
}

func TestExec_KilledUnderResend(t *testing.T) {
	s := startServer(t)
	shop := newShop(t, true)
	args := []string{"exec", "--key", "pay-10", "--ttl", ttl.String(), "--recovery", "resend", "--wait", "forever", "--", shop.path("pay.sh")}
	first := s.begin(args...)
	eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.pids("started")) == 1 })
	orphan := shop.pids("started")[0]
	first.signal(syscall.SIGKILL)
	second := s.begin(args...)
	eventually(t, "the next attempt is opened", 30*time.Second, func() bool {
		if s.flight("pay-10").Attempts < 2 {
			return false
		}
		if alive(orphan) {
			t.Fatal("the orphan runs at the same time as the next attempt")
		}
		return true
	})
	first.wait()
	shop.release()
	r := second.wait()
	if paid := shop.pids("paid"); r.code != 0 || len(paid) != 1 || paid[0] == orphan {
		t.Errorf("the second one: %v\npaid by %v\n%s", r, paid, s.flightd("why", "pay-10").out)
	}
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
			shop := newShop(t, true)
			args := []string{"exec", "--key", "pay-11", "--ttl", ttl.String(), "--recovery", test.recovery, "--wait", "forever", "--", shop.path("pay.sh")}
			first := s.begin(args...)
			eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.pids("started")) == 1 })
			first.signal(syscall.SIGSTOP)
			<-time.After(3 * ttl) // the freeze itself is tested
			shop.release()
			if test.other {
				if r := s.flightd(args...); r.code != 0 || strings.Contains(r.out, "attempt 1") {
					t.Fatalf("the other one: %v", r)
				}
			} else {
				eventually(t, "it is in doubt", 30*time.Second, func() bool { return s.flight("pay-11").State == "in_doubt" })
			}
			first.signal(syscall.SIGCONT)
			r, f := first.wait(), s.flight("pay-11")
			if f.State != "succeeded" || f.Receipt == nil {
				t.Fatalf("the flight is %+v", f)
			}
			if test.other {
				if len(f.Evidence) != 1 || f.Evidence[0].Attempt != 1 || f.Receipt.Attempt == 1 || !f.Overlap || r.code != exitInDoubt || !strings.Contains(r.err, "evidence") {
					t.Errorf("the flight is %+v\nthe frozen one: %v", f, r)
				}
			} else if f.Receipt.Attempt != 1 || len(f.Evidence) != 0 || r.code != 0 {
				t.Errorf("the flight is %+v\nthe frozen one: %v", f, r)
			}
		})
	}
}
