package protocolmodel

func (cc *callersConfig) successors(s *callersState, out *steps[callersState]) {
	for c := range cc.callers {
		if s.callers[c].alive == 1 {
			cc.callerSteps(s, c, out)
			cc.callerFaults(s, c, out)
		}
		if cc.renewalAbandons {
			cc.lateRenewals(s, c, out)
		}
	}
	cc.sessionsEnd(s, out)
	if s.claim != 0 { // rule 2: any node may delete any claim
		t := *s
		t.removeClaim()
		out.add(t, perhaps, "claim removed")
	}
	cc.lateMessages(s, out)
	cc.ledgerEnds(s, out)
	if cc.forgetUsed && s.flight == free {
		for n := range cc.callers * cc.noncesPerCaller {
			if has(s.used, n) && !has(s.forgotten, n) && s.attemptOf(n) < 0 {
				t := *s
				t.used &^= bit(n)
				t.forgotten |= bit(n)
				out.add(t, perhaps, "nonce forgotten", n)
			}
		}
	}
	if s.tooFar != 0 {
		t := *s
		t.tooFar = 0
		out.add(t, eventually, "ledger time: not_after is near enough")
	}
	for i := range cc.nodes {
		cc.nodeSteps(s, i, out)
	}
}

func (cc *callersConfig) callerSteps(s *callersState, c int, out *steps[callersState]) {
	p := &s.callers[c]
	nonce := c*cc.noncesPerCaller + int(p.nonceIndex)
	switch p.phase {
	case callerIdle:
		cc.callerOpens(s, c, nonce, out)
	case callerWaiting, callerProceeds:
		cc.callerWaits(s, c, nonce, out)
	case callerActed:
		attempt := int(p.attempt) - 1
		if cc.revokeBeforeReport && cc.oneShot {
			t := *s
			t.revoke(s.sessionOfAttempt[attempt])
			out.add(t, eventually, "node revokes before the report is committed", c)
		}
		t := *s
		t.report(attempt)
		if cc.oneShot { // rule 9: the session ends when the report is committed
			t.revoke(t.sessionOfAttempt[attempt])
			t.callers[c].trusts = 0
		}
		t.callers[c].phase = callerIsThrough
		out.add(t, eventually, "report answered", c)
	case callerGivesUp:
		t := *s
		t.abandon(nonce)
		if cc.oneShot {
			if k := t.attemptOf(nonce); k >= 0 {
				t.revoke(t.sessionOfAttempt[k])
			}
			t.callers[c].trusts = 0
		}
		t.callers[c].phase = callerIsThrough
		out.add(t, eventually, "abandon answered", c)
	case callerIsThrough:
		if int(p.nonceIndex)+1 < cc.noncesPerCaller {
			t := *s
			t.callers[c].phase, t.callers[c].attempt = callerIdle, 0
			t.callers[c].nonceIndex++
			out.add(t, perhaps, "caller takes a new nonce", c)
		}
	}
	for n := c * cc.noncesPerCaller; n < (c+1)*cc.noncesPerCaller; n++ {
		if has(s.owed, n) { // rule 6: the abandon of a nonce that was given up after busy
			t := *s
			t.owed &^= bit(n)
			t.abandons |= bit(n)
			t.abandon(n)
			if k := t.attemptOf(n); cc.oneShot && k >= 0 {
				t.revoke(t.sessionOfAttempt[k])
			}
			out.add(t, eventually, "abandon after busy answered", n)
		}
	}
	if cc.renewalShows && !cc.oneShot && s.flight == running { // rule 8: the caller abandons an attempt that it gave up before its start
		a, session := s.newest(), s.sessionOfAttempt[s.attemptCount-1]
		ownsAttempt := cc.owner(int(a.nonce)) == c && p.session != 0 && session == p.session-1 && s.sessions[session] == sessionAlive
		if ownsAttempt && (int(a.nonce) != nonce || p.phase == callerIsThrough || p.phase == callerIdle) {
			t := *s
			t.abandons |= bit(int(a.nonce))
			t.abandon(int(a.nonce))
			out.add(t, eventually, "caller abandons an attempt that its renewal showed", c)
		}
	}
}

func (cc *callersConfig) callerOpens(s *callersState, c, nonce int, out *steps[callersState]) {
	t := *s
	p := &t.callers[c]
	if !cc.oneShot {
		if p.session == 0 || t.sessions[p.session-1] != sessionAlive && p.trusts == 0 {
			if int(p.sessionsMade) >= cc.sessionsPerCaller {
				return
			}
			p.session = uint8(c*cc.sessionsPerCaller+int(p.sessionsMade)) + 1
			p.sessionsMade++
			t.sessions[p.session-1] = sessionAlive
			p.trusts = 1
		}
		t.sessionOfNonce[nonce] = p.session
	}
	p.phase = callerWaiting
	t.requests |= bit(nonce)
	out.add(t, perhaps, "caller sends its open", c)
}

// callerWaits has the steps of a caller that waits for its answer, and of one that may start.
func (cc *callersConfig) callerWaits(s *callersState, c, nonce int, out *steps[callersState]) {
	p := &s.callers[c]
	for answered := range cc.callers * cc.noncesPerCaller {
		if p.phase != callerWaiting || !has(s.answers, answered) || answered != nonce && !cc.believesAny { // rule 12
			continue
		}
		t := *s
		q := &t.callers[c]
		k := s.attemptOf(answered)
		q.phase, q.attempt = callerProceeds, uint8(k)+1
		if cc.oneShot { // rule 6: it trusts the session of the attempt
			q.session, q.trusts = s.sessionOfAttempt[k]+1, 0
			if s.sessions[s.sessionOfAttempt[k]] != sessionExpired {
				q.trusts = 1
			}
		}
		out.add(t, eventually, "caller is answered proceed", c)
	}
	t := *s
	t.callers[c].phase = callerGivesUp
	t.abandons |= bit(nonce)
	out.add(t, cc.mustGiveUp(s, c, nonce), "caller gives up and sends its abandon", c)
	if (cc.leaveAfterBusy || cc.abandonLater) && p.phase == callerWaiting && !has(s.used, nonce) {
		t := *s
		t.callers[c].phase = callerIsThrough
		if cc.abandonLater {
			t.owed |= bit(nonce)
		}
		out.add(t, perhaps, "caller, answered busy, leaves and sends no abandon yet", c)
	}
	if p.phase == callerWaiting && has(s.expiries, nonce) {
		t := *s
		t.callers[c].phase = callerIsThrough
		out.add(t, eventually, "caller leaves: open_expired", c)
	}
	if p.phase == callerProceeds && p.trusts == 1 { // rule 1
		t := *s
		t.effects |= bit(int(p.attempt) - 1)
		t.callers[c].phase = callerActed
		t.reports |= bit(int(p.attempt) - 1)
		out.add(t, eventually, "EFFECT by caller", c)
	}
}

// mustGiveUp reports whether nothing but giving up is left to a caller that has started nothing.
func (cc *callersConfig) mustGiveUp(s *callersState, c, nonce int) bool {
	p := &s.callers[c]
	k := s.attemptOf(nonce)
	switch {
	case has(s.used, nonce) && (k < 0 || s.attempts[k].status != attemptOpen), s.flight == done, s.flight == inDoubt:
		return true
	case !cc.oneShot:
		return s.sessions[p.session-1] != sessionAlive
	case p.phase == callerProceeds:
		return s.sessions[p.session-1] != sessionAlive
	}
	// The model makes two sessions for an open at most.
	return s.sessions[nonce*2] != sessionNone && s.sessions[nonce*2+1] != sessionNone
}

// callerFaults has the ends of trust, the renewals and the death of a caller.
func (cc *callersConfig) callerFaults(s *callersState, c int, out *steps[callersState]) {
	p := &s.callers[c]
	if p.session != 0 {
		if p.trusts == 1 {
			t := *s
			t.callers[c].trusts = 0
			out.add(t, perhaps, "trust ends", c)
		} else if s.sessions[p.session-1] == sessionAlive {
			t := *s
			t.callers[c].trusts = 1
			out.add(t, eventually, "session renewed", c)
		}
	}
	if !cc.noDeaths {
		t := *s
		t.callers[c].alive, t.callers[c].trusts = 0, 0
		out.add(t, perhaps, "caller dies", c)
	}
	if cc.renewalAbandons && p.session != 0 {
		listed := 0
		if p.phase >= callerWaiting && p.phase <= callerActed {
			listed = int(p.nonceIndex) + 1
		}
		if listed < 2 {
			t := *s
			t.renewals |= bit(c*2 + listed)
			out.add(t, perhaps, "renewal sent", c, listed)
		}
	}
}

// lateRenewals is control 6: a renewal abandons the attempt that it does not list.
func (cc *callersConfig) lateRenewals(s *callersState, c int, out *steps[callersState]) {
	if s.flight != running {
		return
	}
	a := s.newest()
	if cc.owner(int(a.nonce)) != c {
		return
	}
	for listed := range 2 {
		if has(s.renewals, c*2+listed) && int(a.nonce) != c*cc.noncesPerCaller+listed-1 {
			t := *s
			t.abandon(int(a.nonce))
			out.add(t, perhaps, "late renewal abandons", c)
		}
	}
}

func (cc *callersConfig) sessionsEnd(s *callersState, out *steps[callersState]) {
	count, perCaller := cc.callers*cc.sessionsPerCaller, cc.sessionsPerCaller
	if cc.oneShot {
		count, perCaller = cc.callers*cc.noncesPerCaller*2, cc.noncesPerCaller*2
	}
	for x := range count {
		if s.sessions[x] != sessionAlive {
			continue
		}
		p := s.callers[x/perCaller]
		if p.alive == 1 && p.trusts == 1 && int(p.session) == x+1 && !cc.frozen {
			continue // an owner trusts its session only while it lives
		}
		t := *s
		t.sessions[x] = sessionExpired
		if int(t.claim) == x+1 {
			t.removeClaim()
		}
		out.add(t, p.alive == 0 || int(p.session) != x+1, "session expires", x)
	}
}

func (cc *callersConfig) lateMessages(s *callersState, out *steps[callersState]) {
	for n := range cc.callers * cc.noncesPerCaller {
		for variant := range 2 {
			sent := has(s.opens, n*2+variant)
			if !cc.oneShot {
				sent = variant == 0 && has(s.requests, n)
			}
			if sent {
				t := *s
				cc.applyOpen(&t, n, cc.sessionFor(s, n, variant), 0)
				out.add(t, perhaps, "ledger: late Open", n)
			}
		}
		if has(s.abandons, n) {
			t := *s
			t.abandon(n)
			out.add(t, perhaps, "ledger: late Abandon", n)
		}
		if has(s.nodeAbandons, n) {
			t := *s
			t.abandon(n)
			out.add(t, perhaps, "ledger: Abandon by a node", n)
		}
	}
	for k := range int(s.attemptCount) {
		if has(s.reports, k) {
			t := *s
			t.report(k)
			out.add(t, perhaps, "ledger: report", k)
		}
	}
}

// ledgerEnds has rule 3 (c): an attempt ends by the proof that its session has ended.
func (cc *callersConfig) ledgerEnds(s *callersState, out *steps[callersState]) {
	for k := range int(s.attemptCount) {
		ended := s.sessions[s.sessionOfAttempt[k]] != sessionAlive
		if cc.endNamesNothing && ended && !has(s.ends, k) {
			t := *s
			t.ends |= bit(k)
			out.add(t, eventually, "EndSession proposed", k)
		}
		if cc.endNamesNothing && has(s.ends, k) || !cc.endNamesNothing && (ended || cc.staleRead) {
			t := *s
			cc.applyEnded(&t, k)
			out.add(t, eventually, "ledger: EndSession", k)
		}
	}
}
