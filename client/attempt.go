package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
)

// Do runs h once for the call's key, or returns the stored receipt. It implements effect.Doer. Its errors are those of
// package effect, of ctx, and *flight.InvalidError.
//
// Policies with retries or a delay are rejected: they need a declared action. While the key awaits an approval, the error wraps
// *Unapproved; the caller itself calls again. A pause that a handler
// requests by effect.RetryAfter delays nothing here; the caller reads it with effect.RequestedPause from the
// *Unsettled. Package runner has the steps of a call.
func (c *Client) Do(ctx context.Context, call effect.Call, h effect.Handler) (effect.Result, error) {
	p, input := &call.Submission.Policy, &call.Submission.Input
	switch {
	case call.Key.IsStep():
		return effect.Result{}, &flight.InvalidError{Field: "key", Detail: "only its saga may start a step"}
	case p.Retry.Declared() || p.Saga || p.RunAfter > 0:
		return effect.Result{}, &flight.InvalidError{Field: "policy", Detail: "retries and delays need a declared action; without one, the caller itself calls again"}
	case input.Size > 0 && !(wire.IsJSONType(input.ContentType) && wire.ValidJSON(input.Data)):
		return effect.Result{}, &flight.InvalidError{Field: "input", Detail: "an input sent to a server must be JSON, without space before or after it"}
	}
	if err := runner.CheckCall(&call, h); err != nil {
		return effect.Result{}, err
	}
	return c.runner.Do(ctx, call, h, 0)
}

// transport implements runner.Transport over HTTP.
type transport struct{ *Client }

// Renew implements runner.Transport. A session that cannot be trusted after its renewal is replaced by the next Open.
func (t transport) Renew(context.Context) error {
	s := t.sessions.currentSession()
	if s == nil {
		return nil
	}
	s.renew()
	if s.Trust() <= 0 {
		s.markLost()
		return effect.ErrLeaseLost
	}
	return nil
}

// Open implements runner.Transport, with one nonce.
func (t transport) Open(ctx context.Context, call *effect.Call, until time.Time) (runner.Answer, error) {
	o := newOpening(t.Client, call, until)
	sessionless := false
	for tracked := false; !tracked; { // a session that was just retired rejects it: acquire another one
		s, first, err := t.sessions.acquire(ctx)
		if err != nil {
			return runner.Answer{}, err
		}
		sessionless, tracked = first, s == nil || s.track(o)
	}
	answer, err := o.openUntilAnswered(ctx)
	out, err := o.handleAnswer(ctx, &answer, err)
	if sessionless {
		t.sessions.endSessionless(out.Attempt != nil)
	}
	return out, err
}

// openUntilAnswered repeats the open until an attempt is granted, the caller's wait is over, or the nonce has to be
// replaced.
func (o *opening) openUntilAnswered(ctx context.Context) (OpenAnswer, error) {
	s := &o.call.Submission
	r := OpenRequest{
		Fingerprint: s.Fingerprint.String(), Nonce: o.nonce, NotAfter: o.notAfter, Session: o.sessionID(),
		Owner: o.client.opts.owner, Policy: wire.PolicyOf(s.Policy), Callback: o.call.Callback,
	}
	if r.Session == "" {
		r.TTLMS = o.client.opts.times.sessionTTL.Milliseconds()
	}
	if s.Input.Size > 0 {
		r.Input = s.Input.Data
	}
	for {
		wait, asked := o.waitMS(), clock.Now()
		if o.firstSent.IsZero() {
			o.firstSent = asked
		}
		r.WaitMS = &wait
		answer, err := o.client.openWithin(ctx, o.key, r, o.waitUntil)
		if err == nil {
			o.policy = s.Policy // unless the answer names that of the flight's first caller
		}
		o.mayHaveArrived = o.mayHaveArrived || answer.mayHaveArrived
		var busy *effect.Busy
		if !errors.As(err, &busy) || o.waitIsOver() {
			return answer, err
		}
		// A server may answer before the wait is over, for example during a settle delay. Pause before the next request.
		left := time.Duration(wait)*time.Millisecond - time.Since(asked.Time)
		if left > 0 && !clock.Sleep(ctx, min(max(busy.RetryAfter, minRetryPause), maxRetryPause, left)) {
			return answer, &contextError{context.Cause(ctx), err}
		}
		if time.Since(o.firstSent.Time) > o.nonceWindow() {
			return answer, err
		}
		o.mayHaveArrived = o.mayHaveArrived || !isUnproposed(err)
	}
}

// handleAnswer turns the last answer to an open into the runner's answer. A nonce that did not get an attempt is
// abandoned, unless the answer is final for it.
func (o *opening) handleAnswer(ctx context.Context, a *OpenAnswer, err error) (runner.Answer, error) {
	if s := o.session; s != nil && s.id == a.Session {
		s.trust.extend(a.sentAt, a.TrustMS)
	}
	if err == nil {
		switch a.Decision {
		case wire.DecisionProceed:
			return o.grantedAnswer(runner.DecisionProceed, a), nil
		case wire.DecisionVerify:
			return o.grantedAnswer(runner.DecisionVerify, a), nil
		case wire.DecisionReplay:
			o.markUnknown()
			result, err := resultOf(a.Flight)
			return runner.Answer{Result: result}, err
		}
		err = fmt.Errorf("client: unknown decision %q: the server is newer than this client", a.Decision)
	}
	o.client.ledgerClock.adaptMargin(CodeOf(err) == wire.OpenExpired)
	var abandoned <-chan struct{}
	switch {
	case isFinal(a, err, !o.mayHaveArrived):
		o.markGivenUp()
	case !o.mayHaveArrived && isUnproposed(err):
		o.leave()
	default:
		abandoned = o.abandonInBackground(context.WithoutCancel(ctx))
	}
	switch {
	case errors.As(err, new(*effect.LeaseLost)):
		if p := problemOf(err); o.session != nil && p != nil && p.Nonce != "" {
			o.session.markLost()
		}
		return retryAfterAbandon(ctx, abandoned, errors.Join(effect.ErrLeaseLost, err)), nil
	case errors.As(err, new(*effect.Busy)) && !o.waitIsOver():
		return retryAfterAbandon(ctx, abandoned, nil), nil
	case errors.As(err, new(*effect.Fenced)), CodeOf(err) == wire.OpenExpired:
		return retryAfterAbandon(ctx, abandoned, err), nil
	}
	return runner.Answer{}, err
}

// grantedAnswer is the runner's answer when an attempt was opened or has to be verified.
func (o *opening) grantedAnswer(d runner.Decision, a *OpenAnswer) runner.Answer {
	o.client.sessions.adopt(a, o)
	o.number, o.token, o.verification = a.Attempt, a.FencingToken, a.Verification
	if a.PolicyDiffers && a.Policy != nil {
		if p, bad := a.Policy.Flight(); bad == nil {
			o.policy = p
		}
	}
	out := runner.Answer{Decision: d, Attempt: o, Policy: o.policy, SentAt: o.firstSent}
	if a.ResendMS != nil {
		out.ResendUntil = a.sentAt.Add(time.Duration(*a.ResendMS) * time.Millisecond)
	}
	out.Spec = effect.Spec{
		Key: o.key, Number: a.Attempt, IdempotencyKey: a.IdempotencyKey, FencingToken: a.FencingToken,
		Input: o.input(a), Recovery: out.Policy.Recovery, Previous: previous(a.Previous), Traceparent: a.Traceparent,
	}
	if o.call.Callback {
		out.Spec.CallbackURL, out.Spec.Suspend = a.CallbackURL, o.suspend
	}
	if d == runner.DecisionVerify && out.Spec.Previous != nil {
		out.Spec.Number = out.Spec.Previous.Number
	}
	return out
}

// input returns the input to send: the first caller's.
func (o *opening) input(a *OpenAnswer) flight.Blob {
	own := o.call.Submission.Input
	switch {
	case a.InputBase64 != nil:
		return flight.NewBlob(a.InputContentType, a.InputBase64, flight.MaxInput)
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
	outcome, _ := flight.ParseOutcome(a.Outcome) // OutcomeNone while it is open
	p := &flight.Attempt{Number: a.Attempt, Owner: a.Owner, Outcome: outcome, Lost: a.Lost, Error: a.Error}
	if !a.OpenedAt.IsZero() {
		p.OpenedAt = flight.Time(a.OpenedAt.UnixMilli())
	}
	if !a.ClosedAt.IsZero() {
		p.ClosedAt = flight.Time(a.ClosedAt.UnixMilli())
	}
	return p
}

// sessionID returns the id of the client's session; "" without one, and for a session that the server made for one
// open.
func (o *opening) sessionID() string {
	if o.session == nil || o.session.oneShot {
		return ""
	}
	return o.session.id
}

// nonceWindow bounds how long opens are repeated under one nonce. Half of the time in which the effect may start is left
// for the attempt itself.
func (o *opening) nonceWindow() time.Duration {
	if timeout := o.policy.AttemptTimeout; timeout > 0 {
		return min(timeout/2, maxNonceWait)
	}
	return maxNonceWait
}

// waitMS is how long the next open may wait at the server: at least 100 ms, so that a short attempt timeout does not
// make the wait for another caller a busy loop.
func (o *opening) waitMS() int64 {
	wait := min(wire.DefaultWaitMS, max(o.nonceWindow().Milliseconds(), 100))
	if o.waitUntil.IsZero() {
		return wait
	}
	return max(0, min(time.Until(o.waitUntil).Milliseconds(), wait))
}

// waitIsOver reports whether the caller's wait for another caller's attempt is over.
func (o *opening) waitIsOver() bool {
	return !o.waitUntil.IsZero() && time.Until(o.waitUntil) < time.Millisecond
}

// Trust implements runner.Attempt.
func (o *opening) Trust() time.Duration { return o.session.Trust() }

// Context implements runner.Attempt.
func (o *opening) Context() context.Context { return o.session.leaseCtx }

// Watch implements runner.Attempt: renewals list the flights to cancel.
func (o *opening) Watch(_ context.Context, cancel context.CancelCauseFunc) (stop func()) {
	o.update(func() { o.phase, o.cancel = phaseHeld, cancel })
	return func() {}
}

// Verify implements runner.Attempt. The finding is sent under a new nonce, and answered like an open.
func (o *opening) Verify(ctx context.Context, verb flight.Finding, found effect.Answer) (runner.Answer, error) {
	next := &opening{client: o.client, key: o.key, call: o.call, policy: o.policy, job: o.job, waitUntil: o.waitUntil} // the answer does not name the policy
	next.drawNonce()
	if !o.session.oneShot {
		o.session.track(next) // without it the server makes a session for one open
	}
	next.firstSent = clock.Now()
	wait := next.waitMS()
	r := VerificationRequest{
		Verification: o.verification, Result: wire.FindingWord(verb), Session: next.sessionID(), Nonce: next.nonce, NotAfter: next.notAfter,
		Owner: o.client.opts.owner, WaitMS: &wait, Callback: o.call.Callback || o.job, Body: o.bodyOf(found),
	}
	answer, err := o.client.Verify(ctx, o.key, r)
	if o.job {
		if CodeOf(err) == wire.CallbacksOff { // the job is performed without a callback URL, as one that a claim opens
			r.Callback = false
			answer, err = o.client.Verify(ctx, o.key, r)
		}
		o.call.Callback = answer.CallbackURL != ""
	}
	if err == nil {
		o.markGivenUp() // the answer has ended the look-up
	} else {
		o.abandonInBackground(context.WithoutCancel(ctx))
	}
	next.mayHaveArrived = answer.mayHaveArrived
	if errors.As(err, new(*effect.Busy)) && !next.waitIsOver() {
		next.mayHaveArrived = true
		answer, err = next.openUntilAnswered(ctx)
	}
	return next.handleAnswer(ctx, &answer, err)
}

// suspend hands the attempt over to its callback.
func (o *opening) suspend(ctx context.Context, within time.Duration) (until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.client.opts.times.report)
	defer cancel()
	f, err := o.client.Suspend(ctx, o.key, SuspendRequest{FencingToken: o.token, DeadlineMS: max(1, within.Milliseconds())})
	if err != nil {
		return until, err
	}
	o.suspended.Store(f)
	return f.CallbackUntil.Time, nil
}

// bodyOf returns the body of a report. It logs if the receipt cannot hold the whole result, because other callers then do not get it.
func (o *opening) bodyOf(a effect.Answer) wire.Body {
	body := wire.BodyOf(flight.Sanitize(a.ExternalID), a.ContentType, a.Body)
	log := func(what string) {
		o.client.opts.logger.Warn("flightd: the receipt does not hold the whole result: "+what, "key", o.key.String())
	}
	switch {
	case a.ContentType == wire.TypeIncomplete:
		log(string(a.Body))
	case body.Truncated:
		log(fmt.Sprintf("it has %d bytes, and %d are stored; store it elsewhere, and return its id", len(a.Body), flight.MaxReceiptBody))
	case body.ExternalID != a.ExternalID:
		log(fmt.Sprintf("the external id is kept as %q: it is longer than %d bytes, or not valid UTF-8; put it into the result", body.ExternalID, flight.MaxText))
	}
	return body
}

// Report implements runner.Attempt.
func (o *opening) Report(ctx context.Context, end runner.Completion) (runner.Answer, error) {
	c := o.client
	if end.NotStarted {
		return retryAfterAbandon(c.runner.DrainContext, o.abandonInBackground(ctx), end.Err), nil
	}
	if end.Suspended { // the next renewal does not list the attempt
		o.markUnknown()
		if f := o.suspended.Load(); isDecided(f) {
			f.Source = effect.SourceExecuted.String()
			result, err := resultOf(f)
			return runner.Answer{Result: result}, err
		}
		return runner.Answer{}, end.Err
	}
	r := ReportRequest{FencingToken: o.token, Outcome: end.Outcome.String(), Error: flight.Sanitize(end.ErrorText())}
	if o.job {
		r.RetryAfterMS = effect.RequestedPause(end.Err).Milliseconds()
	}
	if end.Outcome.Final() { // a long body is truncated and marked; the attempt does not fail for it
		r.Body = o.bodyOf(end.Answer)
	}
	f, waits, err := c.recordReport(ctx, o.key, r)
	if end.Late {
		switch {
		case err == nil:
			o.replaceReport("")
			o.acknowledge(&r)
		case waits != "" && c.spool.has(waits): // else it was rejected
			o.replaceReport(waits)
		}
		return runner.Answer{}, err
	}
	if waits != "" {
		o.keepUntilReported(waits)
		return runner.Answer{}, err
	}
	o.acknowledge(&r)
	source := effect.SourceExecuted
	if errors.As(err, new(*effect.Fenced)) { // a final decision made without this attempt is the result
		ctx, cancel := context.WithTimeout(ctx, defaultTryTimeout)
		defer cancel()
		var unread error
		if f, unread = c.Flight(ctx, o.key.FlightID()); unread == nil && isDecided(f) {
			source, err = effect.SourceReplayed, nil
		}
	}
	switch {
	case err != nil:
		return runner.Answer{}, err
	case isDecided(f):
		f.Source = source.String()
		result, err := resultOf(f)
		return runner.Answer{Result: result}, err
	case f.Verifying:
		return runner.Answer{Decision: runner.DecisionRetry}, nil
	}
	return runner.Answer{Decision: runner.DecisionUnsettled}, nil
}
