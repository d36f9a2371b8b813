package clusterstore

import (
	"bytes"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// A turn holds this many flights or bytes of bodies and history at most, then it must be written.
const (
	turnFlights = 2048
	turnBytes   = 4 << 20
)

// turn is what was applied since the last write to the state began: the flights that changed, the rows they bring
// along, and the way back to how the state has them.
type turn struct {
	m        *machine
	slots    map[flight.ID]*slot
	fresh    []*slot // those that the current call of ApplyBatch touched
	enrolled []rollPart
	rows     []row // those that belong to no flight, in the order in which they came
	commands int
	bytes    int
	room     []byte // for keys and short rows
	scratch  []byte // for one row of history
	moved    bool   // an entry was applied
	own      *ownRows
}

// slot is a flight during a turn.
type slot struct {
	id      flight.ID
	before  *record // as the state has it when the turn is written
	now     *record
	changed bool // otherwise than by a tally; without now: it was deleted
	tallied bool // its tally is another one
	fresh   bool
	buried  bool  // it became a tombstone: what the state has of its history goes
	rows    []row // bodies and history, in the order in which they came
}

// row is one row to be written, or deleted.
type row struct {
	key, value []byte
	gone       bool
}

func newTurn(m *machine) *turn {
	return &turn{m: m, slots: make(map[flight.ID]*slot), own: &ownRows{byID: make(map[flight.ID]ownRow)}}
}

func (t *turn) full() bool { return len(t.slots) >= turnFlights || t.bytes >= turnBytes }

// entry applies one log entry.
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

// packet applies the commands of an entry. What this process packed itself it need not read again.
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

// command applies one command.
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

// apply applies a command to one flight; s is nil where it is about the header.
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

// slot gives a flight as it stands: in this turn, in the one that is being written, or in the state.
func (t *turn) slot(id flight.ID) (*slot, error) {
	if s := t.slots[id]; s != nil {
		return s, nil
	}
	s := &slot{id: id}
	if w := t.m.writing; w != nil && w.slots[id] != nil {
		s.before = w.slots[id].now
	} else if known, _ := t.m.cache.get(id); known != nil {
		s.before = known
	} else if read, err := t.lookUp(id); err == nil {
		s.before = read
	} else {
		return nil, err
	}
	s.now = s.before
	t.slots[id] = s
	return s, nil
}

// lookUp reads a record from the state as it stands at this moment, never as it stood when the turn began: the turns before
// this one are written by now, but for the one that is being written, and that one may be written while this one goes on.
func (t *turn) lookUp(id flight.ID) (*record, error) {
	if !t.m.roll.Load().mayHold(id) {
		return nil, nil
	}
	return t.m.state.record(id)
}

// take takes the outcome of one command into the turn.
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
		s.changed = s.changed || old == nil || old.Version != f.Version || !tallied // it may have used a nonce, which is no new version
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

// delete removes a flight that holds nothing any more. The roll goes on naming it, and names it twice where it is made again.
func (t *turn) delete(s *slot, old *flight.Flight) {
	t.m.meta.Counts[old.State]--
	t.m.meta.Deleted++
	s.now, s.changed, s.tallied = nil, true, false
}

// enroll enters a flight that came into being.
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

// set has a row written. It keeps the value, and a copy of the key.
func (t *turn) set(s *slot, key, value []byte) {
	t.bytes += len(key) + len(value)
	s.rows = append(s.rows, row{key: t.keep(key), value: value})
}

// drop has a row deleted. It keeps a copy of the key.
func (t *turn) drop(s *slot, key []byte) { s.rows = append(s.rows, row{key: t.keep(key), gone: true}) }

// keep copies bytes into memory of the turn: large pieces instead of many small ones, which go when the turn does.
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

// takeBodies moves the bytes that a command brought from its flight to where bodies are kept. Nobody else has seen this
// flight yet.
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

// setBody keeps a body that a command brought.
func (t *turn) setBody(s *slot, next *record, generation uint32, p Part, data []byte) {
	switch {
	case len(data) == 0:
	case len(data) <= longestShort && next.length()+len(data) <= mostShort:
		t.bytes += len(data)
		next.set(shortBody{generation: generation, part: p, data: bytes.Clone(data)})
	default:
		var key [maxRowKey]byte
		t.set(s, bodyKey(key[:0], s.id, generation, p), bytes.Clone(data)) // it is its caller's, and is written later
	}
}

// dropBody drops a body that there was.
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

// show lets readers see what the entries did.
func (t *turn) show() {
	t.own.mu.Lock()
	for _, s := range t.fresh {
		t.own.byID[s.id] = ownRow{now: s.now, rows: slices.Clip(s.rows), buried: s.buried}
	}
	t.own.mu.Unlock()
	for _, s := range t.fresh {
		switch {
		case s.buried, s.changed && s.now == nil:
			t.m.cache.forget(s.id) // nobody asks for a million tombstones; others' places are worth more
		case s.changed:
			t.m.cache.put(s.id, s.now)
		case s.tallied:
			t.m.cache.renew(s.id, s.now)
		}
	}
}

// wake wakes those who wait for what changed. Header, flights and index are shown by then.
func (t *turn) wake() {
	for _, s := range t.fresh {
		s.fresh = false
		t.m.waiters.wake(s.id)
	}
	t.fresh = t.fresh[:0]
}

// ownRows is what readers see of a turn.
type ownRows struct {
	mu   sync.RWMutex
	byID map[flight.ID]ownRow
}

// ownRow is a flight that the state does not hold like this yet, and the rows that come with it.
type ownRow struct {
	now    *record
	rows   []row
	buried bool // what the state has of its history goes
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

// view is what is newer than the state: what is collected, and what is being written.
type view struct {
	now, writing *ownRows
}

// find gives a flight where it is newer than in the state.
func (v *view) find(id flight.ID) (ownRow, bool) {
	if r, ok := v.now.find(id); ok {
		return r, true
	}
	return v.writing.find(id)
}

// buried reports whether what the state has of a flight's history is gone already.
func (v *view) buried(id flight.ID) bool {
	now, _ := v.now.find(id)
	writing, _ := v.writing.find(id)
	return now.buried || writing.buried
}

// row finds one row where it is newer than in the state. found without value: it is deleted.
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
