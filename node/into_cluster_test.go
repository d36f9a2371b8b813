package node

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// The ledger of a lone node becomes that of three: deployment and receipts stay, and a claim of the lone node holds.
func TestMoveIntoCluster(t *testing.T) {
	long(t)
	t.Parallel()
	var paid, open wire.OpenAnswer
	c := foundTestCluster(t, func(data string) peer.FoundOptions {
		lone := startNode(t, data)
		paid = openAttempt(t, lone.url, "paid")
		status, body := report(t, lone.url, paid)
		require.Equal(t, http.StatusOK, status, body)
		open = openAttempt(t, lone.url, "open")
		lone.end()
		// The ledger is that of a cluster's backup, in which node b was replaced.
		store, err := clusterstore.Open(t.Context(), clusterstore.Config{Dir: filepath.Join(data, "ledger")})
		require.NoError(t, err)
		_, err = store.Propose(t.Context(), &flight.PutDocument{ID: replacementID("b"), Body: []byte(`{"certificate":"old"}`)})
		require.NoError(t, err)
		require.NoError(t, store.Close(t.Context()))
		move := func() (id string, err error) {
			cfg := Dev(data, "")
			cfg.Operator.RaiseLeaseEpoch, cfg.Operator.Actor = "a test", "ann"
			return MoveIntoCluster(t.Context(), cfg, "a")
		}
		return peer.FoundOptions{From: func() (string, error) {
			first, err := move()
			require.NoError(t, err)
			again, err := move() // as after a death in between
			require.Equal(t, first, again)
			return again, err
		}}
	}, func(*Config) {})
	// Without its founding directory, the node does not start any more.
	alone := c.configs[0]
	alone.Cluster = ""
	var stranger *NotMemberError
	require.ErrorAs(t, Run(t.Context(), alone), &stranger)

	for i := range c.names { // the others wait until the first has a ledger
		c.start(len(c.names) - 1 - i)
	}
	for i := range c.names {
		c.ready(i)
		c.awaitReplaced(i)
	}
	for i := range c.names {
		require.Equal(t, c.nodes[0].store.Header().Deployment, c.nodes[i].store.Header().Deployment)
		c.requireReceipts(i, []string{paid.FlightID})
	}
	require.Equal(t, uint32(3), c.nodes[0].store.Header().LeaseEpoch)
	status, body, err := post(c.nodes[1].server.url()+"/v1/flights:open", `{"action":"pay","id":"open","input":{"n":1},"nonce":"`+nonce("other")+`","wait_ms":0}`)
	require.NoError(t, err)
	require.NotEqual(t, http.StatusCreated, status, body)
	var problem wire.Problem
	require.NoError(t, json.Unmarshal([]byte(body), &problem))
	require.Contains(t, []wire.Code{wire.InFlight, wire.LeaseUnavailable}, problem.Code, body)
	status, body = report(t, c.nodes[2].server.url(), open)
	require.Equal(t, http.StatusOK, status, body)

	c.stop(0) // the node that had the ledger
	c.pay(1, 0, 2)
	c.start(0)
	c.ready(0)
	c.pay(0, 2, 3)
}

// The node that etcd has as its learner goes on first, whichever order the others start in: etcd takes no second learner.
func TestMoveIntoCluster_LearnerFirst(t *testing.T) {
	long(t)
	t.Parallel()
	c := foundTestCluster(t, func(data string) peer.FoundOptions {
		startNode(t, data).end()
		return peer.FoundOptions{From: func() (string, error) {
			cfg := Dev(data, "")
			cfg.Operator.RaiseLeaseEpoch, cfg.Operator.Actor = "a test", "ann"
			return MoveIntoCluster(t.Context(), cfg, "a")
		}}
	}, func(*Config) {})
	c.start(2)
	c.start(0)
	c.ready(0)
	first := c.nodes[0]
	require.Eventually(t, func() bool {
		all, _, err := replacements(first.store.Documents(flight.KindReplacement))
		return err == nil && all["c"].Etcd != 0
	}, waitLimit, time.Millisecond)
	c.stop(2)
	c.start(1)
	require.Eventually(t, func() bool { v := first.cluster.viewOf("b"); return v != nil && v.status.Joins != "" }, waitLimit, time.Millisecond)
	c.start(2)
	for i := 1; i < 3; i++ {
		c.ready(i)
		c.awaitReplaced(i)
	}
}
