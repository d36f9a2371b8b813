package protocolmodel

import (
	"bytes"
	"math/bits"
	"unsafe"
)

// The model of lease epochs: the part of rule 4 about a restored etcd. Two callers, each with one session and one open
// for one key; etcd is restored to a backup once, with its old revision or a higher one; the ledger's leader raises the
// guard counter; an operator raises the lease epoch after the loss was noticed. A read of etcd is proposed as EndSession at
// any time later, and again and again.

// etcdHistory is the content of an etcd backup.
type etcdHistory struct {
	revision    uint8
	counter     uint8 // of the guard key
	leaseEpoch  uint8 // of the guard key
	sessionKeys uint8 // sessions
}

// endedProof is an EndSession in flight: the result of one read transaction that did not find the session key.
type endedProof struct{ proposed, revision, counter, leaseEpoch uint8 }

type epochsState struct {
	etcd, backup             etcdHistory
	hasBackup, restored      uint8
	created                  [2]uint8 // create revision of the session key; 0: not created
	sessionEpoch             [2]uint8
	raised, raisedEpoch      uint8    // counter that the leader has raised and not yet recorded, and its lease epoch in etcd; 0: none
	record                   uint8    // ledger: the recorded counter
	leaseEpoch, holdOver     uint8    // ledger
	guardRaised              uint8    // the operator has written the guard key of the next epoch
	ledger                            // an attempt's nonce is its caller
	attemptEpochs            [2]uint8 // lease epochs
	remembered               uint8
	proofs                   [2]endedProof
	opens, proceeds, effects uint8
	phases, alive            [2]uint8 // phases as of operations
	trusts                   [2]uint8 // 1: by a renewal sent before the ledger raised the lease epoch; 2: after
}

// epochsConfig is a configuration of the model of lease epochs.
type epochsConfig struct {
	scope
	bump   bool  // a restored etcd shows a higher revision
	raises uint8 // of the guard counter

	trustRegained     bool // an owner renews a session, and trusts it again, after its trust has ended
	sessionReads      bool // a session is used only if the counter read with its session key is not below the ledger's record, read after
	guardFirst        bool // the guard key gets the new lease epoch before the ledger does
	renewalReads      bool // a renewal counts only if the guard key, read after it, has the session's lease epoch
	deleteSessionKeys bool // the operator's raise deletes the session keys and leases of older epochs
	epochsFaults
}

// epochsFaults are the controls.
type epochsFaults struct {
	ignoreCounter   bool // the ledger accepts an EndSession with any counter
	ignoreEpoch     bool // the ledger takes an EndSession, and an Open, of an older lease epoch
	endBeforeHold   bool // attempts of an older epoch end at once
	blindRaise      bool // the counter is raised without a comparison with the ledger's record
	youngBackup     bool // the backup may be younger than the last recorded counter
	endedAfterRaise bool // an attempt of an older epoch may be ended by a read in the new one
}

func (ec *epochsConfig) successors(s *epochsState, out *steps[epochsState]) {
	for c := range 2 {
		ec.sessionSteps(s, c, out)
		ec.proofSteps(s, c, out)
		ec.callerSteps(s, c, out)
	}
	ec.guardSteps(s, out)
	ec.restoreSteps(s, out)
	ec.epochSteps(s, out)
}

func (ec *epochsConfig) sessionSteps(s *epochsState, c int, out *steps[epochsState]) {
	b := bit(c)
	if s.created[c] == 0 {
		below := s.etcd.counter < s.record && ec.sessionReads
		if s.alive[c] == 1 && s.etcd.leaseEpoch == s.leaseEpoch && !below { // the transaction compares the guard key
			t := *s
			t.etcd.revision++
			t.etcd.sessionKeys |= b
			t.created[c], t.sessionEpoch[c], t.trusts[c] = t.etcd.revision, t.etcd.leaseEpoch, 1+s.leaseEpoch
			out.add(t, perhaps, "session made", c)
		}
		return
	}
	if s.alive[c] == 1 {
		t := *s
		readsOther := ec.renewalReads && s.etcd.leaseEpoch != s.sessionEpoch[c]
		if s.trusts[c] > 0 { // surely, where no renewal succeeds any more
			t.trusts[c] = 0
			out.add(t, s.etcd.sessionKeys&b == 0 || readsOther, "trust ends", c)
		}
		if s.etcd.sessionKeys&b != 0 && !readsOther && s.trusts[c] != 1+s.leaseEpoch && (s.trusts[c] > 0 || ec.trustRegained) {
			t := *s
			t.trusts[c] = 1 + s.leaseEpoch
			out.add(t, s.trusts[c] == 0, "session renewed", c)
		}
		t = *s
		t.alive[c], t.trusts[c], t.phases[c] = 0, 0, operationOver
		out.add(t, perhaps, "caller dies", c)
	}
	if s.etcd.sessionKeys&b != 0 && s.trusts[c] == 0 {
		t := *s
		t.etcd.sessionKeys &^= b
		t.etcd.revision++
		out.add(t, s.alive[c] == 0, "session ends", c)
	}
}

// proofSteps: a node reads etcd, does not find the session key, and proposes EndSession at any later time.
func (ec *epochsConfig) proofSteps(s *epochsState, session int, out *steps[epochsState]) {
	if !has(s.etcd.sessionKeys, session) {
		t := *s
		t.proofs[session] = endedProof{1, s.etcd.revision, s.etcd.counter, s.etcd.leaseEpoch}
		out.add(t, s.created[session] > 0, "a read does not find the session key of session", session)
	}
	p := s.proofs[session]
	if p.proposed == 0 || s.created[session] == 0 || p.revision < s.created[session] ||
		p.counter < s.record && !ec.ignoreCounter || p.leaseEpoch != s.leaseEpoch && !ec.ignoreEpoch {
		return
	}
	t := *s
	t.remembered |= bit(session)
	if s.isOpen(session) && (s.attemptEpochs[s.attemptCount-1] == p.leaseEpoch || ec.endedAfterRaise || ec.ignoreEpoch) {
		t.lose(attemptLost, ec.hold)
	}
	out.add(t, eventually, "ledger: EndSession of session", session)
}

func (ec *epochsConfig) callerSteps(s *epochsState, c int, out *steps[epochsState]) {
	b := bit(c)
	t := *s
	switch s.phases[c] {
	case operationUnused:
		if s.alive[c] == 1 && s.trusts[c] > 0 {
			t.phases[c] = operationAwaits
			t.opens |= b
			out.add(t, perhaps, "caller sends its open", c)
		}
	case operationAwaits, operationProceeds:
		if s.phases[c] == operationAwaits && s.proceeds&b != 0 {
			t.phases[c] = operationProceeds
			out.add(t, eventually, "caller is answered proceed", c)
		}
		if s.phases[c] == operationProceeds && s.trusts[c] > 0 {
			t := *s
			t.phases[c] = operationActed
			t.effects |= b
			out.add(t, eventually, "EFFECT", c)
		}
		t = *s
		t.phases[c] = operationOver
		t.abandonUnlessFree(c)
		hopeless := s.trusts[c] == 0 || s.flight == done || s.flight == inDoubt || s.sessionEpoch[c] != s.leaseEpoch ||
			s.answer(c) == answerUsed || has(s.remembered, c)
		out.add(t, hopeless, "caller gives up; ledger: Abandon", c)
	case operationActed:
		t.phases[c] = operationOver
		t.report(s.attemptOf(c))
		out.add(t, eventually, "ledger: report", c)
	}
	if s.opens&b == 0 {
		return
	}
	t = *s
	switch answer := s.answer(c); {
	case answer == answerProceed:
		t.proceeds |= b
	case answer == answerFree && !has(s.remembered, c) && (s.sessionEpoch[c] == s.leaseEpoch || ec.ignoreEpoch):
		t.attemptEpochs[t.attemptCount] = s.leaseEpoch
		t.open(c)
		t.proceeds |= b
	}
	out.add(t, s.phases[c] == operationAwaits, "ledger: Open", c)
}

// guardSteps: the leader raises the counter in etcd, then records it in the ledger.
func (ec *epochsConfig) guardSteps(s *epochsState, out *steps[epochsState]) {
	if s.raised == 0 && s.etcd.counter < ec.raises && (ec.blindRaise || s.etcd.counter >= s.record) {
		t := *s
		t.etcd.counter++
		t.etcd.revision++
		t.raised, t.raisedEpoch = t.etcd.counter, t.etcd.leaseEpoch
		out.add(t, perhaps, "leader raises the counter in etcd to", int(t.raised))
	}
	if s.raised != 0 {
		t := *s
		if s.raisedEpoch == s.leaseEpoch { // else it is fenced
			t.record = max(t.record, s.raised)
		}
		t.raised, t.raisedEpoch = 0, 0
		out.add(t, eventually, "ledger records the counter", int(s.raised))
	}
}

func (ec *epochsConfig) restoreSteps(s *epochsState, out *steps[epochsState]) {
	if s.hasBackup == 0 && s.restored == 0 {
		t := *s
		t.hasBackup, t.backup = 1, s.etcd
		out.add(t, perhaps, "backup of etcd")
	}
	if s.hasBackup == 0 || s.restored == 1 || s.backup.counter >= s.record && !ec.youngBackup {
		return // a backup of before the last recorded raise, unless it may be younger
	}
	t := *s
	t.etcd, t.backup, t.hasBackup, t.restored = s.backup, etcdHistory{}, 0, 1
	if ec.bump {
		t.etcd.revision = s.etcd.revision + 1
	}
	out.add(t, perhaps, "etcd restored from the backup")
}

// epochSteps: the operator raises the lease epoch; after the hold the attempts of the older epoch end.
func (ec *epochsConfig) epochSteps(s *epochsState, out *steps[epochsState]) {
	noticed := s.restored == 1 && (s.etcd.counter < s.record || s.guardRaised == 1)
	if noticed && s.leaseEpoch == 0 {
		if s.guardRaised == 0 && ec.guardFirst {
			t := *s
			ec.writeGuard(&t)
			out.add(t, eventually, "operator writes the guard key of the next lease epoch")
		}
		if s.guardRaised == 1 || !ec.guardFirst {
			t := *s
			t.leaseEpoch = 1
			out.add(t, eventually, "ledger raises the lease epoch")
		}
	}
	if s.leaseEpoch == 1 && s.guardRaised == 0 {
		t := *s
		ec.writeGuard(&t)
		out.add(t, eventually, "a node writes the guard key of the new lease epoch")
	}
	if s.leaseEpoch == 1 && s.holdOver == 0 {
		trusted := false // by a renewal from before the raise; the hold is longer than such trust
		for c := range 2 {
			trusted = trusted || s.sessionEpoch[c] == 0 && s.trusts[c] == 1
		}
		if !trusted || ec.endBeforeHold {
			t := *s
			t.holdOver = 1
			out.add(t, eventually, "the hold of the lease epoch is over")
		}
	}
	if s.holdOver == 1 && s.flight == running && s.attemptEpochs[s.attemptCount-1] == 0 {
		t := *s
		t.lose(attemptLost, ec.hold)
		out.add(t, eventually, "ledger: attempt of the older lease epoch ends")
	}
}

func (ec *epochsConfig) writeGuard(t *epochsState) {
	t.guardRaised, t.etcd.leaseEpoch = 1, 1
	t.etcd.counter = max(t.etcd.counter, t.record)
	t.etcd.revision++
	if ec.deleteSessionKeys {
		for c := range 2 {
			if t.sessionEpoch[c] == 0 {
				t.etcd.sessionKeys &^= bit(c)
			}
		}
	}
}

// canonical clears fields that no rule reads any more, and orders the interchangeable callers.
func (ec *epochsConfig) canonical(t *epochsState) {
	for c := range 2 {
		b := bit(c)
		if t.phases[c] != operationAwaits {
			t.proceeds &^= b
		}
		opensNothing := t.flight == done || t.used&b != 0 && !t.isOpen(c)
		if opensNothing {
			t.opens &^= b // a copy of this Open opens nothing
		}
		p := t.proofs[c]
		refused := p.counter < t.record && !ec.ignoreCounter || p.leaseEpoch < t.leaseEpoch && !ec.ignoreEpoch ||
			t.created[c] > 0 && p.revision < t.created[c]
		if refused || opensNothing {
			t.proofs[c] = endedProof{}
		}
	}
	if t.restored == 1 && t.flight == done {
		t.backup, t.hasBackup = etcdHistory{}, 0
	}
	u := *t
	u.swapCallers()
	if u.less(t) {
		*t = u
	}
}

func (s *epochsState) swapCallers() {
	swap := func(set uint8) uint8 { return set&1<<1 | set&2>>1 }
	for _, set := range []*uint8{&s.etcd.sessionKeys, &s.backup.sessionKeys, &s.remembered, &s.used, &s.opens, &s.proceeds, &s.effects} {
		*set = swap(*set)
	}
	for k := range int(s.attemptCount) {
		s.attempts[k].nonce ^= 1
	}
	s.created[0], s.created[1] = s.created[1], s.created[0]
	s.sessionEpoch[0], s.sessionEpoch[1] = s.sessionEpoch[1], s.sessionEpoch[0]
	s.proofs[0], s.proofs[1] = s.proofs[1], s.proofs[0]
	s.phases[0], s.phases[1] = s.phases[1], s.phases[0]
	s.alive[0], s.alive[1] = s.alive[1], s.alive[0]
	s.trusts[0], s.trusts[1] = s.trusts[1], s.trusts[0]
}

func (s *epochsState) less(u *epochsState) bool {
	x := unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s))
	y := unsafe.Slice((*byte)(unsafe.Pointer(u)), unsafe.Sizeof(*u))
	return bytes.Compare(x, y) < 0
}

func (ec *epochsConfig) violation(s *epochsState) string {
	if ec.hold && bits.OnesCount8(s.effects) > 1 {
		return "S1 two effects under hold"
	}
	mayStart := 0
	for c := range 2 {
		if s.trusts[c] == 0 || s.phases[c] != operationProceeds && s.phases[c] != operationActed {
			continue
		}
		if s.phases[c] == operationProceeds {
			mayStart++
		}
		for _, a := range s.attempts[:s.attemptCount] {
			if int(a.nonce) == c && a.status != attemptOpen && a.status != attemptDone {
				return "S4 the attempt of a caller that may start, or has, was closed by another"
			}
		}
	}
	if mayStart > 1 {
		return "S2 two callers may start at the same time"
	}
	return ""
}

func (ec *epochsConfig) settled(s *epochsState) bool {
	switch s.flight {
	case done, inDoubt:
		return true
	case running:
		return false
	}
	for c := range 2 {
		if p := s.phases[c]; s.alive[c] == 1 && (p == operationAwaits || p == operationProceeds) {
			return false
		}
	}
	return true
}

func (ec epochsConfig) run(limits Limits) Result {
	initial := epochsState{alive: [2]uint8{1, 1}, etcd: etcdHistory{revision: 1}}
	return explore(model[epochsState]{
		initial: initial, successors: ec.successors, canonical: ec.canonical, violation: ec.violation, settled: ec.settled, live: ec.live,
		outcome: func(s *epochsState) outcome {
			return outcome{effects: uint8(bits.OnesCount8(s.effects)), flight: s.flight}
		},
	}, limits)
}
