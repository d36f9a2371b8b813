package protocolmodel

// sagasConfigurations has letter S.
func sagasConfigurations() []Configuration {
	var all []Configuration
	for _, row := range []struct {
		name   string
		expect Expectation
		short  bool
		change func(*sagasConfig)
	}{
		{"S1 steps of the driver and of a pool", Holds, true, func(g *sagasConfig) { g.live = true }},
		{"SN1 control: a step is not fenced by its driver's attempt", Violates, true, func(g *sagasConfig) { g.noFence = true }},
		{"SN2 control: the pool's step opens in any phase", Violates, true, func(g *sagasConfig) { g.noPhase = true }},
		{"SN3 control: a driver's step opens in any phase", Violates, true, func(g *sagasConfig) { g.noPhaseDrive = true }},
		{"SN4 control: an undo does not wait for an open forward step", Violates, true, func(g *sagasConfig) { g.noWait = true }},
		{"SN5 control: EndSession ends the driver and leaves its steps", Blocks, true, func(g *sagasConfig) { g.endsAlone, g.live = true, true }},
	} {
		for _, hold := range []bool{true, false} {
			g := sagasConfig{hold: hold}
			row.change(&g)
			all = append(all, Configuration{
				Name: row.name + ", " + policyName(hold), Expect: row.expect, Short: row.short && hold, run: g.run,
			})
		}
	}
	return all
}
