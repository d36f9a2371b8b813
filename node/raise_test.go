package node

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// dieInRaise raises the lease epoch at an actor as if the process died before the ledger heard of it.
func dieInRaise(t *testing.T, a *actor) {
	t.Helper()
	died := errors.New("the process dies")
	err := a.leases.RaiseEpoch(t.Context(), a.store.Header().LeaseEpoch, func(context.Context) error { return died })
	require.ErrorIs(t, err, died)
}

func TestHazard66_ALoneNodeEndsARaiseThatWasBegun(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := open(t, data, nil)
	running := openAttempt(t, in.server.url(), "running")
	was := in.store.Header().LeaseEpoch
	dieInRaise(t, in.act.Load())
	require.NoError(t, in.stopNode())

	in = open(t, data, nil)
	h := in.store.Header()
	require.Equal(t, was+1, h.LeaseEpoch)
	require.Greater(t, h.EpochHold.Until(in.store.Now()), lease.MaxTTL-time.Minute, "the holder of an open attempt may still act")
	openAttempt(t, in.server.url(), "next")
	status, body := report(t, in.server.url(), running)
	require.Equal(t, http.StatusOK, status, body)
}

// The reason of a start would count whenever the node leads, so a cluster takes none.
func TestRaiseLeaseEpoch_IsNoSettingOfACluster(t *testing.T) {
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Cluster, cfg.Operator.RaiseLeaseEpoch = t.TempDir(), "etcd was restored"
	var invalid *flight.InvalidError
	require.ErrorAs(t, startError(t, cfg), &invalid)
	require.Equal(t, "raise_lease_epoch", invalid.Field)
}

// An etcd that has lost its guard key is accepted by a person alone, at any node, while the cluster runs. A raise that a leader
// has begun is ended by the next one.
func TestCluster_RaiseOfTheLeaseEpoch(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	at := (lead + 1) % 3
	url := c.nodes[at].server.url()
	running := openAttempt(t, url, "running")
	store := c.nodes[lead].store
	was := store.Header().LeaseEpoch
	require.Eventually(t, func() bool { return store.Header().GuardCounter > 0 }, waitLimit, 10*time.Millisecond)
	_, err := c.nodes[lead].etcd.client.Delete(t.Context(), "flightd/"+store.Header().Deployment+"/guard")
	require.NoError(t, err)
	open := func(url, id string) (status int, body string) {
		status, body, err := post(url+"/v1/flights:open", `{"action":"pay","id":"`+id+`","input":{"n":1},"nonce":"`+nonce(id)+`","wait_ms":0}`)
		require.NoError(t, err)
		return status, body
	}
	require.Eventually(t, func() bool {
		status, _ := open(url, "refused")
		return status == http.StatusServiceUnavailable
	}, waitLimit, 50*time.Millisecond, "an etcd that has lost data is used")
	require.Equal(t, was, store.Header().LeaseEpoch, "nobody has raised it")

	var status int
	var body string
	require.Eventually(t, func() bool { // a leader that uses no etcd hands over
		status, body, err = post(url+"/v1/lease-epoch:raise", `{"reason":"the guard key was deleted","actor":"ann"}`)
		return err == nil && status == http.StatusOK
	}, waitLimit, 50*time.Millisecond, "the lease epoch is not raised")
	require.Contains(t, body, `"lease_epoch":2`)
	require.Contains(t, body, `"hold_ms"`)
	status, body = open(url, "after")
	require.Equal(t, http.StatusCreated, status, body)
	status, body, err = post(url+"/v1/lease-epoch:raise", `{"reason":"again","actor":"ann"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"lease_epoch":2`, "there is nothing to raise")
	status, body = report(t, url, running)
	require.Equal(t, http.StatusOK, status, body)

	lead = c.leader()
	dieInRaise(t, c.nodes[lead].act.Load())
	c.stop(lead)
	at = (lead + 1) % 3
	url = c.nodes[at].server.url()
	require.Eventually(t, func() bool { return c.nodes[at].store.Header().LeaseEpoch == was+2 }, waitLimit, 10*time.Millisecond, "the next leader does not end the raise")
	status, body = open(url, "last")
	require.Equal(t, http.StatusCreated, status, body)
}
