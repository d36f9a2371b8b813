package protocolmodel

import "math/bits"

// The model of callers: rules 1, 2, 3 (a) to (c), 5, 6 and 9 with callers, nodes, claims, long-lived, one-shot,
// for one key. A message that was sent arrives never, once or again and again, in any order, forever.

// The phases of a caller.
const (
	callerIdle      = iota
	callerWaiting   // its open was sent
	callerProceeds  // it was answered proceed; the effect is not started
	callerActed     // the effect was started; the report is in flight
	callerGivesUp   // its abandon is in flight
	callerIsThrough // report or abandon answered
)

const (
	maxCallers  = 3
	maxNonces   = 4
	maxAttempts = 4
	maxSessions = 8
)

type caller struct {
	phase, alive, trusts uint8
	nonceIndex           uint8 // which of its nonces is current
	sessionsMade         uint8
	session              uint8 // session + 1
	attempt              uint8 // of the answer proceed, + 1
}

// openHandler is a node at work on the open of a caller.
type openHandler struct {
	nonce   uint8 // + 1; 0: no open
	claim   uint8 // 1: granted; in controls 1 and 5 its revision
	answer  uint8 // of the ledger
	variant uint8 // one-shot: which of the two sessions of this nonce
}

type callersState struct {
	ledger
	sessionOfAttempt         [maxAttempts]uint8
	claimRevisions           [maxAttempts]uint8 // of the claims under which attempts opened, in control 1
	forgotten                uint8              // nonces
	sessions                 [maxSessions]uint8
	claim                    uint8 // session + 1 that the claim names; 0: no claim
	claimRevision, revision  uint8
	callers                  [maxCallers]caller
	sessionOfNonce           [maxNonces]uint8 // long-lived sessions: session + 1 of the open
	opens                    uint8            // one-shot: sessions under which an Open was sent
	abandons, nodeAbandons   uint8            // sent, per nonce
	reports, ends            uint8            // sent, per attempt
	answers, requests        uint8            // proceed answered, open sent: per nonce
	renewals                 uint8            // sent, per caller two bits: one that lists nothing, one that lists the first nonce
	withdrawn                uint8            // sessions under which nothing opens any more
	handlers                 [2][maxCallers]openHandler
	effects, endedBeforeNext uint8 // attempts; endedBeforeNext: its session had ended when a later attempt opened
	tokenRevision            [maxAttempts]uint8
	tooFar, expiries         uint8 // nonces: not_after is too far ahead; open_expired was answered
	owed                     uint8 // nonces given up after busy, whose abandon was not answered
}

// callersConfig is a configuration of the model of callers.
type callersConfig struct {
	scope
	callersBounds
	callersRules
	callersFaults
}

type callersBounds struct {
	callers, noncesPerCaller, sessionsPerCaller, attempts, nodes int

	claimsOff, noCrashes bool // smaller state spaces
	interchangeable      bool // one-shot, two callers with one nonce each: see orderBySymmetry
}

type callersRules struct {
	oneShot         bool // sessions of one open, made by nodes
	revokeAfterBusy bool // a node revokes the session of an open that was answered busy
	withdrawFirst   bool // after WithdrawSession was answered
	laggingRepeats  bool // a lagging node answers a repeat from its own view
	renewalShows    bool // rule 8
	endNamesSession bool // EndSession names the session, not the attempt
	farAhead        bool // not_after of nonce 0 is too far ahead for a while
	farMarks        bool // an Open rejected as too far ahead marks its nonce as used
	checkFalseDoubt bool // check D1
	abandonLater    bool // rule 6: a caller that was answered busy leaves, and its abandon follows
}

// callersFaults are the controls, with their numbers.
type callersFaults struct {
	newerClaimSupersedes bool // 1
	staleRead            bool // 2: a list from before the session was made
	endNamesNothing      bool // 3
	nodeAbandonsOpen     bool // 4
	tokenOfClaim         bool // 5
	renewalAbandons      bool // 6
	sessionBesideOpen    bool // 7
	revokeBeforeReport   bool // 9
	waitForClaim         bool // 10
	forgetUsed           bool // 11
	leaveAfterBusy       bool // 12
	believesAny          bool // 15: a caller takes the answer to the open of another caller
}

func (cc *callersConfig) owner(nonce int) int { return nonce / cc.noncesPerCaller }

// sessionFor returns the session that the Open of a nonce names.
func (cc *callersConfig) sessionFor(s *callersState, nonce, variant int) int {
	if cc.oneShot {
		return nonce*2 + variant
	}
	return int(s.sessionOfNonce[nonce]) - 1
}

// claimSession returns the session for which a node claims: after proceed that of the attempt (rule 6).
func (cc *callersConfig) claimSession(s *callersState, nonce int, h openHandler) int {
	if h.answer == answerProceed {
		if k := s.attemptOf(nonce); k >= 0 {
			return int(s.sessionOfAttempt[k])
		}
	}
	return cc.sessionFor(s, nonce, int(h.variant))
}

func (s *callersState) removeClaim() { s.claim, s.claimRevision = 0, 0 }

func (s *callersState) revoke(session uint8) {
	if s.sessions[session] == sessionAlive {
		s.sessions[session] = sessionRevoked
		if s.claim == session+1 {
			s.removeClaim()
		}
	}
}

func (cc *callersConfig) applyOpen(s *callersState, nonce, session int, claimRevision uint8) uint8 {
	switch answer := s.answer(nonce); {
	case answer == answerProceed, answer == answerRefused:
		return answer
	case answer != answerUsed && has(s.tooFar, nonce):
		s.expiries |= bit(nonce)
		if cc.farMarks {
			s.used |= bit(nonce)
		}
		return answerRefused
	case answer == answerUsed, answer == answerInDoubt, cc.oneShot && has(s.withdrawn, session):
		return answerRefused
	case answer == answerBusy:
		if !cc.newerClaimSupersedes || claimRevision <= s.claimRevisions[s.attemptCount-1] {
			return answerBusy
		}
		s.lose(attemptLost, cc.hold)
		if s.flight != free {
			return answerRefused
		}
	}
	if int(s.attemptCount) >= cc.attempts {
		return answerBusy
	}
	for k := range int(s.attemptCount) {
		if s.sessions[s.sessionOfAttempt[k]] != sessionAlive {
			s.endedBeforeNext |= bit(k)
		}
	}
	s.sessionOfAttempt[s.attemptCount], s.claimRevisions[s.attemptCount] = uint8(session), claimRevision
	s.open(nonce)
	return answerProceed
}

func (cc *callersConfig) applyEnded(s *callersState, attempt int) {
	newest := int(s.attemptCount) - 1
	switch {
	case s.flight != running:
	case cc.endNamesNothing, attempt == newest,
		cc.endNamesSession && s.sessionOfAttempt[attempt] == s.sessionOfAttempt[newest]:
		s.lose(attemptLost, cc.hold)
	}
}

func (cc *callersConfig) violation(s *callersState) string {
	if bits.OnesCount8(s.effects) > 1 {
		if cc.hold {
			return "S1 two effects under hold"
		}
		for k := range int(s.attemptCount) {
			if has(s.effects, k) && s.effects>>uint(k+1) != 0 && !has(s.endedBeforeNext, k) {
				return "S2 a second effect, and the session of the first has not ended"
			}
		}
	}
	mayStart := 0
	for c := range cc.callers {
		p := s.callers[c]
		if p.alive == 0 || p.trusts == 0 {
			continue
		}
		if !cc.frozen && p.phase == callerActed {
			if a := s.attempts[p.attempt-1].status; a != attemptOpen && a != attemptDone {
				return "S4 the attempt of a live trusted caller was closed before its report was committed"
			}
		}
		if p.phase == callerProceeds {
			lives := s.sessions[p.session-1] == sessionAlive
			if lives {
				mayStart++
			}
			if (lives || !cc.frozen) && s.attempts[p.attempt-1].status != attemptOpen {
				return "S4 the attempt of a caller that may start was closed by another"
			}
		}
	}
	if mayStart > 1 {
		return "S2 two callers may start at the same time"
	}
	if cc.tokenOfClaim && cc.tokensDoNotRise(s) {
		return "S3 tokens do not rise"
	}
	if cc.checkFalseDoubt && cc.leftAttempt(s) {
		return "D1 a live caller has its final word, has started nothing, and its attempt is open or lost"
	}
	return ""
}

func (cc *callersConfig) tokensDoNotRise(s *callersState) bool {
	for later := range int(s.attemptCount) {
		for earlier := range later {
			if has(s.effects, earlier) && has(s.effects, later) && s.tokenRevision[later] <= s.tokenRevision[earlier] {
				return true
			}
		}
	}
	return false
}

// leftAttempt reports whether a live caller that is through, and started nothing, has left the newest attempt behind: its
// abandon is not to follow, and no renewal will list the attempt.
func (cc *callersConfig) leftAttempt(s *callersState) bool {
	if s.flight != running && s.flight != inDoubt {
		return false
	}
	newest := int(s.attemptCount) - 1
	nonce := int(s.attempts[newest].nonce)
	p := s.callers[cc.owner(nonce)]
	if has(s.owed, nonce) || cc.renewalShows && s.sessions[s.sessionOfAttempt[newest]] == sessionAlive {
		return false
	}
	return p.alive == 1 && p.phase == callerIsThrough && nonce%cc.noncesPerCaller == int(p.nonceIndex) && !has(s.effects, newest)
}

func (cc *callersConfig) settled(s *callersState) bool {
	switch s.flight {
	case done, inDoubt:
		return true
	case running:
		return false
	}
	for c := range cc.callers {
		if p := s.callers[c]; p.alive == 1 && p.phase >= callerWaiting && p.phase <= callerGivesUp {
			return false
		}
	}
	return true
}

func (cc callersConfig) run(limits Limits) Result {
	var initial callersState
	for c := range cc.callers {
		initial.callers[c].alive = 1
	}
	if cc.farAhead {
		initial.tooFar = 1
	}
	return explore(model[callersState]{
		initial: initial, successors: cc.successors, canonical: cc.canonical, violation: cc.violation, settled: cc.settled, live: cc.live,
		outcome: func(s *callersState) outcome {
			return outcome{effects: uint8(bits.OnesCount8(s.effects)), flight: s.flight}
		},
	}, limits)
}
