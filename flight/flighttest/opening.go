package flighttest

import (
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

// checkOpening: I1, I2, I5 and the preconditions of an effect.
func (s *step) opening() {
	a, b := s.a, s.b
	if !s.opened() {
		s.fence()
		return
	}
	c, isOpen := s.c.(*flight.Open)
	if !isOpen {
		s.need(false, "I5: an attempt was opened by another command than Open")
		return
	}
	n := a.Newest()
	s.need(s.r.Decision == flight.Proceed, "I5: an attempt was opened, and the answer was not proceed")
	s.need(a.Fence.Compare(b.Fence) > 0 && a.Fence.Number == b.Fence.Number+1, "I2: the token does not rise by one")
	s.need(a.Fence == s.token(n) && n.StoreEpoch == s.h.StoreEpoch, "I2: the token is not of this ledger")
	s.need(n.Session == c.Session && n.Nonce == c.Nonce && n.NotAfter == c.NotAfter, "the attempt does not belong to the caller of the Open")
	s.need(n.OpenedAt == s.h.Now, "OpenedAt is not the time of the Open")
	s.need(s.refusal(c) == flight.NoDecision, "an Open that must be rejected opened an attempt")
	s.need(b.State != flight.InDoubt && b.State != flight.AwaitingApproval && b.Probe == nil, "an attempt was opened in doubt, during a look-up or before an approval")
	s.need(!b.State.Terminal(), "I4: an attempt was opened after the flight had ended")
	s.need(b.NotBefore <= s.h.Now, "an attempt was opened before its time")
	s.need(b.Cancel == nil || a.Policy.Saga, "an attempt was opened after a cancel")
	s.need(!a.Tainted() || a.Policy.Saga || a.Policy.Recovery == flight.Resend && s.keyKnown(a, a.Policy.AttemptTimeout), "an attempt of a tainted flight was opened without a safe resend")
	r := a.Policy.Retry
	s.need(!r.Declared() || a.Policy.Saga || int(b.Counted) < r.Attempts, "an attempt was opened beyond the retry policy")
}

// keyKnown reports whether the provider surely remembers our key for at least forAs, by the clock that is ahead. The ledger's
// time runs at 19/20 of real time at least.
func (s *step) keyKnown(f *flight.Flight, forAs time.Duration) bool {
	passed := max(s.h.Now, s.h.Wall).At().Sub(f.FirstSend.At())
	return f.Policy.ProviderWindow == 0 || passed+forAs < f.Policy.ProviderWindow*19/20
}

// checkFence: without a new attempt, the fence moves only above the token of a fenced report.
func (s *step) fence() {
	a, b := s.a.Fence, s.b.Fence
	c, isReport := s.c.(*flight.Report)
	if !isReport || s.r.Decision != flight.Fenced {
		s.need(a == b, "I2: the fence moved without an attempt")
		return
	}
	above := flight.Token{StoreEpoch: max(b.StoreEpoch, c.Token.StoreEpoch), Number: max(b.Number, c.Token.Number)}
	s.need(a == above || a == b && !s.r.Changed, "I2: the token of a fenced report may be assigned again")
}

// expectedRejection is the answer that an Open must get in any state of the flight; DecisionNone if it may open an attempt.
func (s *step) refusal(c *flight.Open) flight.Decision {
	b, now := s.b, s.h.Now
	used := nonceKnown(b, c.Nonce)
	full := s.remembered(b) >= flight.MaxUsedNonces
	switch {
	case c.StoreEpoch != s.h.StoreEpoch:
		return flight.Fenced
	case c.NotAfter > now.Add(flight.MaxOpenLife) && full && !used && c.NotAfter <= now.Add(flight.MaxNonceLife):
		return flight.Exhausted
	case c.NotAfter > now.Add(flight.MaxOpenLife):
		return flight.OpenExpired
	case used && b.State == flight.InDoubt && !opened(b, c.Nonce):
		return flight.Doubtful
	case used:
		return flight.Fenced
	case c.NotAfter < now:
		return flight.OpenExpired
	case s.ended || c.Session.Epoch != s.h.LeaseEpoch:
		return flight.SessionEnded
	case full:
		return flight.Exhausted
	case !s.stepMayOpen(c) || s.h.StoreEpoch < b.Fence.StoreEpoch || b.Fence.Number+1 == 0:
		return flight.Fenced
	}
	return flight.NoDecision
}

// stepMayOpen: I9. A step opens only in its phase; with a driver's token, while that driver's attempt is open; without one,
// after it was submitted.
func (s *step) stepMayOpen(c *flight.Open) bool {
	if !c.Key.IsStep() {
		return true
	}
	want := flight.Forward
	if c.Key.IsUndo() {
		want = flight.Undoing
	}
	if s.saga == nil || s.saga.Phase != want || s.saga.State.Terminal() {
		return false
	}
	if c.Submission.Driver.IsZero() {
		return s.b.State != flight.Absent
	}
	driver := s.saga.OpenAttempt()
	return driver != nil && s.token(driver) == c.Submission.Driver
}

// checkAnswers: the answer to an Open for a flight that is not over.
func (s *step) answers() {
	c, ok := s.c.(*flight.Open)
	if !ok || settled(s.b, c.Submission.Fingerprint) != flight.NoDecision {
		return
	}
	a, b, d := s.a, s.b, s.r.Decision
	if c.StoreEpoch == s.h.StoreEpoch {
		if at := b.OpenAttempt(); at != nil && at.Nonce == c.Nonce && b.State == flight.Running {
			s.need(d == flight.Proceed && !s.r.Changed, "I10: the repeat of an Open whose attempt is open was not answered proceed")
			return
		}
		if p := b.Probe; p != nil && p.Nonce == c.Nonce && c.Nonce != (flight.Nonce{}) {
			s.need(d == flight.Look && !s.r.Changed, "I10: the repeat of the assigned caller's Open was not answered verify")
			return
		}
	}
	if want := s.refusal(c); want != flight.NoDecision {
		s.need(d == want, "an Open should have been answered "+want.String())
		far := want == flight.OpenExpired && c.NotAfter > s.h.Now && c.NotAfter <= s.h.Now.Add(flight.MaxNonceLife)
		s.need(!s.r.Changed || far, "an Open that opens nothing changed something")
		return
	}
	switch d {
	case flight.Busy:
		waits := a.State == flight.Waiting || a.State == flight.Scheduled || a.Probe != nil
		s.need(a.OpenAttempt() != nil || waits, "busy although nothing holds the key")
		if at := b.OpenAttempt(); at != nil {
			over, _ := s.end(at)
			s.need(!over || a.OpenAttempt() == nil, "I1: an attempt whose time is over still holds the key")
		}
	case flight.Doubtful:
		s.need(a.State == flight.InDoubt && nonceKnown(a, c.Nonce), "I10: the nonce of an Open that was answered in_doubt is not used up")
	case flight.Unapproved:
		s.need(a.State == flight.AwaitingApproval, "awaiting_approval although no approval is required")
	case flight.Proceed:
		s.need(s.opened(), "I5: proceed although no attempt was opened")
	case flight.Look:
		s.need(s.r.Changed, "verify although no caller was assigned")
	default:
		s.need(false, "an Open that may open an attempt was rejected")
	}
}

// checkClosing: an open attempt ends only in the permitted ways (I1).
func (s *step) closing() {
	b := s.b
	old := b.OpenAttempt()
	if old == nil {
		return
	}
	why, lost := s.end(old)
	if still := s.a.OpenAttempt(); still != nil && still.Number == old.Number {
		s.need(*still == *old, "an open attempt changed")
		_, opens := s.c.(*flight.Open) // a rejected Open does not change the attempt; see checkAnswers
		s.need(!why || opens, "I1: an attempt that should have ended is open")
		return
	}
	s.need(why, "I1: an attempt was ended by a command that must not end it")
	if closed := findAttempt(s.a, old.Number); closed != nil && lost {
		s.need(closed.Lost && closed.Outcome == flight.Unknown && closed.Doubt, "a lost attempt did not taint the flight")
	}
}

// mayEnd reports whether the command may end the open attempt, and whether the attempt is then marked lost.
func (s *step) end(old *flight.Attempt) (may, lost bool) {
	b := s.b
	waits := b.State == flight.Waiting
	until := deadline(old, b.Policy)
	if waits {
		until = b.Wake.At
	}
	over := until > 0 && s.h.Now >= until || !waits && old.Session.Epoch < s.h.LeaseEpoch && s.h.Now >= s.h.EpochHold
	switch c := s.c.(type) {
	case *flight.Open:
		return over, true
	case *flight.WakeUp:
		return over && c.Generation == b.Generation, true
	case *flight.Ended:
		return !waits && old.Session.ID == c.Session.ID && s.proves(c, c.Session) && s.proves(c, old.Session), true
	case *flight.Report:
		return c.Token == s.token(old) && c.Generation == b.Generation, false
	case *flight.Suspend:
		return c.Token == s.token(old) && c.Generation == b.Generation && b.Policy.Saga && !c.Wake.Callback && !waits, false
	case *flight.Abandon:
		return !waits && c.Nonce == old.Nonce && c.StoreEpoch == s.h.StoreEpoch, false
	}
	return false, false
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
func (s *step) proceeding() {
	if s.r.Decision != flight.Proceed {
		s.need(s.r.Token.IsZero(), "a token was returned without proceed")
		return
	}
	c, isOpen := s.c.(*flight.Open)
	if !isOpen {
		s.need(false, "I5: proceed for another command than Open")
		return
	}
	at := s.a.OpenAttempt()
	s.need(at != nil && s.a.State == flight.Running, "I5: proceed although no attempt is open")
	if at != nil {
		s.need(at.Nonce == c.Nonce && s.r.Token == s.token(at), "I1: proceed for a second caller")
		s.need(s.opened() || !s.r.Changed, "I10: a repeated Open changed something")
	}
}

// hasOpened reports whether a nonce has opened a stored attempt of this generation.
func opened(f *flight.Flight, nonce flight.Nonce) bool {
	return slices.ContainsFunc(f.Attempts, func(a flight.Attempt) bool { return a.Nonce == nonce })
}
