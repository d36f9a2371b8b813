package etcdlease_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// backend has a prefix of its own in a real etcd; each node has a proxy of its own.
type backend struct {
	server *etcdtest.Server
	admin  *clientv3.Client
	prefix string
	ledger *leasetest.Ledger
}

func newBackend(t testing.TB, server *etcdtest.Server) *backend {
	t.Helper()
	return &backend{server: server, admin: server.InProcess(t), prefix: "suite/" + strings.ToLower(rand.Text()) + "/", ledger: leasetest.NewLedger()}
}

// node is a service with a connection that can be cut.
type node struct {
	*lease.Lessor
	proxy *etcdtest.Proxy
}

func (n *node) Partition(c leasetest.Cut) {
	n.proxy.Cut(c == leasetest.CutRequests, c == leasetest.CutAnswers)
}

func (b *backend) Node(t testing.TB, o leasetest.Options) leasetest.Node {
	t.Helper()
	proxy := etcdtest.NewProxy(t, b.server.Socket())
	return &node{b.open(t, etcdtest.DialSocket(t, proxy.Socket), o), proxy}
}

// open starts a service on the client. The service is closed before the client.
func (b *backend) open(t testing.TB, client *clientv3.Client, o leasetest.Options) *lease.Lessor {
	t.Helper()
	cfg := etcdlease.Config{
		Client: client, Prefix: b.prefix, Deployment: leasetest.Deployment, Node: o.Node, Ledger: b.ledger, Events: o.Events,
	}
	if client.ActiveConnection() == nil {
		cfg.Server = b.server.Embedded()
	}
	if o.Ledger != nil {
		cfg.Ledger = o.Ledger
	}
	if o.Deployment != "" {
		cfg.Deployment = o.Deployment
	}
	lessor, err := etcdlease.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := lessor.Close(ctx); err != nil {
			t.Logf("closing: %v", err) // expected after a cut connection: leases expire
		}
	})
	return lessor
}

func (b *backend) Ledger() *leasetest.Ledger { return b.ledger }

func (b *backend) Expire(t testing.TB, id flight.SessionID) {
	t.Helper()
	got, err := b.admin.Get(t.Context(), b.prefix+"s/"+string(id))
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1, "the session key of %s", id)
	_, err = b.admin.Revoke(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease))
	require.NoError(t, err)
}

func (b *backend) DropGuardKey(t testing.TB) {
	t.Helper()
	_, err := b.admin.Delete(t.Context(), b.prefix+"guard")
	require.NoError(t, err)
}

func (b *backend) SetCounter(t testing.TB, n uint64) {
	t.Helper()
	var err error
	if n == 0 {
		_, err = b.admin.Delete(t.Context(), b.prefix+"counter")
	} else {
		_, err = b.admin.Put(t.Context(), b.prefix+"counter", strconv.FormatUint(n, 10))
	}
	require.NoError(t, err)
}

func (b *backend) MarkedOneShot(t testing.TB, id flight.SessionID) bool {
	t.Helper()
	got, err := b.admin.Get(t.Context(), b.prefix+"s/"+string(id))
	require.NoError(t, err)
	if len(got.Kvs) == 0 {
		return false
	}
	var sessionKey struct {
		OneShot bool `json:"one_shot"`
	}
	require.NoError(t, json.Unmarshal(got.Kvs[0].Value, &sessionKey))
	return sessionKey.OneShot
}

const suiteTTL = 5 * time.Second

// TestEtcdConforms runs the suite on a real etcd, through sockets.
func TestEtcdConforms(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	leasetest.Run(t, leasetest.Factory{Backend: func(t testing.TB) leasetest.Backend { return newBackend(t, server) }, Parallel: true, TTL: suiteTTL})
}

// inProcess is a backend without connections: it uses the client of the embedded server, as a node does.
type inProcess struct{ *backend }

func (p inProcess) Node(t testing.TB, o leasetest.Options) leasetest.Node {
	t.Helper()
	return noConnection{p.open(t, p.server.InProcess(t), o)}
}

type noConnection struct{ *lease.Lessor }

func (noConnection) Partition(leasetest.Cut) {
	panic("a client in the server's process has no connection")
}

// TestEmbeddedEtcdConforms runs the suite on the client that calls the server directly.
func TestEmbeddedEtcdConforms(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	leasetest.Run(t, leasetest.Factory{
		Backend:      func(t testing.TB) leasetest.Backend { return inProcess{newBackend(t, server)} },
		NoPartitions: true,
		Parallel:     true,
		TTL:          suiteTTL,
	})
}
