package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/proctest"
)

// TestDev_DiesAtEveryPointAndNothingIsLost: flightd is killed at every crash point of an exec and restarted. The
// command runs once, its receipt is stored, and no flight is in doubt.
func TestDev_DiesAtEveryPointAndNothingIsLost(t *testing.T) {
	for _, point := range []crashpoint.Point{
		crashpoint.BeforeOpen, crashpoint.DuringOpen, crashpoint.AfterOpen,
		crashpoint.BeforeReport, crashpoint.AfterReport, crashpoint.BeforeRelease,
	} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			s.kill()
			s.start(crashpoint.Env + "=" + string(point))
			shop := NewShop(t, false)
			args := []string{"exec", "--key", "pay", "--ttl", "15s", "--wait", "forever", "--", shop.path("pay.sh")}
			i := s.begin(args...)
			s.waitKilled(t)
			s.start()
			r := i.wait()
			require.Equal(t, 0, r.code, "exec: %v\nstarted: %v", r, shop.Pids("started"))
			require.Len(t, shop.Pids("started"), 1, "exec: %v\nstarted: %v", r, shop.Pids("started"))
			f := s.flight("pay")
			require.Equal(t, "succeeded", f.State, "the flight is %+v", f)
			require.EqualValues(t, 1, f.Attempts, "the flight is %+v", f)
			require.Empty(t, f.Evidence, "the flight is %+v", f)
			again := s.flightd(args...)
			require.Equal(t, r.out, again.out, "the next one: %v", again)
			require.Equal(t, 0, again.code, "the next one: %v", again)
		})
	}
}

// TestDev_DiesDuringAHandOut_EachJobOnce: flightd is killed while it hands out jobs, also when they are open and their worker has no
// answer. The worker repeats its claim, so each job is performed once, and by its first attempt.
func TestDev_DiesDuringAHandOut_EachJobOnce(t *testing.T) {
	for _, point := range []crashpoint.Point{crashpoint.BeforeOpen, crashpoint.DuringOpen, crashpoint.AfterOpen, crashpoint.AfterOpen + "@3"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			shop := NewShop(t, false)
			const jobs = 3
			require.Zero(t, s.flightd("submit", "charge", "-f", jobsFile(t, jobs)).code)
			s.kill()
			s.start(crashpoint.Env + "=" + point)
			s.begin("work", "charge", "--concurrency", fmt.Sprint(jobs), "--", shop.path("pay.sh"))
			s.waitKilled(t)
			require.Empty(t, shop.Pids("started"))
			s.start()
			for i := range jobs {
				s.flightd("flights", "wait", fmt.Sprint("charge/o-", i)).want(t, cli.ExitOK, "", "")
				require.EqualValues(t, 1, s.flight(fmt.Sprint("charge/o-", i)).Attempts)
			}
			require.Len(t, shop.Pids("started"), jobs)
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
	case <-time.After(limit):
		t.Fatal("the server did not die")
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok, "it ended as %v\n%s", cmd.ProcessState, s.log)
	require.Equal(t, syscall.SIGKILL, status.Signal(), "it ended as %v\n%s", cmd.ProcessState, s.log)
	s.cmd = nil
}

func TestDev_RefusesACrashPointThatIsNone(t *testing.T) {
	t.Parallel()
	s := &server{t: t, data: t.TempDir(), address: proctest.Address(t), state: t.TempDir()}
	r := s.beginCommand("env", crashpoint.Env+"=somewhere", program, "dev", "--data", s.data, "--listen", s.address).wait()
	require.Equal(t, cli.ExitConfig, r.code, "%v", r)
}
