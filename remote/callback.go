package remote

import (
	"context"
	"errors"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/crashpoint"
)

// CallbackPath is what a callback URL has between the public URL and the callback token.
const CallbackPath = "/v1/callbacks/"

// NoCallbacksError is the error of a request that needs a public URL.
func NoCallbacksError() error {
	return &effect.Unavailable{Code: string(wire.CallbacksOff), Cause: errors.New("this server has no public_url, so no provider could call it back")}
}

// Suspend hands an attempt over to its callback: its caller has started the effect and leaves. From then on no session holds the
// attempt; the callback, the caller's own report or the deadline ends it. A repeat is answered with the flight as it is, and so
// is the suspend of an attempt that its callback has reported. *effect.Fenced: the attempt has ended otherwise.
//
// If the process dies before the Suspend is committed, the attempt is still the caller's, who repeats the suspend. If it dies after
// that, the attempt waits, and its claim is left until the callback has reported or the caller's session ends; it blocks nobody.
func (s *Service) Suspend(ctx context.Context, req SuspendRequest) (*flight.Flight, error) {
	t, f, err := s.target(req.ID, req.Key, req.FencingToken)
	if err != nil {
		return f, err
	}
	s.cfg.Crash(crashpoint.BeforeSuspend)
	reply, err := s.propose(ctx, &flight.Suspend{Key: t.key, Generation: t.generation, Token: t.token, Wake: flight.Wake{At: req.Until, Callback: true}})
	if err != nil {
		return nil, answer.Unavailable(t.key, err)
	}
	s.cfg.Crash(crashpoint.AfterSuspend)
	if reply.Decision != flight.DecisionAccepted {
		return reply.Flight, &effect.Fenced{Key: t.key}
	}
	s.releaseEnded(t.key, reply.Flight, func(a *flight.Attempt) bool { return a.Token() == t.token })
	return reply.Flight, nil
}

// Callback reports the outcome of an attempt for its provider. The rules are those of Report. *effect.Unavailable with code
// callback_early: the caller of the attempt may still act, so nothing but a success is taken. *effect.Missing: the ledger does
// not have the flight.
//
// If the process dies before the report is committed or spooled, the provider calls again, or the deadline comes.
func (s *Service) Callback(ctx context.Context, req CallbackRequest) (*flight.Flight, error) {
	f, err := s.cfg.Ledger.Flight(req.Token.ID)
	switch {
	case err != nil:
		return nil, answer.Unavailable(flight.Key{}, err)
	case f == nil:
		return nil, &effect.Missing{ID: req.Token.ID}
	case f.Key.IsZero():
		return f, &effect.Fenced{} // a tombstone, which stores no evidence
	}
	header := s.cfg.Reader.Header()
	report := &flight.Report{Key: f.Key, Generation: req.Token.Generation, Outcome: req.Outcome, ExternalID: req.ExternalID, Body: req.Body, Error: req.Error}
	var early, repeat bool
	if report.Token, early, repeat = req.Token.ReportOf(f, &header, report); early {
		return nil, &effect.Unavailable{Code: string(wire.CallbackEarly), Cause: errors.New("the caller of the attempt has not handed it over yet")}
	}
	after, err := s.report(ctx, report)
	if repeat && errors.As(err, new(*effect.Fenced)) {
		err = nil // the first copy was recorded before the next attempt was opened
	}
	return after, err
}
