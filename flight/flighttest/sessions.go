package flighttest

import (
	"reflect"
	"slices"

	"github.com/flightd/flightd/flight"
)

// proves reports whether an Ended proves that a session is over (rule 4): the read was made after the session was, in this
// history of etcd; or the session is of an older one whose hold is over.
func (s *step) proves(c *flight.Ended, x flight.Session) bool {
	if c.StoreEpoch != s.h.StoreEpoch || c.Epoch != s.h.LeaseEpoch {
		return false
	}
	if x.Epoch == s.h.LeaseEpoch {
		return c.ReadRevision >= x.Revision && c.Counter >= s.h.Guard
	}
	return x.Epoch < s.h.LeaseEpoch && s.h.Now >= s.h.EpochHold
}

// sessions: what Ended and Withdraw answer, and that they change nothing but what the session holds.
func (s *step) sessions() {
	holder := s.b.Holder()
	switch c := s.c.(type) {
	case *flight.Ended:
		s.need((s.r.Decision == flight.Accepted) == s.proves(c, c.Session) || holder != nil && !s.proves(c, *holder), "a proof was taken wrongly")
		s.need(s.r.Decision == flight.Accepted || s.r.Decision == flight.Fenced && !s.r.Changed, "a refused proof changed something")
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

// nonceKnown reports whether a flight knows that a nonce opens nothing more.
func nonceKnown(f *flight.Flight, nonce flight.Nonce) bool {
	return opened(f, nonce) || slices.ContainsFunc(f.UsedNonces, func(n flight.UsedNonce) bool { return n.Nonce == nonce })
}

// remembered is how many used nonces of a flight have not expired.
func (s *step) remembered(f *flight.Flight) int {
	n := 0
	for i := range f.UsedNonces {
		if f.UsedNonces[i].Until >= s.h.Now {
			n++
		}
	}
	return n
}

// nonces: one that was used stays so for as long as an Open that carries it can be valid (I10).
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
		s.need(nonceKnown(b, n.Nonce) || s.names(n.Nonce), "a nonce was marked as used that nobody named")
	}
	s.usedUp()
}

// usedUp: which answers mean that the nonce opens nothing any more.
func (s *step) usedUp() {
	switch c := s.c.(type) {
	case *flight.Abandon:
		valid := c.NotAfter >= s.h.Now && s.r.Decision == flight.Accepted
		s.need(!valid || nonceKnown(s.a, c.Nonce), "I10: an abandoned Open may still open")
	case *flight.Open:
		d := s.r.Decision
		far := d == flight.OpenExpired && c.NotAfter > s.h.Now && c.NotAfter <= s.h.Now.Add(flight.MaxNonceLife)
		s.need(!far || nonceKnown(s.a, c.Nonce), "I10: an Open that was refused as too far ahead may still open")
		s.need(d != flight.Look && d != flight.Doubtful || nonceKnown(s.a, c.Nonce) || !s.r.Changed, "I10: an Open that was answered may still open")
	}
}

// names reports whether the command carries the nonce.
func (s *step) names(n flight.Nonce) bool {
	switch c := s.c.(type) {
	case *flight.Open:
		return c.Nonce == n
	case *flight.Abandon:
		return c.Nonce == n
	}
	return false
}

// abandons: the word of an attempt's own caller, while it says something new.
func (s *step) abandons() {
	c, ok := s.c.(*flight.Abandon)
	if !ok {
		return
	}
	a, b := s.a, s.b
	n := b.Newest()
	switch {
	case c.StoreEpoch != s.h.StoreEpoch:
		s.need(s.r.Decision == flight.Fenced && !s.r.Changed, "an abandon of another store epoch counted")
	case n == nil || n.Nonce != c.Nonce:
		quiet := a.State == b.State && a.AttemptCount == b.AttemptCount && a.Doubts == b.Doubts && a.Probes == b.Probes
		s.need(quiet, "an abandon of a nonce that is not the newest attempt's changed more than the nonce")
	case b.State.Terminal() || n.Reported != 0 || !n.Open() && !n.Lost:
		s.need(!s.r.Changed, "an attempt that has reported was abandoned")
	case n.Open() && b.State == flight.Waiting:
		s.need(s.r.Decision == flight.Fenced && !s.r.Changed, "an attempt that waits for its callback was abandoned")
	default:
		s.need(s.r.Decision == flight.Accepted, "an abandon of an attempt that sent nothing was refused")
		s.need(!a.State.Terminal() || b.Cancel != nil || a.State == flight.StateFailed, "an abandon ended the flight")
		s.need(a.Doubts == b.Doubts-one(n.Doubt) || a.State.Terminal(), "an abandon did not take back the doubt of its own attempt, or took back more")
		last := a.Newest()
		s.need(last.Number == n.Number && !last.Open() && !last.Doubt && last.Outcome == flight.NotDone, "an abandoned attempt is not noted as not done")
		s.need(a.Counted+1 == b.Counted || b.Counted == 0, "an abandoned attempt counts as a retry")
	}
}

// versions: a flight that changed carries the version of the command, except where nothing was added but a used nonce or
// duplicates. A person who decides by the version that they saw has then seen everything.
func (s *step) versions() {
	_, counts := s.c.(*flight.Count)
	s.need(s.a.Duplicates == s.b.Duplicates || counts || s.a.State == flight.Expired, "a tally changed without a Count")
	if !s.r.Changed {
		return
	}
	if s.a.Version != s.h.Version || counts {
		s.need(len(s.r.Events) == 0, "an event without a version of its own")
		s.need(s.a.Version == s.b.Version && !s.fresh, "a changed flight carries another version than its command")
		a, b := *s.a, *s.b
		a.UsedNonces, b.UsedNonces = nil, nil
		if counts {
			a.Duplicates, b.Duplicates = nil, nil
		}
		s.need(reflect.DeepEqual(a, b), "a flight changed and kept its version")
		return
	}
	_, opens := s.c.(*flight.Open)
	s.need(!opens || s.b.State != flight.InDoubt, "an Open in doubt gave the flight another version than a person has seen")
}
