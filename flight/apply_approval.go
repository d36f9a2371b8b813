package flight

// ApprovalExpired is the recorded reason of a rejection by time.
const ApprovalExpired = "nobody decided in time"

// ApprovalDeadline is the ledger time from which a flight that awaits approval can no longer be approved, or 0 for never. It
// counts from the start of the generation, and is no time of a holder: it passes while no node runs.
func (f *Flight) ApprovalDeadline() Time {
	if f.State != StateAwaitingApproval || f.Policy.ApprovalWithin <= 0 {
		return 0
	}
	return f.CreatedAt.Add(f.Policy.ApprovalWithin)
}

// approvalIsOver reports whether the time for an approval has passed.
func (t *transition) approvalIsOver() bool {
	deadline := t.flight().ApprovalDeadline()
	return deadline > 0 && t.header.Now >= deadline
}

// decideApproval applies a person's answer to an approval. The first answer in the log decides; after the deadline, a flight
// can only be rejected.
func (t *transition) decideApproval(c *DecideApproval) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return DecisionNotFound
	case c.Generation != f.Generation || c.Fingerprint != f.Fingerprint:
		return DecisionFailedPrecondition
	case f.Resolution != nil && f.Resolution.Finding == c.Finding && f.Resolution.Version == c.Version:
		return DecisionAccepted // a repeat
	case f.State != StateAwaitingApproval || f.Version != c.Version:
		return DecisionFailedPrecondition
	case c.Finding == FindingApproved && t.approvalIsOver():
		return DecisionFailedPrecondition
	case c.Finding != FindingApproved && c.Finding != FindingRejected:
		return DecisionFailedPrecondition
	}
	by := Attribution{Actor: Sanitize(c.Actor), Reason: Sanitize(c.Reason), At: t.header.Now}
	if c.Finding == FindingRejected {
		t.reject(by)
		return DecisionAccepted
	}
	t.editFlight().Resolution = &Resolution{Finding: c.Finding, Version: c.Version, By: by}
	t.emit(EventApproved, Event{Actor: by.Actor, Note: by.Reason})
	if t.key.IsStep() { // a gate of a saga performs nothing: its approval is its receipt
		t.endWithReceipt(Receipt{Outcome: OutcomeSucceeded, Source: SourcePerson})
		return DecisionAccepted
	}
	t.makeReady()
	return DecisionAccepted
}

// reject ends a flight that awaits approval: nothing was started, and nothing will be.
func (t *transition) reject(by Attribution) {
	seen := t.flight().Version
	t.editFlight().Resolution = &Resolution{Finding: FindingRejected, Version: seen, By: by}
	t.emit(EventRejected, Event{Actor: by.Actor, Note: by.Reason})
	t.endWithoutReceipt(StateCancelled, describeFinding(FindingRejected, by.Reason))
}

// expireApproval rejects a flight that nobody has approved in time.
func (t *transition) expireApproval() Decision {
	if !t.approvalIsOver() {
		return t.answerCurrent()
	}
	t.reject(Attribution{Reason: ApprovalExpired, At: t.header.Now})
	return DecisionAccepted
}
