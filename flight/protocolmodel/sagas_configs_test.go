package protocolmodel

// sagasConfigurations has letter S.
func sagasConfigurations() []Configuration {
	return table(sagasConfig{}, []row[sagasConfig]{
		{"S1 steps of the driver and of a pool", Holds, both, hold, func(g *sagasConfig) { g.live = true }},
		{"SN1 control: a step is not fenced by its driver's attempt", Violates, both, hold, func(g *sagasConfig) { g.noFence = true }},
		{"SN2 control: the pool's step opens in any phase", Violates, both, hold, func(g *sagasConfig) { g.noPhase = true }},
		{"SN3 control: a driver's step opens in any phase", Violates, both, hold, func(g *sagasConfig) { g.noPhaseDrive = true }},
		{"SN4 control: an undo does not wait for an open forward step", Violates, both, hold, func(g *sagasConfig) { g.noWait = true }},
		{"SN5 control: EndSession ends the driver and leaves its steps", Blocks, both, hold, func(g *sagasConfig) { g.endsAlone, g.live = true, true }},
	})
}
