package clusterstore

import (
	"bytes"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// A memBatch with this many flights, or bytes of bodies and history, is full and must be flushed.
const (
	memBatchFlights = 2048
	memBatchBytes   = 4 << 20
)

// memBatch holds the changes that were applied since the last flush began: the changed flights, their rows, and for
// each flight its stored record.
type memBatch struct {
	fsm        *fsm
	dirty      map[flight.ID]*dirtyFlight
	touched    []*dirtyFlight // changed by the current ApplyBatch
	created    []createdFlights
	rows       []row // without a flight, in order of application
	commands   int
	bytes      int
	arena      []byte // free space for keys and short rows; see copyBytes
	scratch    []byte // buffer for one history row
	hasEntries bool   // an entry was applied
	overlay    *overlay
}

// dirtyFlight is a flight that a memBatch has read or changed.
type dirtyFlight struct {
	id           flight.ID
	before       *record // as stored when this memBatch is flushed
	now          *record
	changed      bool // changed other than its duplicate statistics; with a nil now: deleted
	statsChanged bool // its duplicate statistics changed
	touched      bool
	tombstoned   bool  // became a tombstone: its stored history must be deleted
	rows         []row // bodies and history, in order of application
}

// row is a row to be written or deleted.
type row struct {
	key, value []byte
	deleted    bool
}

func newMemBatch(m *fsm) *memBatch {
	return &memBatch{fsm: m, dirty: make(map[flight.ID]*dirtyFlight), overlay: &overlay{byID: make(map[flight.ID]overlayFlight)}}
}

func (t *memBatch) full() bool { return len(t.dirty) >= memBatchFlights || t.bytes >= memBatchBytes }

// applyEntry applies one log entry.
func (t *memBatch) applyEntry(e *raft.Log, done *[]*batch) error {
	t.hasEntries = true
	t.fsm.meta.Applied, t.fsm.meta.Term = e.Index, e.Term
	switch e.Type {
	case raft.LogConfiguration:
		t.fsm.meta.Config, t.fsm.meta.ConfigIndex = e.Data, e.Index
		return nil
	case raft.LogCommand:
		return t.applyBatch(e, done)
	}
	return nil
}

// applyBatch applies the commands of an entry. It decodes the entry only if another process proposed it.
func (t *memBatch) applyBatch(e *raft.Log, done *[]*batch) error {
	p := t.fsm.pending.remove(e.Data)
	if p == nil {
		at, commands, err := decodeEntry(e.Data)
		if err != nil {
			return err
		}
		p = batchFromLog(at, commands)
	} else {
		*done = append(*done, p)
	}
	t.fsm.header.Now, t.fsm.header.Wall = max(t.fsm.header.Now, p.stamp.now), p.stamp.wall
	t.forgetSessions()
	for i, one := range p.proposals {
		var err error
		if one.reply, err = t.applyCommand(one.command, flight.Version{Index: e.Index, Pos: uint32(i)}); err != nil {
			return err
		}
	}
	t.commands += len(p.proposals)
	return nil
}

// applyCommand applies one command.
func (t *memBatch) applyCommand(c flight.Command, at flight.Version) (flight.Reply, error) {
	t.fsm.header.Version = at
	if flight.RequiredLevel(c) > t.fsm.header.FeatureLevel() {
		return flight.Reply{Decision: flight.DecisionFailedPrecondition}, nil // Propose rejects it earlier
	}
	var reply flight.Reply
	var err error
	switch c := c.(type) {
	case *flight.EndSession:
		return t.applyEnded(c, at)
	case *flight.CloseSession:
		_, held := t.fsm.sessions.HeldFlights(c.Session, flight.ID{}, 0)
		if reply.Decision = c.Admit(&t.fsm.header, held); reply.Decision == flight.DecisionAccepted {
			t.endSession(c.Session)
		}
		return reply, nil
	case *flight.PutDocument, *flight.PromoteDocument, *flight.DeleteDocument:
		reply, err = t.applyToDocument(c, at)
	case *flight.RaiseLevel, *flight.RaiseEpoch, *flight.Restore, *flight.FinishRestore:
		before := t.fsm.header
		reply, err = t.applyToFlight(nil, flight.Key{}, c, at)
		after := &t.fsm.header
		reply.Changed = before.FeatureLevel() != after.FeatureLevel() || before.LeaseEpoch != after.LeaseEpoch || before.Reconciling != after.Reconciling
		if r, ok := c.(*flight.Restore); ok && r.Moved {
			reply.Changed = true // it leaves its line in the audit log
		}
		t.fsm.meta.Format = stateFormatOf(&t.fsm.header)
	default:
		reply, err = t.applyToKey(c, at)
	}
	if err == nil && reply.Changed && reply.Decision == flight.DecisionAccepted {
		err = t.recordAudit(c, at)
	}
	return reply, err
}

// applyToKey applies a command about one flight, or about the header.
func (t *memBatch) applyToKey(c flight.Command, at flight.Version) (flight.Reply, error) {
	key := c.Target()
	if key.IsZero() {
		return t.applyToFlight(nil, key, c, at)
	}
	s, err := t.dirtyFlight(key.FlightID())
	if err != nil {
		return flight.Reply{}, err
	}
	reply, err := t.applyToFlight(s, key, c, at)
	if w, ok := c.(*flight.WithdrawSession); ok && err == nil && reply.Decision == flight.DecisionAccepted {
		t.endSession(w.Session)
	}
	return reply, err
}

// applyToFlight applies a command to one flight; s is nil for a command on the header.
func (t *memBatch) applyToFlight(s *dirtyFlight, key flight.Key, c flight.Command, at flight.Version) (flight.Reply, error) {
	view := flight.View{Header: t.fsm.header}
	if s != nil {
		view.Flight = flightOf(s.now)
	}
	if key.IsStep() {
		saga, err := t.dirtyFlight(key.Saga().FlightID())
		if err != nil {
			return flight.Reply{}, err
		}
		view.Saga = flightOf(saga.now)
	}
	if open, ok := c.(*flight.Open); ok {
		view.SessionEnded = t.fsm.sessions.HasEnded(open.Session.ID, t.fsm.header.Now)
	}
	after, reply := flight.Apply(view, c)
	t.fsm.header = after.Header
	if s == nil {
		return reply, nil
	}
	t.recordReErasure(s, c, at)
	err := t.storeResult(s, after.Flight, &reply, at)
	return reply, err
}

// dirtyFlight returns a flight's current value: from this memBatch, from the one being flushed, or from the state.
func (t *memBatch) dirtyFlight(id flight.ID) (*dirtyFlight, error) {
	if s := t.dirty[id]; s != nil {
		return s, nil
	}
	s := &dirtyFlight{id: id}
	if w := t.fsm.flushing; w != nil && w.dirty[id] != nil {
		s.before = w.dirty[id].now
	} else if known, _ := t.fsm.cache.get(id); known != nil {
		s.before = known
	} else if t.fsm.filter.Load().mayContain(id) {
		// The state is read as it is now, not as it was when this memBatch began: all earlier mem batches are in it
		// except the one being flushed, whose flush may end while this memBatch is active.
		var err error
		if s.before, err = t.fsm.state.record(id); err != nil {
			return nil, err
		}
	}
	s.now = s.before
	t.dirty[id] = s
	return s, nil
}

// storeResult adds the result of one command to the memBatch.
func (t *memBatch) storeResult(s *dirtyFlight, f *flight.Flight, reply *flight.Reply, at flight.Version) error {
	if !s.touched {
		s.touched = true
		t.touched = append(t.touched, s)
	}
	old := flightOf(s.now)
	if reply.Deleted {
		t.deleteFlight(s, old)
		return nil
	}
	if reply.Changed {
		t.fsm.sessions.Update(old, f)
		next := s.now.withFlight(f)
		if old == nil {
			t.recordCreated(s.id, at.Index)
		}
		t.updateCounts(old, f)
		t.moveBodies(s, next, old)
		t.deleteRedactedBodies(s, next, old, at)
		countChanged := old == nil || old.Duplicates != f.Duplicates
		s.changed = s.changed || old == nil || old.Version != f.Version || !countChanged // a used nonce changes the flight without a new version
		s.statsChanged = f.Duplicates != nil && (s.statsChanged || countChanged)
		s.now = next
		if f.State == flight.StateExpired && old != nil && old.State != flight.StateExpired {
			t.deleteTombstonedRows(s, next, old)
			return nil
		}
	}
	if len(reply.Events) == 0 {
		return nil
	}
	value, err := encodeEvents(t.scratch[:0], reply.Events)
	if err != nil {
		return err
	}
	t.scratch = value
	var key [maxRowKey]byte
	t.putRow(s, historyKey(key[:0], s.id, at), t.copyBytes(value))
	return nil
}

// deleteFlight deletes a flight that holds nothing any more. The key filter keeps its id, and gets it twice if the
// flight is created again.
func (t *memBatch) deleteFlight(s *dirtyFlight, old *flight.Flight) {
	t.updateCounts(old, nil)
	t.fsm.meta.Deleted++
	s.now, s.changed, s.statsChanged = nil, true, false
}

// recordCreated adds a new flight to the key filter and to the rows of the filter.
func (t *memBatch) recordCreated(id flight.ID, entry uint64) {
	t.fsm.filter.Load().add(id)
	if n := len(t.created); n == 0 || t.created[n-1].entry != entry {
		t.created = append(t.created, createdFlights{entry: entry})
	}
	part := &t.created[len(t.created)-1]
	part.ids = append(part.ids, id[:]...)
}

func (t *memBatch) updateCounts(old, f *flight.Flight) {
	if old != nil {
		t.fsm.meta.Counts[old.State]--
	}
	if isListed(old) {
		t.fsm.listed[old.Key.Namespace()]--
	}
	if f != nil {
		t.fsm.meta.Counts[f.State]++
	}
	if isListed(f) {
		t.fsm.listed[f.Key.Namespace()]++
	}
}

// putRow adds a row of a flight. It retains the value, and copies the key.
func (t *memBatch) putRow(s *dirtyFlight, key, value []byte) {
	t.bytes += len(key) + len(value)
	s.rows = append(s.rows, row{key: t.copyBytes(key), value: value})
}

// deleteRow adds the deletion of a flight's row. It copies the key.
func (t *memBatch) deleteRow(s *dirtyFlight, key []byte) {
	s.rows = append(s.rows, row{key: t.copyBytes(key), deleted: true})
}

// copyBytes copies bytes into the memBatch's arena: few large allocations, freed together with the memBatch.
func (t *memBatch) copyBytes(b []byte) []byte {
	const piece = 32 << 10
	if len(b) > len(t.arena) {
		if len(b) > piece/8 {
			return bytes.Clone(b)
		}
		t.arena = make([]byte, piece)
	}
	kept := t.arena[:copy(t.arena, b):len(b)]
	t.arena = t.arena[len(b):]
	return kept
}

// moveBodies moves the bytes of bodies out of a flight and into the record or rows of their own. No reader has seen
// this flight yet.
func (t *memBatch) moveBodies(s *dirtyFlight, next *record, old *flight.Flight) {
	f := next.flight
	t.storeBody(s, next, f.InputGeneration, BodyInput, f.Input.Data)
	f.Input.Data = nil
	if old != nil && old.InputGeneration != f.InputGeneration && old.Input.StoredSize > 0 {
		t.deleteBody(s, next, old.InputGeneration, BodyInput)
	}
	if r := f.Receipt; r != nil && r.Body.Data != nil {
		t.storeBody(s, next, f.Generation, BodyReceipt, r.Body.Data)
		without := *r
		without.Body = r.Body.WithoutData()
		f.Receipt = &without
	}
}

// storeBody stores a body in the record or in its own row.
func (t *memBatch) storeBody(s *dirtyFlight, next *record, generation uint32, p BodyKind, data []byte) {
	switch {
	case len(data) == 0:
	case len(data) <= maxInlineBody && next.inlineBytes()+len(data) <= maxInlineTotal:
		t.bytes += len(data)
		next.putBody(inlineBody{generation: generation, kind: p, data: bytes.Clone(data)})
	default:
		var key [maxRowKey]byte
		t.putRow(s, bodyKey(key[:0], s.id, generation, p), bytes.Clone(data)) // the caller may reuse its slice, and the flush comes later
	}
}

// deleteBody deletes a stored body.
func (t *memBatch) deleteBody(s *dirtyFlight, next *record, generation uint32, p BodyKind) {
	if !next.removeBody(generation, p) {
		t.deleteRow(s, bodyKey(nil, s.id, generation, p))
	}
}

func (t *memBatch) deleteReceiptBody(s *dirtyFlight, next *record, generation uint32, r *flight.Receipt) {
	if r != nil && r.Body.StoredSize > 0 {
		t.deleteBody(s, next, generation, BodyReceipt)
	}
}

// publish makes the changes of the last ApplyBatch visible to readers.
func (t *memBatch) publish() {
	t.overlay.mu.Lock()
	for _, s := range t.touched {
		t.overlay.byID[s.id] = overlayFlight{now: s.now, rows: slices.Clip(s.rows), tombstoned: s.tombstoned}
	}
	t.overlay.mu.Unlock()
	for _, s := range t.touched {
		switch {
		case s.tombstoned, s.changed && s.now == nil:
			t.fsm.cache.remove(s.id) // tombstones are rarely read; leave the cache to others
		case s.changed:
			t.fsm.cache.put(s.id, s.now)
		case s.statsChanged:
			t.fsm.cache.refresh(s.id, s.now)
		}
	}
}

// wakeWaiters wakes the waiters of the changed flights. Header, flights and index are published by then.
func (t *memBatch) wakeWaiters() {
	for _, s := range t.touched {
		s.touched = false
		t.fsm.waiters.wake(s.id)
	}
	t.touched = t.touched[:0]
}
