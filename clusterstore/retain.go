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

// NoLimit is for Expire: all that is due.
const NoLimit = math.MaxInt

// Expire turns flights whose retention is over into tombstones, the oldest first and at most limit of them, and drops
// their bodies and histories. It answers how many it turned; fewer than limit: the rest can wait. What holds nothing but used
// nonces that have expired it deletes, and does not count.
//
// What expires is named by commands that the leader proposes; time alone expires nothing. It is late rather than
// early: see expiryHorizon. However much is due, it takes its time, so that those who wait for their flights do not
// notice: after each chunk it rests as long as the chunk took.
func (s *Store) Expire(ctx context.Context, limit int) (int, error) {
	if s.leading.Load() == nil {
		return 0, s.notLeading()
	}
	if limit <= 0 {
		return 0, nil
	}
	s.settleJump()
	s.machine.flush()
	w := &expiryWalk{s: s, from: singleRow(expiryRow), end: placeKey(nil, expiryRow, uint64(s.clock.expiryHorizon()+1), flight.ID{})}
	expired := 0
	for {
		start := time.Now()
		due, more, err := w.next(min(expiryChunk, limit-expired))
		if err != nil {
			return expired, err
		}
		n, err := s.expire(ctx, due)
		if expired += n; err != nil || !more || expired >= limit {
			return expired, err
		}
		if !s.rest(ctx, time.Since(start)) {
			return expired, context.Cause(ctx)
		}
	}
}

// expire proposes that these flights end, and answers how many became tombstones.
func (s *Store) expire(ctx context.Context, due []flight.Command) (expired int, err error) {
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

// rest answers false when there is to be no more work.
func (s *Store) rest(ctx context.Context, d time.Duration) bool {
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

// expiryChunk is how many rows of the index are read at once, and how many flights end by commands that stand
// together: few enough that nobody waits long behind them.
const expiryChunk = 256

// expiryWalk goes once over the index of retentions, in the order of their ends. It never goes back, so that it does
// not wade through the graves of what it ended itself; what comes up behind it is for the next walk.
type expiryWalk struct {
	s         *Store
	from, end []byte
}

// next names flights whose retention is over, limit of them or the next few; more is false when there are no others.
// Steps of a saga that is not expired yet are passed over: they live as long as it does.
func (w *expiryWalk) next(limit int) (due []flight.Command, more bool, err error) {
	var ids []flight.ID
	last := w.from
	err = w.s.state.scan(w.from, w.end, func(key, _ []byte) (bool, error) {
		_, id, err := splitPlace(key)
		if err != nil {
			return false, err
		}
		ids, last = append(ids, id), append(append([]byte(nil), key...), 0)
		return len(ids) < limit, nil
	})
	if err != nil {
		return nil, false, err
	}
	w.from = last
	for _, id := range ids {
		c, err := w.s.mayExpire(id)
		if err != nil {
			return nil, false, err
		}
		if c != nil {
			due = append(due, c)
		}
	}
	return due, len(ids) == limit, nil
}

// mayExpire gives the command that ends a flight's retention; nil when it is too early.
func (s *Store) mayExpire(id flight.ID) (flight.Command, error) {
	f, err := s.machine.peek(id)
	if err != nil || expiryKey(nil, f) == nil {
		return nil, err
	}
	if f.Key.IsStep() && f.DeletableAt() == 0 {
		saga, err := s.machine.peek(f.Key.Saga().FlightID())
		if err != nil || saga != nil && saga.State != flight.Expired {
			return nil, err
		}
	}
	return &flight.Expire{Key: f.Key, Generation: f.Generation}, nil
}

// bury drops what a tombstone no longer has: the receipts' bodies of all generations, and the history. Of the history
// it drops what this turn brought; what the state has of it is found when the turn is written, because that takes a
// look at the disk for every flight, and those who apply have no time for that.
func (t *turn) bury(s *slot, next *record, old *flight.Flight) {
	for _, r := range s.rows {
		if !r.gone && r.key[0] == flightRows && r.key[ownKind] == historyRow {
			t.drop(s, r.key)
		}
	}
	s.buried = true
	t.dropReceipt(s, next, old.Generation, old.Receipt)
	for _, p := range old.Past {
		t.dropReceipt(s, next, p.Generation, p.Receipt)
	}
}

// buryHistories drops the histories and tallies of flights that became tombstones in this turn. All earlier turns are in the state.
func (t *turn) buryHistories(batch *pebble.Batch, slots []*slot) (err error) {
	var it *pebble.Iterator
	defer func() {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}()
	for _, s := range slots {
		if !s.buried {
			continue
		}
		if it == nil {
			if it, err = t.m.state.db.NewIter(&pebble.IterOptions{LowerBound: singleRow(flightRows), UpperBound: singleRow(flightRows + 1)}); err != nil {
				return err
			}
		}
		from, to := tallyKey(nil, s.id), ownKey(nil, s.id, historyRow+1)
		for valid := it.SeekGE(from); valid && bytes.Compare(it.Key(), to) < 0; valid = it.Next() {
			if it.Key()[ownKind] == recordRow {
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
