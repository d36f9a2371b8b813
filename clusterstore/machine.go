package clusterstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// fsm is raft's state machine: it applies committed entries by the rules of package flight. Raft calls it from one
// goroutine; readers see the published state.
//
// Applied changes are first kept in memory, where readers and later commands find them, and are flushed to the state
// a moment later in one batch. So a flight that is opened and reported within that time costs one record and no row
// in the index of live flights. Nothing is lost in a crash: the log is durable, each batch holds the index of its
// last entry, and a start applies the rest again.
//
// Applying must not fail: a node that cannot apply a committed entry differs from the others, so it ends its process.
// The fsm reads no clock and uses no randomness; the time comes with the entry.
type machine struct {
	cfg     *Config
	state   *state
	cache   *cache
	roll    atomic.Pointer[roll]
	waiters *waiters
	pending *pendingPackets
	marks   *marks
	snaps   *snapshots

	mu      sync.Mutex    // held while entries are applied and while memBatches are swapped; guards the fields below
	written *sync.Cond    // condition on mu: flushing became nil
	meta    meta          // after the last applied entry
	header  flight.Header // after the last applied entry
	turn    *turn         // applied and not yet being flushed
	writing *turn         // being flushed; nil: none. It is immutable
	dirty   chan struct{} // signals runFlush that an entry was applied
	filled  chan struct{} // signals runFlush that active is full

	// sessionsMu guards sessions. It is held for writing while entries are applied, so that readers see an entry's
	// changes of sessions completely or not at all.
	sessionsMu sync.RWMutex
	sessions   *flight.Sessions

	view  atomic.Pointer[view]
	shown atomic.Pointer[shown]
}

// published is the part of the fsm's own state that readers see.
type shown struct {
	header flight.Header
	meta   meta
}

func newMachine(cfg *Config, s *state, snaps *snapshots) *machine {
	m := &machine{cfg: cfg, state: s, snaps: snaps, cache: newCache(cfg.Memory.Flights), waiters: new(waiters),
		pending: new(pendingPackets), marks: new(marks), dirty: make(chan struct{}, 1), filled: make(chan struct{}, 1),
		sessions: flight.NewSessions()}
	m.written = sync.NewCond(&m.mu)
	m.turn = newTurn(m)
	m.view.Store(&view{now: m.turn.own})
	return m
}

// load installs the contents of a state, at the start and after a restore.
func (m *machine) takeOver(l loaded) {
	m.sessionsMu.Lock()
	defer m.sessionsMu.Unlock()
	m.meta, m.header, m.sessions = l.meta, l.header, l.sessions
	m.roll.Store(l.roll)
	m.publish()
}

func (m *machine) publish() {
	m.shown.Store(&shown{header: m.header, meta: m.meta})
	m.marks.reach(m.meta.Applied)
}

// Apply applies one entry.
func (m *machine) Apply(entry *raft.Log) any { return m.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch applies entries, makes their changes visible to readers, and answers the callers.
//
// If the process dies before the changes are flushed, the next start applies the entries again.
func (m *machine) ApplyBatch(entries []*raft.Log) []any {
	start := time.Now()
	done, commands, err := m.apply(entries)
	if err != nil {
		m.cfg.Guard.Kill(fmt.Errorf("clusterstore: committed entries cannot be applied: %w", err))
	}
	for _, p := range done {
		p.settle(nil)
	}
	if f := m.cfg.Events.Applied; f != nil && commands > 0 {
		f(len(entries), commands, time.Since(start))
	}
	return make([]any, len(entries))
}

func (m *machine) apply(entries []*raft.Log) (done []*packet, commands int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.makeRoomLocked()
	m.sessionsMu.Lock()
	defer m.sessionsMu.Unlock()
	before := m.turn.commands
	for _, entry := range entries {
		if entry.Index <= m.meta.Applied {
			continue // already in the state; raft replays the log at a start
		}
		if err := m.turn.entry(entry, &done); err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", entry.Index, err)
		}
	}
	m.turn.show()
	m.publish()
	m.turn.wake()
	select {
	case m.dirty <- struct{}{}:
	default: // already signalled
	}
	return done, m.turn.commands - before, nil
}

// read returns the current record of a flight, from memory where possible; nil for a key that was never used. It is
// for readers; the fsm uses dirtyFlight.
func (m *machine) read(id flight.ID) (*record, error) {
	r, writes := m.cache.get(id)
	if r != nil {
		return r, nil
	}
	r, stored, err := m.beyondCache(id)
	if stored && err == nil {
		m.cache.fill(id, r, writes)
	}
	return r, err
}

// peek returns the current flight without adding it to the cache.
func (m *machine) peek(id flight.ID) (*flight.Flight, error) {
	if r, _ := m.cache.get(id); r != nil {
		return r.flight, nil
	}
	r, _, err := m.beyondCache(id)
	return flightOf(r), err
}

// readUncached reads a record that is not in the cache. stored: it came from the state and may be cached.
func (m *machine) beyondCache(id flight.ID) (r *record, stored bool, err error) {
	if !m.roll.Load().mayHold(id) {
		return nil, false, nil
	}
	if own, ok := m.view.Load().find(id); ok {
		return own.now, false, nil // nil: the flight was deleted, or never existed
	}
	r, err = m.state.record(id)
	return r, r != nil, err
}

// appliedIndex lets readers wait until an index was applied.
type marks struct {
	mu      sync.Mutex // guards the fields below
	applied uint64
	reached chan struct{} // closed when index advances; nil while nobody waits
}

func (m *marks) reach(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = index
	if m.reached != nil {
		close(m.reached)
		m.reached = nil
	}
}

// wait returns a channel that is closed when the index advances; nil when index was already applied.
func (m *marks) wait(index uint64) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.applied >= index {
		return nil
	}
	if m.reached == nil {
		m.reached = make(chan struct{})
	}
	return m.reached
}
