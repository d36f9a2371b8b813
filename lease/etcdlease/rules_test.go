package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdservererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	etcdserverlease "go.etcd.io/etcd/server/v3/lease"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

func TestSupportedVersions(t *testing.T) {
	for v, want := range map[string]bool{
		"3.7.3": true, "3.7.1": true, "3.7.0": false, "3.6.14": true, "3.6.13": false, "3.6.5": false, "3.5.99": false,
		"3.8.0": true, "4.0.0": true, "2.3.8": false, "3.7.1-rc.0": false, "3.7.2-rc.0": true, "": false, "new": false,
	} {
		got := supportedVersion(v)
		require.Equal(t, want, got, "version %q: %v", v, got)
	}
}

func TestDueCompaction(t *testing.T) {
	var s CompactorSettings
	s.defaults()
	start := time.Now()
	at := func(revision int64, after time.Duration) revisionAt { return revisionAt{revision, start.Add(after)} }
	for _, c := range []struct {
		name            string
		last, seen, now revisionAt
		want            bool
	}{
		{"nothing new", at(100, 0), at(100, 9*time.Second), at(100, 10*time.Second), false},
		{"too early", at(100, 0), at(200, time.Second), at(300, 2*time.Second), false},
		{"time is up", at(100, 0), at(200, 4*time.Second), at(300, 5*time.Second), true},
		{"much has gathered", at(100, 0), at(50_000, time.Second), at(100_100, 2*time.Second), true},
		{"much has gathered, all of it new", at(100, 0), at(100, time.Second), at(200_000, 2*time.Second), false},
	} {
		got := dueCompaction(s, c.last, c.seen, c.now)
		require.Equal(t, c.want, got, "%s: %v", c.name, got)
	}
}

func TestDueDefrag(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		size, inUse, worth int64
		want               bool
	}{{100 * mb, 49 * mb, 64 * mb, true}, {100 * mb, 51 * mb, 64 * mb, false}, {50 * mb, mb, 64 * mb, false}} {
		got := dueDefrag(c.size, c.inUse, c.worth)
		require.Equal(t, c.want, got, "%+v: %v", c, got)
	}
}

func TestGuardKeysOfOtherVersionsAreRefused(t *testing.T) {
	for _, v := range []string{"", "flightd 2 1 d", "flightd 1 x d", "flightd 1 1"} {
		o, err := parseOwner(v)
		require.Error(t, err, "%q reads as %+v", v, o)
	}
}

func TestFlatBatchesKeepToTheLimit(t *testing.T) {
	s := &store{prefix: "p/"}
	batch := func(sessions int) []*lease.Op {
		ops := make([]*lease.Op, 100)
		for i := range ops {
			id := flight.SessionID(fmt.Sprint("s", i%sessions))
			ops[i] = &lease.Op{Kind: lease.OpClaim, Key: fmt.Sprint(i), Session: id, Lease: 1, Value: "v"}
		}
		return ops
	}
	for sessions, fits := range map[int]bool{1: true, 27: true, 28: false, 100: false} {
		flat := s.flat(lease.Ownership{Deployment: "d"}, batch(sessions), nil)
		require.Equal(t, fits, (flat != nil), "100 claims of %d sessions go flat: %v", sessions, flat != nil)
		if flat != nil {
			require.Len(t, flat.Compare, 101+sessions, "%d sessions", sessions)
			require.Len(t, flat.Success, 100, "%d sessions", sessions)
		}
	}
}

// A claim has one comparison and shares the comparison of its session; a replacement has none of its own; a release
// compares the value.
func TestFlatBatchesCompareLittle(t *testing.T) {
	s := &store{prefix: "p/"}
	flat := s.flat(lease.Ownership{Deployment: "d", Epoch: 7}, []*lease.Op{
		{Kind: lease.OpClaim, Key: "a", Session: "s", Lease: 1, Value: "va"},
		{Kind: lease.OpReplace, Key: "b", Session: "s", Lease: 1, Value: "vb"},
		{Kind: lease.OpRelease, Key: "c", Value: "vc"},
		{Kind: lease.OpRemove, Key: "d", ModRevision: 9},
	}, nil)
	var got []string
	for _, c := range flat.Compare {
		got = append(got, fmt.Sprint(string(c.Key), " ", c.Target, " ", c.Result, " ", string(c.GetValue()), c.GetModRevision()))
	}
	require.Equal(t, []string{
		"p/guard VALUE EQUAL flightd 1 7 d0", "p/s/s CREATE GREATER 0", "p/k/a CREATE EQUAL 0", "p/k/c VALUE EQUAL vc0", "p/k/d MOD EQUAL 9",
	}, got)
	require.Len(t, flat.Success, 4)
}

// noLeader is a server that rejects every renewal at once, as a stopping server may.
type noLeader struct {
	pb.UnimplementedLeaseServer
	calls atomic.Int32
}

func (l *noLeader) LeaseKeepAlive(pb.Lease_LeaseKeepAliveServer) error {
	l.calls.Add(1)
	return status.Error(codes.Unavailable, "the server is shutting down")
}

// The client library repeats a failed renewal at once and for ever; the store must not, because the keeper decides when
// to retry.
func TestRenewalIsTriedOnce(t *testing.T) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var leases noLeader
	server := grpc.NewServer()
	pb.RegisterLeaseServer(server, &leases)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listen) }()
	defer func() { server.Stop(); <-served }()
	client, err := Dial(clientv3.Config{Endpoints: []string{listen.Addr().String()}})
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = newStore(client, nil, "p/", nil).Renew(ctx, 1)
	require.Error(t, err, "got %v", err)
	require.NotErrorIs(t, err, lease.ErrLost, "got %v", err)
	n := leases.calls.Load()
	require.EqualValues(t, 1, n, "one renewal asked %d times", n)
}

// renewals is an embedded server whose renewals have one result.
type renewals struct {
	EmbeddedServer
	ttl   int64
	err   error
	calls int
}

func (r *renewals) LeaseRenew(context.Context, etcdserverlease.LeaseID) (int64, error) {
	r.calls++
	return r.ttl, r.err
}

// An embedded server is asked once: without a leader its error is the answer, and a lease that is gone is lost.
func TestRenewEmbeddedOnce(t *testing.T) {
	for _, c := range []struct {
		renewals
		want time.Duration
		err  error
	}{
		{renewals{ttl: 15}, 15 * time.Second, nil},
		{renewals{ttl: -1, err: etcdserverlease.ErrLeaseNotFound}, 0, lease.ErrLost},
		{renewals{ttl: 0}, 0, lease.ErrLost},
		{renewals{ttl: -1, err: etcdservererrors.ErrNoLeader}, 0, etcdservererrors.ErrNoLeader},
		{renewals{ttl: -1, err: etcdservererrors.ErrTimeout}, 0, etcdservererrors.ErrTimeout},
	} {
		server := c.renewals
		ttl, err := newStore(nil, &server, "p/", nil).Renew(t.Context(), 7)
		require.Equal(t, c.want, ttl)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.err == lease.ErrLost, errors.Is(err, lease.ErrLost))
		require.Equal(t, 1, server.calls)
	}
}

func TestRoot(t *testing.T) {
	require.Equal(t, "flightd/d/", Root("").Prefix("d"))
	require.Equal(t, "team/x/d/", Root("team/x/").Prefix("d"))
}
