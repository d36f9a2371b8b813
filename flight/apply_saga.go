package flight

// mayStart reports whether a submission may make this flight: every flight that is no step; and a step when its
// saga's driver, and no driver before it, starts it in the right phase.
func (t *turn) mayStart(s *Submission) bool {
	if !t.key.IsStep() {
		return true
	}
	if !t.phaseAllows() {
		return false
	}
	driver := t.saga.OpenAttempt()
	return driver != nil && driver.Token() == s.Driver
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

// turn flips the phase of a saga, by its newest driver, once and for ever.
func (t *turn) turn(c *Turn) Decision {
	f := t.flight()
	a := f.Newest()
	if a == nil || c.Generation != f.Generation || a.Token() != c.Token || !a.Open() || f.Phase == NoPhase {
		return Fenced
	}
	if f.Phase == Forward {
		t.edit().Phase = Undoing
		t.note(EventTurned, Event{Attempt: a.Number})
	}
	return Accepted
}

// seal closes a key that was never opened, for ever.
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

// suspend puts a saga to sleep, or waits for a callback. No retry is counted.
func (t *turn) suspend(c *Suspend) Decision {
	f := t.flight()
	a := f.Newest()
	if a == nil || c.Generation != f.Generation || a.Token() != c.Token {
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
		t.enqueue() // cancelled meanwhile: no sleep before the way back
	}
	return Accepted
}

func (t *turn) wakeUp(c *WakeUp) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case c.Generation != f.Generation || f.State != Waiting:
		return t.standing()
	case f.Wake.Callback:
		if f.Wake.At == 0 || t.header.Now < f.Wake.At {
			return t.busy(f.Wake.At)
		}
		t.lose("the callback did not come in time")
		return t.standing()
	}
	f = t.edit()
	f.Wake = nil
	t.note(EventWoken, Event{Attempt: f.AttemptNumber()})
	t.enqueue()
	return Accepted
}
