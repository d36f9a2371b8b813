package flighttest

import (
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Check judges one step: what Apply made of a view and a command. The error names the invariant (I1 to I10, as the
// package comment of flight numbers them) or the rule that was broken. It keeps no memory: a promise about a history
// holds when it holds for each of its steps. Before must be what Apply was given, unchanged.
func Check(before flight.View, c flight.Command, after flight.View, reply flight.Reply) error {
	s := &step{c: c, r: reply, h: before.Header, h2: after.Header, b: orEmpty(before.Flight), a: orEmpty(after.Flight),
		saga: before.Saga, ended: before.Ended, fresh: before.Flight == nil}
	s.bookkeeping(before, after)
	s.header()
	if reply.Deleted {
		s.deleted()
		return s.verdict()
	}
	if after.Flight != nil {
		if err := WellFormed(after.Flight); err != nil {
			s.errs = append(s.errs, err)
		}
	}
	for _, rule := range [...]func(){s.versions, s.generations, s.identity, s.opening, s.closing, s.proceeding, s.precedence,
		s.answers, s.sessions, s.reports, s.evidence, s.receipts, s.endings, s.doubts, s.abandons, s.retries, s.looks, s.persons,
		s.sagas, s.nonces, s.bytes, s.imports} {
		rule()
	}
	return s.verdict()
}

func (s *step) verdict() error {
	if len(s.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%T answered %v, %v to %v: %w", s.c, s.r.Decision, s.b.State, s.a.State, errors.Join(s.errs...))
}

// CheckRepeat judges invariant I10: what the same command did to the view that it had left behind, at the same time.
// It may say something else now, but it must leave everything as it is, but for a count of repeated evidence.
func CheckRepeat(first, second flight.View, c flight.Command, again flight.Reply) error {
	a, b := orEmpty(first.Flight), orEmpty(second.Flight)
	if !again.Changed {
		return nil
	}
	if a.State != b.State || a.Fence != b.Fence || a.AttemptCount != b.AttemptCount || a.Generation != b.Generation ||
		a.Doubts != b.Doubts || a.Counted != b.Counted || a.Receipt != b.Receipt || len(a.Evidence) != len(b.Evidence) ||
		len(a.UsedNonces) != len(b.UsedNonces) || len(a.Past) != len(b.Past) || a.Probes != b.Probes || a.Phase != b.Phase ||
		a.Duplicates != b.Duplicates {
		return fmt.Errorf("I10: a repeated %T changed the flight once more: %+v to %+v", c, *a, *b)
	}
	return nil
}

// step is what the rules look at. b and a are never nil: a key that was never used is an empty flight.
type step struct {
	c     flight.Command
	r     flight.Reply
	h, h2 flight.Header
	b, a  *flight.Flight
	saga  *flight.Flight
	ended bool // the session of an Open is remembered as ended
	fresh bool
	errs  []error
}

func orEmpty(f *flight.Flight) *flight.Flight {
	if f == nil {
		return &flight.Flight{}
	}
	return f
}

func (s *step) need(ok bool, complaint string) {
	if !ok {
		s.errs = append(s.errs, errors.New(complaint))
	}
}

// sameGeneration reports whether the flight before and after are of one generation that had begun.
func (s *step) sameGeneration() bool { return s.a.Generation == s.b.Generation }

// opened reports whether this step opened an attempt.
func (s *step) opened() bool {
	return s.a.AttemptCount > s.b.AttemptCount && s.sameGeneration() || s.fresh && s.a.AttemptCount > 0
}

// token is the token under which an attempt may report.
func (s *step) token(a *flight.Attempt) flight.Token {
	return flight.Token{StoreEpoch: s.h.StoreEpoch, Number: a.Number}
}

func (s *step) bookkeeping(before, after flight.View) {
	s.need(s.r.Flight == after.Flight, "the reply shows another flight than the view")
	s.need(s.r.Changed == (before.Flight != after.Flight), "Changed does not say whether the flight changed")
	s.need(after.Saga == before.Saga, "the saga was changed by a command to its step")
	s.need(s.r.Decision != flight.NoDecision, "no decision")
	s.need(s.a.State == s.b.State || len(s.r.Events) > 0, "a change of state without an event")
	s.need(!s.r.More, "More is the state machine's to set")
}

// deleted: a record goes away only where it holds nothing but used nonces, of which no Open can be valid any more.
func (s *step) deleted() {
	b := s.b
	c, expires := s.c.(*flight.Expire)
	s.need(expires && s.r.Decision == flight.Accepted && c.Generation == b.Generation && s.r.Flight == nil, "a record was deleted by something else than an Expire of it")
	s.need(b.State == flight.Absent && b.Generation == 1 && b.Fence.IsZero() && len(b.Past)+len(b.Evidence) == 0 && !b.Overlap, "a record was deleted that guards its key")
	s.need(s.remembered(b) == 0, "I10: a used nonce was forgotten")
}

func (s *step) header() {
	h, g := s.h, s.h2
	_, boots := s.c.(*flight.Bootstrap)
	_, raises := s.c.(*flight.RaiseEpoch)
	s.need(g.Now == h.Now && g.Version == h.Version, "the header's time and version are not the command's to change")
	s.need(boots && h.Deployment == "" || g.Deployment == h.Deployment && g.StoreEpoch == h.StoreEpoch, "the deployment changed")
	s.need(boots || g.LeaseEpoch == h.LeaseEpoch || raises && g.LeaseEpoch == h.LeaseEpoch+1, "the lease epoch jumped")
	s.need(g.EpochHold >= h.EpochHold, "the time in which nothing of an old epoch is taken over was cut short")
	switch c, records := s.c.(*flight.RecordGuard); {
	case g.LeaseEpoch != h.LeaseEpoch:
		s.need(g.Guard == 0, "a new lease epoch starts with a counter of its own")
	case records && c.Epoch == h.LeaseEpoch:
		s.need(g.Guard == max(h.Guard, c.Counter), "a counter of the guard key was not recorded, or fell")
	default:
		s.need(g.Guard == h.Guard, "the counter of the guard key was changed by something else than its record")
	}
}

// generations: only Retry and Free start a new one (I4).
func (s *step) generations() {
	a, b := s.a, s.b
	if s.fresh {
		lost, isReport := s.c.(*flight.Report)
		s.need(a.Generation <= 1 || isReport && a.Generation == lost.Generation, "the first generation is 1, or that of a lost attempt")
		return
	}
	if s.sameGeneration() {
		return
	}
	s.need(a.Generation == b.Generation+1, "generations rise by one")
	s.need(a.Fence == b.Fence, "I2: the fence did not survive the end of a generation")
	s.need(b.State.Terminal() && b.Doubts == 0, "I4: a living or tainted generation was ended")
	s.need(a.Receipt == nil && a.AttemptCount == 0, "a new generation starts with nothing")
	s.need(!b.Sealed, "a sealed key was let free")
	s.need(len(a.Past) == len(b.Past)+1 && a.Past[len(a.Past)-1].Receipt == b.Receipt, "I4: the receipt left the history")
	switch s.c.(type) {
	case *flight.Retry:
		s.need(b.Receipt == nil && b.State != flight.Expired, "I4: a flight that ended with a receipt was retried")
		s.need(b.Redacted == nil, "a flight was retried whose input is erased")
		s.need(a.State == flight.Queued && a.Fingerprint == b.Fingerprint && a.Policy == b.Policy && a.Input.Digest == b.Input.Digest,
			"a retry runs the same input under the same policy")
	case *flight.Free:
		s.need(a.State == flight.Absent, "a freed key is absent")
	default:
		s.need(false, "I4: only Retry and Free end a generation")
	}
}

// identity: the first submission is never changed (I6).
func (s *step) identity() {
	a, b := s.a, s.b
	if !s.sameGeneration() || b.State == flight.Absent || a.State == flight.Expired {
		return
	}
	s.need(a.Key == b.Key && a.ID == b.ID, "the key changed")
	s.need(a.Fingerprint == b.Fingerprint && a.Policy == b.Policy && a.Input.Digest == b.Input.Digest && a.InputFrom == b.InputFrom,
		"I6: the first submission does not stand")
	s.need(b.Cancel == nil || a.Cancel == b.Cancel, "a cancel mark went away")
	s.need(!b.Overlap || a.Overlap, "an overlap was forgotten")
}

// precedence: conflict before gone before replay (I6).
func (s *step) precedence() {
	var fp flight.Fingerprint
	switch c := s.c.(type) {
	case *flight.Open:
		fp = c.Submission.Fingerprint
	case *flight.Submit:
		fp = c.Submission.Fingerprint
	case *flight.Import:
		return // it brings a receipt, and is answered by that: see imports
	default:
		s.need(s.r.Decision != flight.Conflict, "a conflict without a submission")
		return
	}
	want := settled(s.b, fp)
	if want != flight.NoDecision {
		s.need(s.r.Decision == want && !s.r.Changed, "I6: a settled key answers "+want.String())
		return
	}
	d := s.r.Decision
	s.need(d != flight.Conflict && d != flight.Gone && d != flight.Replay, "I6: an answer that is not true")
}

// settled is the answer to a submission where the key is settled; else NoDecision.
func settled(b *flight.Flight, fp flight.Fingerprint) flight.Decision {
	switch {
	case b.State == flight.Absent:
	case !b.Fingerprint.Matches(fp):
		return flight.Conflict
	case b.State == flight.Expired:
		return flight.Gone
	case b.State.Terminal():
		return flight.Replay
	}
	return flight.NoDecision
}
