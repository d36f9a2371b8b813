package protocolmodel

// epochsConfigurations has letter G: guard, lease epochs and a restored etcd.
func epochsConfigurations() []Configuration {
	var all []Configuration
	for _, row := range []struct {
		name   string
		expect Expectation
		short  bool
		change func(*epochsConfig)
	}{
		{"G1 a restored etcd with a higher revision", Holds, true, func(g *epochsConfig) {}},
		{"G2 a restored etcd with its old revision", Holds, true, func(g *epochsConfig) { g.bump = false }},
		{"G3 as G1, two raises of the counter", Holds, false, func(g *epochsConfig) { g.raises = 2 }},
		{"G4 as G2, two raises of the counter", Holds, false, func(g *epochsConfig) { g.bump, g.raises = false, 2 }},
		{"G5 the guard key of the new epoch deletes the session keys of older epochs", Holds, false, func(g *epochsConfig) {
			g.renewalReads, g.deleteSessionKeys = false, true
		}},
		{"G6 renewals do not read the guard key", Violates, true, func(g *epochsConfig) { g.renewalReads = false }},
		{"G7 the ledger raises the lease epoch before the guard key has it", Violates, true, func(g *epochsConfig) { g.guardFirst = false }},
		{"G8 trust that has ended is regained", Violates, true, func(g *epochsConfig) { g.trustRegained = true }},
		{"G9 a session is made without a look at the ledger's record, the old revision", Violates, true, func(g *epochsConfig) {
			g.sessionReads, g.bump = false, false
		}},
		{"G10 a session is made without a look at the ledger's record, a higher revision", Holds, false, func(g *epochsConfig) {
			g.sessionReads = false
		}},
		{"GN1 control: the counter is not compared", Violates, true, func(g *epochsConfig) { g.ignoreCounter = true }},
		{"GN2 control: the attempts of an older epoch end before the hold is over", Violates, true, func(g *epochsConfig) { g.endBeforeHold = true }},
		{"GN3 control: a read of the new epoch ends an attempt of the older one", Violates, true, func(g *epochsConfig) { g.endedAfterRaise = true }},
		{"GN4 control: the counter is raised without a comparison", Violates, true, func(g *epochsConfig) { g.blindRaise, g.raises = true, 2 }},
		{"GN5 a backup younger than the last recorded counter", Violates, true, func(g *epochsConfig) { g.youngBackup = true }},
		{"GN6 control: EndSession and Open of an older epoch count", Violates, true, func(g *epochsConfig) { g.ignoreEpoch = true }},
	} {
		for _, hold := range []bool{true, false} {
			g := epochsConfig{hold: hold, bump: true, raises: 1, guardFirst: true, renewalReads: true, sessionReads: true, live: row.expect == Holds}
			row.change(&g)
			all = append(all, Configuration{
				Name: row.name + ", " + policyName(hold), Expect: row.expect, Short: row.short && hold, run: g.run,
			})
		}
	}
	return all
}
