package clusterstore

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/flightd/flightd/flight"
)

// flushDelay is how long applied entries are collected before they are written to the state.
const flushPause = 100 * time.Millisecond

// runFlush writes applied entries to the state after flushDelay, or when the active memBatch is full. Close waits for
// it; it ends only after raft has stopped applying, because the FSM may wait for a flush.
func (s *Store) flushes() {
	defer s.workers.Done()
	for {
		select {
		case <-s.machine.dirty:
		case <-s.quiet:
			return
		}
		timer := time.NewTimer(flushPause)
		select {
		case <-timer.C:
		case <-s.machine.filled:
			timer.Stop()
		case <-s.quiet:
			timer.Stop()
			return
		}
		s.machine.flush()
	}
}

// waitForSpaceLocked waits until the active memBatch is not full: it bounds the memory of unflushed entries. Applying
// waits when the disk is slower than the log.
func (m *machine) makeRoomLocked() {
	for m.turn.full() {
		select {
		case m.filled <- struct{}{}:
		default: // already signalled
		}
		m.written.Wait()
	}
}

// flush writes everything that was applied before the call to the state, and returns when it is readable there. It
// does not sync; see Snapshot.
//
// A failed write kills the process. The log holds all entries, and the next start applies them again.
func (m *machine) flush() {
	t, head := m.begin()
	if t == nil {
		return
	}
	if err := t.write(head); err != nil {
		m.cfg.Guard.Kill(fmt.Errorf("clusterstore: the state cannot be written: %w", err))
	}
	m.finish()
}

// finishFlush discards the memBatch that was written to the state.
func (m *machine) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writing = nil
	m.view.Store(&view{now: m.turn.own})
	m.written.Broadcast()
}

// beginFlush makes the active memBatch the flushing one and starts a new one; nil when no entry was applied. It waits
// for a flush that is in progress.
func (m *machine) begin() (*turn, shown) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.writing != nil {
		m.written.Wait()
	}
	if !m.turn.moved {
		return nil, shown{}
	}
	m.writing, m.turn = m.turn, newTurn(m)
	m.view.Store(&view{now: m.turn.own, writing: m.writing.own})
	m.written.Broadcast()
	return m.writing, shown{header: m.header, meta: m.meta}
}

// commit writes a memBatch and the index of its last entry to the state as one Pebble batch.
//
// If the process dies during commit, the state holds the whole batch or nothing of it.
func (t *turn) write(head shown) error {
	w := writer{batch: t.m.state.db.NewBatchWithSize(t.bytes + 512*len(t.slots))}
	defer func() { _ = w.batch.Close() }() // frees memory; Commit reports its own error
	slots := make([]*slot, 0, len(t.slots))
	for _, s := range t.slots {
		if s.changed || s.tallied || len(s.rows) > 0 {
			slots = append(slots, s)
		}
	}
	slices.SortFunc(slots, func(a, b *slot) int { return bytes.Compare(a.id[:], b.id[:]) })
	if err := t.buryHistories(w.batch, slots); err != nil {
		return err
	}
	// Adjacent rows are written together and in order: finding the position of a row is most of its cost.
	for _, write := range []func(*slot) error{w.own, w.live, w.listed, w.expiry} {
		for _, s := range slots {
			if err := write(s); err != nil {
				return err
			}
		}
	}
	for _, r := range t.rows {
		if err := w.row(r); err != nil {
			return err
		}
	}
	for _, part := range t.enrolled {
		if err := w.batch.Set(rollKey(w.key[0][:0], part.entry), part.ids, nil); err != nil {
			return err
		}
	}
	if err := w.head(head); err != nil {
		return err
	}
	return w.batch.Commit(pebble.NoSync)
}

// stateWriter writes rows into a Pebble batch, which copies keys and values.
type writer struct {
	batch *pebble.Batch
	room  []byte // buffer for one record
	key   [2][maxRowKey]byte
}

func (w *writer) head(head shown) error {
	header, err := flight.EncodeRecord(&head.header)
	if err != nil {
		return err
	}
	mark, err := encodeMeta(&head.meta)
	if err != nil {
		return err
	}
	if err := w.batch.Set(singleRow(headerRow), header, nil); err != nil {
		return err
	}
	return w.batch.Set(singleRow(metaRow), mark, nil)
}

// writeFlight writes the rows under the flight's id.
func (w *writer) own(s *slot) (err error) {
	if s.tallied {
		if w.room, err = flight.AppendRecord(w.room[:0], s.now.flight.Duplicates); err != nil {
			return err
		}
		if err := w.batch.Set(tallyKey(w.key[0][:0], s.id), w.room, nil); err != nil {
			return err
		}
	}
	switch {
	case s.changed && s.now == nil:
		err = w.batch.Delete(recordKey(w.key[0][:0], s.id), nil)
	case s.changed:
		if w.room, err = appendRecord(w.room[:0], s.now); err == nil {
			err = w.batch.Set(recordKey(w.key[0][:0], s.id), w.room, nil)
		}
	}
	for _, r := range s.rows {
		if err == nil {
			err = w.row(r)
		}
	}
	return err
}

func (w *writer) row(r row) error {
	if r.gone {
		return w.batch.Delete(r.key, nil)
	}
	return w.batch.Set(r.key, r.value, nil)
}

// writeLive updates the index of live flights. Each index row is set once and deleted once, as SingleDelete requires;
// then the two cancel out, and scans of the index pass no deleted rows.
func (w *writer) live(s *slot) error {
	was, is := liveKey(w.key[0][:0], flightOf(s.before)), liveKey(w.key[1][:0], flightOf(s.now))
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := w.batch.SingleDelete(was, nil); err != nil {
			return err
		}
	}
	if is != nil {
		return w.batch.Set(is, nil, nil)
	}
	return nil
}

func (w *writer) listed(s *slot) error {
	was, is := listKey(w.key[0][:0], flightOf(s.before)), listKey(w.key[1][:0], flightOf(s.now))
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := w.batch.SingleDelete(was, nil); err != nil {
			return err
		}
	}
	if is != nil {
		return w.batch.Set(is, []byte(s.now.flight.Key.String()), nil)
	}
	return nil
}

func (w *writer) expiry(s *slot) error {
	was, is := expiryKey(w.key[0][:0], flightOf(s.before)), expiryKey(w.key[1][:0], flightOf(s.now))
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := w.batch.SingleDelete(was, nil); err != nil {
			return err
		}
	}
	if is != nil {
		return w.batch.Set(is, nil, nil)
	}
	return nil
}
