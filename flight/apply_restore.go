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
// all of them.
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
