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

// call is one call that has not ended, shared by all its callers in this process.
type call struct {
	in         effect.Call
	values     context.Context // the values of the first caller's context, without its end
	interest   context.Context // ends when the last caller has left, or when Close begins
	drop       context.CancelCauseFunc
	abort      context.CancelCauseFunc // ends the context of its handler; guarded by the group's mutex
	owner      *calls
	callers    int           // guarded by the group's mutex
	joined     bool          // guarded by the group's mutex until the call has left the group
	generation atomic.Uint32 // of the flight, as last returned by the transport; 0: not known
	done       chan struct{}
	result     effect.Result
	err        error
}

// callGroup has the calls of a Runner that have not ended.
type calls struct {
	mu    sync.Mutex           // guards both maps, and the fields of a call that say so
	byKey map[flight.Key]*call // the call that a new caller of the key may join
	all   map[*call]struct{}
}

// join returns the call of the key. first reports that the call is new, and that this caller must run it. A call that
// is known to be of an earlier generation than minGeneration is not joined.
func (cs *calls) join(ctx context.Context, in effect.Call, seen uint32) (c *call, first bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byKey[in.Key]; c != nil && c.interest.Err() == nil && !c.isBefore(seen) {
		c.callers++
		c.joined = true
		return c, false
	}
	// The caller may change its bytes, and the call may outlive the caller.
	in.Submission.Input.Data = bytes.Clone(in.Submission.Input.Data)
	c = &call{in: in, owner: cs, callers: 1, done: make(chan struct{})}
	c.values = context.WithValue(context.WithoutCancel(ctx), insideKey{}, c)
	c.interest, c.drop = context.WithCancelCause(c.values)
	if cs.byKey == nil {
		cs.byKey, cs.all = make(map[flight.Key]*call), make(map[*call]struct{})
	}
	cs.byKey[in.Key], cs.all[c] = c, struct{}{}
	return c, true
}

// cancelAll ends the waits of all calls and, if handlersToo is set, the contexts of their handlers.
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

// isBefore reports whether the call is known to be of a generation before the given one.
func (c *call) isBefore(generation uint32) bool {
	known := c.generation.Load()
	return known > 0 && known < generation
}

// end removes the call from the group, so that later callers start a new call, and gives the result to all waiting
// callers.
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

// wait waits for the end of the call. The caller's own context and time-out (0: none) end only this caller's wait. When
// the last caller leaves, the call stops to wait for other holders; an effect that has started continues.
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

// removeCaller removes one caller. The last one ends waitCtx under the lock, so that no caller joins a call that is
// ending.
func (c *call) leave(cause error) {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.drop(cause)
	}
}

// joinerMustRetry reports whether a joined caller cannot use the result of the shared call: the call has timed out
// waiting for other holders; or the call has no look-up, and the joiner has one; or the call was of an earlier
// generation; or only one of the two declared an input, so that the flight's input may differ from the joiner's.
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

// causeOf replaces a cancellation error by its cause: the last caller has left, or Close has begun. *effect.Unrecorded
// is returned as it is, because its effect has ended.
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

// resultFor returns the result for one caller: with the source Executed for the first caller, Joined for the others.
// Each caller gets its own copy of the body.
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

// reentryKey is the context key of the call whose handler, or look-up, has the context.
type insideKey struct{}

// checkReentry rejects a call by the handler, or the look-up, of the same key: the call would wait for itself.
func (cs *calls) checkInside(ctx context.Context, key flight.Key) error {
	c, _ := ctx.Value(insideKey{}).(*call)
	if c == nil || c.owner != cs || c.in.Key != key || c.ended() {
		return nil
	}
	return &flight.InvalidError{Field: "key", Detail: fmt.Sprintf(
		"the handler of %s called Do for the same key and would wait for itself; use another key for another effect", key)}
}
