package clusterstore

import (
	"bytes"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// A memBatch with this many flights, or bytes of bodies and history, is full and must be flushed.
const (
	turnFlights = 2048
	turnBytes   = 4 << 20
)

// memBatch holds the changes that were applied since the last flush began: the changed flights, their rows, and for
// each flight its stored record.
type turn struct {
	m        *machine
	slots    map[flight.ID]*slot
	fresh    []*slot // changed by the current ApplyBatch
	enrolled []rollPart
	rows     []row // without a flight, in order of application
	commands int
	bytes    int
	room     []byte // free space for keys and short rows; see copyBytes
	scratch  []byte // buffer for one history row
	moved    bool   // an entry was applied
	own      *ownRows
}

// dirtyFlight is a flight that a memBatch has read or changed.
type slot struct {
	id      flight.ID
	before  *record // as stored when this memBatch is flushed
	now     *record
	changed bool // changed other than its duplicate statistics; with a nil now: deleted
	tallied bool // its duplicate statistics changed
	fresh   bool
	buried  bool  // became a tombstone: its stored history must be deleted
	rows    []row // bodies and history, in order of application
}

// row is a row to be written or deleted.
type row struct {
	key, value []byte
	gone       bool
}

func newTurn(m *machine) *turn {
	return &turn{m: m, slots: make(map[flight.ID]*slot), own: &ownRows{byID: make(map[flight.ID]ownRow)}}
}

func (t *turn) full() bool { return len(t.slots) >= turnFlights || t.bytes >= turnBytes }

// applyEntry applies one log entry.
func (t *turn) entry(e *raft.Log, done *[]*packet) error {
	t.moved = true
	t.m.meta.Applied, t.m.meta.Term = e.Index, e.Term
	switch e.Type {
	case raft.LogConfiguration:
		t.m.meta.Config, t.m.meta.ConfigIndex = e.Data, e.Index
		return nil
	case raft.LogCommand:
		return t.packet(e, done)
	}
	return nil
}

// applyBatch applies the commands of an entry. It decodes the entry only if another process proposed it.
func (t *turn) packet(e *raft.Log, done *[]*packet) error {
	p := t.m.pending.take(e.Data)
	if p == nil {
		at, commands, err := decodeEntry(e.Data)
		if err != nil {
			return err
		}
		p = unpacked(at, commands)
	} else {
		*done = append(*done, p)
	}
	t.m.header.Now, t.m.header.Wall = max(t.m.header.Now, p.stamp.now), p.stamp.wall
	t.forgetSessions()
	for i, one := range p.proposals {
		var err error
		if one.reply, err = t.command(one.command, flight.Version{Index: e.Index, Pos: uint32(i)}); err != nil {
			return err
		}
	}
	t.commands += len(p.proposals)
	return nil
}

// applyCommand applies one command.
func (t *turn) command(c flight.Command, at flight.Version) (flight.Reply, error) {
	t.m.header.Version = at
	if ended, ok := c.(*flight.Ended); ok {
		return t.sessionEnded(ended, at)
	}
	key := c.Target()
	if key.IsZero() {
		return t.apply(nil, key, c, at)
	}
	s, err := t.slot(key.FlightID())
	if err != nil {
		return flight.Reply{}, err
	}
	reply, err := t.apply(s, key, c, at)
	if w, ok := c.(*flight.Withdraw); ok && err == nil && reply.Decision == flight.Accepted {
		t.endSession(w.Session)
	}
	return reply, err
}

// applyToFlight applies a command to one flight; s is nil for a command on the header.
func (t *turn) apply(s *slot, key flight.Key, c flight.Command, at flight.Version) (flight.Reply, error) {
	view := flight.View{Header: t.m.header}
	if s != nil {
		view.Flight = flightOf(s.now)
	}
	if key.IsStep() {
		saga, err := t.slot(key.Saga().FlightID())
		if err != nil {
			return flight.Reply{}, err
		}
		view.Saga = flightOf(saga.now)
	}
	if open, ok := c.(*flight.Open); ok {
		view.Ended = t.m.sessions.HasEnded(open.Session.ID, t.m.header.Now)
	}
	after, reply := flight.Apply(view, c)
	t.m.header = after.Header
	if s == nil {
		return reply, nil
	}
	t.noteRepeated(s, c, at)
	err := t.take(s, after.Flight, &reply, at)
	return reply, err
}

// dirtyFlight returns a flight's current value: from this memBatch, from the one being flushed, or from the state.
func (t *turn) slot(id flight.ID) (*slot, error) {
	if s := t.slots[id]; s != nil {
		return s, nil
	}
	s := &slot{id: id}
	if w := t.m.writing; w != nil && w.slots[id] != nil {
		s.before = w.slots[id].now
	} else if known, _ := t.m.cache.get(id); known != nil {
		s.before = known
	} else if t.m.roll.Load().mayHold(id) {
		// The state is read as it is now, not as it was when this memBatch began: all earlier memBatches are in it
		// except the one being flushed, whose flush may end while this memBatch is active.
		var err error
		if s.before, err = t.m.state.record(id); err != nil {
			return nil, err
		}
	}
	s.now = s.before
	t.slots[id] = s
	return s, nil
}

// storeResult adds the result of one command to the memBatch.
func (t *turn) take(s *slot, f *flight.Flight, reply *flight.Reply, at flight.Version) error {
	if !s.fresh {
		s.fresh = true
		t.fresh = append(t.fresh, s)
	}
	old := flightOf(s.now)
	if reply.Deleted {
		t.delete(s, old)
		return nil
	}
	if reply.Changed {
		t.m.sessions.Changed(old, f)
		next := s.now.next(f)
		if old == nil {
			t.enroll(s.id, at.Index)
		}
		t.count(old, f)
		t.takeBodies(s, next, old)
		t.dropErased(s, next, old, at)
		tallied := old == nil || old.Duplicates != f.Duplicates
		s.changed = s.changed || old == nil || old.Version != f.Version || !tallied // a used nonce changes the flight without a new version
		s.tallied = f.Duplicates != nil && (s.tallied || tallied)
		s.now = next
		if f.State == flight.Expired && old != nil && old.State != flight.Expired {
			t.bury(s, next, old)
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
	t.set(s, historyKey(key[:0], s.id, at), t.keep(value))
	return nil
}

// deleteFlight deletes a flight that holds nothing any more. The key filter keeps its id, and gets it twice if the
// flight is created again.
func (t *turn) delete(s *slot, old *flight.Flight) {
	t.m.meta.Counts[old.State]--
	t.m.meta.Deleted++
	s.now, s.changed, s.tallied = nil, true, false
}

// recordCreated adds a new flight to the key filter and to the rows of the filter.
func (t *turn) enroll(id flight.ID, entry uint64) {
	t.m.roll.Load().enter(id)
	if n := len(t.enrolled); n == 0 || t.enrolled[n-1].entry != entry {
		t.enrolled = append(t.enrolled, rollPart{entry: entry})
	}
	part := &t.enrolled[len(t.enrolled)-1]
	part.ids = append(part.ids, id[:]...)
}

func (t *turn) count(old, f *flight.Flight) {
	if old != nil {
		t.m.meta.Counts[old.State]--
	}
	t.m.meta.Counts[f.State]++
}

// putRow adds a row of a flight. It retains the value, and copies the key.
func (t *turn) set(s *slot, key, value []byte) {
	t.bytes += len(key) + len(value)
	s.rows = append(s.rows, row{key: t.keep(key), value: value})
}

// deleteRow adds the deletion of a flight's row. It copies the key.
func (t *turn) drop(s *slot, key []byte) { s.rows = append(s.rows, row{key: t.keep(key), gone: true}) }

// copyBytes copies bytes into the memBatch's arena: few large allocations, freed together with the memBatch.
func (t *turn) keep(b []byte) []byte {
	const piece = 32 << 10
	if len(b) > len(t.room) {
		if len(b) > piece/8 {
			return bytes.Clone(b)
		}
		t.room = make([]byte, piece)
	}
	kept := t.room[:copy(t.room, b):len(b)]
	t.room = t.room[len(b):]
	return kept
}

// moveBodies moves the bytes of bodies out of a flight and into the record or rows of their own. No reader has seen
// this flight yet.
func (t *turn) takeBodies(s *slot, next *record, old *flight.Flight) {
	f := next.flight
	t.setBody(s, next, f.InputFrom, Input, f.Input.Data)
	f.Input.Data = nil
	if old != nil && old.InputFrom != f.InputFrom && old.Input.Kept > 0 {
		t.dropBody(s, next, old.InputFrom, Input)
	}
	if r := f.Receipt; r != nil && r.Body.Data != nil {
		t.setBody(s, next, f.Generation, Receipt, r.Body.Data)
		without := *r
		without.Body = r.Body.WithoutData()
		f.Receipt = &without
	}
}

// storeBody stores a body in the record or in its own row.
func (t *turn) setBody(s *slot, next *record, generation uint32, p Part, data []byte) {
	switch {
	case len(data) == 0:
	case len(data) <= longestShort && next.length()+len(data) <= mostShort:
		t.bytes += len(data)
		next.set(shortBody{generation: generation, part: p, data: bytes.Clone(data)})
	default:
		var key [maxRowKey]byte
		t.set(s, bodyKey(key[:0], s.id, generation, p), bytes.Clone(data)) // the caller may reuse its slice, and the flush comes later
	}
}

// deleteBody deletes a stored body.
func (t *turn) dropBody(s *slot, next *record, generation uint32, p Part) {
	if !next.drop(generation, p) {
		t.drop(s, bodyKey(nil, s.id, generation, p))
	}
}

func (t *turn) dropReceipt(s *slot, next *record, generation uint32, r *flight.Receipt) {
	if r != nil && r.Body.Kept > 0 {
		t.dropBody(s, next, generation, Receipt)
	}
}

// publish makes the changes of the last ApplyBatch visible to readers.
func (t *turn) show() {
	t.own.mu.Lock()
	for _, s := range t.fresh {
		t.own.byID[s.id] = ownRow{now: s.now, rows: slices.Clip(s.rows), buried: s.buried}
	}
	t.own.mu.Unlock()
	for _, s := range t.fresh {
		switch {
		case s.buried, s.changed && s.now == nil:
			t.m.cache.forget(s.id) // tombstones are rarely read; leave the cache to others
		case s.changed:
			t.m.cache.put(s.id, s.now)
		case s.tallied:
			t.m.cache.renew(s.id, s.now)
		}
	}
}

// wakeWaiters wakes the waiters of the changed flights. Header, flights and index are published by then.
func (t *turn) wake() {
	for _, s := range t.fresh {
		s.fresh = false
		t.m.waiters.wake(s.id)
	}
	t.fresh = t.fresh[:0]
}

// overlay is the part of a memBatch that readers see.
type ownRows struct {
	mu   sync.RWMutex // guards byID; the fsm is the only writer
	byID map[flight.ID]ownRow
}

// overlayFlight is a flight that differs from the stored one, with its rows.
type ownRow struct {
	now    *record
	rows   []row
	buried bool // its stored history is deleted
}

func (o *ownRows) find(id flight.ID) (ownRow, bool) {
	if o == nil {
		return ownRow{}, false
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	r, ok := o.byID[id]
	return r, ok
}

// overlayView holds the changes that are newer than the state: the active memBatch and the one being flushed.
type view struct {
	now, writing *ownRows
}

// find returns a flight that is newer than the state.
func (v *view) find(id flight.ID) (ownRow, bool) {
	if r, ok := v.now.find(id); ok {
		return r, true
	}
	return v.writing.find(id)
}

// tombstoned reports whether a flight's stored history counts as deleted.
func (v *view) buried(id flight.ID) bool {
	now, _ := v.now.find(id)
	writing, _ := v.writing.find(id)
	return now.buried || writing.buried
}

// row returns a row that is newer than the state. A found row without a value is deleted.
func (v *view) row(id flight.ID, key []byte) (value []byte, found bool) {
	for _, own := range []*ownRows{v.now, v.writing} {
		r, _ := own.find(id)
		for i := len(r.rows) - 1; i >= 0; i-- {
			if bytes.Equal(r.rows[i].key, key) {
				return r.rows[i].value, true
			}
		}
	}
	return nil, false
}
