package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

// etcdQuota is where etcd stops to take writes, in bytes. With a compaction every few seconds it stays far below.
const etcdQuota = 2 << 30

// A lone member has nobody to wait for: it elects itself after at most two of these time-outs. The floor of a lease's
// TTL is one and a half of them.
const (
	soloTickMs     = 20
	soloElectionMs = 100
)

// etcd is the embedded member. It listens nowhere: this process calls it directly, and it has no peers.
type etcd struct {
	member *embed.Etcd
	client *clientv3.Client
}

// EtcdError says that the embedded etcd did not start on its directory. The ledger is not concerned.
type EtcdError struct {
	Dir   string
	Cause error
}

func (e *EtcdError) Error() string {
	return fmt.Sprintf("start the embedded etcd in %s: %v", e.Dir, e.Cause)
}

func (e *EtcdError) Unwrap() error { return e.Cause }

// startEtcd starts the member and returns when it answers. Writes of its log are synced: a claim that was answered
// outlives the process. kill is what ends the process where the member cannot go on later.
func startEtcd(ctx context.Context, cfg *embed.Config, kill func(error)) (e *etcd, err error) {
	defer func() {
		if err != nil {
			err = &EtcdError{Dir: cfg.Dir, Cause: err}
		}
	}()
	if err := conceive(cfg.Dir); err != nil {
		return nil, err
	}
	if err := checkEtcd(cfg.Dir); err != nil {
		return nil, err
	}
	birth := newEtcdBirth(func(why error) {
		kill(fmt.Errorf("the embedded etcd in %s cannot go on: %w", cfg.Dir, why))
	})
	member, err := birth.attend(cfg)
	if err != nil {
		return nil, err
	}
	e = &etcd{member: member}
	select {
	case <-member.Server.ReadyNotify():
		birth.over()
		err = born(cfg.Dir)
	case <-member.Server.StopNotify():
		err = errors.New("it stopped before it was ready")
	case err = <-birth.died:
		return nil, err // what is left of it cannot be closed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	e.client = v3client.New(member.Server)
	return e, nil
}

func etcdConfig(dir string, quota int64, log *slog.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "flightd"
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapToSlog{log: log}))
	cfg.LogLevel = "warn"
	nowhere := url.URL{Scheme: "http", Host: "localhost:2380"} // a member must have an address, even one that nobody serves
	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.ListenMetricsUrls = nil, nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{nowhere}, []url.URL{nowhere}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = soloTickMs, soloElectionMs
	cfg.QuotaBackendBytes = quota
	cfg.AutoCompactionRetention = "0"                           // etcdlease.Compactor does it
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 10000, 1000 // an entry is a batch of claims, tens of kilobytes
	cfg.CompactionBatchLimit = 10_000
	cfg.CompactionSleepInterval = time.Millisecond
	cfg.UnsafeNoFsync = false
	return cfg
}

// failed says why the member stopped by itself; it is closed when it was stopped.
func (e *etcd) failed() <-chan struct{} { return e.member.Server.StopNotify() }

// close ends the client before the member: a member that is closed under its clients waits seven seconds for them.
func (e *etcd) close() {
	if e.client != nil {
		_ = e.client.Close() // it has no connection that could fail to close
	}
	e.member.Close()
}
