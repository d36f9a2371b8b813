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

// access is one node's way to the ledger. It may fail, alone, and what the node reads may be old.
type access struct {
	*flightdtest.Follower
	heard func(flight.Command, flight.Reply, error) // called with every answer; nil: nobody

	mu     sync.Mutex
	state  accessState
	before func(flight.Command) // called before each command, on the goroutine that proposes it
	stuck  []flight.Command     // what was proposed while accessStuck
	dead   chan struct{}        // a dead node's calls wait until it is closed; nil: it lives
}

type accessState int

const (
	accessClear accessState = iota
	accessDeaf              // what is proposed arrives, and no answer comes back
	accessStuck             // nothing arrives, and nobody knows; deliver lets it arrive
)

var errDead = errors.New("this node is dead")

func (a *access) configure(cfg *remote.Config) { cfg.Ledger, cfg.Memory, cfg.Sessions = a, a, a }

func (a *access) set(state accessState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = state
}

// deliver lets what is stuck arrive, as it was sent, and clears the way.
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

// copies gives what is stuck.
func (a *access) copies() []flight.Command {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.stuck)
}

// deliverAgain lets copies arrive.
func (a *access) deliverAgain(ctx context.Context, copies []flight.Command) {
	for _, c := range copies {
		_, _ = a.Follower.Propose(ctx, c)
	}
}

// stopReading keeps what the node reads as it is now, until readOn.
func (a *access) stopReading() { a.Lag(math.MaxInt) }

func (a *access) readOn() { a.Lag(0) }

// die is the end of the node: none of its calls to the ledger returns before the testEnd is closed.
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

// enter says what becomes of a call.
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
		if n := len(a.stuck); n < 2 || a.stuck[n-1] != c || a.stuck[n-2] != c { // two of its copies will do
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
