package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/caller"
	"github.com/flightd/flightd/internal/wire"
)

// Do runs h once for the call's key, or gives the receipt of whoever did. It implements effect.Doer; its errors are
// those of package effect, of ctx, and *flight.InvalidError. The retries, approvals and delays of a policy are not for
// callers who perform effects themselves, and are refused; so the pause that a handler asks for by effect.RetryAfter delays
// nothing, and is found by effect.AskedPause in the *Unsettled.
func (c *Client) Do(ctx context.Context, call effect.Call, h effect.Handler) (effect.Result, error) {
	if err := check(&call, h); err != nil {
		return effect.Result{}, err
	}
	if err := caller.CheckInside(ctx, c, call.Key); err != nil {
		return effect.Result{}, err
	}
	asked := time.Now()
	for {
		t, first := c.trips.join(ctx, call)
		if first {
			return c.lead(ctx, t, call, h)
		}
		result, err := c.accompany(ctx, t, call)
		if !t.over() || !t.leavesOpen(call, err) || ctx.Err() != nil {
			return result, err
		}
		if call.Wait > 0 { // what is left of it
			if call.Wait -= time.Since(asked); call.Wait <= 0 {
				return result, err
			}
			asked = time.Now()
		}
	}
}

// lead flies a trip, for this caller and for those who will join it.
func (c *Client) lead(ctx context.Context, t *trip, call effect.Call, h effect.Handler) (effect.Result, error) {
	if !c.gate.enter(&c.work) {
		t.end(effect.Result{}, effect.ErrClosed)
		return effect.Result{}, effect.ErrClosed
	}
	go func() {
		defer c.work.Done()
		defer context.AfterFunc(c.ending, func() { t.drop(effect.ErrClosed) })()
		t.end(c.fly(t, h))
	}()
	return t.await(ctx, call, effect.Executed)
}

// accompany waits for a trip that somebody else flies.
func (c *Client) accompany(ctx context.Context, t *trip, call effect.Call) (effect.Result, error) {
	if !t.call.Submission.Fingerprint.Matches(call.Submission.Fingerprint) {
		t.leave(context.Canceled)
		return effect.Result{}, &effect.Conflict{Key: call.Key,
			Fields: flight.DifferingFields(t.call.Submission.Input.Data, call.Submission.Input.Data, nil)}
	}
	return t.await(ctx, call, effect.Joined)
}

// leavesOpen reports whether the end of the trip is none for a caller that joined it: the trip's patience with others was
// over, and not the caller's; or it could not look; or the trip flew under whatever input stands, which need not be the
// caller's. The server knows.
func (t *trip) leavesOpen(call effect.Call, err error) bool {
	var busy *effect.Busy
	if errors.As(err, &busy) || caller.MayLook(err, t.call.LookUp, call.LookUp) {
		return true
	}
	if t.call.Submission.Fingerprint != flight.NoFingerprint || call.Submission.Fingerprint == flight.NoFingerprint {
		return false
	}
	var declined *effect.Declined
	var failed *effect.Failed
	return err == nil || errors.As(err, &declined) || errors.As(err, &failed)
}

func check(call *effect.Call, h effect.Handler) error {
	p := &call.Submission.Policy
	input := &call.Submission.Input
	switch {
	case call.Key.IsZero():
		return &flight.InvalidError{Field: "key", Detail: "the call names no key"}
	case call.Key.IsStep():
		return &flight.InvalidError{Field: "key", Detail: "steps of sagas are started by their saga alone"}
	case h == nil:
		return &flight.InvalidError{Field: "handler", Detail: "the call brings no handler"}
	case p.CanLookUp() && call.LookUp == nil:
		return &flight.InvalidError{Field: "look_up", Detail: "recovery verify needs a look-up"}
	case p.Retry.Declared() || p.Approval || p.Saga || p.RunAfter > 0:
		return &flight.InvalidError{Field: "policy", Detail: "retries, approvals and delays need a declared action; callers who perform the effect themselves try again by themselves"}
	case input.Size > 0 && !(wire.IsJSONType(input.ContentType) && wire.ValidJSON(input.Data)):
		return &flight.InvalidError{Field: "input", Detail: "an input that travels is JSON without space around it"}
	case input.Size > flight.MaxInput:
		return &flight.InvalidError{Field: "input", Detail: "it is longer than 256 KiB"}
	}
	return p.Check()
}

// fly is one trip: open, act, report, as often as the answers say. Its waiting ends when nobody is interested any more;
// an effect that has started is not bothered by that.
func (c *Client) fly(t *trip, h effect.Handler) (effect.Result, error) {
	var until time.Time
	if t.call.Wait > 0 {
		until = time.Now().Add(t.call.Wait)
	}
	for legs := 0; ; legs++ {
		if legs > 1 && !sleep(t.interest, min(time.Duration(legs)*firstPause, longPause)) {
			return effect.Result{}, context.Cause(t.interest)
		}
		s, scout, err := c.sessions.get(t.interest)
		if err != nil {
			return effect.Result{}, t.because(err)
		}
		leg := leg{client: c, trip: t, handler: h, o: c.newOpening(t.call.Key), until: until}
		if s != nil && !s.track(leg.o) {
			continue // the session was just retired: there will be another one
		}
		again, result, err := leg.fly()
		if scout {
			c.sessions.back(leg.flown)
		}
		if !again {
			return result, t.because(err)
		}
		if leg.waited {
			legs = 0
		}
	}
}

// because says of what the trip's end is a consequence: of nobody waiting any more, or of Close, where that is so. An effect
// that happened is no consequence of either.
func (t *trip) because(err error) error {
	var unrecorded *effect.Unrecorded
	cause := context.Cause(t.interest)
	if err != nil && cause != nil && !errors.As(err, &unrecorded) && (errors.Is(err, context.Canceled) || errors.Is(err, cause)) {
		return cause
	}
	return err
}

// leg is the part of a trip that is flown under one nonce: at most one attempt. A verdict goes on under another nonce.
type leg struct {
	client  *Client
	trip    *trip
	handler effect.Handler
	o       *opening
	until   time.Time // of waiting for others; zero: no end
	waited  bool      // for somebody else's attempt
	flown   bool      // the effect was performed, or looked for
}

// fly opens, waits for others where it must, looks up where it is told to, and acts where it may. again says that the
// trip goes on under another nonce.
func (l *leg) fly() (again bool, result effect.Result, err error) {
	answer, err := l.open()
	for err == nil {
		switch answer.Decision {
		case wire.DecisionProceed:
			l.adopt(&answer)
			return l.act(answer)
		case wire.DecisionReplay:
			l.o.become(phaseUnknown)
			result, err = resultOf(answer.Flight)
			return false, result, err
		case wire.DecisionVerify:
			l.adopt(&answer)
			answer, err = l.lookUp(answer)
		default:
			err = fmt.Errorf("client: the server decided %q, which this client does not know", answer.Decision)
		}
	}
	l.leave(&answer, err)
	var busy *effect.Busy
	switch {
	case isLeaseLost(err):
		if l.o.session != nil {
			l.o.session.lose()
		}
	case errors.As(err, &busy):
		if l.over() {
			return false, effect.Result{}, err
		}
		l.waited = true
	case !isFenced(err) && CodeOf(err) != wire.OpenExpired:
		return false, effect.Result{}, err
	}
	return l.trip.interest.Err() == nil, effect.Result{}, err
}

// adopt takes over the session that holds what was opened, where that is another one than the client's.
func (l *leg) adopt(a *OpenAnswer) {
	l.flown = true
	l.client.sessions.adopt(a, l.o)
}

// leave is for a nonce that was given up before its effect started. Unless the answer was the last word about it, its open is
// abandoned.
func (l *leg) leave(a *OpenAnswer, err error) {
	if isFinal(a, err, !l.o.asked) {
		l.o.giveUp()
		return
	}
	l.client.abandon(l.trip.values, l.o)
}

// open asks until there is something to do, or the wait is over, or another nonce should be waited under.
func (l *leg) open() (OpenAnswer, error) {
	call := &l.trip.call
	r := OpenRequest{
		Fingerprint: call.Submission.Fingerprint.String(), Nonce: l.o.nonce, NotAfter: l.o.notAfter, Session: l.sessionID(),
		Owner: l.client.opts.owner, Policy: wire.PolicyOf(call.Submission.Policy),
	}
	if r.Session == "" {
		r.TTLMS = l.client.opts.ttl.Milliseconds()
	}
	if call.Submission.Input.Size > 0 {
		r.Input = call.Submission.Input.Data
	}
	for {
		wait, asked := l.waitMS(), now()
		if !l.o.asked {
			l.o.first = asked
		}
		r.WaitMS = &wait
		answer, err := l.client.Open(l.trip.interest, call.Key, r)
		l.o.asked = l.o.asked || answer.unsure
		var busy *effect.Busy
		if !errors.As(err, &busy) || l.over() {
			l.trust(&answer)
			return answer, err
		}
		// A server that did not wait knows that it cannot be yet: a settle delay is not over, say. It is not asked at once.
		left := time.Duration(wait)*time.Millisecond - time.Since(asked.Time)
		if left > 0 && !sleep(l.trip.interest, min(max(busy.RetryAfter, firstPause), longPause, left)) {
			return answer, &endedError{context.Cause(l.trip.interest), err}
		}
		if isFinal(&answer, err, !l.o.asked) || time.Since(l.o.first.Time) > l.window() {
			return answer, err
		}
		l.o.asked = true
	}
}

// sessionID is that of the client's session; a session that the server made for one open is not asked for again.
func (l *leg) sessionID() string {
	if l.o.session == nil || l.o.session.oneShot {
		return ""
	}
	return l.o.session.id
}

// trust takes the trust that an answer gave, where it is about the session that the leg has.
func (l *leg) trust(a *OpenAnswer) {
	if s := l.o.session; s != nil && s.id == a.Session {
		s.trust.extend(a.sent, a.TrustMS)
	}
}

// window is for how long one nonce is waited under. Half of the time in which its effect may start, and of that in which its
// open may come into the ledger, is left for what comes then.
func (l *leg) window() time.Duration {
	if timeout := l.trip.call.Submission.Policy.AttemptTimeout; timeout > 0 {
		return min(timeout, openLife) / 2
	}
	return openLife / 2
}

// waitMS is for how long the next open may wait at the server.
func (l *leg) waitMS() int64 {
	wait := min(wire.DefaultWaitMS, max(l.window(), shortestWait).Milliseconds())
	if l.until.IsZero() {
		return wait
	}
	return max(0, min(time.Until(l.until).Milliseconds(), wait))
}

// shortestWait keeps a short time-out of attempts from making the wait for others a loop.
const shortestWait = 100 * time.Millisecond

func (l *leg) over() bool { return !l.until.IsZero() && time.Until(l.until) < time.Millisecond }

// lookUp asks the provider what happened and brings the verdict, which is answered like an open, under a nonce of its own.
func (l *leg) lookUp(a OpenAnswer) (OpenAnswer, error) {
	call := &l.trip.call
	if call.LookUp == nil {
		return a, &effect.InDoubt{Key: call.Key, Cause: caller.NoLookUp}
	}
	verb, found := l.askProvider(a)
	look := l.o
	l.o = l.client.newOpening(call.Key)
	if s := look.session; !s.oneShot {
		s.track(l.o) // else the server makes another one
	}
	l.o.first = now()
	wait := l.waitMS()
	answer, err := l.client.Verdict(l.trip.interest, call.Key, VerdictRequest{
		Probe: a.Probe, Result: wire.VerbWord(verb), Session: l.sessionID(), Nonce: l.o.nonce, NotAfter: l.o.notAfter,
		Owner: l.client.opts.owner, WaitMS: &wait, Body: wire.BodyOf(flight.Text(found.ExternalID), found.ContentType, found.Body),
	})
	if err == nil {
		look.giveUp() // the verdict has ended the look-up
	} else {
		l.client.abandon(l.trip.values, look)
	}
	var busy *effect.Busy
	if errors.As(err, &busy) && !l.over() {
		l.o.asked = true
		return l.open()
	}
	l.o.asked = l.o.asked || answer.unsure
	l.trust(&answer)
	return answer, err
}

// askProvider calls the caller's look-up.
func (l *leg) askProvider(a OpenAnswer) (flight.Verb, effect.Answer) {
	policy := effectivePolicy(&l.trip.call, a)
	spec := l.spec(a, policy)
	if spec.Previous != nil {
		spec.Number = spec.Previous.Number
	}
	look := caller.Look{
		Up: l.trip.call.LookUp, Doer: l.client, Spec: spec, Timeout: policy.AttemptTimeout, HungAfter: l.client.opts.hungAfter,
		Go: l.client.work.Go, // the trip itself is counted, so that this one may be
	}
	return look.Ask(effect.WithTraceparent(l.client.life, effect.Traceparent(l.trip.values)))
}

// effectivePolicy is the one that stands: the first caller's.
func effectivePolicy(call *effect.Call, a OpenAnswer) flight.Policy {
	if a.PolicyDiffers && a.Policy != nil {
		if p, bad := a.Policy.Flight(); bad == nil {
			return p
		}
	}
	return call.Submission.Policy
}

// input is what must be sent: the first caller's.
func (l *leg) input(a OpenAnswer) flight.Blob {
	own := l.trip.call.Submission.Input
	switch {
	case a.InputBase64 != nil:
		return flight.NewBlob(a.InputType, a.InputBase64, flight.MaxInput)
	case a.Input == nil:
		return flight.Blob{}
	case bytes.Equal(a.Input, own.Data):
		return own
	}
	return flight.NewBlob(wire.TypeJSON, a.Input, flight.MaxInput)
}

func isLeaseLost(err error) bool {
	var lost *effect.LeaseLost
	return errors.As(err, &lost)
}

func isFenced(err error) bool {
	var fenced *effect.Fenced
	return errors.As(err, &fenced)
}
