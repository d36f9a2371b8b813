package flighttest

import (
	"reflect"
	"slices"

	"github.com/flightd/flightd/flight"
)

// proves reports whether an EndSession proves that a session has ended (rule 4): the read is later than the creation of the
// session, in the present history of etcd; or the session is of an older lease epoch whose hold has expired.
func (s *step) proves(c *flight.EndSession, x flight.Session) bool {
	if c.StoreEpoch != s.h.StoreEpoch || c.Epoch != s.h.LeaseEpoch {
		return false
	}
	if x.Epoch == s.h.LeaseEpoch {
		return c.ReadRevision >= x.Revision && c.Counter >= s.h.GuardCounter
	}
	return x.Epoch < s.h.LeaseEpoch && s.h.Now >= s.h.EpochHold
}

// checkSessions: the answers to EndSession and WithdrawSession; they change only a flight that the session holds.
func (s *step) checkSessions() {
	holder := s.b.Holder()
	switch c := s.c.(type) {
	case *flight.EndSession:
		s.require((s.r.Decision == flight.DecisionAccepted) == s.proves(c, c.Session) || holder != nil && !s.proves(c, *holder), "a proof was accepted or rejected wrongly")
		s.require(s.r.Decision == flight.DecisionAccepted || s.r.Decision == flight.DecisionFenced && !s.r.Changed, "a rejected proof changed the flight")
		s.require(!s.r.Changed || holder != nil && holder.ID == c.Session.ID, "the end of a session changed a flight that it does not hold")
		if s.r.Decision == flight.DecisionAccepted {
			held := s.a.Holder()
			s.require(held == nil || held.ID != c.Session.ID, "a session that has ended still holds the key")
		}
	case *flight.WithdrawSession:
		want := flight.DecisionAccepted
		switch {
		case c.StoreEpoch != s.h.StoreEpoch:
			want = flight.DecisionFenced
		case holder != nil && holder.ID == c.Session:
			want = flight.DecisionBusy
		}
		s.require(s.r.Decision == want && !s.r.Changed, "the withdrawal of a session was answered wrongly")
	}
}

// isUsedNonce reports whether a flight remembers a nonce as used.
func isUsedNonce(f *flight.Flight, nonce flight.Nonce) bool {
	return hasOpened(f, nonce) || slices.ContainsFunc(f.UsedNonces, func(n flight.UsedNonce) bool { return n.Nonce == nonce })
}

// unexpiredNonces is the number of used nonces of a flight that have not expired.
func (s *step) unexpiredNonces(f *flight.Flight) int {
	n := 0
	for i := range f.UsedNonces {
		if f.UsedNonces[i].Until >= s.h.Now {
			n++
		}
	}
	return n
}

// checkNonces: a used nonce is remembered until every Open that carries it has expired (I10).
func (s *step) checkNonces() {
	a, b := s.a, s.b
	if !s.r.Changed {
		s.checkUsedUp()
		return
	}
	for _, n := range b.UsedNonces {
		s.require(n.Until < s.h.Now || isUsedNonce(a, n.Nonce), "I10: a used nonce was forgotten")
	}
	for i := range b.Attempts {
		at := &b.Attempts[i]
		s.require(at.NotAfter < s.h.Now || isUsedNonce(a, at.Nonce), "I10: an attempt's nonce was forgotten")
	}
	for _, n := range a.UsedNonces {
		s.require(isUsedNonce(b, n.Nonce) || s.namesNonce(n.Nonce), "a nonce that the command does not carry was used up")
	}
	s.checkUsedUp()
}

// checkUsedUp: the answers that use up the nonce.
func (s *step) checkUsedUp() {
	switch c := s.c.(type) {
	case *flight.Abandon:
		valid := c.NotAfter >= s.h.Now && s.r.Decision == flight.DecisionAccepted
		s.require(!valid || isUsedNonce(s.a, c.Nonce), "I10: an abandoned Open may still open")
	case *flight.Open:
		d := s.r.Decision
		farAhead := d == flight.DecisionOpenExpired && c.NotAfter > s.h.Now && c.NotAfter <= s.h.Now.Add(flight.MaxNonceLife)
		s.require(!farAhead || isUsedNonce(s.a, c.Nonce), "I10: the nonce of an Open too far ahead is not used up")
		s.require(d != flight.DecisionVerify && d != flight.DecisionInDoubt || isUsedNonce(s.a, c.Nonce) || !s.r.Changed, "I10: the nonce of an Open answered verify or in_doubt is not used up")
	}
}

// namesNonce reports whether the command carries the nonce.
func (s *step) namesNonce(n flight.Nonce) bool {
	switch c := s.c.(type) {
	case *flight.Open:
		return c.Nonce == n
	case *flight.Abandon:
		return c.Nonce == n
	}
	return false
}

// checkAbandons: the effect of an Abandon.
func (s *step) checkAbandons() {
	c, ok := s.c.(*flight.Abandon)
	if !ok {
		return
	}
	a, b := s.a, s.b
	n := b.Newest()
	switch {
	case c.StoreEpoch != s.h.StoreEpoch:
		s.require(s.r.Decision == flight.DecisionFenced && !s.r.Changed, "an abandon of another store epoch was accepted")
	case n == nil || n.Nonce != c.Nonce:
		quiet := a.State == b.State && a.AttemptCount == b.AttemptCount && a.TaintingAttempts == b.TaintingAttempts && a.Verifications == b.Verifications
		s.require(quiet, "an abandon that is not for the newest attempt changed more than its nonce")
	case b.State.Terminal() || n.ReportedOutcomes != 0 || !n.IsOpen() && !n.Lost:
		s.require(!s.r.Changed, "an attempt that has reported was abandoned")
	case n.IsOpen() && b.State == flight.StateWaiting:
		s.require(s.r.Decision == flight.DecisionFenced && !s.r.Changed, "an attempt that waits for its callback was abandoned")
	default:
		s.require(s.r.Decision == flight.DecisionAccepted, "a valid abandon was rejected")
		s.require(!a.State.Terminal() || b.Cancel != nil || s.stopped() || a.State == flight.StateFailed, "an abandon ended the flight")
		s.require(a.TaintingAttempts == b.TaintingAttempts-countIf(n.Taints) || a.State.Terminal(), "an abandon did not remove exactly the taint of its own attempt")
		last := a.Newest()
		s.require(last.Number == n.Number && !last.IsOpen() && !last.Taints && last.Outcome == flight.OutcomeNotDone, "an abandoned attempt is not recorded as not_done")
		s.require(a.CountedAttempts+1 == b.CountedAttempts || b.CountedAttempts == 0, "an abandoned attempt is counted as a retry")
	}
}

// checkVersions: a changed flight carries the version of the command, except where only a used nonce or duplicates were
// added. So a person who decides on a version has seen every other change.
func (s *step) checkVersions() {
	_, counts := s.c.(*flight.CountDuplicates)
	s.require(s.a.Duplicates == s.b.Duplicates || counts || s.a.State == flight.StateExpired, "duplicate statistics changed without CountDuplicates")
	if !s.r.Changed {
		return
	}
	if s.a.Version != s.h.Version || counts {
		s.require(len(s.r.Events) == 0, "an event without a new version")
		s.require(s.a.Version == s.b.Version && !s.unused, "a changed flight carries another version than its command")
		a, b := *s.a, *s.b
		a.UsedNonces, b.UsedNonces = nil, nil
		if counts {
			a.Duplicates, b.Duplicates = nil, nil
		}
		s.require(reflect.DeepEqual(a, b), "a flight changed but kept its version")
		return
	}
	_, opens := s.c.(*flight.Open)
	s.require(!opens || s.b.State != flight.StateInDoubt, "an Open in doubt changed the version on which a person decides")
}
