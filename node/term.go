package node

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// errTermOver is the cause when the end of a term interrupts a request.
var errTermOver = errors.New("the node that took the request does not lead the ledger any more")

// runTerms runs an actor in each term in which this node leads the ledger, until ctx ends.
func (n *node) runTerms(ctx context.Context) error {
	var ending sync.WaitGroup // of the actors of earlier terms
	defer ending.Wait()
	for ctx.Err() == nil {
		if term, leads := n.store.Leading(); leads {
			if err := (&actor{node: n, parts: newGroup(maxParts), term: term}).lead(ctx, &ending); err != nil {
				n.cfg.Logger.Warn("this node leads the ledger and cannot act; it is retried", "error", err)
			}
		}
		n.cluster.waitChange(ctx, 200*time.Millisecond)
	}
	return nil
}

// lead acts until the term or ctx ends. The parts of the actor end afterwards, in a goroutine that ending counts: a part may
// wait for an etcd that does not answer, and the next term does not.
func (a *actor) lead(ctx context.Context, ending *sync.WaitGroup) error {
	a.lifetime, a.end = context.WithCancelCause(ctx)
	defer ending.Go(func() {
		canceled, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel()
		if err := a.parts.wait(canceled); err != nil {
			a.cfg.Logger.Info("a part of this node's last term ended with an error", "term", a.term, "error", err)
		}
	})
	defer a.end(&effect.Unavailable{Code: string(wire.LeaderLost), Cause: errTermOver})
	if err := a.openLeases(); err != nil {
		return err
	}
	a.openSweeper()
	if err := a.openRemote(); err != nil {
		return err
	}
	a.handler, a.check.barrier = a.api(), a.store.Barrier
	a.parts.start("lease epoch", a.endRaises)
	a.parts.start("first proposals", func(ctx context.Context) error {
		a.proposeFirst(ctx)
		<-ctx.Done()
		return nil
	})
	a.parts.start("replacements", func(ctx context.Context) error {
		a.replaceNodes(ctx)
		return nil
	})
	a.parts.start("defragmentation turns", func(ctx context.Context) error {
		a.giveTurns(ctx)
		return nil
	})
	a.act.Store(a)
	a.cfg.Logger.Info("this node leads the ledger and acts", "term", a.term)
	a.cluster.changed.Broadcast()
	for !a.over() && ctx.Err() == nil {
		a.cluster.waitChange(ctx, 100*time.Millisecond)
	}
	a.act.Store(nil)
	a.cfg.Logger.Info("this node does not act any more", "term", a.term)
	return nil
}

// over reports whether this node does not lead any more in the term of the actor.
func (a *actor) over() bool {
	term, leads := a.store.Leading()
	return !leads || term != a.term
}

// sayAfter is how long the first proposals may fail before that is logged: a node that was just started has not answered yet.
const sayAfter = 10 * time.Second

// proposeFirst raises the feature level when all voters read it, and proposes the token of the founding. It repeats what fails
// until ctx ends.
func (a *actor) proposeFirst(ctx context.Context) {
	for began, said := time.Now(), false; ctx.Err() == nil; {
		err := a.store.RaiseFeatureLevel(ctx)
		if err == nil {
			err = a.ensureFoundingToken(ctx)
		}
		if h := a.store.Header(); err == nil && h.FeatureLevel() >= flight.MaxLevel {
			return // else a node of an older build votes, and may be upgraded in this term
		}
		if err != nil && !said && time.Since(began) > sayAfter {
			a.cfg.Logger.Warn("the ledger lacks its newest feature level or its first token; it is retried", "error", err)
			said = true
		}
		a.cluster.waitChange(ctx, pollEvery)
	}
}

// serveInTerm serves a request of a caller as long as the term lasts. When it ends, so do the request and its right to an
// answer: 503 leader_lost.
func (a *actor) serveInTerm(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(a.lifetime, func() { cancel(context.Cause(a.lifetime)) })()
	w.Header().Set(wire.HeaderLeader, a.cluster.name())
	a.handler.ServeHTTP(w, r.WithContext(ctx))
}

// replaceAnswer replaces answers after the end of the term, and answers that are only true if this node still leads.
func (a *actor) replaceAnswer(ctx context.Context, status int, current bool) wire.Code {
	if status < http.StatusInternalServerError && a.over() || current && (a.check.stillLeads(ctx) != nil || a.over()) {
		return wire.LeaderLost
	}
	return ""
}

// leaderCheck asks a majority of the nodes whether this one still leads. Checks that are requested while one is running share
// the next one. A check after a read is as good as one before it: if this node still led, no other node had committed anything.
type leaderCheck struct {
	barrier func(context.Context) error

	mu      sync.Mutex // guards the fields below
	running bool
	waiting []chan error
}

// checkTimeout bounds one check. A leader without a majority steps down before that.
const checkTimeout = 2 * time.Second

func (c *leaderCheck) stillLeads(ctx context.Context) error {
	answer := make(chan error, 1)
	c.mu.Lock()
	c.waiting = append(c.waiting, answer)
	start := !c.running
	c.running = true
	c.mu.Unlock()
	if start {
		go c.run() // ends at most checkTimeout after the last request
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *leaderCheck) run() {
	for {
		c.mu.Lock()
		round := c.waiting
		c.waiting, c.running = nil, len(round) > 0
		c.mu.Unlock()
		if len(round) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		err := c.barrier(ctx)
		cancel()
		for _, answer := range round {
			answer <- err
		}
	}
}

// waitChange waits until the leader may have changed, at most for a time.
func (c *cluster) waitChange(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-c.changed.Next():
	}
}
