package protocolmodel

func (rc *reportsConfig) successors(s *reportsState, out *steps[reportsState]) {
	sessions := sessionRules[reportsState]{
		of: func(s *reportsState, c int) *process { return &s.owners[c] }, noDeaths: rc.noDeaths, frozen: rc.frozen,
	}
	for n := range rc.count() {
		if s.owners[rc.owner(n)].alive == 1 {
			rc.ownerSteps(s, n, out)
		}
		rc.spoolSteps(s, n, out)
		rc.nodeSteps(s, n, out)
		rc.ledgerSteps(s, n, out)
	}
	for k := range int(s.ledger.attemptCount) {
		rc.attemptSteps(s, k, out)
	}
	for c := range s.owners {
		sessions.steps(s, c, out)
	}
	if rc.restore && s.storeEpoch == 0 {
		rc.restoreSteps(s, out)
	}
}

func (rc *reportsConfig) ownerSteps(s *reportsState, n int, out *steps[reportsState]) {
	c := rc.owner(n)
	q := &s.nonces[n]
	switch q.phase {
	case openUnused:
		if s.owners[c].trusts == 0 {
			return
		}
		for earlier := range n { // one after another
			if p := s.nonces[earlier].phase; rc.owner(earlier) == c && p <= openProceeds {
				return
			}
		}
		t := *s
		t.nonces[n].phase, t.nonces[n].requests[0] = openAwaits, requestPending
		out.add(t, perhaps, "owner sends open", c, n)
	case openAwaits, openProceeds:
		if q.phase == openAwaits {
			rc.awaitAnswer(s, n, out)
			rc.leaveSteps(s, n, out)
		}
		t := *s
		t.nonces[n].phase = openGivenUp
		out.add(t, s.owners[c].session != sessionAlive || s.owners[c].trusts == 0 || q.deadline == 1, "owner gives up", c, n)
		if q.phase == openProceeds && s.owners[c].trusts == 1 && q.deadline != 1 { // rule 1
			t := *s
			t.effects |= bit(n)
			t.nonces[n].phase = openActed
			out.add(t, eventually, "EFFECT", c, n)
		}
		if rc.timeouts && q.deadline == 0 {
			t := *s
			t.nonces[n].deadline = 1
			out.add(t, q.phase == openProceeds, "owner's time-out passes", c, n)
		}
	case openActed:
		rc.giveReport(s, n, out)
	case openGivenUp:
		if !has(s.abandons, n) && s.ledger.flight != done {
			t := *s
			t.abandons |= bit(n)
			out.add(t, eventually, "abandon proposed", c, n)
		}
		if (has(s.abandonAnswers, n) || s.ledger.flight == done) && !rc.keepAll {
			t := *s
			t.nonces[n].phase = openOver
			out.add(t, eventually, "abandon answered", c, n)
		}
	}
}

// awaitAnswer: the owner is answered proceed, or repeats its open.
func (rc *reportsConfig) awaitAnswer(s *reportsState, n int, out *steps[reportsState]) {
	c, b := rc.owner(n), bit(n)
	q := &s.nonces[n]
	if k := s.ledger.attemptOf(n); s.proceeds&b != 0 && k >= 0 {
		t := *s
		r := &t.nonces[n]
		r.phase, r.attempt, r.storeEpoch = openProceeds, uint8(k)+1, s.storeEpoch
		out.add(t, eventually, "owner is answered proceed", c, n)
	}
	repeat := func(node int, name string) {
		t := *s
		r := &t.nonces[n]
		r.requests[node], r.repeated = requestPending, 1
		if rc.deadlineOfLastSend && q.deadline == 1 {
			r.deadline = 2
		}
		out.add(t, eventually, name, c, n)
	}
	if rc.nodes == 2 && q.requests[1] == requestNone && q.requests[0] != requestNone {
		repeat(1, "owner repeats its open at the other node")
	}
	lostByRestore := q.requests[0] == requestProposed && s.storeEpoch == 1 && s.opens&b == 0
	if lostByRestore || q.requests[0] >= requestNotProposed && (q.requests[1] != requestPending || rc.nodes == 1) {
		repeat(0, "owner repeats its open")
	}
}

// leaveSteps: the owner receives a final answer and leaves (rule 6).
func (rc *reportsConfig) leaveSteps(s *reportsState, n int, out *steps[reportsState]) {
	c, b := rc.owner(n), bit(n)
	q := &s.nonces[n]
	leave := func(why string) {
		t := *s
		t.nonces[n].phase = openOver
		if rc.keepAll {
			t.nonces[n].phase = openGivenUp
		}
		out.add(t, eventually, why, c, n)
	}
	if s.finals&b != 0 || s.ledger.flight == done {
		leave("owner leaves: replay or expired")
	}
	if s.expiries&b != 0 {
		leave("owner leaves: open_expired")
	}
	if s.doubts&b != 0 {
		leave("owner leaves: in_doubt")
	}
	for v := range rc.nodes {
		if q.requests[v] == requestNotProposed && (q.repeated == 0 || rc.leaveAfterOneOfMany) {
			leave("owner leaves: proposed: false")
		}
	}
	if rc.leaveIfNoneProposed && q.repeated == 1 && s.broken&b == 0 {
		none := true
		for v := range rc.nodes {
			none = none && (q.requests[v] == requestNotProposed || q.requests[v] == requestNone)
		}
		if none {
			leave("owner leaves: proposed: false to every request")
		}
	}
	if rc.leaveAfterBusy && s.opens&b != 0 {
		t := *s
		t.nonces[n].phase = openOver
		if rc.keepRow {
			t.nonces[n].phase = openGivenUp
		}
		out.add(t, perhaps, "owner leaves: busy, proposed: true", c, n)
	}
}

func (rc *reportsConfig) giveReport(s *reportsState, n int, out *steps[reportsState]) {
	c := rc.owner(n)
	q := &s.nonces[n]
	t := *s
	if q.storeEpoch != s.storeEpoch { // rule 10
		t.nonces[n].phase = openOver
		out.add(t, eventually, "report of another store epoch kept as evidence", c, n)
	} else {
		t.reports |= bit(int(q.attempt) - 1)
		out.add(t, eventually, "report proposed", c, n)
	}
	t = *s
	t.nonces[n].phase = openSpooled
	t.spool |= bit(n)
	out.add(t, perhaps, "report written to the spool", c, n)
	if has(s.reportAnswers, n) || s.ledger.flight == done && q.storeEpoch == s.storeEpoch {
		t := *s
		t.nonces[n].phase = openOver
		out.add(t, eventually, "report answered", c, n)
	}
}

// spoolSteps: a report in a spool is proposed until it is answered, whether its process lives or not.
func (rc *reportsConfig) spoolSteps(s *reportsState, n int, out *steps[reportsState]) {
	b := bit(n)
	q := &s.nonces[n]
	if s.spool&b == 0 {
		return
	}
	t := *s
	if q.storeEpoch != s.storeEpoch {
		t.spool &^= b
		t.nonces[n].phase = openOver
		out.add(t, eventually, "spooled report of another store epoch kept as evidence", n)
	} else if !has(s.reports, int(q.attempt)-1) {
		t.reports |= bit(int(q.attempt) - 1)
		out.add(t, eventually, "spooled report proposed", n)
	}
	if s.reportAnswers&b != 0 || s.ledger.flight == done && q.storeEpoch == s.storeEpoch {
		t := *s
		t.spool &^= b
		t.nonces[n].phase = openOver
		out.add(t, eventually, "spooled report answered", n)
	}
}

// nodeSteps: a node with a request proposes the Open, or answers from its own view.
func (rc *reportsConfig) nodeSteps(s *reportsState, n int, out *steps[reportsState]) {
	b := bit(n)
	for v := range rc.nodes {
		if s.nonces[n].requests[v] != requestPending {
			continue
		}
		t := *s
		t.nonces[n].requests[v] = requestProposed
		t.opens |= b
		if !rc.farAtNode || s.tooFar&b == 0 { // no view's time is ahead of the ledger's
			out.add(t, eventually, "node proposes Open", v, n)
		}
		if rc.farAtNode && n == 0 { // a lagging view's time is behind
			t := *s
			t.nonces[n].requests[v] = requestNotProposed
			out.add(t, s.tooFar&b != 0, "node answers: not_after too far ahead, proposed: false", v, n)
		}
		foreign := false
		for k := range int(s.ledger.attemptCount) {
			foreign = foreign || int(s.ledger.attempts[k].nonce) != n
		}
		if foreign { // some view, however old, showed another caller's open attempt
			t := *s
			t.nonces[n].requests[v] = requestNotProposed
			out.add(t, perhaps, "node answers busy from its own view", v, n)
		}
		if rc.expiredFromView && s.expired&b != 0 {
			t := *s
			t.nonces[n].requests[v] = requestBroken
			t.expiries |= b
			out.add(t, perhaps, "node answers open_expired from its own view", v, n)
		}
		t = *s
		t.nonces[n].requests[v] = requestBroken
		if rc.leaveIfNoneProposed {
			t.broken |= b
		}
		out.add(t, perhaps, "connection breaks", v, n)
	}
}

// ledgerSteps: an Open or Abandon is applied, perhaps once more; ledger time passes.
func (rc *reportsConfig) ledgerSteps(s *reportsState, n int, out *steps[reportsState]) {
	b := bit(n)
	lives := s.owners[rc.owner(n)].alive == 1
	q := &s.nonces[n]
	if s.opens&b != 0 {
		t := *s
		rc.applyOpen(&t, n)
		out.add(t, lives && q.phase == openAwaits, "ledger: Open", n)
	}
	if s.abandons&b != 0 {
		t := *s
		t.ledger.abandon(n)
		t.abandonAnswers |= b
		out.add(t, lives && q.phase == openGivenUp, "ledger: Abandon", n)
	}
	if s.tooFar&b != 0 {
		t := *s
		t.tooFar &^= b
		out.add(t, eventually, "ledger time: not_after is near enough", n)
	}
	if s.expired&b == 0 && s.tooFar&b == 0 && q.phase != openUnused {
		t := *s
		t.expired |= b
		out.add(t, eventually, "ledger time: not_after passes", n)
	}
	harmless := q.phase >= openGivenUp && !rc.forgetUsed && !rc.restore || rc.forgetUsed && has(s.forgotten, n)
	if s.expired&b != 0 && s.ledger.used&b != 0 && !s.ledger.isOpen(n) && s.ledger.flight != done && !harmless {
		t := *s
		t.ledger.used &^= b
		if rc.forgetUsed { // once is enough
			t.forgotten |= b
		}
		out.add(t, perhaps, "ledger forgets the nonce", n)
	}
}

// attemptSteps: the reports and the ends of an attempt, and its owner's reaction to a renewal that lists it.
func (rc *reportsConfig) attemptSteps(s *reportsState, k int, out *steps[reportsState]) {
	n, b := int(s.ledger.attempts[k].nonce), bit(k)
	c := rc.owner(n)
	phase := s.nonces[n].phase
	if s.reports&b != 0 {
		t := *s
		t.ledger.report(k)
		t.reportAnswers |= bit(n)
		out.add(t, s.owners[c].alive == 1 && (rc.renewalShows || phase == openActed) || has(s.spool, n), "ledger: report", k)
	}
	open := s.ledger.attempts[k].status == attemptOpen && k == int(s.ledger.attemptCount)-1 && s.ledger.flight == running
	if open {
		if s.unknowns&b != 0 {
			t := *s
			if !has(s.effects, n) {
				t.falseDoubt = 1
			}
			t.ledger.lose(attemptUnknown, rc.hold)
			out.add(t, eventually, "ledger: outcome unknown", k)
		}
		if s.owners[c].session != sessionAlive { // rule 3 (c)
			t := *s
			t.ledger.lose(attemptLost, rc.hold)
			out.add(t, eventually, "ledger: EndSession", k)
		}
		if rc.timeouts && (s.nonces[n].deadline >= 1 || rc.drift || s.owners[c].alive == 0 || phase > openProceeds) { // rule 3 (d)
			t := *s
			t.ledger.lose(attemptLost, rc.hold)
			out.add(t, perhaps, "ledger: time-out", k)
		}
	}
	if !rc.renewalShows || s.owners[c].alive == 0 {
		return
	}
	if open && s.owners[c].session == sessionAlive && s.shown&b == 0 {
		t := *s
		t.shown |= b
		out.add(t, eventually, "renewal shows the attempt", c, k)
	}
	if s.shown&b != 0 {
		rc.actOnShown(s, k, out)
	}
}

// actOnShown is rule 8: an owner was shown an attempt by a renewal, and acts on it at any time later.
func (rc *reportsConfig) actOnShown(s *reportsState, k int, out *steps[reportsState]) {
	n, b := int(s.ledger.attempts[k].nonce), bit(k)
	c := rc.owner(n)
	abandon := func() {
		t := *s
		t.abandons |= bit(n)
		out.add(t, eventually, "shown: owner abandons", c, k)
	}
	switch s.nonces[n].phase {
	case openGivenUp:
		abandon()
	case openSpooled:
		if rc.abandonSpooled {
			abandon()
		}
	case openOver, openUnused:
		if rc.abandonLost {
			abandon()
			return
		}
		t := *s
		t.unknowns |= b
		out.add(t, eventually, "shown: owner reports unknown", c, k)
		if has(s.effects, n) {
			t := *s
			t.reports |= b
			out.add(t, eventually, "shown: owner reports again", c, k)
		}
	}
}

// restoreSteps is rule 10: once, the ledger goes back to an older prefix in a new store epoch. Commands in flight
// are of the old epoch and do nothing.
func (rc *reportsConfig) restoreSteps(s *reportsState, out *steps[reportsState]) {
	if s.hasBackup == 0 && s.ledger.attemptCount > 0 {
		t := *s
		t.hasBackup, t.backup = 1, s.ledger
		out.add(t, perhaps, "backup of the ledger")
	}
	if s.hasBackup == 0 {
		return
	}
	for n := range rc.count() {
		q := &s.nonces[n]
		if (q.attempt > 0 || has(s.effects, n) || q.phase == openProceeds) && s.backup.attemptOf(n) < 0 {
			return // the bound: the backup has the Open of every attempt that was answered proceed
		}
	}
	t := *s
	t.ledger, t.backup, t.hasBackup, t.storeEpoch = s.backup, ledger{}, 0, 1
	t.opens, t.abandons, t.reports, t.unknowns, t.shown = 0, 0, 0, 0, 0
	t.proceeds, t.expiries, t.doubts, t.finals, t.abandonAnswers = 0, 0, 0, 0, 0
	out.add(t, perhaps, "ledger restored")
}
