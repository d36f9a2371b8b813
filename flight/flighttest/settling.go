package flighttest

import (
	"errors"
	"time"

	"github.com/flightd/flightd/flight"
)

// answersVerification reports whether a finding answers the look-up that was assigned last.
func (s *step) answersProbe(c *flight.Verdict) bool {
	p := s.b.Probe
	return p != nil && p.Number == c.Probe && c.Generation == s.b.Generation && p.Nonce != (flight.Nonce{})
}

// checkVerifications: the times of a look-up, and the findings that are accepted.
func (s *step) looks() {
	a, b := s.a, s.b
	s.need(!s.sameGeneration() || a.State == flight.Expired || a.Probes >= b.Probes, "the number of a look-up was assigned twice")
	switch {
	case a.Probe == nil:
	case b.Probe == nil:
		s.need(a.Probe.NotBefore >= s.h.Now.Add(Settle(a.Policy)), "a look-up is due before the settle delay is over")
		s.need(a.Probe.Number > b.Probes, "the number of a look-up was assigned twice")
	default:
		s.need(a.Probe.NotBefore >= b.Probe.NotBefore && a.Probe.Tries >= b.Probe.Tries, "a look-up was moved forward")
		s.need(a.Probe.Number > b.Probe.Number || *a.Probe == *b.Probe || s.lookEnded(), "a look-up changed without a new number")
	}
	s.looking()
	c, ok := s.c.(*flight.Verdict)
	if !ok {
		return
	}
	if !s.answersProbe(c) {
		s.need(!s.r.Changed, "a stale finding changed the flight")
		return
	}
	switch c.Result {
	case flight.Happened:
		s.need(a.State == flight.StateSucceeded, "a finding of success was not stored")
	case flight.DidNotHappen:
		s.need(!a.Tainted() && a.Probe == nil, "a finding of no effect left the flight tainted")
	default:
		s.need(a.State == flight.InDoubt || a.Probe != nil && a.Probe.Tries == b.Probe.Tries+1, "an inconclusive look-up ended the verification")
	}
}

// checkAssignment: a caller is assigned to ask the provider only if no other caller is.
func (s *step) looking() {
	a, b := s.a, s.b
	c, isOpen := s.c.(*flight.Open)
	if s.r.Decision != flight.Look {
		s.need(!isOpen || !s.sameGeneration() || b.Probe == nil || a.Probe == nil || *a.Probe == *b.Probe, "a look-up was reassigned without the answer verify")
		return
	}
	if !isOpen || a.Probe == nil {
		s.need(false, "verify for another command than Open, or without a due look-up")
		return
	}
	s.need(s.r.Probe == a.Probe.Number && a.Probe.Nonce == c.Nonce, "verify for a second caller")
	if !s.r.Changed {
		return
	}
	s.need(s.h.Now >= a.Probe.NotBefore, "verify before the settle delay was over")
	s.need(b.Probe != nil && b.Probe.Until <= s.h.Now, "verify while another caller was assigned")
	s.need(a.Probe.Session == c.Session && a.Probe.Until == s.h.Now.Add(lookTime(a.Policy)), "the assigned session or its time limit was not stored")
}

// verificationReleased reports whether the look-up changed as it must when the session of the assigned caller has ended, or
// that caller gives up: no caller is assigned.
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

// checkPersons: the effects of persons' commands; a decision is accepted only for the version that the person saw.
func (s *step) persons() {
	a, b := s.a, s.b
	if b.State == flight.InDoubt && a.State != flight.InDoubt {
		switch c := s.c.(type) {
		case *flight.Resolve:
			s.resolved(c)
		case *flight.Report, *flight.Abandon:
		default:
			s.need(false, "a flight in doubt was resolved by a command without knowledge of the outcome")
		}
	}
	if b.State == flight.AwaitingApproval && a.State != flight.AwaitingApproval {
		switch c := s.c.(type) {
		case *flight.Decide:
			s.need(b.Version == c.Version && b.Fingerprint == c.Fingerprint && b.Generation == c.Generation, "an approval for another version, input or generation was accepted")
			s.need((c.Verb == flight.Rejected) == (a.State == flight.StateCancelled), "an approval and its effect differ")
		case *flight.Cancel, *flight.Seal:
			s.need(a.State == flight.StateCancelled, "an approval was bypassed")
		default:
			s.need(false, "an approval was bypassed")
		}
	}
	switch c := s.c.(type) {
	case *flight.Resolve:
		s.need(!s.r.Changed || b.State == flight.InDoubt && b.Version == c.Version, "a person resolved another version than the one they saw")
	case *flight.Decide:
		s.need(!s.r.Changed || b.State == flight.AwaitingApproval && b.Version == c.Version, "a person decided another version than the one they saw")
	case *flight.Cancel:
		s.need(!s.r.Changed || a.Cancel != nil && c.Generation == b.Generation && !b.State.Terminal(), "a cancel was not recorded")
		s.need(b.State.Terminal() || b.Cancel != nil || s.r.Decision != flight.Accepted || s.r.Changed, "a cancel was accepted and not recorded")
	}
}

func (s *step) resolved(c *flight.Resolve) {
	a, b := s.a, s.b
	s.need(b.Version == c.Version && b.Generation == c.Generation, "a person resolved another version than the one they saw")
	s.need(a.Settled != nil && a.Settled.Mark.Who == c.Who && a.Settled.Mark.Why == c.Why, "author and reason of a resolution were not stored")
	waits := a.State == flight.Queued || a.State == flight.Scheduled
	switch c.Verb {
	case flight.Happened:
		s.need(a.State == flight.StateSucceeded, "a person's finding of success was not stored")
	case flight.DidNotHappen:
		s.need(!a.Tainted() && (waits || b.Cancel != nil && a.State == flight.StateCancelled), "a person allowed a new attempt, but none may open")
	case flight.Fail:
		s.need(a.State == flight.StateFailed && a.Receipt == nil, "a flight that a person failed did not fail")
	}
}

// checkSagas: the phase changes once, and no step starts in the wrong phase.
func (s *step) sagas() {
	a, b := s.a, s.b
	s.need(!b.Sealed || a.Sealed, "a seal was removed")
	s.need(!b.Sealed || !s.opened(), "a sealed key was opened")
	if s.sameGeneration() && a.Phase != b.Phase && b.State != flight.Absent && a.State != flight.Expired {
		c, ok := s.c.(*flight.Turn)
		at := b.OpenAttempt()
		s.need(ok && b.Phase == flight.Forward && a.Phase == flight.Undoing && at != nil && s.token(at) == c.Token, "I9: a saga's phase changed without its driver, or back")
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
	s.need(s.saga != nil && s.saga.Phase == want && !s.saga.State.Terminal(), "I9: a step started in the wrong phase")
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

// WellFormed checks that the fields of one flight are consistent with its state.
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
	need((f.Wake != nil) == (state == flight.Waiting), "Wake must be set exactly in state waiting")
	need(open == nil || state == flight.Running || state == flight.Waiting && f.Wake.Callback, "I1: an open attempt in a flight that is not running")
	need(state != flight.Running || (open != nil) != (f.Probe != nil), "a running flight must have either an open attempt or a due look-up")
	need(f.Probe == nil || state == flight.Running && f.Tainted(), "a look-up of an untainted flight")
	need(state != flight.InDoubt || f.Tainted(), "in doubt without taint")
	need(!state.Terminal() || f.Doubts == 0, "a flight ended with taint")
	need((f.Receipt != nil) == (state == flight.StateSucceeded) || state == flight.StateFailed || state == flight.Expired, "a receipt in a flight that has not ended")
	need(state != flight.StateSucceeded || f.Receipt != nil && f.Receipt.Outcome == flight.Succeeded, "succeeded without a receipt of success")
	need(state != flight.StateFailed || f.Receipt == nil || f.Receipt.Outcome == flight.Refused, "failed with a receipt of success")
	need((state == flight.Scheduled) == (f.NotBefore > 0) || state == flight.AwaitingApproval, "NotBefore must be set exactly in state scheduled")
	need(!f.Sealed || state == flight.StateCancelled || state == flight.Expired && f.Was == flight.StateCancelled, "a sealed key that is not cancelled")
	need(f.Counted <= f.AttemptCount, "more attempts are counted than opened")
	need(len(f.Attempts) <= flight.MaxAttempts && len(f.Evidence) <= flight.MaxEvidence, "more attempts or evidence than the maximum")
	need(len(f.UsedNonces) <= flight.MaxUsedNonces+flight.MaxAttempts, "more used nonces than the maximum")
	need(f.Probe == nil || (f.Probe.Until > 0) == (f.Probe.Session != flight.Session{}), "the assigned session and its time limit must be set together")
	resendable := f.Policy.Saga || f.Policy.Recovery == flight.Resend
	need(!f.Tainted() || open == nil || resendable, "an attempt is open in a tainted flight without resend")
	need(f.State == flight.Absent || f.State == flight.Expired || f.Sealed || (f.Phase != flight.NoPhase) == f.Policy.Saga, "Phase must be set exactly for sagas")
	need(state.Terminal() == (f.FinishedAt > 0) || state == flight.Expired, "FinishedAt must be set exactly for a flight that ended")
	need(f.Redacted == nil || state.Terminal() && state != flight.Expired && keptBytes(f) == 0, "a redacted flight is in progress or has stored bytes")
	return errors.Join(errs...)
}

// checkAttempts: I1, and the count of tainting attempts.
func attemptsFit(f *flight.Flight, need func(bool, string)) {
	doubts := uint32(0)
	for i := range f.Attempts {
		at := &f.Attempts[i]
		need(i == 0 || at.Token().Compare(f.Attempts[i-1].Token()) > 0 && at.Number > f.Attempts[i-1].Number, "I2: attempts are not in the order of their tokens")
		need(!at.Open() || i == len(f.Attempts)-1, "I1: two open attempts")
		need(!at.Open() || at.Outcome == flight.NoOutcome, "an open attempt has an outcome")
		doubts += one(at.Doubt)
	}
	need(f.Doubts >= doubts && (int(f.AttemptCount) > flight.MaxAttempts || f.Doubts == doubts), "the count of tainting attempts is wrong")
	need(int(f.AttemptCount) >= len(f.Attempts), "more attempts are stored than were opened")
}

// SettleDelay is the effective settle delay of a policy.
func Settle(p flight.Policy) time.Duration {
	if p.SettleDelay > 0 {
		return p.SettleDelay
	}
	return p.AttemptTimeout + flight.PauseBound
}

// verifyTimeout is the time for which one caller is assigned to ask the provider.
func lookTime(p flight.Policy) time.Duration {
	if p.AttemptTimeout > 0 {
		return p.AttemptTimeout + flight.PauseBound
	}
	return 2 * flight.PauseBound
}
