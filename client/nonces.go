package client

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
	"github.com/flightd/flightd/internal/wire"
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
	key      flight.Key
	nonce    string
	notAfter int64 // the same in each copy of the open
	client   *Client
	first    clock.Moment // when the first open was sent: that one may have opened the attempt
	asked    bool         // an earlier open may have arrived
	call     *effect.Call
	until    time.Time // end of the wait for other callers; zero: none

	token, probe string // fencing token of its attempt, or token of its verification

	session *session // has it in its table; its mutex guards the fields below; nil: no answer has named a session yet
	phase   phase
	number  uint32                  // of its attempt, while phaseHeld
	cancel  context.CancelCauseFunc // cancels the context of its handler
	name    string                  // file of its report in the spool
	since   time.Time               // when that file was written
	report  []byte                  // the stored report, in phaseReported
	busy    bool                    // an abandon is being sent
}

func (c *Client) newOpening(key flight.Key) *opening {
	return &opening{client: c, key: key, nonce: newNonce(), notAfter: c.ledger.notAfter(), phase: phaseAwaited}
}

// needsSession reports whether the session has to be renewed for this nonce.
func (o *opening) needsSession() bool {
	return o.phase >= phaseAwaited && o.phase <= phaseSpooled || o.busy
}

// listedAction is the action for an attempt that a renewal lists as open.
type duty uint8

const (
	doNothing duty = iota
	abandonAttempt
	reportAgain
	reportUnknown
)

// listedActionFor decides the action for an attempt that a renewal lists as open. spooled means that its report is in the
// spool, listedBefore that the previous renewal listed it, also unexpectedly.
//
// An attempt whose effect may have started is never abandoned. The answer may be older than the state of the nonce
// here, so a report is sent only after two listings in a row. An abandon of a nonce that was given up is always
// correct, and is sent at once.
func dutyOf(p phase, waits, again bool) duty {
	switch {
	case p == phaseGivenUp:
		return abandonAttempt
	case isExpected(p, waits), !again:
		return doNothing
	case p == phaseReported:
		return reportAgain
	}
	return reportUnknown
}

// mayBeOpen reports whether an attempt in that phase is rightly listed as open.
func isExpected(p phase, waits bool) bool {
	return p == phaseAwaited || p == phaseHeld || p == phaseSpooled && waits
}

// isFinal reports whether an answer without an attempt is final for its nonce: no attempt can be opened under the nonce
// later, and no abandon is needed. only means that no other request with this nonce can have arrived.
//
// The answer of the ledger that applied an open is final for the nonce. A node that answers from its own view has not
// proposed this request, but another copy of the open may have been proposed elsewhere.
func isFinal(a *OpenAnswer, err error, only bool) bool {
	p := problemOf(err)
	switch {
	case err == nil:
		return a.Decision == wire.DecisionReplay
	case p == nil:
		return false // no server has answered
	case turnedAway(err):
		return only // it was not read by a server that could have proposed it
	}
	names := about(p) != "" // this flight: problemFrom has checked it
	switch p.Code {
	case wire.Conflict, wire.Expired, wire.OpenExpired:
		return names
	case wire.InDoubt:
		return names && p.Proposed != nil && (*p.Proposed || only)
	case wire.InFlight:
		return names && p.Proposed != nil && !*p.Proposed && only
	}
	return only && isRejected(p.Code)
}

// isRejectedForGood reports whether each copy of a request with that answer is rejected before a proposal.
func isRejected(code Code) bool {
	switch code {
	case wire.KeyRequired, wire.KeyInvalid, wire.InputInvalid, wire.PayloadTooLarge, wire.NotFound, wire.MethodNotAllowed:
		return true
	}
	return false
}

const (
	// abandonTryTimeout bounds one call of tryAbandon.
	abandonTry = 5 * time.Second
	// abandonTimeout bounds how long an abandon is repeated.
	abandonFor = 10 * time.Minute
)

// Abandon declares that no effect was started under the nonce of an open, and that none will be. It ends the attempt
// that the nonce has opened, or prevents it from opening one. r.NotAfter is that of the open; action and id are those
// of the key.
func (c *Client) Abandon(ctx context.Context, key flight.Key, r AbandonRequest) error {
	r.Action, r.ID = key.Name(), key.BusinessID()
	resp, err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/flights:abandon", body: r.AppendJSON(nil), key: key, timeout: abandonTry})
	if err == nil && string(bytes.TrimSpace(resp.body)) != "{}" {
		err = &effect.Unavailable{Code: "unreachable", Cause: errors.New("the answer is not that of an abandon")}
	}
	return err
}

// tryAbandon sends the abandon of an open. It returns true when the server's answer is final.
func (c *Client) tryAbandon(ctx context.Context, o *opening) bool {
	ctx, cancel := context.WithTimeout(ctx, abandonTry)
	defer cancel()
	err := c.Abandon(ctx, o.key, AbandonRequest{Nonce: o.nonce, NotAfter: o.notAfter, Reason: "its caller gave up before the effect started"})
	return verdictOn(err) != reportLater
}

// markGivenUp marks a nonce as given up. Its effect has not started.
func (o *opening) giveUp() { o.update(func() { o.phase, o.cancel = phaseGivenUp, nil }) }

// abandonInBackground gives up a nonce whose open may still be carried out, and sends its abandon until a server
// answers. Without the abandon the attempt would end with its session, as in doubt. The session is renewed meanwhile.
// values are those of the call, which must still be counted in runner.Work. The channel is closed when the goroutine
// ends; Close waits for it, and for one more try.
//
// If the process dies before a server has answered, the session ends, and the recovery policy decides.
func (c *Client) abandon(values context.Context, o *opening) (over <-chan struct{}) {
	o.update(func() { o.phase, o.cancel, o.busy = phaseGivenUp, nil, true })
	done := make(chan struct{})
	c.runner.Work.Go(func() {
		defer close(done)
		defer o.update(func() { o.busy = false })
		pause, until, last := firstPause, time.Now().Add(abandonFor), false
		for !c.tryAbandon(values, o) && !last && time.Now().Before(until) {
			last = !clock.Sleep(c.runner.Draining, pause)
			pause = min(2*pause, 2*time.Second)
		}
	})
	return done
}

// abandonWait bounds the wait for an abandon before the key is opened again.
const abandonFirst = 2 * time.Second

// retryAfterAbandon returns the answer that makes the runner open the key again. It waits for a running abandon first:
// otherwise the next open could find the key in doubt because of the call's own attempt.
func openAgain(ctx context.Context, abandoned <-chan struct{}, setback error) runner.Answer {
	if abandoned != nil {
		ctx, cancel := context.WithTimeout(ctx, abandonFirst)
		defer cancel()
		select {
		case <-abandoned:
		case <-ctx.Done():
		}
	}
	return runner.Answer{Decision: runner.Again, Setback: setback}
}
