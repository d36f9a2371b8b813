package etcdlease_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// stage is a prefix of its own in a real etcd; every node reaches it through a proxy of its own.
type stage struct {
	server *etcdtest.Server
	admin  *clientv3.Client
	prefix string
	ledger *leasetest.Ledger
}

func newStage(t testing.TB, server *etcdtest.Server) *stage {
	t.Helper()
	return &stage{server: server, admin: server.InProcess(t), prefix: "suite/" + strings.ToLower(rand.Text()) + "/", ledger: leasetest.NewLedger()}
}

// node is a service with the lever that the suite wants.
type node struct {
	*lease.Desk
	proxy *etcdtest.Proxy
}

func (n *node) Partition(c leasetest.Cut) {
	n.proxy.Cut(c == leasetest.CutRequests, c == leasetest.CutAnswers)
}

func (s *stage) Node(t testing.TB, o leasetest.Options) leasetest.Node {
	t.Helper()
	proxy := etcdtest.NewProxy(t, s.server.Socket())
	return &node{s.open(t, etcdtest.DialSocket(t, proxy.Socket), o), proxy}
}

// open starts a service over the client; it is closed before the client is.
func (s *stage) open(t testing.TB, client *clientv3.Client, o leasetest.Options) *lease.Desk {
	t.Helper()
	cfg := etcdlease.Config{
		Client: client, Prefix: s.prefix, Deployment: leasetest.Deployment, Boot: newBoot(), Node: o.Node, Guard: s.ledger, Events: o.Events,
	}
	if client.ActiveConnection() == nil {
		cfg.Server = s.server.Transactor()
	}
	if o.Guard != nil {
		cfg.Guard = o.Guard
	}
	if o.Deployment != "" {
		cfg.Deployment = o.Deployment
	}
	desk, err := etcdlease.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := desk.Close(ctx); err != nil {
			t.Logf("closing: %v", err) // a cut connection may make it fail; leases expire
		}
	})
	return desk
}

func (s *stage) Ledger() *leasetest.Ledger { return s.ledger }

func (s *stage) Expire(t testing.TB, id flight.SessionID) {
	t.Helper()
	got, err := s.admin.Get(context.Background(), s.prefix+"s/"+string(id))
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("the marker of %s: %v, %v", id, got, err)
	}
	if _, err := s.admin.Revoke(context.Background(), clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) DropGuardKey(t testing.TB) {
	t.Helper()
	if _, err := s.admin.Delete(context.Background(), s.prefix+"guard"); err != nil {
		t.Fatal(err)
	}
}

// TestEtcdConforms runs the suite over a real etcd, through sockets.
func TestEtcdConforms(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	leasetest.Run(t, leasetest.Factory{Stage: func(t testing.TB) leasetest.Stage { return newStage(t, server) }})
}
