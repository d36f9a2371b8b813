package protocolmodel

// callersConfigurations has letters A to W: the rules around claims and sessions, and controls 1 to 12, and 15.
func callersConfigurations() []Configuration {
	base := callersConfig{callersBounds: callersBounds{callers: 2, noncesPerCaller: 1, sessionsPerCaller: 1, attempts: 2, nodes: 1}}
	small := func(g *callersConfig) { g.claimsOff, g.noDeaths, g.noCrashes = true, true, true }
	withdraw := func(g *callersConfig) { g.oneShot, g.revokeAfterBusy, g.withdrawFirst = true, true, true }
	return table(base, []row[callersConfig]{
		{"A1 long-lived sessions", Holds, both, hold, func(g *callersConfig) { g.live, g.checkFalseDoubt = true, true }},
		{"A2 frozen machines", Holds, both, 0, func(g *callersConfig) { g.frozen, g.live = true, true }},
		{"A3 no claims at all", Holds, both, both, func(g *callersConfig) { g.claimsOff, g.live = true, true }},
		{"A5 EndSession names the session only", Holds, both, 0, func(g *callersConfig) { g.endNamesSession = true }},
		{"B1 a caller with two nonces beside one with one", Holds, both, 0, func(g *callersConfig) {
			g.noncesPerCaller, g.attempts, g.claimsOff, g.live = 2, 4, true, true
		}},
		{"O1 one-shot sessions", Holds, both, 0, func(g *callersConfig) { g.oneShot, g.live = true, true }},
		{"O2 one-shot sessions, frozen machines", Holds, both, 0, func(g *callersConfig) { g.oneShot, g.frozen = true, true }},
		{"P1 one-shot, withdrawn and ended after busy", Holds, both, 0, func(g *callersConfig) { withdraw(g); g.live = true }},
		{"P2 lagging nodes answer repeats", Holds, both, 0, func(g *callersConfig) { g.laggingRepeats, g.live = true, true }},
		{"P3 one-shot, lagging nodes answer repeats", Holds, both, 0, func(g *callersConfig) {
			g.oneShot, g.laggingRepeats, g.live = true, true, true
		}},
		{"P4 frozen machines, lagging nodes answer repeats", Holds, both, 0, func(g *callersConfig) {
			g.frozen, g.laggingRepeats, g.live = true, true, true
		}},
		{"Q1 three callers, no claims", Holds, both, 0, func(g *callersConfig) {
			g.callers, g.attempts, g.claimsOff, g.live = 3, 3, true, true
		}},
		{"Q2 three callers, frozen machines, no claims", Holds, both, 0, func(g *callersConfig) {
			g.callers, g.attempts, g.claimsOff, g.frozen = 3, 3, true, true
		}},
		{"Q3 two nodes", Holds, both, 0, func(g *callersConfig) { g.nodes, g.live = 2, true }},
		{"Q4 two nodes, frozen machines", Holds, both, 0, func(g *callersConfig) { g.nodes, g.frozen = 2, true }},
		{"Q5 two nodes, one-shot sessions", Holds, both, 0, func(g *callersConfig) { g.nodes, g.oneShot, g.live = 2, true, true }},
		{"Q6 a session is lost, and a second one made", Holds, both, 0, func(g *callersConfig) {
			g.noncesPerCaller, g.sessionsPerCaller, g.attempts, g.claimsOff = 2, 2, 4, true
		}},
		{"W1 one-shot, two nodes, withdrawn after busy, no deaths", Holds, both, 0, func(g *callersConfig) {
			withdraw(g)
			small(g)
			g.nodes = 2
		}},
		{"W2 one-shot, two nodes, withdrawn after busy, claims, no deaths", Holds, both, 0, func(g *callersConfig) {
			withdraw(g)
			g.nodes, g.interchangeable, g.noDeaths, g.noCrashes = 2, true, true, true
		}},
		{"W3 one-shot, two nodes, withdrawn after busy, deaths, no claims", Holds, both, 0, func(g *callersConfig) {
			withdraw(g)
			g.nodes, g.interchangeable, g.claimsOff = 2, true, true
		}},
		{"W4 one-shot, two nodes, withdrawn after busy, no deaths, no claims", Holds, both, 0, func(g *callersConfig) {
			withdraw(g)
			small(g)
			g.nodes, g.interchangeable, g.checkFalseDoubt = 2, true, true
			g.live = g.hold
		}},

		{"W5 as W4, one attempt", Holds, both, 0, func(g *callersConfig) {
			withdraw(g)
			small(g)
			g.nodes, g.attempts, g.interchangeable, g.checkFalseDoubt = 2, 1, true, true
		}},
		{"X1 one-shot, not_after too far ahead, nonce unused", Violates, hold, hold, func(g *callersConfig) {
			withdraw(g)
			g.farAhead, g.checkFalseDoubt = true, true
		}},
		{"X2 one-shot, not_after too far ahead, its nonce marked as used", Holds, hold, 0, func(g *callersConfig) {
			withdraw(g)
			small(g)
			g.farAhead, g.farMarks, g.checkFalseDoubt, g.live = true, true, true, true
		}},
		{"X3 one-shot, a caller leaves after busy and sends no abandon", Violates, hold, hold, func(g *callersConfig) {
			small(g)
			g.oneShot, g.leaveAfterBusy, g.checkFalseDoubt = true, true, true
		}},
		{"X4 as X3, one attempt, and its abandon follows", Holds, both, hold, func(g *callersConfig) {
			withdraw(g)
			small(g)
			g.attempts, g.abandonLater, g.checkFalseDoubt, g.live = 1, true, true, true
		}},
		{"X5 long-lived, a caller leaves after busy, and renewals alone show", Violates, hold, hold, func(g *callersConfig) {
			g.leaveAfterBusy, g.renewalShows, g.claimsOff, g.checkFalseDoubt = true, true, true, true
		}},
		{"X6 as X5, and an abandon follows the end of the session", Holds, both, hold, func(g *callersConfig) {
			g.abandonLater, g.renewalShows, g.claimsOff, g.checkFalseDoubt, g.live = true, true, true, true, true
		}},

		{"N1 control 1: a newer claim supersedes", Violates, both, both, func(g *callersConfig) { g.newerClaimSupersedes = true }},
		{"N2 control 2: a stale list of session keys", Violates, both, both, func(g *callersConfig) { g.staleRead = true }},
		{"N3 control 3: an end that names neither attempt nor session", Violates, both, both, func(g *callersConfig) { g.endNamesNothing = true }},
		{"N4 control 4: a node abandons for a caller with a nonce", Violates, both, both, func(g *callersConfig) { g.nodeAbandonsOpen = true }},
		{"N5 control 5: a token of the claim's revision", Violates, resend, resend, func(g *callersConfig) { g.tokenOfClaim = true }},
		{"N6 control 6: a renewal abandons unlisted attempts", Violates, both, both, func(g *callersConfig) {
			g.renewalAbandons, g.noncesPerCaller, g.attempts, g.claimsOff = true, 2, 3, true
		}},
		{"N7 control 7: a one-shot session made beside its Open", Violates, both, both, func(g *callersConfig) {
			g.oneShot, g.sessionBesideOpen = true, true
		}},
		{"N8 control 8: a one-shot session ended after busy", Violates, both, hold, func(g *callersConfig) {
			g.oneShot, g.revokeAfterBusy, g.nodes, g.interchangeable = true, true, 2, true
			small(g)
		}},
		{"N9 control 9: a one-shot session ended before its report is committed", Violates, both, both, func(g *callersConfig) {
			g.oneShot, g.revokeBeforeReport = true, true
		}},
		{"N10 control 10: a foreign claim waited for and never replaced", Blocks, both, hold, func(g *callersConfig) {
			g.waitForClaim, g.live = true, true
		}},
		{"N11 control 11: a used nonce forgotten, no claims", Blocks, both, both, func(g *callersConfig) {
			g.forgetUsed, g.claimsOff, g.live = true, true, true
		}},
		{"L1 as N11, and renewals show", Holds, both, hold, func(g *callersConfig) {
			g.forgetUsed, g.renewalShows, g.claimsOff, g.live = true, true, true, true
		}},
		{"L2 as L1, with claims", Holds, both, 0, func(g *callersConfig) { g.forgetUsed, g.renewalShows, g.live = true, true, true }},
		{"N12 control 12: a caller leaves after busy, no claims", Blocks, both, both, func(g *callersConfig) {
			g.leaveAfterBusy, g.claimsOff, g.live = true, true, true
		}},
		{"N13 control 15: a caller takes another's answer", Violates, both, both, func(g *callersConfig) { g.believesAny = true }},
		{"L3 as N12, and renewals show", Holds, both, hold, func(g *callersConfig) {
			g.leaveAfterBusy, g.renewalShows, g.claimsOff, g.live = true, true, true, true
		}},
		{"L4 as L3, with claims", Holds, both, 0, func(g *callersConfig) { g.leaveAfterBusy, g.renewalShows, g.live = true, true, true }},
		{"P5 lagging nodes answer repeats, no claims", Holds, both, both, func(g *callersConfig) {
			g.laggingRepeats, g.claimsOff, g.live = true, true, true
		}},
	})
}
