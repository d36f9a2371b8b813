package flighttest

import (
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
)

// Check checks one step: the result of Apply for a view and a command. The error names the violated rule or invariant (I1 to
// I10, numbered as in the package comment of flight). Check is stateless: a promise about a history holds if it holds for
// each of its steps. before must be the unchanged argument of Apply.
func Check(before flight.View, c flight.Command, after flight.View, reply flight.Reply) error {
	s := &step{c: c, r: reply, h: before.Header, h2: after.Header, b: orZero(before.Flight), a: orZero(after.Flight),
		saga: before.Saga, sessionEnded: before.SessionEnded, unused: before.Flight == nil}
	s.checkReply(before, after)
	s.checkHeader()
	if reply.Deleted {
		s.checkDeleted()
		return s.violations()
	}
	if after.Flight != nil {
		if err := WellFormed(after.Flight); err != nil {
			s.errs = append(s.errs, err)
		}
	}
	if s.b.Policy.Saga && s.sameGeneration() && s.a.State != flight.StateExpired {
		s.checkVersions()
		s.checkIdentity()
		s.checkSaga()
		return s.violations()
	}
	for _, rule := range [...]func(){s.checkVersions, s.checkGenerations, s.checkIdentity, s.checkOpening, s.checkClosing, s.checkHolderTime, s.checkProceed, s.checkPrecedence,
		s.checkAnswers, s.checkSessions, s.checkReports, s.checkEvidence, s.checkReceipts, s.checkEndings, s.checkTaint, s.checkAbandons, s.checkRetries, s.checkVerifications, s.checkPersons,
		s.checkSteps, s.checkNonces, s.checkBodies, s.checkImports, s.checkRestores} {
		rule()
	}
	return s.violations()
}

func (s *step) violations() error {
	if len(s.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%T answered %v, %v to %v: %w", s.c, s.r.Decision, s.b.State, s.a.State, errors.Join(s.errs...))
}

// CheckRepeat checks invariant I10 for a command that was applied again to its own result, at the same time. The second
// answer may differ from the first, but the flight must not change, except for the count of repeated evidence.
func CheckRepeat(first, second flight.View, c flight.Command, repeated flight.Reply) error {
	a, b := orZero(first.Flight), orZero(second.Flight)
	if !repeated.Changed {
		return nil
	}
	if a.State != b.State || a.Fence != b.Fence || a.AttemptCount != b.AttemptCount || a.Generation != b.Generation ||
		a.TaintingAttempts != b.TaintingAttempts || a.CountedAttempts != b.CountedAttempts || a.Receipt != b.Receipt || len(a.Evidence) != len(b.Evidence) ||
		len(a.UsedNonces) != len(b.UsedNonces) || len(a.PreviousGenerations) != len(b.PreviousGenerations) || a.Verifications != b.Verifications || a.Phase != b.Phase ||
		a.Duplicates != b.Duplicates {
		return fmt.Errorf("I10: a repeated %T changed the flight once more: %+v to %+v", c, *a, *b)
	}
	return nil
}

// step is the input of the checks: command c, reply r, header h and flight b before, header h2 and flight a after. b and a
// are never nil: a key that was never used is an empty flight.
type step struct {
	c            flight.Command
	r            flight.Reply
	h, h2        flight.Header
	b, a         *flight.Flight
	saga         *flight.Flight
	sessionEnded bool // the session of an Open is remembered as ended
	unused       bool
	errs         []error
}

func orZero(f *flight.Flight) *flight.Flight {
	if f == nil {
		return &flight.Flight{}
	}
	return f
}

func (s *step) require(ok bool, complaint string) {
	if !ok {
		s.errs = append(s.errs, errors.New(complaint))
	}
}

// sameGeneration reports whether the flight before and the flight after are of the same generation.
func (s *step) sameGeneration() bool { return s.a.Generation == s.b.Generation }

// opened reports whether this step opened an attempt.
func (s *step) opened() bool {
	return s.a.AttemptCount > s.b.AttemptCount && s.sameGeneration() || s.unused && s.a.AttemptCount > 0
}

// token is the token under which an attempt may report.
func (s *step) token(a *flight.Attempt) flight.Token {
	return flight.Token{StoreEpoch: s.h.StoreEpoch, Number: a.Number}
}

// names reports whether the token names the attempt: after a restore it may be the one under which the attempt was opened.
func (s *step) names(token flight.Token, a *flight.Attempt) bool {
	return token == s.token(a) || token == flight.Token{StoreEpoch: a.StoreEpoch, Number: a.Number}
}

func (s *step) checkReply(before, after flight.View) {
	s.require(s.r.Flight == after.Flight, "the flights of reply and view differ")
	s.require(s.r.Changed == (before.Flight != after.Flight), "Changed is wrong")
	s.require(after.Saga == before.Saga, "the saga was changed by a command to its step")
	s.require(s.r.Decision != flight.DecisionNone, "no decision")
	s.require(s.a.State == s.b.State || len(s.r.Events) > 0, "a change of state without an event")
	s.require(!s.r.More, "Apply set More, which only the state machine may set")
}

// checkDeleted: a record is deleted only if it has nothing but used nonces, and every Open that carries one has expired.
func (s *step) checkDeleted() {
	b := s.b
	c, expires := s.c.(*flight.Expire)
	s.require(expires && s.r.Decision == flight.DecisionAccepted && c.Generation == b.Generation && s.r.Flight == nil, "a record was deleted by another command than its Expire")
	s.require(b.State == flight.StateAbsent && b.Generation == 1 && b.Fence.IsZero() && len(b.PreviousGenerations)+len(b.Evidence) == 0 && !b.Overlap, "a record was deleted that guards its key")
	s.require(s.unexpiredNonces(b) == 0, "I10: a used nonce was forgotten")
}

func (s *step) checkHeader() {
	h, g := s.h, s.h2
	_, boots := s.c.(*flight.Bootstrap)
	_, raises := s.c.(*flight.RaiseEpoch)
	restore, restores := s.c.(*flight.Restore)
	finish, finishes := s.c.(*flight.FinishRestore)
	restored := g.StoreEpoch != h.StoreEpoch && !boots
	step := time.Duration(0)
	if c, ticks := s.c.(*flight.Tick); ticks {
		step = max(0, c.StepTo.Until(h.Now))
	}
	s.require(g.Now == h.Now.Add(step) && g.Steps == h.Steps+step && g.Version == h.Version, "the command changed the header's time or version")
	s.require(step == 0 || h.EpochHold == 0 || g.EpochHold == h.EpochHold.Add(step), "a step of the clock shortened the hold of an old lease epoch")
	s.require(boots && h.Deployment == "" || g.Deployment == h.Deployment, "the deployment changed")
	s.require(boots || g.LeaseEpoch == h.LeaseEpoch || (raises || restored) && g.LeaseEpoch == h.LeaseEpoch+1, "the lease epoch jumped")
	s.require(!restored || restores && !restore.Moved && restore.From == h.StoreEpoch && g.StoreEpoch > h.StoreEpoch && g.Reconciling && g.RestoredFrom == h.StoreEpoch &&
		g.LeaseEpoch > h.LeaseEpoch && g.EpochHold >= h.Now.Add(max(restore.Hold, flight.MaxOpenLife)), "the store epoch changed without a restore")
	s.require(g.Reconciling == h.Reconciling || restored || finishes && finish.Epoch == h.StoreEpoch && (finish.Force || h.Now >= h.EpochHold),
		"a restore was finished before its hold had passed, or without a word")
	s.require(g.EpochHold >= h.EpochHold, "the hold of an old lease epoch was shortened")
	switch c, records := s.c.(*flight.RecordGuard); {
	case g.LeaseEpoch != h.LeaseEpoch:
		s.require(g.GuardCounter == 0, "a new lease epoch kept the old counter of the guard key")
	case records && c.Epoch == h.LeaseEpoch:
		s.require(g.GuardCounter == max(h.GuardCounter, c.Counter), "a counter of the guard key was not recorded, or fell")
	default:
		s.require(g.GuardCounter == h.GuardCounter, "the counter of the guard key was changed by another command than RecordGuard")
	}
}

// checkGenerations: only Retry and FreeKey start a new generation (I4).
func (s *step) checkGenerations() {
	a, b := s.a, s.b
	if s.unused {
		lost, isReport := s.c.(*flight.Report)
		s.require(a.Generation <= 1 || isReport && a.Generation == lost.Generation, "the first generation must be 1, or the generation of a lost attempt")
		return
	}
	if _, lost := s.lostReport(); lost && b.State == flight.StateAbsent {
		return
	}
	if s.sameGeneration() {
		_, frees := s.c.(*flight.FreeKey)
		_, retries := s.c.(*flight.Retry)
		began := b.Submitted() && b.InputGeneration < b.Generation // a retry began it
		s.require(s.r.Decision != flight.DecisionAccepted || !(frees || retries) || len(b.PreviousGenerations) > 0 && began == retries,
			"a free or a retry was accepted, and did nothing now or before")
		return
	}
	s.require(a.Generation == b.Generation+1, "the generation did not rise by one")
	s.require(a.Fence == b.Fence, "I2: the fence did not survive the end of a generation")
	s.require(b.State.Terminal() && b.TaintingAttempts == 0, "I4: a generation in progress or a tainted one was ended")
	s.require(a.Receipt == nil && a.AttemptCount == 0, "a new generation started with a receipt or attempts")
	s.require(!b.Sealed, "a sealed key was freed")
	s.require(len(a.PreviousGenerations) == len(b.PreviousGenerations)+1 && a.PreviousGenerations[len(a.PreviousGenerations)-1].Receipt == b.Receipt, "I4: the receipt is missing from the previous generations")
	switch s.c.(type) {
	case *flight.Retry:
		s.require(b.Receipt == nil && b.State != flight.StateExpired, "I4: a flight that ended with a receipt was retried")
		s.require(b.Redacted == nil, "a flight with an erased input was retried")
		state := flight.StateReady
		if a.Policy.Approval {
			state = flight.StateAwaitingApproval
		}
		s.require(a.State == state && a.Fingerprint == b.Fingerprint && a.Policy == b.Policy && a.Input.Digest == b.Input.Digest,
			"a retry changed the input or the policy")
	case *flight.FreeKey:
		s.require(a.State == flight.StateAbsent, "a freed key is not absent")
	default:
		s.require(false, "I4: another command than Retry or FreeKey ended a generation")
	}
}

// checkIdentity: the first submission never changes (I6).
func (s *step) checkIdentity() {
	a, b := s.a, s.b
	if !s.sameGeneration() || b.State == flight.StateAbsent || a.State == flight.StateExpired {
		return
	}
	s.require(a.Key == b.Key && a.ID == b.ID, "the key changed")
	s.require(a.Fingerprint == b.Fingerprint && a.Policy == b.Policy && a.Input.Digest == b.Input.Digest && a.InputGeneration == b.InputGeneration,
		"I6: the first submission changed")
	s.require(b.Cancel == nil || a.Cancel == b.Cancel, "a cancellation was removed")
	s.require(!b.Overlap || a.Overlap, "an overlap was removed")
}

// checkPrecedence: conflict before expired before replay (I6).
func (s *step) checkPrecedence() {
	var fp flight.Fingerprint
	switch c := s.c.(type) {
	case *flight.Open:
		fp = c.Submission.Fingerprint
	case *flight.Submit:
		fp = c.Submission.Fingerprint
	case *flight.Import:
		return // answered by its receipt: see checkImports
	default:
		s.require(s.r.Decision != flight.DecisionConflict, "a conflict without a submission")
		return
	}
	want := finalAnswer(s.b, fp)
	if want != flight.DecisionNone {
		s.require(s.r.Decision == want && !s.r.Changed, "I6: a flight that is over must answer "+want.String())
		return
	}
	d := s.r.Decision
	s.require(d != flight.DecisionConflict && d != flight.DecisionExpired && (d != flight.DecisionReplay || s.endedUnknown()), "I6: conflict, expired or replay for a flight in progress")
}

// finalAnswer is the answer to a submission for a flight that is over or has another input; else DecisionNone.
func finalAnswer(b *flight.Flight, fp flight.Fingerprint) flight.Decision {
	switch {
	case b.State == flight.StateAbsent:
	case !b.Fingerprint.Matches(fp):
		return flight.DecisionConflict
	case b.State == flight.StateExpired:
		return flight.DecisionExpired
	case b.State.Terminal():
		return flight.DecisionReplay
	}
	return flight.DecisionNone
}
