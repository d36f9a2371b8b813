package flighttest

import (
	"reflect"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

// checkOpening: I1, I2, I5 and the preconditions of an effect.
func (s *step) checkOpening() {
	a, b := s.a, s.b
	if !s.opened() {
		s.checkFence()
		return
	}
	c, isOpen := s.c.(*flight.Open)
	if !isOpen {
		s.require(false, "I5: an attempt was opened by another command than Open")
		return
	}
	n := a.Newest()
	s.require(s.r.Decision == flight.DecisionProceed, "I5: an attempt was opened, and the answer was not proceed")
	s.require(a.Fence.Compare(b.Fence) > 0 && a.Fence.Number == b.Fence.Number+1, "I2: the token does not rise by one")
	s.require(a.Fence == s.token(n) && n.StoreEpoch == s.h.StoreEpoch, "I2: the token is not of this ledger")
	s.require(n.Session == c.Session && n.Nonce == c.Nonce && n.NotAfter == c.NotAfter, "the attempt does not belong to the caller of the Open")
	s.require(n.OpenedAt == s.h.Now, "OpenedAt is not the time of the Open")
	s.require(s.expectedRejection(c) == flight.DecisionNone, "an Open that must be rejected opened an attempt")
	s.require(b.State != flight.StateInDoubt && b.State != flight.StateAwaitingApproval && b.Verification == nil, "an attempt was opened in doubt, during a look-up or before an approval")
	s.require(!b.State.Terminal(), "I4: an attempt was opened after the flight had ended")
	s.require(b.NotBefore <= s.h.Now, "an attempt was opened before its time")
	s.require(b.Cancel == nil, "an attempt was opened after a cancel")
	s.require(!a.Tainted() || a.Policy.Recovery == flight.RecoveryResend && s.keyKnown(a, a.Policy.AttemptTimeout), "an attempt of a tainted flight was opened without a safe resend")
	r := a.Policy.Retry
	s.require(!r.Declared() || int(b.CountedAttempts) < r.Attempts, "an attempt was opened beyond the retry policy")
}

// keyKnown reports whether the provider surely remembers our key for at least forAs, by the clock that is ahead. The ledger's
// time runs at 19/20 of real time at least.
func (s *step) keyKnown(f *flight.Flight, forAs time.Duration) bool {
	passed := max(s.h.Now, s.h.Wall).AsTime().Sub(f.FirstSend.AsTime())
	return f.Policy.ProviderWindow == 0 || passed+forAs < f.Policy.ProviderWindow*19/20
}

// checkFence: without a new attempt, the fence moves only above the token of a fenced report.
func (s *step) checkFence() {
	a, b := s.a.Fence, s.b.Fence
	c, isReport := s.c.(*flight.Report)
	_, lost := s.lostReport()
	if !isReport || s.r.Decision != flight.DecisionFenced && !(lost && s.r.Changed) {
		s.require(a == b, "I2: the fence moved without an attempt")
		return
	}
	above := flight.Token{StoreEpoch: max(b.StoreEpoch, c.Token.StoreEpoch), Number: max(b.Number, c.Token.Number)}
	s.require(a == above || a == b && !s.r.Changed, "I2: the token of a fenced report may be assigned again")
}

// expectedRejection is the answer that an Open must get in any state of the flight; DecisionNone if it may open an attempt.
func (s *step) expectedRejection(c *flight.Open) flight.Decision {
	b, now := s.b, s.h.Now
	used := isUsedNonce(b, c.Nonce)
	full := s.unexpiredNonces(b) >= flight.MaxUsedNonces
	switch {
	case c.StoreEpoch != s.h.StoreEpoch:
		return flight.DecisionFenced
	case c.NotAfter > now.Add(flight.MaxOpenLife) && full && !used && c.NotAfter <= now.Add(flight.MaxNonceLife):
		return flight.DecisionExhausted
	case c.NotAfter > now.Add(flight.MaxOpenLife):
		return flight.DecisionOpenExpired
	case used && b.State == flight.StateInDoubt && !hasOpened(b, c.Nonce):
		return flight.DecisionInDoubt
	case used:
		return flight.DecisionFenced
	case c.NotAfter < now:
		return flight.DecisionOpenExpired
	case b.State == flight.StateAbsent && c.Submission.Policy.Saga:
		return flight.DecisionFenced
	case s.sessionEnded || c.Session.Epoch != s.h.LeaseEpoch:
		return flight.DecisionSessionEnded
	case full:
		return flight.DecisionExhausted
	case !s.stepMayOpen(c.Key) || s.h.StoreEpoch < b.Fence.StoreEpoch || b.Fence.Number+1 == 0:
		return flight.DecisionFenced
	}
	return flight.DecisionNone
}

// checkAnswers: the answer to an Open for a flight that is not over.
func (s *step) checkAnswers() {
	c, ok := s.c.(*flight.Open)
	if !ok || finalAnswer(s.b, c.Submission.Fingerprint) != flight.DecisionNone {
		return
	}
	a, b, d := s.a, s.b, s.r.Decision
	if c.StoreEpoch == s.h.StoreEpoch && s.h.Reconciling {
		s.require(d == flight.DecisionReconciling && !s.r.Changed, "an Open was not answered reconciling")
		return
	}
	if c.StoreEpoch == s.h.StoreEpoch {
		if at := b.OpenAttempt(); at != nil && at.Nonce == c.Nonce && b.State == flight.StateRunning {
			s.require(d == flight.DecisionProceed && !s.r.Changed, "I10: the repeat of an Open whose attempt is open was not answered proceed")
			return
		}
		if p := b.Verification; p != nil && p.Nonce == c.Nonce && c.Nonce != (flight.Nonce{}) {
			s.require(d == flight.DecisionVerify && !s.r.Changed, "I10: the repeat of the assigned caller's Open was not answered verify")
			return
		}
	}
	if want := s.expectedRejection(c); want != flight.DecisionNone {
		s.require(d == want, "an Open should have been answered "+want.String())
		farAhead := want == flight.DecisionOpenExpired && c.NotAfter > s.h.Now && c.NotAfter <= s.h.Now.Add(flight.MaxNonceLife)
		s.require(!s.r.Changed || farAhead, "an Open that opens nothing changed something")
		return
	}
	switch d {
	case flight.DecisionBusy:
		waits := a.State == flight.StateWaiting || a.State == flight.StateScheduled || a.Verification != nil
		s.require(a.OpenAttempt() != nil || waits, "busy although nothing holds the key")
		if at := b.OpenAttempt(); at != nil {
			over, _ := s.mayEnd(at)
			s.require(!over || a.OpenAttempt() == nil, "I1: an attempt whose time is over still holds the key")
		}
	case flight.DecisionInDoubt:
		s.require(a.State == flight.StateInDoubt && isUsedNonce(a, c.Nonce), "I10: the nonce of an Open that was answered in_doubt is not used up")
	case flight.DecisionAwaitingApproval:
		s.require(a.State == flight.StateAwaitingApproval, "awaiting_approval although no approval is required")
	case flight.DecisionProceed:
		s.require(s.opened(), "I5: proceed although no attempt was opened")
	case flight.DecisionVerify:
		s.require(s.r.Changed, "verify although no caller was assigned")
	default:
		s.require(s.endedUnknown(), "an Open that may open an attempt was rejected")
	}
}

// checkClosing: an open attempt ends only in the permitted ways (I1).
func (s *step) checkClosing() {
	b := s.b
	old := b.OpenAttempt()
	if old == nil {
		return
	}
	why, lost := s.mayEnd(old)
	if still := s.a.OpenAttempt(); still != nil && still.Number == old.Number {
		s.require(reflect.DeepEqual(still, old), "an open attempt changed")
		_, opens := s.c.(*flight.Open) // a rejected Open does not change the attempt; see checkAnswers
		s.require(!why || opens, "I1: an attempt that should have ended is open")
		return
	}
	s.require(why, "I1: an attempt was ended by a command that must not end it")
	if closed := findAttempt(s.a, old.Number); closed != nil && lost {
		s.require(closed.Lost && closed.Outcome == flight.OutcomeUnknown && (closed.Taints || s.endedUnknown()), "a lost attempt did not taint the flight")
	}
}

// mayEnd reports whether the command may end the open attempt, and whether the attempt is then marked lost.
func (s *step) mayEnd(old *flight.Attempt) (may, lost bool) {
	b := s.b
	waits := b.State == flight.StateWaiting
	until := s.holderTime(deadline(old, b.Policy))
	if waits {
		until = s.holderTime(b.Wake.At)
	}
	over := until > 0 && s.h.Now >= until || !waits && old.Session.Epoch < s.h.LeaseEpoch && s.h.Now >= s.h.EpochHold
	switch c := s.c.(type) {
	case *flight.Open:
		return over, true
	case *flight.WakeUp:
		return over && c.Generation == b.Generation, true
	case *flight.EndSession:
		return !waits && old.Session.ID == c.Session.ID && s.proves(c, c.Session) && s.proves(c, old.Session), true
	case *flight.Report:
		return s.names(c.Token, old) && c.Generation == b.Generation || s.isLostSuccess(), false
	case *flight.Import:
		return s.importsLost(), false
	case *flight.Abandon:
		return !waits && c.Nonce == old.Nonce && c.StoreEpoch == s.h.StoreEpoch, false
	}
	return false, false
}

// holderTime is a stored time of the flight before, later by all steps of the clock since it was stored.
func (s *step) holderTime(stored flight.Time) flight.Time {
	if stored == 0 {
		return 0
	}
	return stored.Add(s.h.Steps - s.b.Steps)
}

// checkHolderTime: the steps of the clock are recorded when the time of a holder begins, and only then.
func (s *step) checkHolderTime() {
	a, b := s.a, s.b
	_, suspends := s.c.(*flight.Suspend)
	looksUp := a.Verification != nil && (b.Verification == nil || a.Verification.Number != b.Verification.Number)
	switch {
	case s.opened(), looksUp, suspends && a.State == flight.StateWaiting && b.State != flight.StateWaiting:
		s.require(a.Steps == s.h.Steps, "the time of a holder began without the steps of the clock")
	default:
		s.require(a.Steps == b.Steps || a.Holder() == nil && a.OpenAttempt() == nil && a.Verification == nil, "a step of the clock was lost from the time of a holder")
	}
}

// deadline is rule 3 (d): the attempt's time-out, a tenth for clock drift, and the pause bound.
func deadline(a *flight.Attempt, p flight.Policy) flight.Time {
	if p.AttemptTimeout <= 0 {
		return 0
	}
	return a.OpenedAt.Add(p.AttemptTimeout*11/10 + flight.PauseBound)
}

// checkProceed: DecisionProceed is the only answer that permits the effect, and only the caller of the open attempt gets it
// (I5).
func (s *step) checkProceed() {
	if s.r.Decision != flight.DecisionProceed {
		s.require(s.r.Token.IsZero(), "a token was returned without proceed")
		return
	}
	c, isOpen := s.c.(*flight.Open)
	if !isOpen {
		s.require(false, "I5: proceed for another command than Open")
		return
	}
	at := s.a.OpenAttempt()
	s.require(at != nil && s.a.State == flight.StateRunning, "I5: proceed although no attempt is open")
	if at != nil {
		s.require(at.Nonce == c.Nonce && s.r.Token == s.token(at), "I1: proceed for a second caller")
		s.require(s.opened() || !s.r.Changed, "I10: a repeated Open changed something")
	}
}

// hasOpened reports whether a nonce has opened a stored attempt of this generation.
func hasOpened(f *flight.Flight, nonce flight.Nonce) bool {
	return slices.ContainsFunc(f.Attempts, func(a flight.Attempt) bool { return a.Nonce == nonce })
}
