package saga

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

// maxExplored is the greatest number of steps of an explored saga.
const maxExplored = 5

// world is a saga with its steps in the real ledger rules, what has happened at the providers, and a driver that may be slow or dead.
type world struct {
	saga         *flight.Flight
	steps, undos [maxExplored]*flight.Flight
	happened     [maxExplored]bool // at the provider
	undone       [maxExplored]bool
	version      uint64
	late         bool           // the deadline has passed
	cancels      int            // of persons
	runsAgain    int            // decisions of persons to run a step again
	tooLate      int            // effects that happened after their flight had ended without success
	read         *flight.Flight // the saga as the driver has read it
	readSteps    *[2][maxExplored]*flight.Flight
	pending      []flight.Command // of a driver that was replaced, or is slow
}

// scenario is a saga to explore, with what may go wrong.
type scenario struct {
	name      string
	d         *Definition
	outcomes  string // of attempts: s succeeded, r refused, n not done, u unknown and happened, x unknown and did not happen
	cancel    bool
	stale     bool // the steps are read later than the saga
	slow      bool // the commands of a driver are applied one by one, and another driver may come between
	dies      bool // a driver may die after each command
	tooLate   bool
	runsAgain int
	short     bool // also with -short
}

var (
	worldKey  = flight.MustKey("test/trip/b-42")
	startTime = flight.Time(1_000_000)
	session   = flight.Session{ID: "A", Revision: 10, Epoch: 1}
)

const worldDeadline = 20 * time.Second

func (w *world) header() flight.Header {
	h := flight.Header{Deployment: "test", Secret: []byte("secret"), LeaseEpoch: 1, StoreEpoch: 1, Now: startTime, Version: flight.Version{Index: w.version}}
	if w.late {
		h.Now = startTime.Add(worldDeadline)
	}
	return h
}

// explorer explores one scenario.
type explorer struct {
	*scenario
	decide func(*Definition, *View) Next
	// stepsFirst: the driver reads the steps before the saga.
	stepsFirst bool
	keys       map[flight.Key]int // position of a step, or of an undo behind maxExplored
	stepKey    [maxExplored]flight.Key
	undoKey    [maxExplored]flight.Key
}

func newExplorer(s *scenario, decide func(*Definition, *View) Next) *explorer {
	e := &explorer{scenario: s, decide: decide, keys: make(map[flight.Key]int)}
	for i := range s.d.Steps {
		e.stepKey[i], _ = s.d.KeyOf(worldKey, i, false)
		e.undoKey[i], _ = s.d.KeyOf(worldKey, i, true)
		e.keys[e.stepKey[i]], e.keys[e.undoKey[i]] = i, maxExplored+i
	}
	return e
}

func (w *world) at(slot int) **flight.Flight {
	if slot >= maxExplored {
		return &w.undos[slot-maxExplored]
	}
	return &w.steps[slot]
}

// apply applies a command to the real rules. It returns an error if the command, which was accepted, breaks a promise of sagas.
func (e *explorer) apply(w *world, c flight.Command) (flight.Reply, error) {
	w.version++
	v := flight.View{Header: w.header()}
	slot, isStep := e.keys[c.Target()]
	at := &w.saga
	if isStep {
		at, v.Saga = w.at(slot), w.saga
	}
	v.Flight = *at
	before := *at
	after, reply := flight.Apply(v, c)
	*at = after.Flight
	if _, submits := c.(*flight.Submit); submits && !created(before) && created(*at) && slot >= maxExplored {
		if err := e.mayUndo(w, slot-maxExplored); err != nil {
			return reply, err
		}
	}
	if !isStep && !before.State.Terminal() && w.saga.State.Terminal() {
		return reply, e.isWellEnded(w)
	}
	return reply, nil
}

// mayUndo returns an error if the undo of step i must not start now.
func (e *explorer) mayUndo(w *world, i int) error {
	for j, f := range w.steps[:len(e.d.Steps)] {
		u := w.undos[j]
		switch {
		case created(f) && !f.State.Terminal():
			return fmt.Errorf("%s is undone before %s has settled", e.d.Steps[i].Name, e.d.Steps[j].Name)
		case j == i && (!happened(f) || f.Unknown && !e.safe(j)):
			return fmt.Errorf("%s is undone, and has not happened", e.d.Steps[i].Name)
		case j == i:
		case created(u) && !u.State.Terminal():
			return fmt.Errorf("%s and %s are undone at once", e.d.Steps[i].Name, e.d.Steps[j].Name)
		case !created(u) && e.d.Steps[j].Undo != nil && happened(f) && f.Ended.After(w.steps[i].Ended):
			return fmt.Errorf("%s is undone before %s, which ended later", e.d.Steps[i].Name, e.d.Steps[j].Name)
		}
	}
	if p := e.d.pivot(); p >= 0 && created(w.steps[p]) && w.steps[p].State == flight.StateSucceeded {
		return fmt.Errorf("%s is undone past the pivot", e.d.Steps[i].Name)
	}
	return nil
}

// safe reports whether the undo of a step does no harm if the step has not happened.
func (e *explorer) safe(step int) bool {
	undo := e.d.Steps[step].Undo
	return undo != nil && undo.SafeIfAbsent
}

// passed reports whether a person has let a flight pass.
func passed(f *flight.Flight) bool {
	return f != nil && f.State.Terminal() && f.Resolution != nil && f.Resolution.Finding == flight.FindingFail
}

// isWellEnded returns an error if the saga must not have ended like this: all effects have happened, or none is left.
func (e *explorer) isWellEnded(w *world) error {
	done := w.saga.State == flight.StateSucceeded
	if w.saga.AttemptCount == 0 {
		return nil // cancelled before it was driven
	}
	for i := range e.d.Steps {
		f, name := w.steps[i], e.d.Steps[i].Name
		switch {
		case created(f) && !f.State.Terminal():
			return fmt.Errorf("the saga has ended as %v, and %s is %v", w.saga.State, name, f.State)
		case created(w.undos[i]) && !w.undos[i].State.Terminal():
			return fmt.Errorf("the saga has ended, and the undo of %s is %v", name, w.undos[i].State)
		case done && (w.happened[i] || passed(f) || f == nil && e.d.Steps[i].If != nil):
		case done:
			return fmt.Errorf("the saga is done, and %s has not happened", name)
		case !w.happened[i] || w.undone[i] || passed(w.undos[i]) || e.d.Steps[i].NoUndo || e.d.Steps[i].Approval != nil:
		case f.Overlap && e.d.Steps[i].Undo == nil: // a pivot that has happened too late is for persons
		default:
			return fmt.Errorf("the saga is undone, and %s has happened", name)
		}
		if done && created(w.undos[i]) {
			return fmt.Errorf("the saga is done, and %s was undone", name)
		}
	}
	return nil
}

func (e *explorer) view(w *world) *View {
	n, at := len(e.d.Steps), w.header().Now
	if w.saga.Phase == flight.PhaseUndoing { // TestDecide shows what is before
		at = at.Add(time.Hour)
	}
	return &View{Now: at, Saga: w.saga, Input: []byte(`{"cents": 5}`), Steps: w.steps[:n:n], Undos: w.undos[:n:n], Bodies: func(int) []byte { return nil }}
}

// commands are those of a Next, in its order.
func (e *explorer) commands(saga *flight.Flight, n *Next) (all []flight.Command) {
	token := flight.Token{StoreEpoch: 1, Number: saga.Fence.Number + 1}
	g := saga.Generation
	open := &flight.Open{Key: worldKey, Submission: flight.Submission{Policy: saga.Policy}, NotAfter: startTime.Add(worldDeadline + 10*time.Second), StoreEpoch: 1}
	binary.BigEndian.PutUint32(open.Nonce[:], token.Number)
	add := func(c flight.Command) { all = append(all, c) }
	add(open)
	if n.Mark != "" {
		add(&flight.Cancel{Key: worldKey, Generation: g, Actor: "saga", Reason: n.Mark})
	}
	if n.PassPivot {
		add(&flight.PassPivot{Key: worldKey, Generation: g, Token: token})
	}
	for _, i := range n.Cancel {
		add(&flight.Cancel{Key: e.stepKey[i], Generation: 1, Driver: token})
	}
	if n.BeginUndo {
		add(&flight.BeginUndo{Key: worldKey, Generation: g, Token: token})
	}
	for _, i := range n.Seal {
		add(&flight.SealKey{Key: e.stepKey[i], Driver: token})
	}
	submit := func(key flight.Key, p flight.Policy) {
		p.Retry.MinBackoff = 0
		add(&flight.Submit{Key: key, Submission: flight.Submission{Policy: p, Driver: token}, Queue: &flight.Queue{}})
	}
	for _, i := range n.Submit {
		submit(e.stepKey[i], e.d.PolicyOf(i, false))
	}
	if n.Undo >= 0 {
		submit(e.undoKey[n.Undo], e.d.PolicyOf(n.Undo, true))
	}
	if n.End != nil {
		add(&flight.Report{Key: worldKey, Generation: g, Token: token, Outcome: n.End.Outcome, Body: flight.NewBlob("application/json", n.End.Body, 1000)})
	} else {
		add(&flight.Suspend{Key: worldKey, Generation: g, Token: token, Wake: flight.Wake{At: n.WakeAt, Live: uint8(n.Live), Marked: n.Marked}})
	}
	return all
}

func (e *explorer) live(w *world) (n int) {
	for i := range e.d.Steps {
		for _, f := range [...]*flight.Flight{w.steps[i], w.undos[i]} {
			if created(f) && !f.State.Terminal() {
				n++
			}
		}
	}
	return n
}

// due is the rule of flight.Due.
func (e *explorer) due(w *world) bool {
	switch s := w.saga; s.State {
	case flight.StateReady, flight.StateRunning:
		return true
	case flight.StateWaiting:
		deadline := s.CreatedAt.Add(worldDeadline) // other times come by themselves
		return e.live(w) < int(s.Wake.Live) || s.Wake.At > 0 && (w.late || s.Wake.At != deadline)
	}
	return false
}

// move is a step of the world. Only optional moves may never come.
type move struct {
	name     string
	to       *world
	optional bool
	person   bool
}

// moves returns all next worlds, or an error.
func (e *explorer) moves(w *world) (all []move, err error) {
	add := func(m move, apply func(next *world) (bool, error)) {
		if err != nil {
			return
		}
		next := *w
		ok, failed := apply(&next)
		if failed != nil {
			err = fmt.Errorf("%s: %w", m.name, failed)
		} else if ok {
			m.to = &next
			all = append(all, m)
		}
	}
	accept := func(next *world, c flight.Command) (bool, error) {
		reply, failed := e.apply(next, c)
		return reply.Decision == flight.DecisionAccepted && reply.Changed, failed
	}
	if w.saga.State.Terminal() && len(w.pending) == 0 {
		return nil, nil
	}
	for i := range e.d.Steps {
		for _, slot := range [...]int{i, maxExplored + i} {
			e.flightMoves(w, i, slot, add, accept)
		}
	}
	if e.cancel && w.cancels == 0 {
		add(move{name: "a person cancels", optional: true}, func(next *world) (bool, error) {
			next.cancels++
			return accept(next, &flight.Cancel{Key: worldKey, Generation: 1, Actor: "ann", Reason: "customer called"})
		})
	}
	if e.d.Deadline > 0 && !w.late {
		add(move{name: "the deadline", optional: true}, func(next *world) (bool, error) { next.late = true; return true, nil })
	}
	e.driverMoves(w, add)
	return all, err
}

type adder func(move, func(*world) (bool, error))

// flightMoves are those of workers, providers and persons at a step or an undo.
func (e *explorer) flightMoves(w *world, i, slot int, add adder, accept func(*world, flight.Command) (bool, error)) {
	f := *w.at(slot)
	if !created(f) {
		return
	}
	key, name, isUndo := e.stepKey[i], e.d.Steps[i].Name, slot >= maxExplored
	effect := func(w *world) *bool { return &w.happened[i] }
	if isUndo {
		key, name, effect = e.undoKey[i], name+".undo", func(w *world) *bool { return &w.undone[i] }
	}
	report := func(o flight.Outcome) *flight.Report {
		return &flight.Report{Key: key, Generation: f.Generation, Token: f.Newest().Token(), Outcome: o, ExternalID: "x", Error: "said so"}
	}
	switch {
	case f.OpenAttempt() != nil:
		for _, o := range e.outcomes {
			if o == 'r' && *effect(w) {
				continue // the provider knows the key
			}
			add(move{name: fmt.Sprintf("%s reports %c", name, o), optional: o != 's'}, func(next *world) (bool, error) {
				outcome := map[rune]flight.Outcome{'s': flight.OutcomeSucceeded, 'r': flight.OutcomeRefused, 'n': flight.OutcomeNotDone, 'u': flight.OutcomeUnknown, 'x': flight.OutcomeUnknown}[o]
				*effect(next) = *effect(next) || o == 's' || o == 'u'
				return accept(next, report(outcome))
			})
		}
	case f.State == flight.StateReady:
		add(move{name: name + " opens"}, func(next *world) (bool, error) {
			open := &flight.Open{Key: key, Session: session, NotAfter: next.header().Now.Add(30 * time.Second), StoreEpoch: 1}
			binary.BigEndian.PutUint32(open.Nonce[:], f.Fence.Number+1)
			reply, failed := e.apply(next, open)
			return reply.Decision == flight.DecisionProceed, failed
		})
	case f.State == flight.StateAwaitingApproval:
		for _, finding := range [...]flight.Finding{flight.FindingApproved, flight.FindingRejected} {
			add(move{name: name + " is " + finding.String(), person: true}, func(next *world) (bool, error) {
				if finding == flight.FindingApproved {
					*effect(next) = true // a gate has no other
				}
				return accept(next, &flight.DecideApproval{Key: key, Generation: f.Generation, Fingerprint: f.Fingerprint, Version: f.Version, Finding: finding})
			})
		}
	case f.State == flight.StateInDoubt:
		resolve := func(finding flight.Finding) func(next *world) (bool, error) {
			return func(next *world) (bool, error) {
				if finding == flight.FindingNotHappened {
					next.runsAgain++
				}
				return accept(next, &flight.Resolve{Key: key, Generation: f.Generation, Version: f.Version, Finding: finding, ExternalID: "x", Actor: "ann"})
			}
		}
		if *effect(w) {
			add(move{name: name + " has happened", person: true}, resolve(flight.FindingHappened))
		} else if w.runsAgain < e.runsAgain {
			add(move{name: name + " has not happened", person: true}, resolve(flight.FindingNotHappened))
		}
		if !*effect(w) || isUndo || w.saga.Phase == flight.PhaseCommitted {
			add(move{name: name + " is let pass", person: true}, resolve(flight.FindingFail))
		}
	}
	if a := f.Newest(); e.tooLate && a != nil && !a.IsOpen() && a.Outcome == flight.OutcomeUnknown && !f.State.Terminal() && *effect(w) {
		add(move{name: name + " reports its success late", optional: true}, func(next *world) (bool, error) { return accept(next, report(flight.OutcomeSucceeded)) })
	}
	if a := f.Newest(); e.tooLate && a != nil && a.Outcome == flight.OutcomeUnknown && f.State.Terminal() && f.State != flight.StateSucceeded && !isUndo && w.tooLate == 0 && !w.happened[i] {
		add(move{name: name + " happens too late", optional: true}, func(next *world) (bool, error) {
			next.tooLate++
			next.happened[i] = true
			reply, failed := e.apply(next, report(flight.OutcomeSucceeded))
			return reply.Changed, failed
		})
	}
}

// driverMoves are those of drivers.
func (e *explorer) driverMoves(w *world, add adder) {
	switch {
	case len(w.pending) > 0:
		add(move{name: fmt.Sprintf("slow driver: %T", w.pending[0])}, func(next *world) (bool, error) {
			next.pending = w.pending[1:]
			_, failed := e.apply(next, w.pending[0])
			return true, failed
		})
		add(move{name: "another driver", optional: true}, func(next *world) (bool, error) {
			if w.saga.State.Terminal() {
				return false, nil
			}
			return e.drive(next, e.view(w), -1)
		})
	case !e.due(w):
	case e.stale && w.read == nil:
		add(move{name: "the driver reads the saga"}, func(next *world) (bool, error) {
			next.read = w.saga
			if e.stepsFirst {
				next.readSteps = &[2][maxExplored]*flight.Flight{w.steps, w.undos}
			}
			return true, nil
		})
	case e.stale:
		add(move{name: "the driver decides"}, func(next *world) (bool, error) {
			v := e.view(w)
			v.Saga, next.read = w.read, nil
			if e.stepsFirst {
				v.Saga, v.Steps, v.Undos, next.readSteps = w.saga, w.readSteps[0][:len(e.d.Steps)], w.readSteps[1][:len(e.d.Steps)], nil
			}
			return e.drive(next, v, -1)
		})
	case e.slow:
		add(move{name: "a slow driver decides"}, func(next *world) (bool, error) {
			n := e.decide(e.d, e.view(w))
			next.pending = e.commands(w.saga, &n)
			return true, nil
		})
	default:
		add(move{name: "the driver"}, func(next *world) (bool, error) { return e.drive(next, e.view(w), -1) })
		for upTo := 1; e.dies && upTo < 6; upTo++ {
			add(move{name: fmt.Sprintf("a driver dies after %d commands", upTo), optional: true}, func(next *world) (bool, error) { return e.drive(next, e.view(w), upTo) })
		}
	}
}

// drive decides and applies the commands, or only so many of them. A driver with a true view proposes nothing that is rejected, and does
// not lose a wake-up.
func (e *explorer) drive(w *world, v *View, upTo int) (bool, error) {
	n := e.decide(e.d, v)
	exact := v.Saga == w.saga && !e.stepsFirst
	commands := e.commands(v.Saga, &n)
	if upTo >= len(commands) {
		return false, nil
	}
	for i, c := range commands {
		if i == upTo {
			return true, nil
		}
		phase := w.saga.Phase
		reply, err := e.apply(w, c)
		if err != nil {
			return false, err
		}
		switch reply.Decision {
		case flight.DecisionProceed, flight.DecisionAccepted, flight.DecisionAwaitingApproval:
		default:
			if exact {
				return false, fmt.Errorf("the driver's %T was answered %v", c, reply.Decision)
			}
		}
		switch c.(type) {
		case *flight.PassPivot, *flight.BeginUndo:
			if exact && w.saga.Phase == phase {
				return false, fmt.Errorf("the phase %d was changed twice", phase)
			}
		}
	}
	live := e.live(w)
	if exact && n.End == nil && (n.Live < live || n.Live > live+len(n.Cancel)) {
		return false, fmt.Errorf("the driver has counted %d live flights, there are %d", n.Live, live)
	}
	return true, nil
}

// key identifies a world, without what makes no difference: versions, tokens and closed attempts.
func (e *explorer) key(w *world, b []byte) []byte {
	flags := func(bits ...bool) {
		var x byte
		for i, bit := range bits {
			if bit {
				x |= 1 << i
			}
		}
		b = append(b, x)
	}
	s := w.saga
	b = append(b, byte(s.State), byte(s.Phase))
	flags(s.Cancel != nil, w.late, w.cancels > 0, s.OpenAttempt() != nil, w.read != nil)
	b = append(b, byte(w.runsAgain), byte(w.tooLate))
	if r := w.read; r != nil {
		b = append(b, byte(r.State), byte(r.Phase), byte(s.Fence.Number-r.Fence.Number))
		flags(r.Cancel != nil)
	}
	if s.Wake != nil {
		b = append(b, s.Wake.Live)
		flags(s.Wake.Marked, s.Wake.At > 0)
	}
	var ends []flight.Version
	for i := range e.d.Steps {
		if f := w.steps[i]; f != nil && f.State.Terminal() {
			ends = append(ends, f.Ended)
		}
	}
	slices.SortFunc(ends, func(a, b flight.Version) int { return int(int64(a.Index) - int64(b.Index)) })
	one := func(f *flight.Flight) {
		if f == nil {
			b = append(b, 255)
			return
		}
		b = append(b, byte(f.State), byte(f.CountedAttempts), byte(f.TaintingAttempts), byte(slices.Index(ends, f.Ended)))
		unknown := f.Newest() != nil && f.Newest().Outcome == flight.OutcomeUnknown
		flags(f.OpenAttempt() != nil, f.Cancel != nil, f.Sealed, f.Overlap, passed(f), f.Verifying(), unknown, f.Resolution != nil)
	}
	for i := range e.d.Steps {
		one(w.steps[i])
		one(w.undos[i])
		if w.readSteps != nil {
			one(w.readSteps[0][i])
			one(w.readSteps[1][i])
		}
		flags(w.happened[i], w.undone[i])
	}
	token := flight.Token{}
	for _, c := range w.pending { // all under one token
		b = fmt.Appendf(b, "%T%s", c, c.Target())
		switch c := c.(type) {
		case *flight.Submit:
			token = c.Submission.Driver
		case *flight.SealKey:
			token = c.Driver
		case *flight.Suspend:
			token = c.Token
			b = append(b, c.Wake.Live)
			flags(c.Wake.Marked, c.Wake.At > 0)
		case *flight.Report:
			token = c.Token
			b = append(b, byte(c.Outcome))
		}
	}
	flags(token.Number == s.Fence.Number, token.Number > s.Fence.Number)
	return b
}
