package protocolmodel

import "math/bits"

// The model of store epochs: rule 10, and the consequences of a restored ledger. Two callers with a session and a nonce each;
// once, the ledger goes back to an older prefix, in a new store epoch, and may lose an Open that was
// answered. Commands of both epochs arrive at any time, again and again. A claim goes with its session, and is
// released by its caller; other removals are a configuration of their own.

// restoredToken is a fencing token: store epoch and attempt number + 1.
type restoredToken struct{ epoch, number uint8 }

type restoresState struct {
	ledger, backup  ledger // an attempt's nonce is its caller
	hasBackup       uint8
	epoch, holdOver uint8 // ledger
	claim           uint8 // caller + 1
	phases          [2]uint8
	owners          [2]process // trust 1: by a renewal sent before the restore; 2: after
	tokens          [2]restoredToken
	answers         [2]restoredToken // proceed answered
	// Commands in flight, per store epoch: Opens, reports, unknowns and EndSession, a set of callers each.
	opens, reports, unknowns, ends [2]uint8
	claimed, effects               uint8
	newest                         restoredToken // of the attempt that opened last
	fault                          uint8         // 1: tokens did not rise
}

// restoresConfig is a configuration of the model of store epochs.
type restoresConfig struct {
	scope
	renewalShowsEpoch bool // an owner whose renewal showed a later store epoch starts nothing under an earlier token
	holdOpens         bool // after a restore the ledger opens nothing until the hold is over
	claimsCompare     bool // the transaction of a claim compares the store epoch of its token with the guard key's
	claimsRemoved     bool // any node may delete a claim

	// Controls.
	ignoreEpoch   bool // commands of another store epoch count
	tokenNumber   bool // a token is the attempt number alone
	startsAtClaim bool // after proceed, the claim of another live session is replaced although the hold is not over
}

func (rc *restoresConfig) acceptsEpoch(s *restoresState, epoch int) bool {
	return rc.ignoreEpoch || int(s.epoch) == epoch
}

func (rc *restoresConfig) successors(s *restoresState, out *steps[restoresState]) {
	sessions := sessionRules[restoresState]{
		of:         func(s *restoresState, c int) *process { return &s.owners[c] },
		generation: func(s *restoresState) uint8 { return 1 + s.epoch },
		dies:       func(t *restoresState, c int) { t.phases[c] = operationOver },
		expires: func(t *restoresState, c int) {
			if int(t.claim) == c+1 {
				t.claim = 0
			}
		},
	}
	for c := range 2 {
		rc.callerSteps(s, c, out)
		sessions.steps(s, c, out)
		if s.owners[c].session != sessionAlive && !has(s.ends[s.epoch], c) {
			t := *s
			t.ends[s.epoch] |= bit(c)
			out.add(t, eventually, "EndSession proposed", c)
		}
		for epoch := range 2 {
			if rc.acceptsEpoch(s, epoch) {
				rc.commandSteps(s, c, epoch, out)
			}
		}
	}
	if s.claim != 0 && rc.claimsRemoved {
		t := *s
		t.claim = 0
		out.add(t, perhaps, "claim removed")
	}
	if s.epoch == 0 && s.hasBackup == 0 {
		t := *s
		t.hasBackup, t.backup = 1, s.ledger
		out.add(t, perhaps, "backup of the ledger")
	}
	if s.epoch == 0 && s.hasBackup == 1 {
		t := *s
		t.ledger, t.backup, t.hasBackup, t.epoch = s.backup, ledger{}, 0, 1
		t.answers = [2]restoredToken{}
		out.add(t, perhaps, "ledger restored in a new store epoch")
	}
	if s.epoch == 1 && s.holdOver == 0 && s.owners[0].trusts != 1 && s.owners[1].trusts != 1 {
		t := *s
		t.holdOver = 1
		out.add(t, eventually, "the hold of the restore is over")
	}
}

func (rc *restoresConfig) callerSteps(s *restoresState, c int, out *steps[restoresState]) {
	b := bit(c)
	t := *s
	switch s.phases[c] {
	case operationUnused:
		if s.owners[c].trusts > 0 {
			t.phases[c] = operationAwaits
			t.opens[s.epoch] |= b
			out.add(t, perhaps, "caller sends its open", c)
		}
	case operationAwaits:
		if s.opens[s.epoch]&b == 0 { // repeated after the restore
			t.opens[s.epoch] |= b
			out.add(t, eventually, "caller repeats its open", c)
		}
		if s.answers[c].number != 0 {
			t := *s
			t.phases[c], t.tokens[c] = operationProceeds, s.answers[c]
			out.add(t, eventually, "caller is answered proceed", c)
		}
	case operationProceeds:
		rc.claimAndStart(s, c, out)
	case operationActed:
		t.reports[s.tokens[c].epoch] |= b
		t.phases[c] = operationOver
		if int(s.claim) == c+1 {
			t.claim = 0
		}
		out.add(t, eventually, "report proposed, claim released", c)
	}
}

// claimAndStart: etcd grants the claim, then the effect starts.
func (rc *restoresConfig) claimAndStart(s *restoresState, c int, out *steps[restoresState]) {
	b := bit(c)
	token := s.tokens[c]
	foreign := s.claim != 0 && int(s.claim) != c+1
	t := *s
	if s.claimed&b == 0 {
		if foreign && s.epoch == 1 && token.epoch == 1 && s.holdOver == 0 && !rc.startsAtClaim {
			t.unknowns[token.epoch] |= b
			t.phases[c] = operationOver
			out.add(t, eventually, "caller meets a claim before the hold is over, and reports unknown", c)
		} else if !rc.claimsCompare || token.epoch == s.epoch {
			t.claim = uint8(c) + 1
			t.claimed |= b
			out.add(t, eventually, "claim granted", c)
		} else {
			t.phases[c] = operationOver
			out.add(t, eventually, "claim refused: the token is of an earlier store epoch", c)
		}
		return
	}
	knows := rc.renewalShowsEpoch && s.owners[c].trusts == 2 && token.epoch == 0
	if s.owners[c].trusts > 0 && !knows {
		t.effects |= b
		t.phases[c] = operationActed
		out.add(t, eventually, "EFFECT", c)
	}
	t = *s
	t.phases[c] = operationOver
	if int(s.claim) == c+1 {
		t.claim = 0
	}
	out.add(t, s.owners[c].trusts == 0 || knows, "caller gives up, claim released", c)
}

// commandSteps: a command of a store epoch reaches the ledger. An EndSession, a report and an unknown name the attempt
// number.
func (rc *restoresConfig) commandSteps(s *restoresState, c, epoch int, out *steps[restoresState]) {
	b := bit(c)
	l := &s.ledger
	named := s.tokens[c].number == l.attemptCount && int(s.tokens[c].epoch) == epoch
	if s.opens[epoch]&b != 0 {
		t := *s
		rc.applyOpen(&t, c)
		out.add(t, eventually, "ledger: Open", c, epoch)
	}
	if s.ends[epoch]&b != 0 && l.isOpen(c) {
		t := *s
		t.ledger.lose(attemptLost, rc.hold)
		out.add(t, eventually, "ledger: EndSession", c, epoch)
	}
	if s.unknowns[epoch]&b != 0 && l.flight == running && named {
		t := *s
		t.ledger.lose(attemptUnknown, rc.hold)
		out.add(t, eventually, "ledger: outcome unknown", c, epoch)
	}
	if s.reports[epoch]&b != 0 && l.flight != done && named && l.attemptCount > 0 {
		t := *s
		t.ledger.report(int(l.attemptCount) - 1)
		out.add(t, eventually, "ledger: report", c, epoch)
	}
}

func (rc *restoresConfig) applyOpen(t *restoresState, c int) {
	l := &t.ledger
	switch answer := l.answer(c); {
	case answer == answerProceed:
	case answer != answerFree, l.attemptCount == 2, rc.holdOpens && t.epoch == 1 && t.holdOver == 0:
		return
	default:
		l.open(c)
		token := restoredToken{t.epoch, l.attemptCount}
		if rc.tokenNumber {
			token.epoch = 0
		}
		if token.epoch < t.newest.epoch || token.epoch == t.newest.epoch && token.number <= t.newest.number {
			t.fault = 1
		}
		t.newest = token
	}
	if t.phases[c] == operationAwaits {
		t.answers[c] = restoredToken{t.epoch, l.attemptCount}
	}
}

func (rc *restoresConfig) violation(s *restoresState) string {
	mayStart := 0
	for c := range 2 {
		if s.phases[c] != operationProceeds || s.owners[c].trusts == 0 {
			continue
		}
		token := s.tokens[c]
		if has(s.claimed, c) && !(rc.renewalShowsEpoch && s.owners[c].trusts == 2 && token.epoch == 0) {
			mayStart++
		}
		if token.epoch != s.epoch {
			continue // the ledger may have lost it
		}
		a := s.ledger.attempts[token.number-1]
		if int(a.nonce) != c || a.status != attemptOpen {
			return "S4 the attempt of a caller that may start was closed by another"
		}
	}
	switch {
	case mayStart > 1:
		return "S2 two callers may start at the same time"
	case s.fault == 1:
		return "S3 tokens do not rise"
	}
	return ""
}

func (rc restoresConfig) run(limits Limits) Result {
	return explore(model[restoresState]{
		initial: restoresState{owners: [2]process{trusting, trusting}}, successors: rc.successors, violation: rc.violation,
		outcome: func(s *restoresState) outcome {
			return outcome{effects: uint8(bits.OnesCount8(s.effects)), flight: s.ledger.flight}
		},
	}, limits)
}

// restoresConfigurations has letter T: store epochs.
func restoresConfigurations() []Configuration {
	return table(restoresConfig{renewalShowsEpoch: true}, []row[restoresConfig]{
		{"T1 nothing opens before the hold of a restore is over", Holds, both, hold, func(g *restoresConfig) {
			g.holdOpens, g.startsAtClaim = true, true
		}},
		{"T2 as T1, claims are removed", Holds, both, hold, func(g *restoresConfig) {
			g.holdOpens, g.startsAtClaim, g.claimsRemoved = true, true, true
		}},
		{"T3 an opener that meets a claim does not start, and claims compare the store epoch", Holds, both, hold, func(g *restoresConfig) {
			g.claimsCompare = true
		}},
		{"T4 as T3, claims are removed", Violates, both, hold, func(g *restoresConfig) { g.claimsCompare, g.claimsRemoved = true, true }},
		{"T5 an opener that meets a claim does not start, and claims compare nothing", Violates, both, hold, func(*restoresConfig) {}},
		{"T6 as T1, renewals do not show the store epoch", Violates, both, hold, func(g *restoresConfig) {
			g.holdOpens, g.startsAtClaim, g.renewalShowsEpoch = true, true, false
		}},
		{"TN1 control: commands of another store epoch count", Violates, both, hold, func(g *restoresConfig) {
			g.holdOpens, g.startsAtClaim, g.ignoreEpoch = true, true, true
		}},
		{"TN2 control: a token without the store epoch", Violates, both, hold, func(g *restoresConfig) {
			g.holdOpens, g.startsAtClaim, g.tokenNumber = true, true, true
		}},
		{"TN3 control: a foreign claim replaced before the hold is over", Violates, both, hold, func(g *restoresConfig) {
			g.claimsCompare, g.startsAtClaim = true, true
		}},
	})
}
