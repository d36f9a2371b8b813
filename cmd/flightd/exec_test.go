package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// ttl is the shortest TTL: these tests wait for it to expire.
const ttl = 2 * time.Second

// TestDev_StopsWhenItsTerminalCloses: SIGHUP stops the node like SIGTERM, except under nohup.
func TestDev_StopsWhenItsTerminalCloses(t *testing.T) {
	t.Parallel()
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
	Eventually(t, "it is ready", func() bool { return s.flightd("flights", "ls").code == 0 })
	i.signal(syscall.SIGHUP)
	r := s.flightd("exec", "--key", "pay", "--", "echo", "paid")
	require.Equal(t, 0, r.code, "after an ignored SIGHUP: %v", r)
	i.signal(syscall.SIGTERM)
	r = i.wait()
	require.Equal(t, 0, r.code, "it ended: %v", r)
}

// Programs that run at once, and one after a restart, get the output of the one that ran the command.
func TestExec_ManyAtOnceRunOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, false)
	args := []string{"exec", "--key", "pay-7", "--wait", "forever", "--", shop.path("pay.sh")}
	var running []*invocation
	for range 16 {
		running = append(running, s.begin(args...))
	}
	var results []result
	for _, i := range running {
		results = append(results, i.wait())
	}
	s.kill()
	s.start()
	results = append(results, s.flightd(args...))
	paid := shop.Pids("paid")
	require.Len(t, paid, 1, "paid by %v", paid)
	want := results[0].out
	require.True(t, strings.HasPrefix(want, fmt.Sprintf("paid by %d at ", paid[0])), "the output is %q", want)
	for i, r := range results {
		require.Equal(t, want, r.out, "number %d differs: %v", i, r)
		require.Equal(t, 0, r.code, "number %d differs: %v", i, r)
		require.Contains(t, r.err, "thank you\n", "number %d differs: %v", i, r)
	}
}

func TestExec_KilledUnderHold(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	args := []string{"exec", "--key", "pay-9", "--ttl", ttl.String(), "--", shop.path("pay.sh")}
	first := s.begin(args...)
	Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
	first.signal(syscall.SIGKILL)
	first.wait()
	Eventually(t, "the command is dead, too", func() bool { return !Alive(shop.Pids("started")[0]) })
	shop.release()
	Eventually(t, "it is in doubt without another call", func() bool { return s.flight("pay-9").State == "in_doubt" })
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
