package flighttest

import (
	"slices"

	"github.com/flightd/flightd/flight"
)

// fromNewest reports whether the report belongs to the newest attempt of the present generation, and the flight is not over.
func (s *step) fromNewest(c *flight.Report) bool {
	n := s.b.Newest()
	return n != nil && c.Generation == s.b.Generation && s.names(c.Token, n) && !s.b.State.Terminal()
}

// needsNoEvidence reports whether the same outcome of the same attempt was accepted before, or the outcome is not final and the flight has
// forgotten the attempt: it stores only the newest ones.
func (s *step) needsNoEvidence(c *flight.Report) bool {
	stored := s.b.Attempts
	if c.Generation != s.b.Generation {
		return false
	}
	if len(stored) == flight.MaxAttempts && !c.Outcome.Final() && c.Token.Number < stored[0].Number && c.Token.StoreEpoch == s.h.StoreEpoch {
		return true
	}
	return slices.ContainsFunc(stored, func(x flight.Attempt) bool { return s.names(c.Token, &x) && x.ReportedOutcomes&(1<<c.Outcome) != 0 })
}

// checkReports: I3 and I8.
func (s *step) checkReports() {
	c, ok := s.c.(*flight.Report)
	if !ok {
		return
	}
	a, b := s.a, s.b
	if r := b.Receipt; r != nil && r.Source == flight.SourceReportAfterRestore && s.r.Decision == flight.DecisionAccepted && !s.r.Changed &&
		r.Attempt == c.Token.Number && r.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest) {
		return // a repeat
	}
	if _, lost := s.lostReport(); lost {
		return // see checkRestores
	}
	if !s.fromNewest(c) {
		s.require(a.State == b.State && a.Receipt == b.Receipt && a.TaintingAttempts == b.TaintingAttempts && a.CountedAttempts == b.CountedAttempts &&
			len(a.Attempts) == len(b.Attempts), "I3: a report of a fenced attempt changed the flight")
		if s.r.Decision == flight.DecisionFenced {
			return
		}
		s.require(s.r.Decision == flight.DecisionAccepted && !s.r.Changed && s.needsNoEvidence(c), "I3: a report of a fenced attempt was accepted")
		s.require(!c.Outcome.Final() || b.Unknown || b.Receipt != nil && b.Receipt.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest), "I3: a report with another receipt was accepted as a repeat")
		return
	}
	s.require(s.r.Decision == flight.DecisionAccepted, "I8: the newest attempt's report was rejected")
	n := b.Newest()
	repeated := n.ReportedOutcomes&(1<<c.Outcome) != 0
	others := b.TaintingAttempts - countIf(n.Taints)
	switch c.Outcome {
	case flight.OutcomeSucceeded:
		s.require(a.State == flight.StateSucceeded, "I8: a success was not stored")
	case flight.OutcomeRefused:
		s.require(repeated || others > 0 || a.State == flight.StateFailed && a.Receipt != nil || s.mustNotFail() && a.State == flight.StateInDoubt, "a refusal was not stored")
	case flight.OutcomeUnknown:
		s.require(repeated || a.Tainted() || s.endedUnknown(), "an unknown outcome did not taint the flight")
	case flight.OutcomeNotDone:
		s.require(a.Receipt == nil, "a not_done report stored a receipt")
	}
}

func countIf(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// checkEvidence: a late report is stored, and an overlap is always raised (I3).
func (s *step) checkEvidence() {
	a, b := s.a, s.b
	if a.State == flight.StateExpired && b.State != flight.StateExpired {
		return // a tombstone has no evidence; the history has it
	}
	s.require(len(a.Evidence) >= len(b.Evidence) && a.EvidenceOmitted >= b.EvidenceOmitted, "evidence was removed")
	c, ok := s.c.(*flight.Report)
	if ok && s.r.Decision == flight.DecisionFenced {
		state, receipt, known := finalStateOf(b, c.Generation)
		same := receipt != nil && receipt.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest)
		second := known && c.Outcome == flight.OutcomeSucceeded && state.Terminal() && !same
		s.require(!second || a.Overlap, "I3: an overlap was not raised")
		if b.State == flight.StateExpired && !second {
			s.require(!s.r.Changed, "a tombstone stored a report that proves no second effect")
			return
		}
		kept := slices.ContainsFunc(a.Evidence, func(e flight.Evidence) bool {
			return e.Token == c.Token && e.Generation == c.Generation && e.Outcome == c.Outcome && e.ExternalID == c.ExternalID && e.Digest == c.Body.Digest
		})
		s.require(kept || a.EvidenceOmitted > b.EvidenceOmitted, "I3: a fenced report was not stored")
		allSucceeded := !slices.ContainsFunc(a.Evidence, func(e flight.Evidence) bool { return e.Outcome != flight.OutcomeSucceeded })
		s.require(kept || c.Outcome != flight.OutcomeSucceeded || allSucceeded, "I3: a fenced report of success was counted and not stored")
	}
	if a.State.Terminal() && !b.State.Terminal() {
		for _, e := range a.Evidence {
			another := a.Receipt == nil || !a.Receipt.SameEffect(e.Outcome, e.ExternalID, e.Digest)
			s.require(e.Generation != a.Generation || e.Outcome != flight.OutcomeSucceeded || !another || a.Overlap, "I3: an overlap was not raised at the end")
		}
	}
}

// finalStateOf returns the final state and receipt of a generation, if the flight still has them.
func finalStateOf(f *flight.Flight, generation uint32) (flight.State, *flight.Receipt, bool) {
	if generation == f.Generation {
		if f.State == flight.StateExpired {
			return f.FinalState, f.Receipt, true
		}
		return f.State, f.Receipt, true
	}
	for _, p := range f.PreviousGenerations {
		if p.Generation == generation {
			return p.State, p.Receipt, true
		}
	}
	return flight.StateAbsent, nil, false
}

// checkReceipts: the permitted origins of a receipt; a receipt never changes (I3, I4).
func (s *step) checkReceipts() {
	a, b := s.a, s.b
	if a.Receipt == b.Receipt || !s.sameGeneration() && !s.unused {
		return
	}
	if _, redacts := s.c.(*flight.Redact); redacts && b.Receipt != nil {
		return // a redacted receipt is a new value; see checkRedact
	}
	if b.Receipt != nil {
		expired := a.State == flight.StateExpired && b.State != flight.StateExpired
		s.require(expired && a.Receipt != nil && a.Receipt.Outcome == b.Receipt.Outcome && a.Receipt.Body.Digest == b.Receipt.Body.Digest,
			"I4: a receipt changed")
		return
	}
	r := a.Receipt
	_, imports := s.c.(*flight.Import)
	lost := s.isLostSuccess()
	s.require((r.At == s.h.Now || imports) && (r.Attempt == b.AttemptNumber() || lost || imports && r.Attempt == 0), "a receipt names another time or attempt")
	switch c := s.c.(type) {
	case *flight.Report:
		if lost {
			s.require(r.Outcome == c.Outcome && r.ExternalID == c.ExternalID && r.Body.Digest == c.Body.Digest && r.Source == flight.SourceReportAfterRestore &&
				r.Attempt == c.Token.Number, "the receipt differs from the lost report")
			return
		}
		s.require(s.fromNewest(c), "I3: a receipt came from a fenced attempt")
		s.require(r.Outcome == c.Outcome && r.ExternalID == c.ExternalID && r.Body.Digest == c.Body.Digest && r.Source == flight.SourceReport,
			"the receipt differs from the report")
	case *flight.ReportFinding:
		s.require(s.answersVerification(c) && c.Finding == flight.FindingHappened, "a receipt came from a look-up that was not assigned")
		s.require(r.Outcome == flight.OutcomeSucceeded && r.ExternalID == c.ExternalID && r.Source == flight.SourceLookup, "the receipt differs from the finding")
	case *flight.Resolve:
		s.require(b.State == flight.StateInDoubt && b.Version == c.Version && c.Finding == flight.FindingHappened, "a receipt came from a person who saw another version")
		s.require(r.Outcome == flight.OutcomeSucceeded && r.ExternalID == c.ExternalID && r.Source == flight.SourcePerson, "the receipt differs from the attached one")
	case *flight.DecideApproval:
		s.require(c.Target().IsStep() && c.Finding == flight.FindingApproved && b.State == flight.StateAwaitingApproval && r.Source == flight.SourcePerson &&
			r.Outcome == flight.OutcomeSucceeded && r.Body.Size == 0, "a receipt came from an approval of no gate")
	case *flight.Import:
		s.require(r.Outcome == c.Outcome && r.ExternalID == c.ExternalID && r.Body.Digest == c.Body.Digest && r.Source == flight.SourceImport,
			"the receipt differs from the imported one")
	default:
		s.require(false, "I4: a receipt was stored by a command without one")
	}
}

// checkEndings: a flight that ended does not change (I4), except by expiry.
func (s *step) checkEndings() {
	a, b := s.a, s.b
	if !b.State.Terminal() || !s.sameGeneration() || s.isLostSuccess() || s.importsLost() {
		return
	}
	if a.State == flight.StateExpired && b.State != flight.StateExpired {
		c, ok := s.c.(*flight.Expire)
		s.require(ok && c.Generation == b.Generation && s.h.Now >= b.ExpiresAt(), "I4: a flight expired before its time")
		s.require(s.saga == nil || s.saga.State == flight.StateExpired, "a step expired before its saga")
		s.require(a.Fence == b.Fence && a.Fingerprint == b.Fingerprint && a.FinalState == b.State && a.Generation == b.Generation && a.Sealed == b.Sealed,
			"I4: the tombstone lost a field that guards the key")
		return
	}
	s.require(a.State == b.State && a.TaintingAttempts == b.TaintingAttempts && a.AttemptCount == b.AttemptCount && a.FinishedAt == b.FinishedAt &&
		a.Verification == nil && a.Wake == nil && a.Cause == b.Cause && a.Cancel == b.Cancel, "I4: a flight that had ended changed")
}

// minTaint is the least number of tainting attempts that the command may leave. Only a success, a look-up, a person, or an
// answer under a key that the provider honours clears all of them; an attempt's own report or Abandon clears its own taint.
func (s *step) minTaint() uint32 {
	b := s.b
	doubts, own := b.TaintingAttempts, uint32(0)
	if n := b.Newest(); n != nil {
		own = countIf(n.Taints)
	}
	switch c := s.c.(type) {
	case *flight.Report:
		if _, lost := s.lostReport(); lost {
			return doubts * countIf(c.Outcome == flight.OutcomeUnknown)
		}
		if !s.fromNewest(c) {
			return doubts
		}
		repeated := b.Newest().ReportedOutcomes&(1<<c.Outcome) != 0
		switch {
		case c.Outcome == flight.OutcomeSucceeded:
			return 0
		case c.Outcome == flight.OutcomeRefused && b.Policy.Recovery == flight.RecoveryResend && s.keyKnown(b, 0):
			return 0
		case c.Outcome == flight.OutcomeUnknown:
			return doubts + countIf(own == 0 && !repeated)
		}
		return doubts - own
	case *flight.Import:
		if s.importsLost() {
			return 0
		}
	case *flight.Abandon:
		if n := b.Newest(); n != nil && c.Nonce == n.Nonce && c.StoreEpoch == s.h.StoreEpoch {
			return doubts - own
		}
	case *flight.ReportFinding:
		if s.answersVerification(c) && c.Finding != flight.FindingNone {
			return 0
		}
	case *flight.Resolve:
		if b.State == flight.StateInDoubt && b.Version == c.Version {
			return 0
		}
	}
	if old := b.OpenAttempt(); old != nil && (s.a.OpenAttempt() == nil || s.opened()) {
		if _, asleep := s.c.(*flight.Suspend); !asleep {
			return doubts + 1 // not closed by its own report: it was lost
		}
	}
	return doubts
}

// checkTaint: taint is sticky, and its recovery is the declared one.
func (s *step) checkTaint() {
	a, b := s.a, s.b
	if !s.sameGeneration() || b.State.Terminal() {
		return
	}
	floor := s.minTaint()
	if a.State.Terminal() {
		s.require(floor == 0 || a.State == flight.StateSucceeded || s.endedUnknown(), "taint: a tainted flight ended as "+a.State.String())
		return
	}
	s.require(a.TaintingAttempts >= floor, "taint: it was cleared without knowledge of the outcome")
	if !a.Tainted() {
		return
	}
	waits := a.State == flight.StateReady || a.State == flight.StateScheduled
	began := b.State != flight.StateReady && b.State != flight.StateScheduled || !b.Tainted()
	s.require(!waits || a.Policy.Recovery == flight.RecoveryResend, "a tainted flight is retried without resend")
	s.require(!waits || !began || s.keyKnown(a, a.Policy.AttemptTimeout), "a tainted flight is retried outside the provider's window")
	s.require(!waits || a.Cancel == nil, "a tainted flight is retried after a cancel")
	canAsk := a.Policy.CanLookUp()
	s.require(a.Verification == nil || canAsk, "a look-up is due although the provider cannot be asked")
	held := a.Policy.Recovery == flight.RecoveryHold // hold waits for a person even if a look-up is possible
	s.require(a.State != flight.StateInDoubt || b.State == flight.StateInDoubt || !canAsk || b.Verification != nil || held, "in doubt before the provider was asked")
}

// checkRetries: the state after a not_done report.
func (s *step) checkRetries() {
	a, b := s.a, s.b
	c, ok := s.c.(*flight.Report)
	if !ok || c.Outcome != flight.OutcomeNotDone || !s.fromNewest(c) || b.OpenAttempt() == nil || a.Tainted() {
		return
	}
	waits := a.State == flight.StateReady || a.State == flight.StateScheduled
	p := b.Policy.Retry
	switch {
	case b.Cancel != nil, s.stopped():
		s.require(a.State == flight.StateCancelled, "a cancelled flight is retried")
	case !p.Declared():
		s.require(waits, "a flight without a retry policy is not ready")
	case int(b.CountedAttempts) >= p.Attempts && s.mustNotFail():
		s.require(a.State == flight.StateInDoubt, "a step that must not fail has failed")
	case int(b.CountedAttempts) >= p.Attempts:
		s.require(a.State == flight.StateFailed, "a flight with exhausted retries did not fail")
	case p.Within == 0:
		s.require(waits, "a declared retry is not scheduled")
	}
	if a.State == flight.StateScheduled {
		s.require(a.NotBefore >= s.h.Now.Add(c.RetryAfter), "Retry-After was not honoured")
	}
}

func findAttempt(f *flight.Flight, number uint32) *flight.Attempt {
	for i := range f.Attempts {
		if f.Attempts[i].Number == number {
			return &f.Attempts[i]
		}
	}
	return nil
}
