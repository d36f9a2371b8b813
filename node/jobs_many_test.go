//go:build !race

package node

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
)

// submitMany submits jobs in batches.
func submitMany(t *testing.T, c *client.Client, action, prefix string, count int, opts ...client.JobOption) {
	t.Helper()
	for r, err := range c.SubmitAll(t.Context(), action, func(yield func(string, any) bool) {
		for i := 0; i < count && yield(fmt.Sprint(prefix, "-", i), i); i++ {
		}
	}, opts...) {
		require.NoError(t, err)
		require.NoError(t, r.Err)
	}
}

// cpuOver returns the share of a core that this process uses for a time.
func cpuOver(t *testing.T, d time.Duration) float64 {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before, timer := used(), time.NewTimer(d)
	<-timer.C
	return float64(used()-before) / float64(d)
}

// performMany runs a worker, which says when it performs a job.
func performMany(t *testing.T, c *client.Client, action string) <-chan time.Time {
	t.Helper()
	performed := make(chan time.Time, 100_000)
	w := c.Worker(client.Concurrency(64))
	client.Work(w, action, func(context.Context, client.Attempt, int) (int, error) {
		performed <- time.Now()
		return 0, nil
	})
	runWorker(t, w)
	return performed
}

// 100,000 jobs that are due within an hour cost an idle node at most a hundredth of a core, and a thousand that are due in the same
// second are handed out within three seconds.
func TestManyJobs_DueLater(t *testing.T) {
	if testing.Short() {
		t.Skip("make long runs it")
	}
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	const span = 20 * time.Second
	empty := cpuOver(t, span)
	began := time.Now()
	for group := range 1000 {
		submitMany(t, c, "later", fmt.Sprint(group), 100, client.RunAt(began.Add(time.Duration(group)*3600*time.Millisecond)))
	}
	t.Logf("100,000 jobs were submitted in %v", time.Since(began).Round(time.Millisecond))
	runtime.GC()
	full := cpuOver(t, span)
	t.Logf("an empty node uses %.2f %% of a core, one with 100,000 jobs %.2f %%", 100*empty, 100*full)
	require.Less(t, full-empty, 0.01)

	due := time.Now().Add(4 * time.Second).Truncate(time.Second)
	submitMany(t, c, "now", "due", 1000, client.RunAt(due))
	require.Less(t, time.Now(), due)
	performed := performMany(t, c, "now")
	require.False(t, (<-performed).Before(due))
	for range 998 {
		<-performed
	}
	took := (<-performed).Sub(due)
	t.Logf("1,000 jobs that were due in one second were handed out within %v", took.Round(time.Millisecond))
	require.Less(t, took, 3*time.Second)
}

// A namespace that submits 100,000 jobs, and works on them, does not hold up another one that submits ten: neither meanwhile nor when
// all of them are there.
func TestManyJobs_OfANamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("make long runs it")
	}
	n := startNode(t, t.TempDir())
	large := connectTo(t, n)
	small, err := client.Connect(t.Context(), n.url, client.WithSpool(t.TempDir()), client.WithNamespace("small"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = small.Close(context.Background()) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		submitMany(t, large, "much", "job", 100_000)
	}()
	begun := performMany(t, large, "much")
	performed, rounds, slowest := performMany(t, small, "few"), 0, time.Duration(0)
	for after := 0; after < 20; rounds++ {
		if ctx.Err() != nil {
			after++
		}
		began := time.Now()
		submitMany(t, small, "few", fmt.Sprint(rounds), 10)
		for range 10 {
			slowest = max(slowest, (<-performed).Sub(began))
		}
	}
	<-done
	left := 100_000 - len(begun)
	t.Logf("while 100,000 jobs were submitted and worked on, ten of another namespace were handed out %d times, within %v; in the end %d were left", rounds, slowest.Round(time.Millisecond), left)
	require.Positive(t, left)
	require.Less(t, slowest, 2*time.Second)
}
