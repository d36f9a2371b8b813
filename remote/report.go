package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/crashpoint"
)

// Report reports the outcome of an attempt. It needs only the token: the ledger decides, without a clock and without a
// lease. *effect.Unavailable with code report_pending: the report is stored and will be committed, and the effect must
// not be repeated. *effect.Fenced: the attempt has ended, and the report is stored as evidence, or changes
// nothing. *effect.Missing: the request has no key, and this node does not know the flight.
//
// If the process dies before the report is committed or spooled, the caller repeats the report. If it dies after that,
// a repeat changes nothing.
func (s *Service) Report(ctx context.Context, req ReportRequest) (*flight.Flight, error) {
	if req.Outcome < flight.OutcomeSucceeded || req.Outcome > flight.OutcomeUnknown {
		return nil, &flight.InvalidError{Field: "outcome", Detail: "unknown outcome; allowed: succeeded, refused, not_done, unknown"}
	}
	t, f, err := s.target(req.ID, req.Key, req.FencingToken)
	if err != nil {
		return f, err
	}
	return s.report(ctx, &flight.Report{Key: t.key, Generation: t.generation, Token: t.token, Outcome: req.Outcome,
		ExternalID: req.ExternalID, Body: req.Body, Error: req.Error, RetryAfter: req.RetryAfter})
}

// target is the attempt that a fencing token names.
type target struct {
	key        flight.Key
	generation uint32
	token      flight.Token
}

// target reads a fencing token, and the key of its flight if the request has none. With *effect.Fenced it returns a tombstone.
func (s *Service) target(id flight.ID, key flight.Key, fencingToken string) (t target, tombstone *flight.Flight, err error) {
	t.key = key
	switch t.token, t.generation, err = flight.Unseal(fencingToken, s.cfg.Reader.Header().Secret, id); {
	case err != nil:
		return t, nil, err
	case t.token.Number&verificationBit != 0:
		return t, nil, &flight.InvalidError{Field: "fencing_token", Detail: "this is a verification token, not the fencing token of an attempt; send it to /verification"}
	}
	if key.IsZero() {
		f, err := s.cfg.Ledger.Flight(id)
		switch {
		case err != nil:
			return t, nil, answer.Unavailable(flight.Key{}, err)
		case f == nil:
			return t, nil, &effect.Missing{ID: id}
		case f.Key.IsZero():
			return t, f, &effect.Fenced{} // a tombstone, which stores no evidence
		}
		t.key = f.Key
	}
	if t.key.FlightID() != id {
		return t, nil, &flight.InvalidError{Field: "key", Detail: "the key is not the key of the flight"}
	}
	return t, nil, nil
}

// report commits a report, of the caller of an attempt or of its callback.
func (s *Service) report(ctx context.Context, r *flight.Report) (*flight.Flight, error) {
	s.cfg.Crash(crashpoint.BeforeReport)
	// Point of no return: once committed or spooled, the outcome survives this process. The caller stores it until it
	// is answered.
	reply, err := s.cfg.Ledger.Report(ctx, r)
	switch {
	case errors.Is(err, effect.ErrPending), errors.Is(err, effect.ErrAmbiguous):
		return nil, &effect.Unavailable{Code: "report_pending", Cause: err}
	case err != nil:
		return nil, answer.Unavailable(r.Key, err)
	}
	s.cfg.Crash(crashpoint.AfterReport)
	s.cfg.Events.PublishReport(&reply, r.Token.Number, r.Outcome)
	s.releaseEnded(r.Key, reply.Flight, func(a *flight.Attempt) bool { return a.Token() == r.Token })
	if reply.Decision != flight.DecisionAccepted || r.IsBehind(reply.Flight) {
		return reply.Flight, &effect.Fenced{Key: r.Key}
	}
	return reply.Flight, nil
}

// Abandon records the statement of the caller that created the nonce: nothing was sent under it, and nothing ever will
// be. After that the nonce opens nothing. *effect.OpenExpired: not_after is further ahead than any valid open allows.
// *effect.Unavailable: the abandon may or may not be recorded; abandon again.
func (s *Service) Abandon(ctx context.Context, req AbandonRequest) error {
	switch {
	case req.Key.IsZero():
		return &flight.InvalidError{Field: "id", Detail: "the abandon has no key"}
	case req.Nonce == (flight.Nonce{}):
		return &flight.InvalidError{Field: "nonce", Detail: "an abandon needs the nonce of its open"}
	case req.NotAfter <= 0:
		return &flight.InvalidError{Field: "not_after", Detail: "an abandon needs the not_after of its open: the nonce is stored until then"}
	}
	return s.abandon(s.requestDeadline.Context(), &req)
}

func (s *Service) abandon(ctx context.Context, c *AbandonRequest) error {
	before, _ := s.cfg.Ledger.Flight(c.Key.FlightID())
	reply, err := s.propose(ctx, &flight.Abandon{Key: c.Key, Nonce: c.Nonce, NotAfter: c.NotAfter,
		StoreEpoch: s.cfg.Reader.Header().StoreEpoch, Error: c.Error})
	switch {
	case err != nil:
		return answer.Unavailable(c.Key, err)
	case reply.Decision == flight.DecisionOpenExpired:
		return &effect.OpenExpired{Key: c.Key, LedgerTime: s.cfg.Reader.Now()}
	case reply.Decision == flight.DecisionExhausted:
		return tooManyNoncesError(c.Key)
	case reply.Decision != flight.DecisionAccepted && reply.Flight.OpenAttempt() != nil && reply.Flight.Newest().Nonce == c.Nonce:
		return &effect.Fenced{Key: c.Key} // the attempt waits for its callback: its effect has started
	case reply.Decision != flight.DecisionAccepted:
		return &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("%s: the ledger was restored, or this node lags behind", c.Key)}
	}
	s.releaseEnded(c.Key, reply.Flight, func(a *flight.Attempt) bool { return a.Nonce == c.Nonce })
	if before.Verifying() && before.Verification.Nonce == c.Nonce && before.Verification.Session.OneShot {
		s.runInBackground(func(ctx context.Context) { s.withdrawSession(ctx, c.Key, before.Verification.Session.ID) })
	}
	return nil
}
