package flight

import "slices"

// report stores the outcome of an attempt (invariant I3). It accepts the report of the newest attempt until the flight is
// over, and its repeats. Every other report is stored as evidence and changes nothing else, unless a restore has lost its attempt; see
// needsNoEvidence for those that are not stored.
func (t *transition) report(c *Report) Decision {
	f := t.flight()
	if !t.absent() && f.Policy.Saga {
		return t.reportSaga(c)
	}
	a := f.Newest()
	isNewest := a != nil && c.Generation == f.Generation && t.isTokenOf(a, c.Token)
	switch {
	case isNewest && a.ReportedOutcomes&outcomeBit(c.Outcome) != 0 && t.isRepeatedReport(c):
		t.recordCallback(c)
		return DecisionAccepted
	case isNewest && !f.State.Terminal():
		t.acceptReport(c)
		return DecisionAccepted
	case t.needsNoEvidence(c):
		return DecisionAccepted
	case c.Token.StoreEpoch != t.header.StoreEpoch, f == nil, c.Token.Number > f.Fence.Number, f.Receipt.isOfLostReport(c):
		return t.reportLost(c)
	}
	return t.fenceReport(c)
}

// needsNoEvidence reports whether a late report without a final outcome changes nothing and is not stored. Either it was accepted when its
// attempt was the newest one: two copies of a report that a node could not store may wait, in the node's spool and in the caller's, and
// the second one comes late. Or so many attempts have followed that the flight does not store its attempt any more, and nobody can say
// whether it is such a copy.
func (t *transition) needsNoEvidence(c *Report) bool {
	f := t.flight()
	if f == nil || c.Generation != f.Generation || c.Outcome.Final() {
		return false
	}
	if len(f.Attempts) == MaxAttempts && c.Token.StoreEpoch == t.header.StoreEpoch && c.Token.Number < f.Attempts[0].Number {
		return true
	}
	return slices.ContainsFunc(f.Attempts, func(a Attempt) bool {
		return t.isTokenOf(&a, c.Token) && a.ReportedOutcomes&outcomeBit(c.Outcome) != 0
	})
}

// isRepeatedReport reports whether a report of an outcome that was reported before carries the same result.
func (t *transition) isRepeatedReport(c *Report) bool {
	f := t.flight()
	r := f.Receipt
	if !c.Outcome.Final() || r == nil {
		return !c.Outcome.Final() || !f.State.Terminal() || f.Unknown
	}
	return r.Source == SourceReport && r.SameEffect(c.Outcome, Sanitize(c.ExternalID), c.Body.Digest)
}

func (t *transition) acceptReport(c *Report) {
	wasOpen := t.newestAttempt().IsOpen()
	t.recordCallback(c)
	if wasOpen {
		t.closeAttempt(c.Outcome)
	}
	a := t.newestAttempt()
	a.Outcome, a.Error = c.Outcome, Sanitize(c.Error)
	a.ReportedOutcomes |= outcomeBit(c.Outcome)
	t.emit(EventReported, Event{Attempt: a.Number, Outcome: c.Outcome, Note: Sanitize(firstNonEmpty(c.Error, c.ExternalID))})
	switch c.Outcome {
	case OutcomeSucceeded:
		t.endWithReceipt(receiptOf(c))
	case OutcomeRefused:
		t.acceptRefused(c, wasOpen)
	case OutcomeNotDone:
		t.untaintNewest()
		t.afterNotDone(wasOpen, c)
	default:
		t.taint()
		if f := t.flight(); wasOpen || f.State == StateReady || f.State == StateScheduled {
			t.applyRecovery(t.retryDelay(c.RetryAfter))
		}
	}
}

// acceptRefused ends the flight with a failed receipt, unless an earlier attempt may have succeeded. If the provider honours
// our key, its answer covers all attempts, and the flight ends as well. The provider answered before the report arrived, at a
// time that the ledger does not know; so the provider must still remember the key now.
func (t *transition) acceptRefused(c *Report, wasOpen bool) {
	t.untaintNewest()
	f := t.editFlight()
	keyHonoured := f.Policy.Recovery == RecoveryResend && f.providerRemembersKey(t.latestTime())
	if !f.Tainted() || keyHonoured {
		if t.mustSettle() {
			t.untaintAll()
			t.holdForPerson("it was refused, and it must not fail: " + Sanitize(c.Error))
			return
		}
		t.endWithReceipt(receiptOf(c))
		return
	}
	if wasOpen || f.State == StateReady || f.State == StateScheduled {
		t.verifyOrHold("the newest attempt was refused, but an earlier one may have happened")
	}
}

// afterNotDone retries or ends a flight whose newest attempt surely had no effect.
func (t *transition) afterNotDone(wasOpen bool, c *Report) {
	f := t.editFlight()
	if wasOpen || t.waitsForDoubt() && !f.Tainted() {
		t.retryOrEnd(t.retryDelay(c.RetryAfter))
	}
}

// waitsForDoubt reports whether the flight waits for the end of its doubt, and for nothing else: of a person, of a look-up, or of a saga that
// does not start the step any more.
func (t *transition) waitsForDoubt() bool {
	f := t.flight()
	return f.State == StateInDoubt || f.Verifying() || t.isStopped()
}

func receiptOf(c *Report) Receipt {
	return Receipt{Outcome: c.Outcome, ExternalID: c.ExternalID, Body: c.Body, Attempt: c.Token.Number, Source: SourceReport}
}

// fenceReport stores a late report as evidence. A repeat of the report adds nothing. A tombstone stores only evidence of a
// second effect.
//
// The report may belong to an attempt that this ledger has lost, because an older ledger was restored. The fence moves above
// its number, so that the number is not assigned again. If the whole flight is lost, the key continues in the generation of
// the report, so that the next attempt sends the same idempotency key to the provider.
func (t *transition) fenceReport(c *Report) Decision {
	e := t.evidenceOf(c)
	f := t.flight()
	if f == nil {
		f = t.editFlight()
		f.Generation = max(f.Generation, c.Generation)
	}
	second := t.isSecondEffect(&e)
	if f.hasEvidence(&e) || f.State == StateExpired && !second {
		return DecisionFenced
	}
	t.storeEvidence(e)
	t.raiseFence(c.Token)
	t.emit(EventReportFenced, Event{Generation: e.Generation, Attempt: c.Token.Number, Outcome: c.Outcome, Note: firstNonEmpty(e.Error, e.ExternalID)})
	if second {
		t.raiseOverlap(&e)
	}
	return DecisionFenced
}

func (t *transition) evidenceOf(c *Report) Evidence {
	return Evidence{Token: c.Token, Generation: c.Generation, Outcome: c.Outcome, ExternalID: Sanitize(c.ExternalID), Digest: c.Body.Digest,
		At: t.header.Now, Error: Sanitize(c.Error)}
}

// hasEvidence reports whether the flight stores the same report.
func (f *Flight) hasEvidence(e *Evidence) bool {
	return slices.ContainsFunc(f.Evidence, func(k Evidence) bool {
		return k.Token == e.Token && k.Generation == e.Generation && k.Outcome == e.Outcome && k.ExternalID == e.ExternalID && k.Digest == e.Digest
	})
}

// raiseFence moves the fence above a token from outside.
func (t *transition) raiseFence(token Token) {
	f := t.editFlight()
	f.Fence = Token{StoreEpoch: max(f.Fence.StoreEpoch, token.StoreEpoch), Number: max(f.Fence.Number, token.Number)}
}

// storeEvidence adds a piece of evidence. A full list only counts it; but evidence of a success, which may prove a second
// effect, replaces evidence of another outcome.
func (t *transition) storeEvidence(e Evidence) {
	f := t.editFlight()
	if len(f.Evidence) < MaxEvidence {
		f.Evidence = append(slices.Clip(f.Evidence), e)
		return
	}
	f.EvidenceOmitted++
	other := slices.IndexFunc(f.Evidence, func(k Evidence) bool { return k.Outcome != OutcomeSucceeded })
	if e.Outcome == OutcomeSucceeded && other >= 0 {
		f.Evidence = slices.Clone(f.Evidence)
		f.Evidence[other] = e
	}
}

// detectOverlaps compares the stored evidence of a generation that has just ended with its final state.
func (t *transition) detectOverlaps() {
	f := t.flight()
	for i := range f.Evidence {
		if e := &f.Evidence[i]; e.Generation == f.Generation && t.isSecondEffect(e) {
			t.raiseOverlap(e)
		}
	}
}

// isSecondEffect reports whether a late report of success names another effect than the receipt, or an effect of a generation
// that ended without one. It returns false before the generation has ended; detectOverlaps repeats the check then.
func (t *transition) isSecondEffect(e *Evidence) bool {
	state, receipt := t.finalStateOf(e.Generation)
	return e.Outcome == OutcomeSucceeded && state.Terminal() && (receipt == nil || !receipt.SameEffect(e.Outcome, e.ExternalID, e.Digest))
}

// raiseOverlap marks the flight: there is evidence of a second effect.
func (t *transition) raiseOverlap(e *Evidence) {
	t.editFlight().Overlap = true
	t.emit(EventOverlap, Event{Generation: e.Generation, Attempt: e.Token.Number, Outcome: e.Outcome, Note: e.ExternalID})
}

// finalStateOf returns the final state and receipt of a generation. The state is not terminal if the generation has not
// ended.
func (t *transition) finalStateOf(generation uint32) (State, *Receipt) {
	f := t.flight()
	if generation == f.Generation {
		if f.State == StateExpired {
			return f.FinalState, f.Receipt
		}
		return f.State, f.Receipt
	}
	for i := range f.PreviousGenerations {
		if p := &f.PreviousGenerations[i]; p.Generation == generation {
			return p.State, p.Receipt
		}
	}
	return StateAbsent, nil
}

// abandon applies the statement of the nonce's caller that nothing was sent or will be sent under the nonce. An attempt that
// waits for its callback cannot be abandoned: its effect has started.
func (t *transition) abandon(c *Abandon) Decision {
	if c.StoreEpoch != t.header.StoreEpoch {
		return DecisionFenced
	}
	f := t.flight()
	switch a := f.Newest(); {
	case a != nil && a.Nonce == c.Nonce:
		return t.abandonNewest(c)
	case f.Verifying() && f.Verification.Nonce == c.Nonce:
		t.releaseVerification()
		return DecisionAccepted
	case t.isUsedNonce(c.Nonce) || c.NotAfter < t.header.Now:
		return DecisionAccepted
	case c.NotAfter > t.header.Now.Add(MaxNonceLife):
		return DecisionOpenExpired // a nonce is not remembered for that long
	case t.noncesExhausted():
		return DecisionExhausted
	}
	t.useNonce(c.Nonce, c.NotAfter)
	return DecisionAccepted
}

// abandonNewest ends the newest attempt as not_done, and counts no retry for it. If the attempt was marked lost, its taint is
// removed.
func (t *transition) abandonNewest(c *Abandon) Decision {
	f := t.flight()
	a := f.Newest()
	switch {
	case f.State.Terminal() || a.ReportedOutcomes != 0 || !a.IsOpen() && !a.Lost:
		return DecisionAccepted
	case a.IsOpen() && f.State == StateWaiting, f.Policy.Saga:
		return DecisionFenced
	}
	wasOpen := a.IsOpen()
	if wasOpen {
		t.closeAttempt(OutcomeNotDone)
	}
	a = t.newestAttempt()
	a.Outcome, a.Error = OutcomeNotDone, Sanitize(c.Error)
	a.ReportedOutcomes |= outcomeBit(OutcomeNotDone)
	t.uncountAttempt()
	t.emit(EventAbandoned, Event{Attempt: a.Number, Outcome: OutcomeNotDone, Note: Sanitize(c.Error)})
	t.untaintNewest()
	if wasOpen || t.waitsForDoubt() && !t.flight().Tainted() {
		t.retryOrEnd(0)
	}
	return DecisionAccepted
}

// uncountAttempt subtracts one attempt from the retry policy's count. The count may be 0 after a person's decision.
func (t *transition) uncountAttempt() {
	if f := t.editFlight(); f.CountedAttempts > 0 {
		f.CountedAttempts--
	}
}

// reportFinding applies the finding of the look-up that was assigned last. A finding for an earlier number is fenced.
func (t *transition) reportFinding(c *ReportFinding) Decision {
	f := t.flight()
	if t.absent() || f.State.Terminal() {
		if f != nil && f.Unknown && c.Finding == FindingHappened && c.Generation == f.Generation && c.Verification == f.Verifications { // its saga did not wait for the look-up
			t.fenceReport(&Report{Generation: c.Generation, Token: Token{StoreEpoch: t.header.StoreEpoch, Number: f.AttemptNumber()}, Outcome: OutcomeSucceeded, ExternalID: c.ExternalID, Body: c.Body})
		}
		return t.answerCurrent()
	}
	if c.Generation != f.Generation || !f.Verifying() || f.Verification.Number != c.Verification || f.Verification.Nonce == (Nonce{}) {
		return DecisionFenced
	}
	number := f.AttemptNumber() // 0: the attempt in question was lost by a restore
	t.emit(EventVerificationReported, Event{Attempt: number, Note: c.Finding.String()})
	switch c.Finding {
	case FindingHappened:
		t.endWithReceipt(Receipt{Outcome: OutcomeSucceeded, ExternalID: c.ExternalID, Body: c.Body, Attempt: number, Source: SourceLookup})
	case FindingNotHappened:
		t.untaintAll()
		t.retryOrEnd(0)
	default:
		t.retryVerification()
	}
	return DecisionAccepted
}

// retryVerification schedules the next look-up after an inconclusive one, or waits for a person after too many.
func (t *transition) retryVerification() {
	f := t.editFlight()
	tries := f.Verification.Tries + 1
	if tries >= f.Policy.verifyAttempts() {
		t.holdForPerson("look-ups could not find out whether the effect happened")
		return
	}
	t.setVerification(Verification{NotBefore: t.header.Now.Add(verifyBackoff(tries)), Tries: tries})
}

func outcomeBit(o Outcome) uint8 { return 1 << o }

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
