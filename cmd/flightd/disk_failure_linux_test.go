package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// TestDev_WriteErrorEndsTheProcess: if every write fails, a running node ends at once with an exit code, a reason and a
// hint, and without a stack trace, whether the ledger or etcd writes first. Acknowledged data is stored, and nothing is
// acknowledged after the failure.
func TestDev_WriteErrorEndsTheProcess(t *testing.T) {
	for name, write := range map[string]func(s *server) (*http.Response, error){
		"ledger": func(s *server) (*http.Response, error) {
			return http.Post(s.url()+"/v1/flights:import", "application/x-ndjson", strings.NewReader(`{"key":"default/charge/1","outcome":"succeeded"}`))
		},
		"etcd": func(s *server) (*http.Response, error) {
			return http.Post(s.url()+"/v1/flights:open", "application/json", strings.NewReader(`{"action":"charge","id":"2","input":{}}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			pay := []string{"exec", "--key", "pay-1", "--fingerprint", "none", "--", "sh", "-c", "echo paid by $$"}
			paid := s.flightd(pay...)
			require.Equal(t, cli.ExitOK, paid.code, paid)
			err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}, nil)
			require.NoError(t, err)
			if answer, err := write(s); err == nil {
				t.Errorf("it answered %s", answer.Status)
				_ = answer.Body.Close()
			}
			overdue := time.AfterFunc(limit, func() { _ = s.cmd.Process.Kill() })
			_ = s.cmd.Wait() // the exit code is tested below
			overdue.Stop()
			code, log := s.cmd.ProcessState.ExitCode(), s.log.String()
			require.Equal(t, cli.ExitDied, code, "exit %d\n%s", code, log)
			require.Contains(t, log, "file too large", "exit %d\n%s", code, log)
			require.Contains(t, log, "ulimit -f", "exit %d\n%s", code, log)
			require.NotContains(t, log, "goroutine ", "exit %d\n%s", code, log)
			s.start()
			again := s.flightd(pay...)
			require.Equal(t, paid.out, again.out, "first %v\nthen %v", paid, again)
		})
	}
}
