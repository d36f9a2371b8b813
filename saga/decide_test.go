package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// trip is the saga of the examples: hotel and seat beside each other, an approval under a condition, the pivot, and a step after it.
func trip() *Definition {
	return &Definition{Saga: "trip", Version: 3, Deadline: Duration(48 * time.Hour), Steps: []Step{
		{Name: "hotel", Undo: &Undo{}},
		{Name: "seat", Undo: &Undo{}, RunPolicy: RunPolicy{Recovery: "resend"}},
		{Name: "manager", Needs: []string{"hotel", "seat"}, Approval: &Approval{}, NoUndo: true, If: &Condition{Value: "/input/cents", Above: json.RawMessage("100000")}},
		{Name: "pay", Needs: []string{"manager"}, Pivot: true},
		{Name: "voucher", Needs: []string{"pay"}},
	}}
}

const now = flight.Time(1_000_000)

// viewOf returns the view of a saga in a phase, with flights by the position of their step.
func viewOf(d *Definition, phase flight.Phase, steps, undos map[int]*flight.Flight) *View {
	v := &View{Now: now, Input: []byte(`{"cents": 500}`), Steps: make([]*flight.Flight, len(d.Steps)), Undos: make([]*flight.Flight, len(d.Steps)),
		Saga:   &flight.Flight{State: flight.StateRunning, Phase: phase, CreatedAt: now - 1000},
		Bodies: func(int) []byte { return []byte(`{"id": 1}`) }}
	for i, f := range steps {
		v.Steps[i] = f
	}
	for i, f := range undos {
		v.Undos[i] = f
	}
	return v
}

func marked(v *View) *View {
	v.Saga.Cancel = &flight.Attribution{Reason: "customer called"}
	return v
}

func flightIn(s flight.State) *flight.Flight { return &flight.Flight{State: s} }

// endedAt returns a flight that succeeded as the nth one.
func endedAt(n uint64) *flight.Flight {
	return &flight.Flight{State: flight.StateSucceeded, Version: flight.Version{Index: n}, Ended: flight.Version{Index: n},
		Receipt: &flight.Receipt{Outcome: flight.OutcomeSucceeded, ExternalID: "x", Body: flight.NewBlob("application/json", []byte(`{"id": 1}`), 100)}}
}

func refused(why string) *flight.Flight {
	return &flight.Flight{State: flight.StateFailed, Receipt: &flight.Receipt{Outcome: flight.OutcomeRefused}, Attempts: []flight.Attempt{{ClosedAt: 1, Error: why}}}
}

func tainted(s flight.State) *flight.Flight { return &flight.Flight{State: s, TaintingAttempts: 1} }

func running() *flight.Flight {
	return &flight.Flight{State: flight.StateRunning, Attempts: []flight.Attempt{{Number: 1}}}
}

type flights = map[int]*flight.Flight

// TestDecide has one case for each row of the table in the package comment.
func TestDecide(t *testing.T) {
	d := trip()
	deadline := now - 1000 + flight.Time(48*time.Hour/time.Millisecond)
	safe, unknown := tainted(flight.StateReady), endedAt(9)
	safe.Policy.SafeIfAbsent = true
	unknown.State, unknown.Unknown, unknown.FinishedAt = flight.StateCancelled, true, now
	settled := endedAt(9)
	settled.State, settled.Unknown, settled.FinishedAt, settled.Steps = flight.StateCancelled, true, now-15_000, time.Minute
	atStep := func(v *View, sum time.Duration) *View { v.Stepped = sum; return v }
	forward, undoing, committed := flight.PhaseForward, flight.PhaseUndoing, flight.PhaseCommitted
	before := flights{0: endedAt(1), 1: endedAt(2)}
	paid := flights{0: endedAt(1), 1: endedAt(2), 3: endedAt(3)}
	for _, c := range []struct {
		name string
		d    *Definition
		v    *View
		want Next
	}{
		{"row 9: steps without needs", d, viewOf(d, forward, nil, nil), Next{Submit: []int{0, 1}, Undo: -1, Live: 2, WakeAt: deadline}},
		{"row 11: one is live", d, viewOf(d, forward, flights{0: endedAt(1), 1: running()}, nil), Next{Undo: -1, Live: 1, WakeAt: deadline}},
		{"row 9: behind a skipped step", d, viewOf(d, forward, before, nil), Next{Submit: []int{3}, Undo: -1, Live: 1, WakeAt: deadline}},
		{"a step in doubt", d, viewOf(d, forward, flights{0: tainted(flight.StateInDoubt), 1: running()}, nil), Next{Undo: -1, Live: 2, WakeAt: deadline, Doubts: []int{0}}},
		{"row 3: refused", d, viewOf(d, forward, flights{0: running(), 1: refused("sold out")}, nil),
			Next{Mark: "step seat was refused: sold out", Undo: -1, Live: 1}},
		{"row 3, and nothing to undo", d, viewOf(d, forward, flights{0: flightIn(flight.StateReady), 1: refused("")}, nil),
			Next{Mark: "step seat was refused", Cancel: []int{0}, Undo: -1, Live: 1}},
		{"row 2: the mark lost", d, marked(viewOf(d, forward, paid, nil)), Next{PassPivot: true, Marked: true, Submit: []int{4}, Undo: -1, Live: 1}},
		{"row 6: what waits is cancelled, what runs is not", d, marked(viewOf(d, forward, flights{0: flightIn(flight.StateAwaitingApproval), 1: running()}, nil)),
			Next{Marked: true, Cancel: []int{0}, Undo: -1, Live: 2}},
		{"row 6: tainted", d, marked(viewOf(d, forward, flights{0: endedAt(1), 1: tainted(flight.StateReady)}, nil)), Next{Marked: true, Undo: -1, Live: 1}},
		{"row 6: in doubt", d, marked(viewOf(d, forward, flights{0: tainted(flight.StateInDoubt), 1: endedAt(1)}, nil)),
			Next{Marked: true, Undo: -1, Live: 1, Doubts: []int{0}}},
		{"row 6: the pivot runs", d, marked(viewOf(d, forward, flights{0: endedAt(1), 1: endedAt(2), 3: running()}, nil)), Next{Marked: true, Undo: -1, Live: 1}},
		{"row 7", d, marked(viewOf(d, forward, before, nil)), Next{Marked: true, BeginUndo: true, Seal: []int{3, 4}, Undo: 1, Live: 1}},
		{"row 6: of unknown outcome, and its undo does no harm", d, marked(viewOf(d, forward, flights{0: endedAt(9), 1: safe}, nil)),
			Next{Marked: true, Cancel: []int{1}, Undo: -1, Live: 1}},
		{"row 8: a step of unknown outcome", d, marked(viewOf(d, undoing, flights{0: endedAt(8), 1: unknown}, nil)),
			Next{Marked: true, Undo: -1, WakeAt: now + 15_000}},
		{"row 8: a step of unknown outcome, when no request of it is on its way any more", d, atStep(marked(viewOf(d, undoing, flights{0: endedAt(8), 1: settled}, nil)), time.Minute),
			Next{Marked: true, Undo: 1, Live: 1}},
		{"row 8: the clock was set forward meanwhile", d, atStep(marked(viewOf(d, undoing, flights{0: endedAt(8), 1: settled}, nil)), time.Minute+time.Second),
			Next{Marked: true, Undo: -1, WakeAt: now + 1000}},
		{"row 8: the reverse order of ends", d, marked(viewOf(d, undoing, flights{0: endedAt(2), 1: endedAt(1)}, nil)), Next{Marked: true, Undo: 0, Live: 1}},
		{"an undo is live", d, marked(viewOf(d, undoing, before, flights{1: running()})), Next{Marked: true, Undo: -1, Live: 1}},
		{"an undo is in doubt", d, marked(viewOf(d, undoing, before, flights{1: flightIn(flight.StateInDoubt)})), Next{Marked: true, Undo: -1, Live: 1, Doubts: []int{1}}},
		{"row 8: the next one", d, marked(viewOf(d, undoing, before, flights{1: flightIn(flight.StateFailed)})), Next{Marked: true, Undo: 0, Live: 1}},
		{"late evidence of a success", d, marked(viewOf(d, undoing, flights{0: {State: flight.StateFailed, Overlap: true}}, nil)), Next{Marked: true, Undo: 0, Live: 1}},
		{"committed: a mark stops nothing", d, marked(viewOf(d, committed, paid, nil)), Next{Marked: true, Submit: []int{4}, Undo: -1, Live: 1}},
		{"committed: in doubt", d, viewOf(d, committed, flights{0: endedAt(1), 1: endedAt(2), 3: endedAt(3), 4: flightIn(flight.StateInDoubt)}, nil),
			Next{Undo: -1, Live: 1, Doubts: []int{4}}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, Decide(c.d, c.v)) })
	}

	lost := Decide(d, viewOf(d, forward, flights{0: endedAt(1)}, flights{0: endedAt(2)}))
	require.Equal(t, "step hotel was undone in the ledger that a restore has lost", lost.Mark, "row 3")
	require.Equal(t, []int{1, 2, 3, 4}, lost.Seal)
	require.Equal(t, flight.OutcomeRefused, lost.End.Outcome)
	require.Empty(t, Decide(d, viewOf(d, forward, paid, flights{0: endedAt(2)})).Mark, "the pivot has succeeded")

	late := viewOf(d, forward, flights{0: running()}, nil)
	late.Now = deadline
	require.Equal(t, Next{Mark: "deadline: the saga has run for 48h", Undo: -1, Live: 1}, Decide(d, late), "row 4")
	late.Saga.State = flight.StateSucceeded
	require.Equal(t, Next{Undo: -1}, Decide(d, late), "row 1")
}

func TestDecide_ConditionWithoutValueIsAFailure(t *testing.T) {
	v := viewOf(trip(), flight.PhaseForward, flights{0: endedAt(1), 1: endedAt(2)}, nil)
	v.Input = []byte(`{"money": 5}`)
	n := Decide(trip(), v)
	require.Equal(t, `step manager: its condition cannot be evaluated: /input/cents: there is no "cents"`, n.Mark)
	require.True(t, n.BeginUndo)
	require.Equal(t, 1, n.Undo)
}

func TestDecide_ConditionWithoutValueBehindThePivotIsADoubt(t *testing.T) {
	d := trip()
	d.Steps[4].If = &Condition{Value: "/steps/pay/body/mail", Equals: json.RawMessage("true")}
	v := viewOf(d, flight.PhaseCommitted, flights{0: endedAt(1), 1: endedAt(2), 3: endedAt(3)}, nil)
	require.Equal(t, Next{Submit: []int{4}, Undo: -1, Live: 1}, Decide(d, v), "it is not skipped")
	_, err := Resolve(d, v, 4, false)
	require.ErrorContains(t, err, "its condition: ", "so the hand-out puts it in doubt")
}

func TestDecide_End(t *testing.T) {
	d := trip()
	n := Decide(d, viewOf(d, flight.PhaseCommitted, flights{0: endedAt(1), 1: endedAt(2), 3: endedAt(3), 4: flightIn(flight.StateFailed)}, nil))
	require.Equal(t, flight.OutcomeSucceeded, n.End.Outcome)
	require.JSONEq(t, `{"saga": "trip@3", "state": "done", "steps": {
		"hotel": {"outcome": "succeeded", "external_id": "x"}, "seat": {"outcome": "succeeded", "external_id": "x"}, "manager": {"outcome": "skipped"},
		"pay": {"outcome": "succeeded", "external_id": "x"}, "voucher": {"outcome": "passed", "why": "failed"}}}`, string(n.End.Body))
	n = Decide(d, marked(viewOf(d, flight.PhaseUndoing, flights{0: endedAt(1), 1: refused("sold out"), 4: {State: flight.StateCancelled, Sealed: true}}, flights{0: endedAt(2)})))
	require.Equal(t, flight.OutcomeRefused, n.End.Outcome)
	require.JSONEq(t, `{"saga": "trip@3", "state": "undone", "why": "customer called", "steps": {
		"hotel": {"outcome": "succeeded", "external_id": "x", "undo": "succeeded"}, "seat": {"outcome": "failed", "why": "was refused: sold out"},
		"manager": {"outcome": "never_started"}, "pay": {"outcome": "never_started"}, "voucher": {"outcome": "never_started"}}}`, string(n.End.Body))
}

func TestDecide_Timer(t *testing.T) {
	d := &Definition{Saga: "s", Steps: []Step{{Name: "a"}, {Name: "pause", Needs: []string{"a"}, Timer: Duration(time.Minute)}, {Name: "b", Needs: []string{"pause"}}}}
	done := endedAt(1)
	done.FinishedAt = now - 500
	v := viewOf(d, flight.PhaseForward, flights{0: done}, nil)
	require.Equal(t, Next{Undo: -1, WakeAt: now + 59_500}, Decide(d, v))
	v.Now += 59_500
	require.Equal(t, Next{Undo: -1, Submit: []int{2}, Live: 1}, Decide(d, v))
}

// A summary that is too long for a receipt is shortened, not cut: it stays JSON.
func TestDecide_EndIsAlwaysJSON(t *testing.T) {
	d, steps := &Definition{Saga: "s", Version: 1}, flights{}
	for i := range MaxSteps {
		d.Steps = append(d.Steps, Step{Name: fmt.Sprint("s", i), NoUndo: true})
		steps[i] = endedAt(uint64(i))
		steps[i].Receipt.ExternalID = strings.Repeat("\x01", flight.MaxText) // six bytes in JSON
	}
	steps[0].Receipt.ExternalID = "short"
	end := Decide(d, viewOf(d, flight.PhaseForward, steps, nil)).End
	require.LessOrEqual(t, len(end.Body), flight.MaxReceiptBody)
	var sum Summary
	require.NoError(t, json.Unmarshal(end.Body, &sum))
	require.Len(t, sum.Steps, MaxSteps)
	require.Equal(t, StepSummary{Outcome: "succeeded", ExternalID: "short"}, sum.Steps["s0"])
	require.Empty(t, sum.Steps["s1"].ExternalID)
}

// A saga that one decision cancels and ends has the cause in its receipt.
func TestDecide_EndWithTheMark(t *testing.T) {
	d := &Definition{Saga: "s", Version: 1, Steps: []Step{{Name: "a", NoUndo: true}}}
	n := Decide(d, viewOf(d, flight.PhaseForward, flights{0: refused("sold out")}, nil))
	require.NotNil(t, n.End)
	var sum Summary
	require.NoError(t, json.Unmarshal(n.End.Body, &sum))
	require.Equal(t, n.Mark, sum.Why)
	require.NotEmpty(t, sum.Why)
}
