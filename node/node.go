package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/cert"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/metrics"
	"github.com/flightd/flightd/traces"
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
	if cfg.Process.Dedicated {
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
	n.cfg.Ready(Ready{URL: n.server.url(), Metrics: n.metricsURL, Data: n.cfg.Data, Deployment: n.store.Header().Deployment, Ledger: ledgerInfo(n.store, true), Took: time.Since(n.startedAt), Executor: n.executor(), Alive: monitor{n}.alive})
	return n.parts.wait(ctx)
}

func newNode(cfg Config) (*node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg.Logger = slog.New(auth.RedactingHandler(filterWarnings(cfg.Logger).Handler()))
	n := &node{cfg: cfg, startedAt: time.Now(), parts: newGroup(maxParts)}
	n.metrics = metrics.New(metrics.Config{Version: cfg.Process.Version, TTL: lease.DefaultTTL})
	if cfg.Process.Traces {
		if n.traces, err = traces.FromEnvironment(context.Background(), cfg.Process.Version, cfg.Logger); err != nil {
			return nil, err
		}
	}
	if cfg.Listen.TLS.Cert != "" {
		if n.certs, err = cert.Serve(cfg.Listen.TLS, cfg.Logger); err != nil {
			return nil, err
		}
		n.metrics.RegisterCertificate(n.certs.Expires)
	}
	return n, nil
}

// maxParts is the largest number of parts of a node.
const maxParts = 21

// node is one running process. Its fields are set by start, before the API is open, and constant afterwards.
type node struct {
	cfg       Config
	startedAt time.Time
	parts     *group
	// acceptance is the operator's word about a copied or restored directory; nil: none.
	acceptance *Acceptance
	asked      atomic.Pointer[askedKeys] // since the ledger was restored
	certs      *cert.Served              // nil: plain HTTP

	server *server
	store  *clusterstore.Store
	// openStore is store for the requests of other nodes, which come during the start.
	openStore  atomic.Pointer[clusterstore.Store]
	etcd       *etcd
	record     *etcdlease.LedgerRecord
	act        atomic.Pointer[actor] // nil while this node does not lead
	cluster    *cluster              // nil: a lone node
	prolonging *lease.Lessor         // renews sessions while no node leads; nil at a lone node
	program    program               // that embeds this node; none at a lone node, and during the start

	metrics    *metrics.Metrics
	events     executor.Events  // metrics and log
	traces     *traces.Exporter // nil: no spans are exported
	metricsURL string           // URL of the metrics' own address; "": none
	backedUp   atomic.Int64     // when the last backup has ended, in ms of the wall clock; see lastBackup
	etcdFull   atomic.Bool      // etcd rejects writes; set by the compactor, read by readiness
	defrag     defragTurn       // of the embedded member, in a cluster
	// etcdAnswers says whether etcd has answered the newest request of the poller.
	etcdAnswers atomic.Bool
	// etcdRefused: this node leads and uses no etcd that has lost data or is another deployment's. Its settings may be wrong.
	etcdRefused atomic.Bool
	etcdOutage  etcdOutage
}

// start starts the parts. n.parts has all that were started, also after an error.
func (n *node) start(ctx context.Context) error {
	if err := n.lockAndListen(); err != nil {
		return err
	}
	if n.cfg.Cluster != "" {
		return n.startInCluster(ctx)
	}
	if _, err := os.Stat(filepath.Join(n.cfg.Data, "ledger", membersName)); err == nil {
		return &NotMemberError{Node: soleName, Reason: n.cfg.Data + " is the data of a node of a cluster: name the node's directory with --cluster"}
	}
	if err := n.openStores(ctx); err != nil {
		return err
	}
	if err := n.checkDeployment(); err != nil {
		return err
	}
	if err := watchDirectory(n.parts, &n.cfg); err != nil {
		return err
	}
	if err := n.acceptRestore(ctx); err != nil {
		return err
	}
	monitor{n}.register()
	n.record = n.newRecord()
	a := &actor{node: n, parts: n.parts}
	if err := a.openLeases(); err != nil {
		return err
	}
	// Before the first claim, etcd is checked against the ledger: it may come from an older backup.
	if err := a.checkEtcdHistory(ctx); err != nil {
		return err
	}
	n.startRecord()
	// From here on an older build rejects the data. This node is the only voter, so nothing else has to read it.
	if err := n.store.RaiseFeatureLevel(ctx); err != nil {
		return err
	}
	if err := ensureAdminToken(ctx, &n.cfg, n.store); err != nil {
		return err
	}
	if err := a.openExecutor(ctx); err != nil {
		return err
	}
	if err := a.openRemote(); err != nil {
		return err
	}
	if err := n.finishAcceptance(); err != nil {
		return err
	}
	n.startBackground()
	n.act.Store(a)
	n.serveRequests(a.api())
	return nil
}

// lockAndListen locks the data directory, listens on the address and serves "starting". A start without a ledger, and a
// second node with the same directory or address, fail here, before they change any data.
func (n *node) lockAndListen() error {
	if err := n.cfg.checkLedgerExists(); err != nil {
		return err
	}
	if n.traces != nil { // stops last: the other parts make spans until they have stopped
		n.parts.start("traces", func(ctx context.Context) error {
			<-ctx.Done()
			return n.withStopTimeout(ctx, n.traces.Close)
		})
	}
	if err := n.lock(); err != nil {
		return err
	}
	listener, err := n.cfg.listen("listen", n.cfg.Listen.Address)
	if err != nil {
		return err
	}
	n.server = newServer(listener, n.cfg.tuning.connections, n.certs, n.cfg.Logger)
	n.parts.start("http", n.server.serve)
	return monitor{n}.serve()
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
	if err := checkPlace(n.cfg.Data); err != nil {
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
	n.events = n.metrics.Executor(executorEvents(n.cfg.Logger, &n.asked)) // the ledger emits events before there is an executor
	if n.cluster != nil && !n.cfg.Etcd.enabled() {
		n.parts.start("etcd's connections", n.cluster.endSilentConnections) // before the member, whose start waits for a majority
	}
	started := make(chan opened, 1)
	go func() { // openStores waits for it below
		var o opened
		if n.cfg.Etcd.enabled() {
			o.etcd, o.err = n.cfg.connectEtcd(ctx)
		} else {
			o.etcd, o.err = startEtcd(ctx, n.cfg.etcdConfig(n.cluster), n.cfg.Process.Kill)
		}
		started <- o
	}()
	other := sync.OnceValue(func() opened { return <-started })
	cfg := clusterstore.Config{
		Dir: filepath.Join(n.cfg.Data, "ledger"), Logger: n.cfg.Logger, Events: n.metrics.Store(storeEvents(n.cfg.Logger, n.cluster, &n.events)),
		Clock: clusterstore.Clock{Wall: n.wall}, Memory: storeMemory(debug.SetMemoryLimit(-1)), Limits: clusterstore.Limits{MinFree: n.cfg.tuning.minFree, VerifyEvery: n.cfg.tuning.verifyEvery, Kill: n.cfg.Process.Kill},
		CheckPast: func(ctx context.Context, past clusterstore.Past) error {
			o := other()
			if o.err != nil {
				return errEtcdFailed
			}
			return n.checkLedgerHistory(ctx, o.etcd, past)
		},
	}
	if n.cfg.Process.Neighbours > 0 { // their syncs share one disk
		cfg.Limits.StallTimeout = sharedStall
	}
	if c := n.cluster; c != nil {
		cfg.NodeID, cfg.ClusterID = c.instance, c.founding.ClusterID
		cfg.Peers = &clusterstore.Peers{Transport: c.port.RaftTransport(clusterstore.RaftLogger(n.cfg.Logger)), Levels: c.levels}
		if !c.founding.Replacement { // it waits until the leader adds it
			cfg.Peers.Founding = c.voters()
		}
	}
	store, err := clusterstore.Open(ctx, cfg)
	if err == nil {
		n.store = store
		n.openStore.Store(store)
		n.parts.start("ledger", func(ctx context.Context) error {
			<-ctx.Done()
			return n.withStopTimeout(ctx, store.Close)
		})
		if n.traces != nil {
			n.parts.start("spans of attempts", func(ctx context.Context) error {
				n.traces.Attempts(ctx, store.Feed(), store, func() bool { return n.act.Load() != nil })
				<-ctx.Done()
				return nil
			})
		}
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

// soleName is the name of a lone node's sessions and records in etcd.
const soleName = "dev"

// name is the name under which this node's sessions and records are stored in etcd. A restart finds and revokes the
// sessions of this name, so it must not change.
func (n *node) name() string {
	if n.cluster != nil {
		return n.cluster.name()
	}
	return soleName
}

// executor returns the executor for programs that embed this node. In a cluster it has no method besides Do.
func (n *node) executor() effect.Doer {
	if program := n.program.Load(); program != nil {
		return struct{ effect.Doer }{program}
	}
	if a := n.act.Load(); a != nil && a.exec != nil {
		return newCountingDoer(a.exec, n.store)
	}
	return nil
}

// wall returns this node's wall clock.
func (n *node) wall() time.Time { return time.Now().Add(n.cfg.Process.WallOffset) }

// sharedStall is how long a write may take on a disk that several nodes share.
const sharedStall = 30 * time.Second

// errEtcdFailed ends the opening of the ledger when etcd has not started; openStores returns etcd's error.
var errEtcdFailed = errors.New("etcd has not started")

func (c *Config) etcdDir() string { return filepath.Join(c.Data, "etcd") }

// waitForEtcd closes the member when ctx ends. An earlier stop of the member is an error.
func (n *node) waitForEtcd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		n.etcd.close()
		return nil
	case <-n.etcd.stopped():
		n.etcd.close()
		if n.cluster != nil {
			if reason := n.cluster.refused(ctx); reason != "" {
				return &NotMemberError{Node: n.cluster.name(), Reason: reason}
			}
		}
		return errors.New("the embedded etcd stopped unexpectedly")
	}
}

// clusterStop bounds the stop of each part of a node of a cluster that needs etcd: sessions expire by themselves, and an older
// record remains valid.
const clusterStop = time.Second

// withStopTimeout calls stop with a context that ends after Config.Process.StopTimeout, although ctx has ended. It is no error that an
// etcd of the operator's own is away then: sessions expire by themselves.
func (n *node) withStopTimeout(ctx context.Context, stop func(context.Context) error) error {
	most := n.cfg.Process.StopTimeout
	if n.cluster != nil {
		most = clusterStop
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	err := stop(ctx)
	if n.cfg.Etcd.enabled() && errors.Is(err, lease.ErrUnavailable) {
		n.cfg.Logger.Warn("etcd did not answer at the stop; sessions of this node end when their TTL is over", "error", err)
		return nil
	}
	return err
}

// serveRequests opens the API. A stop drains it first.
func (n *node) serveRequests(api http.Handler) {
	n.server.setAPI(api)
	n.parts.start("api", func(ctx context.Context) error {
		<-ctx.Done()
		return n.withStopTimeout(ctx, n.server.drain)
	})
}
