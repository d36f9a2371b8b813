package saga

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/strictjson"
)

// View is the input of Decide: the saga, and the flights of its steps and undos, each by the position of its step. A flight is nil
// if its key was never used.
//
// The saga must be read before its steps. A mark that is seen then has stopped every step that is seen: a step that surely did not
// happen ends, whatever it does later. In the other order a step may become ready between the two, and nobody would end it.
type View struct {
	Now     flight.Time
	Stepped time.Duration // Header.Steps: by so much the ledger's clock has been set forward, without that time having passed
	Saga    *flight.Flight
	Input   []byte // of the saga
	Steps   []*flight.Flight
	Undos   []*flight.Flight
	Bodies  func(step int) []byte // the stored body of the receipt of a step
}

// Next is what the driver proposes, in the order of the fields, as one proposal. Every command carries the token of the driver,
// and the saga is reported (End) or suspended (Live, WakeAt) last. After that the saga needs no driver before the number of
// flights of steps and undos that are not over is below Live, or WakeAt has come, or the saga is marked.
type Next struct {
	Mark      string      // cause with which the saga is cancelled; "": it is not
	PassPivot bool        // forward to committed
	Cancel    []int       // steps that wait, and will not run
	BeginUndo bool        // forward to undoing
	Seal      []int       // steps that were never created
	Submit    []int       // steps that start
	Undo      int         // the step whose undo starts; -1: none
	End       *End        // the saga is over
	Live      int         // flights of steps and undos that are not over after these commands, at least
	Marked    bool        // the mark was seen. False with Mark: the saga is due again at once
	WakeAt    flight.Time // 0: only an event wakes the saga
	Doubts    []int       // steps that wait for a person; in undoing those whose undo waits for one, too
}

// End is the report of a saga that is over.
type End struct {
	Outcome flight.Outcome // OutcomeSucceeded: done; OutcomeRefused: undone
	Body    []byte
}

// status is what a step means for the saga.
type status uint8

const (
	statusWaiting status = iota // for the steps that it needs
	statusStarts                // now
	statusPausing               // a timer
	statusLive                  // its flight is not over
	statusSkipped               // its condition is false
	statusDone
	statusPassed // it ended without success, and the saga goes on: a person has let it pass
	statusFailed
)

// over reports whether steps that need this one may start.
func (s status) over() bool { return s == statusDone || s == statusSkipped || s == statusPassed }

// outcomes are the words of the statuses in the body of an End and in the inputs of steps.
var outcomes = [...]string{"never_started", "never_started", "never_started", "unknown", "skipped", "succeeded", "passed", "failed"}

// survey is what Decide knows of all steps.
type survey struct {
	d      *Definition
	v      *View
	after  []set
	status []status
	until  []flight.Time // of each timer that pauses
	faults []string      // why the condition or the input of a step cannot be evaluated
}

// surveyOf computes the status of each step. committed: the pivot has succeeded.
func surveyOf(d *Definition, v *View, committed bool) *survey {
	s := &survey{d: d, v: v, after: d.comesAfter(), status: make([]status, len(d.Steps)), until: make([]flight.Time, len(d.Steps)), faults: make([]string, len(d.Steps))}
	for _, i := range inOrder(s.after) {
		s.status[i] = s.statusOf(i, committed)
	}
	return s
}

func (s *survey) statusOf(i int, committed bool) status {
	step, f := &s.d.Steps[i], s.v.Steps[i]
	switch {
	case !created(f):
	case f.State == flight.StateSucceeded:
		return statusDone
	case f.State.Terminal() && committed:
		return statusPassed
	case f.State.Terminal():
		return statusFailed
	default:
		return statusLive
	}
	ended := s.v.Saga.CreatedAt
	for j := range s.d.Steps {
		if s.after[i].has(j) && !s.status[j].over() {
			return statusWaiting
		}
		if g := s.v.Steps[j]; s.after[i].has(j) && g != nil {
			ended = max(ended, g.FinishedAt)
		}
		if s.after[i].has(j) {
			ended = max(ended, s.until[j])
		}
	}
	if step.If != nil {
		holds, err := s.holds(i)
		switch {
		case err != nil: // behind the pivot nobody may take it for skipped: it starts, and is in doubt, because it has no input
			s.faults[i] = "its condition cannot be evaluated: " + err.Error()
			return statusStarts
		case !holds:
			return statusSkipped
		}
	}
	if step.Timer == 0 {
		if _, err := Resolve(s.d, s.v, i, false); err != nil {
			s.faults[i] = "its input cannot be resolved: " + err.Error()
		}
		return statusStarts
	}
	if s.until[i] = ended.Add(time.Duration(step.Timer)); s.until[i] > s.v.Now {
		return statusPausing
	}
	return statusDone
}

// created reports whether the flight of a step or an undo was submitted. A record of used nonces alone was not.
func created(f *flight.Flight) bool { return f != nil && f.State != flight.StateAbsent }

// happened reports whether the step has an effect to undo, or may have. An overlap is the evidence of a success that came too late.
func happened(f *flight.Flight) bool {
	return created(f) && (f.State == flight.StateSucceeded || f.Overlap || f.Unknown)
}

// Decide returns what the driver of a saga does next. It is a pure function; its cases are the rows of the table in the package
// comment. Commands that are based on an old view are fenced, or change nothing that another Decide does not repair.
func Decide(d *Definition, v *View) Next {
	n := Next{Undo: -1}
	if v.Saga == nil || v.Saga.State.Terminal() {
		return n
	}
	phase := v.Saga.Phase
	if p := d.pivot(); phase == flight.PhaseForward && p >= 0 && created(v.Steps[p]) && v.Steps[p].State == flight.StateSucceeded {
		n.PassPivot, phase = true, flight.PhaseCommitted // row 2: a mark before it has lost
	}
	s := surveyOf(d, v, phase == flight.PhaseCommitted)
	n.Marked = v.Saga.Cancel != nil
	if phase == flight.PhaseForward && !n.Marked {
		n.Mark = s.cause()
	}
	switch {
	case phase == flight.PhaseUndoing:
		s.undo(&n)
	case phase == flight.PhaseForward && (n.Marked || n.Mark != ""):
		s.settle(&n)
	default:
		s.start(&n)
	}
	for i := range d.Steps {
		for _, f := range [...]*flight.Flight{v.Steps[i], v.Undos[i]} {
			if created(f) && !f.State.Terminal() {
				n.Live++
			}
		}
	}
	n.Live += len(n.Submit)
	if n.Undo >= 0 {
		n.Live++
	}
	return n
}

// cause returns the cause for which the saga is to be cancelled, or "".
func (s *survey) cause() string {
	var first *flight.Flight
	at := -1
	allOver := true
	for i, status := range s.status {
		allOver = allOver && status.over()
		if f := s.v.Steps[i]; status == statusFailed && (first == nil || first.Ended.After(f.Ended)) {
			first, at = f, i
		}
	}
	faulty := slices.IndexFunc(s.faults, func(why string) bool { return why != "" })
	undone := slices.IndexFunc(s.v.Undos, created)
	switch deadline := time.Duration(s.d.Deadline); {
	case undone >= 0:
		return fmt.Sprintf("step %s was undone in the ledger that a restore has lost", s.d.Steps[undone].Name)
	case first != nil:
		return flight.Sanitize(fmt.Sprintf("step %s %s", s.d.Steps[at].Name, reasonOf(first)))
	case faulty >= 0:
		return flight.Sanitize(fmt.Sprintf("step %s: %s", s.d.Steps[faulty].Name, s.faults[faulty]))
	case deadline > 0 && !allOver && s.v.Now >= s.v.Saga.CreatedAt.Add(deadline):
		return fmt.Sprintf("deadline: the saga has run for %v", s.d.Deadline)
	}
	return ""
}

// reasonOf says how a step ended without success.
func reasonOf(f *flight.Flight) string {
	word := "failed"
	switch {
	case f.State == flight.StateCancelled:
		word = "was cancelled"
	case f.Receipt != nil && f.Receipt.Outcome == flight.OutcomeRefused:
		word = "was refused"
	}
	why := f.Cause
	if a := f.Newest(); a != nil && why == "" {
		why = a.Error
	}
	if why == "" {
		return word
	}
	return word + ": " + why
}

// start submits the steps that nothing holds up, and ends the saga when all are over.
func (s *survey) start(n *Next) {
	allOver := true
	committed := n.PassPivot || s.v.Saga.Phase == flight.PhaseCommitted
	if deadline := time.Duration(s.d.Deadline); deadline > 0 && !committed {
		n.WakeAt = s.v.Saga.CreatedAt.Add(deadline)
	}
	for i, status := range s.status {
		allOver = allOver && status.over()
		switch {
		case status == statusStarts:
			n.Submit = append(n.Submit, i)
		case status == statusPausing && (n.WakeAt == 0 || s.until[i] < n.WakeAt):
			n.WakeAt = s.until[i]
		case status == statusLive && s.v.Steps[i].State == flight.StateInDoubt:
			n.Doubts = append(n.Doubts, i)
		}
	}
	if allOver {
		n.WakeAt = 0
		n.End = &End{Outcome: flight.OutcomeSucceeded, Body: s.body("done", "")}
	}
}

// settle lets no step start, and begins to undo when no step can have an effect any more.
func (s *survey) settle(n *Next) {
	settled := true
	var unused []int
	for i, f := range s.v.Steps {
		switch {
		case !created(f):
			if s.d.Steps[i].Timer == 0 && s.status[i] != statusSkipped {
				unused = append(unused, i)
			}
		case f.State.Terminal():
		default:
			settled = false
			s.stop(n, i)
		}
	}
	if settled {
		n.BeginUndo, n.Seal = true, unused // not earlier: the pivot may succeed, and then those behind it run
		s.undo(n)
	}
}

// stop cancels a step that waits and surely has no effect, or whose undo does no harm then. Every other step ends by its own policy.
func (s *survey) stop(n *Next, i int) {
	switch f := s.v.Steps[i]; {
	case f.OpenAttempt() == nil && f.Tainted() && f.Policy.SafeIfAbsent:
		n.Cancel = append(n.Cancel, i)
	case f.State == flight.StateInDoubt:
		n.Doubts = append(n.Doubts, i)
	case f.Tainted(), f.OpenAttempt() != nil, f.Verifying(), f.Cancel != nil:
	default:
		n.Cancel = append(n.Cancel, i)
	}
}

// undo submits the next undo, in the reverse order of the ends of the steps, when no other is in progress, and ends the saga when nothing is
// left to undo.
func (s *survey) undo(n *Next) {
	next, busy := -1, false
	for i, f := range s.v.Steps {
		if created(f) && !f.State.Terminal() {
			busy = true // only if it was created behind the back of the driver that began to undo
			s.stop(n, i)
		}
		switch u := s.v.Undos[i]; {
		case created(u) && u.State.Terminal():
		case created(u):
			busy = true
			if u.State == flight.StateInDoubt {
				n.Doubts = append(n.Doubts, i)
			}
		case s.d.Steps[i].Undo == nil || !happened(f):
		case next < 0 || f.Ended.After(s.v.Steps[next].Ended):
			next = i
		}
	}
	switch {
	case busy:
	case next >= 0:
		f := s.v.Steps[next]
		if settled := f.FinishedAt.Add(f.Policy.Settling() + s.v.Stepped - f.Steps); f.Unknown && settled > s.v.Now {
			n.WakeAt = settled // a request of a lost attempt may still reach the provider, and its report gives the undo the external id
			break
		}
		n.Undo = next
	default:
		n.End = &End{Outcome: flight.OutcomeRefused, Body: s.body("undone", n.Mark)}
	}
}

// Summary is the body of the receipt of a saga.
type Summary struct {
	Saga  string                 `json:"saga"`           // trip@3
	State string                 `json:"state"`          // done or undone
	Why   string                 `json:"why,omitzero"`   // it was undone
	Steps map[string]StepSummary `json:"steps,omitzero"` // by name
}

// StepSummary is the end of a step.
type StepSummary struct {
	Outcome    string `json:"outcome"` // succeeded, failed, skipped, passed, unknown or never_started
	ExternalID string `json:"external_id,omitzero"`
	Why        string `json:"why,omitzero"`
	Undo       string `json:"undo,omitzero"` // succeeded or passed; kept: the step has no undo
}

// maxWhy is the number of bytes of the reason of one step in a Summary. The flight of the step has all of it.
const maxWhy = 200

// body returns the Summary of the saga; mark is the cause if this decision cancels the saga. A truncated receipt would not be JSON. So body
// shortens the reasons of a summary that is too long, and finally leaves out the external ids of steps; the flights of the steps have both.
func (s *survey) body(state, mark string) (text []byte) {
	for _, limit := range [...]struct{ why, externalID int }{{maxWhy, flight.MaxText}, {maxWhy / 10, flight.MaxText}, {maxWhy / 10, maxWhy}, {0, 0}} {
		if text = s.summary(state, mark, limit.why, limit.externalID); len(text) <= flight.MaxReceiptBody {
			break
		}
	}
	return text
}

func (s *survey) summary(state, mark string, maxWhy, maxExternalID int) []byte {
	sum := Summary{Saga: s.d.ID(), State: state, Why: mark, Steps: make(map[string]StepSummary)}
	if c := s.v.Saga.Cancel; c != nil && state == "undone" {
		sum.Why = c.Reason
	}
	for i := range s.d.Steps {
		step := StepSummary{Outcome: outcomes[s.status[i]], Why: s.faults[i]}
		f, u := s.v.Steps[i], s.v.Undos[i]
		switch {
		case !created(f):
		case f.Sealed:
			step.Outcome = outcomes[statusWaiting]
		case f.Receipt != nil && s.status[i] == statusDone:
			step.ExternalID = f.Receipt.ExternalID
		case f.Unknown:
			step.Outcome = outcomes[statusLive]
		case f.State.Terminal():
			step.Why = reasonOf(f)
		}
		switch {
		case state == "done":
		case created(u) && u.State == flight.StateSucceeded:
			step.Undo = "succeeded"
		case created(u):
			step.Undo = "passed"
		case happened(f) && s.d.Steps[i].Undo == nil:
			step.Undo = "kept"
		}
		if len(step.Why) > maxWhy {
			step.Why = strings.ToValidUTF8(step.Why[:maxWhy], "")
		}
		if len(step.ExternalID) > maxExternalID { // an id is left out instead of cut
			step.ExternalID = ""
		}
		sum.Steps[s.d.Steps[i].Name] = step
	}
	return strictjson.Append(nil, &sum)
}
