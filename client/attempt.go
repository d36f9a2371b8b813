package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
	"github.com/flightd/flightd/internal/wire"
)

// Do runs h once for the call's key, or gives the receipt of whoever did. It implements effect.Doer; its errors are
// those of package effect, of ctx, and *flight.InvalidError. The retries, approvals and delays of a policy are not for
// callers who perform effects themselves, and are refused; so the pause that a handler asks for by effect.RetryAfter delays
// nothing, and is found by effect.AskedPause in the *Unsettled. Package runner has the steps of a call.
func (c *Client) Do(ctx context.Context, call effect.Call, h effect.Handler) (effect.Result, error) {
	p, input := &call.Submission.Policy, &call.Submission.Input
	switch {
	case call.Key.IsStep():
		return effect.Result{}, &flight.InvalidError{Field: "key", Detail: "steps of sagas are started by their saga alone"}
	case p.Retry.Declared() || p.Approval || p.Saga || p.RunAfter > 0:
		return effect.Result{}, &flight.InvalidError{Field: "policy", Detail: "retries, approvals and delays need a declared action; callers who perform the effect themselves try again by themselves"}
	case input.Size > 0 && !(wire.IsJSONType(input.ContentType) && wire.ValidJSON(input.Data)):
		return effect.Result{}, &flight.InvalidError{Field: "input", Detail: "an input that travels is JSON without space around it"}
	}
	if err := runner.Check(&call, h); err != nil {
		return effect.Result{}, err
	}
	return c.runner.Do(ctx, call, h, 0)
}

// transport implements runner.Transport over HTTP.
type transport struct{ *Client }

// Renew renews the session for new attempts, and has another one take its place where it cannot be trusted.
func (c transport) Renew(context.Context) error {
	s := c.sessions.get()
	if s == nil {
		return nil
	}
	s.renew()
	if s.Trust() <= 0 {
		s.lose()
		return effect.ErrLeaseLost
	}
	return nil
}

// Open implements runner.Transport: one nonce, under which it asks until there is something to do.
func (c transport) Open(ctx context.Context, call *effect.Call, until time.Time) (runner.Answer, error) {
	o := c.newOpening(call.Key)
	o.call, o.until = call, until
	scout := false
	for tracked := false; !tracked; { // a session that was just retired takes no more: there will be another one
		s, first, err := c.sessions.use(ctx)
		if err != nil {
			return runner.Answer{}, err
		}
		scout, tracked = first, s == nil || s.track(o)
	}
	answer, err := o.ask(ctx)
	out, err := o.answered(ctx, &answer, err)
	if scout {
		c.sessions.back(out.Attempt != nil)
	}
	return out, err
}

// ask opens until there is something to do, or the wait for others is over, or another nonce should be waited under.
func (o *opening) ask(ctx context.Context) (OpenAnswer, error) {
	s := &o.call.Submission
	r := OpenRequest{
		Fingerprint: s.Fingerprint.String(), Nonce: o.nonce, NotAfter: o.notAfter, Session: o.sessionID(),
		Owner: o.client.opts.owner, Policy: wire.PolicyOf(s.Policy),
	}
	if r.Session == "" {
		r.TTLMS = o.client.opts.ttl.Milliseconds()
	}
	if s.Input.Size > 0 {
		r.Input = s.Input.Data
	}
	for {
		wait, asked := o.waitMS(), clock.Now()
		if !o.asked {
			o.first = asked
		}
		r.WaitMS = &wait
		answer, err := o.client.Open(ctx, o.key, r)
		o.asked = o.asked || answer.unsure
		var busy *effect.Busy
		if !errors.As(err, &busy) || o.over() {
			return answer, err
		}
		// A server that did not wait knows that it cannot be yet: a settle delay is not over, say. It is not asked at once.
		left := time.Duration(wait)*time.Millisecond - time.Since(asked.Time)
		if left > 0 && !clock.Sleep(ctx, min(max(busy.RetryAfter, firstPause), longPause, left)) {
			return answer, &endedError{context.Cause(ctx), err}
		}
		if isFinal(&answer, err, !o.asked) || time.Since(o.first.Time) > o.window() {
			return answer, err
		}
		o.asked = true
	}
}

// answered is what the last answer to an open means. A nonce that is given up before its effect started is abandoned, unless
// the answer was the last word about it.
func (o *opening) answered(ctx context.Context, a *OpenAnswer, err error) (runner.Answer, error) {
	if s := o.session; s != nil && s.id == a.Session {
		s.trust.extend(a.sent, a.TrustMS)
	}
	if err == nil {
		switch a.Decision {
		case wire.DecisionProceed:
			return o.granted(runner.Proceed, a), nil
		case wire.DecisionVerify:
			return o.granted(runner.Look, a), nil
		case wire.DecisionReplay:
			o.become(phaseUnknown)
			result, err := resultOf(a.Flight)
			return runner.Answer{Result: result}, err
		}
		err = fmt.Errorf("client: the server decided %q, which this client does not know", a.Decision)
	}
	var abandoned <-chan struct{}
	if isFinal(a, err, !o.asked) {
		o.giveUp()
	} else {
		abandoned = o.client.abandon(context.WithoutCancel(ctx), o)
	}
	var busy *effect.Busy
	var lost *effect.LeaseLost
	var fenced *effect.Fenced
	switch {
	case errors.As(err, &lost):
		if o.session != nil {
			o.session.lose()
		}
		return openAgain(ctx, abandoned, errors.Join(effect.ErrLeaseLost, err)), nil
	case errors.As(err, &busy) && !o.over():
		return openAgain(ctx, abandoned, nil), nil
	case errors.As(err, &fenced), CodeOf(err) == wire.OpenExpired:
		return openAgain(ctx, abandoned, err), nil
	}
	return runner.Answer{}, err
}

// granted is the runner's answer where there is something to do: an attempt was opened, or is to be looked up.
func (o *opening) granted(d runner.Decision, a *OpenAnswer) runner.Answer {
	o.client.sessions.adopt(a, o)
	o.number, o.token, o.probe = a.Attempt, a.FencingToken, a.Probe
	out := runner.Answer{Decision: d, Attempt: o, Policy: o.call.Submission.Policy, Sent: o.first}
	if a.PolicyDiffers && a.Policy != nil { // the first caller's policy holds
		if p, bad := a.Policy.Flight(); bad == nil {
			out.Policy = p
		}
	}
	if a.ResendMS != nil {
		out.Resend = a.sent.Add(time.Duration(*a.ResendMS) * time.Millisecond)
	}
	out.Spec = effect.Spec{
		Key: o.key, Number: a.Attempt, IdempotencyKey: a.IdempotencyKey, FencingToken: a.FencingToken,
		Input: o.input(a), Recovery: out.Policy.Recovery, Previous: previous(a.Previous),
	}
	if d == runner.Look && out.Spec.Previous != nil {
		out.Spec.Number = out.Spec.Previous.Number
	}
	return out
}

// input is what must be sent: the first caller's.
func (o *opening) input(a *OpenAnswer) flight.Blob {
	own := o.call.Submission.Input
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

func previous(a *wire.Attempt) *flight.Attempt {
	if a == nil {
		return nil
	}
	outcome, _ := flight.ParseOutcome(a.Outcome) // none while it is open
	p := &flight.Attempt{Number: a.Attempt, Owner: a.Owner, Outcome: outcome, Lost: a.Lost, Error: a.Error}
	if !a.OpenedAt.IsZero() {
		p.OpenedAt = flight.Time(a.OpenedAt.UnixMilli())
	}
	if !a.ClosedAt.IsZero() {
		p.ClosedAt = flight.Time(a.ClosedAt.UnixMilli())
	}
	return p
}

// sessionID is that of the client's session; a session that the server made for one open is not asked for again.
func (o *opening) sessionID() string {
	if o.session == nil || o.session.oneShot {
		return ""
	}
	return o.session.id
}

// window is for how long one nonce is waited under. Half of the time in which its effect may start, and of that in which its
// open may come into the ledger, is left for what comes then.
func (o *opening) window() time.Duration {
	if timeout := o.call.Submission.Policy.AttemptTimeout; timeout > 0 {
		return min(timeout, openLife) / 2
	}
	return openLife / 2
}

// waitMS is for how long the next open may wait at the server. A short time-out of attempts does not make the wait for others
// a loop.
func (o *opening) waitMS() int64 {
	wait := min(wire.DefaultWaitMS, max(o.window().Milliseconds(), 100))
	if o.until.IsZero() {
		return wait
	}
	return max(0, min(time.Until(o.until).Milliseconds(), wait))
}

// over reports whether the wait for others is.
func (o *opening) over() bool { return !o.until.IsZero() && time.Until(o.until) < time.Millisecond }

// Trust implements runner.Attempt.
func (o *opening) Trust() time.Duration { return o.session.Trust() }

// Context implements runner.Attempt.
func (o *opening) Context() context.Context { return o.session.dying }

// Watch implements runner.Attempt: the next renewal tells what somebody wants cancelled.
func (o *opening) Watch(_ context.Context, cancel context.CancelCauseFunc) (stop func()) {
	o.update(func() { o.phase, o.cancel = phaseHeld, cancel })
	return func() {}
}

// Verify implements runner.Attempt. The verdict goes out under a nonce of its own, and is answered like an open.
func (o *opening) Verify(ctx context.Context, verb flight.Verb, found effect.Answer) (runner.Answer, error) {
	next := o.client.newOpening(o.key)
	next.call, next.until = o.call, o.until
	if !o.session.oneShot {
		o.session.track(next) // else the server makes another one
	}
	next.first = clock.Now()
	wait := next.waitMS()
	answer, err := o.client.Verdict(ctx, o.key, VerdictRequest{
		Probe: o.probe, Result: wire.VerbWord(verb), Session: next.sessionID(), Nonce: next.nonce, NotAfter: next.notAfter,
		Owner: o.client.opts.owner, WaitMS: &wait, Body: wire.BodyOf(flight.Text(found.ExternalID), found.ContentType, found.Body),
	})
	if err == nil {
		o.giveUp() // the verdict has ended the look-up
	} else {
		o.client.abandon(context.WithoutCancel(ctx), o)
	}
	next.asked = answer.unsure
	var busy *effect.Busy
	if errors.As(err, &busy) && !next.over() {
		next.asked = true
		answer, err = next.ask(ctx)
	}
	return next.answered(ctx, &answer, err)
}

// Report implements runner.Attempt.
func (o *opening) Report(ctx context.Context, end runner.End) (runner.Answer, error) {
	c := o.client
	if end.NotStarted {
		return openAgain(c.runner.Draining, c.abandon(ctx, o), end.Err), nil
	}
	r := ReportRequest{FencingToken: o.token, Outcome: end.Outcome.String()}
	if end.Err != nil {
		r.Error = flight.Text(end.Err.Error())
	}
	if end.Outcome.Final() { // too long a body is shortened and marked so; it never makes an attempt fail
		r.Body = wire.BodyOf(flight.Text(end.Answer.ExternalID), end.Answer.ContentType, end.Answer.Body)
	}
	f, waits, err := c.record(ctx, o.key, r)
	if end.Late {
		return runner.Answer{}, err
	}
	if waits != "" {
		o.outlast(waits)
		return runner.Answer{}, err
	}
	o.acknowledge(&r)
	source := effect.Executed
	var fenced *effect.Fenced
	if errors.As(err, &fenced) { // what was decided without this attempt counts, where that is final
		ctx, cancel := context.WithTimeout(ctx, defaultTry)
		defer cancel()
		var unread error
		if f, unread = c.Flight(ctx, o.key.FlightID()); unread == nil && isSettled(f) {
			source, err = effect.Replayed, nil
		}
	}
	switch {
	case err != nil:
		return runner.Answer{}, err
	case isSettled(f):
		f.Source = source.String()
		result, err := resultOf(f)
		return runner.Answer{Result: result}, err
	case f.Looking:
		return runner.Answer{Decision: runner.Again}, nil
	}
	return runner.Answer{Decision: runner.Unsettled}, nil
}
