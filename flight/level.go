package flight

// The feature level says which commands and records a log, a state and a snapshot may hold. It is stored in the header and
// never falls. A build reads all levels up to MaxLevel. A node that reads an entry of a higher level stops before it applies
// any of it. So the level may rise only when every voter can read the new one; until then an older build can take over.
const (
	// LevelBase is the level of ledgers that no RaiseLevel has changed.
	LevelBase uint32 = 1
	// LevelDocuments adds documents and the audit log.
	LevelDocuments uint32 = 2
	// LevelRestore adds restores of the ledger, steps of its clock that move the deadlines of holders, and the withdrawal of
	// a session that holds no flight.
	LevelRestore uint32 = 3
	// LevelJobs adds jobs, which have a place in the queue of their action and in a lane, and attempts that wait for a callback.
	LevelJobs uint32 = 4
	// LevelSagas adds sagas that the leader drives, whose steps are jobs, and approvals that expire and name their requester. From then on,
	// a retry of a flight whose policy demands an approval awaits another one. A saga starts only if its definition is stored, which stays
	// until the saga is over.
	LevelSagas uint32 = 5
	// LevelNotify adds the trace that an attempt or a job belongs to, targets of notifications, and the positions up to which they were
	// notified, which have no line in the audit log. From then on, a second copy of an accepted report is not a late report, and neither
	// is a report without a final outcome for an attempt that the flight no longer stores. An attempt under resend also records its
	// callbacks.
	LevelNotify uint32 = 6
	// MaxLevel is the highest level that this build reads.
	MaxLevel = LevelNotify
)

// RaiseLevel raises the feature level. Its proposer has made sure that every voter reads the new level. A repeat changes
// nothing.
type RaiseLevel struct {
	Level uint32 `cbor:"1,keyasint"`
}

// FeatureLevel is the feature level of the ledger.
func (h *Header) FeatureLevel() uint32 { return max(h.Level, LevelBase) }

// RequiredLevel is the lowest feature level at which the ledger accepts c.
func RequiredLevel(c Command) uint32 {
	if tick, ok := c.(*Tick); ok && tick.StepTo > 0 {
		return LevelRestore
	}
	switch c := c.(type) {
	case *Submit:
		if c.Queue != nil && !c.Queue.Trace.IsZero() {
			return LevelNotify
		}
		if c.Submission.needsLevelSagas() || c.Queue != nil && c.Queue.Action != "" {
			return LevelSagas
		}
		if c.Queue != nil {
			return LevelJobs
		}
	case *PutDocument:
		if c.ID.Kind == KindNotify || c.ID.Kind == KindNotified {
			return LevelNotify
		}
	case *DeleteDocument:
		if c.ID.Kind == KindNotify || c.ID.Kind == KindNotified {
			return LevelNotify
		}
	case *Open:
		if !c.Trace.IsZero() {
			return LevelNotify
		}
		if c.Submission.needsLevelSagas() {
			return LevelSagas
		}
	case *Cancel:
		if !c.Driver.IsZero() {
			return LevelSagas
		}
	case *SealKey:
		if !c.Driver.IsZero() {
			return LevelSagas
		}
	case *Suspend:
		switch {
		case c.Wake.Callback:
			return LevelJobs
		case c.Wake.Live > 0 || c.Wake.Marked:
			return LevelSagas
		}
	}
	return c.kind().level()
}

func (k kind) level() uint32 {
	switch k {
	case kindPutDocument, kindPromoteDocument, kindDeleteDocument:
		return LevelDocuments
	case kindCloseSession, kindRestore, kindFinishRestore:
		return LevelRestore
	case kindPassPivot:
		return LevelSagas
	}
	return LevelBase
}

func (s *Submission) needsLevelSagas() bool {
	return s.Policy.Saga || s.Policy.Definition != "" || s.Requester != "" || s.Reason != "" || s.Policy.ApprovalWithin > 0 || s.Policy.SafeIfAbsent
}

// raiseLevel sets the level of the header.
func (t *transition) raiseLevel(c *RaiseLevel) Decision {
	if c.Level > MaxLevel {
		return DecisionFailedPrecondition // Decode rejects it; every node answers the same
	}
	t.header.Level = max(t.header.FeatureLevel(), c.Level)
	return DecisionAccepted
}
