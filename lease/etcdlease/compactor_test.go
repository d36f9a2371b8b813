package etcdlease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// The Compactor compacts, reports NearQuota, and keeps the newest history for the watch for ended sessions.
func TestCompactorShortensTheHistory(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	b := newBackend(t, server)
	lessor := b.open(t, server.InProcess(t), leasetest.Options{})
	s := session(t, lessor, 15*time.Second)
	claim(t, s, key("1"))
	claims, err := lessor.Claims(t.Context())
	require.NoError(t, err)
	first := claims[0].ModRevision

	compacted, near, defragged := make(chan int64, 100), make(chan bool, 10), make(chan int64, 10)
	var size, used, quota atomic.Int64
	c := etcdlease.Compactor{
		Client: server.InProcess(t), Member: server.Member(), Quota: 1000,
		Settings: etcdlease.CompactorSettings{Interval: 20 * time.Millisecond, CompactEvery: 50 * time.Millisecond, DefragMinSize: 1},
		Events: etcdlease.CompactorEvents{
			Compacted:    func(revision int64, _ time.Duration) { compacted <- revision },
			NearQuota:    func(is bool, _, _ int64) { near <- is },
			Defragmented: func(_, after int64, _ time.Duration) { defragged <- after },
			SizeRead:     func(s, u, q int64) { size.Store(s); used.Store(u); quota.Store(q) },
			Failed:       func(err error) { t.Error(err) },
		},
	}
	stop := run(t, &c)
	for revision := int64(0); revision <= first; {
		claim(t, s, key("2")).Release()
		select {
		case revision = <-compacted:
		default:
		}
	}
	require.True(t, <-near, "far from the quota")
	stop()
	require.False(t, size.Load() < used.Load(), "a file of %d bytes, %d in use, quota %d", size.Load(), used.Load(), quota.Load())
	require.False(t, used.Load() <= 0, "a file of %d bytes, %d in use, quota %d", size.Load(), used.Load(), quota.Load())
	require.EqualValues(t, 1000, quota.Load(), "a file of %d bytes, %d in use, quota %d", size.Load(), used.Load(), quota.Load())
	if _, err := b.admin.Get(t.Context(), "x", clientv3.WithRev(first)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading what was compacted: %v", err)
	}
	claims, err = lessor.Claims(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, claims)
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	for _, c := range []*clientv3.Client{server.InProcess(t), server.Dial(t)} {
		err := etcdlease.CheckServer(t.Context(), c)
		require.NoError(t, err)
	}
	nobody := etcdtest.DialSocket(t, t.TempDir()+"/nobody")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := etcdlease.CheckServer(ctx, nobody)
	require.ErrorIs(t, err, lease.ErrUnavailable, "nobody answers: %v", err)
}

// New succeeds without a reachable etcd; Ready returns the error.
func TestNewDoesNotNeedEtcd(t *testing.T) {
	lessor, err := etcdlease.New(etcdlease.Config{
		Client: etcdtest.DialSocket(t, t.TempDir()+"/nobody"), Deployment: "d", Ledger: leasetest.NewLedger(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err = lessor.Ready(ctx)
	require.ErrorIs(t, err, lease.ErrUnavailable, "ready: %v", err)
	_, err = lessor.NewSession(ctx, lease.Spec{})
	require.ErrorIs(t, err, lease.ErrUnavailable, "new session: %v", err)
	err = lessor.Close(ctx)
	require.NoError(t, err)
}

// A file of mostly free pages is defragmented, and the member still works.
func TestCompactorDefragments(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	admin := server.InProcess(t)
	for range 100 { // history: 5 MB, of which 50 KB are needed
		_, err := admin.Put(t.Context(), "k", strings.Repeat("v", 50_000))
		require.NoError(t, err)
	}
	defragged := make(chan [2]int64, 10)
	c := etcdlease.Compactor{
		Client: server.InProcess(t), Member: server.Member(),
		Settings: etcdlease.CompactorSettings{Interval: 20 * time.Millisecond, CompactEvery: 50 * time.Millisecond, DefragMinSize: 2 << 20},
		Events: etcdlease.CompactorEvents{
			Defragmented: func(before, after int64, _ time.Duration) { defragged <- [2]int64{before, after} },
			Failed:       func(err error) { t.Error(err) },
		},
	}
	defer run(t, &c)()
	for n := 0; ; n++ { // pages are counted as free only after another write
		_, err := admin.Put(t.Context(), "other", fmt.Sprint(n))
		require.NoError(t, err)
		select {
		case size := <-defragged:
			require.False(t, size[1] >= size[0]/2, "the file had %d bytes and has %d", size[0], size[1])
			return
		case <-t.Context().Done():
			t.Fatal("it was never defragmented")
		default:
		}
	}
}

// run starts a compactor and returns a function that stops it.
func run(t *testing.T, c *etcdlease.Compactor) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	return func() { cancel(); <-ended }
}

// The Compactor makes a full member writable again, even with more than half of the quota in use. The space must come
// from free pages, because claims and sessions are deleted only by their owners.
func TestCompactorBringsAFullMemberBack(t *testing.T) {
	t.Parallel()
	const quota = 8 << 20
	server := etcdtest.StartWith(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = quota })
	admin := server.InProcess(t)
	put := func(n int) error {
		_, err := admin.Put(t.Context(), fmt.Sprint("k", n), strings.Repeat("v", 50_000))
		return err
	}
	for n := range 100 { // 5 MB of the 8
		err := put(n)
		require.NoError(t, err)
	}
	var err error
	for n := 0; err == nil; n++ { // and history
		err = put(n % 5)
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	full, defragged := make(chan bool, 10), make(chan int64, 10)
	c := etcdlease.Compactor{
		Client: server.InProcess(t), Member: server.Member(), Quota: quota,
		Settings: etcdlease.CompactorSettings{Interval: 20 * time.Millisecond, CompactEvery: 100 * time.Millisecond, DefragPause: time.Second},
		Events: etcdlease.CompactorEvents{
			NoSpace:      func(is bool) { full <- is },
			Defragmented: func(_, after int64, _ time.Duration) { defragged <- after },
			Failed:       func(err error) { t.Error(err) },
		},
	}
	defer run(t, &c)()
	for _, want := range []bool{true, false} {
		select {
		case is := <-full:
			require.Equal(t, want, is, "full: %v", is)
		case <-time.After(time.Minute):
			status, err := admin.Status(t.Context(), "")
			t.Fatalf("it is never full: %v; %+v, %v", want, status, err)
		}
	}
	err = put(0)
	require.NoError(t, err)
	after := <-defragged
	require.False(t, after < quota/2, "no more than %d bytes were in use, which is not the case that was to be tried", after)
}

// A remote etcd belongs to its operator: nothing is compacted, defragmented or disarmed, and its state is reported.
func TestCompactorOnlyReportsARemoteEtcd(t *testing.T) {
	t.Parallel()
	const quota = 8 << 20
	server := etcdtest.StartWith(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = quota })
	admin := server.InProcess(t)
	var err error
	for n := 0; err == nil; n++ {
		_, err = admin.Put(t.Context(), "k", strings.Repeat("v", 50_000))
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	full, sizes := make(chan bool, 1), make(chan int64, 1)
	c := etcdlease.Compactor{
		Client:   server.Dial(t),
		Settings: etcdlease.CompactorSettings{Interval: 10 * time.Millisecond, CompactEvery: 10 * time.Millisecond, DefragMinSize: 1, DefragPause: 10 * time.Millisecond},
		Events: etcdlease.CompactorEvents{
			SizeRead: func(_, _, quota int64) { sizes <- quota }, NoSpace: func(is bool) { full <- is },
			Failed: func(err error) { t.Error(err) },
		},
	}
	stop := run(t, &c)
	for range 10 {
		require.EqualValues(t, quota, <-sizes)
	}
	require.True(t, <-full)
	go func() {
		for range sizes { // lets Run end
		}
	}()
	stop()
	close(sizes)
	_, err = admin.Get(t.Context(), "k", clientv3.WithRev(2))
	require.NoError(t, err, "its history was compacted")
	alarms, err := admin.AlarmList(t.Context())
	require.NoError(t, err)
	require.Len(t, alarms.Alarms, 1)
}
