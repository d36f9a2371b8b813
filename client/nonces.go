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

// phase is how far a nonce has come, as its owner knows it.
type phase uint8

const (
	phaseUnknown  phase = iota // not in the table
	phaseAwaited               // the answer to its open is awaited, or the provider is asked under it
	phaseHeld                  // its attempt is held: the effect may have started
	phaseSpooled               // the effect is over, and its report lies in the spool
	phaseReported              // the ledger has acknowledged that nothing was done
	phaseGivenUp               // it was given up before its effect started
)

// opening is one nonce and what its owner knows of it, from before its first open is sent until the ledger's final word.
// A nonce under which nothing was done stays in the table of its session until the session ends: a copy of its open may
// still open an attempt, and an old answer may still list one.
type opening struct {
	key      flight.Key
	nonce    string
	notAfter int64 // the same in all copies of the open
	client   *Client
	first    clock.Moment // when the first open was sent: it may have opened the attempt
	asked    bool         // an open was sent, and may have arrived
	call     *effect.Call
	until    time.Time // of waiting for others; zero: no end

	token, probe string // of its attempt, or of its look-up

	session *session // whose table it is in, and whose mutex guards what follows; nil: no answer has named one yet
	phase   phase
	number  uint32                  // of its attempt, where that is held
	cancel  context.CancelCauseFunc // ends the context of its handler
	name    string                  // of its report in the spool
	since   time.Time               // for as long it lies there
	report  []byte                  // as it was acknowledged
	busy    bool                    // something is being said to the server about its attempt
}

func (c *Client) newOpening(key flight.Key) *opening {
	return &opening{client: c, key: key, nonce: newNonce(), notAfter: c.ledger.notAfter(), phase: phaseAwaited}
}

// needsSession reports whether the session is to be renewed for this nonce.
func (o *opening) needsSession() bool {
	return o.phase >= phaseAwaited && o.phase <= phaseSpooled || o.busy
}

// duty is what is to be done about an attempt that a renewal lists as open.
type duty uint8

const (
	doNothing duty = iota
	abandonAttempt
	reportAgain
	reportUnknown
)

// dutyOf decides what is to be done about an attempt that a renewal lists as open, by what the session's owner knows of its
// nonce. waits says that its report still lies in the spool. again says that the renewal before listed it, too, and that it
// was as unexpected then.
//
// An attempt whose effect may have started is never abandoned. An answer may be older than what this process has learnt
// meanwhile, so one listing alone leads to no report. An abandon says what stays true, and is sent at once.
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

// isExpected reports whether an attempt in that phase may be open for all that its owner knows.
func isExpected(p phase, waits bool) bool {
	return p == phaseAwaited || p == phaseHeld || p == phaseSpooled && waits
}

// isFinal reports whether an answer to an open that brought no attempt is the last word about its nonce, so that whoever
// leaves then need not abandon it. only says that no other request with this nonce can have arrived.
//
// The ledger's word in applying an open is about its nonce. A node that answers from its own view has not proposed this
// request, but another copy of the open may have been proposed elsewhere.
func isFinal(a *OpenAnswer, err error, only bool) bool {
	p := problemOf(err)
	switch {
	case err == nil:
		return a.Decision == wire.DecisionReplay
	case p == nil:
		return false // nobody has answered
	case turnedAway(err):
		return only // nobody has read it who could have proposed it
	}
	names := about(p) != "" // this flight: see refusal
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

// isRejected reports whether a request with such an answer was rejected before anything was proposed, and always will be.
func isRejected(code Code) bool {
	switch code {
	case wire.KeyRequired, wire.KeyInvalid, wire.InputInvalid, wire.PayloadTooLarge, wire.NotFound, wire.MethodNotAllowed:
		return true
	}
	return false
}

const (
	// abandonTry is how long one try to abandon an open may take, with its repeats.
	abandonTry = 5 * time.Second
	// abandonFor is for how long it is tried again and again.
	abandonFor = 10 * time.Minute
)

// Abandon says that nothing was sent under the nonce of an open, and that nothing ever will be. It ends the attempt that the
// nonce has opened, or keeps it from opening one. r.NotAfter is that of the open; the key decides about action and id.
func (c *Client) Abandon(ctx context.Context, key flight.Key, r AbandonRequest) error {
	r.Action, r.ID = key.Name(), key.BusinessID()
	resp, err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/flights:abandon", body: r.AppendJSON(nil), key: key, timeout: abandonTry})
	if err == nil && string(bytes.TrimSpace(resp.body)) != "{}" {
		err = &effect.Unavailable{Code: "unreachable", Cause: errors.New("an answer to something else than an abandon")}
	}
	return err
}

// tryAbandon asks for the abandon of an open that was given up, for a short while. It answers whether there is nothing more
// to ask for.
func (c *Client) tryAbandon(ctx context.Context, o *opening) bool {
	ctx, cancel := context.WithTimeout(ctx, abandonTry)
	defer cancel()
	err := c.Abandon(ctx, o.key, AbandonRequest{Nonce: o.nonce, NotAfter: o.notAfter, Reason: "its caller gave up before the effect started"})
	return verdictOn(err) != later
}

// giveUp gives up a nonce before its effect has started.
func (o *opening) giveUp() { o.update(func() { o.phase, o.cancel = phaseGivenUp, nil }) }

// abandon gives up a nonce whose open may be carried out, and abandons that until a server has answered: nobody else would
// ever say that nothing was sent, and with its session it would end in doubt. The session is renewed meanwhile. Close waits
// for one more try. values are those of the call that it is for; that call is counted as work, so that this may be. The channel is
// closed when nobody asks any more.
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

// abandonFirst is how long an abandon is waited for before the key is opened anew.
const abandonFirst = 2 * time.Second

// openAgain is the answer where the key is to be opened anew. The abandon that is under way, if there is one, goes first: else the
// caller might meet the doubt of its own attempt.
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
