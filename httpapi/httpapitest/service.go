package httpapitest

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/remote"
)

// service is the real service for remote callers, with the faults of the fake.
type service struct{ fake *Fake }

var _ httpapi.Remote = service{}

func (s service) Open(ctx context.Context, req remote.OpenRequest) (remote.OpenAnswer, error) {
	if err := s.fake.beforeCall(ctx, "Open"); err != nil {
		return remote.OpenAnswer{}, err
	}
	return s.overrideAnswer(s.fake.Remote().Open(ctx, req))
}

func (s service) Verify(ctx context.Context, req remote.VerificationRequest) (remote.OpenAnswer, error) {
	if err := s.fake.beforeCall(ctx, "Verify"); err != nil {
		return remote.OpenAnswer{}, err
	}
	return s.overrideAnswer(s.fake.Remote().Verify(ctx, req))
}

func (s service) overrideAnswer(a remote.OpenAnswer, err error) (remote.OpenAnswer, error) {
	if a.Decision == flight.DecisionProceed || a.Decision == flight.DecisionVerify {
		s.overrideTimes(&a.Trust, &a.RenewEvery)
	}
	return a, err
}

// overrideTimes sets the times that the faults configure.
func (s service) overrideTimes(trust, renewEvery *time.Duration) {
	l := s.fake.currentFaults()
	if l.Trust > 0 {
		*trust = l.Trust
	}
	if l.RenewEvery > 0 {
		*renewEvery = l.RenewEvery
	}
}

func (s service) Abandon(ctx context.Context, req remote.AbandonRequest) error {
	if err := s.fake.beforeCall(ctx, "Abandon"); err != nil {
		return err
	}
	return s.fake.Remote().Abandon(ctx, req)
}

func (s service) Report(ctx context.Context, req remote.ReportRequest) (*flight.Flight, error) {
	if err := s.fake.beforeCall(ctx, "Report"); err != nil {
		return nil, err
	}
	return s.fake.Remote().Report(ctx, req)
}

func (s service) Suspend(ctx context.Context, req remote.SuspendRequest) (*flight.Flight, error) {
	if err := s.fake.beforeCall(ctx, "Suspend"); err != nil {
		return nil, err
	}
	return s.fake.Remote().Suspend(ctx, req)
}

func (s service) Callback(ctx context.Context, req remote.CallbackRequest) (*flight.Flight, error) {
	if err := s.fake.beforeCall(ctx, "Callback"); err != nil {
		return nil, err
	}
	return s.fake.Remote().Callback(ctx, req)
}

func (s service) NewSession(ctx context.Context, ttl time.Duration, owner string) (remote.SessionAnswer, error) {
	if err := s.fake.beforeCall(ctx, "NewSession"); err != nil {
		return remote.SessionAnswer{}, err
	}
	a, err := s.fake.Remote().NewSession(ctx, ttl, owner)
	s.overrideTimes(&a.Trust, &a.RenewEvery)
	return a, err
}

func (s service) Renew(ctx context.Context, id flight.SessionID, what remote.RenewRequest) (remote.SessionAnswer, error) {
	if err := s.fake.beforeCall(ctx, "Renew"); err != nil {
		return remote.SessionAnswer{}, err
	}
	a, err := s.fake.Remote().Renew(ctx, id, what)
	s.overrideTimes(&a.Trust, &a.RenewEvery)
	if renewed := s.fake.currentFaults().OnRenewed; renewed != nil && err == nil {
		renewed(id, what)
	}
	return a, err
}

func (s service) CloseSession(ctx context.Context, id flight.SessionID) error {
	if err := s.fake.beforeCall(ctx, "CloseSession"); err != nil {
		return err
	}
	return s.fake.Remote().CloseSession(ctx, id)
}

// pools records the events of jobs, as recorder does for other commands.
type pools struct {
	*remote.Pools
	fake *Fake
}

func (p pools) Submit(ctx context.Context, requests []remote.SubmitRequest) []remote.SubmitAnswer {
	for i := range requests {
		p.fake.addKey(requests[i].Key)
	}
	answers := p.Pools.Submit(ctx, requests)
	for i := range requests {
		p.fake.recordEvents(requests[i].Key)
	}
	return answers
}

func (p pools) Claim(ctx context.Context, req remote.ClaimRequest) ([]remote.Job, error) {
	jobs, err := p.Pools.Claim(ctx, req)
	for i := range jobs {
		p.fake.recordEvents(jobs[i].Flight.Key)
	}
	return jobs, err
}
