package flight

import "slices"

// redact erases what was submitted and what the effect left behind, for good: the bytes of the input and of the
// receipts of all generations. That the effect happened, under which external id, and the digests stay, so the key is
// guarded as before. A flight that may still be flown needs its input: it must be settled first.
func (t *turn) redact(c *Redact) Decision {
	f := t.flight()
	switch {
	case f == nil:
		return Missing
	case f.Generation != c.Generation:
		return Precluded
	case f.State == Expired:
		return Accepted // a tombstone keeps no bytes
	case f.State != Absent && !f.State.Terminal():
		return Precluded
	case f.State == Absent && !f.keepsPastBodies():
		return Missing
	case f.Redacted != nil:
		return Accepted // the first one counts
	}
	mark := Mark{Who: Text(c.Who), Why: Text(c.Why), At: t.header.Now}
	f = t.edit()
	f.Input = f.Input.erased()
	f.Receipt = f.Receipt.erased()
	if f.keepsPastBodies() {
		f.Past = slices.Clone(f.Past)
		for i := range f.Past {
			f.Past[i].Receipt = f.Past[i].Receipt.erased()
		}
	}
	if f.State != Absent { // of a freed key the next generation keeps what it brings
		f.Redacted = &mark
	}
	t.note(EventRedacted, Event{Who: mark.Who, Note: mark.Why})
	return Accepted
}

func (f *Flight) keepsPastBodies() bool {
	return slices.ContainsFunc(f.Past, func(p Past) bool { return p.Receipt != nil && p.Receipt.Body.Kept > 0 })
}

// erased is the blob without its bytes: what it was is known by its length and digest.
func (b Blob) erased() Blob {
	b.Kept, b.Data = 0, nil
	return b
}

// erased is the receipt without the bytes of its body; nil stays nil. A receipt is shared, so this is another one.
func (r *Receipt) erased() *Receipt {
	if r == nil || r.Body.Kept == 0 {
		return r
	}
	without := *r
	without.Body = r.Body.erased()
	return &without
}

// bring takes in the receipt of an effect that happened before flightd was asked, or that another system vouches for.
// It makes the flight of a key that was never used, already over. A key that is known is left alone: what this ledger
// saw itself is worth more.
func (t *turn) bring(c *Import) Decision {
	f := t.flight()
	switch {
	case t.key.IsStep() || !c.Outcome.Final():
		return Precluded
	case t.absent() && f != nil && f.Generation > 1:
		return Precluded // a person freed it so that the effect runs again
	case t.absent():
		t.adopt(c)
		return Accepted
	case !f.Fingerprint.Matches(c.Fingerprint):
		return Conflict
	case f.State == Expired:
		return Gone
	case !f.State.Terminal():
		return t.inTheWay()
	case f.Receipt == nil || !f.Receipt.SameEffect(c.Outcome, Text(c.ExternalID), c.Body.Digest):
		return Conflict
	case f.Receipt.Source == FromImport:
		return Accepted // a repeat
	}
	return Replay
}

// inTheWay answers an import of a key that somebody is at.
func (t *turn) inTheWay() Decision {
	if d := t.standing(); d != Accepted {
		return d
	}
	return Busy
}

// adopt makes the flight that an import tells of. No attempt was opened here, so the fence stays where it is.
func (t *turn) adopt(c *Import) {
	f := t.edit()
	f.Key = t.key
	f.Fingerprint, f.Input, f.InputFrom = c.Fingerprint, c.Input, f.Generation
	f.Policy = Policy{Retention: c.Retention}
	r := Receipt{Outcome: c.Outcome, ExternalID: Text(c.ExternalID), Body: c.Body, Source: FromImport}
	f.Receipt, f.State = &r, StateSucceeded
	if r.Outcome == Refused {
		f.State = StateFailed
	}
	t.end("")
	f.FinishedAt = t.since(c.FinishedAt, t.header.Now)
	f.CreatedAt = t.since(c.CreatedAt, f.FinishedAt)
	r.At = f.FinishedAt
	t.note(EventImported, Event{Outcome: c.Outcome, Who: Text(c.Who), Note: r.ExternalID})
	t.compareAll()
}

// since is a time that somebody else noted: not after what came later, and that where none was noted.
func (t *turn) since(noted, later Time) Time {
	if noted <= 0 {
		return later
	}
	return min(noted, later)
}
