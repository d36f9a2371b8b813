package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
)

// payOnce calls Do for one key at the executors of some nodes, once for each, and returns how often the handler ran.
func payOnce(t *testing.T, nodes []*testNode, id string) (ran int32) {
	t.Helper()
	var paid atomic.Int32
	var callers sync.WaitGroup
	errs := make(chan error, len(nodes))
	for _, n := range nodes {
		callers.Go(func() {
			r, err := n.executor().Do(t.Context(), effect.Call{Key: flight.MustKey("default/pay/" + id)}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				paid.Add(1)
				return effect.Answer{ContentType: "text/plain", Body: []byte("paid " + id)}, nil
			})
			if err == nil && string(r.Answer.Body) != "paid "+id {
				err = fmt.Errorf("the receipt is %q", r.Answer.Body)
			}
			errs <- err
		})
	}
	callers.Wait()
	for range nodes {
		require.NoError(t, <-errs)
	}
	return paid.Load()
}

// A program has the same executor at a lone node and at each node of a cluster whose callers need tokens. It needs none.
func TestProgram_ActsOnceAtEveryNode(t *testing.T) {
	t.Parallel()
	lone := open(t, t.TempDir(), nil)
	require.EqualValues(t, 1, payOnce(t, []*testNode{lone, lone, lone}, "order-1"))

	secret := auth.NewSecret(flight.AllNamespaces)
	sum := sha256.Sum256([]byte(secret))
	c := newTestClusterWith(t, peer.FoundOptions{TokenSHA256: hex.EncodeToString(sum[:])}, func(cfg *Config) {
		cfg.NoCredentials, cfg.FirstToken.Print = false, func(string) {}
	})
	for n := range 3 {
		require.EqualValues(t, 1, payOnce(t, c.nodes[:], fmt.Sprint("order-", n)))
	}
	get := func(n *testNode, headers map[string]string) (status int, body string) {
		r, err := http.NewRequest(http.MethodGet, n.server.url()+"/v1/flights/"+flight.MustKey("default/pay/order-1").FlightID().String(), http.NoBody)
		require.NoError(t, err)
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	for _, n := range c.nodes {
		status, body := get(n, map[string]string{"Authorization": "Bearer " + secret})
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"owner":"node/`)
		// The headers by which a node says that its own program asks mean nothing when a caller sends them.
		for _, headers := range []map[string]string{nil, {headerProgram: "1", headerCaller: "node/a", headerTokens: "yes"}} {
			status, body = get(n, headers)
			require.Equal(t, http.StatusUnauthorized, status, body)
		}
	}
	// No program may do more than effects need.
	_, err := c.nodes[0].program.Load().Cluster(t.Context())
	require.ErrorContains(t, err, "operate")
}

// The leader stops, and a follower, while effects of their programs run: both effects are reported, and nobody pays again.
func TestProgram_StopWaitsForRunningEffects(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	for _, stopped := range []int{lead, (lead + 1) % 3} {
		id := fmt.Sprint("order-", c.names[stopped])
		started, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := c.nodes[stopped].executor().Do(t.Context(), effect.Call{Key: flight.MustKey("default/pay/" + id)}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				close(started)
				<-goOn
				return effect.Answer{ContentType: "text/plain", Body: []byte("paid " + id)}, nil
			})
			ended <- err
		}()
		<-started
		c.cancels[stopped]()
		c.cancels[stopped] = nil
		other := c.nodes[(lead+2)%3]
		require.Eventually(t, func() bool { l := other.store.Leader(); return l != "" && l != c.names[stopped] }, waitLimit, 10*time.Millisecond)
		select {
		case <-c.ended[stopped].done:
			require.Fail(t, "the node has not waited for the effect")
		case <-time.After(2 * clusterStop): // longer than the other parts may take
		}
		close(goOn)
		require.NoError(t, <-ended)
		<-c.ended[stopped].done
		require.NoError(t, c.ended[stopped].err)
		require.Zero(t, payOnce(t, []*testNode{other}, id))
		c.start(stopped)
		c.ready(stopped)
	}
}

// While the ledger has no majority, the report of an effect waits on disk, and a program that starts later sends it.
func TestProgram_ReportWaitsForALeader(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestClusterWith(t, peer.FoundOptions{}, func(cfg *Config) { cfg.Process.StopTimeout = time.Second })
	at := (c.leader() + 1) % 3
	heal := func() {}
	_, err := c.nodes[at].executor().Do(t.Context(), effect.Call{Key: flight.MustKey("default/pay/cut")}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		heal = c.cut()
		return effect.Answer{ContentType: "text/plain", Body: []byte("paid cut")}, nil
	})
	var unrecorded *effect.Unrecorded
	require.ErrorAs(t, err, &unrecorded)
	require.Equal(t, 1, c.nodes[at].program.Load().SpooledReports())
	c.stop(at)
	heal()
	c.start(at)
	c.ready(at)
	require.Zero(t, payOnce(t, c.nodes[at:at+1], "cut"))
	require.Eventually(t, func() bool { return c.nodes[at].program.Load().SpooledReports() == 0 }, waitLimit, 10*time.Millisecond)
}

// The session of a program's running effect ends in etcd under it, as when etcd was cut off from all nodes. The leader asks the
// nodes, and leaves the attempt to the one that uses it. A node that does not answer keeps no attempt.
func TestProgram_LostSessionOfALivingNode(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	at := c.nodes[(lead+1)%3]
	own := peerAPI{at.node}.handler()
	defer at.cluster.port.SetHandler(own)
	for _, answers := range []bool{true, false} {
		var asked atomic.Int32
		at.cluster.port.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == sessionsPath {
				asked.Add(1)
				if !answers {
					<-r.Context().Done()
				}
			}
			own.ServeHTTP(w, r)
		}))
		key := flight.MustKey(fmt.Sprint("default/pay/lost-", answers))
		state := func() flight.State {
			f, err := c.nodes[lead].store.Flight(key.FlightID())
			require.NoError(t, err)
			return f.State
		}
		_, err := at.executor().Do(t.Context(), effect.Call{Key: key}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			sessions := at.program.Load().SessionsInUse()
			require.Len(t, sessions, 1)
			c.revoke(sessions[0])
			if answers {
				require.Eventually(t, func() bool { return asked.Load() >= 5 }, waitLimit, 10*time.Millisecond)
				require.Equal(t, flight.StateRunning, state())
			} else {
				require.Eventually(t, func() bool { return state() == flight.StateInDoubt }, waitLimit, 10*time.Millisecond)
			}
			return effect.Answer{}, nil
		})
		require.NoError(t, err, "a report of the newest attempt counts in both cases")
		require.Equal(t, flight.StateSucceeded, state())
		require.Positive(t, asked.Load())
	}
}

// revoke ends a session in etcd alone.
func (c *testCluster) revoke(session string) {
	c.t.Helper()
	keys, err := c.nodes[0].etcd.client.Get(c.t.Context(), "flightd/", clientv3.WithPrefix())
	require.NoError(c.t, err)
	for _, kv := range keys.Kvs {
		if strings.HasSuffix(string(kv.Key), session) {
			_, err := c.nodes[0].etcd.client.Revoke(c.t.Context(), clientv3.LeaseID(kv.Lease))
			require.NoError(c.t, err)
			return
		}
	}
	require.Fail(c.t, "etcd has no such session", session)
}

// Nothing is ended in the first TTL after etcd was away for longer than leadership stays.
func TestEtcdOutage(t *testing.T) {
	var o etcdOutage
	now := time.Now()
	var away time.Duration
	after := func(d time.Duration, answers bool) { now = now.Add(d); away = o.note(now, answers) }
	after(0, false)
	after(time.Minute, true)
	require.False(t, o.within(now, time.Minute), "the start is no outage")
	after(unfitTimeout, true)
	require.False(t, o.within(now, time.Minute))
	after(time.Second, false)
	require.False(t, o.within(now, unfitTimeout))
	after(unfitTimeout, false)
	require.True(t, o.within(now, unfitTimeout), "etcd may be back, and the node has not asked it yet")
	require.Zero(t, away)
	after(0, true)
	require.Equal(t, time.Second+unfitTimeout, away)
	require.True(t, o.within(now, unfitTimeout))
	require.True(t, o.within(now.Add(unfitTimeout-1), unfitTimeout))
	require.False(t, o.within(now.Add(unfitTimeout), unfitTimeout))
}
