package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/notify"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/remote"
	"github.com/flightd/flightd/saga/driver"
)

// actor is the part of a node that acts: sessions and claims, the service for callers, and the API. A lone node has one
// actor as long as it runs. A node of a cluster has one for each term in which it leads the ledger.
type actor struct {
	*node
	parts *group // the parts of the actor; those of a lone node are the node's

	// The fields up to the next empty line are set in a cluster only.
	term      uint64                  // in which the node leads
	lifetime  context.Context         // ends with the term
	end       context.CancelCauseFunc // ends lifetime
	handler   http.Handler            // of the API, for requests that serveInTerm takes
	check     leaderCheck
	replacing sync.Mutex // held from the check of a replacement to its decision, and while a successor gets its votes

	leases  *lease.Lessor
	exec    *executor.Executor // nil in a cluster
	remote  httpapi.Remote
	pools   *remote.Pools
	sagas   *driver.Driver
	sweeper *executor.Sweeper
	notify  *notify.Notifier
	tokens  *auth.Directory
	limits  *auth.Limiter
}

// openLeases opens sessions and claims in etcd. It does not wait for etcd.
func (a *actor) openLeases() error {
	lessor, err := etcdlease.New(etcdlease.Config{
		Client: a.etcd.client, Server: a.etcd.server(), Prefix: a.etcd.root.Prefix(a.store.Header().Deployment), Deployment: a.store.Header().Deployment,
		Ledger: a.store, Node: a.name(), Record: a.record, Events: a.metrics.Leases(leaseEvents(a.cfg.Logger)),
	})
	if err != nil {
		return fmt.Errorf("open the leases: %w", err)
	}
	a.leases = lessor
	a.parts.start("leases", func(ctx context.Context) error {
		<-ctx.Done()
		return a.withStopTimeout(ctx, lessor.Close)
	})
	return nil
}

// openExecutor starts the executor of this process, with its session. Its stop waits for running effects and their reports
// and then ends the session, so ledger and leases are stopped later.
func (a *actor) openExecutor(ctx context.Context) error {
	a.openSweeper()
	exec, err := executor.New(ctx, executor.Config{Ledger: a.store, Reader: a.store, Leases: a.leases, Events: a.events, Checker: a.sweeper, Crash: a.cfg.Process.Crash.At, Traces: a.traces != nil})
	if err != nil {
		return err
	}
	a.exec = exec
	a.parts.start("executor", func(ctx context.Context) error {
		<-ctx.Done()
		return a.withStopTimeout(ctx, exec.Close)
	})
	return nil
}

// openSweeper starts the sweeper, which ends the attempts of sessions that have ended.
func (a *actor) openSweeper() {
	cfg := executor.SweeperConfig{Ledger: a.store, Reader: a.store, Sessions: a.store, Leases: a.leases, Events: a.events}
	if a.cluster != nil {
		cfg.MayEnd = a.mayEnd
	}
	a.sweeper = executor.NewSweeper(cfg)
	a.parts.start("sweeper", func(ctx context.Context) error {
		a.sweeper.Run(ctx)
		return nil
	})
}

// openRemote starts the service for remote callers. openSweeper must have returned.
func (a *actor) openRemote() error {
	a.limits = auth.NewLimiter(nil, nil, auth.NodeLimits{}) // without credentials, namespaces have no limits
	if !a.cfg.NoCredentials {
		a.tokens = auth.NewDirectory(a.store, a.cfg.Logger)
		waits := min(8192, a.cfg.tuning.connections*3/4) // waiting requests leave connections to others
		a.limits = auth.NewLimiter(a.tokens, a.store, auth.NodeLimits{MaxWaits: waits})
	}
	service, err := remote.New(cmp.Or(a.lifetime, context.Background()), remote.Config{Ledger: a.store, Reader: a.store, Sessions: a.store, Leases: a.leases, Limits: a.limits, Events: a.events, Checker: a.sweeper, Crash: a.cfg.Process.Crash.At})
	if err != nil {
		return err
	}
	a.remote, a.pools = service, remote.NewPools(service, a.store.Jobs())
	a.parts.start("jobs", func(ctx context.Context) error {
		a.pools.Run(ctx)
		return nil
	})
	owner := "flightd"
	if a.cluster != nil {
		owner = a.cluster.name()
	}
	a.sagas = driver.New(driver.Config{Ledger: a.store, Jobs: a.store.Jobs(), Events: a.events, Ended: a.metrics.SagaEnded, Owner: owner, Logger: a.cfg.Logger})
	a.startInTerm("sagas", a.sagas.Run)
	a.openNotifier()
	a.parts.start("remote callers", func(ctx context.Context) error {
		<-ctx.Done()
		return a.withStopTimeout(ctx, service.Close)
	})
	return nil
}

// startInTerm starts a part that ends with the term: the parts of a term end one after the other, and the next term does not wait for
// them.
func (a *actor) startInTerm(name string, run func(context.Context)) {
	a.parts.start(name, func(ctx context.Context) error {
		inTerm, end := context.WithCancel(ctx)
		defer end()
		if a.lifetime != nil {
			defer context.AfterFunc(a.lifetime, end)()
		}
		run(inTerm)
		<-ctx.Done()
		return nil
	})
}

// notifyLedger is the ledger as package notify needs it.
type notifyLedger struct {
	*clusterstore.Store
	*clusterstore.Feed
}

// openNotifier starts the notifications.
func (a *actor) openNotifier() {
	a.notify = notify.New(notify.Config{
		Ledger: notifyLedger{a.store, a.store.Feed()}, Node: a.name(), PublicURL: a.publicURL(), Private: a.cfg.Listen.NotifyPrivate, Loopback: a.cfg.NoCredentials,
		Quarantined: func() []string { return a.store.Stats().QuarantineFiles }, Wall: a.wall, Logger: a.cfg.Logger, Sent: a.metrics.NotificationSent,
		Queues: func(yield func(notify.Queue) bool) {
			jobs := a.store.Jobs()
			for q := range a.pools.Queues("", "") {
				if !jobs.Paused(q.Namespace, q.Action) && !yield(notify.Queue{Namespace: q.Namespace, Action: q.Action, Oldest: q.Oldest}) {
					return
				}
			}
		},
	})
	a.startInTerm("notifications", a.notify.Run)
}

// errNotActing is the error of a check that needs a node that acts.
var errNotActing = errors.New("this node does not lead the ledger")
