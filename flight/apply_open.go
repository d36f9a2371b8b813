package flight

import "slices"

func (t *transition) submit(c *Submit) Decision {
	if d := t.answerFinal(c.Submission.Fingerprint); d != DecisionNone {
		return d
	}
	if t.absent() {
		switch {
		case !t.mayCreateStep(c.Submission.Driver):
			return DecisionFenced
		case t.header.Reconciling: // an import of what has happened creates the flight, and must find the key unused
			return DecisionReconciling
		case t.noDefinition:
			return DecisionNotFound
		}
		t.createFlight(&c.Submission)
		if c.Queue != nil && !c.Submission.Policy.Saga { // a saga is no job
			t.enqueue(*c.Queue)
		}
	}
	return t.answerCurrent()
}

// enqueue makes the flight, whose generation has just begun, a job: it gets its place in its queue and its lane.
func (t *transition) enqueue(q Queue) {
	f := t.editFlight()
	f.NotBefore = max(f.NotBefore, q.RunAt)
	f.Place = &Place{Queue: q, Due: max(f.NotBefore, t.header.Now), Since: t.header.Version}
	if f.State == StateReady || f.State == StateScheduled {
		t.makeReady()
	}
}

// open decides whether the caller may act. Every effect is preceded by an Open that was answered DecisionProceed. An Open
// that opens nothing moves no fence.
func (t *transition) open(c *Open) Decision {
	if d := t.answerFinal(c.Submission.Fingerprint); d != DecisionNone {
		return d
	}
	if c.StoreEpoch != t.header.StoreEpoch {
		return DecisionFenced
	}
	if t.header.Reconciling {
		return DecisionReconciling
	}
	if d := t.answerRepeat(c.Nonce); d != DecisionNone {
		return d
	}
	if d := t.rejectOpen(c); d != DecisionNone {
		return d
	}
	if t.absent() {
		t.createFlight(&c.Submission)
	}
	if t.flight().Policy.Saga {
		t.endDrive()
	} else if d := t.supersede(); d != DecisionNone {
		return d
	}
	switch f := t.flight(); f.State {
	case StateAwaitingApproval:
		return DecisionAwaitingApproval
	case StateInDoubt:
		return t.answerInDoubt(c)
	case StateWaiting:
		return t.answerBusy(f.Wake.At)
	case StateRunning:
		return t.assignVerification(c)
	case StateScheduled:
		if f.NotBefore > t.header.Now {
			return t.answerBusy(f.NotBefore)
		}
	case StateReady:
	default:
		return t.answerCurrent()
	}
	if t.laneBlocked {
		return t.answerBusy(0)
	}
	return t.openAttempt(c)
}

// answerRepeat answers the repeat of an Open whose first answer is still true, under any session. The Open of an attempt that
// waits for its callback is not repeated: its caller has acted already.
func (t *transition) answerRepeat(nonce Nonce) Decision {
	f := t.flight()
	switch a := f.OpenAttempt(); {
	case f == nil:
	case a != nil && a.Nonce == nonce && f.State == StateRunning:
		return DecisionProceed
	case f.Verifying() && f.Verification.Nonce == nonce && nonce != (Nonce{}):
		return DecisionVerify
	}
	return DecisionNone
}

// rejectOpen answers an Open that can open nothing in any state of the flight. The order of the cases matters: a caller that
// gets DecisionOpenExpired leaves without an Abandon, so a nonce that has opened an attempt must never get this answer.
//
// A saga is submitted first, and its attempts have no session: a driver performs nothing, so its end leaves nothing in doubt.
func (t *transition) rejectOpen(c *Open) Decision {
	saga := !t.absent() && t.flight().Policy.Saga
	switch {
	case c.NotAfter > t.header.Now.Add(MaxOpenLife):
		return t.rejectFarNotAfter(c)
	case t.isUsedNonce(c.Nonce):
		return t.answerUsedNonce(c.Nonce)
	case c.NotAfter < t.header.Now:
		return DecisionOpenExpired
	case t.absent() && c.Submission.Policy.Saga, saga && c.Session != Session{}:
		return DecisionFenced
	case !saga && (t.sessionHasEnded || c.Session.Epoch != t.header.LeaseEpoch):
		return DecisionSessionEnded
	case t.noncesExhausted():
		return DecisionExhausted
	case !t.mayOpenStep(), !t.tokenRises():
		return DecisionFenced
	}
	return DecisionNone
}

// supersede marks an open attempt lost if its time is over, or if its session is of an older lease epoch whose hold has
// expired. It returns DecisionNone if no attempt is open afterwards, else DecisionBusy. It does not judge whether the
// session has ended: only EndSession carries the proof.
func (t *transition) supersede() Decision {
	f := t.flight()
	a := f.OpenAttempt()
	if a == nil {
		return DecisionNone
	}
	until := f.Deadline(&t.header)
	sessionVoid := f.State == StateRunning && a.Session.Epoch < t.header.LeaseEpoch // etcd has lost its session
	switch hold := t.header.EpochHold; {
	case until > 0 && t.header.Now >= until:
		t.markLost(timeoutCause(f))
	case sessionVoid && t.header.Now >= hold:
		t.markLost("etcd has lost its session, and the hold is over")
	case sessionVoid && (until == 0 || hold < until):
		return t.answerBusy(hold)
	default:
		return t.answerBusy(until)
	}
	return DecisionNone
}

// timeoutCause is the recorded cause of an attempt that is marked lost because its time is over.
func timeoutCause(f *Flight) string {
	if f.State == StateWaiting {
		return "the callback did not come in time"
	}
	return "its time-out is over"
}

// markLost ends the open attempt with an unknown outcome, and applies the recovery policy. A late report of the attempt is
// still accepted while no newer attempt has opened (invariant I8).
func (t *transition) markLost(cause string) {
	t.closeAttempt(OutcomeUnknown)
	a := t.newestAttempt()
	a.Lost, a.Error = true, cause
	t.emit(EventLost, Event{Attempt: a.Number, Outcome: OutcomeUnknown, Note: cause})
	t.taint()
	t.applyRecovery(0)
}

// nextToken is the token of the key's next attempt. Its number is one above the greatest number that the key has seen.
func (t *transition) nextToken() Token {
	next := Token{StoreEpoch: t.header.StoreEpoch, Number: 1}
	if f := t.flight(); f != nil {
		next.Number += f.Fence.Number
	}
	return next
}

// tokenRises reports whether the next token is above every token that the key has seen (invariant I2). It returns false if
// this ledger is older than a ledger in which the key was opened.
func (t *transition) tokenRises() bool {
	f := t.flight()
	return f == nil || t.nextToken().Compare(f.Fence) > 0
}

// openAttempt opens the attempt (invariants I1 and I2). Point of no return: once this command is committed, the ledger cannot
// know whether the effect happens. If the caller dies now, the attempt is marked lost and the recovery policy decides.
func (t *transition) openAttempt(c *Open) Decision {
	f := t.flight()
	if f.Tainted() && !f.WithinWindow(t.latestTime()) {
		t.applyRecovery(0)
		switch t.flight().State {
		case StateRunning:
			return t.assignVerification(c)
		case StateInDoubt:
			return t.answerInDoubt(c)
		}
		return t.answerCurrent()
	}
	token := t.nextToken()
	f = t.editFlight()
	t.trimAttempts()
	f.Attempts = append(f.Attempts, Attempt{Number: token.Number, StoreEpoch: token.StoreEpoch, Session: c.Session, Nonce: c.Nonce,
		NotAfter: c.NotAfter, Owner: Sanitize(c.Owner), OpenedAt: t.header.Now, Trace: c.Trace})
	f.State, f.NotBefore, f.Cause, f.Steps = StateRunning, 0, "", t.header.Steps
	f.Fence = token
	f.AttemptCount++
	f.CountedAttempts++
	if f.FirstSend == 0 {
		f.FirstSend = t.header.Now
	}
	t.emit(EventOpened, Event{Attempt: token.Number, Actor: Sanitize(c.Owner)})
	return DecisionProceed
}

// trimAttempts removes the oldest attempt of a full list. Its taint is still counted in TaintingAttempts, and its nonce stays
// used.
func (t *transition) trimAttempts() {
	f := t.editFlight()
	f.UsedNonces = t.unexpiredNonces(f.UsedNonces)
	if len(f.Attempts) >= MaxAttempts {
		f.UsedNonces = t.appendNonceOf(f.UsedNonces, &f.Attempts[0])
		f.Attempts = slices.Delete(f.Attempts, 0, 1)
	}
}

// answerInDoubt returns DecisionInDoubt and uses up the nonce: a copy of this Open that arrives after the person's decision
// would open an attempt that no caller expects.
func (t *transition) answerInDoubt(c *Open) Decision {
	t.useNonce(c.Nonce, c.NotAfter)
	return DecisionInDoubt
}

// assignVerification assigns the caller to ask the provider, if the settle delay is over and no other caller is assigned. A
// look-up is not an attempt: it moves no fence, and the newest attempt may still report. The nonce is used up: an attempt
// that follows from the finding is opened under another nonce.
func (t *transition) assignVerification(c *Open) Decision {
	f := t.flight()
	p := *f.Verification
	for _, until := range [...]Time{f.HolderTime(&t.header, p.NotBefore), f.HolderTime(&t.header, p.Until)} {
		if t.header.Now < until {
			return t.answerBusy(until)
		}
	}
	p.Session, p.Nonce, p.Until = c.Session, c.Nonce, t.header.Now.Add(f.Policy.verifyTimeout())
	t.setVerification(p)
	t.useNonce(c.Nonce, c.NotAfter)
	return DecisionVerify
}

// startVerification makes a look-up due after the settle delay. Before that, the provider may not list the effect yet.
func (t *transition) startVerification() {
	f := t.editFlight()
	f.State, f.Wake, f.NotBefore, f.Cause = StateRunning, nil, 0, ""
	t.setVerification(Verification{NotBefore: t.header.Now.Add(f.Policy.Settling())})
	t.emit(EventVerifying, Event{Attempt: f.AttemptNumber()})
}

// setVerification replaces the due look-up and gives it a new number: findings for earlier numbers are fenced.
func (t *transition) setVerification(p Verification) {
	f := t.editFlight()
	f.Verifications++
	p.Number = f.Verifications
	f.Verification, f.Steps = &p, t.header.Steps
}

// releaseVerification permits that another caller is assigned to ask the provider. Until then the finding of the first
// caller is still accepted.
func (t *transition) releaseVerification() {
	f := t.editFlight()
	p := *f.Verification
	p.Session, p.Until = Session{}, 0
	f.Verification = &p
}
