package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
)

type order struct {
	Cents int `json:"cents"`
}

type charge struct {
	ID string `json:"id"`
}

// connectTo connects a client to a node.
func connectTo(t *testing.T, n *runningNode, opts ...client.Option) *client.Client {
	c, err := client.Connect(t.Context(), n.url, append(opts, client.WithSpool(t.TempDir()), client.WithSessionTTL(2*time.Second))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// runWorker runs a worker until the test ends.
func runWorker(t *testing.T, w *client.Worker) {
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { stop(); done.Wait() })
}

// The jobs of a lane run one at a time, in the order of their submission; those of other lanes run beside them.
func TestJobs_OfALane_RunInOrder(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	var mu sync.Mutex
	order := make(map[string][]int)
	running := make(map[string]int)
	w := c.Worker(client.Concurrency(16))
	client.Work(w, "ship", func(_ context.Context, _ client.Attempt, in [2]int) (int, error) {
		lane := fmt.Sprint(in[0])
		mu.Lock()
		running[lane]++
		order[lane] = append(order[lane], in[1])
		if running[lane] > 1 {
			t.Errorf("two jobs of lane %s run at once", lane)
		}
		mu.Unlock()
		time.Sleep(time.Millisecond) // a job takes some time, so that an overlap would be seen
		mu.Lock()
		running[lane]--
		mu.Unlock()
		return in[1], nil
	})
	const lanes, jobs = 5, 12
	for i := range jobs {
		for lane := range lanes {
			ref := client.Key("ship", fmt.Sprintf("%d-%d", lane, i))
			_, err := c.Submit(t.Context(), ref, [2]int{lane, i}, client.Lane(fmt.Sprint("customer/", lane)))
			require.NoError(t, err)
		}
	}
	runWorker(t, w)
	for i := range jobs {
		for lane := range lanes {
			key, err := c.Key("ship", fmt.Sprintf("%d-%d", lane, i))
			require.NoError(t, err)
			_, err = client.Wait[int](t.Context(), c, key)
			require.NoError(t, err)
		}
	}
	for lane, got := range order {
		require.Len(t, got, jobs)
		require.IsIncreasing(t, got, "lane %s", lane)
	}
}

// A delayed job is handed out when its time has come, not before.
func TestJobs_Delayed_RunLater(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	w := c.Worker()
	client.Work(w, "later", func(context.Context, client.Attempt, order) (time.Time, error) { return time.Now(), nil })
	runWorker(t, w)
	submitted := time.Now()
	const delay = 700 * time.Millisecond
	job, err := c.Submit(t.Context(), client.Key("later", "1"), order{1}, client.Delay(delay))
	require.NoError(t, err)
	ran, err := client.Wait[time.Time](t.Context(), c, job.Key)
	require.NoError(t, err)
	require.GreaterOrEqual(t, ran.Sub(submitted), delay*19/20, "ledger time may run faster by a twentieth")
}

// Many jobs are submitted in one request, in the order of their lines: those of a lane run in that order.
func TestJobs_OfOneBatch_KeepTheirOrder(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	const jobs = 300
	all := func(yield func(string, any) bool) {
		for i := range jobs {
			if !yield(fmt.Sprint(i), i) {
				return
			}
		}
	}
	for round, want := range []string{client.Queued, client.Duplicate} {
		count := 0
		for r, err := range c.SubmitAll(t.Context(), "step", all, client.Lane("one")) {
			require.NoError(t, err)
			require.NoError(t, r.Err)
			require.Equal(t, want, r.Status, "round %d", round)
			require.Equal(t, fmt.Sprint(count), r.ID)
			count++
		}
		require.Equal(t, jobs, count)
	}
	for r, err := range c.SubmitAll(t.Context(), "step", func(yield func(string, any) bool) {
		_ = yield("0", "another input") && yield("a b", 1) && yield("new", -1)
	}) {
		require.NoError(t, err)
		require.Equal(t, map[string]string{"0": "idempotency_conflict", "a b": "idempotency_key_invalid", "new": client.Queued}[r.ID], r.Status)
		require.Equal(t, r.Status == client.Queued, r.Err == nil)
	}
	var mu sync.Mutex
	var order []int
	w := c.Worker(client.Concurrency(16))
	client.Work(w, "step", func(_ context.Context, _ client.Attempt, in int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if in >= 0 {
			order = append(order, in)
		}
		return in, nil
	})
	runWorker(t, w)
	last, err := c.Key("step", fmt.Sprint(jobs-1))
	require.NoError(t, err)
	_, err = client.Wait[int](t.Context(), c, last)
	require.NoError(t, err)
	require.IsIncreasing(t, order)
}
