package metrics

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// The queues of one action are added over the namespaces; paused ones are neither old nor unclaimed, and names beyond the limit share
// a series.
func TestQueues(t *testing.T) {
	m := New(Config{Actions: 2})
	queues := []Queue{
		{Action: "charge", Ready: 3, Running: 1, Workers: 2, OldestSeconds: 7},
		{Action: "charge", Ready: 4, OldestSeconds: 60},
		{Action: "mail", Ready: 5, OldestSeconds: 900, Paused: true},
	}
	leads := true
	m.RegisterQueues(func() (iter.Seq[Queue], bool) { return slices.Values(queues), leads })
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	for i := range 100 {
		queues = append(queues, Queue{Action: fmt.Sprint("id-", i), Ready: 1})
	}
	text := scrape(t, m)
	for _, want := range []string{
		`flightd_queue_ready_jobs{action="charge"} 7`, `flightd_queue_running_jobs{action="charge"} 1`, `flightd_queue_workers{action="charge"} 2`,
		`flightd_queue_oldest_ready_age_seconds{action="charge"} 60`, `flightd_queue_unclaimed_jobs{action="charge"} 4`, `flightd_queue_paused{action="charge"} 0`,
		`flightd_queue_ready_jobs{action="mail"} 5`, `flightd_queue_oldest_ready_age_seconds{action="mail"} 0`, `flightd_queue_unclaimed_jobs{action="mail"} 0`,
		`flightd_queue_paused{action="mail"} 1`, `flightd_queue_ready_jobs{action="_other"} 100`, `flightd_queue_unclaimed_jobs{action="_other"} 100`,
	} {
		require.Contains(t, text, want+"\n")
	}
	require.Equal(t, 3, strings.Count(text, "flightd_queue_ready_jobs{"))
	leads = false
	require.NotContains(t, scrape(t, m), "flightd_queue_", "a node that does not lead has none")
}
