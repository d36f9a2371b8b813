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
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
)

// proxies returns the addresses of proxies in front of the nodes, as clients take them. drop gets the nonce of each claim that is
// answered with jobs, and the node that answers, and says whether the connection breaks instead.
func (c *testCluster) proxies(drop func(nonce string, node int) bool) string {
	var addresses []string
	for i, n := range c.nodes {
		to, err := url.Parse(n.server.url())
		require.NoError(c.t, err)
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.ModifyResponse = func(answer *http.Response) error {
			if answer.Request.URL.Path != "/v1/flights:claim" {
				return nil
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body = io.NopCloser(bytes.NewReader(body))
			if nonce := claimNonce.FindSubmatch(body); err == nil && nonce != nil && drop(string(nonce[1]), i) {
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

// claimNonce finds the nonce of a claim in its answer: it begins that of each job.
var claimNonce = regexp.MustCompile(`"nonce":"([^".]+)\.`)

// The answer to a claim is lost, and the worker repeats the claim at another node, also under the next leader: each job is performed
// by its first attempt. When the repeats are lost, too, the worker gives the claim up, and abandons what its renewal lists. Each job
// is performed once, and none waits for the end of a session.
func TestCluster_LostAnswerToAClaim(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		lasts       time.Duration // how long the answers of all nodes are lost; 0: those of the first one are
		leaderStops bool
	}{"of one node, and the leader stops": {0, true}, "of all for a while": {3 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTestCluster(t)
			const jobs, sessionTTL = 5, waitLimit / 2 // far longer than anything else takes
			var mu sync.Mutex
			var first time.Time
			dropped, firstNode, repeated, lostAt := 0, 0, 0, make(map[string]int)
			addresses := c.proxies(func(nonce string, node int) bool {
				mu.Lock()
				defer mu.Unlock()
				if at, lost := lostAt[nonce]; lost && at != node {
					repeated++
				}
				if dropped == 0 {
					first, firstNode = time.Now(), node
				}
				if row.lasts == 0 && node != firstNode || row.lasts > 0 && time.Since(first) > row.lasts {
					return false
				}
				lostAt[nonce] = node
				if dropped++; dropped == 1 && row.leaderStops {
					c.stop(c.leader())
				}
				return true
			})
			retryTimeout := sessionTTL
			if row.lasts > 0 {
				retryTimeout = time.Second // so that the worker gives the claim up
			}
			by, err := client.Connect(t.Context(), addresses, client.WithToken(c.token), client.WithSpool(t.TempDir()), client.WithSessionTTL(sessionTTL),
				client.WithRetryTimeout(retryTimeout))
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
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%d answers were lost; another node got the claim %d times; the jobs were over after %v", dropped, repeated, time.Since(began).Round(time.Millisecond))
			require.Positive(t, dropped)
			require.Positive(t, repeated)
			require.Less(t, time.Since(began), sessionTTL)
		})
	}
}
