package etcdlease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// TestCompactorShortensTheHistory, warns of the quota, defragments, and leaves the last moments to the watch for deaths.
func TestCompactorShortensTheHistory(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	st := newStage(t, server)
	desk := st.open(t, server.InProcess(t), leasetest.Options{})
	s := session(t, desk, 15*time.Second)
	first := acquire(t, s, key("1")).Claim().Revision

	compacted, near, defragged := make(chan int64, 100), make(chan bool, 10), make(chan int64, 10)
	var size, used, quota atomic.Int64
	c := etcdlease.Compactor{
		Client: server.InProcess(t), Quota: 1000,
		Settings: etcdlease.CompactorSettings{Look: 20 * time.Millisecond, Every: 50 * time.Millisecond, DefragSize: 1},
		Events: etcdlease.CompactorEvents{
			Compacted:    func(revision int64, _ time.Duration) { compacted <- revision },
			NearQuota:    func(is bool, _, _ int64) { near <- is },
			Defragmented: func(_, after int64, _ time.Duration) { defragged <- after },
			Looked:       func(s, u, q int64) { size.Store(s); used.Store(u); quota.Store(q) },
			Failed:       func(err error) { t.Error(err) },
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	for revision := int64(0); revision <= first; {
		acquire(t, s, key("2")).Release()
		select {
		case revision = <-compacted:
		default:
		}
	}
	if is := <-near; !is {
		t.Error("far from the quota")
	}
	stop()
	<-ended
	if size.Load() < used.Load() || used.Load() <= 0 || quota.Load() != 1000 {
		t.Errorf("a file of %d bytes, %d in use, quota %d", size.Load(), used.Load(), quota.Load())
	}
	if _, err := st.admin.Get(t.Context(), "x", clientv3.WithRev(first)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading what was compacted: %v", err)
	}
	all, err := desk.Claims(t.Context())
	if err != nil || len(all) == 0 {
		t.Errorf("claims %+v, %v", all, err)
	}
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	for _, c := range []*clientv3.Client{server.InProcess(t), server.Dial(t)} {
		if err := etcdlease.CheckServer(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	nobody := etcdtest.DialSocket(t, t.TempDir()+"/nobody")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := etcdlease.CheckServer(ctx, nobody); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("nobody answers: %v", err)
	}
}

// A node whose etcd is away starts, and says so.
func TestNewDoesNotNeedEtcd(t *testing.T) {
	desk, err := etcdlease.New(etcdlease.Config{
		Client: etcdtest.DialSocket(t, t.TempDir()+"/nobody"), Deployment: "d", Boot: newBoot(), Guard: noLedger{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := desk.Ready(ctx); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("ready: %v", err)
	}
	if _, err := desk.NewSession(ctx, lease.Spec{}); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("new session: %v", err)
	}
	if err := desk.Close(ctx); err != nil {
		t.Error(err)
	}
}
