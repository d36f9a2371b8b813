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

func newMemBatch(fs *fsm) *memBatch {
	return &memBatch{fsm: fs, dirty: make(map[flight.ID]*dirtyFlight), overlay: &overlay{byID: make(map[flight.ID]overlayFlight)}}
}

func (mb *memBatch) full() bool { return len(mb.dirty) >= memBatchFlights || mb.bytes >= memBatchBytes }

// applyEntry applies one log entry.
func (mb *memBatch) applyEntry(e *raft.Log, done *[]*batch) error {
	mb.hasEntries = true
	mb.fsm.meta.Applied, mb.fsm.meta.Term = e.Index, e.Term
	switch e.Type {
	case raft.LogConfiguration:
		mb.fsm.meta.Config, mb.fsm.meta.ConfigIndex = e.Data, e.Index
		return nil
	case raft.LogCommand:
		return mb.applyBatch(e, done)
	}
	return nil
}

// applyBatch applies the commands of an entry. It decodes the entry only if another process proposed it.
func (mb *memBatch) applyBatch(e *raft.Log, done *[]*batch) error {
	b := mb.fsm.pending.remove(e.Data)
	if b == nil {
		at, commands, err := decodeEntry(e.Data, mb.fsm.cfg.Limits.levels.Max)
		if err != nil {
			return err
		}
		b = batchFromLog(at, commands)
	} else {
		*done = append(*done, b)
	}
	mb.fsm.header.Now, mb.fsm.header.Wall = max(mb.fsm.header.Now, b.stamp.now), b.stamp.wall
	mb.forgetSessions()
	for i, p := range b.proposals {
		var err error
		if p.reply, err = mb.applyCommand(p.command, flight.Version{Index: e.Index, Pos: uint32(i)}); err != nil {
			return err
		}
	}
	mb.commands += len(b.proposals)
	return nil
}

// applyCommand applies one command.
func (mb *memBatch) applyCommand(c flight.Command, at flight.Version) (flight.Reply, error) {
	mb.fsm.header.Version = at
	if mb.fsm.cfg.Limits.levels.Required(c) > mb.fsm.header.FeatureLevel() {
		return flight.Reply{Decision: flight.DecisionFailedPrecondition}, nil // Propose rejects it earlier
	}
	var reply flight.Reply
	var err error
	switch c := c.(type) {
	case *flight.EndSession:
		return mb.applyEnded(c, at)
	case *flight.CloseSession:
		_, held := mb.fsm.sessions.HeldFlights(c.Session, flight.ID{}, 0)
		if reply.Decision = c.Admit(&mb.fsm.header, held); reply.Decision == flight.DecisionAccepted {
			mb.endSession(c.Session)
		}
		return reply, nil
	case *flight.PutDocument, *flight.DeleteDocument:
		reply, err = mb.applyToDocument(c, at)
	case *flight.RaiseLevel, *flight.RaiseEpoch, *flight.Restore, *flight.FinishRestore:
		before := mb.fsm.header
		reply, err = mb.applyToFlight(nil, flight.Key{}, c, at)
		after := &mb.fsm.header
		reply.Changed = before.FeatureLevel() != after.FeatureLevel() || before.LeaseEpoch != after.LeaseEpoch || before.Reconciling != after.Reconciling
		if r, ok := c.(*flight.Restore); ok && r.Moved {
			reply.Changed = true // it leaves its line in the audit log
		}
		mb.fsm.meta.Level = after.FeatureLevel()
	default:
		reply, err = mb.applyToKey(c, at)
	}
	if err == nil && reply.Changed && reply.Decision == flight.DecisionAccepted {
		err = mb.recordAudit(c, at)
	}
	return reply, err
}

// applyToKey applies a command about one flight, or about the header.
func (mb *memBatch) applyToKey(c flight.Command, at flight.Version) (flight.Reply, error) {
	key := c.Target()
	if key.IsZero() {
		return mb.applyToFlight(nil, key, c, at)
	}
	s, err := mb.dirtyFlight(key.FlightID())
	if err != nil {
		return flight.Reply{}, err
	}
	reply, err := mb.applyToFlight(s, key, c, at)
	if w, ok := c.(*flight.WithdrawSession); ok && err == nil && reply.Decision == flight.DecisionAccepted {
		mb.endSession(w.Session)
	}
	return reply, err
}

// applyToFlight applies a command to one flight; s is nil for a command on the header.
func (mb *memBatch) applyToFlight(s *dirtyFlight, key flight.Key, c flight.Command, at flight.Version) (flight.Reply, error) {
	view := flight.View{Header: mb.fsm.header, NoDefinition: mb.fsm.documents.LackDefinition(c)}
	if s != nil {
		view.Flight = flightOf(s.now)
	}
	if key.IsStep() {
		saga, err := mb.dirtyFlight(key.Saga().FlightID())
		if err != nil {
			return flight.Reply{}, err
		}
		view.Saga = flightOf(saga.now)
	}
	if open, ok := c.(*flight.Open); ok {
		view.SessionEnded = mb.fsm.sessions.HasEnded(open.Session.ID, mb.fsm.header.Now)
		view.LaneBlocked = s != nil && mb.fsm.due.LaneBlocks(s.id)
	}
	after, reply := flight.Apply(view, c)
	mb.fsm.header = after.Header
	if s == nil {
		return reply, nil
	}
	mb.recordReErasure(s, c, at)
	err := mb.storeResult(s, after.Flight, &reply, at)
	return reply, err
}

// dirtyFlight returns a flight's current value: from this memBatch, from the one being flushed, or from the state.
func (mb *memBatch) dirtyFlight(id flight.ID) (*dirtyFlight, error) {
	if s := mb.dirty[id]; s != nil {
		return s, nil
	}
	s := &dirtyFlight{id: id}
	if w := mb.fsm.flushing; w != nil && w.dirty[id] != nil {
		s.before = w.dirty[id].now
	} else if known, _ := mb.fsm.cache.get(id); known != nil {
		s.before = known
	} else if mb.fsm.filter.Load().mayContain(id) {
		// The state is read as it is now, not as it was when this memBatch began: all earlier mem batches are in it
		// except the one being flushed, whose flush may end while this memBatch is active.
		var err error
		if s.before, err = mb.fsm.state.record(id); err != nil {
			return nil, err
		}
	}
	s.now = s.before
	mb.dirty[id] = s
	return s, nil
}

// storeResult adds the result of one command to the memBatch.
func (mb *memBatch) storeResult(s *dirtyFlight, f *flight.Flight, reply *flight.Reply, at flight.Version) error {
	if !s.touched {
		s.touched = true
		mb.touched = append(mb.touched, s)
	}
	old := flightOf(s.now)
	if reply.Deleted {
		mb.deleteFlight(s, old)
		return nil
	}
	if reply.Changed {
		mb.fsm.sessions.Update(old, f)
		mb.fsm.due.Update(old, f)
		next := s.now.withFlight(f)
		if old == nil {
			mb.recordCreated(s.id, at.Index)
		}
		mb.updateCounts(old, f)
		mb.moveBodies(s, next, old)
		mb.deleteRedactedBodies(s, next, old, at)
		countChanged := old == nil || old.Duplicates != f.Duplicates
		s.changed = s.changed || old == nil || old.Version != f.Version || !countChanged // a used nonce changes the flight without a new version
		s.statsChanged = f.Duplicates != nil && (s.statsChanged || countChanged)
		s.now = next
		if f.State == flight.StateExpired && old != nil && old.State != flight.StateExpired {
			mb.deleteTombstonedRows(s, next, old)
			return nil
		}
	}
	if len(reply.Events) == 0 {
		return nil
	}
	value, err := encodeEvents(mb.scratch[:0], reply.Events)
	if err != nil {
		return err
	}
	mb.scratch = value
	var key [maxRowKey]byte
	mb.putRow(s, historyKey(key[:0], s.id, at), mb.copyBytes(value))
	return nil
}

// deleteFlight deletes a flight that holds nothing any more. The key filter keeps its id, and gets it twice if the
// flight is created again.
func (mb *memBatch) deleteFlight(s *dirtyFlight, old *flight.Flight) {
	mb.updateCounts(old, nil)
	mb.fsm.meta.Deleted++
	s.now, s.changed, s.statsChanged = nil, true, false
}

// recordCreated adds a new flight to the key filter and to the rows of the filter.
func (mb *memBatch) recordCreated(id flight.ID, entry uint64) {
	mb.fsm.filter.Load().add(id)
	if n := len(mb.created); n == 0 || mb.created[n-1].entry != entry {
		mb.created = append(mb.created, createdFlights{entry: entry})
	}
	part := &mb.created[len(mb.created)-1]
	part.ids = append(part.ids, id[:]...)
}

func (mb *memBatch) updateCounts(old, f *flight.Flight) {
	if old != nil {
		mb.fsm.meta.Counts[old.State]--
	}
	if isListed(old) {
		mb.fsm.listed[old.Key.Namespace()]--
	}
	if f != nil {
		mb.fsm.meta.Counts[f.State]++
	}
	if isListed(f) {
		mb.fsm.listed[f.Key.Namespace()]++
	}
}

// putRow adds a row of a flight. It retains the value, and copies the key.
func (mb *memBatch) putRow(s *dirtyFlight, key, value []byte) {
	mb.bytes += len(key) + len(value)
	s.rows = append(s.rows, row{key: mb.copyBytes(key), value: value})
}

// deleteRow adds the deletion of a flight's row. It copies the key.
func (mb *memBatch) deleteRow(s *dirtyFlight, key []byte) {
	s.rows = append(s.rows, row{key: mb.copyBytes(key), deleted: true})
}

// copyBytes copies bytes into the memBatch's arena: few large allocations, freed together with the memBatch.
func (mb *memBatch) copyBytes(b []byte) []byte {
	const piece = 32 << 10
	if len(b) > len(mb.arena) {
		if len(b) > piece/8 {
			return bytes.Clone(b)
		}
		mb.arena = make([]byte, piece)
	}
	kept := mb.arena[:copy(mb.arena, b):len(b)]
	mb.arena = mb.arena[len(b):]
	return kept
}

// moveBodies moves the bytes of bodies out of a flight and into the record or rows of their own. No reader has seen
// this flight yet.
func (mb *memBatch) moveBodies(s *dirtyFlight, next *record, old *flight.Flight) {
	f := next.flight
	mb.storeBody(s, next, f.InputGeneration, BodyInput, f.Input.Data)
	f.Input.Data = nil
	if old != nil && old.InputGeneration != f.InputGeneration && old.Input.StoredSize > 0 {
		mb.deleteBody(s, next, old.InputGeneration, BodyInput)
	}
	if r := f.Receipt; r != nil && r.Body.Data != nil {
		mb.storeBody(s, next, f.Generation, BodyReceipt, r.Body.Data)
		without := *r
		without.Body = r.Body.WithoutData()
		f.Receipt = &without
	}
}

// storeBody stores a body in the record or in its own row.
func (mb *memBatch) storeBody(s *dirtyFlight, next *record, generation uint32, kind BodyKind, data []byte) {
	switch {
	case len(data) == 0:
	case len(data) <= maxInlineBody && next.inlineBytes()+len(data) <= maxInlineTotal:
		mb.bytes += len(data)
		next.putBody(inlineBody{generation: generation, kind: kind, data: bytes.Clone(data)})
	default:
		var key [maxRowKey]byte
		mb.putRow(s, bodyKey(key[:0], s.id, generation, kind), bytes.Clone(data)) // the caller may reuse its slice, and the flush comes later
	}
}

// deleteBody deletes a stored body.
func (mb *memBatch) deleteBody(s *dirtyFlight, next *record, generation uint32, kind BodyKind) {
	if !next.removeBody(generation, kind) {
		mb.deleteRow(s, bodyKey(nil, s.id, generation, kind))
	}
}

func (mb *memBatch) deleteReceiptBody(s *dirtyFlight, next *record, generation uint32, r *flight.Receipt) {
	if r != nil && r.Body.StoredSize > 0 {
		mb.deleteBody(s, next, generation, BodyReceipt)
	}
}

// publish makes the changes of the last ApplyBatch visible to readers.
func (mb *memBatch) publish() {
	mb.overlay.mu.Lock()
	for _, s := range mb.touched {
		mb.overlay.byID[s.id] = overlayFlight{now: s.now, rows: slices.Clip(s.rows), tombstoned: s.tombstoned}
	}
	mb.overlay.mu.Unlock()
	for _, s := range mb.touched {
		switch {
		case s.tombstoned, s.changed && s.now == nil:
			mb.fsm.cache.remove(s.id) // tombstones are rarely read; leave the cache to others
		case s.changed:
			mb.fsm.cache.put(s.id, s.now)
		case s.statsChanged:
			mb.fsm.cache.refresh(s.id, s.now)
		}
	}
}

// wakeWaiters wakes the waiters of the changed flights. Header, flights and index are published by then.
func (mb *memBatch) wakeWaiters() {
	for _, s := range mb.touched {
		s.touched = false
		mb.fsm.waiters.wake(s.id)
	}
	mb.touched = mb.touched[:0]
}
