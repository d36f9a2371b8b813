package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/flightd/flightd/lease/etcdlease"
)

// etcdQuota is the database size in bytes at which etcd rejects writes. A compaction every few seconds keeps it far
// below.
const etcdQuota = 2 << 30

// A single member elects itself after at most two election timeouts. The minimum TTL of a lease is 1.5 election
// timeouts.
const (
	soloTickMs     = 20
	soloElectionMs = 100
)

// etcd is the etcd in which a node keeps its leases: a member in this process, which calls it directly, or an etcd of the
// operator's own.
type etcd struct {
	member *embed.Etcd // nil: an etcd of the operator's own
	client *clientv3.Client
	root   etcdlease.Root // of all keys
}

// server returns the member for direct calls; nil: all calls go through the client.
func (e *etcd) server() etcdlease.EmbeddedServer {
	if e.member == nil {
		return nil
	}
	return e.member.Server
}

// answers returns nil if etcd answers a linearizable read, which needs a leader.
func (e *etcd) answers(ctx context.Context) error {
	_, err := e.client.Get(ctx, e.root.Prefix(""), clientv3.WithCountOnly())
	return err
}

// EtcdError is returned when the embedded etcd cannot start on its directory, or an etcd of the operator's own cannot be used.
// The ledger is not affected.
type EtcdError struct {
	Dir       string   // of the embedded member
	Endpoints []string // of an etcd of the operator's own; none: the embedded member
	Cause     error
}

func (e *EtcdError) Error() string {
	if len(e.Endpoints) > 0 {
		return fmt.Sprintf("use the etcd at %s: %v", strings.Join(e.Endpoints, ","), e.Cause)
	}
	return fmt.Sprintf("start the embedded etcd in %s: %v", e.Dir, e.Cause)
}

func (e *EtcdError) Unwrap() error { return e.Cause }

// startEtcd starts the member and returns when it answers. All errors are *EtcdError. The member syncs its log, so an
// acknowledged claim survives a crash. After the start a fatal error of the member calls kill, which ends the process.
//
// If the process dies before markEtcdStarted has returned, the next start deletes the data of a lone member and creates it
// again. No claim is lost: claims are possible only after startEtcd has returned. The data of one member of several are
// never deleted: it may have voted. setStaleMemberAside moves those of a removed member away.
func startEtcd(ctx context.Context, cfg *embed.Config, kill func(error)) (e *etcd, err error) {
	defer func() {
		if err != nil {
			err = &EtcdError{Dir: cfg.Dir, Cause: err}
		}
	}()
	_, starting := os.Stat(filepath.Join(cfg.Dir, startingName)) // also of the first node of a cluster with a lone node's ledger
	lone := len(cfg.ListenPeerUrls) == 0 || starting == nil
	if lone {
		if err := prepareEtcdDir(cfg.Dir); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "member", "wal")); !lone && errors.Is(err, fs.ErrNotExist) {
		// A start that failed before it had asked the others; checkMember has found that no ledger depends on the member.
	} else if err := checkEtcd(cfg.Dir); err != nil {
		return nil, err
	}
	guarded := newGuardedStart(func(why error) {
		kill(fmt.Errorf("the embedded etcd in %s failed: %w", cfg.Dir, why))
	})
	member, err := guarded.start(cfg)
	if err != nil {
		return nil, err
	}
	e = &etcd{member: member}
	select {
	case <-member.Server.ReadyNotify():
		guarded.markStarted()
		if lone {
			err = markEtcdStarted(cfg.Dir)
		}
	case <-member.Server.StopNotify():
		err = errors.New("it stopped before it was ready")
	case err = <-guarded.failed:
		return nil, err // a member that failed this way cannot be closed
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

// etcdConfig returns the configuration of this node's member; others is nil at a lone node.
func (c *Config) etcdConfig(others *cluster) *embed.Config {
	cfg := etcdConfig(c.etcdDir(), c.tuning.etcdQuota, c.Logger)
	if others != nil {
		others.configureEtcd(cfg)
	}
	return cfg
}

// configureEtcd makes the member one of the cluster's. The token of the members is part of each member's id: members of
// another founding are strangers.
func (c *cluster) configureEtcd(cfg *embed.Config) {
	var all []string // for the first start: those that have a member before, and this node
	known := c.foundingAnswer().Members.Instances
	for _, node := range c.founding.Nodes {
		if known[node.Name] != "" || node.Name == c.name() {
			all = append(all, node.Name+"="+c.etcdURL(node.Name))
		}
	}
	own := []url.URL{{Scheme: "https", Host: c.founding.Self.Etcd}}
	cfg.Name, cfg.InitialCluster, cfg.InitialClusterToken = c.name(), strings.Join(all, ","), c.foundingToken()
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = slices.Clone(own), own
	if at, err := net.ResolveTCPAddr("tcp", own[0].Host); err == nil {
		cfg.ListenPeerUrls[0].Host = at.String() // etcd listens on no name
	}
	cfg.PeerTLSInfo = transport.TLSInfo{CertFile: c.founding.Cert(), KeyFile: c.founding.Key(), TrustedCAFile: c.founding.CACert(), ClientCertAuth: true, SkipClientSANVerify: true}
	// Etcd keeps one status of each peer, for its streams and for single requests. After a partition, an old request may fail when the
	// streams are back: the peer then counts as inactive until a stream breaks, and etcd refuses to add a member. replaceNode checks
	// that a majority of the others answers; a learner has no vote, and in any case etcd makes a voter only of one that has nine tenths
	// of the leader's log.
	cfg.StrictReconfigCheck = false
	cfg.InitialElectionTickAdvance = true                               // an election takes a second here
	if cfg.TickMs, cfg.ElectionMs = 100, 1000; c.founding.Replacement { // the leader has added the member
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	// It warns of each attempt to reach a node that is away; the poller says that once.
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapToSlog{log: c.log}, zap.IncreaseLevel(zap.ErrorLevel)))
}

// foundingToken names the instances of the founding.
func (c *cluster) foundingToken() string {
	hash := sha256.New()
	known := c.foundingAnswer().Members.Instances
	for _, name := range slices.Sorted(maps.Keys(known)) {
		_, _ = fmt.Fprintln(hash, c.founding.ClusterID, name, known[name])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func etcdConfig(dir string, quota int64, log *slog.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "flightd"
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapToSlog{log: log}))
	cfg.LogLevel = "warn"
	nowhere := url.URL{Scheme: "http", Host: "localhost:2380"} // a member needs an address, although it listens on none
	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.ListenMetricsUrls = nil, nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{nowhere}, []url.URL{nowhere}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = soloTickMs, soloElectionMs
	cfg.InitialElectionTickAdvance = false // else raft may begin an election while etcd cuts off the log that it has just applied, and panics
	cfg.QuotaBackendBytes = quota
	cfg.AutoCompactionRetention = "0"                           // etcdlease.Compactor compacts
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 10000, 1000 // an entry is a batch of claims, tens of kilobytes
	cfg.CompactionBatchLimit = 10_000
	cfg.CompactionSleepInterval = time.Millisecond
	cfg.UnsafeNoFsync = false
	return cfg
}

// stopped is closed when the member has stopped; nil if there is none.
func (e *etcd) stopped() <-chan struct{} {
	if e.member == nil {
		return nil
	}
	return e.member.Server.StopNotify()
}

// transferTimeout bounds the attempt of a member that stops to hand etcd's leadership over. By itself, etcd tries for seconds,
// also when the others have stopped.
const transferTimeout = 500 * time.Millisecond

// close closes the client and then the member: a member with an open client waits seven seconds for it.
func (e *etcd) close() {
	if e.client != nil {
		_ = e.client.Close() // nothing depends on it
	}
	if e.member == nil {
		return
	}
	if e.client != nil {
		transferred := make(chan struct{})
		go func() { // ends some seconds after the member at the latest
			defer close(transferred)
			_ = e.member.Server.TryTransferLeadershipOnShutdown() // without it the others elect a leader
		}()
		select {
		case <-transferred:
		case <-time.After(transferTimeout):
		}
		e.member.Server.HardStop()
	}
	e.member.Close()
}
