package protocolmodel

// epochsConfigurations has letter G: guard, lease epochs and a restored etcd.
func epochsConfigurations() []Configuration {
	return table(epochsConfig{bump: true, raises: 1, guardFirst: true, renewalReads: true, sessionReads: true}, []row[epochsConfig]{
		{"G1 a restored etcd with a higher revision", Holds, both, hold, func(g *epochsConfig) { g.live = true }},
		{"G2 a restored etcd with its old revision", Holds, both, hold, func(g *epochsConfig) { g.bump, g.live = false, true }},
		{"G3 as G1, two raises of the counter", Holds, both, 0, func(g *epochsConfig) { g.raises, g.live = 2, true }},
		{"G4 as G2, two raises of the counter", Holds, both, 0, func(g *epochsConfig) { g.bump, g.raises, g.live = false, 2, true }},
		{"G5 the guard key of the new epoch deletes the session keys of older epochs", Holds, both, 0, func(g *epochsConfig) {
			g.renewalReads, g.deleteSessionKeys, g.live = false, true, true
		}},
		{"G6 renewals do not read the guard key", Violates, both, hold, func(g *epochsConfig) { g.renewalReads = false }},
		{"G7 the ledger raises the lease epoch before the guard key has it", Violates, both, hold, func(g *epochsConfig) { g.guardFirst = false }},
		{"G8 trust that has ended is regained", Violates, both, hold, func(g *epochsConfig) { g.trustRegained = true }},
		{"G9 a session is made without a look at the ledger's record, the old revision", Violates, both, hold, func(g *epochsConfig) {
			g.sessionReads, g.bump = false, false
		}},
		{"G10 a session is made without a look at the ledger's record, a higher revision", Holds, both, 0, func(g *epochsConfig) {
			g.sessionReads, g.live = false, true
		}},
		{"GN1 control: the counter is not compared", Violates, both, hold, func(g *epochsConfig) { g.ignoreCounter = true }},
		{"GN2 control: the attempts of an older epoch end before the hold is over", Violates, both, hold, func(g *epochsConfig) { g.endBeforeHold = true }},
		{"GN3 control: a read of the new epoch ends an attempt of the older one", Violates, both, hold, func(g *epochsConfig) { g.endedAfterRaise = true }},
		{"GN4 control: the counter is raised without a comparison", Violates, both, hold, func(g *epochsConfig) { g.blindRaise, g.raises = true, 2 }},
		{"GN5 a backup younger than the last recorded counter", Violates, both, hold, func(g *epochsConfig) { g.youngBackup = true }},
		{"GN6 control: EndSession and Open of an older epoch count", Violates, both, hold, func(g *epochsConfig) { g.ignoreEpoch = true }},
	})
}
