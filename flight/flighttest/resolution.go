package flighttest

import (
	"errors"
	"time"

	"github.com/flightd/flightd/flight"
)

// answersVerification reports whether a finding answers the look-up that was assigned last.
func (s *step) answersVerification(c *flight.ReportFinding) bool {
	p := s.b.Verification
	return p != nil && p.Number == c.Verification && c.Generation == s.b.Generation && p.Nonce != (flight.Nonce{})
}

// checkVerifications: the times of a look-up, and the findings that are accepted.
func (s *step) checkVerifications() {
	a, b := s.a, s.b
	s.require(!s.sameGeneration() || a.State == flight.StateExpired || a.Verifications >= b.Verifications, "the number of a look-up was assigned twice")
	switch {
	case a.Verification == nil:
	case b.Verification == nil:
		s.require(a.Verification.NotBefore >= s.h.Now.Add(SettleDelay(a.Policy)), "a look-up is due before the settle delay is over")
		s.require(a.Verification.Number > b.Verifications, "the number of a look-up was assigned twice")
	default:
		s.require(a.Verification.NotBefore >= b.Verification.NotBefore && a.Verification.Tries >= b.Verification.Tries, "a look-up was moved forward")
		s.require(a.Verification.Number > b.Verification.Number || *a.Verification == *b.Verification || s.verificationReleased(), "a look-up changed without a new number")
	}
	s.checkAssignment()
	c, ok := s.c.(*flight.ReportFinding)
	if !ok {
		return
	}
	if !s.answersVerification(c) {
		s.require(!s.r.Changed, "a stale finding changed the flight")
		return
	}
	switch c.Finding {
	case flight.FindingHappened:
		s.require(a.State == flight.StateSucceeded, "a finding of success was not stored")
	case flight.FindingNotHappened:
		s.require(!a.Tainted() && a.Verification == nil, "a finding of no effect left the flight tainted")
	default:
		s.require(a.State == flight.StateInDoubt || a.Verification != nil && a.Verification.Tries == b.Verification.Tries+1, "an inconclusive look-up ended the verification")
	}
}

// checkAssignment: a caller is assigned to ask the provider only if no other caller is.
func (s *step) checkAssignment() {
	a, b := s.a, s.b
	c, isOpen := s.c.(*flight.Open)
	if s.r.Decision != flight.DecisionVerify {
		s.require(!isOpen || !s.sameGeneration() || b.Verification == nil || a.Verification == nil || *a.Verification == *b.Verification, "a look-up was reassigned without the answer verify")
		return
	}
	if !isOpen || a.Verification == nil {
		s.require(false, "verify for another command than Open, or without a due look-up")
		return
	}
	s.require(s.r.Verification == a.Verification.Number && a.Verification.Nonce == c.Nonce, "verify for a second caller")
	if !s.r.Changed {
		return
	}
	s.require(s.h.Now >= s.holderTime(a.Verification.NotBefore), "verify before the settle delay was over")
	s.require(b.Verification != nil && s.holderTime(b.Verification.Until) <= s.h.Now, "verify while another caller was assigned")
	s.require(a.Verification.Session == c.Session && a.Verification.Until == s.h.Now.Add(VerifyTimeout(a.Policy)), "the assigned session or its time limit was not stored")
}

// verificationReleased reports whether the look-up changed as it must when the session of the assigned caller has ended, or
// that caller gives up: no caller is assigned.
func (s *step) verificationReleased() bool {
	a, b := *s.a.Verification, *s.b.Verification
	switch c := s.c.(type) {
	case *flight.EndSession:
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
func (s *step) checkPersons() {
	a, b := s.a, s.b
	if b.State == flight.StateInDoubt && a.State != flight.StateInDoubt {
		switch c := s.c.(type) {
		case *flight.Resolve:
			s.checkResolve(c)
		case *flight.Report, *flight.Abandon:
		case *flight.Import:
			s.require(s.importsLost(), "an import resolved a flight in doubt")
		default:
			s.require(s.endedUnknown(), "a flight in doubt was resolved by a command without knowledge of the outcome")
		}
	}
	if b.State == flight.StateAwaitingApproval && a.State != flight.StateAwaitingApproval {
		switch c := s.c.(type) {
		case *flight.DecideApproval:
			s.require(b.Version == c.Version && b.Fingerprint == c.Fingerprint && b.Generation == c.Generation, "an approval for another version, input or generation was accepted")
			s.require((c.Finding == flight.FindingRejected) == (a.State == flight.StateCancelled), "an approval and its effect differ")
			s.require(c.Finding != flight.FindingApproved || b.ApprovalDeadline() == 0 || s.h.Now < b.ApprovalDeadline(), "an approval counted after its deadline")
		case *flight.WakeUp:
			s.require(b.ApprovalDeadline() > 0 && s.h.Now >= b.ApprovalDeadline() && a.State == flight.StateCancelled, "an approval expired before its deadline, or not as a rejection")
			s.require(a.Resolution != nil && a.Resolution.Finding == flight.FindingRejected && a.Resolution.Version == b.Version, "an expired approval is not shown as rejected")
		case *flight.Cancel, *flight.SealKey:
			s.require(a.State == flight.StateCancelled, "an approval was bypassed")
		default:
			_, lost := s.lostReport()
			s.require(lost || s.importsLost(), "an approval was bypassed")
		}
	}
	switch c := s.c.(type) {
	case *flight.Resolve:
		s.require(!s.r.Changed || b.State == flight.StateInDoubt && b.Version == c.Version, "a person resolved another version than the one they saw")
	case *flight.DecideApproval:
		s.require(!s.r.Changed || b.State == flight.StateAwaitingApproval && b.Version == c.Version, "a person decided another version than the one they saw")
	case *flight.Cancel:
		s.require(!s.r.Changed || (a.Cancel != nil || s.endedUnknown()) && c.Generation == b.Generation && !b.State.Terminal(), "a cancel was not recorded")
		s.require(b.State.Terminal() || b.Cancel != nil || s.r.Decision != flight.DecisionAccepted || s.r.Changed, "a cancel was accepted and not recorded")
	}
}

func (s *step) checkResolve(c *flight.Resolve) {
	a, b := s.a, s.b
	s.require(b.Version == c.Version && b.Generation == c.Generation, "a person resolved another version than the one they saw")
	s.require(a.Resolution != nil && a.Resolution.By.Actor == c.Actor && a.Resolution.By.Reason == c.Reason, "author and reason of a resolution were not stored")
	waits := a.State == flight.StateReady || a.State == flight.StateScheduled
	switch c.Finding {
	case flight.FindingHappened:
		s.require(a.State == flight.StateSucceeded, "a person's finding of success was not stored")
	case flight.FindingNotHappened:
		unknown := a.State == flight.StateAbsent && b.InputGeneration == 0 // a restored ledger knew nothing but a report
		s.require(!a.Tainted() && (waits || unknown || (b.Cancel != nil || s.stopped()) && a.State == flight.StateCancelled), "a person allowed a new attempt, but none may open")
	case flight.FindingFail:
		s.require(a.State == flight.StateFailed && a.Receipt == nil, "a flight that a person failed did not fail")
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
	checkAttempts(f, need)
	need(n == nil || f.Fence.Compare(n.Token()) >= 0, "I2: the fence is below the newest attempt")
	need((f.Wake != nil) == (state == flight.StateWaiting), "Wake must be set exactly in state waiting")
	need(open == nil || state == flight.StateRunning || state == flight.StateWaiting && f.Wake.Callback, "I1: an open attempt in a flight that is not running")
	need(state != flight.StateRunning || (open != nil) != (f.Verification != nil), "a running flight must have either an open attempt or a due look-up")
	need(f.Verification == nil || state == flight.StateRunning && f.Tainted(), "a look-up of an untainted flight")
	need(state != flight.StateInDoubt || f.Tainted() || f.Key.IsStep(), "in doubt without taint")
	need(!state.Terminal() || f.TaintingAttempts == 0, "a flight ended with taint")
	need((f.Receipt != nil) == (state == flight.StateSucceeded) || state == flight.StateFailed || state == flight.StateExpired, "a receipt in a flight that has not ended")
	need(state != flight.StateSucceeded || f.Receipt != nil && f.Receipt.Outcome == flight.OutcomeSucceeded, "succeeded without a receipt of success")
	need(state != flight.StateFailed || f.Receipt == nil || f.Receipt.Outcome == flight.OutcomeRefused, "failed with a receipt of success")
	need((state == flight.StateScheduled) == (f.NotBefore > 0) || state == flight.StateAwaitingApproval, "NotBefore must be set exactly in state scheduled")
	need(!f.Sealed || state == flight.StateCancelled || state == flight.StateExpired && f.FinalState == flight.StateCancelled, "a sealed key that is not cancelled")
	need(f.CountedAttempts <= f.AttemptCount, "more attempts are counted than opened")
	need(len(f.Attempts) <= flight.MaxAttempts && len(f.Evidence) <= flight.MaxEvidence, "more attempts or evidence than the maximum")
	need(len(f.UsedNonces) <= flight.MaxUsedNonces+flight.MaxAttempts, "more used nonces than the maximum")
	need(f.Verification == nil || (f.Verification.Until > 0) == (f.Verification.Session != flight.Session{}), "the assigned session and its time limit must be set together")
	resendable := f.Policy.Recovery == flight.RecoveryResend
	need(!f.Tainted() || open == nil || resendable || f.TaintingAttempts <= lostUnknowns(f), "an attempt is open in a tainted flight without resend")
	need(f.State == flight.StateAbsent || f.State == flight.StateExpired || f.Sealed || (f.Phase != flight.PhaseNone) == f.Policy.Saga, "Phase must be set exactly for sagas")
	need(state.Terminal() == (f.FinishedAt > 0) || state == flight.StateExpired, "FinishedAt must be set exactly for a flight that ended")
	need(f.Redacted == nil || state.Terminal() && state != flight.StateExpired && storedBytes(f) == 0, "a redacted flight is in progress or has stored bytes")
	return errors.Join(errs...)
}

// checkAttempts: I1, and the count of tainting attempts.
func checkAttempts(f *flight.Flight, need func(bool, string)) {
	doubts := uint32(0)
	for i := range f.Attempts {
		at := &f.Attempts[i]
		need(i == 0 || at.Token().Compare(f.Attempts[i-1].Token()) > 0 && at.Number > f.Attempts[i-1].Number, "I2: attempts are not in the order of their tokens")
		need(!at.IsOpen() || i == len(f.Attempts)-1, "I1: two open attempts")
		need(!at.IsOpen() || at.Outcome == flight.OutcomeNone, "an open attempt has an outcome")
		doubts += countIf(at.Taints)
	}
	need(f.TaintingAttempts >= doubts && (int(f.AttemptCount) > flight.MaxAttempts || f.TaintingAttempts <= doubts+lostUnknowns(f)), "the count of tainting attempts is wrong")
	need(int(f.AttemptCount) >= len(f.Attempts), "more attempts are stored than were opened")
}

// SettleDelay is the effective settle delay of a policy.
func SettleDelay(p flight.Policy) time.Duration {
	if p.SettleDelay > 0 {
		return p.SettleDelay
	}
	return p.AttemptTimeout + flight.PauseBound
}

// VerifyTimeout is the time for which one caller is assigned to ask the provider.
func VerifyTimeout(p flight.Policy) time.Duration {
	if p.AttemptTimeout > 0 {
		return p.AttemptTimeout + flight.PauseBound
	}
	return 2 * flight.PauseBound
}
