package protocolmodel

import "math/bits"

// The model of reports: rules 3, 6, 8 and 10 with reports in steps (sent, proposed, committed, answered), spools,
// renewals that show attempts, not_after, time-outs and a restored ledger. Long-lived sessions and no claims; two owners with
// several nonces each, one or two nodes. A restored ledger still has the Open of every attempt that was answered proceed.

// The phases of a nonce at its owner.
const (
	openUnused   = iota
	openAwaits   // its Open was sent
	openProceeds // answered proceed; the effect is not started
	openActed    // the effect was started; this process gives the report until it is answered
	openSpooled  // the effect was started; the report lies in the spool
	openGivenUp  // given up before the effect started: abandoned until that is answered
	openOver     // the final word was heard: the nonce is out of the owner's table
)

// The states of a request with a nonce at a node.
const (
	requestNone = iota
	requestPending
	requestProposed
	requestNotProposed // answered with proposed: false
	requestBroken      // its connection broke
)

type reportOpen struct {
	phase      uint8
	attempt    uint8 // + 1
	storeEpoch uint8 // of its token
	deadline   uint8 // 1: the local deadline has passed; 2: and was set anew (control)
	repeated   uint8 // more than one request was sent
	requests   [2]uint8
}

type reportsState struct {
	ledger, backup                ledger
	hasBackup, storeEpoch         uint8
	tooFar, expired               uint8 // nonces: not_after is too far ahead, has passed
	opens, abandons               uint8 // proposed, per nonce
	proceeds, expiries            uint8 // proceed answered, open_expired answered: per nonce
	doubts, finals                uint8 // in_doubt answered, replay or expired answered: per nonce
	reportAnswers, abandonAnswers uint8 // per nonce
	reports, unknowns             uint8 // in flight, per attempt of this store epoch
	shown                         uint8 // attempts that an answer to a renewal shows
	nonces                        [4]reportOpen
	owners                        [2]process
	effects, spool                uint8 // per nonce
	falseDoubt, forgotten         uint8
	broken                        uint8 // nonces: a connection broke with a request on it
}

// reportsConfig is a configuration of the model of reports.
type reportsConfig struct {
	scope
	nonces          [2]int // per owner
	attempts, nodes int
	reportsRules
	reportsFaults
}

type reportsRules struct {
	renewalShows        bool // rule 8
	restore             bool // the ledger may be restored to an older prefix
	timeouts            bool // rule 3 (d)
	doubtUses           bool // in_doubt given in applying an Open marks its nonce as used
	keepRow             bool // an owner that leaves without a final word keeps the nonce as given up
	keepAll             bool // an owner keeps every nonce that started nothing
	farAhead            bool // not_after of nonce 0 is too far ahead for a while
	farMarks            bool // an Open rejected as too far ahead marks its nonce as used
	farAtNode           bool // a node answers so, with proposed: false, and proposes nothing
	leaveIfNoneProposed bool // proposed: false to every request sent is final, not only to a single one
	checkFalseDoubt     bool // check D1
}

// reportsFaults are the controls.
type reportsFaults struct {
	abandonSpooled      bool // 13: the report lies in a spool
	abandonLost         bool // 13: a restored ledger has lost the report
	drift               bool // the ledger's time-out may come before the owner's
	deadlineOfLastSend  bool // a time-out counted from the last sending
	forgetUsed          bool // 11
	leaveAfterBusy      bool // 12
	leaveAfterOneOfMany bool // proposed: false to one of several requests taken as final
	expiredFromView     bool // open_expired from a lagging view
}

func (rc *reportsConfig) count() int { return rc.nonces[0] + rc.nonces[1] }

func (rc *reportsConfig) owner(nonce int) int {
	if nonce < rc.nonces[0] {
		return 0
	}
	return 1
}

// applyOpen is rule 6.
func (rc *reportsConfig) applyOpen(t *reportsState, nonce int) {
	l, b := &t.ledger, bit(nonce)
	switch answer := l.answer(nonce); {
	case answer == answerProceed:
		t.proceeds |= b
	case answer == answerRefused, answer == answerUsed:
		t.finals |= b
	case t.tooFar&b != 0:
		t.expiries |= b
		if rc.farMarks {
			l.used |= b
		}
	case t.expired&b != 0 && !rc.forgetUsed:
		t.expiries |= b
	case answer == answerInDoubt:
		t.doubts |= b
		if rc.doubtUses {
			l.used |= b
		}
	case answer == answerFree && int(l.attemptCount) < rc.attempts: // else busy, proposed: true
		l.open(nonce)
		t.proceeds |= b
	}
}

// canonical clears fields that no rule reads any more, and orders the interchangeable nodes.
func (rc *reportsConfig) canonical(t *reportsState) {
	for n := range rc.count() {
		q, b := &t.nonces[n], bit(n)
		spooled := t.spool&b != 0
		if t.owners[rc.owner(n)].alive == 0 {
			dead := reportOpen{phase: openOver, requests: q.requests}
			if spooled {
				dead.attempt, dead.storeEpoch = q.attempt, q.storeEpoch
			}
			*q = dead
		}
		if q.phase == openOver || q.phase == openGivenUp {
			if !spooled {
				q.attempt, q.storeEpoch = 0, 0
			}
			q.deadline, q.repeated = 0, 0
			t.broken &^= b
			t.proceeds &^= b
		}
		if q.phase != openAwaits {
			t.expiries &^= b
			t.doubts &^= b
			t.finals &^= b
		}
		if q.phase != openGivenUp {
			t.abandonAnswers &^= b
		}
		if q.phase != openActed && !spooled {
			t.reportAnswers &^= b
		}
		if t.ledger.flight == done && !rc.restore { // nothing in the ledger changes any more
			t.opens &^= b
			t.abandons &^= b
			t.expired |= b
			t.ledger.used |= b
			t.tooFar &^= b
			t.reports, t.unknowns, t.shown = 0, 0, 0
			if q.phase != openAwaits && q.phase != openUnused {
				q.requests = [2]uint8{requestBroken, requestBroken}
			}
		} else if t.expired&b != 0 && !rc.forgetUsed && !rc.restore && q.phase >= openGivenUp && !t.ledger.isOpen(n) {
			t.opens &^= b // a copy of this Open opens nothing
			t.ledger.used |= b
			q.requests = [2]uint8{requestBroken, requestBroken}
		}
		for v := range q.requests {
			if q.requests[v] >= requestProposed && q.phase != openAwaits {
				q.requests[v] = requestBroken
			}
		}
		if r := &q.requests; r[0] < r[1] && r[0] != requestNone {
			r[0], r[1] = r[1], r[0]
		}
	}
}

func (rc *reportsConfig) violation(s *reportsState) string {
	if rc.hold && bits.OnesCount8(s.effects) > 1 {
		return "S1 two effects under hold"
	}
	mayStart := 0
	for n := range rc.count() {
		q, owner := &s.nonces[n], &s.owners[rc.owner(n)]
		if owner.alive == 0 || owner.trusts == 0 || rc.frozen && owner.session != sessionAlive || q.attempt == 0 {
			continue
		}
		k := s.ledger.attemptOf(n)
		if k < 0 {
			return "S4 an attempt that is held is not in the ledger"
		}
		status := s.ledger.attempts[k].status
		switch q.phase {
		case openProceeds:
			if q.deadline == 1 {
				continue
			}
			mayStart++
			if status != attemptOpen {
				return "S4 the attempt of a caller that may start was closed by another"
			}
		case openActed, openSpooled:
			if status != attemptOpen && status != attemptDone && !(rc.timeouts && status == attemptLost) {
				return "S4 the attempt of a live trusted caller was closed before its report was committed"
			}
		}
	}
	if mayStart > 1 {
		return "S2 two callers may start at the same time"
	}
	if rc.checkFalseDoubt && s.falseDoubt == 1 {
		return "D1 a live owner reported an attempt that it never started as unknown"
	}
	return ""
}

func (rc *reportsConfig) settled(s *reportsState) bool {
	switch s.ledger.flight {
	case done, inDoubt:
		return true
	case running:
		return false
	}
	for n := range rc.count() {
		p := s.nonces[n].phase
		waits := p >= openAwaits && p <= openGivenUp && !(rc.keepAll && p == openGivenUp)
		if waits && s.owners[rc.owner(n)].alive == 1 || has(s.spool, n) {
			return false
		}
	}
	return true
}

func (rc reportsConfig) run(limits Limits) Result {
	initial := reportsState{owners: [2]process{trusting, trusting}}
	if rc.farAhead {
		initial.tooFar = 1
	}
	return explore(model[reportsState]{
		initial: initial, successors: rc.successors, canonical: rc.canonical, violation: rc.violation, settled: rc.settled, live: rc.live,
		outcome: func(s *reportsState) outcome {
			return outcome{effects: uint8(bits.OnesCount8(s.effects)), flight: s.ledger.flight, falseDoubt: s.falseDoubt == 1}
		},
	}, limits)
}
