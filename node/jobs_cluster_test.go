package node

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
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
	}{"of one node": {}, "of one node, and the leader stops": {0, true}, "of all for a while": {3 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTestCluster(t)
			const jobs, sessionTTL = 5, 15 * time.Second
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
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%d answers were lost; another node got the claim %d times; the jobs were over after %v", dropped, repeated, time.Since(began).Round(time.Millisecond))
			require.Positive(t, dropped)
			require.Positive(t, repeated)
			require.Less(t, time.Since(began), sessionTTL)
		})
	}
}

// A worker has gone before it gets the answer to its claim, and the leader changes: other workers get its jobs when its session has
// ended, and not before. No job is lost or performed twice.
func TestCluster_ClaimOfAWorkerThatIsGone(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t)
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, n.server.url())
	}
	const jobs, sessionTTL = 5, 6 * time.Second
	by, err := client.Connect(t.Context(), strings.Join(urls, ","), client.WithToken(c.token), client.WithSpool(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = by.Close(context.Background()) })
	policy := client.JobPolicy(flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: time.Hour})
	var keys []flight.Key
	for i := range jobs {
		key, err := by.Key("pay", fmt.Sprint(i))
		require.NoError(t, err)
		keys = append(keys, key)
		require.Eventually(t, func() bool { // a leader raises the feature level first
			_, err := by.Submit(t.Context(), client.Key("pay", fmt.Sprint(i)), i, policy)
			return err == nil
		}, 20*time.Second, 50*time.Millisecond)
	}
	ask := func(path, body string, into any) {
		status, text, err := post(urls[0]+path, body)
		require.NoError(t, err)
		require.Less(t, status, 300, text)
		require.NoError(t, json.Unmarshal([]byte(text), into))
	}
	var session wire.SessionAnswer
	ask("/v1/sessions", fmt.Sprintf(`{"owner":"gone","ttl_ms":%d}`, sessionTTL.Milliseconds()), &session)
	var claim wire.ClaimAnswer
	ask("/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":%q,"actions":["pay"],"slots":3,"wait_ms":1000}`, session.Session, nonce("gone")), &claim)
	require.Len(t, claim.Jobs, 3)
	gone := time.Now()
	c.stop(c.leader())

	var effects sync.Map
	w := by.Worker(client.Concurrency(jobs))
	client.Work(w, "pay", func(_ context.Context, at client.Attempt, in int) (int, error) {
		if _, again := effects.LoadOrStore(in, true); again {
			t.Errorf("job %d is performed twice", in)
		}
		if at.Number() > 1 && time.Since(gone) < sessionTTL/2 {
			t.Errorf("job %d is taken from a worker whose session lives", in)
		}
		return in, nil
	})
	runWorker(t, w)
	for i, key := range keys {
		require.Eventually(t, func() bool {
			got, err := client.Wait[int](t.Context(), by, key)
			return err == nil && got == i
		}, 30*time.Second, 10*time.Millisecond)
	}
	t.Logf("the jobs were over %v after their worker had gone", time.Since(gone).Round(time.Millisecond))
	require.Less(t, time.Since(gone), sessionTTL+10*time.Second)
}
