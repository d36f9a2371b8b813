package flighttest

import (
	"slices"

	"github.com/flightd/flightd/flight"
)

// lostReport returns the report of an attempt that a restored ledger may have lost: of another store epoch, or with a number
// above the fence; for a flight without a receipt. ok is false for every other command, and for a report that is evidence alone.
func (s *step) lostReport() (c *flight.Report, ok bool) {
	c, isReport := s.c.(*flight.Report)
	b := s.b
	if !isReport || c.Token.StoreEpoch == s.h.StoreEpoch && !s.unused && c.Token.Number <= b.Fence.Number || s.fromNewest(c) || b.Receipt != nil || b.Sealed || b.State == flight.StateExpired {
		return c, false
	}
	if !s.unused && c.Generation != b.Generation && (b.State != flight.StateAbsent || c.Generation < b.Generation) {
		return c, false
	}
	return c, c.Outcome == flight.OutcomeSucceeded || c.Outcome == flight.OutcomeUnknown && !b.State.Terminal() && !s.needsNoEvidence(c)
}

// isLostSuccess reports whether the command is the late report of a success that a restored ledger has lost.
func (s *step) isLostSuccess() bool {
	c, ok := s.lostReport()
	return ok && c.Outcome == flight.OutcomeSucceeded
}

// checkRestores: while a ledger is reconciling nothing opens; a lost success is the receipt of a flight
// without one, and an unknown outcome taints it.
func (s *step) checkRestores() {
	a, b := s.a, s.b
	if s.h.Reconciling {
		s.require(!s.opened(), "an attempt was opened before the restore was finished")
		s.require(s.r.Decision != flight.DecisionProceed && s.r.Decision != flight.DecisionVerify, "a caller may act before the restore is finished")
	}
	c, ok := s.lostReport()
	if !ok {
		return
	}
	s.require(s.r.Decision == flight.DecisionAccepted, "a report that a restored ledger has lost was rejected")
	s.require(!s.r.Changed || a.Generation == max(b.Generation, c.Generation), "a lost flight does not continue in the generation of its report")
	known := findEvidence(b, c)
	if c.Outcome == flight.OutcomeSucceeded {
		s.require(a.State == flight.StateSucceeded, "a lost success was not stored")
		return
	}
	s.require(known == !s.r.Changed, "a repeated report changed the flight, or a new one did not")
	if known {
		return
	}
	doubts := a.State == flight.StateInDoubt || a.Verification != nil || a.OpenAttempt() != nil
	s.require((doubts && a.Tainted() || s.endedUnknown()) && (findEvidence(a, c) || a.EvidenceOmitted > b.EvidenceOmitted), "a lost unknown outcome left no doubt")
}

func findEvidence(f *flight.Flight, c *flight.Report) bool {
	return slices.ContainsFunc(f.Evidence, func(e flight.Evidence) bool {
		return e.Token == c.Token && e.Generation == c.Generation && e.Outcome == c.Outcome && e.ExternalID == c.ExternalID && e.Digest == c.Body.Digest
	})
}

// lostUnknowns is the greatest number of taints that do not belong to a stored attempt.
func lostUnknowns(f *flight.Flight) uint32 {
	n := f.EvidenceOmitted
	for _, e := range f.Evidence {
		n += countIf(e.Outcome == flight.OutcomeUnknown)
	}
	return n
}
