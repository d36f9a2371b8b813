package flighttest

import (
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

// opening: I1, I2, I5 and what must be true before an effect.
func (s *step) opening() {
	a, b := s.a, s.b
	if !s.opened() {
		s.fence()
		return
	}
	c, isOpen := s.c.(*flight.Open)
	if !isOpen {
		s.need(false, "I5: an attempt was opened by something else than an Open")
		return
	}
	n := a.Newest()
	s.need(s.r.Decision == flight.Proceed, "I5: an attempt was opened, and nobody was told")
	s.need(a.Fence.Compare(b.Fence) > 0 && a.Fence.Number == b.Fence.Number+1, "I2: the token does not rise by one")
	s.need(a.Fence == s.token(n) && n.StoreEpoch == s.h.StoreEpoch, "I2: the token is not of this ledger")
	s.need(n.Session == c.Session && n.Nonce == c.Nonce && n.NotAfter == c.NotAfter, "the attempt is not the asker's")
	s.need(n.OpenedAt == s.h.Now, "an attempt was opened at another time")
	s.need(s.refusal(c) == flight.NoDecision, "an Open opened that should have been refused")
	s.need(b.State != flight.InDoubt && b.State != flight.AwaitingApproval && b.Probe == nil, "an attempt was opened past a doubt or an approval")
	s.need(!b.State.Terminal(), "I4: an attempt was opened after the end")
	s.need(b.NotBefore <= s.h.Now, "an attempt was opened before its time")
	s.need(b.Cancel == nil || a.Policy.Saga, "an attempt was opened after a cancel")
	s.need(!a.Tainted() || a.Policy.Saga || a.Policy.Recovery == flight.Resend && s.keyKnown(a, a.Policy.AttemptTimeout), "an attempt was opened over a doubt that a resend may not end")
	r := a.Policy.Retry
	s.need(!r.Declared() || a.Policy.Saga || int(b.Counted) < r.Attempts, "an attempt was opened beyond the retry policy")
}

// keyKnown reports whether the provider surely knows our key for some time still, by whichever clock is ahead: the ledger's
// time runs at 19/20 of real time at least.
func (s *step) keyKnown(f *flight.Flight, forAs time.Duration) bool {
	passed := max(s.h.Now, s.h.Wall).At().Sub(f.FirstSend.At())
	return f.Policy.ProviderWindow == 0 || passed+forAs < f.Policy.ProviderWindow*19/20
}

// fence: without an attempt it moves only above the token of a report whose attempt this ledger has lost.
func (s *step) fence() {
	a, b := s.a.Fence, s.b.Fence
	c, isReport := s.c.(*flight.Report)
	if !isReport || s.r.Decision != flight.Fenced {
		s.need(a == b, "I2: the fence moved without an attempt")
		return
	}
	above := flight.Token{StoreEpoch: max(b.StoreEpoch, c.Token.StoreEpoch), Number: max(b.Number, c.Token.Number)}
	s.need(a == above || a == b && !s.r.Changed, "I2: the token of a fenced report may be given again")
}

// refusal is the answer that an Open must get whatever the flight's state; NoDecision where it may open something.
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

// stepMayOpen: I9. A step opens in its phase alone; named by a driver, while that driver's attempt is open; named by none,
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

// answers: how an Open of a flight that is not settled is answered.
func (s *step) answers() {
	c, ok := s.c.(*flight.Open)
	if !ok || settled(s.b, c.Submission.Fingerprint) != flight.NoDecision {
		return
	}
	a, b, d := s.a, s.b, s.r.Decision
	if c.StoreEpoch == s.h.StoreEpoch {
		if at := b.OpenAttempt(); at != nil && at.Nonce == c.Nonce && b.State == flight.Running {
			s.need(d == flight.Proceed && !s.r.Changed, "I10: the repeat of an Open whose attempt is open is not told to proceed")
			return
		}
		if p := b.Probe; p != nil && p.Nonce == c.Nonce && c.Nonce != (flight.Nonce{}) {
			s.need(d == flight.Look && !s.r.Changed, "I10: the caller of the newest look-up is not told so again")
			return
		}
	}
	if want := s.refusal(c); want != flight.NoDecision {
		s.need(d == want, "an Open should have been refused as "+want.String())
		far := want == flight.OpenExpired && c.NotAfter > s.h.Now && c.NotAfter <= s.h.Now.Add(flight.MaxNonceLife)
		s.need(!s.r.Changed || far, "an Open that opens nothing changed something")
		return
	}
	switch d {
	case flight.Busy:
		waits := a.State == flight.Waiting || a.State == flight.Scheduled || a.Probe != nil
		s.need(a.OpenAttempt() != nil || waits, "Busy, and nothing is in the way")
		if at := b.OpenAttempt(); at != nil {
			over, _ := s.end(at)
			s.need(!over || a.OpenAttempt() == nil, "I1: an attempt whose time is over is still in the way")
		}
	case flight.Doubtful:
		s.need(a.State == flight.InDoubt && nonceKnown(a, c.Nonce), "I10: an Open that was answered in doubt may still open")
	case flight.Unapproved:
		s.need(a.State == flight.AwaitingApproval, "an approval is missing that nobody asked for")
	case flight.Proceed:
		s.need(s.opened(), "I5: Proceed was said, and no attempt was opened")
	case flight.Look:
		s.need(s.r.Changed, "Look was said, and nobody was noted")
	default:
		s.need(false, "an Open was refused that may open")
	}
}

// closing: how an open attempt ends (I1). Nothing else ends it.
func (s *step) closing() {
	b := s.b
	old := b.OpenAttempt()
	if old == nil {
		return
	}
	why, lost := s.end(old)
	if still := s.a.OpenAttempt(); still != nil && still.Number == old.Number {
		s.need(*still == *old, "an open attempt changed")
		_, opens := s.c.(*flight.Open) // one that is refused leaves the attempt alone; see answers
		s.need(!why || opens, "I1: an attempt did not end that should have")
		return
	}
	s.need(why, "I1: an attempt was ended by a command that may not")
	if closed := findAttempt(s.a, old.Number); closed != nil && lost {
		s.need(closed.Lost && closed.Outcome == flight.Unknown && closed.Doubt, "a lost attempt left no doubt")
	}
}

// end says whether the command may end the open attempt, and whether that loses it.
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

// deadline is rule 3 (d): the attempt's time-out, a tenth for the drift of clocks, and the pause bound.
func deadline(a *flight.Attempt, p flight.Policy) flight.Time {
	if p.AttemptTimeout <= 0 {
		return 0
	}
	return a.OpenedAt.Add(p.AttemptTimeout*11/10 + flight.PauseBound)
}

// proceeding: Proceed is the only answer that means act, and it is said to the caller of the open attempt alone (I5).
func (s *step) proceeding() {
	if s.r.Decision != flight.Proceed {
		s.need(s.r.Token.IsZero(), "a token was given without Proceed")
		return
	}
	c, isOpen := s.c.(*flight.Open)
	if !isOpen {
		s.need(false, "I5: Proceed was said to something else than an Open")
		return
	}
	at := s.a.OpenAttempt()
	s.need(at != nil && s.a.State == flight.Running, "I5: Proceed was said, and no attempt is open")
	if at != nil {
		s.need(at.Nonce == c.Nonce && s.r.Token == s.token(at), "I1: Proceed was said to a second asker")
		s.need(s.opened() || !s.r.Changed, "I10: a repeated Open changed something")
	}
}

// opened reports whether a nonce has opened an attempt of this generation that is kept.
func opened(f *flight.Flight, nonce flight.Nonce) bool {
	return slices.ContainsFunc(f.Attempts, func(a flight.Attempt) bool { return a.Nonce == nonce })
}
