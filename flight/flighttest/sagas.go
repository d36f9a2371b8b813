package flighttest

import "github.com/flightd/flightd/flight"

// checkSaga: I9 for the saga's own flight. A driver performs nothing, so that its attempts leave no doubt; every command that drives is
// accepted only under the token of the open attempt.
func (s *step) checkSaga() {
	a, b := s.a, s.b
	at := b.OpenAttempt()
	drives := func(token flight.Token, generation uint32) bool {
		return at != nil && s.names(token, at) && generation == b.Generation
	}
	s.require(a.TaintingAttempts <= b.TaintingAttempts && a.Verification == nil && len(a.Evidence) == len(b.Evidence) && a.Overlap == b.Overlap, "I9: a saga has a doubt of its own")
	s.require(a.Holder() == nil, "a session holds a saga")
	may := b.State == a.State && b.Phase == a.Phase && b.AttemptCount == a.AttemptCount && (b.Cancel == nil) == (a.Cancel == nil)
	switch c := s.c.(type) {
	case *flight.Open:
		opened := a.AttemptCount == b.AttemptCount+1 && s.r.Decision == flight.DecisionProceed
		n := a.Newest()
		repeat := at != nil && at.Nonce == c.Nonce && c.StoreEpoch == s.h.StoreEpoch && !s.h.Reconciling
		s.require(!opened || !b.State.Terminal() && c.Session == (flight.Session{}) && n.Session == c.Session && a.State == flight.StateRunning && b.Phase == a.Phase, "I9: an Open that must not drive was accepted")
		s.require(!opened || a.Fence.Compare(b.Fence) > 0 && a.Fence.Number == b.Fence.Number+1 && n.IsOpen(), "I2: the token does not rise by one")
		s.require(opened || (s.r.Decision == flight.DecisionProceed) == repeat, "I9: proceed without an attempt")
		may = may || opened
	case *flight.Suspend:
		slept := drives(c.Token, c.Generation) && a.OpenAttempt() == nil && b.Phase == a.Phase
		unseen := b.Cancel != nil && !c.Wake.Marked
		s.require(!slept || (a.State == flight.StateReady) == unseen && (a.State == flight.StateWaiting) == !unseen, "I9: a saga sleeps although it was cancelled after its driver has looked")
		may = may || slept
	case *flight.Report:
		may = may || drives(c.Token, c.Generation) && c.Outcome.Final() && a.State.Terminal() && a.Receipt != nil && a.Receipt.Outcome == c.Outcome
	case *flight.BeginUndo:
		may = may || drives(c.Token, c.Generation) && b.Phase == flight.PhaseForward && a.Phase == flight.PhaseUndoing && b.Cancel != nil && a.State == b.State
	case *flight.PassPivot:
		may = may || drives(c.Token, c.Generation) && b.Phase == flight.PhaseForward && a.Phase == flight.PhaseCommitted && a.State == b.State
	case *flight.WakeUp:
		may = may || b.State == flight.StateWaiting && a.State == flight.StateReady && b.Phase == a.Phase
	case *flight.Cancel:
		unstarted := b.AttemptCount == 0 && a.State == flight.StateCancelled && !s.h.Reconciling
		asleep := (b.State == flight.StateWaiting || b.State == flight.StateAwaitingApproval && s.h.Reconciling) && a.State == flight.StateReady
		may = may || b.Phase == flight.PhaseForward && b.Phase == a.Phase && a.Cancel != nil && (a.State == b.State || unstarted || asleep)
	case *flight.SealKey:
		may = may || b.AttemptCount == 0 && a.Sealed
	}
	s.require(may, "I9: a saga was changed by a command that must not change it")
	s.require(!b.State.Terminal() || a.State == b.State && a.Receipt == b.Receipt || s.redacts(), "I4: a saga changed after its end")
}

func (s *step) imports() bool { _, ok := s.c.(*flight.Import); return ok }

func (s *step) redacts() bool { _, ok := s.c.(*flight.Redact); return ok }

// stepMayStart: I9. A step starts only in its phase.
func (s *step) stepMayStart(key flight.Key) bool {
	switch {
	case !isLive(s.saga):
		return false
	case key.IsUndo():
		return s.saga.Phase == flight.PhaseUndoing
	}
	return s.saga.Phase == flight.PhaseCommitted || s.saga.Phase == flight.PhaseForward && s.saga.Cancel == nil
}

// stepMayOpen: I9. A step opens after its driver has submitted it; after a cancel only to find out what has happened.
func (s *step) stepMayOpen(key flight.Key) bool {
	if !key.IsStep() {
		return true
	}
	settles := s.saga != nil && !s.saga.State.Terminal() && s.saga.Phase == flight.PhaseForward && s.b.Tainted() && !key.IsUndo()
	return s.b.State != flight.StateAbsent && (settles || s.stepMayStart(key))
}

// stopped: the step ends as soon as it has surely not happened.
func (s *step) stopped() bool {
	key := s.c.Target()
	return key.IsStep() && s.saga != nil && !s.stepMayStart(key)
}

// endedUnknown: nobody knows whether the step has happened, and its undo settles it.
func (s *step) endedUnknown() bool { return s.a.Unknown && !s.b.Unknown }

// isLive reports whether a saga has begun and not ended. Without a flight there may still be evidence of one that is lost.
func isLive(saga *flight.Flight) bool {
	return saga != nil && saga.State != flight.StateAbsent && !saga.State.Terminal()
}

// mustNotFail: instead of failing, the step waits for a person.
func (s *step) mustNotFail() bool {
	key := s.c.Target()
	return key.IsUndo() || key.IsStep() && isLive(s.saga) && s.saga.Phase == flight.PhaseCommitted
}

// checkSteps: I9. No step starts in the wrong phase, or under a stale driver; and none that must not fail does.
func (s *step) checkSteps() {
	a, b := s.a, s.b
	s.require(!b.Sealed || a.Sealed, "a seal was removed")
	s.require(!b.Sealed || !s.opened(), "a sealed key was opened")
	key := s.c.Target()
	began := b.State == flight.StateAbsent && a.State != flight.StateAbsent && !a.Sealed
	if _, lost := s.lostReport(); lost || s.imports() || !key.IsStep() {
		return
	}
	if s.opened() {
		s.require(s.stepMayOpen(key), "I9: a step was opened in the wrong phase")
	}
	submit, isSubmit := s.c.(*flight.Submit)
	if began {
		var driver *flight.Attempt
		if s.saga != nil {
			driver = s.saga.OpenAttempt()
		}
		s.require(isSubmit && driver != nil && s.token(driver) == submit.Submission.Driver, "I9: a stale driver started a step")
		s.require(s.stepMayStart(key), "I9: a step was started in the wrong phase")
	}
	if _, ok := s.c.(*flight.Cancel); ok && s.r.Changed && isLive(s.saga) {
		unstarted := !b.Tainted() && b.State != flight.StateInDoubt
		s.require(b.OpenAttempt() == nil && a.State == flight.StateCancelled && (unstarted || s.endedUnknown()), "I9: a driver cancelled a step that may have happened")
	}
	s.require(!s.endedUnknown() || b.Policy.SafeIfAbsent && !key.IsUndo() && s.stopped() && isLive(s.saga) && s.minTaint() > 0 && a.State == flight.StateCancelled,
		"I9: a step ended with an unknown outcome, and nothing undoes it")
	_, resolved := s.c.(*flight.Resolve)
	s.require(!s.mustNotFail() || a.State != flight.StateFailed || b.State.Terminal() || resolved, "I9: a step that must not fail has failed")
	s.require(!a.State.Terminal() || a.State == flight.StateExpired || a.Ended != (flight.Version{}), "the end of a step has no version")
}
