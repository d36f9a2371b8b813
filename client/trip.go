package client

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/caller"
)

// trip is one Do of this client on its way, shared by all its callers of one key.
type trip struct {
	call     effect.Call
	values   context.Context // of the first caller, for what it carries; its end is nobody else's
	interest context.Context // ends when the last caller has gone, or when Close begins
	drop     context.CancelCauseFunc
	owner    *trips
	callers  int  // guarded by the owner's mutex
	joined   bool // guarded by the owner's mutex until the trip is off the map
	late     int  // attempts that were opened too late to be started
	done     chan struct{}
	result   effect.Result
	err      error
}

// trips finds the trip of a key.
type trips struct {
	mu    sync.Mutex
	byKey map[flight.Key]*trip
}

// join gives the trip of the call's key, and whether the caller is the first, who must fly it.
func (ts *trips) join(ctx context.Context, call effect.Call) (t *trip, first bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.byKey[call.Key]; t != nil && t.interest.Err() == nil {
		t.callers++
		t.joined = true
		return t, false
	}
	call.Submission.Input.Data = bytes.Clone(call.Submission.Input.Data) // the trip may outlive the caller, whose bytes they are
	values := context.WithoutCancel(ctx)
	t = &trip{call: call, values: values, owner: ts, callers: 1, done: make(chan struct{})}
	t.interest, t.drop = context.WithCancelCause(values)
	if ts.byKey == nil {
		ts.byKey = make(map[flight.Key]*trip)
	}
	ts.byKey[call.Key] = t
	return t, true
}

// end gives the result to all who wait, and lets later callers start afresh.
func (t *trip) end(result effect.Result, err error) {
	t.owner.mu.Lock()
	if t.owner.byKey[t.call.Key] == t {
		delete(t.owner.byKey, t.call.Key)
	}
	t.owner.mu.Unlock()
	t.result, t.err = result, err
	close(t.done)
	t.drop(nil)
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

// await waits for the trip's end. The caller's own context and patience end only its wait; when the last one goes, the
// trip loses its interest in waiting, while an effect in the air goes on.
func (t *trip) await(ctx context.Context, call effect.Call, as effect.Source) (effect.Result, error) {
	var patience <-chan time.Time
	if call.Wait > 0 && as == effect.Joined {
		timer := time.NewTimer(call.Wait)
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		t.leave(context.Cause(ctx))
		return effect.Result{}, context.Cause(ctx)
	case <-patience:
		t.leave(context.DeadlineExceeded)
		return effect.Result{}, &effect.Busy{Key: call.Key, State: flight.Running, RetryAfter: time.Second}
	}
	return t.share(as)
}

// share gives the trip's result to one of its callers.
func (t *trip) share(as effect.Source) (effect.Result, error) {
	if !t.joined {
		return t.result, t.err
	}
	return caller.Share(t.result, t.err, as)
}

// leave takes one caller off the trip. The interest ends under the lock, so that nobody joins a trip that has lost it.
func (t *trip) leave(cause error) {
	t.owner.mu.Lock()
	defer t.owner.mu.Unlock()
	if t.callers--; t.callers == 0 {
		t.drop(cause)
	}
}
