package flight

import "time"

// retryOrEnd schedules a flight without an open attempt to run again after delay. It ends the flight instead if it was
// cancelled or its retries are exhausted; such a flight that is tainted is verified or held, because a tainted flight never
// ends by itself.
func (t *transition) retryOrEnd(delay time.Duration) {
	f := t.editFlight()
	switch {
	case t.mayEndUnknown():
		t.endUnknown()
		return
	case f.Cancel != nil && f.Tainted():
		t.verifyOrHold("cancelled while an effect of unknown outcome may have happened")
		return
	case f.Cancel != nil:
		t.endWithoutReceipt(StateCancelled, f.Cancel.Reason)
		return
	case t.isStopped() && !f.Tainted():
		t.endWithoutReceipt(StateCancelled, sagaStopped)
		return
	case t.retriesExhausted(delay) && t.mustSettle() && !f.Tainted():
		t.holdForPerson("retries are spent, and it must not fail")
		return
	case t.retriesExhausted(delay) && f.Tainted():
		t.verifyOrHold("retries are spent while an effect of unknown outcome may have happened")
		return
	case t.retriesExhausted(delay):
		t.endWithoutReceipt(StateFailed, "retries are spent")
		return
	case f.Tainted() && !f.WithinWindow(t.latestTime().Add(delay)):
		t.verifyOrHold("the provider may have forgotten our key, so that a resend could be a second effect")
		return
	case f.Tainted() && f.Policy.Recovery != RecoveryResend: // by an attempt that a restore has lost
		t.verifyOrHold("an attempt that the restored ledger has lost may have happened")
		return
	}
	t.reschedule(delay)
}

// reschedule lets a flight without an open attempt run again after delay. It does not check the retry policy.
func (t *transition) reschedule(delay time.Duration) {
	f := t.editFlight()
	f.Verification, f.Wake, f.NotBefore, f.Cause = nil, nil, 0, ""
	if delay > 0 {
		f.NotBefore = t.header.Now.Add(delay)
		t.emit(EventScheduled, Event{Attempt: f.AttemptNumber()})
	}
	t.makeReady()
}

// retriesExhausted reports whether the declared retry policy permits no further attempt after delay.
func (t *transition) retriesExhausted(delay time.Duration) bool {
	f := t.flight()
	p := f.Policy.Retry
	if !p.Declared() {
		return false
	}
	late := p.Within > 0 && f.FirstSend > 0 && t.header.Now.Add(delay) >= f.FirstSend.Add(p.Within)
	return int(f.CountedAttempts) >= p.Attempts || late
}

// retryDelay is the pause before the next attempt: the backoff of the declared policy, or the provider's Retry-After if
// longer.
func (t *transition) retryDelay(asked time.Duration) time.Duration {
	f := t.flight()
	return max(asked, f.Policy.Retry.Backoff(f.ID, int(f.CountedAttempts)))
}

// applyRecovery applies the recovery policy to a tainted flight without an open attempt.
func (t *transition) applyRecovery(delay time.Duration) {
	f := t.editFlight()
	switch {
	case t.mayEndUnknown():
		t.endUnknown()
	case f.Policy.Recovery == RecoveryResend:
		t.retryOrEnd(delay)
	case f.Policy.Recovery == RecoveryVerify:
		t.startVerification()
	default:
		t.holdForPerson("the effect may or may not have happened, and its recovery is hold")
	}
}

// verifyOrHold handles a taint that no resend may end: it starts a look-up if the policy permits one, else waits for a
// person.
func (t *transition) verifyOrHold(cause string) {
	switch {
	case t.mayEndUnknown():
		t.endUnknown()
	case t.editFlight().Policy.CanLookUp():
		t.startVerification()
	default:
		t.holdForPerson(cause)
	}
}

// holdForPerson puts the flight in doubt, until a person resolves it.
func (t *transition) holdForPerson(cause string) {
	f := t.editFlight()
	f.State, f.Verification, f.Wake, f.NotBefore, f.Cause = StateInDoubt, nil, nil, 0, cause
	t.emit(EventInDoubt, Event{Attempt: f.AttemptNumber(), Note: cause})
}
