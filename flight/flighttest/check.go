package flighttest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/flightd/flightd/flight"
)

// Check judges one step: what Apply made of a view and a command. The error names the invariant (I1 to I10, as the
// package comment of flight numbers them) or the rule that was broken. It keeps no memory: a promise about a history
// holds when it holds for each of its steps. Before must be what Apply was given, unchanged.
func Check(before flight.View, c flight.Command, after flight.View, reply flight.Reply) error {
	s := &step{c: c, r: reply, h: before.Header, h2: after.Header, b: orEmpty(before.Flight), a: orEmpty(after.Flight),
		saga: before.Saga, fresh: before.Flight == nil}
	s.bookkeeping(before, after)
	s.header()
	if after.Flight != nil {
		if err := WellFormed(after.Flight); err != nil {
			s.errs = append(s.errs, err)
		}
	}
	for _, rule := range [...]func(){s.generations, s.identity, s.opening, s.closing, s.proceeding, s.precedence, s.reports,
		s.evidence, s.receipts, s.endings, s.doubts, s.retries, s.looks, s.persons, s.sagas, s.nonces, s.bytes, s.imports} {
		rule()
	}
	if len(s.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%T answered %v, %v to %v: %w", c, reply.Decision, s.b.State, s.a.State, errors.Join(s.errs...))
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
		len(a.Spent) != len(b.Spent) || len(a.Past) != len(b.Past) || a.Probes != b.Probes || a.Phase != b.Phase || a.Duplicates != b.Duplicates {
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

func (s *step) bookkeeping(before, after flight.View) {
	s.need(s.r.Flight == after.Flight, "the reply shows another flight than the view")
	s.need(s.r.Changed == (before.Flight != after.Flight), "Changed does not say whether the flight changed")
	if _, counts := s.c.(*flight.Count); counts {
		s.counted()
	} else {
		s.need(!s.r.Changed || s.a.Version == s.h.Version, "a changed flight carries another version than its command")
		s.need(s.a.Duplicates == s.b.Duplicates || s.a.State == flight.Expired, "a tally changed without a Count")
	}
	s.need(after.Saga == before.Saga, "the saga was changed by a command to its step")
	s.need(s.r.Decision != flight.NoDecision, "no decision")
	s.need(s.a.State == s.b.State || len(s.r.Events) > 0, "a change of state without an event")
}

// counted: a Count changes the tally and nothing else.
func (s *step) counted() {
	a, b := *s.a, *s.b
	a.Duplicates, b.Duplicates = nil, nil
	s.need(reflect.DeepEqual(a, b), "a Count changed more than the tally")
}

func (s *step) header() {
	h, g := s.h, s.h2
	_, boots := s.c.(*flight.Bootstrap)
	_, raises := s.c.(*flight.RaiseEpoch)
	s.need(g.Now == h.Now && g.Version == h.Version, "the header's time and version are not the command's to change")
	s.need(boots && h.Deployment == "" || g.Deployment == h.Deployment && g.StoreEpoch == h.StoreEpoch, "the deployment changed")
	s.need(boots || g.LeaseEpoch == h.LeaseEpoch || raises && g.LeaseEpoch == h.LeaseEpoch+1, "I2: the lease epoch jumped")
	s.need(g.LeaseEpoch != h.LeaseEpoch || g.MaxRevision >= h.MaxRevision, "I2: the highest revision fell")
	s.need(g.EpochHold >= h.EpochHold, "the time in which nothing of an old epoch is taken over was cut short")
}

// generations: only Retry and Free start a new one (I4).
func (s *step) generations() {
	a, b := s.a, s.b
	if s.fresh {
		s.need(a.Generation <= 1, "the first generation is 1")
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

// identity: what the first submission said stands (I6).
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

// opening: I1, I2, I5 and the doors before an effect.
func (s *step) opening() {
	a, b := s.a, s.b
	if !s.opened() {
		s.need(a.Fence == b.Fence, "I2: the fence moved without an attempt")
		return
	}
	c, isOpen := s.c.(*flight.Open)
	if !isOpen {
		s.need(false, "I5: an attempt was opened by something else than an Open")
		return
	}
	s.need(s.r.Decision == flight.Proceed, "I5: an attempt was opened, and nobody was told")
	s.need(a.Fence.Compare(b.Fence) > 0 && a.Fence.Number == b.Fence.Number+1, "I2: the token does not rise")
	s.need(a.Fence.Epoch == c.Claim.Epoch && a.Fence.Revision == c.Claim.Revision, "I2: the token is not the claim's")
	s.need(a.Newest().Claim == c.Claim && a.Newest().Nonce == c.Nonce, "the attempt is not the asker's")
	s.need(c.Claim.Epoch == s.h.LeaseEpoch, "I2: an attempt was opened under another lease epoch")
	s.need(c.StoreEpoch == s.h.StoreEpoch, "an attempt was opened by a command of another store epoch")
	s.need(s.h.Now <= c.NotAfter, "an Open opened after its NotAfter")
	s.need(!nonceKnown(b, c.Claim.Session, c.Nonce), "I10: a nonce opened a second attempt")
	s.need(b.State != flight.InDoubt && b.State != flight.AwaitingApproval && b.Probe == nil, "an attempt was opened past a doubt or an approval")
	s.need(!b.State.Terminal(), "I4: an attempt was opened after the end")
	s.need(b.NotBefore <= s.h.Now, "an attempt was opened before its time")
	s.need(b.Cancel == nil || a.Policy.Saga, "an attempt was opened after a cancel")
	s.need(!a.Tainted() || a.Policy.Saga || a.Policy.Recovery == flight.Resend && a.WithinWindow(s.h.Now), "an attempt was opened over a doubt that a resend may not end")
	r := a.Policy.Retry
	s.need(!r.Declared() || a.Policy.Saga || int(b.Counted) < r.Attempts, "an attempt was opened beyond the retry policy")
}

// closing: an open attempt ends by its own word, or because its holder is gone (I1).
func (s *step) closing() {
	b := s.b
	old := b.OpenAttempt()
	if old == nil {
		return
	}
	if still := s.a.OpenAttempt(); still != nil && still.Number == old.Number {
		s.need(still.Nonce == old.Nonce && still.Claim == old.Claim, "an attempt changed hands")
		return
	}
	overdue := b.State == flight.Waiting && b.Wake.At > 0 && s.h.Now >= b.Wake.At
	newer := func(c flight.Claim) bool {
		held := old.Claim.Epoch < s.h.LeaseEpoch && s.h.Now < s.h.EpochHold
		return b.State == flight.Running && c.Epoch == s.h.LeaseEpoch && c.Compare(old.Claim) > 0 && !held
	}
	lost := false
	switch c := s.c.(type) {
	case *flight.Open:
		lost = newer(c.Claim) || overdue
		s.need(lost, "I1: a living attempt was taken over")
	case *flight.Recover:
		lost = newer(c.Claim) || overdue
		s.need(lost, "I1: a living attempt was taken over")
	case *flight.WakeUp:
		lost = overdue
		s.need(lost, "a callback was given up before its time")
	case *flight.Report:
		s.need(c.Token == old.Token(), "I3: an attempt was closed by another one's report")
	case *flight.Suspend:
		s.need(c.Token == old.Token() && b.Policy.Saga, "an attempt was closed by another one's sleep")
	case *flight.Abandon:
		byNonce := c.Token.IsZero() && c.Nonce == old.Nonce && c.Session == old.Claim.Session && (c.Claim == flight.Claim{} || c.Claim == old.Claim)
		s.need(byNonce || c.Token == old.Token(), "an attempt was abandoned by another one")
	default:
		s.need(false, "an attempt was closed by a command that may not")
	}
	if closed := findAttempt(s.a, old.Number); closed != nil && lost {
		s.need(closed.Lost && closed.Outcome == flight.Unknown && closed.Doubt, "a lost attempt left no doubt")
	}
}

// proceeding: Proceed is the only answer that means act, and it is said to the holder of the open attempt alone (I5).
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
	s.need(at != nil && s.a.State == flight.Running, "I5: Proceed was said, and no attempt flies")
	if at != nil {
		s.need(at.Nonce == c.Nonce && at.Claim.Session == c.Claim.Session && s.r.Token == at.Token(), "I1: Proceed was said to a second asker")
		s.need(s.opened() || !s.r.Changed || s.told(), "I10: a repeated Open changed something")
	}
}

// precedence: conflict before gone before replay (I6); an Open that opens nothing moves nothing.
func (s *step) precedence() {
	var fp flight.Fingerprint
	switch c := s.c.(type) {
	case *flight.Open:
		fp = c.Submission.Fingerprint
		taken := s.b.OpenAttempt() != nil && s.a.OpenAttempt() == nil
		s.need(s.r.Decision != flight.Fenced || !s.r.Changed || taken, "an Open that opens nothing moved something")
	case *flight.Submit:
		fp = c.Submission.Fingerprint
	case *flight.Import:
		return // it brings a receipt, and is answered by that: see imports
	default:
		s.need(s.r.Decision != flight.Conflict, "a conflict without a submission")
		return
	}
	d, want := s.r.Decision, flight.NoDecision
	switch b := s.b; {
	case b.State == flight.Absent:
	case !b.Fingerprint.Matches(fp):
		want = flight.Conflict
	case b.State == flight.Expired:
		want = flight.Gone
	case b.State.Terminal():
		want = flight.Replay
	}
	if want != flight.NoDecision {
		s.need(d == want && !s.r.Changed, "I6: a settled key answers "+want.String())
		return
	}
	s.need(d != flight.Conflict && d != flight.Gone && d != flight.Replay, "I6: an answer that is not true")
}

// told reports whether the step did nothing but note that a repeat was answered.
func (s *step) told() bool {
	o, isOpen := s.c.(*flight.Open)
	if !isOpen || !o.Repeat || s.a.OpenAttempt() == nil || !s.a.Newest().Told || s.b.Newest().Told {
		return false
	}
	b := *s.b
	b.Attempts = slices.Clone(b.Attempts)
	b.Attempts[len(b.Attempts)-1].Told, b.Version = true, s.a.Version
	return reflect.DeepEqual(&b, s.a)
}
