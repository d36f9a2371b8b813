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

// flushes writes what was applied, some time after it was. It ends when the store closes.
func (s *Store) flushes() {
	defer s.workers.Done()
	for {
		select {
		case <-s.machine.dirty:
		case <-s.closing:
			return
		}
		timer := time.NewTimer(flushPause)
		select {
		case <-timer.C:
		case <-s.machine.filled:
			timer.Stop()
		case <-s.closing:
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
	if err := t.probe.close(); err != nil {
		return err
	}
	batch := t.m.state.db.NewBatchWithSize(t.bytes + 512*len(t.slots))
	defer func() { _ = batch.Close() }() // frees memory; the commit has its own error
	slots := make([]*slot, 0, len(t.slots))
	for _, s := range t.slots {
		if s.changed || len(s.rows) > 0 {
			slots = append(slots, s)
		}
	}
	slices.SortFunc(slots, func(a, b *slot) int { return bytes.Compare(a.id[:], b.id[:]) })
	// Rows that stand together are written together and in order: finding the place of a row is most of what it costs.
	for _, write := range []func(*pebble.Batch, *slot) error{writeOwn, writeLive, writeListed, writeExpiry} {
		for _, s := range slots {
			if err := write(batch, s); err != nil {
				return err
			}
		}
	}
	if err := writeHead(batch, head); err != nil {
		return err
	}
	return batch.Commit(pebble.NoSync)
}

func writeHead(batch *pebble.Batch, head shown) error {
	header, err := flight.EncodeRecord(&head.header)
	if err != nil {
		return err
	}
	mark, err := encodeMeta(&head.meta)
	if err != nil {
		return err
	}
	if err := batch.Set(singleRow(headerRow), header, nil); err != nil {
		return err
	}
	return batch.Set(singleRow(metaRow), mark, nil)
}

// writeOwn writes what stands under the flight's id.
func writeOwn(batch *pebble.Batch, s *slot) error {
	if s.changed {
		record, err := flight.EncodeRecord(s.now)
		if err != nil {
			return err
		}
		if err := batch.Set(recordKey(s.id), record, nil); err != nil {
			return err
		}
	}
	for _, r := range s.rows {
		var err error
		if r.gone {
			err = batch.Delete(r.key, nil)
		} else {
			err = batch.Set(r.key, r.value, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLive keeps the index of living flights, which is in the order of their creation. A row of it is set once and
// deleted once, which is what SingleDelete asks for: the two vanish together, and walks over the index do not wade
// through graves.
func writeLive(batch *pebble.Batch, s *slot) error {
	was, is := liveKey(s.before), liveKey(s.now)
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := batch.SingleDelete(was, nil); err != nil {
			return err
		}
	}
	if is != nil {
		return batch.Set(is, nil, nil)
	}
	return nil
}

func writeListed(batch *pebble.Batch, s *slot) error {
	was, is := listKey(s.before), listKey(s.now)
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := batch.Delete(was, nil); err != nil {
			return err
		}
	}
	if is != nil {
		return batch.Set(is, []byte(s.now.Key.String()), nil)
	}
	return nil
}

func writeExpiry(batch *pebble.Batch, s *slot) error {
	was, is := expiryKey(s.before), expiryKey(s.now)
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := batch.Delete(was, nil); err != nil {
			return err
		}
	}
	if is != nil {
		return batch.Set(is, nil, nil)
	}
	return nil
}
