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
	req           effect.Call
	baseCtx       context.Context // the values of the first caller's context, without its end
	waitCtx       context.Context // ends when the last caller has left, or when Close begins
	cancelWait    context.CancelCauseFunc
	cancelHandler context.CancelCauseFunc // ends the context of its handler; guarded by the group's mutex
	group         *callGroup
	callers       int           // guarded by the group's mutex
	joined        bool          // guarded by the group's mutex until the call has left the group
	generation    atomic.Uint32 // of the flight, as last returned by the transport; 0: not known
	lookUpErr     error         // error of the last look-up; used only by the goroutine that runs the call
	done          chan struct{}
	result        effect.Result
	err           error
}

// callGroup has the calls of a Runner that have not ended.
type callGroup struct {
	mu    sync.Mutex           // guards both maps, and the fields of a call that say so
	byKey map[flight.Key]*call // the call that a new caller of the key may join
	all   map[*call]struct{}
}

// join returns the call of the key. first reports that the call is new, and that this caller must run it. A call that
// is known to be of an earlier generation than minGeneration is not joined.
func (g *callGroup) join(ctx context.Context, req effect.Call, minGeneration uint32) (c *call, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.byKey[req.Key]; c != nil && c.waitCtx.Err() == nil && !c.isBefore(minGeneration) {
		c.callers++
		c.joined = true
		return c, false
	}
	// The caller may change its bytes, and the call may outlive the caller.
	req.Submission.Input.Data = bytes.Clone(req.Submission.Input.Data)
	c = &call{req: req, group: g, callers: 1, done: make(chan struct{})}
	c.baseCtx = context.WithValue(context.WithoutCancel(ctx), reentryKey{}, c)
	c.waitCtx, c.cancelWait = context.WithCancelCause(c.baseCtx)
	if g.byKey == nil {
		g.byKey, g.all = make(map[flight.Key]*call), make(map[*call]struct{})
	}
	g.byKey[req.Key], g.all[c] = c, struct{}{}
	return c, true
}

// cancelAll ends the waits of all calls and, if handlersToo is set, the contexts of their handlers.
func (g *callGroup) cancelAll(cause error, handlersToo bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.all {
		c.cancelWait(cause)
		if handlersToo && c.cancelHandler != nil {
			c.cancelHandler(cause)
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
	c.group.mu.Lock()
	if c.group.byKey[c.req.Key] == c {
		delete(c.group.byKey, c.req.Key)
	}
	delete(c.group.all, c)
	c.group.mu.Unlock()
	c.result, c.err = result, err
	close(c.done)
	c.cancelWait(nil)
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
func (c *call) wait(ctx context.Context, wait time.Duration, source effect.Source) (effect.Result, error) {
	var timeout <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-c.done:
		return c.resultFor(source)
	case <-ctx.Done():
		c.removeCaller(context.Cause(ctx))
		return effect.Result{}, context.Cause(ctx)
	case <-timeout:
		c.removeCaller(context.DeadlineExceeded)
		return effect.Result{}, &effect.Busy{Key: c.req.Key, State: flight.StateRunning, RetryAfter: time.Second}
	}
}

// removeCaller removes one caller. The last one ends waitCtx under the lock, so that no caller joins a call that is
// ending.
func (c *call) removeCaller(cause error) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.cancelWait(cause)
	}
}

// joinerMustRetry reports whether a joined caller cannot use the result of the shared call: the call has timed out
// waiting for other holders; or the call has no look-up, and the joiner has one; or the call was of an earlier
// generation; or only one of the two declared an input, so that the flight's input may differ from the joiner's.
func (c *call) joinerMustRetry(joiner effect.Call, minGeneration uint32, err error) bool {
	var doubt *effect.InDoubt
	if c.isBefore(minGeneration) || errors.As(err, new(*effect.Busy)) ||
		errors.As(err, &doubt) && doubt.Cause == NoLookUpCause && c.req.LookUp == nil && joiner.LookUp != nil {
		return true
	}
	return c.req.Submission.Fingerprint != joiner.Submission.Fingerprint &&
		(err == nil || errors.As(err, new(*effect.Declined)) || errors.As(err, new(*effect.Failed)) || errors.As(err, new(*effect.Conflict)))
}

// causeOf replaces a cancellation error by its cause: the last caller has left, or Close has begun. *effect.Unrecorded
// is returned as it is, because its effect has ended.
func (c *call) causeOf(err error) error {
	cause := context.Cause(c.waitCtx)
	if err == nil || cause == nil {
		return err
	}
	if !errors.As(err, new(*effect.Unrecorded)) && (errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
		return cause
	}
	return err
}

// resultFor returns the result for one caller: with the source Executed for the first caller, Joined for the others.
// Each caller gets its own copy of the body.
func (c *call) resultFor(source effect.Source) (effect.Result, error) {
	if !c.joined {
		return c.result, c.err
	}
	result := copyResult(c.result, source)
	var unrecorded *effect.Unrecorded
	switch {
	case errors.As(c.err, new(*effect.Declined)):
		return result, &effect.Declined{Result: result}
	case errors.As(c.err, &unrecorded):
		return result, &effect.Unrecorded{Result: copyResult(unrecorded.Result, source), Cause: unrecorded.Cause, ReportPlace: unrecorded.ReportPlace}
	}
	return result, c.err
}

func copyResult(result effect.Result, source effect.Source) effect.Result {
	if source == effect.SourceJoined && result.Source == effect.SourceExecuted {
		result.Source = effect.SourceJoined
	}
	result.Answer.Body = bytes.Clone(result.Answer.Body)
	return result
}

// reentryKey is the context key of the call whose handler, or look-up, has the context.
type reentryKey struct{}

// checkReentry rejects a call by the handler, or the look-up, of the same key: the call would wait for itself.
func (g *callGroup) checkReentry(ctx context.Context, key flight.Key) error {
	c, _ := ctx.Value(reentryKey{}).(*call)
	if c == nil || c.group != g || c.req.Key != key || c.ended() {
		return nil
	}
	return &flight.InvalidError{Field: "key", Detail: fmt.Sprintf(
		"the handler of %s called Do for the same key and would wait for itself; use another key for another effect", key)}
}
