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

// call calls a method of the real service, unless a fault prevents it.
func call[R, A any](ctx context.Context, s service, name string, r R, method func(context.Context, R) (A, error)) (a A, err error) {
	if err := s.fake.beforeCall(ctx, name); err != nil {
		return a, err
	}
	return method(ctx, r)
}

func (s service) Open(ctx context.Context, r remote.OpenRequest) (remote.OpenAnswer, error) {
	return s.overrideAnswer(call(ctx, s, "Open", r, s.fake.Remote().Open))
}

func (s service) Verify(ctx context.Context, r remote.VerificationRequest) (remote.OpenAnswer, error) {
	return s.overrideAnswer(call(ctx, s, "Verify", r, s.fake.Remote().Verify))
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

func (s service) Report(ctx context.Context, r remote.ReportRequest) (*flight.Flight, error) {
	return call(ctx, s, "Report", r, s.fake.Remote().Report)
}

func (s service) Suspend(ctx context.Context, r remote.SuspendRequest) (*flight.Flight, error) {
	return call(ctx, s, "Suspend", r, s.fake.Remote().Suspend)
}

func (s service) Callback(ctx context.Context, r remote.CallbackRequest) (*flight.Flight, error) {
	return call(ctx, s, "Callback", r, s.fake.Remote().Callback)
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
	if err := p.fake.beforeCall(ctx, "Claim"); err != nil {
		return nil, err
	}
	jobs, err := p.Pools.Claim(ctx, req)
	for i := range jobs {
		p.fake.recordEvents(jobs[i].Flight.Key)
	}
	return jobs, err
}
