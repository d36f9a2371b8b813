package flighttest

import "github.com/flightd/flightd/flight"

// checkBodies: stored bytes of bodies are erased only by Redact and by the end of the retention. Redact erases all of them
// and nothing else.
func (s *step) bytes() {
	a, b := s.a, s.b
	if c, ok := s.c.(*flight.Redact); ok {
		s.redacted(c)
		return
	}
	if a.State == flight.Expired || s.fresh {
		return
	}
	for i := range b.Past {
		s.need(i < len(a.Past) && a.Past[i].Receipt == b.Past[i].Receipt, "I4: an earlier receipt changed")
	}
	if !s.sameGeneration() || b.State == flight.Absent {
		return
	}
	s.need(a.Input.Kept == b.Input.Kept, "the input's bytes were erased")
	s.need(a.Redacted == b.Redacted, "a flight was redacted by another command than Redact")
}

func (s *step) redacted(c *flight.Redact) {
	a, b := s.a, s.b
	if !s.r.Changed {
		over := b.State == flight.Expired || b.Redacted != nil
		s.need(s.r.Decision != flight.Accepted || over, "a redact was accepted, but nothing was erased")
		return
	}
	s.need(c.Generation == b.Generation, "another generation was redacted than the command names")
	s.need(b.State == flight.Absent || b.State.Terminal(), "a flight in progress lost its input")
	s.need(a.State == b.State && isErasedBlob(&a.Input, &b.Input), "a redact changed more than stored bytes")
	s.need(isErased(a.Receipt, b.Receipt), "I4: a receipt changed")
	s.need(len(a.Past) == len(b.Past) && keptBytes(a) == 0, "a redact left stored bytes")
	for i := range b.Past {
		s.need(isErased(a.Past[i].Receipt, b.Past[i].Receipt), "I4: an earlier receipt changed")
	}
	if b.State != flight.Absent {
		s.need(a.Redacted != nil && a.Redacted.Who == c.Who && a.Redacted.Why == c.Why, "author and reason of a redact were not stored")
	}
}

// checkImports: an import creates the flight of a key that was never used, and changes no other flight.
func (s *step) imports() {
	c, ok := s.c.(*flight.Import)
	if !ok {
		return
	}
	a, b := s.a, s.b
	unused := b.State == flight.Absent && b.Generation <= 1
	may := unused && !c.Key.IsStep() && c.Outcome.Final()
	s.need(s.r.Changed == may, "an import changed a used key, or did not store an unused one")
	if may {
		s.need(s.r.Decision == flight.Accepted && a.State.Terminal() && a.Receipt != nil, "an imported receipt was not stored")
		s.need(a.CreatedAt > 0 && a.CreatedAt <= a.FinishedAt && a.FinishedAt <= s.h.Now, "the times of an import are not in order")
		s.need(a.AttemptCount == 0 && a.Fence == b.Fence && a.Policy.Retention == c.Retention, "an import opened an attempt, or changed fence or retention")
		return
	}
	r := b.Receipt
	same := r != nil && b.Fingerprint.Matches(c.Fingerprint) && r.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest)
	switch s.r.Decision {
	case flight.Accepted:
		s.need(same && r.Source == flight.FromImport, "an import was accepted for a flight that was not imported")
	case flight.Replay:
		s.need(same && b.State.Terminal(), "replay for an import of another receipt")
	case flight.Conflict:
		s.need(!same, "a conflict for an import of the stored receipt")
	case flight.Gone:
		s.need(b.State == flight.Expired, "expired for an import of a key without a tombstone")
	default:
		known := c.Key.IsStep() || !c.Outcome.Final() || !b.State.Terminal()
		s.need(known, "an import for a finished flight was not answered by its receipt")
	}
}

func keptBytes(f *flight.Flight) int {
	n := f.Input.Kept
	if f.Receipt != nil {
		n += f.Receipt.Body.Kept
	}
	for i := range f.Past {
		if r := f.Past[i].Receipt; r != nil {
			n += r.Body.Kept
		}
	}
	return n
}

// isErased reports whether a differs from the receipt b only by the erased bytes of its body.
func isErased(a, b *flight.Receipt) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Outcome == b.Outcome && a.ExternalID == b.ExternalID && a.At == b.At && a.Attempt == b.Attempt && a.Source == b.Source &&
		isErasedBlob(&a.Body, &b.Body)
}

func isErasedBlob(a, b *flight.Blob) bool {
	return a.Kept == 0 && len(a.Data) == 0 && a.Size == b.Size && a.Digest == b.Digest && a.ContentType == b.ContentType
}
