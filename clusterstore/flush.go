package clusterstore

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/flightd/flightd/flight"
)

// flushPause is how long what was applied is collected before it is written to the state.
const flushPause = 100 * time.Millisecond

// flushes writes what was applied, some time after it was. It ends when nothing is applied any more: until then the state
// machine may wait for it.
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

// makeRoomLocked keeps what waits to be written bounded: a full turn is given to the writer, and where that one is not
// done with the one before, the log waits.
func (m *machine) makeRoomLocked() {
	for m.turn.full() {
		select {
		case m.filled <- struct{}{}:
		default: // it knows
		}
		m.written.Wait()
	}
}

// flush writes everything that was applied before it was called to the state, and returns when it is readable there.
// It is not durable then; see Snapshot.
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

// finish lets go of the turn that is in the state now.
func (m *machine) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writing = nil
	m.view.Store(&view{now: m.turn.own})
	m.written.Broadcast()
}

// begin takes the turn out of the machine's hands; nil when there is nothing to write.
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

// write writes a turn as one batch, together with how far the log is applied by it. If the process dies meanwhile the
// batch is in the state or not, as a whole.
func (t *turn) write(head shown) error {
	w := writer{batch: t.m.state.db.NewBatchWithSize(t.bytes + 512*len(t.slots))}
	defer func() { _ = w.batch.Close() }() // frees memory; the commit has its own error
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
	// Rows that stand together are written together and in order: finding the place of a row is most of what it costs.
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

// writer writes rows into a batch, which copies what it is given.
type writer struct {
	batch *pebble.Batch
	room  []byte // for one record
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

// own writes what stands under the flight's id.
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

// live keeps the index of living flights, which is in the order of their creation. A row of an index is set once
// before it is deleted, which is what SingleDelete asks for: the two vanish together, and walks over the index do not
// wade through graves.
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
