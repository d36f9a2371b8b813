package remote

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/lease"
)

// renewalsPerTTL is how many renewals a caller sends per TTL.
const renewalsPerTTL = 3

func drainingError() error { return &effect.Unavailable{Code: "draining", Cause: effect.ErrClosed} }

// respond returns the answer that decide has chosen.
func (c *openCall) respond(a action) (OpenAnswer, error) {
	key := c.req.Key
	switch a {
	case actionAnswerFlight:
		return c.answerFromFlight()
	case actionProceed:
		return c.answerGranted(flight.DecisionProceed)
	case actionVerify:
		return c.answerGranted(flight.DecisionVerify)
	case actionFenced:
		return OpenAnswer{}, &effect.Fenced{Key: key}
	case actionOpenExpired:
		return OpenAnswer{}, &effect.OpenExpired{Key: key, LedgerTime: c.cfg.Reader.Now()}
	case actionTooManyOpen:
		if c.view.reply == flight.DecisionExhausted {
			return OpenAnswer{}, tooManyNoncesError(key)
		}
		if c.limitErr != nil {
			return OpenAnswer{}, c.limitErr
		}
		return OpenAnswer{}, &effect.TooMany{Key: key, Limit: "too many attempts are open without a report", RetryAfter: answer.RetryAfter}
	case actionLeaseLost:
		return OpenAnswer{}, c.etcdError(lease.ErrLost)
	case actionLeaseUnavailable:
		return OpenAnswer{}, c.etcdError(c.etcdErr)
	case actionDraining:
		return OpenAnswer{}, drainingError()
	case actionReconciling:
		return OpenAnswer{}, answer.Reconciling(key)
	}
	return OpenAnswer{}, c.busyError()
}

// answerGranted answers DecisionProceed or DecisionVerify. The caller counts its trust, and the time within which it
// may resend, from when it sent the request, which was before start: so the caller stops in time even after a long
// wait.
func (c *openCall) answerGranted(d flight.Decision) (OpenAnswer, error) {
	served := time.Since(c.start)
	f, trust := c.view.flight, c.holderSession.Trust()
	if trust <= 0 {
		return OpenAnswer{}, &effect.LeaseLost{Key: c.req.Key}
	}
	input, err := c.writer.Input(&c.req.Submission, f)
	if err != nil {
		return OpenAnswer{}, answer.Unavailable(c.req.Key, err)
	}
	o := OpenAnswer{
		Decision: d, Flight: f, Session: c.view.holder().ID, IdempotencyKey: c.writer.IdempotencyKey(f), Input: input,
		Trust: trust + served, RenewEvery: c.holderSession.TTL() / renewalsPerTTL, PolicyDiffers: f.Policy != c.req.Submission.Policy,
	}
	if d == flight.DecisionVerify {
		if o.Verification = c.sealVerification(f); f.Newest() != nil { // else a restore has lost the attempt
			newest := *f.Newest()
			o.Previous = &newest
		}
		return o, nil
	}
	o.FencingToken, o.Previous = c.writer.SealToken(f, f.Newest()), answer.PreviousAttempt(f)
	h := c.cfg.Reader.Header()
	if c.req.Callback && c.req.PublicURL != "" {
		o.CallbackURL = c.req.PublicURL + CallbackPath + f.CallbackToken(&h).Seal(h.Secret)
	}
	if left, bounded := f.ResendLeft(h.Latest(c.cfg.Reader.Now())); bounded {
		left += served
		o.ResendWithin = &left
	}
	if c.cfg.Events.Claimed != nil {
		c.cfg.Events.Claimed(c.req.Key, time.Since(c.start))
	}
	return o, nil
}

// answerFromFlight answers with the state of the flight, which is the same for every caller. InDoubt.Proposed is set if
// the ledger has marked the nonce as used: no copy of the Open opens anything, and the answer is final.
func (c *openCall) answerFromFlight() (OpenAnswer, error) {
	f := c.view.flight
	err := c.writer.Final(f, c.req.Key, &c.req.Submission)
	doubt, failed := new(effect.InDoubt), new(effect.Failed)
	if errors.As(err, &doubt) {
		doubt.Proposed = c.view.nonceIsUsed()
	}
	if err != nil && !errors.As(err, &failed) {
		return OpenAnswer{}, err
	}
	return OpenAnswer{Decision: flight.DecisionReplay, Flight: f, Joined: c.joined, PolicyDiffers: f.Policy != c.req.Submission.Policy}, nil
}

func (c *openCall) busyError() error {
	state := flight.StateRunning // another opener at this node is about to act
	if f := c.view.flight; f != nil && f.State != flight.StateAbsent {
		state = f.State
	}
	return &effect.Busy{Key: c.req.Key, State: state, RetryAfter: answer.RetryAfter, Proposed: c.view.proposed}
}

// etcdError is leaseError for an open. It returns *effect.LeaseLost only for a session that the caller knows, from its
// request or from an earlier answer.
func (c *openCall) etcdError(err error) error {
	if err = c.closedIsLost(err); errors.Is(err, lease.ErrLost) && c.req.Session == "" && c.view.holder() == nil && !c.view.ownVerification() {
		return &effect.Unavailable{Code: "lease_unavailable", Cause: err}
	}
	return c.leaseError(c.req.Key, err)
}

// closedIsLost returns lease.ErrLost for the lease.ErrClosed of a session that its owner has closed. While the service is not
// draining, nothing else is closed.
func (s *Service) closedIsLost(err error) error {
	if errors.Is(err, lease.ErrClosed) && s.drainCtx.Err() == nil {
		return lease.ErrLost
	}
	return err
}

// leaseError maps an error of package lease to an error of package effect.
func (s *Service) leaseError(key flight.Key, err error) error {
	err = s.closedIsLost(err)
	switch {
	case err == nil, errors.As(err, new(*flight.InvalidError)):
		return err
	case errors.Is(err, lease.ErrLost):
		return &effect.LeaseLost{Key: key}
	case errors.Is(err, lease.ErrClosed):
		return drainingError()
	}
	return &effect.Unavailable{Code: "lease_unavailable", Cause: err}
}

func tooManyNoncesError(key flight.Key) error {
	return &effect.TooMany{Key: key, Limit: "too many opens of this key were abandoned within a minute", RetryAfter: flight.MaxOpenLife}
}

// resultLabel returns the result of executor.Events.Called for an open.
func resultLabel(o OpenAnswer, err error) string {
	switch {
	case err != nil:
		return executor.ErrorResult(err)
	case o.Decision == flight.DecisionProceed:
		return executor.ResultProceed
	case o.Decision == flight.DecisionVerify:
		return executor.ResultVerify
	case o.Joined:
		return executor.ResultJoined
	}
	return executor.ResultReplayed
}

// checkOpen validates an open. It creates the nonce if the caller sent none.
func checkOpen(req *OpenRequest) error {
	if req.NoNonce && req.Nonce == (flight.Nonce{}) {
		_, _ = rand.Read(req.Nonce[:]) // crypto/rand never returns an error
	}
	switch {
	case req.Key.IsZero():
		return &flight.InvalidError{Field: "id", Detail: "the open has no key"}
	case req.Nonce == (flight.Nonce{}):
		return &flight.InvalidError{Field: "nonce", Detail: "an open needs a nonce: 16 random bytes, new for each open, the same for each repeat"}
	case req.Submission.Input.Size > flight.MaxInput:
		return &flight.InvalidError{Field: "input", Detail: fmt.Sprintf("it has %d bytes; at most %d are allowed", req.Submission.Input.Size, flight.MaxInput)}
	}
	return checkTTL(req.TTL)
}

func checkTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < lease.MinTTL || ttl > lease.MaxTTL || ttl%time.Second != 0) {
		return &flight.InvalidError{Field: "ttl_ms", Detail: fmt.Sprintf("it is %v; allowed are whole seconds from %v to %v", ttl, lease.MinTTL, lease.MaxTTL)}
	}
	return nil
}
