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
const flushDelay = 100 * time.Millisecond

// runFlush writes applied entries to the state after flushDelay, or when the active memBatch is full. Close waits for
// it; it ends only after raft has stopped applying, because the FSM may wait for a flush.
func (s *Store) runFlush() {
	defer s.workers.Done()
	for {
		select {
		case <-s.fsm.dirty:
		case <-s.applyStopped:
			return
		}
		timer := time.NewTimer(flushDelay)
		select {
		case <-timer.C:
		case <-s.fsm.activeFull:
			timer.Stop()
		case <-s.applyStopped:
			timer.Stop()
			return
		}
		s.fsm.flush()
	}
}

// waitForSpaceLocked waits until the active memBatch is not full: it bounds the memory of unflushed entries. Applying
// waits when the disk is slower than the log.
func (fs *fsm) waitForSpaceLocked() {
	for fs.active.full() {
		select {
		case fs.activeFull <- struct{}{}:
		default: // already signalled
		}
		fs.flushed.Wait()
	}
}

// flush writes everything that was applied before the call to the state, and returns when it is readable there. It
// does not sync; see Snapshot.
//
// A failed write kills the process. The log holds all entries, and the next start applies them again.
func (fs *fsm) flush() {
	batch, head := fs.beginFlush()
	if batch == nil {
		return
	}
	if err := batch.commit(head); err != nil {
		fs.cfg.Limits.Kill(fmt.Errorf("clusterstore: the state cannot be written: %w", err))
	}
	fs.finishFlush()
}

// finishFlush discards the memBatch that was written to the state.
func (fs *fsm) finishFlush() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.flushing = nil
	fs.view.Store(&overlayView{active: fs.active.overlay})
	fs.flushed.Broadcast()
}

// beginFlush makes the active memBatch the flushing one, which it returns, and starts a new one. It returns nil if no entry was
// applied. It waits for a flush that is in progress.
func (fs *fsm) beginFlush() (*memBatch, published) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for fs.flushing != nil {
		fs.flushed.Wait()
	}
	if !fs.active.hasEntries {
		return nil, published{}
	}
	fs.flushing, fs.active = fs.active, newMemBatch(fs)
	fs.view.Store(&overlayView{active: fs.active.overlay, flushing: fs.flushing.overlay})
	fs.flushed.Broadcast()
	fs.flushing.rows = append(fs.flushing.rows, row{key: kindKey(namespacesRow), value: encodeListed(fs.listed)})
	return fs.flushing, published{header: fs.header, meta: fs.meta}
}

// commit writes a memBatch and the index of its last entry to the state as one Pebble batch.
//
// If the process dies during commit, the state holds the whole batch or nothing of it.
func (mb *memBatch) commit(head published) error {
	w := stateWriter{batch: mb.fsm.state.db.NewBatchWithSize(mb.bytes + 512*len(mb.dirty))}
	defer func() { _ = w.batch.Close() }() // frees memory; Commit reports its own error
	slots := make([]*dirtyFlight, 0, len(mb.dirty))
	for _, s := range mb.dirty {
		if s.changed || s.statsChanged || len(s.rows) > 0 {
			slots = append(slots, s)
		}
	}
	slices.SortFunc(slots, func(a, b *dirtyFlight) int { return bytes.Compare(a.id[:], b.id[:]) })
	if err := mb.deleteHistories(w.batch, slots); err != nil {
		return err
	}
	// Adjacent rows are written together and in order: finding the position of a row is most of its cost.
	for _, s := range slots {
		if err := w.writeFlight(s); err != nil {
			return err
		}
	}
	for _, key := range [...]func([]byte, *flight.Flight) []byte{liveKey, listKey, expiryKey} {
		for _, s := range slots {
			if err := w.writeIndex(s, key); err != nil {
				return err
			}
		}
	}
	for _, r := range mb.rows {
		if err := w.writeRow(r); err != nil {
			return err
		}
	}
	for _, part := range mb.created {
		if err := w.batch.Set(filterKey(w.key[0][:0], part.entry), part.ids, nil); err != nil {
			return err
		}
	}
	if err := w.writeHeader(head); err != nil {
		return err
	}
	return w.batch.Commit(pebble.NoSync)
}

// stateWriter writes rows into a Pebble batch, which copies keys and values.
type stateWriter struct {
	batch *pebble.Batch
	buf   []byte // buffer for one record
	key   [2][maxRowKey]byte
}

func (w *stateWriter) writeHeader(head published) error {
	header, err := flight.EncodeRecord(&head.header)
	if err != nil {
		return err
	}
	mark, err := encodeMeta(&head.meta)
	if err != nil {
		return err
	}
	if err := w.batch.Set(kindKey(headerRow), header, nil); err != nil {
		return err
	}
	return w.batch.Set(kindKey(metaRow), mark, nil)
}

// writeFlight writes the rows under the flight's id.
func (w *stateWriter) writeFlight(s *dirtyFlight) (err error) {
	if s.statsChanged {
		if w.buf, err = flight.AppendRecord(w.buf[:0], s.now.flight.Duplicates); err != nil {
			return err
		}
		if err := w.batch.Set(duplicatesKey(w.key[0][:0], s.id), w.buf, nil); err != nil {
			return err
		}
	}
	switch {
	case s.changed && s.now == nil:
		err = w.batch.Delete(recordKey(w.key[0][:0], s.id), nil)
	case s.changed:
		if w.buf, err = appendRecord(w.buf[:0], s.now); err == nil {
			err = w.batch.Set(recordKey(w.key[0][:0], s.id), w.buf, nil)
		}
	}
	for _, r := range s.rows {
		if err == nil {
			err = w.writeRow(r)
		}
	}
	return err
}

func (w *stateWriter) writeRow(r row) error {
	if r.deleted {
		return w.batch.Delete(r.key, nil)
	}
	return w.batch.Set(r.key, r.value, nil)
}

// writeIndex updates the row of a flight in an index. Each row is set once and deleted once, as SingleDelete requires; then the two
// cancel out, and scans of the index pass no deleted rows.
func (w *stateWriter) writeIndex(s *dirtyFlight, key func([]byte, *flight.Flight) []byte) error {
	was, is := key(w.key[0][:0], flightOf(s.before)), key(w.key[1][:0], flightOf(s.now))
	if bytes.Equal(was, is) {
		return nil
	}
	if was != nil {
		if err := w.batch.SingleDelete(was, nil); err != nil {
			return err
		}
	}
	if is == nil {
		return nil
	}
	var value []byte
	if is[0] == listRow {
		value = []byte(s.now.flight.Key.String())
	}
	return w.batch.Set(is, value, nil)
}
