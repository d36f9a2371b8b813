package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
)

// phase is the state of a nonce, as far as this process knows.
type phase uint8

const (
	phaseUnknown  phase = iota // not in the table
	phaseAwaited               // its open has no answer yet, or its look-up is running
	phaseHeld                  // it has an attempt: the effect may have started
	phaseSpooled               // the handler has returned, and the report is in the spool
	phaseReported              // the ledger has stored a report of not_done
	phaseGivenUp               // abandoned before its effect started
)

// opening is one nonce and its state, from before its first open is sent until the ledger's final answer. A nonce that
// was abandoned or reported as not_done stays in its session's table until the session ends: a delayed copy of its open
// may still open an attempt, and an old renewal answer may still list one.
type opening struct {
	key            flight.Key
	nonce          string
	notAfter       int64         // the same in each copy of the open
	expiresAt      clock.Instant // not_after has surely passed
	client         *Client
	firstSent      clock.Instant // when the first open was sent: that one may have opened the attempt
	mayHaveArrived bool          // an open may have arrived whose answer is not known, or says that it was proposed
	call           *effect.Call
	policy         flight.Policy // in force, as far as an answer has told: that of the flight's first caller
	waitUntil      time.Time     // end of the wait for other callers; zero: none

	suspended           atomic.Pointer[Flight] // the answer to its suspend
	token, verification string                 // fencing token of its attempt, or token of its verification

	session    *session // has it in its table; its mutex guards the fields below; nil: no answer has named a session yet
	phase      phase
	number     uint32                  // of its attempt, while phaseHeld
	cancel     context.CancelCauseFunc // cancels the context of its handler
	reportFile string                  // file of its report in the spool
	spooledAt  time.Time               // when that file was written
	report     []byte                  // the stored report, in phaseReported
	abandoning bool                    // an abandon is being sent
	job        bool                    // a worker's: its policy may declare retries
	left       bool                    // given up after answers without a proposal, and not taken by session.takeLeft
}

// newOpening makes a nonce for a call that waits for other callers until the given time; zero: without end.
func newOpening(c *Client, call *effect.Call, until time.Time) *opening {
	o := &opening{client: c, key: call.Key, call: call, policy: call.Submission.Policy, waitUntil: until}
	o.drawNonce()
	return o
}

// drawNonce gives an opening its nonce. Its wait follows from the policy in force.
func (o *opening) drawNonce() {
	o.nonce, o.phase = newNonce(), phaseAwaited
	validity := o.client.ledgerClock.validity(time.Duration(o.waitMS()) * time.Millisecond)
	o.notAfter, o.expiresAt = o.client.ledgerClock.notAfter(validity), clock.Now().Add(validity)
}

// needsSession reports whether the session has to be renewed for this nonce. If it was left, a copy of its open may open an
// attempt until its not_after, and a renewal that is sent later lists it. The caller holds s.mu.
func (o *opening) needsSession() bool {
	return o.phase >= phaseAwaited && o.phase <= phaseSpooled || o.abandoning || o.left && !o.session.listedAt.After(o.expiresAt.Time)
}

// listedAction is the action for an attempt that a renewal lists as open.
type listedAction uint8

const (
	doNothing listedAction = iota
	abandonAttempt
	repeatReport
	reportUnknown
)

// listedActionFor decides the action for an attempt that a renewal lists as open. spooled means that its report is in the
// spool, listedBefore that the previous renewal listed it, also unexpectedly.
//
// An attempt whose effect may have started is never abandoned. The answer may be older than the state of the nonce
// here, so a report is sent only after two listings in a row. An abandon of a nonce that was given up is always
// correct, and is sent at once.
func listedActionFor(p phase, spooled, listedBefore bool) listedAction {
	switch {
	case p == phaseGivenUp:
		return abandonAttempt
	case mayBeOpen(p, spooled), !listedBefore:
		return doNothing
	case p == phaseReported:
		return repeatReport
	}
	return reportUnknown
}

// mayBeOpen reports whether an attempt in that phase is rightly listed as open.
func mayBeOpen(p phase, spooled bool) bool {
	return p == phaseAwaited || p == phaseHeld || p == phaseSpooled && spooled
}

// isFinal reports whether an answer without an attempt is final for its nonce: no attempt can be opened under the nonce
// later, and no abandon is needed. only means that each other request with this nonce was answered without a proposal. The
// answer of the ledger that applied an open is final for the nonce.
func isFinal(a *OpenAnswer, err error, only bool) bool {
	p := problemOf(err)
	switch {
	case err == nil:
		return a.Decision == wire.DecisionReplay
	case p == nil:
		return false // no server has answered
	case isRejectedUnread(err):
		return only // it was not read by a server that could have proposed it
	}
	switch p.Code {
	case wire.Conflict, wire.Expired, wire.OpenExpired:
		return true
	case wire.InDoubt:
		return p.Proposed != nil && *p.Proposed
	case wire.KeyRequired, wire.KeyInvalid, wire.InputInvalid, wire.PayloadTooLarge, wire.NotFound, wire.MethodNotAllowed:
		return only // each copy of the request is rejected before a proposal
	}
	return false
}

// isUnproposed reports whether a node has answered an open from its own view, and has not proposed it. Nothing is open
// under its nonce, but a copy that the network made may reach a node later, and open an attempt until not_after.
func isUnproposed(err error) bool {
	p := problemOf(err)
	return p != nil && (p.Code == wire.InFlight || p.Code == wire.InDoubt) && p.Proposed != nil && !*p.Proposed
}

const (
	// abandonTryTimeout bounds one call of tryAbandon.
	abandonTryTimeout = 5 * time.Second
	// abandonTimeout bounds how long an abandon is repeated.
	abandonTimeout = 10 * time.Minute
)

// tryAbandon sends the abandon of an open. It returns true when the server's answer is final.
func (o *opening) tryAbandon(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, abandonTryTimeout)
	defer cancel()
	err := o.client.Abandon(ctx, o.key, AbandonRequest{Nonce: o.nonce, NotAfter: o.notAfter, Reason: "its caller gave up before the effect started"})
	p := problemOf(err)
	return (p == nil || p.Nonce != "") && reportResultOf(err) != reportLater
}

// markGivenUp marks a nonce as given up. Its effect has not started.
func (o *opening) markGivenUp() { o.update(func() { o.phase, o.cancel = phaseGivenUp, nil }) }

// leave gives up a nonce whose opens were all answered without a proposal. If a copy of them opens an attempt after all,
// a renewal of the session lists it. Without a session the abandon is sent later. The caller is counted in runner.Work.
func (o *opening) leave() {
	o.update(func() { o.phase, o.cancel, o.left = phaseGivenUp, nil, true })
	if o.session == nil {
		o.client.left.add(o)
	}
}

// abandonInBackground gives up a nonce whose open may still be carried out, and sends its abandon until a server
// answers. Without the abandon the attempt would end with its session, as in doubt. The session is renewed meanwhile.
// values are those of the call, which must still be counted in runner.Work. The channel is closed when the goroutine
// ends; Close waits for it, and for one more try.
//
// If the process dies before a server has answered, the session ends, and the recovery policy decides.
func (o *opening) abandonInBackground(values context.Context) (over <-chan struct{}) {
	o.update(func() { o.phase, o.cancel, o.abandoning = phaseGivenUp, nil, true })
	done := make(chan struct{})
	o.client.runner.Work.Go(func() {
		defer close(done)
		defer o.update(func() { o.abandoning = false })
		pause, until, last := minRetryPause, time.Now().Add(abandonTimeout), false
		for !o.tryAbandon(values) && !last && time.Now().Before(until) {
			last = !clock.Sleep(o.client.runner.DrainContext, pause)
			pause = min(2*pause, 2*time.Second)
		}
	})
	return done
}

// abandonWait bounds the wait for an abandon before the key is opened again.
const abandonWait = 2 * time.Second

// retryAfterAbandon returns the answer that makes the runner open the key again. It waits for a running abandon first:
// otherwise the next open could find the key in doubt because of the call's own attempt.
func retryAfterAbandon(ctx context.Context, abandoned <-chan struct{}, setback error) runner.Answer {
	if abandoned != nil {
		ctx, cancel := context.WithTimeout(ctx, abandonWait)
		defer cancel()
		select {
		case <-abandoned:
		case <-ctx.Done():
		}
	}
	return runner.Answer{Decision: runner.DecisionRetry, RetryCause: setback}
}
