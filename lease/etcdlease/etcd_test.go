package etcdlease_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

func key(id string) flight.Key { return flight.MustKey("test/charge/" + id) }

// inProcess is a stage without connections: the client of the embedded server, as a node uses it.
type inProcess struct{ *stage }

func (s inProcess) Node(t testing.TB, o leasetest.Options) leasetest.Node {
	t.Helper()
	return uncut{s.open(t, s.server.InProcess(t), o)}
}

type uncut struct{ *lease.Desk }

func (uncut) Partition(leasetest.Cut) { panic("a client in the server's process has no connection") }

// TestEmbeddedEtcdConforms runs the suite over the client that calls the server directly.
func TestEmbeddedEtcdConforms(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	leasetest.Run(t, leasetest.Factory{
		Stage: func(t testing.TB) leasetest.Stage { return inProcess{newStage(t, server)} },
		Uncut: true,
	})
}

func session(t testing.TB, d *lease.Desk, ttl time.Duration) lease.Session {
	t.Helper()
	s, err := d.NewSession(t.Context(), lease.Spec{TTL: ttl, Owner: "test", Kept: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func acquire(t testing.TB, s lease.Session, k flight.Key) lease.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		l, err := s.Acquire(ctx, k)
		if err == nil {
			return l
		}
		if !errors.Is(err, lease.ErrUnavailable) || ctx.Err() != nil {
			t.Fatalf("acquire %s: %v", k, err)
		}
	}
}

// TestServerRestarts: claims outlive the server, the session goes on, and while it is away claims are refused as
// unavailable.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	st := newStage(t, server)
	desk := st.open(t, server.Dial(t), leasetest.Options{})
	s := session(t, desk, 15*time.Second)
	l := acquire(t, s, key("1"))
	_ = st.admin.Close()
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.TryAcquire(ctx, key("2")); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("without a server: %v", err)
	}
	if _, err := s.Renew(ctx); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("renewing without a server: %v", err)
	}
	server.Restart(t)
	two := acquire(t, s, key("2"))
	if two.Claim().Session != l.Claim().Session || l.Trust() <= 0 || two.Claim().Compare(l.Claim()) <= 0 {
		t.Errorf("after the restart: %+v after %+v, trust %v", two.Claim(), l.Claim(), l.Trust())
	}
	all, err := desk.Claims(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("claims %+v, %v", all, err)
	}
}

// TestHazard20_EtcdIsRestoredFromABackup: nothing is claimed between the restore and the operator's word, and what is
// claimed afterwards is newer than everything before.
func TestHazard20_EtcdIsRestoredFromABackup(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	st := newStage(t, server)
	desk := st.open(t, server.Dial(t), leasetest.Options{})
	s := session(t, desk, 60*time.Second)
	acquire(t, s, key("before")).Release()

	_ = st.admin.Close()
	server.Stop()
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(server.Dir)); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)
	l := acquire(t, s, key("1"))
	for range 20 {
		acquire(t, s, key("2")).Release()
	}
	st.ledger.Saw(l.Claim().Revision + 20)
	server.Stop()
	if err := errors.Join(os.RemoveAll(server.Dir), os.CopyFS(server.Dir, os.DirFS(backup))); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)

	select {
	case <-l.Context().Done(): // the patrol notices, though nobody claims
	case <-time.After(30 * time.Second):
		t.Fatal("the lease does not end")
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrRegressed) {
		t.Errorf("the lease ended with %v", cause)
	}
	for _, d := range []*lease.Desk{desk, st.open(t, server.Dial(t), leasetest.Options{})} {
		if _, err := d.NewSession(t.Context(), lease.Spec{Kept: true}); !errors.Is(err, lease.ErrRegressed) {
			t.Errorf("a session on the restored etcd: %v", err)
		}
	}
	var lost *lease.RegressedError
	if _, err := s.TryAcquire(t.Context(), key("1")); !errors.As(err, &lost) || lost.Seen >= lost.Known {
		t.Errorf("a claim on the restored etcd: %v", err)
	}
	st.ledger.RaiseEpoch()
	next := acquire(t, s, key("1"))
	if next.Claim().Compare(l.Claim()) <= 0 {
		t.Errorf("after the restore %+v, before it %+v", next.Claim(), l.Claim())
	}
}

// TestAmbiguousClaimOverABrokenConnection: the request arrives, the answer does not, and neither does that of the
// reading after it. The claim stands in etcd, nobody owns it, and it does not lock the key.
func TestAmbiguousClaimOverABrokenConnection(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	st := newStage(t, server)
	proxy := etcdtest.NewProxy(t, server.Socket())
	stray := make(chan flight.Claim, 10)
	desk := st.open(t, etcdtest.DialSocket(t, proxy.Socket), leasetest.Options{
		Events: lease.Events{Stray: func(_ flight.Key, c flight.Claim) { stray <- c }},
	})
	s := session(t, desk, 60*time.Second)
	proxy.Cut(false, true)
	if _, err := s.TryAcquire(t.Context(), key("1")); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("without answers: %v", err)
	}
	landed, err := st.admin.Get(t.Context(), st.prefix+"k/"+key("1").String())
	if err != nil || len(landed.Kvs) != 1 {
		t.Fatalf("the claim did not land: %v, %v", landed, err)
	}
	proxy.Cut(false, false)
	l := acquire(t, s, key("1"))
	removed := <-stray
	if removed.Revision != landed.Kvs[0].CreateRevision || l.Claim().Revision <= removed.Revision {
		t.Errorf("removed %+v, then claimed %+v", removed, l.Claim())
	}
}

// TestRenewalOfADeadConnectionDoesNotSpin: a server that is away costs neither time nor a flood of renewals.
func TestRenewalOfADeadConnectionDoesNotSpin(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	st := newStage(t, server)
	failed := make(chan struct{}, 1000)
	desk := st.open(t, server.Dial(t), leasetest.Options{
		Events: lease.Events{RenewFailed: func(flight.SessionID, time.Duration, error) { failed <- struct{}{} }},
	})
	l := acquire(t, session(t, desk, 3*time.Second), key("1"))
	_ = st.admin.Close()
	server.Stop()
	select {
	case <-l.Context().Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the lease does not end")
	}
	if n := len(failed); n == 0 || n > 30 {
		t.Errorf("%d renewals failed within one time to live", n)
	}
}

// TestHazard37_KeysNameTheirDeployment: what an operator sees with etcdctl.
func TestHazard37_KeysNameTheirDeployment(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	st := newStage(t, server)
	desk := st.open(t, server.InProcess(t), leasetest.Options{Node: "n1"})
	s := session(t, desk, 15*time.Second)
	l := acquire(t, s, key("1"))
	got, err := st.admin.Get(t.Context(), st.prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	byKey := map[string]string{}
	for _, kv := range got.Kvs {
		byKey[string(kv.Key)[len(st.prefix):]] = string(kv.Value)
	}
	if len(byKey) != 3 || byKey["guard"] != "flightd 1 1 "+leasetest.Deployment || byKey["s/"+string(s.ID())] == "" {
		t.Errorf("keys: %q", byKey)
	}
	r, err := lease.ParseRecord(byKey["k/test/charge/1"])
	if err != nil || r.Deployment != leasetest.Deployment || r.Session != l.Claim().Session || r.Owner != "test" || r.Epoch != 1 {
		t.Errorf("the claim names %+v, %v", r, err)
	}
}
