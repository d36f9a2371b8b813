package flight

import "slices"

func (t *turn) submit(c *Submit) Decision {
	if d := t.settled(c.Submission.Fingerprint); d != NoDecision {
		return d
	}
	if t.absent() {
		if !t.mayStart(&c.Submission) {
			return Fenced
		}
		t.create(&c.Submission)
	}
	return t.standing()
}

// open is the gate before every effect. An Open that opens nothing moves no fence.
func (t *turn) open(c *Open) Decision {
	t.see(c.Claim)
	if d := t.settled(c.Submission.Fingerprint); d != NoDecision {
		return d
	}
	if c.Claim.Epoch != t.header.LeaseEpoch || c.StoreEpoch != t.header.StoreEpoch {
		return Fenced
	}
	if t.flying(c.Claim.Session, c.Nonce) {
		if c.Repeat && !t.flight().Newest().Told {
			t.edit()
			t.newest().Told = true
		}
		return Proceed // a repeat: the first answer is still true
	}
	if c.Repeat {
		return Fenced // it came to an end, perhaps without ever being told to act
	}
	late := c.NotAfter < t.header.Now || c.NotAfter > t.header.Now.Add(MaxOpenLife)
	if late || t.isSpent(c.Claim.Session, c.Nonce) {
		return Fenced
	}
	if t.absent() {
		if !t.mayStart(&c.Submission) || !t.rises(c.Claim) {
			return Fenced
		}
		t.create(&c.Submission)
	}
	if d := t.overcome(c.Claim); d != NoDecision {
		return d
	}
	switch f := t.flight(); f.State {
	case AwaitingApproval:
		return Unapproved
	case InDoubt:
		return Doubtful
	case Waiting:
		return t.busy(f.Wake.At)
	case Running:
		return t.look(c.Claim)
	case Scheduled:
		if f.NotBefore > t.header.Now {
			return t.busy(f.NotBefore)
		}
	case Queued:
	default:
		return t.standing()
	}
	return t.takeOff(c)
}

// flying reports whether the open attempt is this asker's, and still in its hands: one that waits for a callback has
// acted already.
func (t *turn) flying(session SessionID, nonce Nonce) bool {
	f := t.flight()
	a := f.OpenAttempt()
	return a != nil && f.State == Running && a.Nonce == nonce && a.Claim.Session == session
}

// overcome deals with an open attempt that stands in the way of a newer claim: the older claim is gone, so its holder
// is. NoDecision: nothing stands in the way any more.
func (t *turn) overcome(claim Claim) Decision {
	f := t.flight()
	a := f.OpenAttempt()
	if a == nil {
		return NoDecision
	}
	if f.State == Waiting {
		if f.Wake.At == 0 || t.header.Now < f.Wake.At {
			return t.busy(f.Wake.At)
		}
		t.lose("the callback did not come in time")
		return NoDecision
	}
	switch order := claim.Compare(a.Claim); {
	case order < 0:
		return Fenced
	case order == 0:
		return Busy
	case a.Claim.Epoch < t.header.LeaseEpoch && t.header.Now < t.header.EpochHold:
		return t.busy(t.header.EpochHold)
	}
	t.lose("its holder is gone")
	return NoDecision
}

// lose concludes that the open attempt will not report by itself any more. It may still do so late (invariant I8).
func (t *turn) lose(cause string) {
	t.close(Unknown)
	a := t.newest()
	a.Lost, a.Error = true, cause
	t.note(EventLost, Event{Attempt: a.Number, Outcome: Unknown, Note: cause})
	t.doubt()
	t.settleDoubt(0)
}

// takeOff opens the attempt (invariants I1 and I2). If the process dies right after this command is committed, the
// effect may have happened or not: the recovery policy decides.
func (t *turn) takeOff(c *Open) Decision {
	if !t.rises(c.Claim) || !t.phaseAllows() {
		return Fenced
	}
	f := t.flight()
	token := t.nextToken(c.Claim)
	if f.Tainted() && !f.WithinWindow(t.header.Now) && !f.Policy.Saga {
		t.settleDoubt(0)
		if t.flight().State == Running {
			return t.look(c.Claim)
		}
		return t.standing()
	}
	f = t.edit()
	t.trimAttempts()
	f.Attempts = append(f.Attempts, Attempt{Number: token.Number, Claim: c.Claim, Nonce: c.Nonce, Owner: Text(c.Owner), OpenedAt: t.header.Now})
	f.State, f.NotBefore, f.Cause = Running, 0, ""
	f.Fence = token
	f.AttemptCount++
	f.Counted++
	if f.FirstSend == 0 {
		f.FirstSend = t.header.Now
	}
	t.note(EventOpened, Event{Attempt: token.Number, Who: Text(c.Owner)})
	return Proceed
}

// nextToken is the token that the key's next attempt gets under this claim.
func (t *turn) nextToken(claim Claim) Token {
	token := Token{Epoch: claim.Epoch, Revision: claim.Revision, Number: 1}
	if f := t.flight(); f != nil {
		token.Number += f.Fence.Number
	}
	return token
}

// rises reports whether an attempt under this claim would get a token above all that the key has seen (invariant I2).
func (t *turn) rises(claim Claim) bool {
	f := t.flight()
	return f == nil || t.nextToken(claim).Compare(f.Fence) > 0
}

// look sends the holder of the key to ask the provider, once that can be of use. A look-up is not an attempt: it
// moves no fence, and the newest attempt may still report.
func (t *turn) look(claim Claim) Decision {
	f := t.flight()
	p := f.Probe
	newest := f.Newest().Claim
	switch {
	case claim.Compare(newest) < 0 || claim.Compare(p.Claim) < 0:
		return Fenced
	case t.header.Now < p.NotBefore:
		return t.busy(p.NotBefore)
	case claim != p.Claim:
		t.probe(Probe{NotBefore: p.NotBefore, Tries: p.Tries, Claim: claim})
	}
	return Look
}

func (t *turn) startLooking() {
	f := t.edit()
	f.State, f.Wake, f.NotBefore, f.Cause = Running, nil, 0, ""
	t.probe(Probe{NotBefore: t.header.Now.Add(f.Policy.settleDelay())})
	t.note(EventLooking, Event{Attempt: f.AttemptNumber()})
}

// probe sets the look-up that is due, under a number of its own: verdicts of earlier ones count no more.
func (t *turn) probe(p Probe) {
	f := t.edit()
	f.Probes++
	p.Number = f.Probes
	f.Probe = &p
}

func (t *turn) recover(c *Recover) Decision {
	t.see(c.Claim)
	if t.absent() || t.flight().State.Terminal() {
		return t.standing()
	}
	if c.Claim.Epoch != t.header.LeaseEpoch {
		return Fenced
	}
	if d := t.overcome(c.Claim); d != NoDecision {
		return d
	}
	if f := t.flight(); f.Looking() {
		return t.look(c.Claim)
	}
	return t.standing()
}

// see remembers the highest revision of the current epoch: an etcd that shows less has lost its past.
func (t *turn) see(c Claim) {
	if c.Epoch == t.header.LeaseEpoch {
		t.header.MaxRevision = max(t.header.MaxRevision, c.Revision)
	}
}

// isSpent reports whether the nonce has opened an attempt before, or may not open one any more.
func (t *turn) isSpent(session SessionID, nonce Nonce) bool {
	f := t.flight()
	if f == nil {
		return false
	}
	return slices.ContainsFunc(f.Attempts, func(a Attempt) bool { return a.Nonce == nonce && a.Claim.Session == session }) ||
		slices.ContainsFunc(f.Spent, func(s SpentNonce) bool { return s.Nonce == nonce && s.Session == session })
}

// trimAttempts makes room for one more attempt. What still matters of the oldest one is kept: its doubt is counted in
// Doubts, its nonce stays spent.
func (t *turn) trimAttempts() {
	f := t.edit()
	f.Spent = t.stillSpent(f.Spent)
	if len(f.Attempts) >= MaxAttempts {
		f.Spent = t.spend(f.Spent, &f.Attempts[0])
		f.Attempts = slices.Delete(f.Attempts, 0, 1)
	}
}

// spentOf is what a flight that gives way to a new generation or a tombstone leaves of its nonces.
func (t *turn) spentOf(f *Flight) []SpentNonce {
	spent := t.stillSpent(f.Spent)
	for i := range f.Attempts {
		spent = t.spend(spent, &f.Attempts[i])
	}
	return spent
}

// spend remembers an attempt's nonce for as long as an Open that carries it may be valid.
func (t *turn) spend(spent []SpentNonce, a *Attempt) []SpentNonce {
	until := a.OpenedAt.Add(MaxOpenLife)
	if until < t.header.Now {
		return spent
	}
	return append(slices.Clip(spent), SpentNonce{Session: a.Claim.Session, Nonce: a.Nonce, Until: until})
}

func (t *turn) stillSpent(spent []SpentNonce) []SpentNonce {
	if !slices.ContainsFunc(spent, func(s SpentNonce) bool { return s.Until < t.header.Now }) {
		return spent
	}
	return slices.DeleteFunc(slices.Clone(spent), func(s SpentNonce) bool { return s.Until < t.header.Now })
}
