package flight

// mayOpenStep reports whether a step may be created or opened now; it is true for every flight that is not a step. The
// phase of the saga must permit the step. A driver that performs or submits the step names its own token, and must be the
// saga's open attempt. A worker of a pool names no driver, and opens only a step that a driver has submitted before.
func (t *transition) mayOpenStep(s *Submission) bool {
	switch {
	case !t.key.IsStep():
		return true
	case !t.phaseAllows():
		return false
	case s.Driver.IsZero():
		return !t.absent()
	}
	driver := t.saga.OpenAttempt()
	return driver != nil && t.header.TokenOf(driver) == s.Driver
}

// phaseAllows reports whether an attempt of this flight may open in the present phase of its saga: forward steps in
// Forward, undos in Undoing.
func (t *transition) phaseAllows() bool {
	switch {
	case !t.key.IsStep():
		return true
	case t.saga == nil || t.saga.State.Terminal():
		return false
	case t.key.IsUndo():
		return t.saga.Phase == PhaseUndoing
	}
	return t.saga.Phase == PhaseForward
}

// beginUndo changes the phase of a saga to undoing, on request of its newest driver. The change is permanent.
func (t *transition) beginUndo(c *BeginUndo) Decision {
	f := t.flight()
	a := f.Newest()
	if a == nil || c.Generation != f.Generation || t.header.TokenOf(a) != c.Token || !a.IsOpen() || f.Phase == PhaseNone {
		return DecisionFenced
	}
	if f.Phase == PhaseForward {
		t.editFlight().Phase = PhaseUndoing
		t.emit(EventUndoBegun, Event{Attempt: a.Number})
	}
	return DecisionAccepted
}

// sealKey permanently closes a key that was never opened.
func (t *transition) sealKey(*SealKey) Decision {
	f := t.flight()
	switch {
	case f != nil && f.Sealed:
		return DecisionAccepted
	case f != nil && (f.Fence.Number > 0 || f.State.Terminal()):
		return DecisionFailedPrecondition
	}
	f = t.editFlight()
	f.Key, f.Sealed = t.key, true
	if f.CreatedAt == 0 {
		f.CreatedAt = t.header.Now
	}
	t.emit(EventSealed, Event{})
	t.endWithoutReceipt(StateCancelled, "sealed: its saga will not start it")
	return DecisionAccepted
}

// suspend puts a saga to sleep, or lets an attempt wait for its callback. It counts no retry. A callback may come before its
// suspend, which then finds the attempt reported and changes nothing.
func (t *transition) suspend(c *Suspend) Decision {
	f := t.flight()
	a := f.Newest()
	if a == nil || c.Generation != f.Generation || !t.isTokenOf(a, c.Token) {
		return DecisionFenced
	}
	if f.State == StateWaiting || c.Wake.Callback && a.ReportedOutcomes != 0 {
		return DecisionAccepted // a repeat, or the callback was faster
	}
	if !a.IsOpen() || !c.Wake.Callback && !f.Policy.Saga {
		return DecisionFenced
	}
	number := a.Number
	if !c.Wake.Callback {
		t.closeAttempt(OutcomeNone)
		t.uncountAttempt()
	}
	f = t.editFlight()
	wake := c.Wake
	f.State, f.Wake, f.Steps = StateWaiting, &wake, t.header.Steps
	t.emit(EventSuspended, Event{Attempt: number})
	if f.Cancel != nil && !wake.Callback {
		f.Wake = nil
		t.makeReady() // cancelled meanwhile: the undo must not wait
	}
	return DecisionAccepted
}

// wakeUp ends a sleep, an open attempt whose time is over, or an approval that did not come in time. For an attempt whose time is not over it returns DecisionBusy
// with the remaining time.
func (t *transition) wakeUp(c *WakeUp) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return DecisionNotFound
	case c.Generation != f.Generation:
		return t.answerCurrent()
	case f.OpenAttempt() != nil:
		if d := t.supersede(); d != DecisionNone {
			return d
		}
		return t.answerCurrent()
	case f.State == StateAwaitingApproval:
		return t.expireApproval()
	case f.State != StateWaiting:
		return t.answerCurrent()
	}
	f = t.editFlight()
	f.Wake = nil
	t.emit(EventWoken, Event{Attempt: f.AttemptNumber()})
	t.makeReady()
	return DecisionAccepted
}
