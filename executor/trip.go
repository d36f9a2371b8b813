package executor

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/caller"
)

// trip is one Do of this process on its way, shared by all its callers of one key.
type trip struct {
	id       flight.ID
	call     effect.Call
	handler  effect.Handler
	trace    string      // traceparent of the first caller
	interest lazyContext // ends when the last caller has gone, or when Close begins
	callers  int         // guarded by the shard's mutex
	joined   bool        // guarded by the shard's mutex until the trip is off the map
	shard    *shard
	done     chan struct{}
	result   effect.Result
	err      error
	flying   atomic.Bool // an attempt of this trip is the flight's newest, as far as it knows

	generation atomic.Uint32 // of the flight, as the ledger told this trip last; 0: it did not yet

	// Of the goroutine that flies it.
	at       *attempt       // its newest Open; nil: none, or another goroutine has it
	wanted   time.Time      // since when it wants to act; zero: nobody asks
	setbacks int            // how often in a row an Open came to nothing
	left     *caller.Ending // the attempt's end, where the handler ended the goroutine before; nil: it did not
}

const shards = 64

// trips finds the trip of a key.
type trips struct {
	shard [shards]shard
}

type shard struct {
	mu   sync.Mutex
	byID map[flight.ID]*trip
	_    [48]byte // shards do not share a cache line
}

func (ts *trips) of(id flight.ID) *shard { return &ts.shard[id[0]%shards] }

// join gives the trip of the call's key, and whether the caller is the first, who must fly it. Nobody joins a trip of an
// earlier generation than the one that it has seen.
func (ts *trips) join(parent context.Context, id flight.ID, seen uint32, call effect.Call, h effect.Handler) (t *trip, first bool) {
	s := ts.of(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byID[id]; t != nil && t.interest.Err() == nil && !t.before(seen) {
		t.callers++
		t.joined = true
		return t, false
	}
	call.Submission.Input.Data = bytes.Clone(call.Submission.Input.Data) // the trip may outlive the caller, whose bytes they are
	t = &trip{id: id, call: call, handler: h, callers: 1, shard: s, done: make(chan struct{}), interest: lazyContext{parent: parent}}
	if s.byID == nil {
		s.byID = make(map[flight.ID]*trip)
	}
	s.byID[id] = t
	return t, true
}

// before reports whether the trip is known to be of an earlier generation.
func (t *trip) before(generation uint32) bool {
	known := t.generation.Load()
	return known > 0 && known < generation
}

// sees notes what the ledger told of the flight.
func (t *trip) sees(f *flight.Flight) {
	if f != nil {
		t.generation.Store(f.Generation)
	}
}

// leave takes the trip off the map; a later caller starts another one.
func (ts *trips) leave(t *trip) {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	if t.shard.byID[t.id] == t {
		delete(t.shard.byID, t.id)
	}
}

func (t *trip) end(result effect.Result, err error) {
	t.result, t.err = result, err
	close(t.done)
	t.interest.end(context.Canceled)
}

// over reports whether the trip has ended.
func (t *trip) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// await waits for the end of the trip. A caller that goes away ends only its own wait; when the last one goes, the
// trip loses its interest in waiting, while an effect in the air goes on. patience bounds the wait for somebody
// else's attempt: for a caller that joined, that of this trip, too.
func (t *trip) await(ctx context.Context, patience time.Duration, as effect.Source) (effect.Result, error) {
	var over <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-t.done:
			return t.share(as)
		case <-ctx.Done():
			t.forget(context.Cause(ctx))
			return effect.Result{}, context.Cause(ctx)
		case <-over:
		}
		if as == effect.Joined || !t.flying.Load() {
			t.forget(context.DeadlineExceeded)
			return effect.Result{}, &effect.Busy{Key: t.call.Key, State: flight.Running, RetryAfter: lastPoll}
		}
		over = nil // this caller's own effect is in the air: it waits for that one, however long it takes
	}
}

// share gives the trip's result to one of its callers.
func (t *trip) share(as effect.Source) (effect.Result, error) {
	if !t.joined {
		return t.result, t.err
	}
	return caller.Share(t.result, t.err, as)
}

// forget takes one caller off the trip. The interest ends under the lock, so that nobody joins a trip that has lost it.
func (t *trip) forget(cause error) {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	if t.callers--; t.callers == 0 {
		t.interest.end(cause)
	}
}
