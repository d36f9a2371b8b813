package httpapitest

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/remote"
)

// service is the real service for remote callers, with the faults of the fake.
type service struct{ w *World }

var _ httpapi.Remote = service{}

func (s service) Open(ctx context.Context, req remote.OpenRequest) (remote.OpenAnswer, error) {
	if err := s.w.before(ctx, "Open"); err != nil {
		return remote.OpenAnswer{}, err
	}
	return s.answer(s.w.Remote().Open(ctx, req))
}

func (s service) Verdict(ctx context.Context, req remote.VerdictRequest) (remote.OpenAnswer, error) {
	if err := s.w.before(ctx, "Verdict"); err != nil {
		return remote.OpenAnswer{}, err
	}
	return s.answer(s.w.Remote().Verdict(ctx, req))
}

func (s service) answer(a remote.OpenAnswer, err error) (remote.OpenAnswer, error) {
	if a.Decision == flight.Proceed || a.Decision == flight.Look {
		s.times(&a.Trust, &a.RenewEvery)
	}
	return a, err
}

// overrideTimes sets the times that the faults configure.
func (s service) times(trust, renewEvery *time.Duration) {
	l := s.w.lever()
	if l.Trust > 0 {
		*trust = l.Trust
	}
	if l.RenewEvery > 0 {
		*renewEvery = l.RenewEvery
	}
}

func (s service) Abandon(ctx context.Context, req remote.AbandonRequest) error {
	if err := s.w.before(ctx, "Abandon"); err != nil {
		return err
	}
	return s.w.Remote().Abandon(ctx, req)
}

func (s service) Report(ctx context.Context, req remote.ReportRequest) (*flight.Flight, error) {
	if err := s.w.before(ctx, "Report"); err != nil {
		return nil, err
	}
	return s.w.Remote().Report(ctx, req)
}

func (s service) NewSession(ctx context.Context, ttl time.Duration, owner string) (remote.SessionAnswer, error) {
	if err := s.w.before(ctx, "NewSession"); err != nil {
		return remote.SessionAnswer{}, err
	}
	a, err := s.w.Remote().NewSession(ctx, ttl, owner)
	s.times(&a.Trust, &a.RenewEvery)
	return a, err
}

func (s service) Renew(ctx context.Context, id flight.SessionID, what remote.Renewal) (remote.SessionAnswer, error) {
	if err := s.w.before(ctx, "Renew"); err != nil {
		return remote.SessionAnswer{}, err
	}
	a, err := s.w.Remote().Renew(ctx, id, what)
	s.times(&a.Trust, &a.RenewEvery)
	if renewed := s.w.lever().Renewed; renewed != nil && err == nil {
		renewed(id, what)
	}
	return a, err
}

func (s service) CloseSession(ctx context.Context, id flight.SessionID) error {
	if err := s.w.before(ctx, "CloseSession"); err != nil {
		return err
	}
	return s.w.Remote().CloseSession(ctx, id)
}
