package flight

// stepMayStart reports whether a step may be created, or opened for the first time, in the present phase of its saga: a forward step
// until the saga is cancelled, and again after the pivot; an undo after the flip.
func (t *transition) stepMayStart() bool {
	switch {
	case !t.sagaIsLive():
		return false
	case t.key.IsUndo():
		return t.saga.Phase == PhaseUndoing
	}
	return t.saga.Phase == PhaseCommitted || t.saga.Phase == PhaseForward && t.saga.Cancel == nil
}

// mayCreateStep reports whether a step may be created; it is true for every flight that is not a step. Only the driver that has the saga's
// open attempt creates steps.
func (t *transition) mayCreateStep(driver Token) bool {
	return !t.key.IsStep() || t.stepMayStart() && t.isDriver(driver)
}

// mayOpenStep reports whether an attempt of a step may open; it is true for every flight that is not a step. A step whose outcome is unknown
// goes on when its saga is cancelled: its own policy finds out what has happened, and the flip waits for it.
func (t *transition) mayOpenStep() bool {
	switch {
	case !t.key.IsStep():
		return true
	case t.absent():
		return false
	}
	return t.stepMayStart() || t.sagaIsLive() && t.saga.Phase == PhaseForward && !t.key.IsUndo() && t.flight().Tainted()
}

// isStopped reports whether this step ends as soon as it is known that it has not happened, because it may not start any more. Without this
// rule nobody would open the step again, and nobody would end it.
func (t *transition) isStopped() bool { return t.key.IsStep() && t.saga != nil && !t.stepMayStart() }

const sagaStopped = "its saga does not start it any more"

// mayEndUnknown reports whether this step of unknown outcome may end as it is: its saga does not start it any more, and its undo does no harm
// if it has not happened. Without this rule such a step would wait for somebody to find out, for nothing.
func (t *transition) mayEndUnknown() bool {
	f := t.flight()
	return f.Policy.SafeIfAbsent && f.Tainted() && t.sagaIsLive() && t.isStopped()
}

// endUnknown ends the step. Its undo waits until a request of a lost attempt reaches the provider no more.
func (t *transition) endUnknown() {
	t.editFlight().Unknown = true
	t.endWithoutReceipt(StateCancelled, "its saga undoes it, whether it has happened or not")
	t.editFlight().Steps = t.header.Steps // the time of the settling begins
}

// sagaIsLive reports whether the flight is a step, or an undo, of a saga that is not over.
func (t *transition) sagaIsLive() bool {
	return t.saga != nil && t.saga.State != StateAbsent && !t.saga.State.Terminal()
}

// isDriver reports whether the token is that of the open attempt of the saga of this step.
func (t *transition) isDriver(token Token) bool {
	if !t.sagaIsLive() || token.IsZero() {
		return false
	}
	a := t.saga.OpenAttempt()
	return a != nil && t.header.TokenOf(a) == token
}

// mustSettle reports whether this step must not fail: an undo, and every step after the pivot. Where another flight fails, it waits for a
// person, who lets it run again, attaches a receipt, or lets it pass.
func (t *transition) mustSettle() bool {
	return t.key.IsUndo() || t.key.IsStep() && t.sagaIsLive() && t.saga.Phase == PhaseCommitted
}

// reportSaga ends a saga. Only its driver's open attempt reports; a saga has no evidence, because a driver performs nothing.
func (t *transition) reportSaga(c *Report) Decision {
	f := t.flight()
	a := f.Newest()
	switch {
	case a == nil || c.Generation != f.Generation || t.header.TokenOf(a) != c.Token:
		return DecisionFenced
	case a.IsOpen() && c.Outcome == OutcomeSucceeded && f.Phase == PhaseForward && f.Cancel != nil:
		return DecisionFenced // it was cancelled after the driver has looked
	case a.IsOpen() && c.Outcome.Final():
		t.acceptReport(c)
		return DecisionAccepted
	case a.ReportedOutcomes&outcomeBit(c.Outcome) != 0 && t.isRepeatedReport(c):
		return DecisionAccepted
	}
	return DecisionFenced
}

// endDrive ends the open attempt of an earlier driver, or the sleep, of a saga whose next driver opens it. A driver performs nothing, so its
// attempt leaves no doubt.
func (t *transition) endDrive() {
	f := t.flight()
	switch {
	case f.OpenAttempt() != nil:
		t.closeAttempt(OutcomeNone)
		t.uncountAttempt()
		t.makeReady()
	case f.State == StateWaiting:
		t.editFlight().Wake = nil
		t.makeReady()
	}
}

// drivenSaga returns the saga of a command of its driver; nil: the driver's attempt is not open any more.
func (t *transition) drivenSaga(generation uint32, token Token) *Flight {
	f := t.flight()
	a := f.OpenAttempt()
	if a == nil || generation != f.Generation || !f.Policy.Saga || t.header.TokenOf(a) != token {
		return nil
	}
	return f
}

// beginUndo changes the phase of a cancelled saga to undoing, on request of its driver. The change is permanent.
func (t *transition) beginUndo(c *BeginUndo) Decision {
	f := t.drivenSaga(c.Generation, c.Token)
	switch {
	case f == nil:
		return DecisionFenced
	case f.Phase == PhaseUndoing:
		return DecisionAccepted
	case f.Phase != PhaseForward || f.Cancel == nil:
		return DecisionFailedPrecondition
	}
	t.editFlight().Phase = PhaseUndoing
	t.emit(EventUndoBegun, Event{Attempt: f.Newest().Number, Note: f.Cancel.Reason})
	return DecisionAccepted
}

// passPivot changes the phase of a saga to committed, on request of its driver, who has seen the receipt of the pivot. The change is
// permanent. A cancel that came before it has no effect.
func (t *transition) passPivot(c *PassPivot) Decision {
	f := t.drivenSaga(c.Generation, c.Token)
	switch {
	case f == nil:
		return DecisionFenced
	case f.Phase == PhaseCommitted:
		return DecisionAccepted
	case f.Phase != PhaseForward:
		return DecisionFailedPrecondition
	}
	t.editFlight().Phase = PhaseCommitted
	t.emit(EventPivotPassed, Event{Attempt: f.Newest().Number})
	return DecisionAccepted
}

// sealKey permanently closes a key that was never opened.
func (t *transition) sealKey(c *SealKey) Decision {
	f := t.flight()
	switch {
	case f != nil && f.Sealed:
		return DecisionAccepted
	case t.key.IsStep() && !t.isDriver(c.Driver):
		return DecisionFenced
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
	if !a.IsOpen() || c.Wake.Callback == f.Policy.Saga {
		return DecisionFenced
	}
	number := a.Number
	if f.Policy.Saga {
		t.closeAttempt(OutcomeNone)
		t.uncountAttempt()
	}
	f = t.editFlight()
	wake := c.Wake
	f.State, f.Wake, f.Steps = StateWaiting, &wake, t.header.Steps
	t.emit(EventSuspended, Event{Attempt: number})
	if f.Policy.Saga && f.Cancel != nil && !wake.Marked {
		f.Wake = nil
		t.makeReady() // cancelled after the driver has looked
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
	case f.OpenAttempt() != nil && !f.Policy.Saga:
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

// belongsToSaga reports whether the flight is a saga, or a step of one. Neither is run again by a person: a saga has a new id for each run,
// and its steps have their outcome from their saga.
func (t *transition) belongsToSaga() bool { return t.flight().Policy.Saga || t.saga != nil }
