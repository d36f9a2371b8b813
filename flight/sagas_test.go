package flight_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// sagaPlan has the steps of a saga that is explored.
type sagaPlan struct {
	name  string
	steps []planStep
}

type planStep struct {
	name   string
	needs  int // the step before it, from 1; 0: none
	undo   bool
	pivot  bool
	policy flight.Policy
}

// sagaWorld is a saga in a ledger, with its steps and their undos, which workers perform, and two nodes that drive it. The second node leads
// from some time on. Commands of the first may still be on their way then: each arrives at any time, or never. Commands are applied by the rules.
type sagaWorld struct {
	header  flight.Header
	flights []*flight.Flight // the saga, its steps, and their undos
	drivers [2]sagaDriver
	leader  int
}

type sagaDriver struct {
	opened   bool             // its Open was answered proceed
	token    flight.Token     // of its attempt, also of one whose Open is on its way
	onTheWay []flight.Command // in their order
}

// sagaRule is a definition of sagas: the plan, and what differs from the product.
type sagaRule struct {
	name string
	plan *sagaPlan
	// sees changes a command and what it sees. The flight of the command is flights[i].
	sees func(w *sagaWorld, i int, v *flight.View, c flight.Command) flight.Command
	// makes changes the flight after a command.
	makes func(i int, f *flight.Flight)
	// flips: the driver flips as soon as the saga is cancelled; flipsWithCancels: in the proposal that cancels the steps that wait.
	flips, flipsWithCancels bool
	noCommitted             bool // the driver passes no pivot
	readsBeforeOpen         bool // a driver that finds the open attempt of another one decides by what it sees then
	losesOpens              bool // an Open is lost, and the rest of its proposal is not
	seesOwnCancel           bool // a driver that cancels the saga says that it has looked since
	violates                string
	large                   bool // not with -short, and not with the race detector
	deep                    bool // only with the build tag deep
}

// step returns the step of flights[i], and whether the flight is its undo.
func (p *sagaPlan) step(i int) (step int, undo bool) {
	if i <= len(p.steps) {
		return i, false
	}
	return i - len(p.steps), true
}

func (p *sagaPlan) key(i int) flight.Key {
	if i == 0 {
		return sagaKey
	}
	step, undo := p.step(i)
	name := p.steps[step-1].name
	if undo {
		name += ".undo"
	}
	key, _ := sagaKey.Step(name)
	return key
}

func over(f *flight.Flight) bool { return f != nil && f.State.Terminal() }

func created(f *flight.Flight) bool { return f != nil && f.State != flight.StateAbsent }

func succeeded(f *flight.Flight) bool { return f != nil && f.State == flight.StateSucceeded }

// happened reports whether there is an effect to undo, or may be: also that of a step which was taken for not done, and has reported late.
func happened(f *flight.Flight) bool { return succeeded(f) || f != nil && (f.Overlap || f.Unknown) }

// live is how many steps and undos are not over.
func (w *sagaWorld) live() (n int) {
	for _, f := range w.flights[1:] {
		if created(f) && !over(f) {
			n++
		}
	}
	return n
}

// due reports whether the table has the saga among those that are to be driven on, after a start of the node.
func (w *sagaWorld) due() bool {
	table := flight.NewDue()
	for _, f := range w.flights {
		table.Update(nil, f)
	}
	for range table.DueSagas() {
		return true
	}
	return false
}

// decide returns the commands of a driver that sees this world.
func (w *sagaWorld) decide(rule *sagaRule, d sagaDriver) (flight.Token, []flight.Command) {
	var all []flight.Command
	saga, plan := w.flights[0], rule.plan
	token := flight.Token{StoreEpoch: w.header.StoreEpoch, Number: saga.Fence.Number + 1}
	if a := saga.OpenAttempt(); d.opened && a != nil && w.header.TokenOf(a) == d.token {
		token = d.token // it goes on
	} else if a != nil && !rule.readsBeforeOpen {
		return token, append(all, w.openSaga()) // commands of that driver may be on their way: only after this Open all that it has done can be seen
	} else {
		all = append(all, w.openSaga())
	}
	steps, undos := w.flights[1:1+len(plan.steps)], w.flights[1+len(plan.steps):]
	started, marked, phase := 0, saga.Cancel != nil, saga.Phase
	submit := func(i int) {
		policy := plan.steps[(i-1)%len(plan.steps)].policy
		all = append(all, &flight.Submit{Key: plan.key(i), Submission: flight.Submission{Policy: policy, Driver: token}})
		started++
	}
	allOver, failed := true, false
	for i, f := range steps {
		allOver, failed = allOver && over(f), failed || over(f) && !succeeded(f)
		if plan.steps[i].pivot && succeeded(f) && phase == flight.PhaseForward && !rule.noCommitted {
			all, phase = append(all, &flight.PassPivot{Key: sagaKey, Generation: 1, Token: token}), flight.PhaseCommitted
		}
	}
	if phase == flight.PhaseForward && failed && !marked {
		all, marked = append(all, &flight.Cancel{Key: sagaKey, Generation: 1, Reason: "a step failed"}), true
	}
	end := flight.OutcomeNone
	if phase == flight.PhaseForward && marked && !(rule.noCommitted && allOver && !failed) {
		settled := true
		for i, f := range steps {
			waits := created(f) && !f.Tainted() && f.OpenAttempt() == nil && (f.State == flight.StateReady || f.State == flight.StateScheduled)
			settled = settled && (!created(f) || over(f) || waits && rule.flipsWithCancels)
			if waits || created(f) && !over(f) && f.Tainted() && f.OpenAttempt() == nil && f.Policy.SafeIfAbsent {
				all = append(all, &flight.Cancel{Key: plan.key(i + 1), Generation: 1, Driver: token})
			}
		}
		if settled || rule.flips {
			all, phase = append(all, &flight.BeginUndo{Key: sagaKey, Generation: 1, Token: token}), flight.PhaseUndoing
		}
	} else if phase != flight.PhaseUndoing {
		if allOver {
			end = flight.OutcomeSucceeded
		}
		for i, step := range plan.steps {
			if !created(steps[i]) && (step.needs == 0 || over(steps[step.needs-1])) {
				submit(i + 1)
			}
		}
	}
	if phase == flight.PhaseUndoing {
		last, busy := -1, false
		for i, f := range steps {
			busy = busy || created(undos[i]) && !over(undos[i]) // one undo at a time
			if plan.steps[i].undo && happened(f) && !created(undos[i]) && (last < 0 || f.Ended.After(steps[last].Ended)) {
				last = i
			}
		}
		switch {
		case busy:
		case last >= 0:
			submit(1 + last + len(steps))
		default:
			end = flight.OutcomeRefused
		}
	}
	if end != flight.OutcomeNone {
		return token, append(all, &flight.Report{Key: sagaKey, Generation: 1, Token: token, Outcome: end})
	}
	return token, append(all, &flight.Suspend{Key: sagaKey, Generation: 1, Token: token, Wake: flight.Wake{Live: uint8(w.live() + started), Marked: saga.Cancel != nil || marked && rule.seesOwnCancel}})
}

func (w *sagaWorld) openSaga() *flight.Open {
	return &flight.Open{Key: sagaKey, Nonce: w.nonce(0), NotAfter: w.header.Now, StoreEpoch: w.header.StoreEpoch}
}

func (w *sagaWorld) nonce(i int) flight.Nonce {
	n := w.header.Version.Index
	return flight.Nonce{byte(i), byte(n), byte(n >> 8), byte(n >> 16), byte(1 + w.leader)}
}

// nothingToDo reports whether a driver that sees this world would only let the saga sleep.
func (w *sagaWorld) nothingToDo(rule *sagaRule) bool {
	_, all := w.decide(rule, sagaDriver{})
	_, sleeps := all[len(all)-1].(*flight.Suspend)
	return sleeps && len(all) == 2
}

// apply applies a command to a copy of the world.
func (w *sagaWorld) apply(rule *sagaRule, i int, c flight.Command) (*sagaWorld, flight.Reply) {
	next := *w
	next.flights = slices.Clone(w.flights)
	next.header.Version.Index++
	view := flight.View{Header: next.header, Flight: w.flights[i]}
	if i > 0 {
		view.Saga = w.flights[0]
	}
	if rule.sees != nil {
		c = rule.sees(w, i, &view, c)
	}
	after, reply := flight.Apply(view, c)
	next.header = after.Header
	if !reply.Changed {
		return w, reply
	}
	next.flights[i] = after.Flight
	if rule.makes != nil {
		made := *after.Flight
		rule.makes(i, &made)
		next.flights[i] = &made
	}
	return &next, reply
}

// judge names the property that a command has broken.
func (w *sagaWorld) judge(rule *sagaRule, next *sagaWorld, i int, c flight.Command) string {
	plan, saga := rule.plan, next.flights[0]
	before, after := w.flights[i], next.flights[i]
	opened := i > 0 && after.OpenAttempt() != nil && before.OpenAttempt() == nil
	began := i > 0 && created(after) && !created(before)
	steps, undos := next.flights[1:1+len(plan.steps)], next.flights[1+len(plan.steps):]
	anyLive := func(all []*flight.Flight) bool {
		return slices.ContainsFunc(all, func(f *flight.Flight) bool { return created(f) && !over(f) })
	}
	if step, undo := plan.step(max(i, 1)); undo && (opened || began) {
		switch {
		case anyLive(steps):
			return "undone before all is settled"
		case len(steps) > 1 && plan.steps[1].pivot && succeeded(steps[1]):
			return "undone past the pivot"
		case steps[step-1].Unknown && !plan.steps[step-1].policy.SafeIfAbsent:
			return "undone without knowing"
		}
		for j, f := range steps {
			other := created(undos[j]) && !over(undos[j])
			if j+1 != step && (other || succeeded(f) && f.Ended.After(steps[step-1].Ended) && !over(undos[j]) && plan.steps[j].undo) {
				return "undone in another order"
			}
		}
	} else if opened || began {
		switch {
		case saga.Phase == flight.PhaseUndoing:
			return "forward after the flip"
		case saga.Phase == flight.PhaseForward && saga.Cancel != nil && (began || !before.Tainted()):
			return "a new step after the cancel"
		}
	}
	if saga.Phase == flight.PhaseUndoing && anyLive(steps) {
		return "the flip forgets a step"
	}
	if over(saga) && !over(w.flights[0]) {
		if succeeded(saga) && saga.Phase == flight.PhaseForward && saga.Cancel != nil {
			return "done although it was cancelled"
		}
		for j, f := range next.flights[1:] {
			step, undo := plan.step(j + 1)
			letPass := func(f *flight.Flight) bool {
				return f != nil && f.Resolution != nil && f.Resolution.Finding == flight.FindingFail
			}
			undone := func() bool { f := undos[step-1]; return succeeded(f) || letPass(f) }
			unknown := func() bool {
				a := f.Newest()
				return a != nil && a.Outcome == flight.OutcomeUnknown && a.ReportedOutcomes&^(1<<flight.OutcomeUnknown) == 0 && f.Resolution == nil && f.State == flight.StateCancelled
			}
			switch {
			case created(f) && !over(f):
				return "the end forgets a step"
			case saga.State == flight.StateFailed && !undo && (succeeded(f) || f != nil && unknown()) && plan.steps[step-1].undo && !undone(): // a success that comes after the last look is an overlap
				return "an effect is not undone"
			case saga.State == flight.StateSucceeded && !undo && !succeeded(f) && !letPass(f):
				return "done without a step"
			}
		}
	}
	if saga.State == flight.StateWaiting && !next.due() && !next.nothingToDo(rule) {
		return "asleep although it has to act"
	}
	if s, ok := c.(*flight.Suspend); ok && i == 0 && !over(saga) && saga.OpenAttempt() == nil && next.due() && next.nothingToDo(rule) {
		if _, all := next.decide(rule, sagaDriver{}); all[1].(*flight.Suspend).Wake == s.Wake {
			return "driven without end"
		}
	}
	return ""
}

// sagaStep is a successor of a state; broken names the property that it breaks.
type sagaStep struct {
	by     string
	world  *sagaWorld
	broken string
	forced bool // it comes without the help of a person who cancels, or of the time at which the saga wakes
}

func (w *sagaWorld) successors(t *testing.T, rule *sagaRule) (all []sagaStep) {
	add := func(by string, next *sagaWorld, broken string) {
		all = append(all, sagaStep{by: by, world: next, broken: broken, forced: true})
	}
	apply := func(by string, i int, c flight.Command) {
		if next, reply := w.apply(rule, i, c); reply.Changed {
			add(by, next, w.judge(rule, next, i, c))
		}
	}
	plan := rule.plan
	for d := range w.drivers {
		me := w.drivers[d]
		if len(me.onTheWay) > 0 {
			c := me.onTheWay[0]
			i := 0
			for c.Target() != plan.key(i) {
				i++
			}
			next, reply := w.apply(rule, i, c)
			broken := ""
			if reply.Changed {
				broken = w.judge(rule, next, i, c)
			} else {
				copied := *w
				next = &copied
			}
			next.drivers[d].onTheWay = me.onTheWay[1:]
			if _, ok := c.(*flight.Open); ok {
				next.drivers[d].opened = reply.Decision == flight.DecisionProceed
			}
			add(fmt.Sprintf("%s of driver %d", strings.TrimPrefix(fmt.Sprintf("%T", c), "*flight."), d+1), next, broken)
		}
		if rule.losesOpens && len(me.onTheWay) > 1 && me.onTheWay[0].Target() == sagaKey {
			next := *w
			next.drivers[d].onTheWay = me.onTheWay[1:]
			add(fmt.Sprintf("a command of driver %d is lost", d+1), &next, "")
		}
		if d == w.leader && len(me.onTheWay) > 0 {
			next := *w
			next.drivers[d].onTheWay, next.drivers[d].opened = nil, false
			add(fmt.Sprintf("the rest of driver %d is lost", d+1), &next, "")
		}
		if d == w.leader && len(me.onTheWay) == 0 && w.due() {
			next := *w
			next.drivers[d].token, next.drivers[d].onTheWay = w.decide(rule, me)
			add(fmt.Sprintf("driver %d reads", d+1), &next, "")
		}
	}
	if w.leader == 0 {
		next := *w
		next.leader = 1
		add("another node leads", &next, "")
	}
	saga := w.flights[0]
	if saga.Cancel == nil {
		if next, reply := w.apply(rule, 0, &flight.Cancel{Key: sagaKey, Generation: 1, Actor: "ann"}); reply.Changed {
			all = append(all, sagaStep{by: "cancel", world: next, broken: w.judge(rule, next, 0, &flight.Cancel{})})
		}
	}
	if saga.State == flight.StateWaiting {
		next, _ := w.apply(rule, 0, &flight.WakeUp{Key: sagaKey, Generation: 1})
		all = append(all, sagaStep{by: "wake up", world: next})
	}
	for i, f := range w.flights {
		if i == 0 || !created(f) {
			continue
		}
		key := plan.key(i)
		name := func(what string) string { return what + " " + key.StepName() }
		if f.OpenAttempt() == nil && !over(f) {
			session := flight.Session{ID: flight.SessionID(fmt.Sprint("s", i)), Revision: 1, Epoch: w.header.LeaseEpoch}
			apply(name("open"), i, &flight.Open{Key: key, Session: session, Nonce: w.nonce(i), NotAfter: w.header.Now, StoreEpoch: w.header.StoreEpoch})
		}
		if a := f.Newest(); a != nil && (a.IsOpen() || a.Lost && a.ReportedOutcomes == 0) {
			for _, o := range []flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeNotDone, flight.OutcomeUnknown} {
				if over(f) && o != flight.OutcomeSucceeded {
					break // mere evidence
				}
				apply(name(o.String()), i, &flight.Report{Key: key, Generation: 1, Token: w.header.TokenOf(a), Outcome: o})
			}
			apply(name("abandon"), i, &flight.Abandon{Key: key, Nonce: a.Nonce, NotAfter: a.NotAfter, StoreEpoch: w.header.StoreEpoch})
		}
		if holder := f.Holder(); holder != nil {
			apply(name("session ends"), i, &flight.EndSession{Session: *holder, ReadRevision: 100, Epoch: w.header.LeaseEpoch, StoreEpoch: w.header.StoreEpoch})
		}
		if f.Verifying() && f.Verification.Nonce != (flight.Nonce{}) {
			for _, v := range []flight.Finding{flight.FindingHappened, flight.FindingNotHappened} {
				apply(name("look-up "+v.String()), i, &flight.ReportFinding{Key: key, Generation: 1, Verification: f.Verification.Number, Finding: v})
			}
		}
		for _, v := range []flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingFail} {
			apply(name("resolve "+v.String()), i, &flight.Resolve{Key: key, Generation: 1, Version: f.Version, Finding: v})
		}
		for _, c := range []flight.Command{&flight.Retry{Key: key, Generation: 1}, &flight.FreeKey{Key: key, Generation: 1}, &flight.Redact{Key: key, Generation: 1},
			&flight.Cancel{Key: key, Generation: 1}, &flight.SealKey{Key: key}} {
			_, reply := w.apply(rule, i, c)
			require.True(t, !reply.Changed || over(saga), "a person changes a step: %T", c)
		}
	}
	return all
}

// abstract is what distinguishes two states.
func (w *sagaWorld) abstract() string {
	b := make([]byte, 0, 128)
	flag := func(all ...bool) {
		bits := byte(0)
		for i, set := range all {
			if set {
				bits |= 1 << i
			}
		}
		b = append(b, bits)
	}
	saga := w.flights[0]
	open := flight.Token{}
	if a := saga.OpenAttempt(); a != nil {
		open = w.header.TokenOf(a)
	}
	b = append(b, byte(saga.State), byte(saga.Phase))
	flag(saga.Cancel != nil, open != flight.Token{}, w.leader == 1, saga.AttemptCount > 0)
	if saga.Wake != nil {
		b = append(b, saga.Wake.Live)
		flag(saga.Wake.Marked)
	}
	for i, d := range w.drivers {
		if len(d.onTheWay) == 0 && (d.token != open || i != w.leader || !d.opened) {
			b = append(b, '-')
			continue
		}
		flag(d.token == open, d.token.Number == saga.Fence.Number+1, d.opened)
		for _, c := range d.onTheWay {
			b = append(append(b, fmt.Sprintf("%T", c)[8:11]...), c.Target().StepName()...)
			if s, ok := c.(*flight.Suspend); ok {
				b = append(b, s.Wake.Live)
				flag(s.Wake.Marked)
			}
			if r, ok := c.(*flight.Report); ok {
				b = append(b, byte(r.Outcome))
			}
		}
		b = append(b, ';')
	}
	for i, f := range w.flights[1:] {
		if f == nil {
			b = append(b, '-')
			continue
		}
		b = append(b, byte(f.State))
		a := f.Newest()
		letPass := f.Resolution != nil && f.Resolution.Finding == flight.FindingFail
		if flag(f.Overlap, letPass, over(f) && a != nil && a.Lost && a.ReportedOutcomes == 0, f.Unknown); over(f) {
			order := byte(0)
			for _, g := range w.flights[1 : 1+len(w.flights)/2] {
				if i < len(w.flights)/2 && g != nil && g.Ended.After(f.Ended) {
					order++
				}
			}
			b = append(b, order)
			continue
		}
		b = append(b, byte(f.TaintingAttempts), byte(f.CountedAttempts))
		flag(f.Cancel != nil, f.OpenAttempt() != nil, f.Verifying() && f.Verification.Nonce != flight.Nonce{})
		if a != nil {
			flag(a.Lost, a.Taints)
			b = append(b, a.ReportedOutcomes)
		}
	}
	return string(b)
}

func sagaPlans() (one, trip, two, sent, held *sagaPlan) {
	resend := flight.Policy{Recovery: flight.RecoveryResend, Retry: flight.RetryPolicy{Attempts: 2}}
	hold := flight.Policy{Retry: flight.RetryPolicy{Attempts: 1}}
	one = &sagaPlan{name: "hotel", steps: []planStep{{name: "hotel", undo: true, policy: resend}}}
	trip = &sagaPlan{name: "hotel, pay, mail", steps: []planStep{{name: "hotel", undo: true, policy: resend}, {name: "pay", needs: 1, pivot: true, policy: hold}, {name: "mail", needs: 2, policy: hold}}}
	two = &sagaPlan{name: "hotel and car", steps: []planStep{{name: "hotel", undo: true, policy: hold}, {name: "car", undo: true, policy: hold}}}
	safe, safeHold := resend, hold
	safe.SafeIfAbsent, safeHold.SafeIfAbsent = true, true
	sent = &sagaPlan{name: "car, sent again, whose undo does no harm", steps: []planStep{{name: "car", undo: true, policy: safe}}}
	held = &sagaPlan{name: "car, whose undo does no harm", steps: []planStep{{name: "car", undo: true, policy: safeHold}}}
	return one, trip, two, sent, held
}

// withSaga lets a command of a step see its saga as change makes it.
func withSaga(v *flight.View, change func(saga *flight.Flight)) {
	saga := *v.Saga
	change(&saga)
	v.Saga = &saga
}

func unmark(saga *flight.Flight) { saga.Cancel = nil }

func sagaRules() []sagaRule {
	one, trip, two, sent, held := sagaPlans()
	nothing := &flight.WakeUp{Key: sagaKey}
	suspendAs := func(change func(w *sagaWorld, s *flight.Suspend)) func(*sagaWorld, int, *flight.View, flight.Command) flight.Command {
		return func(w *sagaWorld, _ int, _ *flight.View, c flight.Command) flight.Command {
			if s, ok := c.(*flight.Suspend); ok {
				changed := *s
				change(w, &changed)
				return &changed
			}
			return c
		}
	}
	const asleep = "asleep although it has to act"
	return []sagaRule{
		{name: "one step", plan: one},
		{name: "a step, the pivot, a step", plan: trip, large: true},
		{name: "two steps at once", plan: two, deep: true},
		{name: "a step that is undone without knowing", plan: held},
		{name: "a step that is sent again is undone without knowing", plan: sent},
		{name: "a step is submitted under the token of an earlier driver", plan: two, violates: "the flip forgets a step",
			sees: func(_ *sagaWorld, i int, v *flight.View, c flight.Command) flight.Command {
				if s, ok := c.(*flight.Submit); ok && i > 0 {
					withSaga(v, func(saga *flight.Flight) {
						saga.State, saga.Attempts = flight.StateRunning, []flight.Attempt{{Number: s.Submission.Driver.Number, StoreEpoch: 1}}
					})
				}
				return c
			}},
		{name: "a driver reads while the attempt of another one is open", plan: two, readsBeforeOpen: true, violates: "the flip forgets a step"},
		{name: "an Open is lost, and the rest of its proposal is not", plan: one, losesOpens: true, violates: asleep},
		{name: "an earlier driver suspends the saga", plan: trip, violates: asleep, sees: suspendAs(func(w *sagaWorld, s *flight.Suspend) {
			if a := w.flights[0].OpenAttempt(); a != nil {
				s.Token = a.Token()
			}
		})},
		{name: "an earlier driver keeps its attempt", plan: one, violates: "the end forgets a step", sees: func(w *sagaWorld, i int, _ *flight.View, c flight.Command) flight.Command {
			if _, ok := c.(*flight.Open); ok && i == 0 && w.flights[0].OpenAttempt() != nil {
				return nothing
			}
			return c
		}},
		{name: "a cancel does not stop new steps", plan: trip, violates: "a new step after the cancel", sees: func(_ *sagaWorld, i int, v *flight.View, c flight.Command) flight.Command {
			if i > 0 {
				withSaga(v, unmark)
			}
			return c
		}},
		{name: "a cancel stops a step of unknown outcome", plan: one, violates: "stuck", sees: func(w *sagaWorld, i int, _ *flight.View, c flight.Command) flight.Command {
			if _, ok := c.(*flight.Open); ok && i == 1 && w.flights[0].Cancel != nil && w.flights[0].Phase == flight.PhaseForward {
				return nothing
			}
			return c
		}},
		{name: "a step that has not happened waits for its driver", plan: trip, violates: asleep, sees: func(_ *sagaWorld, i int, v *flight.View, c flight.Command) flight.Command {
			switch c.(type) {
			case *flight.Report, *flight.Abandon, *flight.Resolve, *flight.ReportFinding, *flight.EndSession:
				if i > 0 {
					withSaga(v, unmark)
				}
			}
			return c
		}},
		{name: "a refused undo fails", plan: trip, violates: "an effect is not undone", makes: func(i int, f *flight.Flight) {
			if i > 3 && f.State == flight.StateInDoubt && !f.Tainted() {
				f.State = flight.StateFailed
			}
		}},
		{name: "a step of unknown outcome ends, and its undo may do harm", plan: one, violates: "undone without knowing", sees: func(_ *sagaWorld, i int, v *flight.View, c flight.Command) flight.Command {
			if i == 1 && v.Flight != nil {
				safe := *v.Flight
				safe.Policy.SafeIfAbsent, v.Flight = true, &safe
			}
			return c
		}},
		{name: "a step of unknown outcome ends as if it had not happened", plan: held, violates: "an effect is not undone", makes: func(_ int, f *flight.Flight) { f.Unknown = false }},
		{name: "a cancel does not end a step of unknown outcome whose undo does no harm", plan: held, violates: asleep, sees: func(_ *sagaWorld, i int, v *flight.View, c flight.Command) flight.Command {
			if _, cancels := c.(*flight.Cancel); i == 1 && v.Flight != nil && cancels {
				harmful := *v.Flight
				harmful.Policy.SafeIfAbsent, v.Flight = false, &harmful
			}
			return c
		}},
		{name: "the cancel is the flip", plan: trip, flips: true, violates: "the flip forgets a step"},
		{name: "the flip comes with the cancels of steps that wait", plan: trip, flipsWithCancels: true, violates: "the flip forgets a step"},
		{name: "there is no phase after the pivot", plan: trip, noCommitted: true, violates: "undone past the pivot"},
		{name: "a saga sleeps until a step is over after its suspend", plan: trip, violates: asleep, sees: suspendAs(func(w *sagaWorld, s *flight.Suspend) {
			s.Wake.Live = uint8(w.live())
		})},
		{name: "a saga sleeps although its driver has not seen the cancel", plan: trip, violates: asleep, sees: suspendAs(func(_ *sagaWorld, s *flight.Suspend) {
			s.Wake.Marked = true
		})},
		{name: "a driver sleeps behind its own cancel by what it has seen before", plan: two, seesOwnCancel: true, violates: asleep},
		{name: "a cancelled saga never sleeps", plan: trip, violates: "driven without end", sees: suspendAs(func(_ *sagaWorld, s *flight.Suspend) {
			s.Wake.Marked = false
		})},
	}
}

// TestSagas_Explored reaches every state of a saga, its steps, their workers and two drivers, and checks each. From every state the saga
// reaches its end without a cancel by a person and without its time. The other definitions are why it is defined so.
func TestSagas_Explored(t *testing.T) {
	for _, rule := range sagaRules() {
		t.Run(rule.name, func(t *testing.T) {
			if rule.large && (testing.Short() || fullDepth < 6) || rule.deep && fullDepth < 7 {
				t.Skip("large")
			}
			type visited struct {
				world *sagaWorld
				from  int32
				by    string
			}
			first := &sagaWorld{header: testHeader, flights: make([]*flight.Flight, 1+2*len(rule.plan.steps))}
			first.header.Version = flight.Version{Index: 1}
			first, _ = first.apply(&rule, 0, &flight.Submit{Key: sagaKey, Submission: flight.Submission{Policy: flight.Policy{Saga: true}}})
			found, list := map[string]int32{first.abstract(): 0}, []visited{{world: first}}
			var into [][]int32 // of each state: those from which a step that nobody may withhold leads to it
			var ends []int32
			trace := func(n int32) string {
				var by []string
				for ; n > 0; n = list[n].from {
					by = append(by, list[n].by)
				}
				slices.Reverse(by)
				return strings.Join(by, ", ")
			}
			into = append(into, nil)
			for n := 0; n < len(list); n++ {
				w := list[n].world
				list[n].world = nil
				if over(w.flights[0]) {
					ends = append(ends, int32(n))
				}
				require.Less(t, n, 6_000_000, "the states have no end")
				for _, next := range w.successors(t, &rule) {
					if next.broken != "" {
						require.Equal(t, rule.violates, next.broken, "%s, %s", trace(int32(n)), next.by)
						t.Logf("%s after %s, %s (%d states)", next.broken, trace(int32(n)), next.by, len(list))
						return
					}
					key := next.world.abstract()
					at, ok := found[key]
					if !ok {
						at = int32(len(list))
						found[key] = at
						list, into = append(list, visited{next.world, int32(n), next.by}), append(into, nil)
					}
					if next.forced && at != int32(n) {
						into[at] = append(into[at], int32(n))
					}
				}
			}
			reaches := make([]bool, len(list))
			for _, n := range ends {
				reaches[n] = true
			}
			for len(ends) > 0 {
				n := ends[len(ends)-1]
				ends = ends[:len(ends)-1]
				for _, m := range into[n] {
					if !reaches[m] {
						reaches[m] = true
						ends = append(ends, m)
					}
				}
			}
			if stuck := slices.Index(reaches, false); stuck >= 0 {
				require.Equal(t, rule.violates, "stuck", trace(int32(stuck)))
				t.Logf("stuck after %s (%d states)", trace(int32(stuck)), len(list))
				return
			}
			require.Empty(t, rule.violates, "the definition holds in %d states", len(list))
			t.Logf("holds in %d states", len(list))
		})
	}
}

// A step that ends unknown remembers how far the ledger's clock was set forward: its settle delay moves by later steps.
func TestSagas_EndUnknownRemembersTheClock(t *testing.T) {
	saga := flight.MustKey("test/trip/b-1")
	step, err := saga.Step("hotel")
	require.NoError(t, err)
	h := flight.Header{Deployment: "test", LeaseEpoch: 1, StoreEpoch: 1, Now: 1_000_000, Steps: time.Minute, Version: flight.Version{Index: 9}}
	of := &flight.Flight{Key: saga, ID: saga.FlightID(), Generation: 1, State: flight.StateRunning, Phase: flight.PhaseForward, Policy: flight.Policy{Saga: true},
		Cancel: &flight.Attribution{Reason: "a test"}, Attempts: []flight.Attempt{{Number: 1, StoreEpoch: 1}}, Fence: flight.Token{StoreEpoch: 1, Number: 1}}
	f := &flight.Flight{Key: step, ID: step.FlightID(), Generation: 1, State: flight.StateInDoubt, TaintingAttempts: 1, Policy: flight.Policy{SafeIfAbsent: true}}
	v, reply := flight.Apply(flight.View{Header: h, Flight: f, Saga: of}, &flight.Cancel{Key: step, Generation: 1, Driver: h.TokenOf(of.Newest())})
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
	require.True(t, v.Flight.Unknown)
	require.Equal(t, time.Minute, v.Flight.Steps)
}

// A look-up that was under way when its step ended unknown is evidence: the undo gets what it has found.
func TestSagas_FindingAboutAnUnknownStep(t *testing.T) {
	step, err := flight.MustKey("test/trip/b-1").Step("hotel")
	require.NoError(t, err)
	f := &flight.Flight{Key: step, ID: step.FlightID(), Generation: 1, State: flight.StateCancelled, Unknown: true, Verifications: 2, Attempts: []flight.Attempt{{Number: 1, StoreEpoch: 1}}}
	for verification, found := range map[uint32]int{1: 0, 2: 1} {
		v, reply := flight.Apply(flight.View{Header: testHeader, Flight: f}, &flight.ReportFinding{Key: step, Generation: 1, Verification: verification, Finding: flight.FindingHappened, ExternalID: "room_17"})
		require.Equal(t, flight.DecisionReplay, reply.Decision)
		require.Len(t, v.Flight.Evidence, found)
		require.Equal(t, found == 1, v.Flight.Overlap)
	}
}
