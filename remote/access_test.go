package remote_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/remote"
)

// faultyLedger is one node's access to the ledger. It can fail without affecting other nodes, and its reads can be
// stale.
type access struct {
	*flightdtest.Follower
	heard func(flight.Command, flight.Reply, error) // called with every reply; nil: no call

	mu     sync.Mutex
	state  accessState
	before func(flight.Command) // called before each command, on the goroutine that proposes it
	stuck  []flight.Command     // proposed during faultHoldCommands
	dead   chan struct{}        // blocks the calls of a dead node until it is closed; nil: the node lives
}

type accessState int

const (
	accessClear accessState = iota
	accessDeaf              // commands arrive, and their answers are lost
	accessStuck             // commands are held until deliver, and return ErrAmbiguous
)

var errDead = errors.New("this node is dead")

func (a *access) configure(cfg *remote.Config) { cfg.Ledger, cfg.Memory, cfg.Sessions = a, a, a }

func (a *access) set(state accessState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = state
}

// deliver proposes the held commands in order, and ends the fault.
func (a *access) deliver(ctx context.Context) (replies []flight.Reply) {
	a.mu.Lock()
	stuck := a.stuck
	a.stuck, a.state = nil, accessClear
	a.mu.Unlock()
	for _, c := range stuck {
		reply, _ := a.Follower.Propose(ctx, c)
		replies = append(replies, reply)
	}
	return replies
}

// copies returns the held commands.
func (a *access) copies() []flight.Command {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.stuck)
}

// redeliver proposes copies of commands.
func (a *access) deliverAgain(ctx context.Context, copies []flight.Command) {
	for _, c := range copies {
		_, _ = a.Follower.Propose(ctx, c)
	}
}

// stopReading freezes the node's reads until resumeReading.
func (a *access) stopReading() { a.Lag(math.MaxInt) }

func (a *access) readOn() { a.Lag(0) }

// die kills the node: its calls to the ledger block until testEnd is closed.
func (a *access) die(testEnd chan struct{}) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first = a.dead == nil
	a.dead = testEnd
	return first
}

func (a *access) isDead() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead != nil
}

// admit returns the fault of a call; it blocks the calls of a dead node.
func (a *access) enter() (accessState, func(flight.Command), error) {
	a.mu.Lock()
	dead, state, before := a.dead, a.state, a.before
	a.mu.Unlock()
	if dead != nil {
		<-dead
		return state, nil, errDead
	}
	return state, before, nil
}

func (a *access) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	state, before, err := a.enter()
	if err != nil {
		return flight.Reply{}, err
	}
	if before != nil {
		before(c)
	}
	if state == accessStuck {
		a.mu.Lock()
		if n := len(a.stuck); n < 2 || a.stuck[n-1] != c || a.stuck[n-2] != c { // hold at most two copies of a command
			a.stuck = append(a.stuck, c)
		}
		a.mu.Unlock()
		return flight.Reply{}, executor.ErrAmbiguous
	}
	reply, err := a.Follower.Propose(ctx, c)
	if state == accessDeaf {
		reply, err = flight.Reply{}, executor.ErrAmbiguous
	}
	if a.heard != nil {
		a.heard(c, reply, err)
	}
	return reply, err
}

func (a *access) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	state, _, err := a.enter()
	switch {
	case err != nil:
		return flight.Reply{}, err
	case state == accessStuck:
		return flight.Reply{}, executor.ErrAmbiguous
	}
	reply, err := a.Follower.Report(ctx, r)
	if state == accessDeaf {
		reply, err = flight.Reply{}, executor.ErrAmbiguous
	}
	if a.heard != nil {
		a.heard(r, reply, err)
	}
	return reply, err
}

func (a *access) Flight(id flight.ID) (*flight.Flight, error) {
	if _, _, err := a.enter(); err != nil {
		return nil, err
	}
	return a.Follower.Flight(id)
}

func (a *access) Live() iter.Seq2[*flight.Flight, error] {
	if _, _, err := a.enter(); err != nil {
		return func(yield func(*flight.Flight, error) bool) { yield(nil, err) }
	}
	return a.Follower.Live()
}
