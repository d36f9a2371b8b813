package flight

// mayOpenStep reports whether a step may be created or opened now; it is true for every flight that is not a step. The
// phase of the saga must permit the step. A driver that performs or submits the step names its own token, and must be the
// saga's open attempt. A worker of a pool names no driver, and opens only a step that a driver has submitted before.
func (t *turn) mayOpenStep(s *Submission) bool {
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
func (t *turn) phaseAllows() bool {
	switch {
	case !t.key.IsStep():
		return true
	case t.saga == nil || t.saga.State.Terminal():
		return false
	case t.key.IsUndo():
		return t.saga.Phase == Undoing
	}
	return t.saga.Phase == Forward
}

// beginUndo changes the phase of a saga to undoing, on request of its newest driver. The change is permanent.
func (t *turn) turn(c *Turn) Decision {
	f := t.flight()
	a := f.Newest()
	if a == nil || c.Generation != f.Generation || t.header.TokenOf(a) != c.Token || !a.Open() || f.Phase == NoPhase {
		return Fenced
	}
	if f.Phase == Forward {
		t.edit().Phase = Undoing
		t.note(EventTurned, Event{Attempt: a.Number})
	}
	return Accepted
}

// sealKey permanently closes a key that was never opened.
func (t *turn) seal(*Seal) Decision {
	f := t.flight()
	switch {
	case f != nil && f.Sealed:
		return Accepted
	case f != nil && (f.Fence.Number > 0 || f.State.Terminal()):
		return Precluded
	}
	f = t.edit()
	f.Key, f.Sealed = t.key, true
	if f.CreatedAt == 0 {
		f.CreatedAt = t.header.Now
	}
	t.note(EventSealed, Event{})
	t.finish(StateCancelled, "sealed: its saga will not start it")
	return Accepted
}

// suspend puts a saga to sleep, or lets an attempt wait for its callback. It counts no retry.
func (t *turn) suspend(c *Suspend) Decision {
	f := t.flight()
	a := f.Newest()
	if a == nil || c.Generation != f.Generation || t.header.TokenOf(a) != c.Token {
		return Fenced
	}
	if f.State == Waiting {
		return Accepted // a repeat
	}
	if !a.Open() || !c.Wake.Callback && !f.Policy.Saga {
		return Fenced
	}
	number := a.Number
	if !c.Wake.Callback {
		t.close(NoOutcome)
		t.uncount()
	}
	f = t.edit()
	wake := c.Wake
	f.State, f.Wake = Waiting, &wake
	t.note(EventSuspended, Event{Attempt: number})
	if f.Cancel != nil && !wake.Callback {
		f.Wake = nil
		t.enqueue() // cancelled meanwhile: the undo must not wait
	}
	return Accepted
}

// wakeUp ends a sleep, or an open attempt whose time is over. For an attempt whose time is not over it returns DecisionBusy
// with the remaining time.
func (t *turn) wakeUp(c *WakeUp) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case c.Generation != f.Generation:
		return t.standing()
	case f.OpenAttempt() != nil:
		if d := t.overcome(); d != NoDecision {
			return d
		}
		return t.standing()
	case f.State != Waiting:
		return t.standing()
	}
	f = t.edit()
	f.Wake = nil
	t.note(EventWoken, Event{Attempt: f.AttemptNumber()})
	t.enqueue()
	return Accepted
}
