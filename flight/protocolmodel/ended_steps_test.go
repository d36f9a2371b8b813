package protocolmodel

func (c *endedConfig) successors(s *endedState, out *steps[endedState]) {
	sessions := sessionRules[endedState]{
		of: func(s *endedState, session int) *process { return &s.owners[session] }, noDeaths: c.noDeaths, frozen: c.frozen,
		expires: func(t *endedState, session int) {
			t.revision++
			t.deleted[session] = t.revision
		},
		dies: func(t *endedState, session int) {
			for o := session * 2; o < session*2+2; o++ {
				if t.phases[o] != operationUnused {
					t.phases[o] = operationOver
				}
			}
		},
	}
	for session := range 2 {
		if s.created[session] == 0 {
			t := *s
			t.revision++
			t.created[session], t.owners[session] = t.revision, trusting
			out.add(t, perhaps, "session made", session)
			continue
		}
		sessions.steps(s, session, out)
		c.proofSteps(s, session, out)
	}
	for o := range c.operations {
		c.operationSteps(s, o, out)
		c.messageSteps(s, o, out)
	}
}

// proofSteps: any view of etcd without the session key, however old, makes a node propose EndSession. The ledger only
// compares, so one read from before the session key (the last) and one from after it (the first) represent all.
func (c *endedConfig) proofSteps(s *endedState, session int, out *steps[endedState]) {
	before, after := s.created[session]-1, s.deleted[session]
	for read := uint8(0); read <= s.revision; read++ {
		if read != before && (after == 0 || read != after) {
			continue
		}
		b := bit(int(read))
		meets := c.openerRepeats && c.openerWaits(s, session)
		if s.proposed[session]&b == 0 && (!c.once || !has(s.remembered, session) || meets) {
			t := *s
			t.proposed[session] |= b
			name := "EndSession proposed: session, read revision"
			if meets && has(s.remembered, session) {
				name = "an opener meets an attempt of an ended session; EndSession proposed again"
			}
			acts := s.owners[session].alive == 1 && (s.phases[session*2] == operationActed || s.phases[session*2+1] == operationActed)
			out.add(t, read != before && !(c.withheld && acts) && !c.withheldForDead, name, session, int(read))
		}
		if s.proposed[session]&b == 0 {
			continue
		}
		t := *s
		if c.once {
			t.proposed[session] &^= b
		}
		if c.applyEnded(&t, session, read) {
			out.add(t, eventually, "ledger: EndSession", session, int(read))
		} else {
			out.add(t, eventually, "ledger rejects EndSession", session, int(read))
		}
	}
	if c.forgets && has(s.remembered, session) {
		t := *s
		t.remembered &^= bit(session)
		out.add(t, perhaps, "ended session forgotten", session)
	}
}

// openerWaits reports whether an operation of the other session waits for a key whose attempt is of this session.
func (c *endedConfig) openerWaits(s *endedState, session int) bool {
	for key := range 2 {
		k := &s.keys[key]
		opener := (1-session)*2 + key
		if k.flight == running && int(k.newest().nonce)/2 == session && s.phases[opener] == operationAwaits && has(s.opens, opener) {
			return true
		}
	}
	return false
}

func (c *endedConfig) operationSteps(s *endedState, o int, out *steps[endedState]) {
	session, key, b := o/2, o%2, bit(o)
	k := &s.keys[key]
	switch s.phases[o] {
	case operationUnused:
		if s.owners[session].trusts == 1 {
			t := *s
			t.phases[o] = operationAwaits
			t.opens |= b
			out.add(t, perhaps, "owner sends open: session, key", session, key)
		}
	case operationAwaits, operationProceeds:
		if s.phases[o] == operationAwaits && s.proceeds&b != 0 {
			t := *s
			t.phases[o] = operationProceeds
			out.add(t, eventually, "owner is answered proceed", session, key)
		}
		if s.phases[o] == operationProceeds && s.owners[session].trusts == 1 {
			t := *s
			t.effects |= b
			t.phases[o] = operationActed
			out.add(t, eventually, "EFFECT", session, key)
		}
		hopeless := k.flight == done || k.flight == inDoubt || has(s.remembered, session) ||
			k.answer(o) == answerUsed
		t := *s
		t.phases[o] = operationGivesUp
		t.abandons |= b
		out.add(t, hopeless || s.owners[session].trusts == 0, "owner gives up", session, key)
	case operationActed:
		t := *s
		t.reports |= b
		t.phases[o] = operationOver
		out.add(t, eventually, "report proposed", session, key)
	}
}

func (c *endedConfig) messageSteps(s *endedState, o int, out *steps[endedState]) {
	session, key, b := o/2, o%2, bit(o)
	if s.opens&b != 0 {
		t := *s
		c.applyOpen(&t, o)
		out.add(t, eventually, "ledger: Open", session, key)
	}
	if s.reports&b != 0 {
		t := *s
		t.keys[key].report(t.keys[key].attemptOf(o))
		out.add(t, eventually, "ledger: report", session, key)
	}
	if s.abandons&b != 0 {
		t := *s
		t.keys[key].abandonUnlessFree(o)
		if t.phases[o] == operationGivesUp {
			t.phases[o] = operationOver
		}
		out.add(t, eventually, "ledger: Abandon", session, key)
	}
}

// endedConfigurations has letter E: rule 4 and control 2.
func endedConfigurations() []Configuration {
	return table(endedConfig{batch: 1, operations: 3}, []row[endedConfig]{
		{"E1 two keys, batches of one", Holds, both, 0, func(g *endedConfig) { g.live = true }},
		{"E2 frozen machines", Holds, both, 0, func(g *endedConfig) { g.frozen, g.live = true, true }},
		{"E3 both sessions on both keys", Holds, both, 0, func(g *endedConfig) { g.operations = 4 }},
		{"E4 frozen machines, repeats under an ended session are answered proceed", Holds, both, 0, func(g *endedConfig) {
			g.repeatProceeds, g.frozen, g.live = true, true, true
		}},
		{"E5 each EndSession arrives once; an opener has it proposed again", Holds, both, 0, func(g *endedConfig) {
			g.once, g.openerRepeats, g.live = true, true, true
		}},
		{"E6 as E1, no deaths", Holds, both, hold, func(g *endedConfig) { g.noDeaths, g.live = true, true }},
		{"E7 one session works; its end may be withheld while its effect runs", Holds, both, hold, func(g *endedConfig) {
			g.withheld, g.operations, g.live = true, 2, true
		}},
		{"EN1 control 2: revisions are not compared", Violates, both, hold, func(g *endedConfig) { g.noComparison = true }},
		{"EN2 control: a rejected EndSession is remembered", Violates, both, hold, func(g *endedConfig) { g.rememberRejected = true }},
		{"EN3 control: an accepted EndSession is not remembered", Violates, both, hold, func(g *endedConfig) { g.noMemory = true }},
		{"EN4 control: an ended session is forgotten while a copy of an Open lives", Violates, both, hold, func(g *endedConfig) { g.forgets = true }},
		{"EN5 control: a batch that is not repeated", Blocks, both, hold, func(g *endedConfig) {
			g.once, g.operations, g.live = true, 2, true
		}},
		{"EN6 control: an end is withheld for a dead owner, too", Blocks, both, hold, func(g *endedConfig) {
			g.withheldForDead, g.operations, g.live = true, 2, true
		}},
	})
}
