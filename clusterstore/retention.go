package clusterstore

import (
	"bytes"
	"context"
	"errors"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/flightd/flightd/flight"
)

// NoLimit makes Expire process all flights that are due.
const NoLimit = math.MaxInt

// Expire turns up to limit flights whose retention is over into tombstones, oldest first, and deletes their bodies
// and histories. It returns their number; fewer than limit: no more are due now. Flights that hold only expired used
// nonces are deleted and not counted.
//
// The leader proposes an Expire command for each flight; time alone expires nothing. Flights expire late rather than
// early: see expiryHorizon. After each chunk Expire sleeps as long as the chunk took, so that
// other callers are not delayed.
//
// If the process dies during Expire, the flights with a committed command are tombstones, and the others are still
// due.
func (s *Store) Expire(ctx context.Context, limit int) (int, error) {
	if s.leading.Load() == nil {
		return 0, s.notLeaderError()
	}
	if limit <= 0 {
		return 0, nil
	}
	s.removeSettledClockStep()
	s.fsm.flush()
	w := &expiryScan{s: s, from: kindKey(expiryRow), end: orderedKey(nil, expiryRow, uint64(s.clock.expiryHorizon()+1), flight.ID{})}
	expired := 0
	for {
		start := time.Now()
		due, more, err := w.next(min(expiryChunk, limit-expired))
		if err != nil {
			return expired, err
		}
		n, err := s.proposeExpire(ctx, due)
		if expired += n; err != nil || !more || expired >= limit {
			return expired, err
		}
		if !s.sleep(ctx, time.Since(start)) {
			return expired, context.Cause(ctx)
		}
	}
}

// proposeExpire proposes the commands, and returns how many flights became tombstones.
func (s *Store) proposeExpire(ctx context.Context, due []flight.Command) (expired int, err error) {
	if len(due) == 0 {
		return 0, nil
	}
	replies, err := s.ProposeAll(ctx, due)
	for i := range replies {
		if replies[i].Changed && !replies[i].Deleted {
			expired++
		}
	}
	if f := s.cfg.Events.Expired; f != nil && expired > 0 {
		f(expired)
	}
	return expired, err
}

// sleep waits for d. It returns false when ctx ended or the store closes.
func (s *Store) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-s.closing:
		return false
	}
}

// expiryChunk is how many index rows are read, and how many commands are proposed, at a time: few enough that other
// commands do not wait long.
const expiryChunk = 256

// expiryScan scans the index of retentions once, in the order of their ends. It never goes back, so it does not pass
// the rows that it has deleted itself. Rows that appear before its position are left to the next scan.
type expiryScan struct {
	s         *Store
	from, end []byte
}

// next returns Expire commands for up to limit index rows; more is false at the end of the index. It skips the steps
// of a saga that is not expired: they are kept as long as the saga.
func (es *expiryScan) next(limit int) (due []flight.Command, more bool, err error) {
	var ids []flight.ID
	last := es.from
	err = es.s.state.scan(es.from, es.end, func(key, _ []byte) (bool, error) {
		_, id, err := splitOrderedKey(key)
		if err != nil {
			return false, err
		}
		ids, last = append(ids, id), append(append([]byte(nil), key...), 0)
		return len(ids) < limit, nil
	})
	if err != nil {
		return nil, false, err
	}
	es.from = last
	for _, id := range ids {
		c, err := es.s.expireCommand(id)
		if err != nil {
			return nil, false, err
		}
		if c != nil {
			due = append(due, c)
		}
	}
	return due, len(ids) == limit, nil
}

// expireCommand returns the command that ends a flight's retention, or nil if the flight may not expire yet.
func (r *reader) expireCommand(id flight.ID) (flight.Command, error) {
	f, err := r.fsm.peek(id)
	if err != nil || expiryKey(nil, f) == nil {
		return nil, err
	}
	if f.Key.IsStep() && f.DeletableAt() == 0 {
		saga, err := r.fsm.peek(f.Key.Saga().FlightID())
		if err != nil || saga != nil && saga.State != flight.StateExpired {
			return nil, err
		}
	}
	return &flight.Expire{Key: f.Key, Generation: f.Generation}, nil
}

// deleteTombstonedRows deletes the receipt bodies of all generations and the history of a new tombstone. It deletes
// the history rows of this memBatch only. The stored history rows are deleted by commit, because finding them needs a
// disk read per flight, and applying must not wait for that.
func (mb *memBatch) deleteTombstonedRows(s *dirtyFlight, next *record, old *flight.Flight) {
	for _, r := range s.rows {
		if !r.deleted && r.key[0] == flightRows && r.key[kindOffset] == historyRow {
			mb.deleteRow(s, r.key)
		}
	}
	s.tombstoned = true
	mb.deleteReceiptBody(s, next, old.Generation, old.Receipt)
	for _, p := range old.PreviousGenerations {
		mb.deleteReceiptBody(s, next, p.Generation, p.Receipt)
	}
}

// deleteHistories deletes the stored histories and duplicate statistics of flights that became tombstones in this
// memBatch. All earlier mem batches are in the state.
func (mb *memBatch) deleteHistories(batch *pebble.Batch, slots []*dirtyFlight) (err error) {
	var it *pebble.Iterator
	defer func() {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}()
	for _, s := range slots {
		if !s.tombstoned {
			continue
		}
		if it == nil {
			if it, err = mb.fsm.state.db.NewIter(&pebble.IterOptions{LowerBound: kindKey(flightRows), UpperBound: kindKey(flightRows + 1)}); err != nil {
				return err
			}
		}
		from, to := duplicatesKey(nil, s.id), flightKey(nil, s.id, historyRow+1)
		for valid := it.SeekGE(from); valid && bytes.Compare(it.Key(), to) < 0; valid = it.Next() {
			if it.Key()[kindOffset] == recordRow {
				continue
			}
			if err := batch.Delete(it.Key(), nil); err != nil {
				return err
			}
		}
		if err := it.Error(); err != nil {
			return err
		}
	}
	return nil
}
