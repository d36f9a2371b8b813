package flighttest

import (
	"reflect"
	"slices"

	"github.com/flightd/flightd/flight"
)

// proves reports whether an EndSession proves that a session has ended (rule 4): the read is later than the creation of the
// session, in the present history of etcd; or the session is of an older lease epoch whose hold has expired.
func (s *step) proves(c *flight.Ended, x flight.Session) bool {
	if c.StoreEpoch != s.h.StoreEpoch || c.Epoch != s.h.LeaseEpoch {
		return false
	}
	if x.Epoch == s.h.LeaseEpoch {
		return c.ReadRevision >= x.Revision && c.Counter >= s.h.Guard
	}
	return x.Epoch < s.h.LeaseEpoch && s.h.Now >= s.h.EpochHold
}

// checkSessions: the answers to EndSession and WithdrawSession; they change only a flight that the session holds.
func (s *step) sessions() {
	holder := s.b.Holder()
	switch c := s.c.(type) {
	case *flight.Ended:
		s.need((s.r.Decision == flight.Accepted) == s.proves(c, c.Session) || holder != nil && !s.proves(c, *holder), "a proof was accepted or rejected wrongly")
		s.need(s.r.Decision == flight.Accepted || s.r.Decision == flight.Fenced && !s.r.Changed, "a rejected proof changed the flight")
		s.need(!s.r.Changed || holder != nil && holder.ID == c.Session.ID, "the end of a session changed a flight that it does not hold")
		if s.r.Decision == flight.Accepted {
			held := s.a.Holder()
			s.need(held == nil || held.ID != c.Session.ID, "a session that has ended still holds the key")
		}
	case *flight.Withdraw:
		want := flight.Accepted
		switch {
		case c.StoreEpoch != s.h.StoreEpoch:
			want = flight.Fenced
		case holder != nil && holder.ID == c.Session:
			want = flight.Busy
		}
		s.need(s.r.Decision == want && !s.r.Changed, "the withdrawal of a session was answered wrongly")
	}
}

// isUsedNonce reports whether a flight remembers a nonce as used.
func nonceKnown(f *flight.Flight, nonce flight.Nonce) bool {
	return opened(f, nonce) || slices.ContainsFunc(f.UsedNonces, func(n flight.UsedNonce) bool { return n.Nonce == nonce })
}

// unexpiredNonces is the number of used nonces of a flight that have not expired.
func (s *step) remembered(f *flight.Flight) int {
	n := 0
	for i := range f.UsedNonces {
		if f.UsedNonces[i].Until >= s.h.Now {
			n++
		}
	}
	return n
}

// checkNonces: a used nonce is remembered until every Open that carries it has expired (I10).
func (s *step) nonces() {
	a, b := s.a, s.b
	if !s.r.Changed {
		s.usedUp()
		return
	}
	for _, n := range b.UsedNonces {
		s.need(n.Until < s.h.Now || nonceKnown(a, n.Nonce), "I10: a used nonce was forgotten")
	}
	for i := range b.Attempts {
		at := &b.Attempts[i]
		s.need(at.NotAfter < s.h.Now || nonceKnown(a, at.Nonce), "I10: an attempt's nonce was forgotten")
	}
	for _, n := range a.UsedNonces {
		s.need(nonceKnown(b, n.Nonce) || s.names(n.Nonce), "a nonce that the command does not carry was used up")
	}
	s.usedUp()
}

// checkUsedUp: the answers that use up the nonce.
func (s *step) usedUp() {
	switch c := s.c.(type) {
	case *flight.Abandon:
		valid := c.NotAfter >= s.h.Now && s.r.Decision == flight.Accepted
		s.need(!valid || nonceKnown(s.a, c.Nonce), "I10: an abandoned Open may still open")
	case *flight.Open:
		d := s.r.Decision
		far := d == flight.OpenExpired && c.NotAfter > s.h.Now && c.NotAfter <= s.h.Now.Add(flight.MaxNonceLife)
		s.need(!far || nonceKnown(s.a, c.Nonce), "I10: the nonce of an Open too far ahead is not used up")
		s.need(d != flight.Look && d != flight.Doubtful || nonceKnown(s.a, c.Nonce) || !s.r.Changed, "I10: the nonce of an Open answered verify or in_doubt is not used up")
	}
}

// namesNonce reports whether the command carries the nonce.
func (s *step) names(n flight.Nonce) bool {
	switch c := s.c.(type) {
	case *flight.Open:
		return c.Nonce == n
	case *flight.Abandon:
		return c.Nonce == n
	}
	return false
}

// checkAbandons: the effect of an Abandon.
func (s *step) abandons() {
	c, ok := s.c.(*flight.Abandon)
	if !ok {
		return
	}
	a, b := s.a, s.b
	n := b.Newest()
	switch {
	case c.StoreEpoch != s.h.StoreEpoch:
		s.need(s.r.Decision == flight.Fenced && !s.r.Changed, "an abandon of another store epoch was accepted")
	case n == nil || n.Nonce != c.Nonce:
		quiet := a.State == b.State && a.AttemptCount == b.AttemptCount && a.Doubts == b.Doubts && a.Probes == b.Probes
		s.need(quiet, "an abandon that is not for the newest attempt changed more than its nonce")
	case b.State.Terminal() || n.Reported != 0 || !n.Open() && !n.Lost:
		s.need(!s.r.Changed, "an attempt that has reported was abandoned")
	case n.Open() && b.State == flight.Waiting:
		s.need(s.r.Decision == flight.Fenced && !s.r.Changed, "an attempt that waits for its callback was abandoned")
	default:
		s.need(s.r.Decision == flight.Accepted, "a valid abandon was rejected")
		s.need(!a.State.Terminal() || b.Cancel != nil || a.State == flight.StateFailed, "an abandon ended the flight")
		s.need(a.Doubts == b.Doubts-one(n.Doubt) || a.State.Terminal(), "an abandon did not remove exactly the taint of its own attempt")
		last := a.Newest()
		s.need(last.Number == n.Number && !last.Open() && !last.Doubt && last.Outcome == flight.NotDone, "an abandoned attempt is not recorded as not_done")
		s.need(a.Counted+1 == b.Counted || b.Counted == 0, "an abandoned attempt is counted as a retry")
	}
}

// checkVersions: a changed flight carries the version of the command, except where only a used nonce or duplicates were
// added. So a person who decides on a version has seen every other change.
func (s *step) versions() {
	_, counts := s.c.(*flight.Count)
	s.need(s.a.Duplicates == s.b.Duplicates || counts || s.a.State == flight.Expired, "duplicate statistics changed without CountDuplicates")
	if !s.r.Changed {
		return
	}
	if s.a.Version != s.h.Version || counts {
		s.need(len(s.r.Events) == 0, "an event without a new version")
		s.need(s.a.Version == s.b.Version && !s.fresh, "a changed flight carries another version than its command")
		a, b := *s.a, *s.b
		a.UsedNonces, b.UsedNonces = nil, nil
		if counts {
			a.Duplicates, b.Duplicates = nil, nil
		}
		s.need(reflect.DeepEqual(a, b), "a flight changed but kept its version")
		return
	}
	_, opens := s.c.(*flight.Open)
	s.need(!opens || s.b.State != flight.InDoubt, "an Open in doubt changed the version on which a person decides")
}
