package etcdlease_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

func key(id string) flight.Key { return flight.MustKey("test/charge/" + id) }

func session(t testing.TB, d *lease.Lessor, ttl time.Duration) lease.Session {
	t.Helper()
	s, err := d.NewSession(t.Context(), lease.Spec{TTL: ttl, Owner: "test", AutoRenew: true})
	require.NoError(t, err)
	return s
}

func reserve(t testing.TB, s lease.Session, k flight.Key) lease.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		l, err := s.Reserve(ctx, k, leasetest.NewNonce())
		if err == nil {
			return l
		}
		require.ErrorIs(t, err, lease.ErrUnavailable, "reserve %s: %v", k, err)
		require.NoError(t, ctx.Err(), "reserve %s: %v", k, err)
	}
}

// claim waits until the key is free.
func claim(t testing.TB, s lease.Session, k flight.Key) lease.Lease {
	t.Helper()
	l := reserve(t, s, k)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := l.Claim(ctx)
		if err == nil {
			return l
		}
		require.ErrorIs(t, err, lease.ErrHeld, "claim %s: %v", k, err)
		require.NoError(t, ctx.Err(), "claim %s: %v", k, err)
	}
}

// Sessions and claims survive a restart of the server; while it is stopped, claims fail.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	b := newBackend(t, server)
	lessor := b.open(t, server.Dial(t), leasetest.Options{})
	s := session(t, lessor, 15*time.Second)
	l := claim(t, s, key("1"))
	_ = b.admin.Close()
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	two := reserve(t, s, key("2"))
	require.ErrorIs(t, two.Claim(ctx), lease.ErrUnavailable)
	_, err := s.Renew(ctx)
	require.ErrorIs(t, err, lease.ErrUnavailable)
	_, err = lessor.Living(ctx)
	require.ErrorIs(t, err, lease.ErrUnavailable)
	server.Restart(t)
	require.NoError(t, two.Claim(t.Context()))
	require.Equal(t, l.Session(), two.Session())
	require.Positive(t, l.Trust())
	all, err := lessor.Claims(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
}

// Between a restore and the operator's decision no claim is written and no end of a session is proved, even after the
// revision has caught up.
func TestHazard20_EtcdIsRestoredFromABackup(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	b := newBackend(t, server)
	lessor := b.open(t, server.Dial(t), leasetest.Options{})
	raise := func() {
		_, counter, err := lessor.RaiseGuard(t.Context())
		require.NoError(t, err)
		b.ledger.Record(counter)
	}
	s := session(t, lessor, 60*time.Second)
	raise()

	_ = b.admin.Close()
	server.Stop()
	backup := t.TempDir()
	require.NoError(t, os.CopyFS(backup, os.DirFS(server.Dir)))
	server.Restart(t)
	for lessor.Ready(t.Context()) != nil { // until the server has restarted
	}
	raise()
	l := claim(t, s, key("1"))
	younger := session(t, lessor, 60*time.Second).Ref() // not in the backup
	server.Stop()
	require.NoError(t, errors.Join(os.RemoveAll(server.Dir), os.CopyFS(server.Dir, os.DirFS(backup))))
	server.Restart(t)
	admin := server.InProcess(t)
	for revision := int64(0); revision < younger.Revision+100; {
		put, err := admin.Put(t.Context(), "others", "x")
		require.NoError(t, err)
		revision = put.Header.Revision
	}

	select {
	case <-l.Context().Done(): // maintenance detects the restore without a request
	case <-time.After(time.Minute):
		t.Fatal("trust does not end")
	}
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrRegressed)
	for _, d := range []*lease.Lessor{lessor, b.open(t, server.Dial(t), leasetest.Options{})} {
		_, err := d.Living(t.Context(), younger.ID)
		require.ErrorIs(t, err, lease.ErrRegressed, "a missing session key proves nothing here")
		_, err = d.NewSession(t.Context(), lease.Spec{AutoRenew: true})
		require.ErrorIs(t, err, lease.ErrRegressed)
	}
	var lost *lease.RegressedError
	_, err := s.Reserve(t.Context(), key("2"), leasetest.NewNonce())
	require.ErrorAs(t, err, &lost)
	require.Less(t, lost.Found, lost.Recorded)
	b.ledger.RaiseEpoch()
	next := claim(t, s, key("2"))
	require.EqualValues(t, 2, next.Session().Epoch)
	raise()
	_, err = lessor.Living(t.Context())
	require.NoError(t, err)
}

// The request arrives, but its answer is lost. The claim is retried and found to be ours; it is written once.
func TestClaimOverABrokenConnection(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	b := newBackend(t, server)
	proxy := etcdtest.NewProxy(t, server.Socket())
	lessor := b.open(t, etcdtest.DialSocket(t, proxy.Socket), leasetest.Options{})
	s := session(t, lessor, 60*time.Second)
	l := reserve(t, s, key("1"))
	proxy.Cut(false, true)
	claimed := make(chan error, 1)
	go func() { claimed <- l.Claim(t.Context()) }()
	var landed int64
	for landed == 0 {
		got, err := b.admin.Get(t.Context(), b.prefix+"k/"+key("1").String())
		require.NoError(t, err)
		if len(got.Kvs) > 0 {
			landed = got.Kvs[0].ModRevision
		}
	}
	proxy.Cut(false, false)
	require.NoError(t, <-claimed)
	all, err := lessor.Claims(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, landed, all[0].ModRevision)
	require.Equal(t, l.Session().ID, all[0].Session)
}

// The keys and values that an operator sees with etcdctl name their deployment.
func TestHazard37_KeysNameTheirDeployment(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	b := newBackend(t, server)
	lessor := b.open(t, server.InProcess(t), leasetest.Options{Node: "n1"})
	s := session(t, lessor, 15*time.Second)
	nonce := leasetest.NewNonce()
	l, err := s.Reserve(t.Context(), key("1"), nonce)
	require.NoError(t, err)
	require.NoError(t, l.Claim(t.Context()))
	_, _, err = lessor.RaiseGuard(t.Context())
	require.NoError(t, err)
	got, err := b.admin.Get(t.Context(), b.prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	values := map[string]string{}
	for _, kv := range got.Kvs {
		name := string(kv.Key)[len(b.prefix):]
		values[name] = string(kv.Value)
		if name == "s/"+string(l.Session().ID) {
			require.Equal(t, l.Session().Revision, kv.CreateRevision)
		}
	}
	require.Len(t, values, 4)
	require.Equal(t, "flightd 1 1 "+leasetest.Deployment, values["guard"])
	require.Equal(t, "1", values["counter"])
	var sessionKey map[string]any
	require.NoError(t, json.Unmarshal([]byte(values["s/"+string(s.Ref().ID)]), &sessionKey))
	require.Equal(t, "test", sessionKey["owner"])
	require.Equal(t, "n1", sessionKey["node"])
	require.Equal(t, true, sessionKey["kept"])
	v, err := lease.ParseClaimValue(values["k/test/charge/1"])
	require.NoError(t, err)
	require.Equal(t, lease.ClaimValue{Epoch: 1, Nonce: nonce, Session: l.Session().ID}, v)
}

// A guard key or counter that is damaged, or of a newer version, is an error.
func TestUnreadableGuardKeyIsAnError(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	b := newBackend(t, server)
	lessor := b.open(t, server.InProcess(t), leasetest.Options{})
	id := session(t, lessor, 60*time.Second).Ref().ID
	for _, name := range []string{"guard", "counter"} {
		was, err := b.admin.Get(t.Context(), b.prefix+name)
		require.NoError(t, err)
		_, err = b.admin.Put(t.Context(), b.prefix+name, "flightd 99")
		require.NoError(t, err)
		_, err = lessor.Living(t.Context(), id)
		require.ErrorIs(t, err, lease.ErrUnavailable)
		if len(was.Kvs) > 0 {
			_, err = b.admin.Put(t.Context(), b.prefix+name, string(was.Kvs[0].Value))
		} else {
			_, err = b.admin.Delete(t.Context(), b.prefix+name)
		}
		require.NoError(t, err)
		living, err := lessor.Living(t.Context(), id)
		require.NoError(t, err)
		require.Contains(t, living.Sessions, id)
	}
}
