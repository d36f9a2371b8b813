package flight

import "slices"

// report takes the outcome of an attempt (invariant I3): from the newest one, until the flight is terminal. Every
// other report is kept as evidence and changes nothing else; so is one of an attempt that a restored ledger has lost, or
// with a token of another store epoch.
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

// sameReport reports whether a report of an outcome that was reported before says nothing new.
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

// acceptRefused: the provider's no ends the flight, unless an earlier attempt may have succeeded and this answer says
// nothing about that one. It does where the provider honours our key: then the answer is to all attempts alike. The provider
// gave its answer before the report came, at a moment that the ledger does not know.
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

// afterNotDone: the newest attempt surely did nothing.
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

// fence keeps a late report as evidence. The same report twice is one piece of evidence. A tombstone keeps only what shows
// a second effect.
//
// A report may be of an attempt that this ledger has lost, because an older one was restored. Its number is not given
// again. Where the whole flight is lost, the key goes on in the generation of that attempt, so that the next one sends the
// provider the same idempotency key.
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

// keep adds a piece of evidence. Where there is no room it is counted; but one of success, which may be of a second
// effect, takes the place of one that is not.
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

// compareAll compares the evidence of the generation that has just ended with its end.
func (t *turn) compareAll() {
	f := t.flight()
	for i := range f.Evidence {
		if e := &f.Evidence[i]; e.Generation == f.Generation && t.isSecondEffect(e) {
			t.overlap(e)
		}
	}
}

// isSecondEffect reports whether a late report of success names another effect than the one recorded, or one where none
// should be. Before its generation has ended there is nothing to compare it with: compareAll does then.
func (t *turn) isSecondEffect(e *Evidence) bool {
	state, receipt := t.endOf(e.Generation)
	return e.Outcome == Succeeded && state.Terminal() && (receipt == nil || !receipt.SameEffect(e.Outcome, e.ExternalID, e.Digest))
}

// overlap raises the alarm of a second effect.
func (t *turn) overlap(e *Evidence) {
	t.edit().Overlap = true
	t.note(EventOverlap, Event{Generation: e.Generation, Attempt: e.Token.Number, Outcome: e.Outcome, Note: e.ExternalID})
}

// endOf is how a generation ended; a state that is not terminal when it has not.
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

// abandon takes the word of the caller that made the nonce: nothing was sent, nor will be. An attempt that waits for its
// callback cannot be abandoned: its effect has started.
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
		return OpenExpired // nothing is remembered for that long
	case t.exhausted():
		return Exhausted
	}
	t.use(c.Nonce, c.NotAfter)
	return Accepted
}

// dropNewest ends the newest attempt as one that sent nothing, and counts no retry for it. Where the attempt was lost
// before, its doubt is taken back.
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

// uncount takes back one counted attempt. A person may have taken all of them back before.
func (t *turn) uncount() {
	if f := t.edit(); f.Counted > 0 {
		f.Counted--
	}
}

// verdict is the answer of a look-up to the probe that was sent out last.
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

// lookAgain: the look-up could not find out.
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
