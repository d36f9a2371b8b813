package flight

import "slices"

// redact permanently erases the bytes of the input and of the receipts of all generations. Outcome, external id and digests
// are kept, so the key is guarded as before. A flight that may still run needs its input and is rejected.
func (t *turn) redact(c *Redact) Decision {
	f := t.flight()
	switch {
	case f == nil:
		return Missing
	case f.Generation != c.Generation:
		return Precluded
	case f.State == Expired:
		return Accepted // a tombstone has no bytes
	case f.State != Absent && !f.State.Terminal():
		return Precluded
	case f.State == Absent && !f.keepsPastBodies():
		return Missing
	case f.Redacted != nil:
		return Accepted // the first redaction is recorded
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
	if f.State != Absent { // the next generation of a freed key may store bytes again
		f.Redacted = &mark
	}
	t.note(EventRedacted, Event{Who: mark.Who, Note: mark.Why})
	return Accepted
}

func (f *Flight) keepsPastBodies() bool {
	return slices.ContainsFunc(f.Past, func(p Past) bool { return p.Receipt != nil && p.Receipt.Body.Kept > 0 })
}

// erased returns the blob without its bytes; length and digest are kept.
func (b Blob) erased() Blob {
	b.Kept, b.Data = 0, nil
	return b
}

// erased returns a copy of the receipt without the bytes of its body; nil stays nil. The receipt itself is shared and must
// not be modified.
func (r *Receipt) erased() *Receipt {
	if r == nil || r.Body.Kept == 0 {
		return r
	}
	without := *r
	without.Body = r.Body.erased()
	return &without
}
