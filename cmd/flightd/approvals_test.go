package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
)

// TestDev_Approvals: two persons decide at the same moment, flightd is killed while flights wait, and a deadline passes while it is
// down. Each flight gets one decision, and nothing acts before it.
func TestDev_Approvals(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	submit := func(id string, more ...string) {
		s.flightd(append([]string{"submit", "refund", id, "--input", `{"cents":42}`, "--approval"}, more...)...).
			want(t, cli.ExitOK, "awaiting_approval", "")
	}
	submit("both")
	submit("kept", "--recovery", "resend", "--provider-window", "24h")

	r := s.flightd("approvals", "ls").want(t, cli.ExitOK, "", "")
	require.Equal(t, 2, strings.Count(r.out, `{"cents":42}`), "%v", r)
	r = s.flightd("approvals", "show", "refund/kept")
	for _, part := range []string{"awaiting approval, requested by ", "resend, provider window 24h0m0s, 8 attempts", "flightd approvals approve default/refund/kept", "cents"} {
		require.Contains(t, r.out, part, "%v", r)
	}
	r = s.flightd("approvals", "approve", "refund/kept").want(t, cli.ExitUsage, "", "")
	f := s.flight("refund/kept")
	for _, part := range []string{"cents", "resend, provider window 24h0m0s, 8 attempts", "default/refund/kept, version " + f.Version + ": approve it?", "nothing was changed"} {
		require.Contains(t, r.err, part, "%v", r)
	}
	r = s.flightd("approvals", "reject", "refund/kept", "--yes")
	require.Equal(t, cli.ExitUsage, r.code, "a rejection needs a reason: %v", r)
	require.Equal(t, cli.ExitBusy, s.flightd("flights", "wait", "refund/kept", "--wait", "1s").code, "a wait goes on through an approval")

	answers := make([]error, 2)
	seen := s.flight("refund/both")
	id, err := flight.ParseID(seen.ID)
	require.NoError(t, err)
	var persons sync.WaitGroup
	for i := range answers {
		c, err := client.Connect(t.Context(), s.url(), client.WithSpool(t.TempDir()), client.WithActor([]string{"ann", "bob"}[i]))
		require.NoError(t, err)
		persons.Go(func() {
			decide := []approvalCall{(*client.Client).Approve, (*client.Client).Reject}[i]
			_, answers[i] = decide(c, t.Context(), id, seen.Version, client.ApprovalDecision{})
		})
	}
	persons.Wait()
	winner := 0
	if answers[0] != nil {
		winner = 1
	}
	require.NoError(t, answers[winner])
	require.ErrorContains(t, answers[1-winner], "the flight was already "+[]string{"approved", "rejected"}[winner])
	require.ErrorContains(t, answers[1-winner], " by "+[]string{"ann", "bob"}[winner])

	submit("late", "--approval-expires", "2s")
	s.kill()
	time.Sleep(2 * time.Second)
	s.start()
	Eventually(t, "the approval that was late has expired", func() bool { return s.flight("refund/late").State == "cancelled" })
	require.Contains(t, s.flightd("why", "refund/late").out, "its approval expired: nobody decided in time")
	s.flightd("approvals", "approve", "refund/late", "--yes").want(t, cli.ExitFailed, "", "already rejected on ")
	require.Equal(t, []string{"approved", "rejected"}[winner], s.flight("refund/both").Resolution.Result, "the decision survived the crash")

	require.Equal(t, f.Version, s.flight("refund/kept").Version)
	s.flightd("approvals", "approve", "refund/kept", "--yes", "--actor", "maria", "--reason", "checked").
		want(t, cli.ExitOK, "", "default/refund/kept, version "+f.Version+": approved;")
	again := s.flightd("approvals", "approve", "refund/kept", "--yes", "--actor", "ann")
	require.Zero(t, again.code, "%v", again)
	require.Contains(t, again.err, "already approved by maria on ")
	s.flightd("approvals", "reject", "refund/kept", "--yes", "--reason", "no").want(t, cli.ExitFailed, "", "already approved by maria on ")
	require.Contains(t, s.flightd("why", "refund/kept").out, "maria approved it (checked)")
	require.Contains(t, s.flightd("audit", "ls").out, "decide_approval")
	require.Equal(t, "ready", s.flight("refund/kept").State)
}
