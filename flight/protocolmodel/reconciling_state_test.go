package protocolmodel

import "math/bits"

// The model of restores from a backup: rule 11. A backup has the ledger and not etcd. A restore puts the ledger back to the
// backup, once or twice, raises store epoch and lease epoch, and ends all sessions; callers of the lost ledger keep
// their trust for a while, act, and report at any time. Until the operator's word (FinishRestore) nothing opens. Three
// callers with a nonce each, for one key. A message that was sent arrives never, once or again and again, also in a
// ledger that was restored after it was sent.

// The phases of a caller are those of an operation. Its result is fixed when it acts.
const (
	resultNone     = iota
	resultHappened // the effect happened, and is reported as succeeded
	resultUnknown  // the effect happened, and is reported as unknown
	resultRefused  // no effect: the provider refused it
	resultNotDone  // no effect
)

// reconcilingOpen is what the ledger knows of an attempt besides its caller and its status.
type reconcilingOpen struct {
	number, epoch uint8 // the fencing token
	restores      uint8 // at its opening: the lease epoch of its session
}

type reconcilingLedger struct {
	ledger           // an attempt's nonce is its caller
	opened           [3]reconcilingOpen
	epoch, fence     uint8
	reconciling      uint8
	receipt          uint8 // owner of the attempt that made it, + 1
	refused, overlap uint8
	reportedSuccess  uint8 // owners whose success of an earlier store epoch was reported to this ledger
	lostUnknown      uint8 // owners of lost attempts that were reported as unknown, and that no person has resolved
	reported         uint8 // owners of whose attempt any report has arrived
	reportedUnknown  uint8 // as lostUnknown, whatever the rules make of it
}

// reconcilingCaller is a caller with the attempt of its answer proceed.
type reconcilingCaller struct {
	phase, alive, result uint8
	session, trusts      uint8 // restores + 1 of the etcd that has, or had, its session
	sessionEnded         uint8
	epoch, number        uint8 // its fencing token
	holder               uint8 // restores + 1: session of its attempt
	words                uint8 // of the operator, when its attempt was opened
}

type reconcilingState struct {
	ledger, backup    reconcilingLedger
	backups, restores uint8
	lastEpoch         uint8 // the greatest store epoch of all ledgers
	words             uint8 // FinishRestore commands so far
	holdOver          uint8
	callers           [3]reconcilingCaller
	answers           [3]reconcilingCaller // proceed answered: token, holder and words
	opens, abandons   uint8                // in flight, per caller
	reports           uint8
	effects           uint8
	fault             uint8
}

// The faults of a step, which no state shows.
const (
	faultNone             = iota
	faultOpenAfterSuccess // an attempt opened after the ledger had heard of a success
	faultOpenInDoubt      // an attempt opened while a lost one was of unknown outcome
)

// reconcilingConfig is a configuration of the model of restores from a backup.
type reconcilingConfig struct {
	scope
	callers           int
	restores, backups int
	person            bool // resolves a doubt by what is true
	imports           bool // the operator imports the receipt of what has happened, before the restore is finished
	emptyBackup       bool // a backup is made before the first attempt only
	checkRefused      bool // check F1
	noGiveUp          bool
	restoreFaults
	lostReportFaults
}

// restoreFaults are the controls of a restore.
type restoreFaults struct {
	opensAtOnce      bool // the ledger opens before the operator's word
	finishBeforeHold bool // the operator's word is accepted before the hold is over (--force)
	endsBeforeHold   bool // the lease epoch is not raised: sessions are missing in the empty etcd
	epochReused      bool // the new epoch is the backup's plus one
	importsNewOnly   bool // an import is rejected where the backup has an attempt of the flight
}

// lostReportFaults are the controls of reports of an earlier store epoch.
type lostReportFaults struct {
	successIsEvidence  bool // a success of an earlier epoch is evidence
	evidenceWhileOpen  bool // it is evidence while an attempt of this epoch is open
	unknownIsEvidence  bool // an unknown of an earlier epoch is evidence
	unknownWhileOpen   bool // it is forgotten where an attempt is open
	refusedIsFinal     bool // a refusal of a lost attempt is final
	oldTokenIsEvidence bool // a report of a known attempt under its first token is evidence
	tokenNumber        bool // a report names its attempt by the number alone
	noOverlap          bool // a second success is evidence alone
	repeatOverlaps     bool // a repeat of the report that made the receipt is a second success
}

// newestOpen returns what the ledger knows of its newest attempt; zero without one.
func (l *reconcilingLedger) newestOpen() reconcilingOpen {
	if l.attemptCount == 0 {
		return reconcilingOpen{}
	}
	return l.opened[l.attemptCount-1]
}

// settle gives the flight its state after its newest attempt has ended with a status.
func (rc *reconcilingConfig) settle(l *reconcilingLedger, status uint8) {
	l.lose(status, l.lostUnknown != 0 || rc.hold && status != attemptNotDone)
}

func (rc *reconcilingConfig) applyOpen(t *reconcilingState, c int) {
	l, q := &t.ledger, &t.callers[c]
	answer := l.answer(c)
	switch {
	case answer == answerRefused, l.reconciling == 1 && !rc.opensAtOnce:
		return
	case answer == answerProceed:
	case answer == answerInDoubt:
		l.used |= bit(c)
		return
	case answer != answerFree, q.session != t.restores+1 || q.sessionEnded == 1:
		return
	default:
		if l.reportedSuccess != 0 {
			t.fault = faultOpenAfterSuccess
		}
		if l.reportedUnknown != 0 {
			t.fault = faultOpenInDoubt
		}
		l.fence++
		l.opened[l.attemptCount] = reconcilingOpen{l.fence, l.epoch, t.restores}
		l.open(c)
	}
	t.answers[c] = reconcilingCaller{epoch: l.epoch, number: l.newestOpen().number, holder: l.newestOpen().restores + 1, words: t.words}
}

// applyReport is rules 10 and 11.
func (rc *reconcilingConfig) applyReport(t *reconcilingState, c int) {
	l, q := &t.ledger, &t.callers[c]
	a := l.newestOpen()
	known := a.number != 0 && a.number == q.number && (q.epoch == l.epoch || q.epoch == a.epoch && !rc.oldTokenIsEvidence || rc.tokenNumber)
	l.reported |= bit(c)
	switch {
	case l.flight == done && int(l.receipt) == c+1 && !rc.repeatOverlaps:
	case l.flight == done:
		if q.result == resultHappened && !rc.noOverlap {
			l.overlap = 1
		}
	case known:
		rc.applyKnown(l, q.result)
	case q.epoch < l.epoch:
		rc.applyLost(l, c, q.result)
	}
	if q.epoch < l.epoch {
		l.fence = max(l.fence, q.number)
		switch q.result {
		case resultHappened:
			l.reportedSuccess |= bit(c)
		case resultUnknown:
			if !known {
				l.reportedUnknown |= bit(c)
			}
		}
	}
}

// applyKnown applies a report of the newest attempt.
func (rc *reconcilingConfig) applyKnown(l *reconcilingLedger, result uint8) {
	a := l.newest()
	switch {
	case result == resultHappened, result == resultRefused && l.lostUnknown == 0:
		if l.reportedSuccess != 0 {
			l.overlap = 1 // seen at the end of the attempt, where a success was kept as evidence
		}
		a.status, l.flight, l.receipt = attemptDone, done, a.nonce+1
		if result == resultRefused {
			l.refused = 1
		}
	case result == resultUnknown && a.status == attemptOpen:
		rc.settle(l, attemptUnknown)
	case result != resultUnknown && a.status != attemptNotDone:
		rc.settle(l, attemptNotDone)
	}
}

// applyLost applies a report of an attempt that this ledger has lost.
func (rc *reconcilingConfig) applyLost(l *reconcilingLedger, c int, result uint8) {
	newer := l.flight == running && l.newestOpen().epoch == l.epoch
	switch {
	case result == resultHappened && !rc.successIsEvidence && !(rc.evidenceWhileOpen && newer):
		if l.flight == running {
			l.newest().status = attemptLost
		}
		l.flight, l.receipt = done, uint8(c)+1
	case result == resultUnknown && !rc.unknownIsEvidence && !(rc.unknownWhileOpen && l.flight == running):
		l.lostUnknown |= bit(c)
		if l.flight == free {
			l.flight = inDoubt
		}
	case result == resultRefused && rc.refusedIsFinal && l.flight != running:
		l.flight, l.receipt, l.refused = done, uint8(c)+1, 1
	}
}

// mayImport reports whether the operator has a receipt to import, which the ledger takes.
func (rc *reconcilingConfig) mayImport(s *reconcilingState) bool {
	l := &s.ledger
	return rc.imports && l.reconciling == 1 && s.effects != 0 && l.flight != done && !(rc.importsNewOnly && l.attemptCount > 0)
}

func (rc *reconcilingConfig) violation(s *reconcilingState) string {
	mayStart := 0
	var effects [4]int // by words of the operator
	for c := range rc.callers {
		q := &s.callers[c]
		if has(s.effects, c) {
			effects[q.words]++
		}
		if q.phase != operationProceeds || q.trusts != q.holder {
			continue
		}
		mayStart++
		for k, a := range s.ledger.attempts[:s.ledger.attemptCount] {
			if int(a.nonce) == c && s.ledger.opened[k].epoch == q.epoch && a.status != attemptOpen && s.ledger.flight != done {
				return "S4 the attempt of a caller that may start was closed by another"
			}
		}
	}
	l := &s.ledger
	for words := range effects {
		if rc.hold && effects[words] > 1 {
			return "S1 two effects under hold without the operator's word between them"
		}
	}
	switch {
	case mayStart > 1:
		return "S2 two callers may start at the same time"
	case s.fault == faultOpenAfterSuccess:
		return "K1 an attempt opened after the ledger had heard of a success"
	case s.fault == faultOpenInDoubt && rc.hold:
		return "K2 an attempt opened while a lost one was of unknown outcome"
	case l.flight == done && l.reportedSuccess&^bit(int(l.receipt)-1) != 0 && l.overlap == 0:
		return "K3 a second success was heard, and no overlap raised"
	case l.overlap == 1 && l.refused == 0 && bits.OnesCount8(s.effects) < 2:
		return "K4 an overlap was raised, and there is one effect"
	case l.flight == inDoubt && l.lostUnknown == 0 && has(l.reported, int(l.newest().nonce)) && s.callers[l.newest().nonce].result == resultNotDone:
		return "D1 a doubt about an attempt that was reported as not done"
	case rc.checkRefused && l.flight == done && l.refused == 1 && effects[s.callers[l.receipt-1].words] > 0:
		return "F1 the final answer is a refusal, and the effect happened"
	}
	return ""
}

func (rc *reconcilingConfig) settled(s *reconcilingState) bool {
	switch s.ledger.flight {
	case done, inDoubt:
		return true
	case running:
		return false
	}
	for c := range rc.callers {
		if q := &s.callers[c]; q.alive == 1 && q.phase != operationUnused && q.phase != operationOver {
			return false
		}
	}
	return true
}

func (rc reconcilingConfig) run(limits Limits) Result {
	var initial reconcilingState
	for c := range rc.callers {
		initial.callers[c].alive = 1
	}
	return explore(model[reconcilingState]{
		initial: initial, successors: rc.successors, canonical: rc.canonical, violation: rc.violation, settled: rc.settled, live: rc.live,
		outcome: func(s *reconcilingState) outcome {
			return outcome{effects: uint8(bits.OnesCount8(s.effects)), flight: s.ledger.flight}
		},
	}, limits)
}

// canonical clears fields that no rule reads any more.
func (rc *reconcilingConfig) canonical(t *reconcilingState) {
	for c := range rc.callers {
		q, b := &t.callers[c], bit(c)
		if q.phase != operationAwaits {
			t.answers[c] = reconcilingCaller{}
		}
		if q.phase == operationOver {
			q.trusts = 0
		}
		if q.phase != operationAwaits && (t.ledger.used&b != 0 && t.restores == uint8(rc.restores) || t.ledger.flight == done && t.backups == 0) {
			t.opens &^= b // a copy opens nothing, and no caller waits
		}
	}
	if int(t.restores) == rc.restores {
		t.backup, t.backups = reconcilingLedger{}, uint8(rc.backups)
	}
	if t.restores == 0 {
		t.holdOver = 0
	}
}
