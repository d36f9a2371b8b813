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
type faultyLedger struct {
	*flightdtest.Follower
	onAnswer func(flight.Command, flight.Reply, error) // called with every reply; nil: no call

	mu            sync.Mutex
	state         ledgerFault
	beforePropose func(flight.Command) // called before each command, on the goroutine that proposes it
	undelivered   []flight.Command     // proposed during faultHoldCommands
	dead          chan struct{}        // blocks the calls of a dead node until it is closed; nil: the node lives
}

type ledgerFault int

const (
	faultNone         ledgerFault = iota
	faultLoseAnswers              // commands arrive, and their answers are lost
	faultHoldCommands             // commands are held until deliver, and return ErrAmbiguous
)

var errDead = errors.New("this node is dead")

func (a *faultyLedger) configure(cfg *remote.Config) { cfg.Ledger, cfg.Reader, cfg.Sessions = a, a, a }

func (a *faultyLedger) set(state ledgerFault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = state
}

// deliver proposes the held commands in order, and ends the fault.
func (a *faultyLedger) deliver(ctx context.Context) (replies []flight.Reply) {
	a.mu.Lock()
	stuck := a.undelivered
	a.undelivered, a.state = nil, faultNone
	a.mu.Unlock()
	for _, c := range stuck {
		reply, _ := a.Follower.Propose(ctx, c)
		replies = append(replies, reply)
	}
	return replies
}

// copies returns the held commands.
func (a *faultyLedger) copies() []flight.Command {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.undelivered)
}

// redeliver proposes copies of commands.
func (a *faultyLedger) redeliver(ctx context.Context, copies []flight.Command) {
	for _, c := range copies {
		_, _ = a.Follower.Propose(ctx, c)
	}
}

// stopReading freezes the node's reads until resumeReading.
func (a *faultyLedger) stopReading() { a.Lag(math.MaxInt) }

func (a *faultyLedger) resumeReading() { a.Lag(0) }

// die kills the node: its calls to the ledger block until testEnd is closed.
func (a *faultyLedger) die(testEnd chan struct{}) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first = a.dead == nil
	a.dead = testEnd
	return first
}

func (a *faultyLedger) isDead() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead != nil
}

// admit returns the fault of a call; it blocks the calls of a dead node.
func (a *faultyLedger) admit() (ledgerFault, func(flight.Command), error) {
	a.mu.Lock()
	dead, state, before := a.dead, a.state, a.beforePropose
	a.mu.Unlock()
	if dead != nil {
		<-dead
		return state, nil, errDead
	}
	return state, before, nil
}

func (a *faultyLedger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	state, before, err := a.admit()
	if err != nil {
		return flight.Reply{}, err
	}
	if before != nil {
		before(c)
	}
	if state == faultHoldCommands {
		a.mu.Lock()
		if n := len(a.undelivered); n < 2 || a.undelivered[n-1] != c || a.undelivered[n-2] != c { // hold at most two copies of a command
			a.undelivered = append(a.undelivered, c)
		}
		a.mu.Unlock()
		return flight.Reply{}, executor.ErrAmbiguous
	}
	reply, err := a.Follower.Propose(ctx, c)
	if state == faultLoseAnswers {
		reply, err = flight.Reply{}, executor.ErrAmbiguous
	}
	if a.onAnswer != nil {
		a.onAnswer(c, reply, err)
	}
	return reply, err
}

func (a *faultyLedger) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	state, _, err := a.admit()
	switch {
	case err != nil:
		return flight.Reply{}, err
	case state == faultHoldCommands:
		return flight.Reply{}, executor.ErrAmbiguous
	}
	reply, err := a.Follower.Report(ctx, r)
	if state == faultLoseAnswers {
		reply, err = flight.Reply{}, executor.ErrAmbiguous
	}
	if a.onAnswer != nil {
		a.onAnswer(r, reply, err)
	}
	return reply, err
}

func (a *faultyLedger) Flight(id flight.ID) (*flight.Flight, error) {
	if _, _, err := a.admit(); err != nil {
		return nil, err
	}
	return a.Follower.Flight(id)
}

func (a *faultyLedger) Live() iter.Seq2[*flight.Flight, error] {
	if _, _, err := a.admit(); err != nil {
		return func(yield func(*flight.Flight, error) bool) { yield(nil, err) }
	}
	return a.Follower.Live()
}
