package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/metrics"
	"github.com/flightd/flightd/remote"
)

// Run is the life of one node, from its birth to its death in order. It returns nil when ctx ended, ready or not, and
// everything was put away, else what went wrong: *LockedError and *flight.InvalidError before anything was started, *net.OpError
// when the address is taken.
//
// Each part is started after those it needs, and stopped before them; and only when they are home.
func Run(ctx context.Context, cfg Config) error {
	n, err := newNode(cfg)
	if err != nil {
		return err
	}
	if cfg.Alone {
		defer n.metrics.CollectRaft()()
	}
	if err := n.start(ctx); err != nil {
		if ctx.Err() != nil { // it was told to stop before it was ready; what it then said is no failure
			n.cfg.Logger.Info("told to stop before it was ready", "at", err)
			err = nil
		}
		dead, cancel := context.WithCancel(ctx)
		cancel()
		return errors.Join(err, n.parts.wait(dead)) // what was started is put away as ever
	}
	n.cfg.Ready(Ready{URL: n.front.url(), Metrics: n.watching, Data: n.cfg.Data, Deployment: n.store.Header().Deployment, Took: time.Since(n.born), Executor: newCounted(n.exec, n.store)})
	return n.parts.wait(ctx)
}

func newNode(cfg Config) (*node, error) {
	cfg, err := cfg.withDefaults()
	cfg.Logger = quietly(cfg.Logger)
	n := &node{cfg: cfg, born: time.Now(), parts: newGroup(mostParts)}
	n.metrics = metrics.New(metrics.Config{Version: cfg.Version, TTL: lease.DefaultTTL})
	return n, err
}

// mostParts is how many parts a node may have.
const mostParts = 16

// node is one process while it lives.
type node struct {
	cfg   Config
	born  time.Time
	parts *group

	front   *front
	store   *clusterstore.Store
	etcd    *etcd
	desk    *lease.Lessor
	exec    *executor.Executor
	remote  *remote.Service
	sweeper *executor.Sweeper

	metrics  *metrics.Metrics
	events   executor.Events // what metrics and log are told
	watching string          // where metrics are served apart; "": nowhere
	noSpace  atomic.Bool     // etcd refuses to write
}

// start brings the parts up. What it started is in n.parts, also when it fails.
func (n *node) start(ctx context.Context) error {
	if err := n.settleIn(); err != nil {
		return err
	}
	// The two stores know nothing of each other and take the longest: side by side.
	if err := n.openStores(ctx); err != nil {
		return err
	}
	// The lease side is held against the ledger's word about the past before it claims anything.
	if err := n.openDesk(ctx); err != nil {
		return err
	}
	if err := n.openExecutor(ctx); err != nil {
		return err
	}
	n.keepHouse()
	n.openDoor()
	return nil
}

// settleIn takes the data directory and the address, so that a second node on either is refused before it touches
// anything, and answers that this one is starting.
func (n *node) settleIn() error {
	dir, err := filepath.Abs(n.cfg.Data)
	if err != nil {
		return err
	}
	n.cfg.Data = dir
	lock, err := lockData(dir)
	if err != nil {
		return err
	}
	n.parts.start("data directory", func(ctx context.Context) error {
		<-ctx.Done()
		return lock.Close()
	})
	n.tellCopy(lock)
	listener, err := listen("listen", n.cfg.Listen)
	if err != nil {
		return err
	}
	n.front = newFront(listener)
	// It answers from here on, even if only that the node is starting.
	n.parts.start("http", n.front.serve)
	return n.openWatch()
}

// openStores opens ledger and etcd. The ledger is stopped last: whoever else stops may still have to report.
func (n *node) openStores(ctx context.Context) error {
	type opened struct {
		etcd *etcd
		err  error
	}
	n.events = n.metrics.Executor(n.executorEvents()) // the ledger may have something for them before there is an executor
	other := make(chan opened, 1)
	go func() {
		e, err := startEtcd(ctx, etcdConfig(n.etcdDir(), n.cfg.tuning.etcdQuota, n.cfg.Logger), n.cfg.Kill)
		other <- opened{e, err}
	}()
	store, err := clusterstore.Open(ctx, clusterstore.Config{
		Dir: filepath.Join(n.cfg.Data, "ledger"), Logger: n.cfg.Logger, Events: n.metrics.Store(n.storeEvents()),
		Guard: clusterstore.Guard{MinFree: n.cfg.tuning.minFree, Kill: n.cfg.Kill},
	})
	if err == nil {
		n.store = store
		n.parts.start("ledger", func(ctx context.Context) error {
			<-ctx.Done()
			return n.within(ctx, store.Close)
		})
	}
	o := <-other
	if o.err == nil {
		n.etcd = o.etcd
		n.parts.start("etcd", n.keepEtcd)
	}
	return errors.Join(err, o.err)
}

func (n *node) etcdDir() string { return filepath.Join(n.cfg.Data, "etcd") }

// keepEtcd waits for the end of the member, or ends it.
func (n *node) keepEtcd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		n.etcd.close()
		return nil
	case <-n.etcd.failed():
		n.etcd.close()
		return errors.New("it stopped by itself")
	}
}

// openDesk opens the access to sessions and claims in etcd.
func (n *node) openDesk(ctx context.Context) (err error) {
	defer func() {
		if errors.Is(err, etcdlease.ErrUnreadable) {
			err = &EtcdError{Dir: n.etcdDir(), Cause: err}
		}
	}()
	if err := n.checkLedger(ctx); err != nil {
		return err
	}
	desk, err := etcdlease.New(etcdlease.Config{
		Client: n.etcd.client, Server: n.etcd.member.Server, Deployment: n.store.Header().Deployment, Guard: guard{n.store}, Node: "dev",
		Events: n.metrics.Leases(n.leaseEvents()),
	})
	if err != nil {
		return fmt.Errorf("open the leases: %w", err)
	}
	n.desk = desk
	n.metrics.Watch(n.store, desk)
	n.parts.start("leases", func(ctx context.Context) error {
		<-ctx.Done()
		return n.within(ctx, desk.Close)
	})
	if err := n.checkPast(ctx); err != nil {
		return err
	}
	n.parts.start("witness", n.witness)
	return nil
}

// within gives a part that is told to stop its share of time to do so.
func (n *node) within(ctx context.Context, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.StopWithin)
	defer cancel()
	return stop(ctx)
}

// openExecutor makes the sweeper, the executor with its session, and the service for remote callers. To stop them is to let
// running effects finish and report, and then to end the session: ledger and leases are stopped later, for that.
func (n *node) openExecutor(ctx context.Context) error {
	book := ledger{n.store}
	n.sweeper = executor.NewSweeper(executor.SweeperConfig{Ledger: book, Memory: book, Sessions: n.store, Leases: n.desk, Events: n.events})
	exec, err := executor.New(ctx, executor.Config{Ledger: book, Memory: book, Leases: n.desk, Events: n.events, Checker: n.sweeper, Crash: n.cfg.Crash.At})
	if err != nil {
		return err
	}
	n.exec = exec
	n.remote, err = remote.New(remote.Config{Ledger: book, Memory: book, Sessions: n.store, Leases: n.desk, Events: n.events, Checker: n.sweeper, Crash: n.cfg.Crash.At})
	if err != nil {
		return err
	}
	n.parts.start("sweeper", func(ctx context.Context) error {
		n.sweeper.Run(ctx)
		return nil
	})
	n.parts.start("executor", func(ctx context.Context) error {
		<-ctx.Done()
		return n.within(ctx, exec.Close)
	})
	n.parts.start("remote callers", func(ctx context.Context) error {
		<-ctx.Done()
		return n.within(ctx, n.remote.Close)
	})
	return nil
}

// openDoor lets requests in. It is the first thing that a stop takes back.
func (n *node) openDoor() {
	n.front.open(n.api())
	n.parts.start("door", func(ctx context.Context) error {
		<-ctx.Done()
		return n.within(ctx, n.front.drain)
	})
}

// The memory that a process that is a node and nothing else trades for time: most of what it allocates dies young, so
// the collector may wait until the heap has grown by gcPercent, up to a bound at which it works as hard as it must.
// With what is no heap, a node stays below 1 GiB however much it stores.
const (
	gcPercent = 300
	gcBound   = 896 << 20
)

// Tune sets this process up for the work of a node, unless GOGC, GOMEMLIMIT or GOMAXPROCS say otherwise. It is for
// programs that are a node; one that embeds a node decides for itself.
//
// A goroutine that waits for the disk keeps its processor until the runtime notices, and several of them sync logs all
// the time; so there are twice as many places to run as processors, and others run meanwhile.
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
