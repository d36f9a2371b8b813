package protocolmodel

// reconcilingConfigurations has letter U: restores from a backup.
func reconcilingConfigurations() []Configuration {
	refusals := func(g *reconcilingConfig) { g.person, g.emptyBackup, g.checkRefused = true, true, true }
	three := func(g *reconcilingConfig) { g.callers, g.noDeaths, g.noGiveUp = 3, true, true }
	return table(reconcilingConfig{callers: 2, restores: 1, backups: 1}, []row[reconcilingConfig]{
		{"U1 one restore", Holds, both, both, func(g *reconcilingConfig) { g.live = true }},
		{"U2 as U1, three callers, no deaths", Holds, both, 0, func(g *reconcilingConfig) { g.callers, g.noDeaths = 3, true }},
		{"U3 restored twice, a backup made in between", Holds, both, 0, func(g *reconcilingConfig) {
			g.restores, g.backups, g.live = 2, 2, true
		}},
		{"U4 as U3, three callers, no deaths, nobody gives up", Holds, both, 0, func(g *reconcilingConfig) {
			three(g)
			g.restores, g.backups = 2, 2
		}},
		{"U5 as U1, a person resolves doubts", Holds, hold, hold, func(g *reconcilingConfig) { g.person, g.live = true, true }},
		{"U6 refusals, a backup from before the first attempt", Holds, hold, hold, refusals},
		{"U7 refusals, any backup", Violates, hold, hold, func(g *reconcilingConfig) { refusals(g); g.emptyBackup = false }},
		{"U8 the operator imports what has happened", Holds, hold, hold, func(g *reconcilingConfig) { g.imports, g.live = true, true }},
		{"U9 as U8, three callers, no deaths, nobody gives up", Holds, hold, 0, func(g *reconcilingConfig) {
			three(g)
			g.imports = true
		}},

		{"UN1 control: the ledger opens before the operator's word", Violates, both, hold, func(g *reconcilingConfig) { g.opensAtOnce = true }},
		{"UN2 control: the operator's word before the hold is over", Violates, both, hold, func(g *reconcilingConfig) { g.finishBeforeHold = true }},
		{"UN3 control: the lease epoch is not raised", Violates, both, hold, func(g *reconcilingConfig) { g.endsBeforeHold = true }},
		{"UN4 control: a success of an earlier epoch is evidence", Violates, both, hold, func(g *reconcilingConfig) { g.successIsEvidence = true }},
		{"UN5 control: it is evidence while an attempt of this epoch is open", Violates, both, hold, func(g *reconcilingConfig) {
			three(g)
			g.evidenceWhileOpen, g.emptyBackup = true, true
		}},
		{"UN6 control: an unknown of an earlier epoch is evidence", Violates, hold, hold, func(g *reconcilingConfig) { g.unknownIsEvidence = true }},
		{"UN7 control: it is evidence while an attempt is open", Violates, hold, hold, func(g *reconcilingConfig) {
			three(g)
			g.unknownWhileOpen, g.emptyBackup = true, true
		}},
		{"UN8 control: a refusal of a lost attempt is final", Violates, hold, hold, func(g *reconcilingConfig) {
			refusals(g)
			g.refusedIsFinal = true
		}},
		{"UN9 control: a known attempt's report under its first token is evidence", Violates, hold, hold, func(g *reconcilingConfig) {
			g.oldTokenIsEvidence = true
		}},
		{"UN10 control: a token without the store epoch", Violates, both, hold, func(g *reconcilingConfig) { g.tokenNumber = true }},
		{"UN11 control: two restores of one backup get the same store epoch", Violates, both, hold, func(g *reconcilingConfig) {
			g.restores, g.epochReused, g.noDeaths = 2, true, true
		}},
		{"UN12 control: a second success is evidence alone", Violates, both, hold, func(g *reconcilingConfig) { g.noOverlap = true }},
		{"UN13 control: a repeat of the report that made the receipt raises overlap", Violates, both, hold, func(g *reconcilingConfig) {
			g.repeatOverlaps = true
		}},
		{"UN14 control: no import where the backup has an attempt", Violates, hold, hold, func(g *reconcilingConfig) {
			three(g)
			g.imports, g.importsNewOnly = true, true
		}},
	})
}
