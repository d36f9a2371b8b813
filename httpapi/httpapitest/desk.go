package httpapitest

import (
	"context"
	"slices"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
)

// Open implements httpapi.Desk.
func (w *World) Open(ctx context.Context, req executor.OpenRequest) (executor.OpenAnswer, error) {
	if err := w.before(ctx, "Open"); err != nil {
		return executor.OpenAnswer{}, err
	}
	return w.open(ctx, req)
}

func (w *World) open(ctx context.Context, req executor.OpenRequest) (executor.OpenAnswer, error) {
	patience, cancel := context.WithTimeout(ctx, req.Wait)
	defer cancel()
	waited := false
	for {
		w.mu.Lock()
		answer, wait, err := w.openLocked(req, waited)
		changed := w.changed
		w.mu.Unlock()
		if wait == 0 {
			return answer, err
		}
		select {
		case <-changed:
			waited = true
		case <-time.After(wait):
		case <-patience.Done():
			if ctx.Err() != nil {
				return answer, context.Cause(ctx)
			}
			return answer, err
		}
	}
}

// openLocked tries once. Where somebody stands in the way, wait is when to look again unasked, and err what to say when
// the caller's wait is over.
func (w *World) openLocked(req executor.OpenRequest, waited bool) (answer executor.OpenAnswer, wait time.Duration, err error) {
	f := w.flights[req.Key.FlightID()]
	if f != nil && f.State != flight.Absent {
		if answer, done, err := w.standingLocked(f, &req, waited); done {
			return answer, 0, err
		}
	}
	if _, held := w.claims[req.Key]; held {
		return answer, time.Hour, busy(req.Key, f)
	}
	id, lost := w.sessionLocked(&req)
	if lost {
		return answer, 0, &effect.LeaseLost{Key: req.Key}
	}
	w.revision++
	claim := flight.Claim{Epoch: 1, Revision: w.revision, Session: id}
	reply := w.applyLocked(&flight.Open{Key: req.Key, Submission: req.Submission, Claim: claim, Nonce: req.Nonce, Owner: req.Owner,
		NotAfter: w.nowLocked().Add(30 * time.Second), StoreEpoch: 1})
	switch reply.Decision {
	case flight.Proceed, flight.Look:
		w.claims[req.Key] = claim
		return w.clearLocked(&req, reply), 0, nil
	}
	w.dismissLocked(id)
	switch reply.Decision {
	case flight.Busy:
		return answer, max(reply.Wait, time.Millisecond), busy(req.Key, reply.Flight)
	case flight.Fenced:
		return answer, 0, &effect.Fenced{Key: req.Key}
	}
	answer, _, err = w.standingLocked(reply.Flight, &req, waited)
	return answer, 0, err
}

func (w *World) dismissLocked(id flight.SessionID) {
	if s := w.sessions[id]; s != nil && s.oneShot {
		delete(w.sessions, id)
	}
}

func busy(key flight.Key, f *flight.Flight) error {
	state := flight.Running
	if f != nil {
		state = f.State
	}
	return &effect.Busy{Key: key, State: state, RetryAfter: time.Second}
}

// sessionLocked is the caller's session, or one for this flight alone.
func (w *World) sessionLocked(req *executor.OpenRequest) (id flight.SessionID, lost bool) {
	if req.Session != "" {
		_, lives := w.sessions[req.Session]
		return req.Session, !lives
	}
	id = flight.SessionID("once-" + newID())
	w.sessions[id] = &session{ttl: orDefault(req.TTL), oneShot: true}
	return id, false
}

func orDefault(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return 15 * time.Second
	}
	return ttl
}

// standingLocked answers what is true of a flight without a claim, where that is enough.
func (w *World) standingLocked(f *flight.Flight, req *executor.OpenRequest, waited bool) (answer executor.OpenAnswer, done bool, err error) {
	if !f.Fingerprint.Matches(req.Submission.Fingerprint) {
		first := w.bodies[bodyKey{f.ID, f.InputFrom, false}]
		return answer, true, &effect.Conflict{Key: req.Key, Fields: flight.DifferingFields(first, req.Submission.Input.Data, nil)}
	}
	if a := f.OpenAttempt(); a != nil && a.Nonce == req.Nonce && (req.Session == "" || req.Session == a.Claim.Session) {
		return w.clearLocked(req, flight.Reply{Decision: flight.Proceed, Flight: f, Token: a.Token()}), true, nil
	}
	switch {
	case f.Looking() && req.Session != "" && f.Probe.Claim.Session == req.Session: // it was sent to look already
		return w.clearLocked(req, flight.Reply{Decision: flight.Look, Flight: f, Probe: f.Probe.Number}), true, nil
	case f.State == flight.Expired:
		e := &effect.Expired{Key: req.Key, Outcome: f.Was}
		if f.Receipt != nil {
			e.Digest = f.Receipt.Body.Digest
		}
		return answer, true, e
	case f.State.Terminal():
		return executor.OpenAnswer{Decision: flight.Replay, Flight: f, Joined: waited, PolicyDiffers: f.Policy != req.Submission.Policy}, true, nil
	case f.State == flight.InDoubt:
		return answer, true, &effect.InDoubt{Key: req.Key, Version: f.Version, Cause: f.Cause}
	case f.State == flight.AwaitingApproval:
		return answer, true, &effect.Unapproved{Key: req.Key}
	case req.Session == "" && slices.ContainsFunc(f.Attempts, func(a flight.Attempt) bool { return a.Nonce == req.Nonce }):
		return answer, true, &effect.Fenced{Key: req.Key} // it has had its attempt, and was only late on its way
	}
	return answer, false, nil
}

func (w *World) clearLocked(req *executor.OpenRequest, reply flight.Reply) executor.OpenAnswer {
	f := reply.Flight
	a := f.Newest()
	answer := executor.OpenAnswer{
		Decision: reply.Decision, Flight: f, Session: a.Claim.Session, IdempotencyKey: w.header.IdempotencyKey(f.Key, f.Generation),
		Input: f.Input, PolicyDiffers: f.Policy != req.Submission.Policy,
	}
	answer.Input.Data = w.bodies[bodyKey{f.ID, f.InputFrom, false}]
	if reply.Decision == flight.Look {
		answer.Session = f.Probe.Claim.Session
		answer.Probe = flight.Token{Number: reply.Probe}.Seal(w.header.Secret, f.ID, f.Generation, "")
		previous := *a
		answer.Previous = &previous
	} else {
		answer.FencingToken = reply.Token.Seal(w.header.Secret, f.ID, f.Generation, a.Claim.Session)
		if n := len(f.Attempts); n > 1 {
			answer.Previous = &f.Attempts[n-2]
		}
	}
	answer.Trust, answer.RenewEvery = w.termsLocked(answer.Session)
	return answer
}

func (w *World) termsLocked(id flight.SessionID) (trust, every time.Duration) {
	ttl := orDefault(0)
	if s := w.sessions[id]; s != nil {
		ttl = s.ttl
	}
	trust, every = ttl*4/5, ttl/3
	if w.levers.Trust > 0 {
		trust = w.levers.Trust
	}
	if w.levers.RenewEvery > 0 {
		every = w.levers.RenewEvery
	}
	return trust, every
}

// Report implements httpapi.Desk.
func (w *World) Report(ctx context.Context, req executor.ReportRequest) (*flight.Flight, error) {
	if err := w.before(ctx, "Report"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	token, generation, err := flight.OpenSeal(req.FencingToken, w.header.Secret, req.ID)
	if err != nil {
		return nil, err
	}
	f := w.flights[req.ID]
	if f == nil {
		return nil, &effect.Missing{ID: req.ID}
	}
	if f.Key.IsZero() {
		return f, &effect.Fenced{}
	}
	reply := w.applyLocked(&flight.Report{Key: f.Key, Generation: generation, Token: token, Outcome: req.Outcome,
		ExternalID: req.ExternalID, Body: req.Body, Error: req.Error})
	if a := f.OpenAttempt(); a != nil && a.Token() == token {
		w.letGoLocked(f.Key)
	}
	if reply.Decision != flight.Accepted {
		return reply.Flight, &effect.Fenced{Key: f.Key}
	}
	return reply.Flight, nil
}

func (w *World) letGoLocked(key flight.Key) {
	claim := w.claims[key]
	delete(w.claims, key)
	w.dismissLocked(claim.Session)
	w.wakeLocked()
}

// Verdict implements httpapi.Desk.
func (w *World) Verdict(ctx context.Context, req executor.VerdictRequest) (executor.OpenAnswer, error) {
	if err := w.before(ctx, "Verdict"); err != nil {
		return executor.OpenAnswer{}, err
	}
	w.mu.Lock()
	token, generation, err := flight.OpenSeal(req.Probe, w.header.Secret, req.ID)
	if err != nil {
		w.mu.Unlock()
		return executor.OpenAnswer{}, &flight.InvalidError{Field: "probe", Detail: "this is not the probe of a look-up of this flight"}
	}
	f := w.flights[req.ID]
	reply := w.applyLocked(&flight.Verdict{Key: f.Key, Generation: generation, Probe: token.Number, Result: req.Result,
		ExternalID: req.ExternalID, Body: req.Body})
	w.letGoLocked(f.Key)
	w.mu.Unlock()
	if reply.Decision == flight.Fenced || reply.Decision == flight.Missing {
		return executor.OpenAnswer{}, &effect.Fenced{Key: f.Key}
	}
	open := req.Open
	open.Key, open.Submission = f.Key, flight.Submission{Fingerprint: f.Fingerprint, Input: f.Input, Policy: f.Policy}
	return w.open(ctx, open)
}

// NewSession implements httpapi.Sessions.
func (w *World) NewSession(ctx context.Context, ttl time.Duration, owner string) (executor.SessionAnswer, error) {
	if err := w.before(ctx, "NewSession"); err != nil {
		return executor.SessionAnswer{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id := flight.SessionID("kept-" + newID())
	w.sessions[id] = &session{ttl: orDefault(ttl)}
	trust, every := w.termsLocked(id)
	return executor.SessionAnswer{Session: id, Trust: trust, RenewEvery: every, Version: w.header.Version}, nil
}

// Renew implements httpapi.Sessions.
func (w *World) Renew(ctx context.Context, id flight.SessionID, what executor.Renewal) (executor.SessionAnswer, error) {
	if err := w.before(ctx, "Renew"); err != nil {
		return executor.SessionAnswer{}, err
	}
	w.mu.Lock()
	if w.sessions[id] == nil {
		w.mu.Unlock()
		return executor.SessionAnswer{}, &effect.LeaseLost{}
	}
	answer := executor.SessionAnswer{Session: id, Version: w.header.Version}
	answer.Trust, answer.RenewEvery = w.termsLocked(id)
	for key, claim := range w.claims {
		f := w.flights[key.FlightID()]
		a := f.OpenAttempt()
		if claim.Session != id || a == nil {
			continue
		}
		if f.Cancel != nil {
			answer.CancelRequested = append(answer.CancelRequested, f.ID)
		}
		if w.sessions[id].misses(f, claim, what) {
			w.applyLocked(&flight.Abandon{Key: key, Generation: f.Generation, Token: a.Token(), Error: "its caller does not hold it", ByCaller: true})
			w.letGoLocked(key)
		}
	}
	renewed := w.levers.Renewed
	w.mu.Unlock()
	if renewed != nil {
		renewed(id, what.Nonces)
	}
	return answer, nil
}

// CloseSession implements httpapi.Sessions.
func (w *World) CloseSession(ctx context.Context, id flight.SessionID) error {
	if err := w.before(ctx, "CloseSession"); err != nil {
		return err
	}
	w.Expire(id)
	return nil
}
