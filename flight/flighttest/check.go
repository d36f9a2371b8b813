package flighttest

import (
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Check checks one step: the result of Apply for a view and a command. The error names the violated rule or invariant (I1 to
// I10, numbered as in the package comment of flight). Check is stateless: a promise about a history holds if it holds for
// each of its steps. before must be the unchanged argument of Apply.
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

// CheckRepeat checks invariant I10 for a command that was applied again to its own result, at the same time. The second
// answer may differ from the first, but the flight must not change, except for the count of repeated evidence.
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

// step is the input of the checks: command c, reply r, header h and flight b before, header h2 and flight a after. b and a
// are never nil: a key that was never used is an empty flight.
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

// sameGeneration reports whether the flight before and the flight after are of the same generation.
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
	s.need(s.r.Flight == after.Flight, "the flights of reply and view differ")
	s.need(s.r.Changed == (before.Flight != after.Flight), "Changed is wrong")
	s.need(after.Saga == before.Saga, "the saga was changed by a command to its step")
	s.need(s.r.Decision != flight.NoDecision, "no decision")
	s.need(s.a.State == s.b.State || len(s.r.Events) > 0, "a change of state without an event")
	s.need(!s.r.More, "Apply set More, which only the state machine may set")
}

// checkDeleted: a record is deleted only if it has nothing but used nonces, and every Open that carries one has expired.
func (s *step) deleted() {
	b := s.b
	c, expires := s.c.(*flight.Expire)
	s.need(expires && s.r.Decision == flight.Accepted && c.Generation == b.Generation && s.r.Flight == nil, "a record was deleted by another command than its Expire")
	s.need(b.State == flight.Absent && b.Generation == 1 && b.Fence.IsZero() && len(b.Past)+len(b.Evidence) == 0 && !b.Overlap, "a record was deleted that guards its key")
	s.need(s.remembered(b) == 0, "I10: a used nonce was forgotten")
}

func (s *step) header() {
	h, g := s.h, s.h2
	_, boots := s.c.(*flight.Bootstrap)
	_, raises := s.c.(*flight.RaiseEpoch)
	s.need(g.Now == h.Now && g.Version == h.Version, "the command changed the header's time or version")
	s.need(boots && h.Deployment == "" || g.Deployment == h.Deployment && g.StoreEpoch == h.StoreEpoch, "the deployment changed")
	s.need(boots || g.LeaseEpoch == h.LeaseEpoch || raises && g.LeaseEpoch == h.LeaseEpoch+1, "the lease epoch jumped")
	s.need(g.EpochHold >= h.EpochHold, "the hold of an old lease epoch was shortened")
	switch c, records := s.c.(*flight.RecordGuard); {
	case g.LeaseEpoch != h.LeaseEpoch:
		s.need(g.Guard == 0, "a new lease epoch kept the old counter of the guard key")
	case records && c.Epoch == h.LeaseEpoch:
		s.need(g.Guard == max(h.Guard, c.Counter), "a counter of the guard key was not recorded, or fell")
	default:
		s.need(g.Guard == h.Guard, "the counter of the guard key was changed by another command than RecordGuard")
	}
}

// checkGenerations: only Retry and FreeKey start a new generation (I4).
func (s *step) generations() {
	a, b := s.a, s.b
	if s.fresh {
		lost, isReport := s.c.(*flight.Report)
		s.need(a.Generation <= 1 || isReport && a.Generation == lost.Generation, "the first generation must be 1, or the generation of a lost attempt")
		return
	}
	if s.sameGeneration() {
		return
	}
	s.need(a.Generation == b.Generation+1, "the generation did not rise by one")
	s.need(a.Fence == b.Fence, "I2: the fence did not survive the end of a generation")
	s.need(b.State.Terminal() && b.Doubts == 0, "I4: a generation in progress or a tainted one was ended")
	s.need(a.Receipt == nil && a.AttemptCount == 0, "a new generation started with a receipt or attempts")
	s.need(!b.Sealed, "a sealed key was freed")
	s.need(len(a.Past) == len(b.Past)+1 && a.Past[len(a.Past)-1].Receipt == b.Receipt, "I4: the receipt is missing from the previous generations")
	switch s.c.(type) {
	case *flight.Retry:
		s.need(b.Receipt == nil && b.State != flight.Expired, "I4: a flight that ended with a receipt was retried")
		s.need(b.Redacted == nil, "a flight with an erased input was retried")
		s.need(a.State == flight.Queued && a.Fingerprint == b.Fingerprint && a.Policy == b.Policy && a.Input.Digest == b.Input.Digest,
			"a retry changed the input or the policy")
	case *flight.Free:
		s.need(a.State == flight.Absent, "a freed key is not absent")
	default:
		s.need(false, "I4: another command than Retry or FreeKey ended a generation")
	}
}

// checkIdentity: the first submission never changes (I6).
func (s *step) identity() {
	a, b := s.a, s.b
	if !s.sameGeneration() || b.State == flight.Absent || a.State == flight.Expired {
		return
	}
	s.need(a.Key == b.Key && a.ID == b.ID, "the key changed")
	s.need(a.Fingerprint == b.Fingerprint && a.Policy == b.Policy && a.Input.Digest == b.Input.Digest && a.InputFrom == b.InputFrom,
		"I6: the first submission changed")
	s.need(b.Cancel == nil || a.Cancel == b.Cancel, "a cancellation was removed")
	s.need(!b.Overlap || a.Overlap, "an overlap was removed")
}

// checkPrecedence: conflict before expired before replay (I6).
func (s *step) precedence() {
	var fp flight.Fingerprint
	switch c := s.c.(type) {
	case *flight.Open:
		fp = c.Submission.Fingerprint
	case *flight.Submit:
		fp = c.Submission.Fingerprint
	case *flight.Import:
		return // answered by its receipt: see checkImports
	default:
		s.need(s.r.Decision != flight.Conflict, "a conflict without a submission")
		return
	}
	want := settled(s.b, fp)
	if want != flight.NoDecision {
		s.need(s.r.Decision == want && !s.r.Changed, "I6: a flight that is over must answer "+want.String())
		return
	}
	d := s.r.Decision
	s.need(d != flight.Conflict && d != flight.Gone && d != flight.Replay, "I6: conflict, expired or replay for a flight in progress")
}

// finalAnswer is the answer to a submission for a flight that is over or has another input; else DecisionNone.
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
