package protocolmodel

import "math/bits"

// The model of verifications: policy verify, one key, two or three callers with a long-lived session each. The provider shows
// an effect once the request has arrived. A request that was sent arrives, or is lost, before the settle delay is over:
// that is the meaning of the settle delay. A finding may arrive any number of times.

// The phases of a caller in the model of verifications.
const (
	verifierIdle     = iota
	verifierAsks     // its open was sent, and is repeated until it is answered
	verifierProceeds // answered proceed; the effect is not started
	verifierActed    // the request to the provider was sent
	verifierOver
)

// The results of the look-up that a caller was sent to make.
const (
	lookNone = iota
	lookNotDone
	lookDone
)

type verifier struct {
	process
	phase             uint8
	opens             uint8 // opens so far
	attempt           uint8 // + 1
	verifies          uint8 // 0: nothing, 1: it has the newest verification, 2: an older one
	look              uint8
	found, foundOlder uint8 // findings sent, a set of looks: of the newest verification, of older ones
}

type verificationState struct {
	ledger               // an attempt's nonce is its caller; every Open has a nonce of its own, so that none is used
	settleOver     uint8 // the settle delay of the newest attempt is over
	given          uint8 // caller + 1 with the newest verification; 0: none is outstanding
	deadlineOver   uint8 // of the newest verification, in ledger time
	inAir, arrived uint8 // requests to the provider, per attempt
	callers        [3]verifier
}

// verificationConfig is a configuration of the model of verifications.
type verificationConfig struct {
	scope
	callers        int
	opensPerCaller int // opens per caller, each with a nonce of its own
	attempts       int

	anyTime            bool // a newer verification may be given at any time
	noDeadline         bool // control: a verification is exclusive until its session has ended, however long
	olderCounts        bool // control: a finding of an older verification counts
	openKeeps          bool // control: an Open leaves an outstanding verification valid
	settleFromOpening  bool // control: the settle delay starts when the attempt opens
	settleFromExpiry   bool // control: the settle delay starts when the session ends in etcd, or its owner stops waiting
	reportsUnknownSoon bool // an owner may report unknown while its request is in progress
}

// closeVerification makes all verifications that were assigned so far older ones.
func (s *verificationState) closeVerification() {
	for i := range s.callers {
		c := &s.callers[i]
		if c.verifies == 1 {
			c.verifies = 2
		}
		c.foundOlder |= c.found
		c.found = 0
	}
	s.given, s.deadlineOver = 0, 0
}

func (vc *verificationConfig) applyOpen(t *verificationState, c int) bool {
	switch t.flight {
	case free:
		if int(t.attemptCount) == vc.attempts {
			return false // the bound
		}
		t.open(c)
		t.used, t.settleOver = 0, 0
		t.callers[c].phase, t.callers[c].attempt = verifierProceeds, t.attemptCount
		if !vc.openKeeps {
			t.closeVerification()
		}
		return true
	case done:
		t.callers[c].phase = verifierOver
		return true
	case inDoubt:
		if t.settleOver == 0 {
			return false
		}
		if p := &t.callers[c]; int(t.given) == c+1 { // a repeat, also with another nonce, is given the same verification
			again := p.verifies == 0 && p.found == 0
			if again {
				p.verifies = 1
			}
			return again
		}
		outstanding := t.given != 0 && t.deadlineOver == 0 && t.callers[t.given-1].session == sessionAlive
		if outstanding && !vc.anyTime {
			return false
		}
		t.closeVerification()
		t.given = uint8(c) + 1
		t.callers[c].verifies, t.callers[c].look = 1, lookNone
		return true
	}
	return false
}

// endAttempt ends the newest attempt with an unknown outcome.
func (vc *verificationConfig) endAttempt(t *verificationState, status uint8) {
	t.lose(status, true)
	if !vc.settleFromOpening && !vc.settleFromExpiry {
		t.settleOver = 0
	}
}

func (vc *verificationConfig) applyFinding(t *verificationState, look int) {
	if t.flight != inDoubt {
		return
	}
	t.flight = free
	if look == lookDone {
		t.flight = done
	}
	t.closeVerification()
}

func (vc *verificationConfig) successors(s *verificationState, out *steps[verificationState]) {
	sessions := sessionRules[verificationState]{of: func(s *verificationState, c int) *process { return &s.callers[c].process }}
	for c := range vc.callers {
		if s.callers[c].alive == 1 {
			vc.callerSteps(s, c, out)
		}
		sessions.steps(s, c, out)
		for look := lookNotDone; look <= lookDone; look++ {
			if q := &s.callers[c]; has(q.found, look) || vc.olderCounts && has(q.foundOlder, look) {
				t := *s
				vc.applyFinding(&t, look)
				out.add(t, has(q.found, look), "ledger: finding of caller (1 not done, 2 done)", c, look)
			}
		}
	}
	for k := range int(s.attemptCount) {
		if has(s.inAir, k) {
			t := *s
			t.inAir &^= bit(k)
			out.add(t, eventually, "request lost", k)
			t.arrived |= bit(k)
			out.add(t, perhaps, "request arrives at the provider", k)
		}
	}
	newest := int(s.attemptCount) - 1
	if s.flight == running && s.callers[s.attempts[newest].nonce].session != sessionAlive {
		t := *s
		vc.endAttempt(&t, attemptLost)
		out.add(t, eventually, "ledger: EndSession", newest)
	}
	mayStart := newest >= 0 && s.callers[s.attempts[newest].nonce].phase == verifierProceeds
	late := s.flight == inDoubt && s.inAir == 0
	early := vc.settleFromOpening && s.flight == running || vc.settleFromExpiry && s.flight == inDoubt && !mayStart
	if s.settleOver == 0 && (late || early) {
		t := *s
		t.settleOver = 1
		out.add(t, eventually, "settle delay over")
	}
	if s.given != 0 && s.deadlineOver == 0 && !vc.noDeadline {
		holder := s.callers[s.given-1]
		t := *s
		t.deadlineOver = 1
		out.add(t, holder.alive == 0 || holder.phase != verifierAsks, "deadline of the verification passes")
	}
}

func (vc *verificationConfig) callerSteps(s *verificationState, c int, out *steps[verificationState]) {
	q := &s.callers[c]
	t := *s
	switch q.phase {
	case verifierIdle, verifierOver:
		if int(q.opens) < vc.opensPerCaller {
			t.callers[c].phase = verifierAsks
			t.callers[c].opens++
			out.add(t, perhaps, "caller sends its open", c)
		}
	case verifierAsks:
		if vc.applyOpen(&t, c) {
			out.add(t, eventually, "ledger: Open", c)
		}
		t = *s
		t.callers[c].phase = verifierOver
		out.add(t, s.callers[c].session != sessionAlive, "caller leaves", c)
	case verifierProceeds:
		t.callers[c].phase = verifierOver
		if q.attempt == s.attemptCount && (s.flight == running || s.flight == inDoubt) {
			t.attempts[q.attempt-1].status, t.flight = attemptNotDone, free
		}
		out.add(t, q.trusts == 0, "caller gives up; ledger: Abandon", c)
		if q.trusts == 1 {
			t := *s
			t.callers[c].phase = verifierActed
			t.inAir |= bit(int(q.attempt) - 1)
			out.add(t, eventually, "EFFECT: caller sends its request", c)
		}
	case verifierActed:
		k := int(q.attempt) - 1
		if has(s.arrived, k) {
			t.callers[c].phase = verifierOver
			t.report(k)
			out.add(t, eventually, "ledger: report", c)
		}
		if !has(s.arrived, k) && (!has(s.inAir, k) || vc.reportsUnknownSoon) {
			t := *s
			t.callers[c].phase = verifierOver
			if q.attempt == s.attemptCount && s.flight == running {
				vc.endAttempt(&t, attemptUnknown)
			}
			out.add(t, !has(s.inAir, k), "ledger: outcome unknown", c)
		}
	}
	vc.verifySteps(s, c, out)
}

// verifySteps: a caller with a verification asks the provider, perhaps slowly, and sends its finding.
func (vc *verificationConfig) verifySteps(s *verificationState, c int, out *steps[verificationState]) {
	q := &s.callers[c]
	if q.verifies == 0 || q.phase != verifierAsks {
		return
	}
	t := *s
	if q.look == lookNone {
		t.callers[c].look = lookNotDone
		if s.arrived != 0 {
			t.callers[c].look = lookDone
		}
		out.add(t, eventually, "caller asks the provider", c)
		return
	}
	p := &t.callers[c]
	if q.verifies == 1 {
		p.found |= bit(int(q.look))
	} else {
		p.foundOlder |= bit(int(q.look))
	}
	p.verifies, p.look = 0, lookNone
	out.add(t, eventually, "finding sent", c)
}

// canonical clears fields that no rule reads any more.
func (vc *verificationConfig) canonical(t *verificationState) {
	for c := range vc.callers {
		p := &t.callers[c]
		if p.alive == 0 {
			p.phase, p.opens = verifierOver, 0
		}
		if p.phase == verifierOver {
			p.attempt, p.verifies, p.look = 0, 0, lookNone
		}
		if p.verifies == 2 && !vc.olderCounts { // its finding would be fenced, so it stops
			p.verifies, p.look = 0, lookNone
		}
		if !vc.olderCounts || t.flight == done {
			p.foundOlder = 0
		}
	}
}

func (vc *verificationConfig) violation(s *verificationState) string {
	if bits.OnesCount8(s.arrived) > 1 {
		return "S1 two effects under verify"
	}
	mayStart := 0
	for c := range vc.callers {
		q := &s.callers[c]
		if q.phase != verifierProceeds || q.trusts == 0 {
			continue
		}
		mayStart++
		if s.attempts[q.attempt-1].status != attemptOpen {
			return "S4 the attempt of a caller that may start was closed by another"
		}
	}
	if mayStart > 1 {
		return "S2 two callers may start at the same time"
	}
	return ""
}

func (vc *verificationConfig) settled(s *verificationState) bool {
	if s.flight == done || s.flight == free && int(s.attemptCount) == vc.attempts {
		return true
	}
	for c := range vc.callers {
		if q := &s.callers[c]; q.alive == 1 && q.phase >= verifierAsks && q.phase <= verifierActed {
			return false
		}
	}
	return s.flight != running
}

func (vc verificationConfig) run(limits Limits) Result {
	var initial verificationState
	for c := range vc.callers {
		initial.callers[c] = verifier{process: trusting}
	}
	return explore(model[verificationState]{
		initial: initial, successors: vc.successors, canonical: vc.canonical, violation: vc.violation, settled: vc.settled, live: vc.live,
		outcome: func(s *verificationState) outcome {
			return outcome{effects: uint8(bits.OnesCount8(s.arrived)), flight: s.flight}
		},
	}, limits)
}

// verificationConfigurations has letter V.
func verificationConfigurations() []Configuration {
	base := verificationConfig{callers: 2, opensPerCaller: 2, attempts: 3, reportsUnknownSoon: true}
	return table(base, []row[verificationConfig]{
		{"V1 exclusive until a deadline or the end of its session", Holds, noPolicy, noPolicy, func(g *verificationConfig) { g.live = true }},
		{"V2 three callers, one nonce each", Holds, noPolicy, 0, func(g *verificationConfig) { g.callers, g.opensPerCaller, g.live = 3, 1, true }},
		{"V3 a newer verification may be given at any time", Blocks, noPolicy, noPolicy, func(g *verificationConfig) { g.anyTime, g.live = true, true }},
		{"V4 as V3, safety", Holds, noPolicy, noPolicy, func(g *verificationConfig) { g.anyTime = true }},
		{"VN1 control: a finding of an older verification counts", Violates, noPolicy, noPolicy, func(g *verificationConfig) { g.olderCounts = true }},
		{"VN2 control: the settle delay starts when the attempt opens", Violates, noPolicy, noPolicy, func(g *verificationConfig) { g.settleFromOpening = true }},
		{"VN3 control: the settle delay starts before the committed end", Violates, noPolicy, noPolicy, func(g *verificationConfig) { g.settleFromExpiry = true }},
		{"VN4 control: an Open leaves an outstanding verification valid", Violates, noPolicy, noPolicy, func(g *verificationConfig) { g.openKeeps = true }},
		{"VN5 control: exclusive without a deadline", Blocks, noPolicy, noPolicy, func(g *verificationConfig) { g.noDeadline, g.live = true, true }},
	})
}
