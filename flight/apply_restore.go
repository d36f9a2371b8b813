package flight

import (
	"math"
	"time"
)

// Restore accepts a data directory that was copied or restored from a backup. The ledger may lack commands that the lost
// ledger had committed: flights, attempts and receipts. So the store epoch and the lease epoch rise, and the ledger is
// reconciling: nothing opens and no look-up is assigned until FinishRestore. etcd must be empty. A repeat changes nothing.
type Restore struct {
	From uint32 `cbor:"1,keyasint"` // the store epoch to leave
	// Hold is the time in which a holder of the lost ledger may still act: the longest session TTL, attempt time-out and
	// settle delay together. FinishRestore is rejected before it has passed. It is at least MaxOpenLife: then every Open that
	// was sent to the lost ledger has expired.
	Hold   time.Duration `cbor:"2,keyasint"`
	Actor  string        `cbor:"3,keyasint,omitempty"`
	Reason string        `cbor:"4,keyasint,omitempty"`
	// Moved is the statement of an operator that the directory was moved after a clean stop and no other copy has run. It
	// leaves a line in the audit log and changes nothing else.
	Moved bool `cbor:"5,keyasint,omitempty"`
}

// FinishRestore ends the reconciling of a restored ledger: flights may open again. Before the hold of the restore has passed,
// it is answered DecisionBusy with the remaining time, unless Force is set. A repeat changes nothing.
type FinishRestore struct {
	Epoch  uint32 `cbor:"1,keyasint"` // the present store epoch
	Force  bool   `cbor:"2,keyasint,omitempty"`
	Actor  string `cbor:"3,keyasint,omitempty"`
	Reason string `cbor:"4,keyasint,omitempty"`
}

func (t *transition) restore(c *Restore) Decision {
	h := &t.header
	switch {
	case h.StoreEpoch != c.From && h.RestoredFrom == c.From && !c.Moved:
		return DecisionAccepted // a repeat
	case h.StoreEpoch != c.From || h.StoreEpoch == 0:
		return DecisionFailedPrecondition
	case c.Moved:
		return DecisionAccepted
	}
	h.RestoredFrom, h.StoreEpoch, h.Reconciling = h.StoreEpoch, t.nextStoreEpoch(), true
	h.LeaseEpoch++
	h.GuardCounter = 0
	h.EpochHold = max(h.EpochHold, h.Now.Add(max(c.Hold, MaxOpenLife)))
	return DecisionAccepted
}

// nextStoreEpoch is the time of the restore in seconds since 1970, or the present epoch plus one if that is more. So two
// ledgers that were restored from one backup have different epochs, and store epoch and number name one attempt of a key in
// all of them; unless both were restored in one second, or by clocks that were behind the backup.
func (t *transition) nextStoreEpoch() uint32 {
	const last = math.MaxUint32 - 1<<16 // leaves room for restores by a clock that is far ahead
	return max(t.header.StoreEpoch+1, uint32(min(t.latestTime()/1000, last)))
}

func (t *transition) finishRestore(c *FinishRestore) Decision {
	h := &t.header
	switch {
	case c.Epoch != h.StoreEpoch:
		return DecisionFailedPrecondition
	case h.Reconciling && h.Now < h.EpochHold && !c.Force:
		return t.answerBusy(h.EpochHold)
	}
	h.Reconciling = false
	return DecisionAccepted
}

// isTokenOf reports whether a token names the attempt: by its number in the present store epoch, or by the token under which
// it was opened. No other attempt of the key has that token, in any ledger.
func (t *transition) isTokenOf(a *Attempt, token Token) bool {
	return token == t.header.TokenOf(a) || token == a.Token()
}

// reportLost accepts the report of an attempt that a restored ledger may have lost: of another store epoch, or with a number
// that this ledger never gave, as where the spool of a copied directory is newer than its ledger. A success becomes the
// receipt of a flight without one, and ends its open attempt: nothing must open after it. An unknown outcome taints a flight
// without a receipt: it is in doubt, or a look-up is due, as soon as no attempt is open. Every other report is evidence,
// because it says nothing about the other attempts that the restore has lost.
func (t *transition) reportLost(c *Report) Decision {
	f := t.flight()
	switch {
	case f == nil:
	case c.Generation == f.Generation && f.Receipt.isOfLostReport(c):
		return DecisionAccepted // a repeat
	case f.Receipt != nil || f.Sealed || f.State == StateExpired:
		return t.fenceReport(c)
	case c.Generation != f.Generation && !(t.absent() && c.Generation > f.Generation):
		return t.fenceReport(c)
	}
	switch {
	case c.Outcome == OutcomeSucceeded:
		t.acceptLostSuccess(c)
		return DecisionAccepted
	case c.Outcome == OutcomeUnknown && (f == nil || !f.State.Terminal() && !f.Policy.Saga):
		t.acceptLostUnknown(c)
		return DecisionAccepted
	}
	return t.fenceReport(c)
}

// isOfLostReport reports whether the receipt was made by this very report.
func (r *Receipt) isOfLostReport(c *Report) bool {
	return r != nil && r.Source == SourceReportAfterRestore && r.Attempt == c.Token.Number && r.SameEffect(c.Outcome, Sanitize(c.ExternalID), c.Body.Digest)
}

func (t *transition) acceptLostSuccess(c *Report) {
	t.editLostFlight(c)
	r := receiptOf(c)
	r.Source = SourceReportAfterRestore
	t.endWithLostReceipt(r, "an attempt that a restore has lost has succeeded")
}

func (t *transition) acceptLostUnknown(c *Report) {
	e := t.evidenceOf(c)
	if f := t.flight(); f != nil && f.hasEvidence(&e) {
		return // a repeat
	}
	f := t.editLostFlight(c)
	if full := len(f.Evidence) >= MaxEvidence; !full || !f.Tainted() {
		f.TaintingAttempts++ // of no stored attempt: only knowledge about the whole flight removes it
	}
	t.storeEvidence(e)
	if f.OpenAttempt() == nil && !f.Verifying() && f.State != StateInDoubt {
		t.verifyOrHold("an attempt that the restored ledger has lost may have happened")
	}
}

// editLostFlight returns the flight of an attempt that the ledger has lost, to be changed. A flight that is lost as well
// continues in the generation of the report, so that the next attempt sends the same idempotency key to the provider.
func (t *transition) editLostFlight(c *Report) *Flight {
	f := t.editFlight()
	f.Key, f.Generation = t.key, max(f.Generation, c.Generation)
	if f.CreatedAt == 0 {
		f.CreatedAt = t.header.Now
	}
	t.raiseFence(c.Token)
	t.emit(EventReported, Event{Attempt: c.Token.Number, Outcome: c.Outcome, Note: Sanitize(firstNonEmpty(c.Error, c.ExternalID))})
	return f
}

// endWithLostReceipt ends a flight with a receipt that a restore has lost. An open attempt is marked lost, with the cause; if
// it acts, its report is evidence.
func (t *transition) endWithLostReceipt(r Receipt, cause string) {
	if t.flight().OpenAttempt() != nil {
		t.closeAttempt(OutcomeUnknown)
		a := t.newestAttempt()
		a.Lost, a.Error = true, cause
		t.emit(EventLost, Event{Attempt: a.Number, Outcome: OutcomeUnknown, Note: cause})
	}
	if t.flight().Redacted != nil {
		r.Body = r.Body.erased()
	}
	t.endWithReceipt(r)
}
