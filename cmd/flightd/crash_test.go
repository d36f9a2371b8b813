package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/flightd/flightd/internal/crashpoint"
)

// TestDev_DiesAtEveryPointAndNothingIsLost: flightd is killed at every crash point of an exec and restarted. The
// command runs once, its receipt is stored, and no flight is in doubt.
func TestDev_DiesAtEveryPointAndNothingIsLost(t *testing.T) {
	for _, point := range []crashpoint.Point{
		crashpoint.BeforeOpen, crashpoint.DuringOpen, crashpoint.AfterOpen,
		crashpoint.BeforeReport, crashpoint.AfterReport, crashpoint.BeforeRelease,
	} {
		t.Run(string(point), func(t *testing.T) {
			s := startServer(t)
			s.kill()
			s.start(crashpoint.Env + "=" + string(point))
			shop := newShop(t, false)
			args := []string{"exec", "--key", "pay", "--ttl", ttl.String(), "--wait", "forever", "--", shop.path("pay.sh")}
			i := s.begin(args...)
			s.waitKilled(t)
			s.start()
			r := i.wait()
			if r.code != 0 || len(shop.pids("started")) != 1 {
				t.Fatalf("exec: %v\nstarted: %v", r, shop.pids("started"))
			}
			if f := s.flight("pay"); f.State != "succeeded" || f.Attempts != 1 || len(f.Evidence) != 0 {
				t.Errorf("the flight is %+v", f)
			}
			if again := s.flightd(args...); again.out != r.out || again.code != 0 {
				t.Errorf("the next one: %v", again)
			}
		})
	}
}

// waitKilled waits for a server that kills itself.
func (s *server) waitKilled(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	cmd := s.cmd
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the server did not die")
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended as %v\n%s", cmd.ProcessState, s.log)
	}
	s.cmd = nil
}

func TestDev_RefusesACrashPointThatIsNone(t *testing.T) {
	s := &server{t: t, data: t.TempDir(), address: freeAddress(t), state: t.TempDir()}
	t.Setenv(crashpoint.Env, "somewhere")
	if r := s.flightd("dev", "--data", s.data, "--listen", s.address); r.code != exitConfig {
		t.Errorf("%v", r)
	}
}
