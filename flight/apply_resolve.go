package flight

func (t *transition) cancel(c *Cancel) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return DecisionNotFound
	case f.State == StateCancelled && c.Generation == f.Generation:
		return DecisionAccepted
	case f.State.Terminal() || c.Generation != f.Generation, f.Phase == PhaseCommitted:
		return DecisionFailedPrecondition
	case t.sagaIsLive() && c.Driver.IsZero():
		return DecisionFailedPrecondition
	case !c.Driver.IsZero() && !t.isDriver(c.Driver):
		return DecisionFenced
	case t.sagaIsLive() && f.OpenAttempt() == nil && t.mayEndUnknown():
		t.endUnknown()
		return DecisionAccepted
	case t.sagaIsLive() && (f.OpenAttempt() != nil || f.Tainted() || f.State == StateInDoubt):
		return DecisionFailedPrecondition // its own policy finds out what has happened
	case f.Cancel != nil:
		return DecisionAccepted // the first cancellation is recorded
	}
	f = t.editFlight()
	f.Cancel = &Attribution{Actor: Sanitize(c.Actor), Reason: Sanitize(c.Reason), At: t.header.Now}
	started := (f.AttemptCount > 0 || t.header.Reconciling) && f.Policy.Saga // its steps may have happened after the backup
	switch {
	case f.State == StateWaiting && !f.Wake.Callback, started && (f.State == StateScheduled || f.State == StateAwaitingApproval):
		f.NotBefore, f.Wake = 0, nil
		t.makeReady() // the saga's steps must be undone
	case f.OpenAttempt() != nil, f.Verifying(), f.State == StateInDoubt, started:
	case f.Tainted():
		t.verifyOrHold("cancelled while an effect of unknown outcome may have happened")
	default:
		t.endWithoutReceipt(StateCancelled, f.Cancel.Reason)
		return DecisionAccepted
	}
	t.emit(EventCancelRequested, Event{Actor: f.Cancel.Actor, Note: f.Cancel.Reason})
	return DecisionAccepted
}

// resolve applies a person's decision about a flight in doubt. It is accepted only for the version that the person had seen.
func (t *transition) resolve(c *Resolve) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return DecisionNotFound
	case c.Generation != f.Generation:
		return DecisionFailedPrecondition
	case f.Resolution != nil && f.Resolution.Finding == c.Finding && f.Resolution.Version == c.Version && c.attaches(f.Receipt):
		return DecisionAccepted // a repeat
	case f.State != StateInDoubt || f.Version != c.Version:
		return DecisionFailedPrecondition
	}
	by := Attribution{Actor: Sanitize(c.Actor), Reason: Sanitize(c.Reason), At: t.header.Now}
	number := f.AttemptNumber()
	f = t.editFlight()
	f.Resolution = &Resolution{Finding: c.Finding, Version: c.Version, By: by}
	t.emit(EventResolved, Event{Attempt: number, Actor: by.Actor, Note: describeFinding(c.Finding, by.Reason)})
	switch c.Finding {
	case FindingHappened:
		t.endWithReceipt(Receipt{Outcome: OutcomeSucceeded, ExternalID: c.ExternalID, Body: c.Body, Attempt: number, Source: SourcePerson})
	case FindingNotHappened:
		t.untaintAll()
		f.CountedAttempts = 0 // a person's decision restarts the count of the retry policy
		switch {
		case f.Cancel != nil:
			t.endWithoutReceipt(StateCancelled, f.Cancel.Reason)
		case !f.Submitted():
			f.State, f.CreatedAt, f.Cause = StateAbsent, 0, "" // the next Open brings input and policy
		case t.isStopped():
			t.endWithoutReceipt(StateCancelled, sagaStopped)
		default:
			t.reschedule(0)
		}
	case FindingFail:
		t.endWithoutReceipt(StateFailed, describeFinding(c.Finding, by.Reason))
	default:
		t.after, t.events = nil, nil
		return DecisionFailedPrecondition
	}
	return DecisionAccepted
}

// attaches reports whether r is the receipt that c attaches. A command that attaches no receipt matches any r.
func (c *Resolve) attaches(r *Receipt) bool {
	if c.Finding != FindingHappened {
		return true
	}
	return r != nil && r.ExternalID == c.ExternalID && r.Body.Digest == c.Body.Digest && r.Body.ContentType == c.Body.ContentType
}

func describeFinding(v Finding, why string) string {
	if why == "" {
		return v.String()
	}
	return v.String() + ": " + why
}

// retry reopens a flight that ended without a receipt.
func (t *transition) retry(c *Retry) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return DecisionNotFound
	case f.reopened(c.Generation, true):
		return DecisionAccepted // a repeat
	case f.Generation != c.Generation || !f.Reopenable(), t.belongsToSaga():
		return DecisionFailedPrecondition
	}
	by := Attribution{Actor: Sanitize(c.Actor), Reason: Sanitize(c.Reason), At: t.header.Now}
	f = t.editFlight()
	next := t.nextGeneration(by)
	next.Fingerprint, next.Input, next.InputGeneration, next.Policy = f.Fingerprint, f.Input, f.InputGeneration, f.Policy
	next.CreatedAt = t.header.Now
	t.emit(EventRetried, Event{Actor: by.Actor, Note: by.Reason})
	t.makeReady()
	if next.Policy.Approval { // that of an earlier generation is used up
		next.State, next.Requester = StateAwaitingApproval, by.Actor
	}
	if f.Place != nil {
		queue := f.Place.Queue
		queue.RunAt = 0
		t.enqueue(queue)
	}
	return DecisionAccepted
}

// freeKey lets the next Open run the effect again.
func (t *transition) freeKey(c *FreeKey) Decision {
	f := t.flight()
	switch {
	case f == nil:
		return DecisionNotFound
	case f.reopened(c.Generation, false):
		return DecisionAccepted // a repeat
	case f.Generation != c.Generation || !f.State.Terminal() || f.Sealed, t.belongsToSaga():
		return DecisionFailedPrecondition
	}
	by := Attribution{Actor: Sanitize(c.Actor), Reason: Sanitize(c.Reason), At: t.header.Now}
	t.nextGeneration(by)
	t.emit(EventFreed, Event{Actor: by.Actor, Note: by.Reason})
	return DecisionAccepted
}

// expire replaces the record by a tombstone (invariant I4), which has only the fields that still guard the key. It deletes a
// record that holds nothing but expired nonces.
func (t *transition) expire(c *Expire) Decision {
	f := t.flight()
	switch deletable := f.DeletableAt(); {
	case deletable > 0 && f.Generation == c.Generation && t.header.Now >= deletable:
		t.deleted = true
		return DecisionAccepted
	case t.absent():
		return DecisionNotFound
	case f.Generation != c.Generation:
		return DecisionFailedPrecondition
	case f.State == StateExpired:
		return DecisionAccepted
	case !f.State.Terminal() || t.header.Now < f.ExpiresAt():
		return DecisionFailedPrecondition
	case t.saga != nil && t.saga.State != StateExpired:
		return DecisionFailedPrecondition // receipts of steps are kept as long as their saga
	}
	f = t.editFlight()
	tomb := &Flight{ID: f.ID, Generation: f.Generation, State: StateExpired, FinalState: f.State, Fence: f.Fence, Fingerprint: f.Fingerprint,
		Overlap: f.Overlap, Sealed: f.Sealed, UsedNonces: t.usedNoncesOf(f)}
	if r := f.Receipt; r != nil {
		tomb.Receipt = &Receipt{Outcome: r.Outcome, Body: Blob{Digest: r.Body.Digest}}
	}
	t.after = tomb
	t.emit(EventExpired, Event{})
	return DecisionAccepted
}

func (t *transition) bootstrap(c *Bootstrap) Decision {
	if t.header.Deployment == "" {
		t.header.Deployment, t.header.Secret = c.Deployment, c.Secret
		t.header.LeaseEpoch, t.header.StoreEpoch = 1, 1
	}
	return DecisionAccepted
}

func (t *transition) raiseEpoch(c *RaiseEpoch) Decision {
	switch t.header.LeaseEpoch {
	case c.From + 1:
		return DecisionAccepted // a repeat
	case c.From:
		t.header.LeaseEpoch++
		t.header.GuardCounter = 0
		t.header.EpochHold = max(t.header.EpochHold, t.header.Now.Add(c.Hold))
		return DecisionAccepted
	}
	return DecisionFailedPrecondition
}

// recordGuard stores the counter of the guard key of the present lease epoch. The stored counter never falls.
func (t *transition) recordGuard(c *RecordGuard) Decision {
	if c.Epoch != t.header.LeaseEpoch {
		return DecisionFenced
	}
	t.header.GuardCounter = max(t.header.GuardCounter, c.Counter)
	return DecisionAccepted
}
