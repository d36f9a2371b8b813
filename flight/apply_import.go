package flight

// importReceipt stores the receipt of an effect that happened before or outside flightd. It creates a finished flight for a
// key that was never used. It never changes a used key: a receipt of this ledger takes precedence.
func (t *turn) bring(c *Import) Decision {
	f := t.flight()
	switch {
	case t.key.IsStep() || !c.Outcome.Final():
		return Precluded
	case t.absent() && f != nil && f.Generation > 1:
		return Precluded // a person freed the key so that the effect runs again
	case t.absent():
		t.adopt(c)
		return Accepted
	case !f.Fingerprint.Matches(c.Fingerprint):
		return Conflict
	case f.State == Expired:
		return Gone
	case !f.State.Terminal():
		return t.inTheWay()
	case f.Receipt == nil || !f.Receipt.SameEffect(c.Outcome, Text(c.ExternalID), c.Body.Digest):
		return Conflict
	case f.Receipt.Source == FromImport:
		return Accepted // a repeat
	}
	return Replay
}

// answerImportConflict answers an import for a key whose flight is in progress.
func (t *turn) inTheWay() Decision {
	if d := t.standing(); d != Accepted {
		return d
	}
	return Busy
}

// createImported creates the flight of an import. No attempt was opened, so the fence does not move.
func (t *turn) adopt(c *Import) {
	f := t.edit()
	f.Key = t.key
	f.Fingerprint, f.Input, f.InputFrom = c.Fingerprint, c.Input, f.Generation
	f.Policy = Policy{Retention: c.Retention}
	r := Receipt{Outcome: c.Outcome, ExternalID: Text(c.ExternalID), Body: c.Body, Source: FromImport}
	f.Receipt, f.State = &r, StateSucceeded
	if r.Outcome == Refused {
		f.State = StateFailed
	}
	t.end("")
	f.FinishedAt = t.since(c.FinishedAt, t.header.Now)
	f.CreatedAt = t.since(c.CreatedAt, f.FinishedAt)
	r.At = f.FinishedAt
	t.note(EventImported, Event{Outcome: c.Outcome, Who: Text(c.Who), Note: r.ExternalID})
	t.compareAll()
}

// clampTime limits a time from outside to at most later; it returns later where none was given.
func (t *turn) since(noted, later Time) Time {
	if noted <= 0 {
		return later
	}
	return min(noted, later)
}
