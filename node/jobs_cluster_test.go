package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
)

// proxies returns the addresses of proxies in front of the nodes, as clients take them. drop gets each answer to a claim that hands
// out jobs, and says whether its connection breaks instead.
func (c *testCluster) proxies(drop func() bool) string {
	var addresses []string
	for _, n := range c.nodes {
		to, err := url.Parse(n.server.url())
		require.NoError(c.t, err)
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.ModifyResponse = func(answer *http.Response) error {
			if answer.Request.URL.Path != "/v1/flights:claim" {
				return nil
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body = io.NopCloser(bytes.NewReader(body))
			if err == nil && bytes.Contains(body, []byte(`"fencing_token"`)) && drop() {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
		server := httptest.NewUnstartedServer(proxy)
		server.Config.ErrorLog = nil
		server.Start()
		c.t.Cleanup(server.Close)
		addresses = append(addresses, server.URL)
	}
	return strings.Join(addresses, ",")
}

// The answer to a claim is lost, and the worker repeats the claim at other nodes, also under the next leader: each job is performed
// by its first attempt. When the repeats are lost, too, the worker gives the claim up, and abandons what its renewal lists. Each job
// is performed once, and none waits for the end of a session.
func TestCluster_LostAnswerToAClaim(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		lasts       time.Duration // how long answers are lost; 0: one is
		leaderStops bool
	}{"one": {}, "one, and the leader stops": {0, true}, "all for a while": {3 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTestCluster(t)
			const jobs, sessionTTL = 5, 15 * time.Second
			var mu sync.Mutex
			var first time.Time
			dropped := 0
			addresses := c.proxies(func() bool {
				mu.Lock()
				defer mu.Unlock()
				if dropped == 0 {
					first = time.Now()
				}
				if dropped > 0 && time.Since(first) > row.lasts {
					return false
				}
				if dropped++; dropped == 1 && row.leaderStops {
					c.stop(c.leader())
				}
				return true
			})
			by, err := client.Connect(t.Context(), addresses, client.WithToken(c.token), client.WithSpool(t.TempDir()), client.WithSessionTTL(sessionTTL),
				client.WithRetryTimeout(max(sessionTTL-5*row.lasts, time.Second)))
			require.NoError(t, err)
			t.Cleanup(func() { _ = by.Close(context.Background()) })
			for r, err := range by.SubmitAll(t.Context(), "pay", func(yield func(string, any) bool) {
				for i := 0; i < jobs && yield(fmt.Sprint(i), i); i++ {
				}
			}) {
				require.NoError(t, err)
				require.NoError(t, r.Err)
			}
			var effects sync.Map
			w := by.Worker(client.Concurrency(jobs))
			client.Work(w, "pay", func(_ context.Context, at client.Attempt, in int) (int, error) {
				if _, again := effects.LoadOrStore(in, true); again || row.lasts == 0 && at.Number() != 1 {
					t.Errorf("job %d is performed by attempt %d, and was before: %v", in, at.Number(), again)
				}
				return in, nil
			})
			began := time.Now()
			runWorker(t, w)
			for i := range jobs {
				key, err := by.Key("pay", fmt.Sprint(i))
				require.NoError(t, err)
				require.Eventually(t, func() bool {
					got, err := client.Wait[int](t.Context(), by, key) // fails while no node leads
					return err == nil && got == i
				}, sessionTTL, 10*time.Millisecond)
			}
			t.Logf("%d answers were lost; the jobs were over after %v", dropped, time.Since(began).Round(time.Millisecond))
			require.Positive(t, dropped)
			require.Less(t, time.Since(began), sessionTTL)
		})
	}
}
