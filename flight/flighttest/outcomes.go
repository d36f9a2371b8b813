package flighttest

import (
	"slices"

	"github.com/flightd/flightd/flight"
)

// fromNewest reports whether the report belongs to the newest attempt of the present generation, and the flight is not over.
func (s *step) fromNewest(c *flight.Report) bool {
	n := s.b.Newest()
	return n != nil && c.Generation == s.b.Generation && c.Token == s.token(n) && !s.b.State.Terminal()
}

// reports: I3 and I8.
func (s *step) reports() {
	c, ok := s.c.(*flight.Report)
	if !ok {
		return
	}
	a, b := s.a, s.b
	n := b.Newest()
	own := n != nil && c.Generation == b.Generation && c.Token == s.token(n)
	if !s.fromNewest(c) {
		s.need(a.State == b.State && a.Receipt == b.Receipt && a.Doubts == b.Doubts && a.Counted == b.Counted &&
			len(a.Attempts) == len(b.Attempts), "I3: a report of a fenced attempt changed the flight")
		s.need(s.r.Decision == flight.Fenced || own && s.r.Decision == flight.Accepted && !s.r.Changed, "I3: a report of a fenced attempt was accepted")
		if s.r.Decision == flight.Accepted {
			r := b.Receipt
			s.need(r == nil && !c.Outcome.Final() || n.Reported != 0 && (!c.Outcome.Final() || r.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest)),
				"I3: a report with another receipt was accepted as a repeat")
		}
		return
	}
	s.need(s.r.Decision == flight.Accepted, "I8: the newest attempt's report was rejected")
	repeated := n.Reported&(1<<c.Outcome) != 0
	others := b.Doubts - one(n.Doubt)
	switch c.Outcome {
	case flight.Succeeded:
		s.need(a.State == flight.StateSucceeded, "I8: a success was not stored")
	case flight.Refused:
		s.need(repeated || others > 0 || a.State == flight.StateFailed && a.Receipt != nil, "a refusal was not stored")
	case flight.Unknown:
		s.need(repeated || a.Tainted(), "an unknown outcome did not taint the flight")
	case flight.NotDone:
		s.need(a.Receipt == nil, "a not_done report stored a receipt")
	}
}

func one(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// checkEvidence: a late report is stored, and an overlap is always raised (I3).
func (s *step) evidence() {
	a, b := s.a, s.b
	if a.State == flight.Expired && b.State != flight.Expired {
		return // a tombstone has no evidence; the history has it
	}
	s.need(len(a.Evidence) >= len(b.Evidence) && a.EvidenceMore >= b.EvidenceMore, "evidence was removed")
	c, ok := s.c.(*flight.Report)
	if ok && s.r.Decision == flight.Fenced {
		state, receipt, known := endOf(b, c.Generation)
		same := receipt != nil && receipt.SameEffect(c.Outcome, c.ExternalID, c.Body.Digest)
		second := known && c.Outcome == flight.Succeeded && state.Terminal() && !same
		s.need(!second || a.Overlap, "I3: an overlap was not raised")
		if b.State == flight.Expired && !second {
			s.need(!s.r.Changed, "a tombstone stored a report that proves no second effect")
			return
		}
		kept := slices.ContainsFunc(a.Evidence, func(e flight.Evidence) bool {
			return e.Token == c.Token && e.Generation == c.Generation && e.Outcome == c.Outcome && e.ExternalID == c.ExternalID && e.Digest == c.Body.Digest
		})
		s.need(kept || a.EvidenceMore > b.EvidenceMore, "I3: a fenced report was not stored")
		allSucceeded := !slices.ContainsFunc(a.Evidence, func(e flight.Evidence) bool { return e.Outcome != flight.Succeeded })
		s.need(kept || c.Outcome != flight.Succeeded || allSucceeded, "I3: a fenced report of success was counted and not stored")
	}
	if a.State.Terminal() && !b.State.Terminal() {
		for _, e := range a.Evidence {
			another := a.Receipt == nil || !a.Receipt.SameEffect(e.Outcome, e.ExternalID, e.Digest)
			s.need(e.Generation != a.Generation || e.Outcome != flight.Succeeded || !another || a.Overlap, "I3: an overlap was not raised at the end")
		}
	}
}

// finalStateOf returns the final state and receipt of a generation, if the flight still has them.
func endOf(f *flight.Flight, generation uint32) (flight.State, *flight.Receipt, bool) {
	if generation == f.Generation {
		if f.State == flight.Expired {
			return f.Was, f.Receipt, true
		}
		return f.State, f.Receipt, true
	}
	for _, p := range f.Past {
		if p.Generation == generation {
			return p.State, p.Receipt, true
		}
	}
	return flight.Absent, nil, false
}

// checkReceipts: the permitted origins of a receipt; a receipt never changes (I3, I4).
func (s *step) receipts() {
	a, b := s.a, s.b
	if a.Receipt == b.Receipt || !s.sameGeneration() && !s.fresh {
		return
	}
	if _, redacts := s.c.(*flight.Redact); redacts && b.Receipt != nil {
		return // a redacted receipt is a new value; see checkRedact
	}
	if b.Receipt != nil {
		expired := a.State == flight.Expired && b.State != flight.Expired
		s.need(expired && a.Receipt != nil && a.Receipt.Outcome == b.Receipt.Outcome && a.Receipt.Body.Digest == b.Receipt.Body.Digest,
			"I4: a receipt changed")
		return
	}
	r := a.Receipt
	_, imports := s.c.(*flight.Import)
	s.need((r.At == s.h.Now || imports) && r.Attempt == b.AttemptNumber(), "a receipt names another time or attempt")
	switch c := s.c.(type) {
	case *flight.Report:
		s.need(s.fromNewest(c), "I3: a receipt came from a fenced attempt")
		s.need(r.Outcome == c.Outcome && r.ExternalID == c.ExternalID && r.Body.Digest == c.Body.Digest && r.Source == flight.FromReport,
			"the receipt differs from the report")
	case *flight.Verdict:
		s.need(s.answersProbe(c) && c.Result == flight.Happened, "a receipt came from a look-up that was not assigned")
		s.need(r.Outcome == flight.Succeeded && r.ExternalID == c.ExternalID && r.Source == flight.FromLookup, "the receipt differs from the finding")
	case *flight.Resolve:
		s.need(b.State == flight.InDoubt && b.Version == c.Version && c.Verb == flight.Happened, "a receipt came from a person who saw another version")
		s.need(r.Outcome == flight.Succeeded && r.ExternalID == c.ExternalID && r.Source == flight.FromPerson, "the receipt differs from the attached one")
	case *flight.Import:
		s.need(r.Outcome == c.Outcome && r.ExternalID == c.ExternalID && r.Body.Digest == c.Body.Digest && r.Source == flight.FromImport,
			"the receipt differs from the imported one")
	default:
		s.need(false, "I4: a receipt was stored by a command without one")
	}
}

// checkEndings: a flight that ended does not change (I4), except by expiry.
func (s *step) endings() {
	a, b := s.a, s.b
	if !b.State.Terminal() || !s.sameGeneration() {
		return
	}
	if a.State == flight.Expired && b.State != flight.Expired {
		c, ok := s.c.(*flight.Expire)
		s.need(ok && c.Generation == b.Generation && s.h.Now >= b.ExpiresAt(), "I4: a flight expired before its time")
		s.need(s.saga == nil || s.saga.State == flight.Expired, "a step expired before its saga")
		s.need(a.Fence == b.Fence && a.Fingerprint == b.Fingerprint && a.Was == b.State && a.Generation == b.Generation && a.Sealed == b.Sealed,
			"I4: the tombstone lost a field that guards the key")
		return
	}
	s.need(a.State == b.State && a.Doubts == b.Doubts && a.AttemptCount == b.AttemptCount && a.FinishedAt == b.FinishedAt &&
		a.Probe == nil && a.Wake == nil && a.Cause == b.Cause && a.Cancel == b.Cancel, "I4: a flight that had ended changed")
}

// minTaint is the least number of tainting attempts that the command may leave. Only a success, a look-up, a person, or an
// answer under a key that the provider honours clears all of them; an attempt's own report or Abandon clears its own taint.
func (s *step) floor() uint32 {
	b := s.b
	doubts, own := b.Doubts, uint32(0)
	if n := b.Newest(); n != nil {
		own = one(n.Doubt)
	}
	switch c := s.c.(type) {
	case *flight.Report:
		if !s.fromNewest(c) {
			return doubts
		}
		repeated := b.Newest().Reported&(1<<c.Outcome) != 0
		switch {
		case c.Outcome == flight.Succeeded:
			return 0
		case c.Outcome == flight.Refused && (b.Policy.Saga || b.Policy.Recovery == flight.Resend && s.keyKnown(b, 0)):
			return 0
		case c.Outcome == flight.Unknown:
			return doubts + one(own == 0 && !repeated)
		}
		return doubts - own
	case *flight.Abandon:
		if n := b.Newest(); n != nil && c.Nonce == n.Nonce && c.StoreEpoch == s.h.StoreEpoch {
			return doubts - own
		}
	case *flight.Verdict:
		if s.answersProbe(c) && c.Result != flight.NoVerb {
			return 0
		}
	case *flight.Resolve:
		if b.State == flight.InDoubt && b.Version == c.Version {
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
func (s *step) doubts() {
	a, b := s.a, s.b
	if !s.sameGeneration() || b.State.Terminal() {
		return
	}
	floor := s.floor()
	if a.State.Terminal() {
		s.need(floor == 0 || a.State == flight.StateSucceeded, "taint: a tainted flight ended as "+a.State.String())
		return
	}
	s.need(a.Doubts >= floor, "taint: it was cleared without knowledge of the outcome")
	if !a.Tainted() || a.Policy.Saga {
		return
	}
	waits := a.State == flight.Queued || a.State == flight.Scheduled
	began := b.State != flight.Queued && b.State != flight.Scheduled || !b.Tainted()
	s.need(!waits || a.Policy.Recovery == flight.Resend, "a tainted flight is retried without resend")
	s.need(!waits || !began || s.keyKnown(a, a.Policy.AttemptTimeout), "a tainted flight is retried outside the provider's window")
	s.need(!waits || a.Cancel == nil, "a tainted flight is retried after a cancel")
	canAsk := a.Policy.CanLookUp()
	s.need(a.Probe == nil || canAsk, "a look-up is due although the provider cannot be asked")
	held := a.Policy.Recovery == flight.Hold // hold waits for a person even if a look-up is possible
	s.need(a.State != flight.InDoubt || b.State == flight.InDoubt || !canAsk || b.Probe != nil || held, "in doubt before the provider was asked")
}

// checkRetries: the state after a not_done report.
func (s *step) retries() {
	a, b := s.a, s.b
	c, ok := s.c.(*flight.Report)
	if !ok || c.Outcome != flight.NotDone || !s.fromNewest(c) || b.OpenAttempt() == nil || a.Tainted() || b.Policy.Saga {
		return
	}
	waits := a.State == flight.Queued || a.State == flight.Scheduled
	p := b.Policy.Retry
	switch {
	case b.Cancel != nil:
		s.need(a.State == flight.StateCancelled, "a cancelled flight is retried")
	case !p.Declared():
		s.need(waits, "a flight without a retry policy is not ready")
	case int(b.Counted) >= p.Attempts:
		s.need(a.State == flight.StateFailed, "a flight with exhausted retries did not fail")
	case p.Within == 0:
		s.need(waits, "a declared retry is not scheduled")
	}
	if a.State == flight.Scheduled {
		s.need(a.NotBefore >= s.h.Now.Add(c.RetryAfter), "Retry-After was not honoured")
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
