package remote_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/flightd/flightd/effect"
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

func (l *faultyLedger) configure(cfg *remote.Config) { cfg.Ledger, cfg.Reader, cfg.Sessions = l, l, l }

func (l *faultyLedger) set(state ledgerFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
}

// deliver proposes the held commands in order, and ends the fault.
func (l *faultyLedger) deliver(ctx context.Context) (replies []flight.Reply) {
	l.mu.Lock()
	stuck := l.undelivered
	l.undelivered, l.state = nil, faultNone
	l.mu.Unlock()
	for _, c := range stuck {
		reply, _ := l.Follower.Propose(ctx, c)
		replies = append(replies, reply)
	}
	return replies
}

// copies returns the held commands.
func (l *faultyLedger) copies() []flight.Command {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.undelivered)
}

// redeliver proposes copies of commands.
func (l *faultyLedger) redeliver(ctx context.Context, copies []flight.Command) {
	for _, c := range copies {
		_, _ = l.Follower.Propose(ctx, c)
	}
}

// stopReading freezes the node's reads until resumeReading.
func (l *faultyLedger) stopReading() { l.Lag(math.MaxInt) }

func (l *faultyLedger) resumeReading() { l.Lag(0) }

// die kills the node: its calls to the ledger block until testEnd is closed.
func (l *faultyLedger) die(testEnd chan struct{}) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.dead == nil
	l.dead = testEnd
	return first
}

func (l *faultyLedger) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead != nil
}

// admit returns the fault of a call; it blocks the calls of a dead node.
func (l *faultyLedger) admit() (ledgerFault, func(flight.Command), error) {
	l.mu.Lock()
	dead, state, before := l.dead, l.state, l.beforePropose
	l.mu.Unlock()
	if dead != nil {
		<-dead
		return state, nil, errDead
	}
	return state, before, nil
}

func (l *faultyLedger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	state, before, err := l.admit()
	if err != nil {
		return flight.Reply{}, err
	}
	if before != nil {
		before(c)
	}
	if state == faultHoldCommands {
		l.mu.Lock()
		if n := len(l.undelivered); n < 2 || l.undelivered[n-1] != c || l.undelivered[n-2] != c { // hold at most two copies of a command
			l.undelivered = append(l.undelivered, c)
		}
		l.mu.Unlock()
		return flight.Reply{}, effect.ErrAmbiguous
	}
	reply, err := l.Follower.Propose(ctx, c)
	if state == faultLoseAnswers {
		reply, err = flight.Reply{}, effect.ErrAmbiguous
	}
	if l.onAnswer != nil {
		l.onAnswer(c, reply, err)
	}
	return reply, err
}

func (l *faultyLedger) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	state, _, err := l.admit()
	switch {
	case err != nil:
		return flight.Reply{}, err
	case state == faultHoldCommands:
		return flight.Reply{}, effect.ErrAmbiguous
	}
	reply, err := l.Follower.Report(ctx, r)
	if state == faultLoseAnswers {
		reply, err = flight.Reply{}, effect.ErrAmbiguous
	}
	if l.onAnswer != nil {
		l.onAnswer(r, reply, err)
	}
	return reply, err
}

func (l *faultyLedger) Flight(id flight.ID) (*flight.Flight, error) {
	if _, _, err := l.admit(); err != nil {
		return nil, err
	}
	return l.Follower.Flight(id)
}

func (l *faultyLedger) Overdue(limit int) []flight.ID {
	if _, _, err := l.admit(); err != nil {
		return nil
	}
	return l.Follower.Overdue(limit)
}
