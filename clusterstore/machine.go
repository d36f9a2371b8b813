package clusterstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// machine is raft's state machine: it applies committed entries by the rules of package flight. Raft calls it from one
// goroutine; readers see what it has published.
//
// What it applied it first keeps in memory, where readers and later commands find it, and writes it to the state a
// little later in one batch: a flight that was opened and reported within that time costs one record, and no mark that
// it is alive. Nothing is lost by that: the log is what is durable, the state says in the same batch how far it is,
// and a start applies the rest again.
//
// Applying cannot fail: an error here means that this node can no longer be what the others are, so it dies. It reads
// no clock and draws no chance: time comes with the entry.
type machine struct {
	cfg     *Config
	state   *state
	cache   *cache
	roll    atomic.Pointer[roll]
	waiters *waiters
	pending *pendingPackets
	marks   *marks
	snaps   *snapshots

	mu      sync.Mutex    // held while entries are applied, and while turns change their place
	written *sync.Cond    // of mu: writing became nil
	meta    meta          // as of the last entry applied
	header  flight.Header // as of the last entry applied
	turn    *turn         // what was applied and is not being written yet
	writing *turn         // what is being written; nil: nothing. Nobody changes it
	dirty   chan struct{} // something was applied
	filled  chan struct{} // turn is full

	// sessionsMu is held for writing while entries are applied, so that readers of sessions see what they see of flights:
	// all that an entry did, or nothing of it.
	sessionsMu sync.RWMutex
	sessions   *flight.Sessions

	view  atomic.Pointer[view]
	shown atomic.Pointer[shown]
}

// shown is what readers see of the machine itself.
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

// takeOver starts from what a state holds; the first time and after a restore.
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

// ApplyBatch applies entries, shows what they did to readers, and answers who proposed them. If the process dies
// before that is in the state, the entries are applied again at the next start.
func (m *machine) ApplyBatch(entries []*raft.Log) []any {
	start := time.Now()
	done, commands, err := m.apply(entries)
	if err != nil {
		m.cfg.Guard.Kill(fmt.Errorf("clusterstore: committed entries cannot be applied: %w", err))
	}
	for _, p := range done {
		p.deliver()
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
			continue // its effects are in: a replay
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
	default: // it knows
	}
	return done, m.turn.commands - before, nil
}

// read gives a record as it stands, from memory where possible; nil for a key that was never used. It is for readers;
// the machine has slots.
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

// peek reads a flight as it stands without taking a place in memory for it: nobody will ask for it again.
func (m *machine) peek(id flight.ID) (*flight.Flight, error) {
	if r, _ := m.cache.get(id); r != nil {
		return r.flight, nil
	}
	r, _, err := m.beyondCache(id)
	return flightOf(r), err
}

// beyondCache reads a record that is not in the cache. stored says whether it came from the state.
func (m *machine) beyondCache(id flight.ID) (r *record, stored bool, err error) {
	if !m.roll.Load().mayHold(id) {
		return nil, false, nil
	}
	if own, ok := m.view.Load().find(id); ok {
		return own.now, false, nil // nil: it was deleted, or is not in the state either
	}
	r, err = m.state.record(id)
	return r, r != nil, err
}

// marks lets readers wait until an index was applied.
type marks struct {
	mu      sync.Mutex
	applied uint64
	reached chan struct{} // closed at the next progress; nil while nobody waits
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

// wait gives a channel that is closed at the next progress; nil when index was applied.
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
