package protocolmodel

import "math/bits"

func (rc *reconcilingConfig) successors(s *reconcilingState, out *steps[reconcilingState]) {
	for c := range rc.callers {
		if s.callers[c].alive == 1 {
			rc.callerSteps(s, c, out)
		}
		rc.sessionSteps(s, c, out)
		rc.messageSteps(s, c, out)
	}
	rc.operatorSteps(s, out)
}

func (rc *reconcilingConfig) callerSteps(s *reconcilingState, c int, out *steps[reconcilingState]) {
	b, q := bit(c), &s.callers[c]
	l := &s.ledger
	act := func(result uint8, happens bool, name string) {
		t := *s
		r := &t.callers[c]
		r.phase, r.result = operationActed, result
		if happens {
			t.effects |= b
		}
		out.add(t, eventually, name, c)
	}
	leave := func(phase uint8, fair bool, name string) {
		t := *s
		t.callers[c].phase = phase
		out.add(t, fair, name, c)
	}
	switch q.phase {
	case operationUnused:
		if q.trusts == s.restores+1 {
			t := *s
			t.callers[c].phase = operationAwaits
			t.opens |= b
			out.add(t, perhaps, "caller sends its open", c)
		}
	case operationAwaits:
		if s.opens&b == 0 {
			t := *s
			t.opens |= b
			out.add(t, eventually, "caller repeats its open", c)
		}
		if a := s.answers[c]; a.number != 0 {
			t := *s
			r := &t.callers[c]
			r.phase, r.epoch, r.number, r.holder, r.words = operationProceeds, a.epoch, a.number, a.holder, a.words
			out.add(t, eventually, "caller is answered proceed", c)
		}
		if l.flight == done || l.used&b != 0 && !l.isOpen(c) {
			leave(operationOver, eventually, "caller leaves")
		}
		sessionLost := q.session == s.restores+1 && q.sessionEnded == 1
		if sessionLost || !rc.noGiveUp {
			leave(operationGivesUp, sessionLost, "caller gives up")
		}
	case operationProceeds:
		if q.trusts == q.holder {
			act(resultHappened, true, "EFFECT, reported as succeeded")
			act(resultUnknown, true, "EFFECT, reported as unknown")
			act(resultRefused, false, "the provider refuses")
			act(resultNotDone, false, "not done")
		}
		leave(operationGivesUp, q.trusts != q.holder, "caller gives up")
	case operationActed:
		t := *s
		t.reports |= b
		t.callers[c].phase = operationOver
		out.add(t, eventually, "report sent", c)
	case operationGivesUp:
		t := *s
		t.abandons |= b
		t.callers[c].phase = operationOver
		out.add(t, eventually, "abandon sent", c)
	}
	if !rc.noDeaths && q.phase != operationOver {
		t := *s
		t.callers[c].alive, t.callers[c].trusts, t.callers[c].phase = 0, 0, operationOver
		out.add(t, perhaps, "caller dies", c)
	}
}

// sessionSteps: a restore ends all sessions, because etcd is empty. Their owners trust them until they try to renew them, and
// create new ones.
func (rc *reconcilingConfig) sessionSteps(s *reconcilingState, c int, out *steps[reconcilingState]) {
	q := &s.callers[c]
	lives := q.session == s.restores+1 && q.sessionEnded == 0
	if q.trusts != 0 {
		t := *s
		t.callers[c].trusts = 0
		out.add(t, q.trusts != s.restores+1, "trust ends", c)
	}
	if q.alive == 1 && q.trusts == 0 && lives {
		t := *s
		t.callers[c].trusts = s.restores + 1
		out.add(t, eventually, "session renewed", c)
	}
	if lives && q.trusts == 0 {
		t := *s
		t.callers[c].sessionEnded = 1
		out.add(t, q.alive == 0, "session expires", c)
	}
	if q.alive == 1 && q.session != s.restores+1 && q.phase <= operationAwaits {
		t := *s
		r := &t.callers[c]
		r.session, r.trusts, r.sessionEnded = s.restores+1, s.restores+1, 0
		out.add(t, eventually, "session made", c)
	}
	if !s.ledger.isOpen(c) {
		return
	}
	a := s.ledger.newestOpen()
	ended := a.restores == s.restores && (q.sessionEnded == 1 || q.session != s.restores+1)
	if a.restores < s.restores { // of an older lease epoch
		ended = s.holdOver == 1 || rc.endsBeforeHold
	}
	if ended {
		t := *s
		rc.settle(&t.ledger, attemptLost)
		out.add(t, eventually, "ledger: EndSession", c)
	}
}

func (rc *reconcilingConfig) messageSteps(s *reconcilingState, c int, out *steps[reconcilingState]) {
	b := bit(c)
	if s.opens&b != 0 {
		t := *s
		rc.applyOpen(&t, c)
		out.add(t, s.callers[c].phase == operationAwaits, "ledger: Open", c)
	}
	if s.abandons&b != 0 {
		t := *s
		l := &t.ledger
		l.used |= b
		open := l.isNewest(c) && (l.newest().status == attemptOpen || l.newest().status == attemptLost)
		if open && l.flight != done {
			rc.settle(l, attemptNotDone)
		}
		out.add(t, eventually, "ledger: Abandon", c)
	}
	if s.reports&b != 0 {
		t := *s
		rc.applyReport(&t, c)
		out.add(t, eventually, "ledger: report", c)
	}
}

func (rc *reconcilingConfig) operatorSteps(s *reconcilingState, out *steps[reconcilingState]) {
	l := &s.ledger
	if int(s.restores) < rc.restores {
		if int(s.backups) < rc.backups && (!rc.emptyBackup || l.attemptCount == 0) {
			t := *s
			t.backup = s.ledger
			t.backups++
			out.add(t, perhaps, "backup of the ledger")
		}
		if s.backups > 0 {
			t := *s
			t.ledger = s.backup
			t.restores++
			t.lastEpoch++
			t.ledger.epoch, t.ledger.reconciling, t.holdOver = t.lastEpoch, 1, 0
			if rc.epochReused {
				t.ledger.epoch = s.backup.epoch + 1
			}
			out.add(t, perhaps, "ledger restored in a new store epoch")
		}
	}
	if s.restores > 0 && s.holdOver == 0 {
		over := true
		for c := range rc.callers {
			over = over && (s.callers[c].trusts == 0 || s.callers[c].trusts == s.restores+1)
		}
		if over {
			t := *s
			t.holdOver = 1
			out.add(t, eventually, "the hold of the restore is over")
		}
	}
	if rc.mayImport(s) {
		t := *s
		if l.flight == running {
			t.ledger.newest().status = attemptLost
		}
		t.ledger.flight, t.ledger.receipt = done, uint8(bits.TrailingZeros8(s.effects))+1
		out.add(t, eventually, "the operator imports the receipt of the effect")
	}
	if l.reconciling == 1 && (s.holdOver == 1 || rc.finishBeforeHold) && !rc.mayImport(s) {
		t := *s
		t.ledger.reconciling = 0
		if !rc.imports { // else it permits no second effect: all that has happened has a receipt
			t.words++
		}
		out.add(t, eventually, "the operator finishes the restore")
	}
	if rc.person && l.flight == inDoubt {
		t := *s
		t.ledger.lostUnknown, t.ledger.reportedUnknown, t.ledger.flight = 0, 0, free
		name := "a person resolves: did not happen"
		for c := range rc.callers {
			if has(s.effects, c) {
				t.ledger.flight, t.ledger.receipt = done, uint8(c)+1
				name = "a person resolves: happened"
			}
		}
		out.add(t, perhaps, name)
	}
}
