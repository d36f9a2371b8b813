package plant

// The promises that the bugs break.
const (
	oneEffect    = "one effect"
	sameKey      = "same key"
	receiptKept  = "receipt kept"
	trueAnswer   = "true answer"
	attemptKept  = "attempt kept"
	notBlocked   = "not blocked"
	lane         = "lane"
	allOrNone    = "all or none"
	reverseOrder = "reverse order"
	settledFirst = "settled first"
	mark         = "mark"
	pivot        = "pivot"

	oneAttempt    = "one attempt at a time" // attempts of a key do not overlap: one opens when the one before is over, or its holder can act no more
	tokensRise    = "tokens rise"           // each attempt has a higher token, and no report under an older one is accepted
	replicasEqual = "replicas equal"        // nodes that have applied the same entries hold the same rows
	readersGoOn   = "readers never go back" // no reader sees an older state than before, and a reader of the feed gets each event
	nothingLeft   = "nothing left"          // etcd has no claim and no session key of callers who have gone
	approvedFirst = "approved first"        // nothing runs that awaits an approval, or that nobody has approved in time
	newGeneration = "new generation"        // a retry by a person has a new generation, and another idempotency key
	erased        = "erased"                // nobody reads the receipt of a redacted flight
)

// decideAfter is a bug in what the driver of a saga looks at before it decides.
func decideAfter(change string) Edit {
	const decide = "next := saga.Decide(def, v)"
	return Edit{"saga/driver/driver.go", decide, change + "\n\t" + decide}
}

// Bugs are all bugs, those of flights first, then those of jobs and sagas, of readers, and of callers.
var Bugs = []Bug{
	{Name: "a late report is taken for one of the newest attempt", Rule: tokensRise, Faults: FreezeCallers, Test: "flight TestHazard05_ALateReportIsEvidenceAndAnotherEffectIsFlagged",
		Edits: []Edit{{"flight/apply_report.go", "isNewest := a != nil && c.Generation == f.Generation && t.isTokenOf(a, c.Token)", "isNewest := a != nil && c.Generation == f.Generation"}}},
	{Name: "a token does not rise", Rule: tokensRise, Faults: KillCallers, Test: "flight TestHazard12_ANewAttemptOfTheSameSessionFencesTheOldOne",
		Edits: []Edit{{"flight/apply_open.go", "\tf.Fence = token\n", ""}}},
	{Name: "a session is trusted when it has ended", Rule: oneEffect, Faults: CutCallers, Test: "lease TestWindowCountsFromTheSending",
		Edits: []Edit{{"lease/trust.go", "length: ttl - Margin(ttl)}", "length: 20 * ttl}"}}},
	{Name: "a claim ends the attempt in its way", Rule: attemptKept, Faults: ShortFreeze, Test: "flight TestHazard11_TwoAskersUnderOneSession",
		Edits: []Edit{
			{"flight/apply_open.go", "\tdefault:\n\t\treturn t.answerBusy(until)\n\t}\n\treturn DecisionNone", "\tdefault:\n\t\tt.markLost(timeoutCause(f))\n\t}\n\treturn DecisionNone"},
			{"remote/decide.go", "\tcase blocked:\n", "\tcase blocked && f.OpenAttempt() == nil:\n"},
		}},
	{Name: "each attempt has an idempotency key of its own", Rule: sameKey, Faults: KillCallers, Test: "remote TestHazard03_04_CallerCrashSites",
		Edits: []Edit{{"internal/answer/answer.go", "return header.IdempotencyKey(f.Key, f.Generation)", "return header.IdempotencyKey(f.Key, f.Generation+f.AttemptCount)"}}},
	{Name: "recovery hold is taken for resend", Rule: oneEffect, Faults: KillCallers, Test: "flight TestHazard04_TheDefaultAfterACrashIsHold",
		Edits: []Edit{
			{"flight/apply_recovery.go", "\tcase f.Policy.Recovery == RecoveryResend:\n\t\tt.retryOrEnd(delay)", "\tcase f.Policy.Recovery != RecoveryVerify:\n\t\tt.retryOrEnd(delay)"},
			{"flight/apply_recovery.go", "case f.Tainted() && f.Policy.Recovery != RecoveryResend:", "case f.Tainted() && f.Policy.Recovery == RecoveryVerify:"},
		}},
	{Name: "recovery verify resends without a look-up", Rule: oneEffect, Faults: KillCallers, Test: "executor TestALookUpFindsTheEffect",
		Edits: []Edit{{"flight/apply_recovery.go", "\t\tt.startVerification()\n\tdefault:\n\t\tt.holdForPerson(\"the effect", "\t\tt.reschedule(delay)\n\tdefault:\n\t\tt.holdForPerson(\"the effect"}}},
	{Name: "the settle delay is ignored", Rule: oneEffect, Faults: LateLists, Test: "executor TestHazard02_TheSettleDelayIsTheObserversOwn",
		Edits: []Edit{
			{"flight/apply_open.go", "NotBefore: t.header.Now.Add(f.Policy.Settling())", "NotBefore: t.header.Now"},
			{"internal/answer/verify_delay.go", "return time.Until(known.until)", "return min(0, time.Until(known.until))"},
		}},
	{Name: "the provider's window is ignored", Rule: sameKey, Faults: StoredErrors, Test: "flight TestHazard32_NoResendAfterTheProviderForgotTheKey",
		Edits: []Edit{{"flight/provider_window.go", "if w <= 0 || f.FirstSend == 0 {", "if w <= 0 || f.FirstSend >= 0 {"}}},
	{Name: "fingerprints are not compared", Rule: trueAnswer, Faults: ShortFreeze, Test: "flight TestHazard30_TheSameKeyWithAnotherInputNeverRuns",
		Edits: []Edit{{"flight/fingerprint.go", "return f == g || f == NoFingerprint || g == NoFingerprint", "return f == g || f != g"}}},
	{Name: "an overlap is not flagged", Rule: oneEffect, Faults: FreezeCallers, Test: "flight TestHazard05_ALateReportIsEvidenceAndAnotherEffectIsFlagged",
		Edits: []Edit{{"flight/apply_report.go", "\tt.editFlight().Overlap = true\n\tt.emit(EventOverlap,", "\tt.emit(EventOverlap,"}}},
	{Name: "a fenced report is answered as accepted", Rule: oneEffect, Faults: FreezeCallers, Test: "client TestFencedReport",
		Edits: []Edit{{"remote/report.go", "\tif reply.Decision != flight.DecisionAccepted || r.IsBehind(reply.Flight) {\n", "\tif r.IsBehind(reply.Flight) {\n"}}},
	{Name: "a report ends its session before the ledger has it", Rule: attemptKept, Faults: KillLeader, Test: "remote TestOneShotSessionUntilTheReportIsCommitted",
		Edits: []Edit{{"remote/report.go", "\treply, err := s.cfg.Ledger.Report(ctx, r)\n", `	if f, _ := s.cfg.Ledger.Flight(r.Key.FlightID()); f.OpenAttempt() != nil && f.Newest().Session.OneShot {
		s.endSession(ctx, f.Newest().Session.ID)
	}
	reply, err := s.cfg.Ledger.Report(ctx, r)
`}}},
	{Name: "an unknown result of a proposal is taken for a failure", Rule: attemptKept, Faults: KillLeader, Test: "clusterstore TestHazard28_OnlyThreeErrorsAreADefiniteNo",
		Edits: []Edit{{"clusterstore/errors.go", "\treturn ambiguous(err)\n", "\treturn fmt.Errorf(\"%w: %w\", ErrUnavailable, err)\n"}}},
	{Name: "the end of a session is not noticed", Rule: notBlocked, Faults: KillCallers, Test: "executor TestTheSweeperNoticesDeadHolders",
		Edits: []Edit{{"executor/sweep.go", "living.Revision >= session.Revision", "living.Revision < session.Revision"}}},
	{Name: "a new leader takes sessions for ended that it has not seen", Rule: attemptKept, Faults: KillLeader, Test: "lease/leasetest TestFakeConforms",
		Edits: []Edit{{"lease/living.go", "\t\tliving.Sessions[id] = struct{}{}\n", "\t\tif l.find(id) != nil {\n\t\t\tliving.Sessions[id] = struct{}{}\n\t\t}\n"}}},
	{Name: "an older lease epoch has no hold", Rule: oneAttempt, Faults: RaiseEpoch, Test: "flight TestHazard20_SessionsOfAnEtcdThatLostItsPastOpenNothing",
		Edits: []Edit{
			{"flight/apply_sessions.go", "case c.Session.Epoch < h.LeaseEpoch && h.Now < h.EpochHold:", "case c.Session.Epoch < h.LeaseEpoch && h.Now < 0:"},
			{"executor/sweep.go", "return session.Epoch < header.LeaseEpoch && s.cfg.Reader.Now() >= header.EpochHold", "return session.Epoch < header.LeaseEpoch"},
		}},
	{Name: "session keys outlive their sessions", Rule: nothingLeft, Faults: KillCallers, Test: "lease/etcdlease TestEmbeddedEtcdConforms",
		Edits: []Edit{{"lease/etcdlease/store.go", "put([]byte(s.sessionKeyName(m.Session.ID)), value, g.Lease)", "put([]byte(s.sessionKeyName(m.Session.ID)), value, 0)"}}},
	{Name: "claims of the dead are left in etcd", Rule: nothingLeft, Faults: KillCallers, Test: "executor TestOrphanClaimsAreDeleted",
		Edits: []Edit{
			{"lease/etcdlease/build.go", "p.Key, p.Value, p.Lease = key, value, int64(on)", "p.Key, p.Value, p.Lease = key, value, 0*int64(on)"},
			{"executor/sweep.go", "return s.cfg.Leases.RemoveClaims(ctx, remove)", "return s.cfg.Leases.RemoveClaims(ctx, remove[:0])"},
		}},

	{Name: "entries are applied twice after a start", Rule: replicasEqual, Faults: KillNode, Test: "clusterstore TestDuplicates",
		Edits: []Edit{{"clusterstore/fsm.go", "if entry.Index <= fs.meta.Applied {", "if entry.Index == 0 {"}}},
	{Name: "a snapshot is older than its index", Rule: replicasEqual, Faults: CutFollower, Test: "clusterstore TestFollowerIsRestoredFromASnapshot",
		Edits: []Edit{
			{"clusterstore/snapshot.go", "\tfs.flush()\n\tc := &checkpoint{", "\tc := &checkpoint{"},
			{"clusterstore/config.go", "setDefault(&c.Log.SnapshotBytes, 256<<20)", "setDefault(&c.Log.SnapshotBytes, 1<<20)"}, // so that there are some
		}},
	{Name: "the order of a map decides in the state", Rule: replicasEqual, Faults: FreezeCallers, Test: "flight TestSessions_HeldFlightsPages",
		Edits: []Edit{{"flight/sessions.go", "\tslices.SortFunc(flights, compareIDs)\n\treturn flights[:min(limit", "\treturn flights[:min(limit"}}},
	{Name: "a receipt is not stored byte for byte", Rule: receiptKept, Faults: ShortFreeze,
		Edits: []Edit{{"clusterstore/mem_batch.go", "kind: kind, data: bytes.Clone(data)})", "kind: kind, data: bytes.ReplaceAll(data, []byte(\"  \"), []byte(\" \\n\"))})"}}},
	{Name: "a receipt expires by the wall clock", Rule: receiptKept, Faults: ClockAhead, Test: "clusterstore TestHazard25_JumpExpiresNothing",
		Edits: []Edit{
			{"clusterstore/clock.go", "now := max(0, min(c.now, r.lowerMedian()))", "now := c.source.Wall().UnixNano()"},
			{"flight/apply_resolve.go", "t.header.Now < f.ExpiresAt():", "t.latestTime() < f.ExpiresAt():"},
		}},
	{Name: "a receipt expires before its time", Rule: receiptKept, Faults: ShortFreeze, Test: "flight TestHazard34_ATombstoneStillAnswers",
		Edits: []Edit{{"flight/flight.go", "return f.FinishedAt.Add(f.Policy.retention())", "return f.FinishedAt.Add(f.Policy.retention() / 1_000_000)"}}},

	{Name: "a late report overwrites a person's decision", Rule: receiptKept, Faults: FreezeCallers, Test: "flight TestHazard43_ThePersonAndTheZombieDecideInLogOrder",
		Edits: []Edit{{"flight/apply_report.go", "case isNewest && !f.State.Terminal():", "case isNewest && (!f.State.Terminal() || f.Resolution != nil):"}}},
	{Name: "a retry by a person has no new generation", Rule: newGeneration, Faults: ShortFreeze, Test: "flight TestApprovals_Explored",
		Edits: []Edit{{"flight/apply_resolve.go", "\tnext := t.nextGeneration(by)\n", "\tnext := t.nextGeneration(by)\n\tnext.Generation = c.Generation\n"}}},
	{Name: "a free keeps the receipt", Rule: trueAnswer, Faults: ShortFreeze, Test: "flight TestHazard05_OverlapAcrossGenerations",
		Edits: []Edit{{"flight/apply_resolve.go", "\tt.nextGeneration(by)\n\tt.emit(EventFreed,", "\tt.editFlight()\n\tt.emit(EventFreed,"}}},
	{Name: "a redaction keeps the receipt", Rule: erased, Faults: ShortFreeze, Test: "clusterstore TestRedact_NobodyReadsTheBytes",
		Edits: []Edit{{"flight/apply_redact.go", "\tf.Receipt = f.Receipt.erased()\n", ""}}},
	{Name: "nothing awaits its approval", Rule: approvedFirst, Faults: ShortFreeze, Test: "flight TestApprovals_Explored",
		Edits: []Edit{{"flight/apply.go", "\tif s.Policy.Approval {\n", "\tif s.Policy.Approval && t.key.IsStep() {\n"}}},
	{Name: "an approval counts when its time is over", Rule: approvedFirst, Faults: ShortFreeze, Test: "flight TestApprovals_Explored",
		Edits: []Edit{{"flight/apply_approval.go", "case c.Finding == FindingApproved && t.approvalIsOver():", "case c.Finding == FindingNone && t.approvalIsOver():"}}},

	{Name: "a job is handed out twice when its worker dies", Rule: oneEffect, Faults: KillCallers, Test: "flight TestHazard03_AnAttemptWithoutProofStaysInDoubtForEver",
		Edits: []Edit{{"flight/apply_open.go", "\tt.taint()\n\tt.applyRecovery(0)", "\tt.reschedule(0)"}}},
	{Name: "a lane is ordered by the arrival of claims", Rule: lane, Faults: KillCallers, Test: "flight TestDue_Status",
		Edits: []Edit{
			{"flight/due_lane.go", "if l.open.Len() > smallest {", "if smallest < 0 {"},
			{"flight/due_lane.go", "if next == nil || l.open.Len() >= min(smallest, next.limit()) {", "if next == nil {"},
			{"flight/due_lane.go", "return j != nil && j.held", `if j == nil || j.lane == nil {
		return false
	}
	running := 0
	j.lane.jobs.Ascend(func(other *job) bool {
		if other.state == StateRunning {
			running++
		}
		return true
	})
	return running >= int(max(1, j.place.Queue.Limit))`},
		}},

	{Name: "a saga is undone before its steps have settled", Rule: settledFirst, Faults: KillCallers,
		Edits: []Edit{decideAfter(`for i, f := range v.Steps {
		if f != nil && f.State != flight.StateAbsent && !f.State.Terminal() && v.Saga.Cancel != nil {
			v.Steps[i] = &flight.Flight{State: flight.StateCancelled}
		}
	}`)}},
	{Name: "a saga is undone in the reverse order of starts", Rule: reverseOrder, Faults: KillCallers,
		Edits: []Edit{decideAfter(`for i, f := range v.Steps {
		if f != nil {
			started := *f
			started.Ended, v.Steps[i] = flight.Version{Index: uint64(f.CreatedAt), Pos: uint32(i)}, &started
		}
	}`)}},
	{Name: "two undos of a saga run at once", Rule: reverseOrder, Faults: KillCallers, Test: "saga TestExplore",
		Edits: []Edit{
			{"saga/decide.go", "\tcase busy:\n\tcase next >= 0:", "\tcase busy && next < 0:\n\tcase next >= 0:"},
			{"saga/decide.go", "\tif n.Undo >= 0 {\n\t\tn.Live++\n", "\tif n.Undo >= 0 {\n\t\tn.Live += 2\n"}, // it is due again at once
		}},
	{Name: "a refused undo counts as done", Rule: allOrNone, Faults: KillCallers, Test: "flight TestHazard41_AnUndoThatFailsWaitsForAPerson",
		Edits: []Edit{{"flight/apply_saga.go", "return t.key.IsUndo() || t.key.IsStep() && t.sagaIsLive()", "return !t.key.IsUndo() && t.key.IsStep() && t.sagaIsLive()"}}},
	{Name: "a saga that a person cancels goes on", Rule: mark, Faults: KillCallers, Test: "flight TestSagas_Explored",
		Edits: []Edit{
			decideAfter("running := *v.Saga\n\trunning.Cancel, v.Saga = nil, &running"),
			{"flight/apply_saga.go", "t.saga.Phase == PhaseForward && t.saga.Cancel == nil", "t.saga.Phase == PhaseForward"},
		}},
	{Name: "a step that waits starts although its saga was cancelled", Rule: mark, Faults: KillCallers, Test: "flight TestSagas_Explored",
		Edits: []Edit{
			{"flight/apply_saga.go", "!t.key.IsUndo() && t.flight().Tainted()", "!t.key.IsUndo()"},
			{"saga/decide.go", "\tdefault:\n\t\tn.Cancel = append(n.Cancel, i)\n", ""},
		}},
	{Name: "a saga is undone past its pivot", Rule: pivot, Faults: KillCallers,
		Edits: []Edit{decideAfter(`without := *def
	def, without.Steps = &without, append([]saga.Step{}, def.Steps...)
	for i := range def.Steps {
		def.Steps[i].Pivot = false
	}`)}},
	{Name: "a step that ends before the suspend wakes no saga", Rule: notBlocked, Faults: KillCallers, Test: "flight TestDue_Sagas",
		Edits: []Edit{{"flight/due_sagas.go", "true, after.Wake.Live", "true, uint8(s.live)"}}},

	{Name: "a follower answers what it has not heard the end of", Rule: readersGoOn, Faults: CutLedger, Test: "httpapi TestFollower_ShowsFinalReceiptsAlone",
		Edits: []Edit{{"httpapi/flight_writer.go", "fw.follower != nil && !f.HasFinalReceipt():", "fw.follower != nil && f.State == flight.StateExpired:"}}},
	{Name: "a reader that resumes loses events", Rule: readersGoOn, Faults: ShortFreeze, Test: "clusterstore TestFeedResumesAnywhere",
		Edits: []Edit{{"clusterstore/feed.go", "\tif after == endOfEntry(after.Index) {\n", "\tif after.Index > 0 {\n"}}},

	{Name: "a report that fails once is dropped", Rule: attemptKept, Faults: CutCallers, Callers: true, Test: "client TestSpoolFromTheFirstFailure",
		Edits: []Edit{{"client/record.go", "\t\tf, err = rep.server.sendReport(ctx, ask, sent)\n\t}\n\tif reportResultOf(err) == reportTaken {", "\t}\n\tif reportResultOf(err) != reportRejected {"}}},
	{Name: "a caller whose report was fenced gets its own answer", Rule: receiptKept, Faults: FreezeCallers, Callers: true, Test: "client TestFencedReport",
		Edits: []Edit{{"client/attempt.go", "\tif errors.As(err, new(*effect.Fenced)) { // a final", `	if errors.As(err, new(*effect.Fenced)) && end.Outcome == flight.OutcomeSucceeded {
		return runner.Answer{Result: effect.Result{Key: o.key, FlightID: o.key.FlightID(), Outcome: end.Outcome, Source: effect.SourceReplayed, Attempt: o.number, Answer: end.Answer}}, nil
	}
	if errors.As(err, new(*effect.Fenced)) { // a final`}}},
}
