//go:build !race

package node

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/httpapi/wire"
)

// startMany starts sagas, 64 at a time. Of each group of the same number, one is of each name.
func startMany(t *testing.T, c *client.Client, prefix string, count int, names ...string) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < count && !t.Failed(); n = int(next.Add(1)) - 1 {
				if _, err := c.StartSaga(t.Context(), names[n%len(names)], fmt.Sprintf("%s-%d", prefix, n), tripInput{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.False(t, t.Failed())
}

// settled waits until no saga is due, and returns the heap and the number of goroutines then.
func settled(t *testing.T) (heap uint64, goroutines int) {
	t.Helper()
	for quiet := 0; quiet < 2; { // drives that are due keep the processors busy
		if quiet++; cpuOver(t, time.Second) > 0.2 {
			quiet = 0
		}
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}

// 100,000 sagas that sleep, half of them for a time and half until somebody works on a job, have no claim and no goroutine, and no more than
// a quarter more heap than as many that are over. A thousand that wake in the same second have all been driven on within ten.
func TestManySagas_Asleep(t *testing.T) {
	if testing.Short() {
		t.Skip("make long runs it")
	}
	const many = 100_000
	define := func(c *client.Client, name, step string) {
		require.NoError(t, c.DefineSaga(t.Context(), name, 1, fmt.Appendf(nil, `{"saga": %q, "version": 1, "steps": [%s]}`, name, step)))
	}
	over := startNode(t, t.TempDir())
	c := connectTo(t, over)
	define(c, "over", `{"name": "job", "no_undo": true, "if": {"value": "/input/fails", "equals": "always"}}`)
	began := time.Now()
	startMany(t, c, "saga", many, "over")
	overHeap, overGoroutines := settled(t)
	t.Logf("100,000 sagas that are over: %d MiB of heap, %d goroutines; started in %v", overHeap>>20, overGoroutines, time.Since(began).Round(time.Second))
	require.Contains(t, body(t, over.url+"/metrics"), fmt.Sprintf("flightd_saga_runs_total{outcome=%q} %d", "done", many))
	require.NoError(t, c.Close(t.Context()))
	over.end()

	n := startNode(t, t.TempDir())
	c = connectTo(t, n)
	define(c, "sleep", `{"name": "pause", "timer": "24h"}`)
	define(c, "unclaimed", `{"name": "job", "no_undo": true}`)
	define(c, "nap", `{"name": "pause", "timer": "8s"}`)
	startMany(t, c, "saga", many, "sleep", "unclaimed")
	heap, goroutines := settled(t)
	t.Logf("100,000 sagas that sleep: %d MiB of heap, %d goroutines", heap>>20, goroutines)
	require.Less(t, float64(heap), 1.25*float64(overHeap))
	require.Less(t, goroutines, overGoroutines+50)
	require.Less(t, cpuOver(t, 10*time.Second), 0.1)
	require.Contains(t, body(t, n.url+"/metrics"), "flightd_lease_acquire_duration_seconds_count 0", "nothing was ever claimed in etcd")

	began = time.Now()
	startMany(t, c, "nap", 1000, "nap")
	took := time.Since(began)
	t.Logf("1,000 sagas were started within %v", took.Round(time.Millisecond))
	due := time.Now().Add(8 * time.Second)
	require.Less(t, took, 8*time.Second)
	require.Eventually(t, func() bool {
		return strings.Contains(body(t, n.url+"/metrics"), `flightd_saga_runs_total{outcome="done"} 1000`)
	}, time.Until(due)+10*time.Second, 50*time.Millisecond)
	t.Logf("1,000 sagas that woke in one second were driven on within %v", time.Since(due).Round(time.Millisecond))
	began = time.Now()
	page, err := c.ListSagas(t.Context(), client.SagaQuery{State: wire.SagaRunning, Limit: 50})
	require.NoError(t, err)
	require.Len(t, page.Sagas, 50)
	t.Logf("a page of 50 of the 100,000 took %v", time.Since(began).Round(time.Millisecond))
}
