package flight

import "time"

// retryOrEnd schedules a flight without an open attempt to run again after delay. It ends the flight instead if it was
// cancelled or its retries are exhausted; such a flight that is tainted is verified or held, because a tainted flight never
// ends by itself.
func (t *turn) tryAgain(delay time.Duration) {
	f := t.edit()
	switch {
	case f.Policy.Saga: // driving a saga again has no effect of its own and is never capped; a cancelled saga must be undone
	case f.Cancel != nil && f.Tainted():
		t.escalate("cancelled while an effect of unknown outcome may have happened")
		return
	case f.Cancel != nil:
		t.finish(StateCancelled, f.Cancel.Why)
		return
	case t.spent(delay) && f.Tainted():
		t.escalate("retries are spent while an effect of unknown outcome may have happened")
		return
	case t.spent(delay):
		t.finish(StateFailed, "retries are spent")
		return
	case f.Tainted() && !f.WithinWindow(t.latest().Add(delay)):
		t.escalate("the provider may have forgotten our key, so that a resend could be a second effect")
		return
	}
	t.again(delay)
}

// reschedule lets a flight without an open attempt run again after delay. It does not check the retry policy.
func (t *turn) again(delay time.Duration) {
	f := t.edit()
	f.Probe, f.Wake, f.NotBefore, f.Cause = nil, nil, 0, ""
	if delay > 0 {
		f.NotBefore = t.header.Now.Add(delay)
		t.note(EventScheduled, Event{Attempt: f.AttemptNumber()})
	}
	t.enqueue()
}

// retriesExhausted reports whether the declared retry policy permits no further attempt after delay.
func (t *turn) spent(delay time.Duration) bool {
	f := t.flight()
	p := f.Policy.Retry
	if !p.Declared() {
		return false
	}
	late := p.Within > 0 && f.FirstSend > 0 && t.header.Now.Add(delay) >= f.FirstSend.Add(p.Within)
	return int(f.Counted) >= p.Attempts || late
}

// retryDelay is the pause before the next attempt: the backoff of the declared policy, or the provider's Retry-After if
// longer.
func (t *turn) delay(asked time.Duration) time.Duration {
	f := t.flight()
	return max(asked, f.Policy.Retry.Backoff(f.ID, int(f.Counted)))
}

// applyRecovery applies the recovery policy to a tainted flight without an open attempt.
func (t *turn) settleDoubt(delay time.Duration) {
	f := t.edit()
	switch {
	case f.Policy.Saga, f.Policy.Recovery == Resend:
		t.tryAgain(delay)
	case f.Policy.Recovery == Verify:
		t.startLooking()
	default:
		t.hold("the effect may or may not have happened, and its recovery is hold")
	}
}

// verifyOrHold handles a taint that no resend may end: it starts a look-up if the policy permits one, else waits for a
// person.
func (t *turn) escalate(cause string) {
	if t.edit().Policy.CanLookUp() {
		t.startLooking()
		return
	}
	t.hold(cause)
}

// holdForPerson puts the flight in doubt, until a person resolves it.
func (t *turn) hold(cause string) {
	f := t.edit()
	f.State, f.Probe, f.Wake, f.NotBefore, f.Cause = InDoubt, nil, nil, 0, cause
	t.note(EventInDoubt, Event{Attempt: f.AttemptNumber(), Note: cause})
}
