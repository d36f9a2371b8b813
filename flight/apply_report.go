package flight

import "slices"

// report stores the outcome of an attempt (invariant I3). It accepts the report of the newest attempt until the flight is
// over. Every other report is stored as evidence and changes nothing else; so is the report of an attempt that a restored
// ledger has lost, or with a token of another store epoch.
func (t *turn) report(c *Report) Decision {
	f := t.flight()
	a := f.Newest()
	if a == nil || c.Generation != f.Generation || t.header.TokenOf(a) != c.Token {
		return t.fence(c)
	}
	if repeated := a.Reported&bit(c.Outcome) != 0; repeated && t.sameReport(c) {
		return Accepted
	}
	if f.State.Terminal() {
		return t.fence(c)
	}
	t.accept(c)
	return Accepted
}

// isRepeatedReport reports whether a report of an outcome that was reported before carries the same result.
func (t *turn) sameReport(c *Report) bool {
	r := t.flight().Receipt
	if !c.Outcome.Final() || r == nil {
		return !c.Outcome.Final() || !t.flight().State.Terminal()
	}
	return r.Source == FromReport && r.SameEffect(c.Outcome, Text(c.ExternalID), c.Body.Digest)
}

func (t *turn) accept(c *Report) {
	wasOpen := t.newest().Open()
	if wasOpen {
		t.close(c.Outcome)
	}
	a := t.newest()
	a.Outcome, a.Error = c.Outcome, Text(c.Error)
	a.Reported |= bit(c.Outcome)
	t.note(EventReported, Event{Attempt: a.Number, Outcome: c.Outcome, Note: Text(firstOf(c.Error, c.ExternalID))})
	switch c.Outcome {
	case Succeeded:
		t.land(receiptOf(c))
	case Refused:
		t.acceptRefused(c, wasOpen)
	case NotDone:
		t.undoubt()
		t.afterNotDone(wasOpen, c)
	default:
		t.doubt()
		if f := t.flight(); wasOpen || f.State == Queued || f.State == Scheduled {
			t.settleDoubt(t.delay(c.RetryAfter))
		}
	}
}

// acceptRefused ends the flight with a failed receipt, unless an earlier attempt may have succeeded. If the provider honours
// our key, its answer covers all attempts, and the flight ends as well. The provider answered before the report arrived, at a
// time that the ledger does not know; so the provider must still remember the key now.
func (t *turn) acceptRefused(c *Report, wasOpen bool) {
	t.undoubt()
	f := t.edit()
	honoured := f.Policy.Saga || f.Policy.Recovery == Resend && f.honours(t.latest())
	if !f.Tainted() || honoured {
		t.land(receiptOf(c))
		return
	}
	if wasOpen || f.State == Queued || f.State == Scheduled {
		t.escalate("the newest attempt was refused, but an earlier one may have happened")
	}
}

// afterNotDone retries or ends a flight whose newest attempt surely had no effect.
func (t *turn) afterNotDone(wasOpen bool, c *Report) {
	f := t.edit()
	doubted := f.State == InDoubt || f.Looking()
	if wasOpen || doubted && !f.Tainted() {
		t.tryAgain(t.delay(c.RetryAfter))
	}
}

func receiptOf(c *Report) Receipt {
	return Receipt{Outcome: c.Outcome, ExternalID: c.ExternalID, Body: c.Body, Attempt: c.Token.Number, Source: FromReport}
}

// fenceReport stores a late report as evidence. A repeat of the report adds nothing. A tombstone stores only evidence of a
// second effect.
//
// The report may belong to an attempt that this ledger has lost, because an older ledger was restored. The fence moves above
// its number, so that the number is not assigned again. If the whole flight is lost, the key continues in the generation of
// the report, so that the next attempt sends the same idempotency key to the provider.
func (t *turn) fence(c *Report) Decision {
	e := Evidence{Token: c.Token, Generation: c.Generation, Outcome: c.Outcome, ExternalID: Text(c.ExternalID), Digest: c.Body.Digest,
		At: t.header.Now, Error: Text(c.Error)}
	f := t.flight()
	if f == nil {
		f = t.edit()
		f.Generation = max(f.Generation, c.Generation)
	}
	second := t.isSecondEffect(&e)
	known := slices.ContainsFunc(f.Evidence, func(k Evidence) bool {
		return k.Token == e.Token && k.Generation == e.Generation && k.Outcome == e.Outcome && k.ExternalID == e.ExternalID && k.Digest == e.Digest
	})
	if known || f.State == Expired && !second {
		return Fenced
	}
	t.keep(e)
	f = t.edit()
	f.Fence = Token{StoreEpoch: max(f.Fence.StoreEpoch, c.Token.StoreEpoch), Number: max(f.Fence.Number, c.Token.Number)}
	t.note(EventFencedReport, Event{Generation: e.Generation, Attempt: c.Token.Number, Outcome: c.Outcome, Note: firstOf(e.Error, e.ExternalID)})
	if second {
		t.overlap(&e)
	}
	return Fenced
}

// storeEvidence adds a piece of evidence. A full list only counts it; but evidence of a success, which may prove a second
// effect, replaces evidence of another outcome.
func (t *turn) keep(e Evidence) {
	f := t.edit()
	if len(f.Evidence) < MaxEvidence {
		f.Evidence = append(slices.Clip(f.Evidence), e)
		return
	}
	f.EvidenceMore++
	other := slices.IndexFunc(f.Evidence, func(k Evidence) bool { return k.Outcome != Succeeded })
	if e.Outcome == Succeeded && other >= 0 {
		f.Evidence = slices.Clone(f.Evidence)
		f.Evidence[other] = e
	}
}

// detectOverlaps compares the stored evidence of a generation that has just ended with its final state.
func (t *turn) compareAll() {
	f := t.flight()
	for i := range f.Evidence {
		if e := &f.Evidence[i]; e.Generation == f.Generation && t.isSecondEffect(e) {
			t.overlap(e)
		}
	}
}

// isSecondEffect reports whether a late report of success names another effect than the receipt, or an effect of a generation
// that ended without one. It returns false before the generation has ended; detectOverlaps repeats the check then.
func (t *turn) isSecondEffect(e *Evidence) bool {
	state, receipt := t.endOf(e.Generation)
	return e.Outcome == Succeeded && state.Terminal() && (receipt == nil || !receipt.SameEffect(e.Outcome, e.ExternalID, e.Digest))
}

// raiseOverlap marks the flight: there is evidence of a second effect.
func (t *turn) overlap(e *Evidence) {
	t.edit().Overlap = true
	t.note(EventOverlap, Event{Generation: e.Generation, Attempt: e.Token.Number, Outcome: e.Outcome, Note: e.ExternalID})
}

// finalStateOf returns the final state and receipt of a generation. The state is not terminal if the generation has not
// ended.
func (t *turn) endOf(generation uint32) (State, *Receipt) {
	f := t.flight()
	if generation == f.Generation {
		if f.State == Expired {
			return f.Was, f.Receipt
		}
		return f.State, f.Receipt
	}
	for i := range f.Past {
		if p := &f.Past[i]; p.Generation == generation {
			return p.State, p.Receipt
		}
	}
	return Absent, nil
}

// abandon applies the statement of the nonce's caller that nothing was sent or will be sent under the nonce. An attempt that
// waits for its callback cannot be abandoned: its effect has started.
func (t *turn) abandon(c *Abandon) Decision {
	if c.StoreEpoch != t.header.StoreEpoch {
		return Fenced
	}
	f := t.flight()
	switch a := f.Newest(); {
	case a != nil && a.Nonce == c.Nonce:
		return t.dropNewest(c)
	case f.Looking() && f.Probe.Nonce == c.Nonce:
		t.endLook()
		return Accepted
	case t.isUsed(c.Nonce) || c.NotAfter < t.header.Now:
		return Accepted
	case c.NotAfter > t.header.Now.Add(MaxNonceLife):
		return OpenExpired // a nonce is not remembered for that long
	case t.exhausted():
		return Exhausted
	}
	t.use(c.Nonce, c.NotAfter)
	return Accepted
}

// abandonNewest ends the newest attempt as not_done, and counts no retry for it. If the attempt was marked lost, its taint is
// removed.
func (t *turn) dropNewest(c *Abandon) Decision {
	f := t.flight()
	a := f.Newest()
	switch {
	case f.State.Terminal() || a.Reported != 0 || !a.Open() && !a.Lost:
		return Accepted
	case a.Open() && f.State == Waiting:
		return Fenced
	}
	wasOpen := a.Open()
	if wasOpen {
		t.close(NotDone)
	}
	a = t.newest()
	a.Outcome, a.Error = NotDone, Text(c.Error)
	a.Reported |= bit(NotDone)
	t.uncount()
	t.note(EventAbandoned, Event{Attempt: a.Number, Outcome: NotDone, Note: Text(c.Error)})
	t.undoubt()
	f = t.edit()
	if doubted := f.State == InDoubt || f.Looking(); wasOpen || doubted && !f.Tainted() {
		t.tryAgain(0)
	}
	return Accepted
}

// uncountAttempt subtracts one attempt from the retry policy's count. The count may be 0 after a person's decision.
func (t *turn) uncount() {
	if f := t.edit(); f.Counted > 0 {
		f.Counted--
	}
}

// reportFinding applies the finding of the look-up that was assigned last. A finding for an earlier number is fenced.
func (t *turn) verdict(c *Verdict) Decision {
	f := t.flight()
	if t.absent() || f.State.Terminal() {
		return t.standing()
	}
	if c.Generation != f.Generation || !f.Looking() || f.Probe.Number != c.Probe || f.Probe.Nonce == (Nonce{}) {
		return Fenced
	}
	number := f.Newest().Number
	t.note(EventVerdict, Event{Attempt: number, Note: c.Result.String()})
	switch c.Result {
	case Happened:
		t.land(Receipt{Outcome: Succeeded, ExternalID: c.ExternalID, Body: c.Body, Attempt: number, Source: FromLookup})
	case DidNotHappen:
		t.clear()
		t.tryAgain(0)
	default:
		t.lookAgain()
	}
	return Accepted
}

// retryVerification schedules the next look-up after an inconclusive one, or waits for a person after too many.
func (t *turn) lookAgain() {
	f := t.edit()
	tries := f.Probe.Tries + 1
	if tries >= f.Policy.lookTries() {
		t.hold("look-ups could not find out whether the effect happened")
		return
	}
	t.probe(Probe{NotBefore: t.header.Now.Add(lookBackoff(tries)), Tries: tries})
}

func bit(o Outcome) uint8 { return 1 << o }

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
