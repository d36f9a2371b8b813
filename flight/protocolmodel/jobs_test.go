package protocolmodel

// The model of jobs handed out: a worker sends a claim request through either of two nodes; a node picks a job, as its
// view shows it, and opens an attempt whose nonce is derived from the nonce of the request and the job. Requests and
// Opens arrive never, once or again and again. One worker with a long-lived session and two requests, two jobs.

// jobHandler is a claim request at a node; nonce: request*4 + job*2 + node. The node is part of it in the control alone.
type jobHandler struct{ phase, nonce uint8 }

// The phases of a claim request at a node.
const (
	handoutNone = iota
	handoutTaken
	handoutProposed // an Open was proposed
)

type jobRow struct{ phase, nonce uint8 } // phases as of operations; nonce + 1 of the job that it works on

type jobsState struct {
	jobs           [2]ledger
	opens, answers uint8 // nonces
	requests       uint8 // claim requests sent
	handlers       [2][2]jobHandler
	rows           [2]jobRow // the worker's table
	worker         process
	shown          uint8 // jobs that an answer to a renewal shows
	effects        [2]uint8
	falseDoubt     uint8
}

// jobsConfig is a configuration of the model of jobs.
type jobsConfig struct {
	scope
	requests  int  // 1 or 2
	fresh     bool // control: a new nonce per hand-out
	forgets   bool // control: the worker forgets a request that it is through with
	checkSame bool // a repeat is never answered with another job while the first is open
}

func (c *jobsConfig) nonce(request, job, node int) int {
	if !c.fresh {
		node = 0
	}
	return request*4 + job*2 + node
}

func jobOf(nonce int) int     { return nonce / 2 % 2 }
func requestOf(nonce int) int { return nonce / 4 }

// job returns the flight of the job of a nonce.
func (s *jobsState) job(nonce int) *ledger { return &s.jobs[jobOf(nonce)] }

// mayOpen reports whether an Open opens an attempt, within the bound.
func (s *jobsState) mayOpen(nonce int) bool {
	l := s.job(nonce)
	return l.answer(nonce) == answerFree && l.attemptCount < 2
}

func (c *jobsConfig) successors(s *jobsState, out *steps[jobsState]) {
	sessions := sessionRules[jobsState]{
		of:   func(s *jobsState, _ int) *process { return &s.worker },
		dies: func(t *jobsState, _ int) { t.rows = [2]jobRow{{phase: operationOver}, {phase: operationOver}} },
	}
	for r := range c.requests {
		if s.worker.alive == 1 {
			c.workerSteps(s, r, out)
		}
		for node := range 2 {
			if has(s.requests, r) {
				c.nodeSteps(s, node, r, out)
			}
		}
	}
	for n := range 8 {
		if has(s.opens, n) && s.mayOpen(n) {
			t := *s
			t.job(n).open(n)
			out.add(t, perhaps, "ledger: late Open: request, job", requestOf(n), jobOf(n))
		}
	}
	for j := range 2 {
		if s.jobs[j].flight == running && s.worker.session != sessionAlive {
			t := *s
			t.jobs[j].lose(attemptLost, c.hold)
			out.add(t, eventually, "ledger: EndSession", j)
		}
		if s.worker.alive == 1 {
			c.showSteps(s, j, out)
		}
	}
	sessions.steps(s, 0, out)
}

func (c *jobsConfig) workerSteps(s *jobsState, r int, out *steps[jobsState]) {
	row := s.rows[r]
	n := int(row.nonce) - 1
	t := *s
	switch row.phase {
	case operationUnused:
		if s.worker.trusts == 1 && (r == 0 || s.rows[0].phase == operationOver) {
			t.rows[r].phase = operationAwaits
			t.requests |= bit(r)
			out.add(t, perhaps, "worker sends claim request", r)
		}
	case operationAwaits:
		for n := range 8 {
			if requestOf(n) == r && has(s.answers, n) {
				t := *s
				t.rows[r] = jobRow{operationProceeds, uint8(n) + 1}
				out.add(t, eventually, "worker is handed job", r, jobOf(n))
			}
		}
		t.rows[r].phase = operationOver
		out.add(t, s.worker.trusts == 0 || !c.anyFree(s), "worker leaves request", r)
	case operationProceeds:
		if s.worker.trusts == 1 {
			t := *s
			t.effects[jobOf(n)]++
			t.rows[r].phase = operationActed
			out.add(t, eventually, "EFFECT: request, job", r, jobOf(n))
		}
		t.job(n).abandonUnlessFree(n)
		t.rows[r].phase = operationOver
		out.add(t, s.worker.trusts == 0 || !s.job(n).isOpen(n), "worker gives up; ledger: Abandon", r, jobOf(n))
	case operationActed:
		if l := t.job(n); l.isNewest(n) {
			l.report(int(l.attemptCount) - 1)
		}
		t.rows[r].phase = operationOver
		out.add(t, eventually, "ledger: report", r, jobOf(n))
	}
}

// anyFree reports whether a job may still be handed out, within the bound.
func (c *jobsConfig) anyFree(s *jobsState) bool {
	for _, l := range s.jobs {
		if l.flight == running || l.flight == free && l.attemptCount < 2 {
			return true
		}
	}
	return false
}

func (c *jobsConfig) nodeSteps(s *jobsState, node, r int, out *steps[jobsState]) {
	h := s.handlers[node][r]
	awaited := s.worker.alive == 1 && s.rows[r].phase == operationAwaits
	t := *s
	switch h.phase {
	case handoutNone:
		t.handlers[node][r].phase = handoutTaken
		out.add(t, awaited, "node takes claim request", node, r)
	case handoutTaken:
		for j := range 2 {
			n := c.nonce(r, j, node)
			t := *s
			if s.jobs[j].isOpen(n) && !c.fresh { // the view shows an attempt of this request
				t.answers |= bit(n)
				t.handlers[node][r] = jobHandler{}
				out.add(t, eventually, "node repeats its answer: job", node, r, j)
			}
			t = *s // a lagging view shows any job as free
			t.opens |= bit(n)
			t.handlers[node][r] = jobHandler{handoutProposed, uint8(n) + 1}
			out.add(t, s.jobs[j].flight == free, "node proposes Open: job", node, r, j)
		}
	case handoutProposed:
		n := int(h.nonce) - 1
		if s.mayOpen(n) {
			t.job(n).open(n)
		}
		if t.job(n).isOpen(n) {
			t.answers |= bit(n)
		}
		t.handlers[node][r] = jobHandler{}
		out.add(t, eventually, "ledger: Open; node answers", node, r, jobOf(n))
	}
	if h.phase != handoutNone {
		t := *s
		t.handlers[node][r] = jobHandler{}
		out.add(t, perhaps, "node crashes, or its answer is lost", node, r)
	}
}

// showSteps is rule 8 for attempts of jobs.
func (c *jobsConfig) showSteps(s *jobsState, j int, out *steps[jobsState]) {
	if s.jobs[j].flight != running || s.worker.session != sessionAlive {
		return
	}
	n := int(s.jobs[j].newest().nonce)
	row := s.rows[requestOf(n)]
	if int(row.nonce) == n+1 && (row.phase == operationProceeds || row.phase == operationActed) {
		return // the worker works on it
	}
	knows := !c.fresh && !(c.forgets && row.phase == operationOver) || has(s.answers, n) && !c.forgets
	if knows && row.phase == operationAwaits {
		return // the worker waits for it
	}
	if s.shown&bit(j) == 0 {
		t := *s
		t.shown |= bit(j)
		out.add(t, eventually, "renewal shows the attempt of job", j)
		return
	}
	t := *s
	t.shown &^= bit(j)
	if knows {
		t.job(n).abandonUnlessFree(n)
		out.add(t, eventually, "shown: worker abandons the attempt of job", j)
		return
	}
	if s.effects[j] == 0 {
		t.falseDoubt = 1
	}
	t.jobs[j].lose(attemptUnknown, c.hold)
	out.add(t, eventually, "shown: worker does not know the nonce, and reports unknown", j)
}

// canonical clears fields that no rule reads any more, and orders the interchangeable nodes.
func (c *jobsConfig) canonical(t *jobsState) {
	for r := range t.rows {
		a, b := &t.handlers[0][r], &t.handlers[1][r]
		if !c.fresh && (a.phase > b.phase || a.phase == b.phase && a.nonce > b.nonce) {
			*a, *b = *b, *a
		}
	}
	for n := range 8 {
		if phase := t.rows[requestOf(n)].phase; phase != operationAwaits {
			t.answers &^= bit(n)
		}
		if l := t.job(n); has(l.used, n) && !l.isOpen(n) {
			t.opens &^= bit(n)
		}
	}
	for j := range 2 {
		t.jobs[j].forgetOlder()
		if t.jobs[j].flight != running {
			t.shown &^= bit(j)
		}
	}
}

func (c *jobsConfig) violation(s *jobsState) string {
	for j := range 2 {
		if c.hold && s.effects[j] > 1 {
			return "S1 two effects under hold"
		}
	}
	for r, row := range s.rows {
		if row.phase != operationProceeds || s.worker.trusts == 0 {
			continue
		}
		if n := int(row.nonce) - 1; !s.job(n).isOpen(n) {
			return "S4 the attempt of a caller that may start was closed by another"
		}
		for n := range 8 {
			if c.checkSame && requestOf(n) == r && n != int(row.nonce)-1 && s.job(n).isOpen(n) {
				return "J1 a claim request has two jobs open"
			}
		}
	}
	if s.falseDoubt == 1 {
		return "D1 a live owner reported an attempt that it never started as unknown"
	}
	return ""
}

func (c *jobsConfig) settled(s *jobsState) bool {
	for _, l := range s.jobs {
		if l.flight == running {
			return false
		}
	}
	for _, row := range s.rows {
		if s.worker.alive == 1 && row.phase >= operationAwaits && row.phase <= operationActed {
			return false
		}
	}
	return true
}

func (c jobsConfig) run(limits Limits) Result {
	return explore(model[jobsState]{
		initial: jobsState{worker: trusting}, successors: c.successors, canonical: c.canonical, violation: c.violation, settled: c.settled, live: c.live,
		outcome: func(s *jobsState) outcome {
			return outcome{effects: s.effects[0] + s.effects[1], flight: s.jobs[0].flight, falseDoubt: s.falseDoubt == 1}
		},
	}, limits)
}

// jobsConfigurations has letter J.
func jobsConfigurations() []Configuration {
	return table(jobsConfig{requests: 1}, []row[jobsConfig]{
		{"J1 nonces derived from the claim request", Holds, both, hold, func(g *jobsConfig) { g.live = true }},
		{"J3 as J1, two requests of the worker", Holds, both, 0, func(g *jobsConfig) { g.requests, g.live = 2, true }},
		{"J2 a repeat through another node is answered with another job", Violates, both, hold, func(g *jobsConfig) { g.checkSame = true }},
		{"JN1 control: a new nonce per hand-out", Violates, both, hold, func(g *jobsConfig) { g.fresh = true }},
		{"JN2 control: the worker forgets a request that it is through with", Violates, both, hold, func(g *jobsConfig) { g.forgets = true }},
	})
}
