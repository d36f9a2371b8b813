package flight

func (t *turn) cancel(c *Cancel) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case f.State == StateCancelled && c.Generation == f.Generation:
		return Accepted
	case f.State.Terminal() || c.Generation != f.Generation:
		return Precluded
	case f.Cancel != nil:
		return Accepted // the first cancellation is recorded
	}
	f = t.edit()
	f.Cancel = &Mark{Who: Text(c.Who), Why: Text(c.Why), At: t.header.Now}
	started := f.AttemptCount > 0 && f.Policy.Saga
	switch {
	case f.State == Waiting && !f.Wake.Callback, started && f.State == Scheduled:
		f.NotBefore, f.Wake = 0, nil
		t.enqueue() // the saga's steps must be undone
	case f.OpenAttempt() != nil, f.Looking(), f.State == InDoubt, started:
	case f.Tainted():
		t.escalate("cancelled while an effect of unknown outcome may have happened")
	default:
		t.finish(StateCancelled, f.Cancel.Why)
		return Accepted
	}
	t.note(EventCancelRequested, Event{Who: f.Cancel.Who, Note: f.Cancel.Why})
	return Accepted
}

// resolve applies a person's decision about a flight in doubt. It is accepted only for the version that the person had seen.
func (t *turn) resolve(c *Resolve) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case c.Generation != f.Generation:
		return Precluded
	case f.Settled != nil && f.Settled.Verb == c.Verb && f.Settled.Version == c.Version && c.brought(f.Receipt):
		return Accepted // a repeat
	case f.State != InDoubt || f.Version != c.Version:
		return Precluded
	}
	mark := Mark{Who: Text(c.Who), Why: Text(c.Why), At: t.header.Now}
	number := f.AttemptNumber()
	f = t.edit()
	f.Settled = &Settlement{Verb: c.Verb, Version: c.Version, Mark: mark}
	t.note(EventResolved, Event{Attempt: number, Who: mark.Who, Note: resolution(c.Verb, mark.Why)})
	switch c.Verb {
	case Happened:
		t.land(Receipt{Outcome: Succeeded, ExternalID: c.ExternalID, Body: c.Body, Attempt: number, Source: FromPerson})
	case DidNotHappen:
		t.clear()
		f.Counted = 0 // a person's decision restarts the count of the retry policy
		if f.Cancel != nil && !f.Policy.Saga {
			t.finish(StateCancelled, f.Cancel.Why)
		} else {
			t.again(0)
		}
	case Fail:
		t.finish(StateFailed, resolution(c.Verb, mark.Why))
	default:
		t.after, t.events = nil, nil
		return Precluded
	}
	return Accepted
}

// attaches reports whether r is the receipt that c attaches. A command that attaches no receipt matches any r.
func (c *Resolve) brought(r *Receipt) bool {
	if c.Verb != Happened {
		return true
	}
	return r != nil && r.ExternalID == c.ExternalID && r.Body.Digest == c.Body.Digest && r.Body.ContentType == c.Body.ContentType
}

func resolution(v Verb, why string) string {
	if why == "" {
		return v.String()
	}
	return v.String() + ": " + why
}

// decideApproval applies a person's answer to an approval. The first answer in the log decides.
func (t *turn) decide(c *Decide) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case c.Generation != f.Generation || c.Fingerprint != f.Fingerprint:
		return Precluded
	case f.Settled != nil && f.Settled.Verb == c.Verb && f.Settled.Version == c.Version:
		return Accepted // a repeat
	case f.State != AwaitingApproval || f.Version != c.Version:
		return Precluded
	case c.Verb != Approved && c.Verb != Rejected:
		return Precluded
	}
	mark := Mark{Who: Text(c.Who), Why: Text(c.Why), At: t.header.Now}
	t.edit().Settled = &Settlement{Verb: c.Verb, Version: c.Version, Mark: mark}
	if c.Verb == Approved {
		t.note(EventApproved, Event{Who: mark.Who, Note: mark.Why})
		t.enqueue()
		return Accepted
	}
	t.note(EventRejected, Event{Who: mark.Who, Note: mark.Why})
	t.finish(StateCancelled, resolution(c.Verb, mark.Why))
	return Accepted
}

// retry reopens a flight that ended without a receipt.
func (t *turn) retry(c *Retry) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case f.Generation == c.Generation+1:
		return Accepted // a repeat
	case f.Generation != c.Generation || !f.Reopenable():
		return Precluded
	}
	mark := Mark{Who: Text(c.Who), Why: Text(c.Why), At: t.header.Now}
	f = t.edit()
	next := t.nextGeneration(mark)
	next.Fingerprint, next.Input, next.InputFrom, next.Policy = f.Fingerprint, f.Input, f.InputFrom, f.Policy
	next.CreatedAt = t.header.Now
	if next.Policy.Saga {
		next.Phase = Forward
	}
	t.note(EventRetried, Event{Who: mark.Who, Note: mark.Why})
	t.enqueue()
	return Accepted
}

// freeKey lets the next Open run the effect again.
func (t *turn) free(c *Free) Decision {
	f := t.flight()
	switch {
	case f == nil:
		return Missing
	case f.Generation == c.Generation+1:
		return Accepted // a repeat
	case f.Generation != c.Generation || !f.State.Terminal() || f.Sealed:
		return Precluded
	}
	mark := Mark{Who: Text(c.Who), Why: Text(c.Why), At: t.header.Now}
	t.nextGeneration(mark)
	t.note(EventFreed, Event{Who: mark.Who, Note: mark.Why})
	return Accepted
}

// expire replaces the record by a tombstone (invariant I4), which has only the fields that still guard the key. It deletes a
// record that holds nothing but expired nonces.
func (t *turn) expire(c *Expire) Decision {
	f := t.flight()
	switch deletable := f.DeletableAt(); {
	case deletable > 0 && f.Generation == c.Generation && t.header.Now >= deletable:
		t.gone = true
		return Accepted
	case t.absent():
		return Missing
	case f.Generation != c.Generation:
		return Precluded
	case f.State == Expired:
		return Accepted
	case !f.State.Terminal() || t.header.Now < f.ExpiresAt():
		return Precluded
	case t.saga != nil && t.saga.State != Expired:
		return Precluded // receipts of steps are kept as long as their saga
	}
	f = t.edit()
	tomb := &Flight{ID: f.ID, Generation: f.Generation, State: Expired, Was: f.State, Fence: f.Fence, Fingerprint: f.Fingerprint,
		Overlap: f.Overlap, Sealed: f.Sealed, UsedNonces: t.usedNoncesOf(f)}
	if r := f.Receipt; r != nil {
		tomb.Receipt = &Receipt{Outcome: r.Outcome, Body: Blob{Digest: r.Body.Digest}}
	}
	t.after = tomb
	t.note(EventExpired, Event{})
	return Accepted
}

func (t *turn) bootstrap(c *Bootstrap) Decision {
	if t.header.Deployment == "" {
		t.header.Deployment, t.header.Secret = c.Deployment, c.Secret
		t.header.LeaseEpoch, t.header.StoreEpoch = 1, 1
	}
	return Accepted
}

func (t *turn) raiseEpoch(c *RaiseEpoch) Decision {
	switch t.header.LeaseEpoch {
	case c.From + 1:
		return Accepted // a repeat
	case c.From:
		t.header.LeaseEpoch++
		t.header.Guard = 0
		t.header.EpochHold = max(t.header.EpochHold, t.header.Now.Add(c.Hold))
		return Accepted
	}
	return Precluded
}

// recordGuard stores the counter of the guard key of the present lease epoch. The stored counter never falls.
func (t *turn) recordGuard(c *RecordGuard) Decision {
	if c.Epoch != t.header.LeaseEpoch {
		return Fenced
	}
	t.header.Guard = max(t.header.Guard, c.Counter)
	return Accepted
}
