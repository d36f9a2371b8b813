package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/metrics"
	"github.com/flightd/flightd/remote"
)

// Run starts a node, serves until ctx ends or a part fails, and stops it. Each part is started after the parts that it
// needs, and has returned before those are stopped.
//
// Run returns nil when ctx ended, before or after the node was ready, and every part stopped without an error.
// Otherwise it returns the first error: *NoLedgerError, *LockedError or *flight.InvalidError before any part was started,
// *net.OpError when the address is in use, *WrongDeploymentError.
func Run(ctx context.Context, cfg Config) error {
	n, err := newNode(cfg)
	if err != nil {
		return err
	}
	if cfg.DedicatedProcess {
		defer n.metrics.CollectRaft()()
	}
	if err := n.start(ctx); err != nil {
		if ctx.Err() != nil { // a stop was requested during the start: the interrupted step is not a failure
			n.cfg.Logger.Info("stopped during the start", "at", err)
			err = nil
		}
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		return errors.Join(err, n.parts.wait(canceled)) // stops the parts that were started, in order
	}
	n.cfg.Ready(Ready{URL: n.server.url(), Metrics: n.metricsURL, Data: n.cfg.Data, Deployment: n.store.Header().Deployment, Ledger: n.ledgerInfo(true), Took: time.Since(n.startedAt), Executor: newCountingDoer(n.exec, n.store), Alive: n.alive})
	return n.parts.wait(ctx)
}

func newNode(cfg Config) (*node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg.Logger = slog.New(auth.RedactingHandler(filterWarnings(cfg.Logger).Handler()))
	n := &node{cfg: cfg, startedAt: time.Now(), parts: newGroup(maxParts)}
	n.metrics = metrics.New(metrics.Config{Version: cfg.Version, TTL: lease.DefaultTTL})
	if cfg.TLS.enabled() {
		if n.certs, err = newCertificates(cfg.TLS, cfg.Logger); err != nil {
			return nil, err
		}
		n.metrics.RegisterCertificate(n.certs.expires)
	}
	return n, nil
}

// maxParts is the largest number of parts of a node.
const maxParts = 16

// node is one running process. Its fields are set by start, before the API is open, and constant afterwards.
type node struct {
	cfg       Config
	startedAt time.Time
	parts     *group
	// acceptance is the operator's word about a copied or restored directory; nil: none.
	acceptance *Acceptance
	asked      *askedKeys    // since the ledger was restored
	certs      *certificates // nil: plain HTTP

	server  *server
	store   *clusterstore.Store
	etcd    *etcd
	leases  *lease.Lessor
	exec    *executor.Executor
	remote  *remote.Service
	sweeper *executor.Sweeper
	tokens  *auth.Directory
	limits  *auth.Limiter

	metrics    *metrics.Metrics
	events     executor.Events // metrics and log
	metricsURL string          // URL of the metrics' own address; "": none
	etcdFull   atomic.Bool     // etcd rejects writes; set by the compactor, read by readiness
}

// start starts the parts. n.parts has all that were started, also after an error.
func (n *node) start(ctx context.Context) error {
	if err := n.lockAndListen(); err != nil {
		return err
	}
	if err := n.openStores(ctx); err != nil {
		return err
	}
	if err := n.checkDeployment(); err != nil {
		return err
	}
	if err := n.watchDirectory(); err != nil {
		return err
	}
	if err := n.acceptRestore(ctx); err != nil {
		return err
	}
	// Before the first claim, etcd is checked against the ledger: it may come from an older backup.
	if err := n.openLeases(ctx); err != nil {
		return err
	}
	// From here on an older build rejects the data. This node is the only voter, so nothing else has to read it.
	if err := n.store.RaiseFeatureLevel(ctx); err != nil {
		return err
	}
	if err := n.ensureAdminToken(ctx); err != nil {
		return err
	}
	if err := n.openExecutor(ctx); err != nil {
		return err
	}
	if err := n.finishAcceptance(); err != nil {
		return err
	}
	n.startBackground()
	n.serveRequests()
	return nil
}

// lockAndListen locks the data directory, listens on the address and serves "starting". A start without a ledger, and a
// second node with the same directory or address, fail here, before they change any data.
func (n *node) lockAndListen() error {
	if err := n.checkLedgerExists(); err != nil {
		return err
	}
	if err := n.lock(); err != nil {
		return err
	}
	listener, err := n.cfg.listen("listen", n.cfg.Listen)
	if err != nil {
		return err
	}
	n.server = newServer(listener, n.cfg.tuning.connections, n.certs, n.cfg.Logger)
	n.parts.start("http", n.server.serve)
	return n.serveMonitoring()
}

// lock locks the data directory, which is created if it does not exist.
func (n *node) lock() error {
	lock, err := lockData(n.cfg.Data)
	if err != nil {
		return err
	}
	n.parts.start("data directory", func(ctx context.Context) error {
		<-ctx.Done()
		return lock.Close()
	})
	if err := errors.Join(removeTempFiles(n.cfg.Data), removeTempFiles(filepath.Join(n.cfg.Data, "ledger"))); err != nil {
		return err
	}
	if err := checkPlace(n.cfg.Data, lock); err != nil {
		return err
	}
	n.acceptance, err = readAcceptance(n.cfg.Data)
	return err
}

// openStores opens ledger and etcd concurrently: they take the longest. Raft starts when the ledger agrees with etcd's
// records of it (consistency.go). The ledger is registered first and so closed last, because the parts that stop before it
// may still report.
func (n *node) openStores(ctx context.Context) error {
	type opened struct {
		etcd *etcd
		err  error
	}
	if err := n.setEtcdAside(); err != nil {
		return err
	}
	n.events = n.metrics.Executor(n.executorEvents()) // the ledger emits events before there is an executor
	started := make(chan opened, 1)
	go func() { // openStores waits for it below
		e, err := startEtcd(ctx, etcdConfig(n.etcdDir(), n.cfg.tuning.etcdQuota, n.cfg.Logger), n.cfg.Kill)
		started <- opened{e, err}
	}()
	other := sync.OnceValue(func() opened { return <-started })
	store, err := clusterstore.Open(ctx, clusterstore.Config{
		Dir: filepath.Join(n.cfg.Data, "ledger"), Logger: n.cfg.Logger, Events: n.metrics.Store(n.storeEvents()),
		Limits: clusterstore.Limits{MinFree: n.cfg.tuning.minFree, Kill: n.cfg.Kill},
		CheckPast: func(ctx context.Context, past clusterstore.Past) error {
			o := other()
			if o.err != nil {
				return errEtcdFailed
			}
			return n.checkLedgerHistory(ctx, o.etcd.client, past)
		},
	})
	if err == nil {
		n.store = store
		n.parts.start("ledger", func(ctx context.Context) error {
			<-ctx.Done()
			return n.withStopTimeout(ctx, store.Close)
		})
	}
	o := other()
	if o.err == nil {
		n.etcd = o.etcd
		n.parts.start("etcd", n.waitForEtcd)
	}
	if errors.Is(err, errEtcdFailed) {
		return o.err
	}
	return errors.Join(err, o.err)
}

// errEtcdFailed ends the opening of the ledger when etcd has not started; openStores returns etcd's error.
var errEtcdFailed = errors.New("etcd has not started")

func (n *node) etcdDir() string { return filepath.Join(n.cfg.Data, "etcd") }

// waitForEtcd closes the member when ctx ends. An earlier stop of the member is an error.
func (n *node) waitForEtcd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		n.etcd.close()
		return nil
	case <-n.etcd.stopped():
		n.etcd.close()
		return errors.New("the embedded etcd stopped unexpectedly")
	}
}

// nodeName is the name under which this node's sessions are stored in etcd. A restart finds and revokes the sessions of
// this name, so it must not change.
const nodeName = "dev"

// openLeases opens sessions and claims in etcd, after it has checked that etcd was not restored from an older backup.
// Errors: lease.ErrRegressed, *EtcdError.
func (n *node) openLeases(ctx context.Context) (err error) {
	defer func() {
		if errors.Is(err, etcdlease.ErrUnreadable) {
			err = &EtcdError{Dir: n.etcdDir(), Cause: err}
		}
	}()
	record := n.ledgerRecord()
	lessor, err := etcdlease.New(etcdlease.Config{
		Client: n.etcd.client, Server: n.etcd.member.Server, Deployment: n.store.Header().Deployment, Ledger: ledgerState{n.store}, Node: nodeName, Record: record,
		Events: n.metrics.Leases(n.leaseEvents()),
	})
	if err != nil {
		return fmt.Errorf("open the leases: %w", err)
	}
	n.leases = lessor
	n.metrics.RegisterState(n.store, lessor)
	n.parts.start("leases", func(ctx context.Context) error {
		<-ctx.Done()
		return n.withStopTimeout(ctx, lessor.Close)
	})
	if err := n.checkEtcdHistory(ctx); err != nil {
		return err
	}
	n.parts.start("ledger record", func(ctx context.Context) error { return n.recordLedger(ctx, record) })
	return nil
}

// withStopTimeout calls stop with a context that ends after Config.StopTimeout, although ctx has ended.
func (n *node) withStopTimeout(ctx context.Context, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.StopTimeout)
	defer cancel()
	return stop(ctx)
}

// openExecutor starts the sweeper, the executor with its session, and the service for remote callers. Their stop waits
// for running effects and their reports and then ends the session, so ledger and leases are stopped later.
func (n *node) openExecutor(ctx context.Context) error {
	l := ledger{n.store}
	n.sweeper = executor.NewSweeper(executor.SweeperConfig{Ledger: l, Reader: l, Sessions: n.store, Leases: n.leases, Events: n.events})
	exec, err := executor.New(ctx, executor.Config{Ledger: l, Reader: l, Leases: n.leases, Events: n.events, Checker: n.sweeper, Crash: n.cfg.Crash.At})
	if err != nil {
		return err
	}
	n.exec = exec
	n.limits = auth.NewLimiter(nil, nil, auth.NodeLimits{}) // without credentials, namespaces have no limits
	if !n.cfg.NoCredentials {
		n.tokens = auth.NewDirectory(n.store, n.cfg.Logger)
		waits := min(8192, n.cfg.tuning.connections*3/4) // waiting requests leave connections to others
		n.limits = auth.NewLimiter(n.tokens, n.store, auth.NodeLimits{MaxWaits: waits})
	}
	n.remote, err = remote.New(remote.Config{Ledger: l, Reader: l, Sessions: n.store, Leases: n.leases, Limits: n.limits, Events: n.events, Checker: n.sweeper, Crash: n.cfg.Crash.At})
	if err != nil {
		return err
	}
	n.parts.start("sweeper", func(ctx context.Context) error {
		n.sweeper.Run(ctx)
		return nil
	})
	n.parts.start("executor", func(ctx context.Context) error {
		<-ctx.Done()
		return n.withStopTimeout(ctx, exec.Close)
	})
	n.parts.start("remote callers", func(ctx context.Context) error {
		<-ctx.Done()
		return n.withStopTimeout(ctx, n.remote.Close)
	})
	return nil
}

// serveRequests opens the API. A stop drains it first.
func (n *node) serveRequests() {
	n.server.setAPI(n.api())
	n.parts.start("api", func(ctx context.Context) error {
		<-ctx.Done()
		return n.withStopTimeout(ctx, n.server.drain)
	})
}

// The garbage collector settings of a process that only runs a node. Most of its objects are short-lived, so the
// collector waits until the heap has grown by gcPercent, up to a limit of gcBound. Including memory outside the heap, a
// node stays below 1 GiB for any amount of stored data.
const (
	gcPercent = 300
	gcBound   = 896 << 20
)

// Tune sets GOMAXPROCS, GOGC and GOMEMLIMIT for a process that only runs a node. A variable of that name in the
// environment takes precedence. Programs that embed a node should not call Tune.
//
// A goroutine in fsync blocks its P until the runtime notices, and several goroutines sync logs all the time. So
// GOMAXPROCS is doubled, and other goroutines run meanwhile.
func Tune() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(gcBound)
	}
}
