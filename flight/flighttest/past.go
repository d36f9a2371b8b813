package flighttest

import "github.com/flightd/flightd/flight"

// bytes: what is kept of bodies goes by Redact, by the end of the retention, and by nothing else; and by Redact goes
// all of it and nothing more.
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
	s.need(a.Input.Kept == b.Input.Kept, "the input's bytes went away")
	s.need(a.Redacted == b.Redacted, "a flight was redacted by something else than a Redact")
}

func (s *step) redacted(c *flight.Redact) {
	a, b := s.a, s.b
	if !s.r.Changed {
		over := b.State == flight.Expired || b.Redacted != nil
		s.need(s.r.Decision != flight.Accepted || over, "a redact was accepted, and nothing was erased")
		return
	}
	s.need(c.Generation == b.Generation, "a generation was redacted that the person had not seen")
	s.need(b.State == flight.Absent || b.State.Terminal(), "a living flight lost its input")
	s.need(a.State == b.State && isErasedBlob(&a.Input, &b.Input), "a redact changed more than it says")
	s.need(isErased(a.Receipt, b.Receipt), "I4: a receipt changed")
	s.need(len(a.Past) == len(b.Past) && keptBytes(a) == 0, "a redact left bytes behind")
	for i := range b.Past {
		s.need(isErased(a.Past[i].Receipt, b.Past[i].Receipt), "I4: an earlier receipt changed")
	}
	if b.State != flight.Absent {
		s.need(a.Redacted != nil && a.Redacted.Who == c.Who && a.Redacted.Why == c.Why, "who redacted it, and why, was not kept")
	}
}

// imports: one makes the flight of a key that was never used, and touches no other.
func (s *step) imports() {
	c, ok := s.c.(*flight.Import)
	if !ok {
		return
	}
	a, b := s.a, s.b
	unused := b.State == flight.Absent && b.Generation <= 1
	may := unused && !c.Key.IsStep() && c.Outcome.Final()
	s.need(s.r.Changed == may, "an import changed a key that was known, or left one alone that was not")
	if may {
		s.need(s.r.Decision == flight.Accepted && a.State.Terminal() && a.Receipt != nil, "what was brought was not stored")
		s.need(a.CreatedAt > 0 && a.CreatedAt <= a.FinishedAt && a.FinishedAt <= s.h.Now, "an import from the future")
		s.need(a.AttemptCount == 0 && a.Fence == b.Fence && a.Policy.Retention == c.Retention, "an import did more than it says")
		return
	}
	r := b.Receipt
	same := r != nil && b.Fingerprint.Matches(c.Fingerprint) && r.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest)
	switch s.r.Decision {
	case flight.Accepted:
		s.need(same && r.Source == flight.FromImport, "an import was accepted that is none")
	case flight.Replay:
		s.need(same && b.State.Terminal(), "an import was taken for what is stored, and is not")
	case flight.Conflict:
		s.need(!same, "an import conflicts with itself")
	case flight.Gone:
		s.need(b.State == flight.Expired, "an import was called gone")
	default:
		known := c.Key.IsStep() || !c.Outcome.Final() || !b.State.Terminal()
		s.need(known, "an import of a key that is over got no answer about its receipt")
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

// isErased reports whether a is the receipt b without the bytes of its body, and nothing else.
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
