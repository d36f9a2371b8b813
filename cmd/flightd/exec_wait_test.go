package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// exec itself prints the notice, and prints none once its own command runs.
func TestExec_SaysForWhomItWaits(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	first := s.begin("exec", "--key", "w", "--", shop.path("pay.sh"))
	Eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.Pids("started")) == 1 })
	r := s.flightd("exec", "--key", "w", "--wait", "5s", "--", shop.path("pay.sh"))
	require.Equal(t, cli.ExitBusy, r.code, "%v", r)
	require.Contains(t, r.err, fmt.Sprintf("default/exec/w: waiting for another caller: attempt 1 is held by %s since ", s.flight("w").LastAttempt.Owner))
	require.Regexp(t, `; exec waits at most [0-3]s more \(--wait 5s\)\n`, r.err) // under load the notice comes late
	shop.release()
	r = first.wait()
	require.Zero(t, r.code, "%v", r)
	require.NotContains(t, r.err, "waiting for")
}
