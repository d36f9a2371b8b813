package node

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/lease"
)

// program has the executor of the program that embeds a node of a cluster.
type program struct{ atomic.Pointer[client.Client] }

// open starts the executor for the program that embeds this node of a cluster: a client whose requests the forwarder takes in
// this process, as it takes those of callers. The program is trusted as the node is, and needs no token.
//
// Its reports wait in the data directory while no node leads the ledger, and the next start sends those that are left. Its stop
// waits for running effects and their reports at most for Config.Process.StopTimeout, while this node passes requests on.
func (p *program) open(ctx context.Context, n *node, forwarder http.Handler) error {
	name := n.cluster.name()
	asNode := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "node/" + name
		forwarder.ServeHTTP(w, r.WithContext(httpapi.AsNode(r.Context(), name)))
	})
	program, err := client.Connect(ctx, name, client.WithHandler(asNode), client.WithDeployment(n.store.Header().Deployment),
		client.WithOwner("node/"+name), client.WithSpool(filepath.Join(n.cfg.Data, "reports")), client.WithLogger(n.cfg.Logger))
	if err != nil {
		return fmt.Errorf("open the executor: %w", err)
	}
	p.Store(program)
	n.parts.start("executor", func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Process.StopTimeout)
		defer cancel()
		return program.Close(ctx)
	})
	return nil
}

// sessionsInUse returns the sessions that the program of this node uses for running effects, also those that ended in etcd.
func (p *program) sessionsInUse() []string {
	if program := p.Load(); program != nil {
		return program.SessionsInUse()
	}
	return nil
}

// inUseTimeout bounds the question to the other nodes whether they use a session.
const inUseTimeout = time.Second

// mayEnd returns the sessions whose attempts this node, which leads, may end: those that no program of a node uses. A node that
// does not answer within inUseTimeout uses none. It returns none for a TTL after etcd was away, so that owners report first.
//
// Only ends are delayed: a session that has ended in etcd starts nothing, and a report needs none.
func (a *actor) mayEnd(ctx context.Context, ended []flight.Session) []flight.Session {
	if a.etcdOutage.within(time.Now(), lease.DefaultTTL) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, inUseTimeout)
	defer cancel()
	answers := make([][]string, len(a.cluster.others()))
	var asked sync.WaitGroup
	for i, name := range a.cluster.others() {
		asked.Go(func() {
			if a.cluster.ask(ctx, name, sessionsPath, &answers[i]) != nil {
				answers[i] = nil
			}
		})
	}
	asked.Wait()
	used := slices.Concat(append(answers, a.program.sessionsInUse())...)
	return slices.DeleteFunc(ended, func(s flight.Session) bool { return slices.Contains(used, string(s.ID)) })
}

// outagePause is the least time between two outages that count, so that an etcd that stalls again and again keeps no key blocked.
const outagePause = time.Minute

// etcdOutage remembers when etcd answered again after it had not answered for unfitTimeout.
type etcdOutage struct {
	mu       sync.Mutex
	answered time.Time // last; zero: not yet
	back     time.Time // zero: etcd was not away
}

// note records whether etcd has answered. It returns how long etcd was away if it is back now; 0: it is not, or that does not count.
func (o *etcdOutage) note(now time.Time, answers bool) (away time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !answers {
		return 0
	}
	if silent := now.Sub(o.answered); !o.answered.IsZero() && silent > unfitTimeout && now.Sub(o.back) > outagePause {
		o.back, away = now, silent
	}
	o.answered = now
	return away
}

// within reports whether etcd came back less than d ago, or has not answered for unfitTimeout: it may have come back, and the sweeper
// has heard of that first.
func (o *etcdOutage) within(now time.Time, d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.back.IsZero() && now.Sub(o.back) < d || !o.answered.IsZero() && now.Sub(o.answered) > unfitTimeout
}
