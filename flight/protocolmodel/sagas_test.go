package protocolmodel

import "math/bits"

// The model of sagas: a forward step that the driver performs, then a forward step that a pool performs, then the undo
// of the first. Two drivers, one after the other, and a worker of the pool, each with a long-lived session. A step's Open
// names the number of the driver's attempt. Commands arrive never, once or again and again.

// The steps of the saga.
const (
	stepDriven = iota
	stepPooled
	stepUndo
	stepCount
)

const poolWorker = 2 // drivers are 0 and 1

type sagaStep struct {
	ledger        // an attempt's nonce is the number of the driver's attempt, 0 for the pool's step
	owner   uint8 // of the newest attempt
	effects uint8
}

type sagaActor struct {
	process
	drives uint8 // number of its attempt as driver; 0: none
	phase  uint8 // of the step in its hands, as of operations; operationUnused: none
	step   uint8
}

type sagasState struct {
	undoing, closed       uint8 // the phase of the saga; it is over
	driverCount           uint8
	driverOpen            uint8 // the newest driver's attempt is open
	driverOwner           uint8 // per driver's attempt: its caller
	submitted             uint8 // the pool's step
	steps                 [stepCount]sagaStep
	actors                [3]sagaActor
	opens                 [2]uint8 // per driver's attempt: steps whose Open was sent
	submits, undoRequests uint8    // sent, per driver's attempt
	poolOpen              uint8    // sent
	fault                 uint8    // 1: opened without its driver, 2: forward after BeginUndo, 3: undo before it
}

// sagasConfig is a configuration of the model of sagas.
type sagasConfig struct {
	scope

	// Controls.
	noFence      bool // a step opens whether its driver's attempt is open or not
	noPhase      bool // the pool's step opens in any phase of the saga
	noPhaseDrive bool // a driver's step opens in any phase of the saga
	noWait       bool // an undo starts although a forward step is open
	endsAlone    bool // EndSession ends the driver's attempt and leaves its steps open
}

func (s *sagasState) drivenBy(number int) bool {
	return s.driverOpen == 1 && int(s.driverCount) == number
}

func (s *sagasState) openStep(step, owner, driver int) {
	p := &s.steps[step]
	p.open(driver)
	p.forgetOlder()
	p.owner = uint8(owner)
	switch {
	case step != stepPooled && !s.drivenBy(driver):
		s.fault = 1
	case step != stepUndo && s.undoing == 1:
		s.fault = 2
	case step == stepUndo && s.undoing == 0:
		s.fault = 3
	}
}

// applyOpen is the Open of a step by a driver.
func (c *sagasConfig) applyOpen(t *sagasState, number, step int) {
	p := &t.steps[step]
	right := (step == stepUndo) == (t.undoing == 1)
	if t.closed == 1 || p.answer(number) != answerFree || p.attemptCount == 2 ||
		!right && !c.noPhaseDrive || !t.drivenBy(number) && !c.noFence {
		return
	}
	t.openStep(step, c.ownerOf(t, number), number)
}

// ownerOf returns the caller of a driver's attempt.
func (c *sagasConfig) ownerOf(t *sagasState, number int) int {
	return int(t.driverOwner) >> (number - 1) & 1
}

func (c *sagasConfig) applyEnded(t *sagasState, actor int) {
	if t.driverOpen == 1 && c.ownerOf(t, int(t.driverCount)) == actor {
		t.driverOpen = 0
	}
	for i := range t.steps {
		p := &t.steps[i]
		if p.flight == running && int(p.owner) == actor && !(c.endsAlone && i != stepPooled) {
			p.lose(attemptLost, c.hold)
		}
	}
}

func (c *sagasConfig) successors(s *sagasState, out *steps[sagasState]) {
	sessions := sessionRules[sagasState]{
		of:   func(s *sagasState, a int) *process { return &s.actors[a].process },
		dies: func(t *sagasState, a int) { t.actors[a] = sagaActor{process: t.actors[a].process} },
	}
	for a := range s.actors {
		if s.actors[a].alive == 1 {
			if a != poolWorker {
				c.driverSteps(s, a, out)
			} else {
				c.workerSteps(s, out)
			}
			if s.actors[a].phase != operationUnused {
				c.performSteps(s, a, out)
			}
		}
		sessions.steps(s, a, out)
		if s.actors[a].session != sessionAlive {
			t := *s
			c.applyEnded(&t, a)
			out.add(t, eventually, "ledger: EndSession", a)
		}
	}
	for number := 1; number <= int(s.driverCount); number++ {
		c.messageSteps(s, number, out)
	}
	if s.poolOpen == 1 && s.submitted == 1 && s.closed == 0 && s.steps[stepPooled].flight == free &&
		s.steps[stepPooled].attemptCount == 0 && (s.undoing == 0 || c.noPhase) {
		t := *s
		t.openStep(stepPooled, poolWorker, 0)
		out.add(t, s.actors[poolWorker].phase == operationAwaits, "ledger: Open of the pool's step")
	}
}

// driverSteps: an actor drives the saga and decides the next step.
func (c *sagasConfig) driverSteps(s *sagasState, a int, out *steps[sagasState]) {
	q := &s.actors[a]
	t := *s
	number := int(q.drives)
	if number == 0 {
		alike := s.driverCount == 0 && a == 1 // the first driver is caller 0: callers are alike
		if s.driverOpen == 0 && s.driverCount < 2 && s.closed == 0 && q.trusts == 1 && !alike {
			t.driverCount++
			t.driverOpen = 1
			t.driverOwner |= uint8(a) << (t.driverCount - 1)
			t.actors[a].drives = t.driverCount
			out.add(t, perhaps, "driver opens", a, int(t.driverCount))
		}
		return
	}
	if q.phase != operationUnused {
		return
	}
	t.actors[a].drives = 0 // it abandons its attempt; copies of its commands remain
	if s.drivenBy(number) {
		t.driverOpen = 0
	}
	out.add(t, q.trusts == 0 || !s.drivenBy(number), "driver abandons", a, number)
	if !s.drivenBy(number) || q.trusts == 0 {
		return
	}
	begin := func(step int) {
		t := *s
		t.opens[number-1] |= bit(step)
		t.actors[a].phase, t.actors[a].step = operationAwaits, uint8(step)
		out.add(t, eventually, "driver opens step", number, step)
	}
	driven, pooled, undo := &s.steps[stepDriven], &s.steps[stepPooled], &s.steps[stepUndo]
	over := false
	switch {
	case s.undoing == 0 && driven.flight == free && !has(s.opens[number-1], stepDriven):
		begin(stepDriven)
	case s.undoing == 0 && driven.flight == done && s.submitted == 0 && !has(s.submits, number-1):
		t := *s
		t.submits |= bit(number - 1)
		out.add(t, eventually, "driver submits the pool's step", number)
	case s.undoing == 1 && (pooled.flight != running || c.noWait) && driven.flight == done && undo.flight == free &&
		!has(s.opens[number-1], stepUndo):
		begin(stepUndo)
	case s.undoing == 0 && pooled.flight == done, undo.flight == done,
		s.undoing == 1 && driven.flight == free && pooled.flight != running:
		over = true
	}
	if over {
		t := *s
		t.closed, t.driverOpen, t.actors[a].drives = 1, 0, 0
		out.add(t, eventually, "ledger: report of the driver, the saga is over", number)
	}
	if s.undoing == 0 && !has(s.undoRequests, number-1) {
		t := *s
		t.undoRequests |= bit(number - 1)
		out.add(t, perhaps, "driver proposes BeginUndo", number)
	}
}

func (c *sagasConfig) workerSteps(s *sagasState, out *steps[sagasState]) {
	q := &s.actors[poolWorker]
	if q.phase == operationUnused && s.submitted == 1 && q.trusts == 1 && s.poolOpen == 0 {
		t := *s
		t.poolOpen = 1
		t.actors[poolWorker].phase, t.actors[poolWorker].step = operationAwaits, stepPooled
		out.add(t, perhaps, "worker opens the pool's step")
	}
}

// performSteps: an actor with a step in its hands waits for proceed, starts the effect, and reports.
func (c *sagasConfig) performSteps(s *sagasState, a int, out *steps[sagasState]) {
	q := &s.actors[a]
	p := &s.steps[q.step]
	ownsStep := int(p.owner) == a && p.isNewest(int(q.drives))
	t := *s
	switch q.phase {
	case operationAwaits, operationProceeds:
		if q.phase == operationAwaits && ownsStep && p.flight == running {
			t.actors[a].phase = operationProceeds
			out.add(t, eventually, "answered proceed: actor, step", a, int(q.step))
		}
		if q.phase == operationAwaits && p.flight == done { // a late report of an earlier attempt
			t := *s
			t.actors[a].phase = operationUnused
			out.add(t, eventually, "answered replay: actor, step", a, int(q.step))
		}
		if q.phase == operationProceeds && q.trusts == 1 {
			t := *s
			t.steps[q.step].effects++
			t.actors[a].phase = operationActed
			out.add(t, eventually, "EFFECT: actor, step", a, int(q.step))
		}
		t = *s
		t.actors[a].phase = operationUnused
		if a != poolWorker { // a driver that gives a step up gives its attempt up, too
			if s.drivenBy(int(q.drives)) {
				t.driverOpen = 0
			}
			t.actors[a].drives = 0
		} else {
			t.poolOpen = 2
		}
		t.steps[q.step].abandonUnlessFree(int(q.drives))
		right := (q.step == stepUndo) == (s.undoing == 1)
		lost := q.phase == operationAwaits && (!right || a != poolWorker && !s.drivenBy(int(q.drives))) && p.flight != running
		out.add(t, q.trusts == 0 || lost || p.flight == inDoubt || s.closed == 1, "gives up: actor, step", a, int(q.step))
	case operationActed:
		if ownsStep {
			t.steps[q.step].report(int(p.attemptCount) - 1)
		}
		t.actors[a].phase = operationUnused
		out.add(t, eventually, "ledger: report: actor, step", a, int(q.step))
	}
}

func (c *sagasConfig) messageSteps(s *sagasState, number int, out *steps[sagasState]) {
	driven := s.drivenBy(number)
	for step := range stepCount {
		if has(s.opens[number-1], step) && step != stepPooled {
			t := *s
			c.applyOpen(&t, number, step)
			out.add(t, driven, "ledger: Open of step", number, step)
		}
	}
	if has(s.submits, number-1) && driven && s.undoing == 0 {
		t := *s
		t.submitted = 1
		out.add(t, eventually, "ledger: the pool's step submitted", number)
	}
	if has(s.undoRequests, number-1) && driven {
		t := *s
		t.undoing = 1
		out.add(t, eventually, "ledger: the undo begins", number)
	}
}

func (c *sagasConfig) violation(s *sagasState) string {
	switch s.fault {
	case 1:
		return "SA1 a step opens under a driver's attempt that is not open"
	case 2:
		return "SA2 a forward step opens after BeginUndo"
	case 3:
		return "SA2 an undo opens before BeginUndo"
	}
	forward, undo, drivers := 0, int(s.steps[stepUndo].effects), 0
	for a := range s.actors {
		q := &s.actors[a]
		p := &s.steps[q.step]
		if q.trusts == 0 || q.phase != operationProceeds && q.phase != operationActed {
			continue
		}
		if status := p.newest().status; int(p.owner) != a || status != attemptOpen && status != attemptDone {
			return "S4 the attempt of a caller that may start, or has, was closed by another"
		}
		if q.phase == operationActed {
			continue
		}
		if q.step == stepUndo {
			undo++
		} else {
			forward++
		}
		if a != poolWorker {
			drivers++
		}
	}
	switch {
	case drivers > 1:
		return "S2 two drivers may start at the same time"
	case forward > 0 && undo > 0:
		return "SA3 a forward effect may start while, or after, an undo does"
	}
	for i := range s.steps {
		if c.hold && s.steps[i].effects > 1 {
			return "S1 two effects of a step under hold"
		}
	}
	return ""
}

func (c *sagasConfig) settled(s *sagasState) bool {
	if s.closed == 1 {
		return true
	}
	for i := range s.steps {
		switch p := &s.steps[i]; {
		case p.flight == running:
			return false
		case p.flight == inDoubt:
			return true
		}
	}
	for a := range s.actors {
		if q := &s.actors[a]; q.alive == 1 && q.phase != operationUnused {
			return false
		}
	}
	if s.undoing == 1 && s.steps[stepPooled].flight == done {
		return true // the bound: the model has no undo of the pool's step
	}
	waits := s.submitted == 1 && s.steps[stepPooled].flight == free && s.undoing == 0 // for a worker
	return s.driverOpen == 0 || waits
}

func (c sagasConfig) run(limits Limits) Result {
	var initial sagasState
	for a := range initial.actors {
		initial.actors[a] = sagaActor{process: trusting}
	}
	return explore(model[sagasState]{
		initial: initial, successors: c.successors, violation: c.violation, settled: c.settled, live: c.live,
		outcome: func(s *sagasState) outcome {
			effects := uint8(0)
			for i := range s.steps {
				effects += uint8(bits.Len8(s.steps[i].effects))
			}
			o := outcome{effects: effects, flight: running}
			if s.closed == 1 {
				o.flight = done
			}
			return o
		},
	}, limits)
}
