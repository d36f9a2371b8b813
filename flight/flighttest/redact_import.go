package flighttest

import "github.com/flightd/flightd/flight"

// checkBodies: stored bytes of bodies are erased only by Redact and by the end of the retention. Redact erases all of them
// and nothing else.
func (s *step) checkBodies() {
	a, b := s.a, s.b
	if c, ok := s.c.(*flight.Redact); ok {
		s.checkRedact(c)
		return
	}
	if a.State == flight.StateExpired || s.unused {
		return
	}
	for i := range b.PreviousGenerations {
		s.require(i < len(a.PreviousGenerations) && a.PreviousGenerations[i].Receipt == b.PreviousGenerations[i].Receipt, "I4: an earlier receipt changed")
	}
	if !s.sameGeneration() || b.State == flight.StateAbsent {
		return
	}
	s.require(a.Input.StoredSize == b.Input.StoredSize, "the input's bytes were erased")
	s.require(a.Redacted == b.Redacted, "a flight was redacted by another command than Redact")
}

func (s *step) checkRedact(c *flight.Redact) {
	a, b := s.a, s.b
	if !s.r.Changed {
		over := b.State == flight.StateExpired || b.Redacted != nil
		s.require(s.r.Decision != flight.DecisionAccepted || over, "a redact was accepted, but nothing was erased")
		return
	}
	s.require(c.Generation == b.Generation, "another generation was redacted than the command names")
	s.require(b.State == flight.StateAbsent || b.State.Terminal(), "a flight in progress lost its input")
	s.require(a.State == b.State && isErasedBlob(&a.Input, &b.Input), "a redact changed more than stored bytes")
	s.require(isErased(a.Receipt, b.Receipt), "I4: a receipt changed")
	s.require(len(a.PreviousGenerations) == len(b.PreviousGenerations) && storedBytes(a) == 0, "a redact left stored bytes")
	for i := range b.PreviousGenerations {
		s.require(isErased(a.PreviousGenerations[i].Receipt, b.PreviousGenerations[i].Receipt), "I4: an earlier receipt changed")
	}
	if b.State != flight.StateAbsent {
		s.require(a.Redacted != nil && a.Redacted.Actor == c.Actor && a.Redacted.Reason == c.Reason, "author and reason of a redact were not stored")
	}
}

// checkImports: an import creates the flight of a key that was never used, and changes no other flight.
func (s *step) checkImports() {
	c, ok := s.c.(*flight.Import)
	if !ok {
		return
	}
	a, b := s.a, s.b
	if s.importsLost() {
		s.require(s.r.Decision == flight.DecisionAccepted && s.r.Changed && a.State == flight.StateSucceeded, "an import was not stored while the ledger is reconciling")
		return
	}
	unused := b.State == flight.StateAbsent && (b.Generation <= 1 || s.h.Reconciling)
	may := unused && s.mayImport(c)
	s.require(s.r.Changed == may, "an import changed a used key, or did not store an unused one")
	if may {
		s.require(s.r.Decision == flight.DecisionAccepted && a.State.Terminal() && a.Receipt != nil, "an imported receipt was not stored")
		s.require(a.CreatedAt > 0 && a.CreatedAt <= a.FinishedAt && a.FinishedAt <= s.h.Now, "the times of an import are not in order")
		s.require(a.AttemptCount == 0 && a.Fence == b.Fence && a.Policy.Retention == c.Retention, "an import opened an attempt, or changed fence or retention")
		return
	}
	r := b.Receipt
	same := r != nil && b.Fingerprint.Matches(c.Fingerprint) && r.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest)
	switch s.r.Decision {
	case flight.DecisionAccepted:
		s.require(same && r.Source == flight.SourceImport, "an import was accepted for a flight that was not imported")
	case flight.DecisionReplay:
		s.require(same && b.State.Terminal(), "replay for an import of another receipt")
	case flight.DecisionConflict:
		s.require(!same, "a conflict for an import of the stored receipt")
	case flight.DecisionExpired:
		s.require(b.State == flight.StateExpired, "expired for an import of a key without a tombstone")
	default:
		known := c.Key.IsStep() || !c.Outcome.Final() || !b.State.Terminal()
		s.require(known, "an import for a finished flight was not answered by its receipt")
	}
}

// importsLost reports whether the command imports the receipt of an effect that a restored ledger has lost, into a flight that
// it still has.
func (s *step) importsLost() bool {
	c, ok := s.c.(*flight.Import)
	b := s.b
	return ok && s.h.Reconciling && c.Outcome == flight.OutcomeSucceeded && b.State != flight.StateAbsent && b.State != flight.StateExpired &&
		b.Receipt == nil && !b.Sealed && !b.Policy.Saga && b.Fingerprint.Matches(c.Fingerprint)
}

// mayImport reports whether the outcome may be imported for the key: for a step, only a success that a restored ledger has lost.
func (s *step) mayImport(c *flight.Import) bool {
	return c.Outcome == flight.OutcomeSucceeded && (!c.Key.IsStep() || s.h.Reconciling) || c.Outcome == flight.OutcomeRefused && !c.Key.IsStep()
}

func storedBytes(f *flight.Flight) int {
	n := f.Input.StoredSize
	if f.Receipt != nil {
		n += f.Receipt.Body.StoredSize
	}
	for i := range f.PreviousGenerations {
		if r := f.PreviousGenerations[i].Receipt; r != nil {
			n += r.Body.StoredSize
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
	return a.StoredSize == 0 && len(a.Data) == 0 && a.Size == b.Size && a.Digest == b.Digest && a.ContentType == b.ContentType
}
