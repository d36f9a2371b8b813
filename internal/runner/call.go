package runner

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// call is one call on its way, shared by all its callers in this process.
type call struct {
	in         effect.Call
	values     context.Context // of the first caller, for what it carries; its end is nobody else's
	interest   context.Context // ends when the last caller has gone, or when Close begins
	drop       context.CancelCauseFunc
	abort      context.CancelCauseFunc // ends the context of its handler; guarded by the owner's mutex
	owner      *calls
	callers    int           // guarded by the owner's mutex
	joined     bool          // guarded by the owner's mutex until the call is off the map
	generation atomic.Uint32 // of the flight, as it was told last; 0: it was not
	done       chan struct{}
	result     effect.Result
	err        error
}

// calls are those on their way.
type calls struct {
	mu    sync.Mutex
	byKey map[flight.Key]*call // what a caller of the key may join
	all   map[*call]struct{}
}

// join gives the call of the key, and whether the caller is the first, who must run it. Nobody joins a call of an earlier
// generation than the one that was seen.
func (cs *calls) join(ctx context.Context, in effect.Call, seen uint32) (c *call, first bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byKey[in.Key]; c != nil && c.interest.Err() == nil && !c.before(seen) {
		c.callers++
		c.joined = true
		return c, false
	}
	in.Submission.Input.Data = bytes.Clone(in.Submission.Input.Data) // the call may outlive its caller, whose bytes they are
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

// starts says how the context of the call's handler is ended.
func (c *call) starts(abort context.CancelCauseFunc) {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	c.abort = abort
}

// before reports whether the call is known to be of an earlier generation.
func (c *call) before(generation uint32) bool {
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

// over reports whether the call has ended.
func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// accompany waits for a call that somebody else has begun.
func (c *call) accompany(ctx context.Context, in effect.Call, wait time.Duration) (effect.Result, error) {
	if !c.in.Submission.Fingerprint.Matches(in.Submission.Fingerprint) {
		c.leave(context.Canceled)
		return effect.Result{}, &effect.Conflict{Key: in.Key,
			Fields: flight.DifferingFields(c.in.Submission.Input.Data, in.Submission.Input.Data, nil)}
	}
	return c.await(ctx, wait, effect.Joined)
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
		return c.share(as)
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

// leavesOpen reports whether the end of the call says nothing to a caller that joined it: the call's patience with others was
// over, and not the caller's; or it could not look, and the caller can; or it was about an earlier generation; or one of the
// two declared no input, so that the call's input need not be the one that stands.
func (c *call) leavesOpen(in effect.Call, seen uint32, err error) bool {
	var busy *effect.Busy
	var doubt *effect.InDoubt
	if c.before(seen) || errors.As(err, &busy) ||
		errors.As(err, &doubt) && doubt.Cause == NoLookUp && c.in.LookUp == nil && in.LookUp != nil {
		return true
	}
	var declined *effect.Declined
	var failed *effect.Failed
	var conflict *effect.Conflict
	return c.in.Submission.Fingerprint != in.Submission.Fingerprint &&
		(err == nil || errors.As(err, &declined) || errors.As(err, &failed) || errors.As(err, &conflict))
}

// because says of what the call's end is a consequence: of nobody waiting any more, or of Close, where that is so. An effect
// that happened is no consequence of either.
func (c *call) because(err error) error {
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

// share gives the result to one of its callers: what the first one executed, the others joined. Each has a body of its own.
func (c *call) share(as effect.Source) (effect.Result, error) {
	if !c.joined {
		return c.result, c.err
	}
	result := ownOf(c.result, as)
	var declined *effect.Declined
	var unrecorded *effect.Unrecorded
	switch {
	case errors.As(c.err, &declined):
		return result, &effect.Declined{Result: result}
	case errors.As(c.err, &unrecorded):
		return result, &effect.Unrecorded{Result: ownOf(unrecorded.Result, as), Cause: unrecorded.Cause, Where: unrecorded.Where}
	}
	return result, c.err
}

func ownOf(result effect.Result, as effect.Source) effect.Result {
	if as == effect.Joined && result.Source == effect.Executed {
		result.Source = effect.Joined
	}
	result.Answer.Body = bytes.Clone(result.Answer.Body)
	return result
}
