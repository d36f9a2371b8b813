package flight

// importReceipt stores the receipt of an effect that happened before or outside flightd. It creates a finished flight for a
// key that was never used. It never changes a used key: a receipt of this ledger takes precedence. While the ledger is
// reconciling, the attempt of the receipt may be one that the restore has lost, so every flight without a receipt gets it:
// also a step or an undo of a saga, even if the ledger does not have the saga or the saga has ended.
func (t *transition) importReceipt(c *Import) Decision {
	f := t.flight()
	switch {
	case !c.Outcome.Final(), t.key.IsStep() && !(t.header.Reconciling && c.Outcome == OutcomeSucceeded):
		return DecisionFailedPrecondition
	case t.absent() && f != nil && f.Generation > 1 && !t.header.Reconciling:
		return DecisionFailedPrecondition // a person freed the key so that the effect runs again
	case t.absent():
		t.createImported(c)
		return DecisionAccepted
	case !f.Fingerprint.Matches(c.Fingerprint):
		return DecisionConflict
	case f.State == StateExpired:
		return DecisionExpired
	case f.Receipt == nil && t.header.Reconciling && c.Outcome == OutcomeSucceeded && !f.Sealed && !f.Policy.Saga:
		t.endWithLostReceipt(Receipt{Outcome: c.Outcome, ExternalID: c.ExternalID, Body: c.Body, Source: SourceImport},
			"its receipt was imported after a restore")
		t.emit(EventImported, Event{Outcome: c.Outcome, Actor: Sanitize(c.Actor), Note: Sanitize(c.ExternalID)})
		return DecisionAccepted
	case !f.State.Terminal():
		return t.answerImportConflict()
	case f.Receipt == nil || !f.Receipt.SameEffect(c.Outcome, Sanitize(c.ExternalID), c.Body.Digest):
		return DecisionConflict
	case f.Receipt.Source == SourceImport:
		return DecisionAccepted // a repeat
	}
	return DecisionReplay
}

// answerImportConflict answers an import for a key whose flight is in progress.
func (t *transition) answerImportConflict() Decision {
	if d := t.answerCurrent(); d != DecisionAccepted {
		return d
	}
	return DecisionBusy
}

// createImported creates the flight of an import. No attempt was opened, so the fence does not move.
func (t *transition) createImported(c *Import) {
	f := t.editFlight()
	f.Key = t.key
	f.Fingerprint, f.Input, f.InputGeneration = c.Fingerprint, c.Input, f.Generation
	f.Policy = Policy{Retention: c.Retention}
	r := Receipt{Outcome: c.Outcome, ExternalID: Sanitize(c.ExternalID), Body: c.Body, Source: SourceImport}
	f.Receipt, f.State = &r, StateSucceeded
	if r.Outcome == OutcomeRefused {
		f.State = StateFailed
	}
	t.clearLive("")
	f.FinishedAt = t.clampTime(c.FinishedAt, t.header.Now)
	f.CreatedAt = t.clampTime(c.CreatedAt, f.FinishedAt)
	r.At = f.FinishedAt
	t.emit(EventImported, Event{Outcome: c.Outcome, Actor: Sanitize(c.Actor), Note: r.ExternalID})
	t.detectOverlaps()
}

// clampTime limits a time from outside to at most later; it returns later where none was given.
func (t *transition) clampTime(noted, later Time) Time {
	if noted <= 0 {
		return later
	}
	return min(noted, later)
}
