package flight

import "slices"

// redact permanently erases the bytes of the input and of the receipts of all generations. Outcome, external id and digests
// are kept, so the key is guarded as before. A flight that may still run needs its input and is rejected.
func (t *transition) redact(c *Redact) Decision {
	f := t.flight()
	switch {
	case f == nil:
		return DecisionNotFound
	case f.Generation != c.Generation:
		return DecisionFailedPrecondition
	case f.State == StateExpired:
		return DecisionAccepted // a tombstone has no bytes
	case f.State != StateAbsent && !f.State.Terminal(), t.sagaIsLive():
		return DecisionFailedPrecondition
	case f.State == StateAbsent && !f.storesPreviousBodies():
		return DecisionNotFound
	case f.Redacted != nil:
		return DecisionAccepted // the first redaction is recorded
	}
	by := Attribution{Actor: Sanitize(c.Actor), Reason: Sanitize(c.Reason), At: t.header.Now}
	f = t.editFlight()
	f.Input = f.Input.erased()
	f.Receipt = f.Receipt.erased()
	if f.storesPreviousBodies() {
		f.PreviousGenerations = slices.Clone(f.PreviousGenerations)
		for i := range f.PreviousGenerations {
			f.PreviousGenerations[i].Receipt = f.PreviousGenerations[i].Receipt.erased()
		}
	}
	if f.State != StateAbsent { // the next generation of a freed key may store bytes again
		f.Redacted = &by
	}
	t.emit(EventRedacted, Event{Actor: by.Actor, Note: by.Reason})
	return DecisionAccepted
}

func (f *Flight) storesPreviousBodies() bool {
	return slices.ContainsFunc(f.PreviousGenerations, func(p PreviousGeneration) bool { return p.Receipt != nil && p.Receipt.Body.StoredSize > 0 })
}

// erased returns the blob without its bytes; length and digest are kept.
func (b Blob) erased() Blob {
	b.StoredSize, b.Data = 0, nil
	return b
}

// erased returns a copy of the receipt without the bytes of its body; nil stays nil. The receipt itself is shared and must
// not be modified.
func (r *Receipt) erased() *Receipt {
	if r == nil || r.Body.StoredSize == 0 {
		return r
	}
	without := *r
	without.Body = r.Body.erased()
	return &without
}
