package protocolmodel

// nodeSteps has the steps of one node.
func (cc *callersConfig) nodeSteps(s *callersState, node int, out *steps[callersState]) {
	working := false
	for c := range cc.callers {
		if s.handlers[node][c].nonce == 0 {
			cc.takeOpens(s, node, c, out)
			continue
		}
		working = true
		cc.handleOpen(s, node, c, out)
	}
	if working && !cc.noCrashes {
		t := *s
		t.handlers[node] = [maxCallers]openHandler{}
		out.add(t, perhaps, "node crashes", node)
	}
}

// takeOpens: a node takes an open that was sent, perhaps a late copy.
func (cc *callersConfig) takeOpens(s *callersState, node, c int, out *steps[callersState]) {
	p := s.callers[c]
	for turn := range cc.noncesPerCaller {
		n := c*cc.noncesPerCaller + turn
		if !has(s.requests, n) {
			continue
		}
		awaited := int(p.nonceIndex) == turn && p.phase == callerWaiting && p.alive == 1
		if !awaited && has(s.used, n) && !cc.forgetUsed {
			continue // opens nothing, and no caller waits
		}
		t := *s
		h := openHandler{nonce: uint8(n) + 1}
		if cc.oneShot { // rule 9: a session from the pool
			if s.sessions[n*2] != sessionNone {
				h.variant = 1
			}
			x := n*2 + int(h.variant)
			t.handlers[node][c] = h
			if s.sessions[x] != sessionNone { // both are used up; a repeat finds the attempt of an earlier one
				if awaited && s.isOpen(n) {
					out.add(t, awaited, "node takes the repeat", node, n)
				}
				continue
			}
			if !cc.sessionBesideOpen {
				t.sessions[x] = sessionAlive
			}
			t.opens |= bit(x)
		}
		t.handlers[node][c] = h
		out.add(t, awaited, "node takes the open", node, n)
	}
}

// handleOpen has the steps of a node with an open in its hands.
func (cc *callersConfig) handleOpen(s *callersState, node, c int, out *steps[callersState]) {
	h := s.handlers[node][c]
	n := int(h.nonce) - 1
	own := cc.sessionFor(s, n, int(h.variant))
	claims := cc.claimSession(s, n, h)
	if cc.oneShot && cc.sessionBesideOpen && s.sessions[own] == sessionNone {
		t := *s
		t.sessions[own] = sessionAlive
		out.add(t, eventually, "the node's session comes into being", own)
	}
	if (h.answer == answerNone || h.answer == answerBusy) && !(cc.newerClaimSupersedes && h.claim == 0) &&
		!(cc.oneShot && !has(s.opens, own)) {
		cc.ledgerAnswers(s, node, c, own, out)
	}
	if cc.oneShot && cc.revokeAfterBusy && h.answer == answerBusy {
		cc.revokeOwn(s, node, c, own, out)
	}
	if h.claim == 0 && !cc.claimsOff && s.sessions[claims] == sessionAlive && h.answer != answerBusy {
		cc.putClaim(s, node, c, claims, out)
	}
	if h.answer == answerProceed && (h.claim != 0 || cc.claimsOff) && s.sessions[claims] == sessionAlive {
		t := *s
		t.answers |= bit(n)
		t.handlers[node][c] = openHandler{}
		if cc.tokenOfClaim {
			if k := s.attemptOf(n); t.tokenRevision[k] == 0 {
				t.tokenRevision[k] = h.claim
			}
		}
		out.add(t, eventually, "node answers proceed", node, n)
	}
	t := *s
	t.handlers[node][c] = openHandler{}
	if cc.nodeAbandonsOpen && h.answer == answerProceed && h.claim == 0 {
		t.nodeAbandons |= bit(n)
		out.add(t, perhaps, "etcd does not answer: node abandons", node, n)
	} else {
		ended := s.sessions[claims] != sessionAlive && s.sessions[claims] != sessionNone
		out.add(t, ended, "node drops the open", node, n)
	}
}

func (cc *callersConfig) ledgerAnswers(s *callersState, node, c, own int, out *steps[callersState]) {
	h := s.handlers[node][c]
	n := int(h.nonce) - 1
	t := *s
	var claimRevision uint8
	if cc.newerClaimSupersedes {
		claimRevision = h.claim
	}
	answer := cc.applyOpen(&t, n, own, claimRevision)
	granted := h
	granted.answer = answerProceed
	if cc.laggingRepeats && t.attemptOf(n) >= 0 && answer != answerProceed { // the node's view still shows the attempt open
		u := *s
		u.handlers[node][c].answer = answerProceed
		if cc.claimSession(&u, n, granted) != own {
			u.handlers[node][c].claim = 0
		}
		out.add(u, perhaps, "lagging node answers the repeat from its own view", node, n)
	}
	t.handlers[node][c].answer = answer
	h.answer = answer
	if answer != answerProceed || cc.claimSession(&t, n, h) != own { // rule 2: the node deletes its own claim
		t.handlers[node][c].claim = 0
		if h.claim != 0 && t.claim == uint8(own)+1 {
			t.removeClaim()
		}
	}
	if answer == answerRefused {
		t.handlers[node][c] = openHandler{}
	}
	out.add(t, eventually, "ledger answers node", node, n, int(answer))
}

// revokeOwn: a node that was answered busy, perhaps a while ago, ends its one-shot session: by rule 9 after
// WithdrawSession, in control 8 at once.
func (cc *callersConfig) revokeOwn(s *callersState, node, c, own int, out *steps[callersState]) {
	t := *s
	opened := false
	for k := range int(t.attemptCount) {
		opened = opened || int(t.sessionOfAttempt[k]) == own && t.attempts[k].status == attemptOpen
	}
	if !cc.withdrawFirst || !opened {
		if cc.withdrawFirst {
			t.withdrawn |= bit(own)
		}
		t.revoke(uint8(own))
	}
	t.handlers[node][c] = openHandler{}
	out.add(t, perhaps, "node, answered busy, ends its session", node, own)
}

// putClaim: etcd grants the claim where there is none, and after proceed it replaces a foreign one (rule 2).
func (cc *callersConfig) putClaim(s *callersState, node, c, session int, out *steps[callersState]) {
	h := s.handlers[node][c]
	ownsClaim := int(s.claim) == session+1
	if s.claim != 0 && !ownsClaim && (h.answer != answerProceed || cc.waitForClaim) {
		return
	}
	t := *s
	revisions := cc.newerClaimSupersedes || cc.tokenOfClaim
	if !ownsClaim {
		t.claim = uint8(session) + 1
		if revisions {
			if t.revision >= 6 {
				return // the bound
			}
			t.revision++
			t.claimRevision = t.revision
		}
	}
	t.handlers[node][c].claim = 1
	if revisions {
		t.handlers[node][c].claim = t.claimRevision
	}
	out.add(t, eventually, "claim granted", node, int(h.nonce)-1)
}
