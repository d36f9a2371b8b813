package flight

import "slices"

func (t *turn) submit(c *Submit) Decision {
	if d := t.settled(c.Submission.Fingerprint); d != NoDecision {
		return d
	}
	if t.absent() {
		if !t.mayOpenStep(&c.Submission) {
			return Fenced
		}
		t.create(&c.Submission)
	}
	return t.standing()
}

// open decides who may act: the ledger alone does. Every effect is preceded by an Open that was answered Proceed. An Open
// that opens nothing moves no fence.
func (t *turn) open(c *Open) Decision {
	if d := t.settled(c.Submission.Fingerprint); d != NoDecision {
		return d
	}
	if c.StoreEpoch != t.header.StoreEpoch {
		return Fenced
	}
	if d := t.repeated(c.Nonce); d != NoDecision {
		return d
	}
	if d := t.refused(c); d != NoDecision {
		return d
	}
	if t.absent() {
		t.create(&c.Submission)
	}
	if d := t.overcome(); d != NoDecision {
		return d
	}
	switch f := t.flight(); f.State {
	case AwaitingApproval:
		return Unapproved
	case InDoubt:
		return t.doubtful(c)
	case Waiting:
		return t.busy(f.Wake.At)
	case Running:
		return t.look(c)
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

// repeated answers the repeat of an Open whose first answer is still true, whatever session the repeat names. A caller
// whose attempt waits for a callback has acted already: its Open is not repeated.
func (t *turn) repeated(nonce Nonce) Decision {
	f := t.flight()
	switch a := f.OpenAttempt(); {
	case f == nil:
	case a != nil && a.Nonce == nonce && f.State == Running:
		return Proceed
	case f.Looking() && f.Probe.Nonce == nonce && nonce != (Nonce{}):
		return Look
	}
	return NoDecision
}

// refused answers an Open that can open nothing, in whatever state the flight is. The order matters: a caller that is
// answered OpenExpired leaves without a word, so nobody may get this answer whose nonce has opened an attempt.
func (t *turn) refused(c *Open) Decision {
	switch {
	case c.NotAfter > t.header.Now.Add(MaxOpenLife):
		return t.tooFarAhead(c)
	case t.isUsed(c.Nonce):
		return t.answerUsed(c.Nonce)
	case c.NotAfter < t.header.Now:
		return OpenExpired
	case t.ended, c.Session.Epoch != t.header.LeaseEpoch:
		return SessionEnded
	case t.exhausted():
		return Exhausted
	case !t.mayOpenStep(&c.Submission), !t.tokenRises():
		return Fenced
	}
	return NoDecision
}

// overcome deals with an open attempt that is in the way. The attempt is lost where its time is over, or where its session
// is of an older lease epoch whose hold is over; that a session has ended is for Ended to say. NoDecision: no attempt is
// open any more.
func (t *turn) overcome() Decision {
	f := t.flight()
	a := f.OpenAttempt()
	if a == nil {
		return NoDecision
	}
	until := a.Deadline(f.Policy)
	if f.State == Waiting {
		until = f.Wake.At
	}
	voided := f.State == Running && a.Session.Epoch < t.header.LeaseEpoch // etcd has lost its session
	switch hold := t.header.EpochHold; {
	case until > 0 && t.header.Now >= until:
		t.lose(overdue(f))
	case voided && t.header.Now >= hold:
		t.lose("etcd has lost its session, and the hold is over")
	case voided && (until == 0 || hold < until):
		return t.busy(hold)
	default:
		return t.busy(until)
	}
	return NoDecision
}

// overdue is the reason why an open attempt is lost whose time is over.
func overdue(f *Flight) string {
	if f.State == Waiting {
		return "the callback did not come in time"
	}
	return "its time-out is over"
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

// nextToken is the token of the key's next attempt. Its number follows the greatest that the key has seen.
func (t *turn) nextToken() Token {
	next := Token{StoreEpoch: t.header.StoreEpoch, Number: 1}
	if f := t.flight(); f != nil {
		next.Number += f.Fence.Number
	}
	return next
}

// tokenRises reports whether the next token is above all that the key has seen (invariant I2). It is not where this ledger
// is older than one that the key was opened in.
func (t *turn) tokenRises() bool {
	f := t.flight()
	return f == nil || t.nextToken().Compare(f.Fence) > 0
}

// takeOff opens the attempt (invariants I1 and I2). If the process dies right after this command is committed, the
// effect may have happened or not: the recovery policy decides.
func (t *turn) takeOff(c *Open) Decision {
	f := t.flight()
	if f.Tainted() && !f.WithinWindow(t.latest()) && !f.Policy.Saga {
		t.settleDoubt(0)
		switch t.flight().State {
		case Running:
			return t.look(c)
		case InDoubt:
			return t.doubtful(c)
		}
		return t.standing()
	}
	token := t.nextToken()
	f = t.edit()
	t.trimAttempts()
	f.Attempts = append(f.Attempts, Attempt{Number: token.Number, StoreEpoch: token.StoreEpoch, Session: c.Session, Nonce: c.Nonce,
		NotAfter: c.NotAfter, Owner: Text(c.Owner), OpenedAt: t.header.Now})
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

// trimAttempts makes room for one more attempt. The oldest one leaves its doubt, which is counted in Doubts, and its nonce,
// which stays used.
func (t *turn) trimAttempts() {
	f := t.edit()
	f.UsedNonces = t.unexpired(f.UsedNonces)
	if len(f.Attempts) >= MaxAttempts {
		f.UsedNonces = t.withNonceOf(f.UsedNonces, &f.Attempts[0])
		f.Attempts = slices.Delete(f.Attempts, 0, 1)
	}
}

// doubtful answers that the flight waits for a person, and uses up the nonce: a copy of this Open that comes after the
// person's decision would open an attempt of which its caller knows nothing.
func (t *turn) doubtful(c *Open) Decision {
	t.use(c.Nonce, c.NotAfter)
	return Doubtful
}

// look sends a caller to ask the provider, once that can be of use and nobody else is asking. A look-up is no attempt: it
// moves no fence, and the newest attempt may still report. It uses up its nonce: what follows from the verdict is opened
// under another one.
func (t *turn) look(c *Open) Decision {
	f := t.flight()
	p := *f.Probe
	switch {
	case t.header.Now < p.NotBefore:
		return t.busy(p.NotBefore)
	case t.header.Now < p.Until:
		return t.busy(p.Until)
	}
	p.Session, p.Nonce, p.Until = c.Session, c.Nonce, t.header.Now.Add(f.Policy.lookTime())
	t.probe(p)
	t.use(c.Nonce, c.NotAfter)
	return Look
}

// startLooking makes a look-up due, after the settle delay: until then an effect of the attempt may not show yet.
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

// endLook lets another caller be sent to ask the provider. Until one is, the verdict of the first caller counts.
func (t *turn) endLook() {
	f := t.edit()
	p := *f.Probe
	p.Session, p.Until = Session{}, 0
	f.Probe = &p
}
