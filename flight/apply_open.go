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

// open decides whether the caller may act. Every effect is preceded by an Open that was answered DecisionProceed. An Open
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

// answerRepeat answers the repeat of an Open whose first answer is still true, under any session. The Open of an attempt that
// waits for its callback is not repeated: its caller has acted already.
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

// rejectOpen answers an Open that can open nothing in any state of the flight. The order of the cases matters: a caller that
// gets DecisionOpenExpired leaves without an Abandon, so a nonce that has opened an attempt must never get this answer.
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

// supersede marks an open attempt lost if its time is over, or if its session is of an older lease epoch whose hold has
// expired. It returns DecisionNone if no attempt is open afterwards, else DecisionBusy. It does not judge whether the
// session has ended: only EndSession carries the proof.
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

// timeoutCause is the recorded cause of an attempt that is marked lost because its time is over.
func overdue(f *Flight) string {
	if f.State == Waiting {
		return "the callback did not come in time"
	}
	return "its time-out is over"
}

// markLost ends the open attempt with an unknown outcome, and applies the recovery policy. A late report of the attempt is
// still accepted while no newer attempt has opened (invariant I8).
func (t *turn) lose(cause string) {
	t.close(Unknown)
	a := t.newest()
	a.Lost, a.Error = true, cause
	t.note(EventLost, Event{Attempt: a.Number, Outcome: Unknown, Note: cause})
	t.doubt()
	t.settleDoubt(0)
}

// nextToken is the token of the key's next attempt. Its number is one above the greatest number that the key has seen.
func (t *turn) nextToken() Token {
	next := Token{StoreEpoch: t.header.StoreEpoch, Number: 1}
	if f := t.flight(); f != nil {
		next.Number += f.Fence.Number
	}
	return next
}

// tokenRises reports whether the next token is above every token that the key has seen (invariant I2). It returns false if
// this ledger is older than a ledger in which the key was opened.
func (t *turn) tokenRises() bool {
	f := t.flight()
	return f == nil || t.nextToken().Compare(f.Fence) > 0
}

// openAttempt opens the attempt (invariants I1 and I2). Point of no return: once this command is committed, the ledger cannot
// know whether the effect happens. If the caller dies now, the attempt is marked lost and the recovery policy decides.
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

// trimAttempts removes the oldest attempt of a full list. Its taint is still counted in TaintingAttempts, and its nonce stays
// used.
func (t *turn) trimAttempts() {
	f := t.edit()
	f.UsedNonces = t.unexpired(f.UsedNonces)
	if len(f.Attempts) >= MaxAttempts {
		f.UsedNonces = t.withNonceOf(f.UsedNonces, &f.Attempts[0])
		f.Attempts = slices.Delete(f.Attempts, 0, 1)
	}
}

// answerInDoubt returns DecisionInDoubt and uses up the nonce: a copy of this Open that arrives after the person's decision
// would open an attempt that no caller expects.
func (t *turn) doubtful(c *Open) Decision {
	t.use(c.Nonce, c.NotAfter)
	return Doubtful
}

// assignVerification assigns the caller to ask the provider, if the settle delay is over and no other caller is assigned. A
// look-up is not an attempt: it moves no fence, and the newest attempt may still report. The nonce is used up: an attempt
// that follows from the finding is opened under another nonce.
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

// startVerification makes a look-up due after the settle delay. Before that, the provider may not list the effect yet.
func (t *turn) startLooking() {
	f := t.edit()
	f.State, f.Wake, f.NotBefore, f.Cause = Running, nil, 0, ""
	t.probe(Probe{NotBefore: t.header.Now.Add(f.Policy.settleDelay())})
	t.note(EventLooking, Event{Attempt: f.AttemptNumber()})
}

// setVerification replaces the due look-up and gives it a new number: findings for earlier numbers are fenced.
func (t *turn) probe(p Probe) {
	f := t.edit()
	f.Probes++
	p.Number = f.Probes
	f.Probe = &p
}

// releaseVerification permits that another caller is assigned to ask the provider. Until then the finding of the first
// caller is still accepted.
func (t *turn) endLook() {
	f := t.edit()
	p := *f.Probe
	p.Session, p.Until = Session{}, 0
	f.Probe = &p
}
