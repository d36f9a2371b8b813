package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// call is one call on its way, shared by all its callers in this process.
type call struct {
	in         effect.Call
	values     context.Context // the values of the first caller's context, without its end
	interest   context.Context // ends when the last caller has gone, or when Close begins
	drop       context.CancelCauseFunc
	abort      context.CancelCauseFunc // ends the context of its handler; guarded by the owner's mutex
	owner      *calls
	callers    int           // guarded by the owner's mutex
	joined     bool          // guarded by the owner's mutex until the call is off the map
	generation atomic.Uint32 // of the flight, as the transport has last returned it; 0: not known
	done       chan struct{}
	result     effect.Result
	err        error
}

// calls are the calls of a Runner that have not ended.
type calls struct {
	mu    sync.Mutex
	byKey map[flight.Key]*call // what a caller of the key may join
	all   map[*call]struct{}
}

// join gives the call of the key, and whether the caller is the first, who must run it. A call that is known to be of an earlier
// generation than seen is not joined.
func (cs *calls) join(ctx context.Context, in effect.Call, seen uint32) (c *call, first bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byKey[in.Key]; c != nil && c.interest.Err() == nil && !c.isBefore(seen) {
		c.callers++
		c.joined = true
		return c, false
	}
	in.Submission.Input.Data = bytes.Clone(in.Submission.Input.Data) // the bytes are the caller's, and the call may outlive it
	c = &call{in: in, owner: cs, callers: 1, done: make(chan struct{})}
	c.values = context.WithValue(context.WithoutCancel(ctx), insideKey{}, c)
	c.interest, c.drop = context.WithCancelCause(c.values)
	if cs.byKey == nil {
		cs.byKey, cs.all = make(map[flight.Key]*call), make(map[*call]struct{})
	}
	cs.byKey[in.Key], cs.all[c] = c, struct{}{}
	return c, true
}

// drop ends the wait of all calls, and the contexts of their handlers where abort says so.
func (cs *calls) drop(cause error, abort bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.all {
		c.drop(cause)
		if abort && c.abort != nil {
			c.abort(cause)
		}
	}
}

// isBefore reports whether the call is known to be of an earlier generation.
func (c *call) isBefore(generation uint32) bool {
	known := c.generation.Load()
	return known > 0 && known < generation
}

// end gives the result to all who wait, and lets later callers start afresh.
func (c *call) end(result effect.Result, err error) {
	c.owner.mu.Lock()
	if c.owner.byKey[c.in.Key] == c {
		delete(c.owner.byKey, c.in.Key)
	}
	delete(c.owner.all, c)
	c.owner.mu.Unlock()
	c.result, c.err = result, err
	close(c.done)
	c.drop(nil)
}

// ended reports whether the call has ended.
func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// await waits for the end of the call. The caller's own context and patience (0: without end) end only its wait; when the last
// one goes, the call loses its interest in waiting, while an effect in the air goes on.
func (c *call) await(ctx context.Context, wait time.Duration, as effect.Source) (effect.Result, error) {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-c.done:
		return c.resultAs(as)
	case <-ctx.Done():
		c.leave(context.Cause(ctx))
		return effect.Result{}, context.Cause(ctx)
	case <-over:
		c.leave(context.DeadlineExceeded)
		return effect.Result{}, &effect.Busy{Key: c.in.Key, State: flight.Running, RetryAfter: time.Second}
	}
}

// leave takes one caller off the call. The interest ends under the lock, so that nobody joins a call that has lost it.
func (c *call) leave(cause error) {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.drop(cause)
	}
}

// leavesUndecided reports whether a caller that joined the call has to begin again, because the call's end decides nothing for it:
// the call has waited for others until its own patience was over; or the call brought no look-up, and the caller does; or the
// call was of an earlier generation; or one of the two declared no input, so that the flight's input need not be the call's.
func (c *call) leavesUndecided(in effect.Call, seen uint32, err error) bool {
	var busy *effect.Busy
	var doubt *effect.InDoubt
	if c.isBefore(seen) || errors.As(err, &busy) ||
		errors.As(err, &doubt) && doubt.Cause == NoLookUp && c.in.LookUp == nil && in.LookUp != nil {
		return true
	}
	var declined *effect.Declined
	var failed *effect.Failed
	var conflict *effect.Conflict
	return c.in.Submission.Fingerprint != in.Submission.Fingerprint &&
		(err == nil || errors.As(err, &declined) || errors.As(err, &failed) || errors.As(err, &conflict))
}

// causeOf gives the call's error, or instead the cause of which the error is a mere consequence: the last caller has gone, or
// Close has begun. *effect.Unrecorded stays: its effect is over.
func (c *call) causeOf(err error) error {
	cause := context.Cause(c.interest)
	if err == nil || cause == nil {
		return err
	}
	var unrecorded *effect.Unrecorded
	if !errors.As(err, &unrecorded) && (errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
		return cause
	}
	return err
}

// resultAs gives the result for one of its callers: Executed for the first one, Joined for the others. Each caller gets a body of
// its own.
func (c *call) resultAs(as effect.Source) (effect.Result, error) {
	if !c.joined {
		return c.result, c.err
	}
	result := copyAs(c.result, as)
	var declined *effect.Declined
	var unrecorded *effect.Unrecorded
	switch {
	case errors.As(c.err, &declined):
		return result, &effect.Declined{Result: result}
	case errors.As(c.err, &unrecorded):
		return result, &effect.Unrecorded{Result: copyAs(unrecorded.Result, as), Cause: unrecorded.Cause, Where: unrecorded.Where}
	}
	return result, c.err
}

func copyAs(result effect.Result, as effect.Source) effect.Result {
	if as == effect.Joined && result.Source == effect.Executed {
		result.Source = effect.Joined
	}
	result.Answer.Body = bytes.Clone(result.Answer.Body)
	return result
}

// insideKey finds the call whose handler, or look-up, a context is given to.
type insideKey struct{}

// checkInside rejects a call that the handler, or the look-up, of this very key makes: it would wait for itself.
func (cs *calls) checkInside(ctx context.Context, key flight.Key) error {
	c, _ := ctx.Value(insideKey{}).(*call)
	if c == nil || c.owner != cs || c.in.Key != key || c.ended() {
		return nil
	}
	return &flight.InvalidError{Field: "key", Detail: fmt.Sprintf(
		"the handler of %s asks for the same key and would wait for itself; another effect needs a key of its own", key)}
}
