package protocolmodel

import "math/bits"

// The model of ended sessions: rule 4. Revisions of etcd are numbers; a session has a session key with a create revision
// and the revision of its deletion; a read may be arbitrarily old. EndSession carries create and read revision. Two
// sessions, each with an operation on each of two keys: operation = session*2 + key. An EndSession ends at most `batch`
// attempts. A message may arrive any number of times.

// The phases of an operation.
const (
	operationUnused   = iota
	operationAwaits   // its Open was sent
	operationProceeds // answered proceed; the effect is not started
	operationActed    // the report is in flight
	operationOver
	operationGivesUp // the abandon is in flight
)

type endedState struct {
	revision         uint8
	created, deleted [2]uint8 // revisions of the session key; 0: not yet
	owners           [2]process
	keys             [2]ledger // an attempt's nonce is its operation
	opens            uint8     // operations
	reports          uint8     // operations
	abandons         uint8     // operations
	proceeds         uint8     // operations that were answered proceed
	phases           [4]uint8  // of operations
	proposed         [2]uint8  // per session: read revisions of the proposed EndSession commands
	remembered       uint8     // sessions that the ledger remembers as ended
	proven           uint8     // sessions of which an EndSession was accepted
	effects          uint8     // operations
	openedAfterEnd   uint8
}

// endedConfig is a configuration of the model of ended sessions.
type endedConfig struct {
	scope
	batch          int
	operations     int  // 2: the second session works on nothing; 3: on the first key only
	once           bool // an EndSession is proposed once, and arrives once
	openerRepeats  bool // an opener that meets an attempt of an ended session has its EndSession proposed again
	repeatProceeds bool // a repeat under a remembered session is answered proceed
	withheld       bool // the EndSession of a session may be withheld as long as its living owner has a report in flight
	endedFaults
}

// endedFaults are the controls.
type endedFaults struct {
	noComparison     bool // 2: read and create revision are not compared
	rememberRejected bool // a rejected EndSession is remembered
	noMemory         bool // an accepted one is not
	forgets          bool // the memory ends while a copy of an Open lives
	withheldForDead  bool // the end may be withheld for a dead owner, too
}

// applyEnded is rule 4. It reports whether the ledger accepts the proof.
func (c *endedConfig) applyEnded(t *endedState, session int, read uint8) bool {
	if read < t.created[session] && !c.noComparison {
		if c.rememberRejected {
			t.remembered |= bit(session)
		}
		return false
	}
	if !c.noMemory {
		t.remembered |= bit(session)
	}
	t.proven |= bit(session)
	left := c.batch
	for i := range t.keys {
		if k := &t.keys[i]; left > 0 && k.flight == running && int(k.newest().nonce)/2 == session {
			k.lose(attemptLost, c.hold)
			left--
		}
	}
	return true
}

func (c *endedConfig) applyOpen(t *endedState, operation int) {
	session, b := operation/2, bit(operation)
	remembered := has(t.remembered, session)
	k := &t.keys[operation%2]
	switch answer := k.answer(operation); {
	case answer == answerProceed:
		if !remembered || c.repeatProceeds {
			t.proceeds |= b
		}
	case answer == answerFree && !remembered && k.attemptCount < 3:
		k.open(operation)
		t.proceeds |= b
		if has(t.proven, session) {
			t.openedAfterEnd = 1
		}
	}
}

func (c *endedConfig) violation(s *endedState) string {
	for i := range s.keys {
		k := &s.keys[i]
		mayStart := 0
		for session := range 2 {
			o := session*2 + i
			phase := s.phases[o]
			if phase != operationProceeds && phase != operationActed || s.owners[session].trusts == 0 || s.deleted[session] > 0 {
				continue
			}
			n := k.attemptOf(o)
			if n < 0 || k.attempts[n].status != attemptOpen && k.attempts[n].status != attemptDone {
				return "S4 the attempt of a caller that may start, or has, was closed by another"
			}
			if phase == operationProceeds {
				mayStart++
			}
		}
		if mayStart > 1 {
			return "S2 two callers may start at the same time"
		}
		if c.hold && bits.OnesCount8(s.effects&(5<<i)) > 1 {
			return "S1 two effects under hold"
		}
	}
	for session := range 2 {
		if has(s.remembered, session) && s.deleted[session] == 0 && !c.noComparison {
			return "A1 a live session is remembered as ended"
		}
	}
	if s.openedAfterEnd == 1 {
		return "D2 an attempt opens under a session that was proven to have ended"
	}
	return ""
}

func (c *endedConfig) settled(s *endedState) bool {
	for i := range s.keys {
		switch s.keys[i].flight {
		case running:
			if !c.openerRepeats { // else the sweep of rule 7 ends attempts for which no opener waits
				return false
			}
			fallthrough
		case free:
			for session := range 2 {
				switch s.phases[session*2+i] {
				case operationAwaits, operationProceeds, operationGivesUp:
					return false
				}
			}
		}
	}
	return true
}

func (c endedConfig) run(limits Limits) Result {
	return explore(model[endedState]{
		successors: c.successors, violation: c.violation, settled: c.settled, live: c.live,
		outcome: func(s *endedState) outcome {
			return outcome{effects: uint8(bits.OnesCount8(s.effects)), flight: s.keys[0].flight}
		},
	}, limits)
}
