package flighttest

import (
	"errors"
	"time"

	"github.com/flightd/flightd/flight"
)

// answersProbe reports whether a verdict answers the look-up that was sent out last.
func (s *step) answersProbe(c *flight.Verdict) bool {
	p := s.b.Probe
	return p != nil && p.Number == c.Probe && c.Generation == s.b.Generation && p.Nonce != (flight.Nonce{})
}

// looks: when the provider is asked, and whose answer counts.
func (s *step) looks() {
	a, b := s.a, s.b
	s.need(!s.sameGeneration() || a.State == flight.Expired || a.Probes >= b.Probes, "a probe's number was given twice")
	switch {
	case a.Probe == nil:
	case b.Probe == nil:
		s.need(a.Probe.NotBefore >= s.h.Now.Add(Settle(a.Policy)), "a look-up is due before the settle delay is over")
		s.need(a.Probe.Number > b.Probes, "a probe's number was given twice")
	default:
		s.need(a.Probe.NotBefore >= b.Probe.NotBefore && a.Probe.Tries >= b.Probe.Tries, "a look-up was moved forward")
		s.need(a.Probe.Number > b.Probe.Number || *a.Probe == *b.Probe || s.lookEnded(), "a probe changed without a number of its own")
	}
	s.looking()
	c, ok := s.c.(*flight.Verdict)
	if !ok {
		return
	}
	if !s.answersProbe(c) {
		s.need(!s.r.Changed, "a stale verdict changed the flight")
		return
	}
	switch c.Result {
	case flight.Happened:
		s.need(a.State == flight.StateSucceeded, "what was found was not stored")
	case flight.DidNotHappen:
		s.need(!a.Tainted() && a.Probe == nil, "what was looked up is still in doubt")
	default:
		s.need(a.State == flight.InDoubt || a.Probe != nil && a.Probe.Tries == b.Probe.Tries+1, "a look-up without a result ends the doubt")
	}
}

// looking: who is sent to ask the provider, and that nobody else is while a caller does.
func (s *step) looking() {
	a, b := s.a, s.b
	c, isOpen := s.c.(*flight.Open)
	if s.r.Decision != flight.Look {
		s.need(!isOpen || !s.sameGeneration() || b.Probe == nil || a.Probe == nil || *a.Probe == *b.Probe, "a look-up changed hands without a word")
		return
	}
	if !isOpen || a.Probe == nil {
		s.need(false, "Look was said to something else than an Open, or without a probe")
		return
	}
	s.need(s.r.Probe == a.Probe.Number && a.Probe.Nonce == c.Nonce, "Look was said to a second asker")
	if !s.r.Changed {
		return
	}
	s.need(s.h.Now >= a.Probe.NotBefore, "Look was said too early")
	s.need(b.Probe != nil && b.Probe.Until <= s.h.Now, "Look was said while somebody else was asking")
	s.need(a.Probe.Session == c.Session && a.Probe.Until == s.h.Now.Add(lookTime(a.Policy)), "it is not noted who asks, and until when")
}

// lookEnded reports whether the probe changed as it does where the session of the caller that asks has ended, or that
// caller gives up: nobody is asking any more.
func (s *step) lookEnded() bool {
	a, b := *s.a.Probe, *s.b.Probe
	switch c := s.c.(type) {
	case *flight.Ended:
		if c.Session.ID != b.Session.ID {
			return false
		}
	case *flight.Abandon:
		if c.Nonce != b.Nonce || c.StoreEpoch != s.h.StoreEpoch {
			return false
		}
	default:
		return false
	}
	b.Session, b.Until = flight.Session{}, 0
	return a == b
}

// persons: what people may do, and only to what they saw.
func (s *step) persons() {
	a, b := s.a, s.b
	if b.State == flight.InDoubt && a.State != flight.InDoubt {
		switch c := s.c.(type) {
		case *flight.Resolve:
			s.resolved(c)
		case *flight.Report, *flight.Abandon:
		default:
			s.need(false, "a doubt was settled by nobody")
		}
	}
	if b.State == flight.AwaitingApproval && a.State != flight.AwaitingApproval {
		switch c := s.c.(type) {
		case *flight.Decide:
			s.need(b.Version == c.Version && b.Fingerprint == c.Fingerprint && b.Generation == c.Generation, "an approval of something else counted")
			s.need((c.Verb == flight.Rejected) == (a.State == flight.StateCancelled), "an approval did what it did not say")
		case *flight.Cancel, *flight.Seal:
			s.need(a.State == flight.StateCancelled, "an approval was passed by")
		default:
			s.need(false, "an approval was passed by")
		}
	}
	switch c := s.c.(type) {
	case *flight.Resolve:
		s.need(!s.r.Changed || b.State == flight.InDoubt && b.Version == c.Version, "a person settled what they had not seen")
	case *flight.Decide:
		s.need(!s.r.Changed || b.State == flight.AwaitingApproval && b.Version == c.Version, "a person decided what they had not seen")
	case *flight.Cancel:
		s.need(!s.r.Changed || a.Cancel != nil && c.Generation == b.Generation && !b.State.Terminal(), "a cancel without a mark")
		s.need(b.State.Terminal() || b.Cancel != nil || s.r.Decision != flight.Accepted || s.r.Changed, "a cancel was accepted and forgotten")
	}
}

func (s *step) resolved(c *flight.Resolve) {
	a, b := s.a, s.b
	s.need(b.Version == c.Version && b.Generation == c.Generation, "a person settled what they had not seen")
	s.need(a.Settled != nil && a.Settled.Mark.Who == c.Who && a.Settled.Mark.Why == c.Why, "who settled it, and why, was not kept")
	waits := a.State == flight.Queued || a.State == flight.Scheduled
	switch c.Verb {
	case flight.Happened:
		s.need(a.State == flight.StateSucceeded, "what a person saw happen was not stored")
	case flight.DidNotHappen:
		s.need(!a.Tainted() && (waits || b.Cancel != nil && a.State == flight.StateCancelled), "a person allowed a new attempt, and none may open")
	case flight.Fail:
		s.need(a.State == flight.StateFailed && a.Receipt == nil, "what a person failed did not fail")
	}
}

// sagas: the phase flips once, and nothing starts in the wrong one.
func (s *step) sagas() {
	a, b := s.a, s.b
	s.need(!b.Sealed || a.Sealed, "a seal was broken")
	s.need(!b.Sealed || !s.opened(), "a sealed key was opened")
	if s.sameGeneration() && a.Phase != b.Phase && b.State != flight.Absent && a.State != flight.Expired {
		c, ok := s.c.(*flight.Turn)
		at := b.OpenAttempt()
		s.need(ok && b.Phase == flight.Forward && a.Phase == flight.Undoing && at != nil && s.token(at) == c.Token, "I9: a saga turned by itself, or back")
	}
	key := s.c.Target()
	began := b.State == flight.Absent && a.State != flight.Absent && !a.Sealed
	if !key.IsStep() || !began && !s.opened() {
		return
	}
	want := flight.Forward
	if key.IsUndo() {
		want = flight.Undoing
	}
	s.need(s.saga != nil && s.saga.Phase == want && !s.saga.State.Terminal(), "I9: a step began in the wrong phase")
	var named flight.Token
	switch c := s.c.(type) {
	case *flight.Open:
		named = c.Submission.Driver
	case *flight.Submit:
		named = c.Submission.Driver
	}
	if s.saga != nil && (began || !named.IsZero()) {
		driver := s.saga.OpenAttempt()
		s.need(driver != nil && s.token(driver) == named, "I9: a stale driver started a step")
	}
}

// WellFormed judges one flight by itself: that its parts fit its state.
func WellFormed(f *flight.Flight) error {
	var errs []error
	need := func(ok bool, complaint string) {
		if !ok {
			errs = append(errs, errors.New(complaint))
		}
	}
	open, n, state := f.OpenAttempt(), f.Newest(), f.State
	attemptsFit(f, need)
	need(n == nil || f.Fence.Compare(n.Token()) >= 0, "I2: the fence is below the newest attempt")
	need((f.Wake != nil) == (state == flight.Waiting), "a wake belongs to waiting")
	need(open == nil || state == flight.Running || state == flight.Waiting && f.Wake.Callback, "I1: an open attempt in a flight that does not fly")
	need(state != flight.Running || (open != nil) != (f.Probe != nil), "running means an attempt, or a look-up, and not both")
	need(f.Probe == nil || state == flight.Running && f.Tainted(), "a look-up without a doubt")
	need(state != flight.InDoubt || f.Tainted(), "in doubt without a doubt")
	need(!state.Terminal() || f.Doubts == 0, "a flight ended in doubt")
	need((f.Receipt != nil) == (state == flight.StateSucceeded) || state == flight.StateFailed || state == flight.Expired, "a receipt belongs to a flight that ended")
	need(state != flight.StateSucceeded || f.Receipt != nil && f.Receipt.Outcome == flight.Succeeded, "succeeded without such a receipt")
	need(state != flight.StateFailed || f.Receipt == nil || f.Receipt.Outcome == flight.Refused, "failed with a success")
	need((state == flight.Scheduled) == (f.NotBefore > 0) || state == flight.AwaitingApproval, "a time belongs to scheduled")
	need(!f.Sealed || state == flight.StateCancelled || state == flight.Expired && f.Was == flight.StateCancelled, "a sealed key that is not cancelled")
	need(f.Counted <= f.AttemptCount, "more attempts were counted than made")
	need(len(f.Attempts) <= flight.MaxAttempts && len(f.Evidence) <= flight.MaxEvidence, "a bound was passed")
	need(len(f.UsedNonces) <= flight.MaxUsedNonces+flight.MaxAttempts, "more nonces are remembered than there may be")
	need(f.Probe == nil || (f.Probe.Until > 0) == (f.Probe.Session != flight.Session{}), "who asks the provider, and until when, belong together")
	resendable := f.Policy.Saga || f.Policy.Recovery == flight.Resend
	need(!f.Tainted() || open == nil || resendable, "an attempt flies over a doubt that a resend may not end")
	need(f.State == flight.Absent || f.State == flight.Expired || f.Sealed || (f.Phase != flight.NoPhase) == f.Policy.Saga, "a phase belongs to sagas")
	need(state.Terminal() == (f.FinishedAt > 0) || state == flight.Expired, "the time of its end belongs to a flight that ended")
	need(f.Redacted == nil || state.Terminal() && state != flight.Expired && keptBytes(f) == 0, "a redacted flight that lives, or keeps bytes")
	return errors.Join(errs...)
}

// attemptsFit: I1, and that doubts add up.
func attemptsFit(f *flight.Flight, need func(bool, string)) {
	doubts := uint32(0)
	for i := range f.Attempts {
		at := &f.Attempts[i]
		need(i == 0 || at.Token().Compare(f.Attempts[i-1].Token()) > 0 && at.Number > f.Attempts[i-1].Number, "I2: attempts are not in the order of their tokens")
		need(!at.Open() || i == len(f.Attempts)-1, "I1: two open attempts")
		need(!at.Open() || at.Outcome == flight.NoOutcome, "an open attempt has no outcome yet")
		doubts += one(at.Doubt)
	}
	need(f.Doubts >= doubts && (int(f.AttemptCount) > flight.MaxAttempts || f.Doubts == doubts), "the doubts do not add up")
	need(int(f.AttemptCount) >= len(f.Attempts), "more attempts are kept than were made")
}

// Settle is the settle delay that a policy means.
func Settle(p flight.Policy) time.Duration {
	if p.SettleDelay > 0 {
		return p.SettleDelay
	}
	return p.AttemptTimeout + flight.PauseBound
}

// lookTime is how long nobody else is sent to ask the provider.
func lookTime(p flight.Policy) time.Duration {
	if p.AttemptTimeout > 0 {
		return p.AttemptTimeout + flight.PauseBound
	}
	return 2 * flight.PauseBound
}
