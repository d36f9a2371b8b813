package wire

// Restore is the answer of GET /v1/restore: whether the ledger was restored and opens nothing.
type Restore struct {
	Reconciling bool   `json:"reconciling"`
	StoreEpoch  uint32 `json:"store_epoch"`         // rises with every restore
	HoldUntil   Time   `json:"hold_until,omitzero"` // before it, the restore is finished only by force
	HoldMS      int64  `json:"hold_ms,omitzero"`    // how long the hold still lasts
	Asked       int    `json:"asked"`               // keys that callers have asked for since the restore
}

// AskedPage is the answer of GET /v1/restore/asked.
type AskedPage struct {
	Keys []string `json:"keys"`          // those with a receipt or a doubt are left out
	Next string   `json:"next,omitzero"` // the `after` of the next page
}

// FinishRestore is the body of POST /v1/restore:finish.
type FinishRestore struct {
	Force  bool   `json:"force,omitzero"` // also before the hold is over
	Reason string `json:"reason" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"`
}
