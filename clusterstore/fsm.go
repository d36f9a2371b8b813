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
type fsm struct {
	cfg          *Config
	state        *state
	cache        *cache
	filter       atomic.Pointer[keyFilter]
	waiters      *waiters
	pending      *pendingBatches
	appliedIndex *appliedIndex
	snaps        *snapshots

	mu               sync.Mutex     // held while entries are applied and while mem batches are swapped; guards the fields below
	flushed          *sync.Cond     // condition on mu: flushing became nil
	meta             meta           // after the last applied entry
	header           flight.Header  // after the last applied entry
	documentsVersion flight.Version // after the last applied entry
	active           *memBatch      // applied and not yet being flushed
	flushing         *memBatch      // being flushed; nil: none. It is immutable
	dirty            chan struct{}  // signals runFlush that an entry was applied
	activeFull       chan struct{}  // signals runFlush that active is full

	// tablesMu guards the fields below. It is held for writing while entries are applied, so that readers see an entry's
	// changes completely or not at all.
	tablesMu  sync.RWMutex
	sessions  *flight.Sessions
	due       *flight.Due
	documents *flight.Documents
	listed    map[string]int64 // number of listed flights by namespace

	view      atomic.Pointer[overlayView]
	published atomic.Pointer[published]
	jobReady  atomic.Pointer[func(namespace, action string)] // see Jobs.OnReady
	sagaDue   atomic.Pointer[func()]                         // see Jobs.OnSagaDue
	jobEnded  atomic.Pointer[func(namespace, action string)] // see Jobs.OnEnded
}

// published is the part of the fsm's own state that readers see.
type published struct {
	header           flight.Header
	meta             meta
	documentsVersion flight.Version // of the last change of a document
}

func newFSM(cfg *Config, s *state, snaps *snapshots) *fsm {
	m := &fsm{cfg: cfg, state: s, snaps: snaps, cache: newCache(cfg.Memory.Flights), waiters: new(waiters),
		pending: new(pendingBatches), appliedIndex: new(appliedIndex), dirty: make(chan struct{}, 1), activeFull: make(chan struct{}, 1),
		sessions: flight.NewSessions(), due: flight.NewDue(), documents: new(flight.Documents), listed: make(map[string]int64)}
	m.flushed = sync.NewCond(&m.mu)
	m.due.Ready, m.due.Ended, m.due.SagaDue = m.notifyReady, m.notifyEnded, m.notifySagaDue
	m.active = newMemBatch(m)
	m.view.Store(&overlayView{active: m.active.overlay})
	return m
}

// load installs the contents of a state, at the start and after a restore.
func (fs *fsm) load(l loadedState) {
	fs.tablesMu.Lock()
	defer fs.tablesMu.Unlock()
	fs.meta, fs.header, fs.sessions, fs.due = l.meta, l.header, l.sessions, l.due
	fs.due.Ready, fs.due.Ended, fs.due.SagaDue = fs.notifyReady, fs.notifyEnded, fs.notifySagaDue
	fs.documents, fs.listed, fs.documentsVersion = l.documents, l.listed, l.documentsVersion
	fs.filter.Store(l.filter)
	fs.publish()
}

func (fs *fsm) publish() {
	fs.published.Store(&published{header: fs.header, meta: fs.meta, documentsVersion: fs.documentsVersion})
	fs.appliedIndex.advance(fs.meta.Applied)
}

// Apply applies one entry.
func (fs *fsm) Apply(entry *raft.Log) any { return fs.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch applies entries, makes their changes visible to readers, and answers the callers.
//
// If the process dies before the changes are flushed, the next start applies the entries again.
func (fs *fsm) ApplyBatch(entries []*raft.Log) []any {
	start := time.Now()
	done, commands, err := fs.apply(entries)
	if err != nil {
		fs.cfg.Limits.Kill(fmt.Errorf("clusterstore: committed entries cannot be applied: %w", err))
	}
	for _, p := range done {
		p.complete(nil)
	}
	if f := fs.cfg.Events.Applied; f != nil && commands > 0 {
		f(len(entries), commands, time.Since(start))
	}
	return make([]any, len(entries))
}

func (fs *fsm) apply(entries []*raft.Log) (done []*batch, commands int, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.waitForSpaceLocked()
	fs.tablesMu.Lock()
	defer fs.tablesMu.Unlock()
	before := fs.active.commands
	for _, entry := range entries {
		if entry.Index <= fs.meta.Applied {
			continue // already in the state; raft replays the log at a start
		}
		if err := fs.active.applyEntry(entry, &done); err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", entry.Index, err)
		}
	}
	fs.active.publish()
	fs.publish()
	fs.active.wakeWaiters()
	select {
	case fs.dirty <- struct{}{}:
	default: // already signalled
	}
	return done, fs.active.commands - before, nil
}

// read returns the current record of a flight, from memory where possible, or nil for a key that was never used. It is
// for readers; the fsm uses dirtyFlight.
func (fs *fsm) read(id flight.ID) (*record, error) {
	r, writes := fs.cache.get(id)
	if r != nil {
		return r, nil
	}
	r, stored, err := fs.readUncached(id)
	if stored && err == nil {
		fs.cache.fill(id, r, writes)
	}
	return r, err
}

// peek returns the current flight without adding it to the cache.
func (fs *fsm) peek(id flight.ID) (*flight.Flight, error) {
	if r, _ := fs.cache.get(id); r != nil {
		return r.flight, nil
	}
	r, _, err := fs.readUncached(id)
	return flightOf(r), err
}

// readUncached reads a record that is not in the cache. stored: it came from the state and may be cached.
func (fs *fsm) readUncached(id flight.ID) (r *record, stored bool, err error) {
	if !fs.filter.Load().mayContain(id) {
		return nil, false, nil
	}
	if own, ok := fs.view.Load().find(id); ok {
		return own.now, false, nil // nil: the flight was deleted, or never existed
	}
	r, err = fs.state.record(id)
	return r, r != nil, err
}

// appliedIndex lets readers wait until an index was applied.
type appliedIndex struct {
	mu       sync.Mutex // guards the fields below
	index    uint64
	progress chan struct{} // closed when index advances; nil while nobody waits
}

func (i *appliedIndex) advance(index uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.index = index
	if i.progress != nil {
		close(i.progress)
		i.progress = nil
	}
}

// wait returns a channel that is closed when the index advances, or nil if index was already applied.
func (i *appliedIndex) wait(index uint64) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.index >= index {
		return nil
	}
	if i.progress == nil {
		i.progress = make(chan struct{})
	}
	return i.progress
}
