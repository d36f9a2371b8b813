package executor

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/runner"
	"github.com/flightd/flightd/lease"
)

// Checker checks in etcd whether a session has ended, and ends its attempts if so. Check does not wait for the result.
type Checker interface {
	Check(session flight.Session)
}

// transport implements runner.Transport over the claims in etcd and the ledger.
type transport struct{ *Executor }

// Renew implements runner.Transport: it renews the session in etcd, which is replaced if it has ended.
func (t transport) Renew(context.Context) error {
	_, err := t.session.Renew(t.requestDeadline.Context())
	return err
}

var (
	errSessionLost   = fmt.Errorf("the session was lost before it could be used: %w", effect.ErrLeaseLost)
	errEpochRejected = errors.New("the ledger rejects every open: its epochs or its time differ from those that this node knows")
	errWaitTimeout   = errors.New("executor: the caller's wait for another holder has timed out")
)

// Open implements runner.Transport: it waits for other holders, proposes one Open, and maps the ledger's decision to an
// answer.
func (t transport) Open(ctx context.Context, call *effect.Call, until time.Time) (runner.Answer, error) {
	wait := ctx // bounds the wait for other holders
	if !until.IsZero() {
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadlineCause(ctx, until, errWaitTimeout)
		defer cancel()
	}
	start := time.Now()
	f, err := t.waitUntilFree(wait, call)
	if err != nil {
		return runner.Answer{}, t.waitError(call, f, err)
	}
	if answer.IsFinal(f) || answer.HasOtherInput(f, &call.Submission) {
		return t.finalAnswer(f, call, effect.SourceJoined)
	}
	if t.cfg.Reader.Header().Reconciling {
		return runner.Answer{}, answer.Reconciling(call.Key)
	}
	a, err := t.openAttempt(ctx, call)
	switch {
	case errors.Is(err, lease.ErrLost), errors.Is(err, effect.ErrLeaseLost):
		return runner.Answer{Decision: runner.DecisionRetry, RetryCause: errors.Join(errSessionLost, err)}, nil
	case err != nil:
		return runner.Answer{}, answer.Unavailable(call.Key, err)
	}
	f = a.reply.Flight
	if d := a.reply.Decision; d != flight.DecisionProceed && d != flight.DecisionVerify {
		a.Release()
	}
	switch a.reply.Decision {
	case flight.DecisionProceed:
		if t.cfg.Events.Opened != nil {
			t.cfg.Events.Opened(f.Key, a.reply.Token.Number)
		}
		out, err := a.grantedAnswer(runner.DecisionProceed, f.Newest(), answer.PreviousAttempt(f))
		if err == nil && t.cfg.Events.Claimed != nil {
			t.cfg.Events.Claimed(f.Key, time.Since(start))
		}
		return out, err
	case flight.DecisionVerify:
		if left := t.lookUpDelay.Remaining(f); left > 0 && !clock.Sleep(wait, left) { // measured by this process's own clock
			_, _ = a.Report(ctx, runner.Completion{Outcome: flight.OutcomeNotDone, NotStarted: true, Err: context.Cause(wait)})
			return runner.Answer{}, t.waitError(call, f, context.Cause(wait))
		}
		var previous *flight.Attempt
		looked := new(flight.Attempt) // of which nothing is known where a restore has lost it
		if f.Newest() != nil {
			*looked = *f.Newest()
			previous = looked
		}
		return a.grantedAnswer(runner.DecisionVerify, looked, previous)
	case flight.DecisionBusy:
		t.checkHolder(f)
		pause := a.reply.Wait
		if f.Verifying() {
			pause = max(pause, t.lookUpDelay.Remaining(f))
		}
		if pause <= 0 {
			pause = clock.Jitter(minRetryPause)
		}
		t.waitForChange(wait, f.ID, f.Version, pause)
		if err := context.Cause(wait); err != nil {
			return runner.Answer{}, t.waitError(call, f, err)
		}
		return runner.Answer{Decision: runner.DecisionRetry, Generation: f.Generation}, nil
	case flight.DecisionExhausted:
		return runner.Answer{}, &effect.TooMany{Key: call.Key, Limit: "too many recent opens of this key were abandoned", RetryAfter: flight.MaxOpenLife}
	case flight.DecisionReconciling:
		return runner.Answer{}, answer.Reconciling(call.Key)
	case flight.DecisionSessionEnded:
		return runner.Answer{Decision: runner.DecisionRetry, RetryCause: errSessionLost}, nil
	case flight.DecisionFenced, flight.DecisionOpenExpired:
		if call.Key.IsStep() {
			return runner.Answer{}, &effect.Fenced{Key: call.Key}
		}
		return runner.Answer{Decision: runner.DecisionRetry, RetryCause: errEpochRejected}, nil
	}
	return t.finalAnswer(f, call, effect.SourceReplayed)
}

// finalAnswer returns the result, or the error, of a final flight.
func (ex *Executor) finalAnswer(f *flight.Flight, call *effect.Call, source effect.Source) (runner.Answer, error) {
	a := runner.Answer{Decision: runner.DecisionDone, Generation: f.Generation}
	err := ex.writer.Final(f, call.Key, &call.Submission)
	if err == nil {
		a.Result, err = ex.writer.Receipt(f, nil, source)
	}
	return a, err
}

// waitError maps the end of a wait for another holder to the caller's error: *effect.Busy after a time-out.
func (t transport) waitError(call *effect.Call, f *flight.Flight, err error) error {
	switch {
	case errors.Is(err, errWaitTimeout):
		busy := &effect.Busy{Key: call.Key, State: flight.StateRunning, RetryAfter: answer.RetryAfter}
		if f != nil {
			busy.State = f.State
		}
		return busy
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, effect.ErrClosed):
		return err
	}
	return answer.Unavailable(call.Key, err)
}

// The pauses between retries. The ledger wakes a caller that waits for another holder; the caller also reads again
// after maxRetryPause, because the holder may have died.
const (
	minRetryPause = 10 * time.Millisecond
	maxRetryPause = time.Second
)

// waitUntilFree waits while another holder's attempt is open, and until a declared pause is over. It returns the flight
// as last read.
func (t transport) waitUntilFree(ctx context.Context, call *effect.Call) (*flight.Flight, error) {
	id := call.Key.FlightID()
	f, err := t.cfg.Ledger.Flight(id)
	for err == nil {
		pause := clock.Jitter(maxRetryPause)
		switch now := t.cfg.Reader.Now(); {
		case answer.IsFinal(f), answer.HasOtherInput(f, &call.Submission):
			return f, nil
		case ctx.Err() != nil:
			return f, context.Cause(ctx)
		case f.OpenAttempt() == nil && (f == nil || f.NotBefore <= now), isOverdue(f, t.cfg.Reader):
			return f, nil
		case f.OpenAttempt() == nil:
			pause = min(pause, f.NotBefore.Until(now))
		}
		t.checkHolder(f)
		if next := t.waitForChange(ctx, id, f.Version, pause); next != nil {
			f = next // not a newer read: a later generation may have begun since
			continue
		}
		f, err = t.cfg.Ledger.Flight(id)
	}
	return f, err
}

// checkHolder asks the Checker to check the session that holds the flight.
func (ex *Executor) checkHolder(f *flight.Flight) {
	if holder := f.Holder(); holder != nil && ex.cfg.Checker != nil {
		ex.cfg.Checker.Check(*holder)
	}
}

// waitForChange waits at most d for a version of the flight that differs from the one seen, or nil if there was none.
func (ex *Executor) waitForChange(ctx context.Context, id flight.ID, seen flight.Version, d time.Duration) *flight.Flight {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	f, err := ex.cfg.Ledger.Wait(ctx, id, seen)
	if err == nil {
		return f
	}
	if ctx.Err() == nil {
		<-ctx.Done() // the ledger failed: without this pause callers would retry in a busy loop
	}
	return nil
}

// openAttempt claims the key in etcd and proposes the Open to the ledger, both at once. The attempt alone is the right
// to act; the claim keeps other callers from proposing.
//
// If the process dies here, the claim and the attempt may or may not exist. Both end with the session. Runner.Close waits
// for the goroutine that claims.
func (t transport) openAttempt(ctx context.Context, call *effect.Call) (*attempt, error) {
	var nonce flight.Nonce
	_, _ = cryptorand.Read(nonce[:]) // crypto/rand never returns an error
	reserved, err := t.session.Reserve(t.requestDeadline.Context(), call.Key, nonce)
	if err != nil {
		return nil, err
	}
	if reserved.Trust() <= 0 { // the machine may have been suspended: only etcd knows whether the session lives
		reserved.Release()
		return nil, errSessionLost
	}
	a := &attempt{Lease: reserved, ex: t.Executor, call: call}
	t.cfg.Crash(crashpoint.BeforeOpen)
	claimed := make(chan error, 1)
	t.runner.Work.Go(func() { claimed <- reserved.Claim(t.requestDeadline.Context()) })
	t.cfg.Crash(crashpoint.DuringOpen)
	a.open = &flight.Open{
		Key: call.Key, Submission: call.Submission, Session: reserved.Session(), Nonce: nonce, Owner: t.cfg.Owner,
		NotAfter: t.cfg.Reader.Now().Add(t.cfg.OpenLife), StoreEpoch: t.cfg.Reader.Header().StoreEpoch,
	}
	if t.cfg.Traces {
		a.open.Trace = effect.SampledTrace(effect.Traceparent(ctx))
	}
	a.sent = clock.Now()
	if a.reply, err = t.proposeOpen(a.open); err != nil {
		if errors.Is(err, effect.ErrAmbiguous) {
			a.abandonInBackground()
		} else {
			a.Release()
		}
		return nil, err
	}
	if a.reply.Decision != flight.DecisionProceed {
		return a, nil
	}
	t.cfg.Crash(crashpoint.AfterOpen)
	if err = <-claimed; errors.Is(err, lease.ErrHeld) { // by a holder whose attempt has ended: the ledger has decided so
		err = reserved.Replace(t.requestDeadline.Context())
	}
	if err != nil {
		if t.requestDeadline.Context().Err() != nil {
			err = fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
		}
		return nil, errors.Join(err, a.abandon("the key could not be claimed"))
	}
	return a, nil
}

// proposeOpen proposes the Open until its answer is known, for at most half a TTL: an opener that cannot reach the
// ledger must not block the key. It does not end with the caller's context, because an Open without an answer would
// leave a doubt.
func (t transport) proposeOpen(open *flight.Open) (flight.Reply, error) {
	reply, repeated, err := ProposeUntilKnown(t.requestDeadline.Context(), t.cfg.Ledger, open)
	if err == nil && repeated && reply.Decision == flight.DecisionFenced {
		err = fmt.Errorf("%w: the attempt ended before its opener received the answer", effect.ErrAmbiguous)
	}
	t.cfg.Events.Publish(open.Key, reply.Events)
	return reply, err
}

// isOverdue reports whether an open attempt has timed out, or the callback that it waits for.
func isOverdue(f *flight.Flight, r Reader) bool {
	header := r.Header()
	deadline := f.Deadline(&header)
	return deadline > 0 && r.Now() >= deadline
}
