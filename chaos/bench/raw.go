package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/cockroachdb/pebble/v2"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

// rawPath is the minimum of durable writes of a flight: one claim in etcd and two entries in a raft log.
type rawPath struct {
	member *embed.Etcd
	client *clientv3.Client
	lease  clientv3.LeaseID
	log    *pebblelog.Store
	raft   *raft.Raft

	claims  *batcher
	applies *batcher
}

// entry is about as long as an encoded command.
var entry = make([]byte, 256)

func openRaw(ctx context.Context, dir string) (*rawPath, error) {
	r := &rawPath{}
	if err := r.openEtcd(ctx, filepath.Join(dir, "etcd")); err != nil {
		r.close()
		return nil, err
	}
	if err := r.openRaft(filepath.Join(dir, "raft")); err != nil {
		r.close()
		return nil, err
	}
	const claimsInTxn = 60
	r.claims = newBatcher(claimsInTxn, r.claimAll)
	r.applies = newBatcher(1024, func(items []string) error {
		packed := make([]byte, 0, len(items)*len(entry))
		for range items {
			packed = append(packed, entry...)
		}
		return r.apply(packed)
	})
	return r, nil
}

func (r *rawPath) openEtcd(ctx context.Context, dir string) (err error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	nowhere := url.URL{Scheme: "http", Host: "localhost:2380"}
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{nowhere}, []url.URL{nowhere}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	if r.member, err = embed.StartEtcd(cfg); err != nil {
		return err
	}
	select {
	case <-r.member.Server.ReadyNotify():
	case <-ctx.Done():
		return ctx.Err()
	}
	r.client = v3client.New(r.member.Server)
	grant, err := r.client.Grant(ctx, 3600)
	if err != nil {
		return err
	}
	r.lease = grant.ID
	return nil
}

// noopFSM is a raft state machine without state.
type noopFSM struct{ raft.FSM }

func (noopFSM) Apply(*raft.Log) any { return nil }

func (r *rawPath) openRaft(dir string) (err error) {
	if r.log, err = pebblelog.Open(dir, pebblelog.Options(&pebble.Options{MemTableSize: 32 << 20})); err != nil {
		return err
	}
	address, transport := raft.NewInmemTransport("raw")
	cfg := raft.DefaultConfig()
	cfg.LocalID = "raw"
	cfg.LogOutput = discard{}
	cfg.SnapshotThreshold = math.MaxUint64 // there is no state to snapshot
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	leads := make(chan bool, 4)
	cfg.NotifyCh = leads
	voters := raft.Configuration{Servers: []raft.Server{{ID: "raw", Address: address}}}
	snaps := raft.NewDiscardSnapshotStore()
	if err = raft.BootstrapCluster(cfg, r.log, r.log, snaps, transport, voters); err != nil {
		return err
	}
	if r.raft, err = raft.NewRaft(cfg, noopFSM{}, r.log, r.log, snaps, transport); err != nil {
		return err
	}
	if !<-leads {
		return errors.New("the raft node of the raw path was not elected")
	}
	return nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (r *rawPath) close() {
	if r.raft != nil {
		_ = r.raft.Shutdown().Error()
	}
	if r.log != nil {
		_ = r.log.Close()
	}
	if r.client != nil {
		_ = r.client.Close()
	}
	if r.member != nil {
		r.member.Close()
	}
}

// unbatched makes one claim and two entries, each with its own write.
func (r *rawPath) unbatched(ctx context.Context, n uint64) error {
	if _, err := r.claimTxn(ctx, fmt.Sprintf("raw/%d", n)).Commit(); err != nil {
		return err
	}
	return errors.Join(r.apply(entry), r.apply(entry))
}

// batched shares the writes of concurrent callers, in etcd and in the raft log.
func (r *rawPath) batched(_ context.Context, n uint64) error {
	if err := r.claims.do(fmt.Sprintf("raw/%d", n)); err != nil {
		return err
	}
	return errors.Join(r.applies.do(""), r.applies.do(""))
}

func (r *rawPath) claimTxn(ctx context.Context, key string) clientv3.Txn {
	return r.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "", clientv3.WithLease(r.lease)))
}

func (r *rawPath) claimAll(keys []string) error {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
			[]clientv3.Op{clientv3.OpPut(key, "", clientv3.WithLease(r.lease))}, nil)
	}
	_, err := r.client.Txn(context.Background()).Then(ops...).Commit()
	return err
}

func (r *rawPath) apply(data []byte) error { return r.raft.Apply(data, 0).Error() }

// cleanUp deletes the claims of the raw path, which never releases them, and compacts etcd's history.
func (r *rawPath) cleanUp(ctx context.Context) error {
	deleted, err := r.client.Delete(ctx, "raw/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	_, err = r.client.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical())
	return err
}
