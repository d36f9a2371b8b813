package protocolmodel

// reportsConfigurations has letter R: rules 3, 6, 8 and 10, and controls 11 to 13.
func reportsConfigurations() []Configuration {
	base := reportsConfig{nonces: [2]int{1, 1}, attempts: 3, nodes: 2, reportsRules: reportsRules{renewalShows: true}}
	used := func(g *reportsConfig) { g.doubtUses = true }
	doubts := func(g *reportsConfig) { g.checkFalseDoubt, g.doubtUses = true, true }
	silent := func(g *reportsConfig) { g.doubtUses, g.renewalShows, g.live = true, false, true }
	return table(base, []row[reportsConfig]{
		{"R1 one nonce each, two nodes", Holds, both, 0, func(g *reportsConfig) { used(g); g.live = true }},
		{"R11 one nonce each, one node", Holds, both, both, func(g *reportsConfig) { doubts(g); g.nodes, g.live = 1, true }},
		{"R12 restored ledger, one nonce each, one node, two attempts, no deaths", Holds, both, hold, func(g *reportsConfig) {
			used(g)
			g.nodes, g.attempts, g.restore, g.noDeaths = 1, 2, true, true
		}},
		{"R2 two nonces and one, one node", Holds, both, 0, func(g *reportsConfig) { used(g); g.nonces[0], g.nodes, g.live = 2, 1, true }},
		{"R3 two nonces and one, two nodes", Holds, both, 0, func(g *reportsConfig) { used(g); g.nonces[0] = 2 }},
		{"R4 frozen machines, two nonces and one, one node", Holds, both, 0, func(g *reportsConfig) {
			used(g)
			g.nonces[0], g.nodes, g.frozen = 2, 1, true
		}},
		{"R5 restored ledger, one nonce each, one node", Holds, both, 0, func(g *reportsConfig) { used(g); g.nodes, g.restore = 1, true }},
		{"R6 restored ledger, two nonces and one, one node", Holds, both, 0, func(g *reportsConfig) {
			used(g)
			g.nonces[0], g.nodes, g.restore = 2, 1, true
		}},
		{"R7 time-outs, one nonce each, two nodes", Holds, both, 0, func(g *reportsConfig) { used(g); g.timeouts, g.live = true, true }},
		{"R8 time-outs, two nonces and one, one node", Holds, both, 0, func(g *reportsConfig) {
			used(g)
			g.nonces[0], g.nodes, g.timeouts = 2, 1, true
		}},
		{"R9a two nonces and one, two nodes, two attempts, no deaths", Holds, both, 0, func(g *reportsConfig) {
			used(g)
			g.nonces[0], g.attempts, g.noDeaths, g.live = 2, 2, true, true
		}},
		{"R9b frozen machines, two nonces and one, one node, two attempts", Holds, both, 0, func(g *reportsConfig) {
			used(g)
			g.nonces[0], g.attempts, g.nodes, g.frozen = 2, 2, 1, true
		}},
		{"R9c restored ledger, two nonces and one, one node, two attempts, no deaths", Holds, both, 0, func(g *reportsConfig) {
			used(g)
			g.nonces[0], g.attempts, g.nodes, g.restore, g.noDeaths = 2, 2, 1, true, true
		}},
		{"R9d time-outs, two nonces and one, one node, two attempts, no deaths", Holds, both, 0, func(g *reportsConfig) {
			used(g)
			g.nonces[0], g.attempts, g.nodes, g.timeouts, g.noDeaths = 2, 2, 1, true, true
		}},
		{"R10 time-outs, one nonce each, one node", Holds, both, hold, func(g *reportsConfig) {
			used(g)
			g.nodes, g.timeouts, g.live = 1, true, true
		}},

		{"RN1 control 13: abandons an attempt whose report lies in the spool", Violates, both, both, func(g *reportsConfig) {
			g.nodes, g.abandonSpooled = 1, true
		}},
		{"RN2 control 13: abandons an attempt whose report a restore has lost", Violates, hold, hold, func(g *reportsConfig) {
			g.nodes, g.restore, g.abandonLost = 1, true, true
		}},
		{"RN3 control: a clock that drifts beyond the bound of rule 3 (d)", Violates, both, both, func(g *reportsConfig) {
			g.nodes, g.timeouts, g.drift = 1, true, true
		}},
		{"RN4 control: a time-out counted from the last sending", Violates, both, both, func(g *reportsConfig) {
			g.timeouts, g.deadlineOfLastSend = true, true
		}},

		{"RL1 control 11: a used nonce forgotten while a copy of its Open lives", Blocks, both, 0, func(g *reportsConfig) {
			silent(g)
			g.attempts, g.forgetUsed = 4, true
		}},
		{"RL2 as RL1, and renewals show", Holds, both, 0, func(g *reportsConfig) { g.attempts, g.forgetUsed, g.live = 4, true, true }},
		{"RL3 control 12: leaves after busy, proposed: true", Blocks, both, 0, func(g *reportsConfig) { silent(g); g.leaveAfterBusy = true }},
		{"RL4 as RL3, and renewals show", Holds, both, 0, func(g *reportsConfig) { g.leaveAfterBusy, g.live = true, true }},
		{"RL5 control: leaves after busy, proposed: false, to one of two requests", Blocks, both, 0, func(g *reportsConfig) {
			silent(g)
			g.leaveAfterOneOfMany = true
		}},
		{"RL6 control: in_doubt leaves the nonce unused, renewals do not show", Blocks, hold, hold, func(g *reportsConfig) {
			g.nodes, g.renewalShows, g.live = 1, false, true
		}},
		{"RL7 control: open_expired from a lagging view", Blocks, both, 0, func(g *reportsConfig) { silent(g); g.expiredFromView = true }},
		{"RL8 renewals do not show", Holds, both, 0, silent},

		{"RD1 control: in_doubt leaves the nonce unused", Violates, hold, hold, func(g *reportsConfig) {
			g.nodes, g.checkFalseDoubt = 1, true
		}},
		{"RD2 no false doubt", Holds, both, 0, doubts},
		{"RD3 no false doubt, two nonces and one, one node", Holds, both, 0, func(g *reportsConfig) { doubts(g); g.nonces[0], g.nodes = 2, 1 }},
		{"RD4 control 12: leaves after busy, the row is dropped", Violates, hold, hold, func(g *reportsConfig) { doubts(g); g.leaveAfterBusy = true }},
		{"RD5 as RD4, the row is kept as given up", Holds, both, 0, func(g *reportsConfig) { doubts(g); g.leaveAfterBusy, g.keepRow = true, true }},
		{"RD6 control: open_expired from a lagging view", Violates, hold, hold, func(g *reportsConfig) { doubts(g); g.expiredFromView = true }},
		{"RD7 control: leaves after busy, proposed: false, to one of two requests", Violates, hold, hold, func(g *reportsConfig) {
			doubts(g)
			g.leaveAfterOneOfMany = true
		}},
		{"RD8 restored ledger, rows without a start are dropped", Violates, both, hold, func(g *reportsConfig) {
			doubts(g)
			g.nodes, g.restore = 1, true
		}},
		{"RD9 restored ledger, rows without a start are kept", Holds, both, 0, func(g *reportsConfig) {
			doubts(g)
			g.nodes, g.restore, g.keepAll = 1, true, true
		}},

		{"RF1 not_after too far ahead, answered by the ledger, nonce unused", Violates, hold, hold, func(g *reportsConfig) {
			doubts(g)
			g.nodes, g.farAhead = 1, true
		}},
		{"RF2 as RF1, renewals do not show", Blocks, both, hold, func(g *reportsConfig) { silent(g); g.nodes, g.farAhead = 1, true }},
		{"RF3 not_after too far ahead, its nonce marked as used", Holds, both, hold, func(g *reportsConfig) {
			doubts(g)
			g.farAhead, g.farMarks, g.live = true, true, true
			g.nodes = 1
		}},
		{"RF4 not_after too far ahead, answered by the node, proposed: false", Holds, both, hold, func(g *reportsConfig) {
			doubts(g)
			g.nodes, g.farAhead, g.farAtNode, g.live = 1, true, true, true
		}},
		{"RF5 as RF4, two nodes", Holds, both, 0, func(g *reportsConfig) {
			doubts(g)
			g.farAhead, g.farAtNode, g.live = true, true, true
		}},
		{"RF6 as RF5, proposed: false to every request is final", Holds, both, 0, func(g *reportsConfig) {
			doubts(g)
			g.farAhead, g.farAtNode, g.leaveIfNoneProposed, g.live = true, true, true, true
		}},
	})
}
