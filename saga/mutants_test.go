package saga

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// changed returns a decider that sees the view after a change.
func changed(change func(d *Definition, v *View) (*Definition, *View)) func(*Definition, *View) Next {
	return func(d *Definition, v *View) Next {
		copied := *v
		saga := *v.Saga
		copied.Saga, copied.Steps, copied.Undos = &saga, slices.Clone(v.Steps), slices.Clone(v.Undos)
		return Decide(change(d, &copied))
	}
}

// then returns a decider that changes the decision.
func then(change func(d *Definition, v *View, n *Next)) func(*Definition, *View) Next {
	return func(d *Definition, v *View) Next {
		n := Decide(d, v)
		change(d, v, &n)
		return n
	}
}

// wrongDeciders are deciders that break a promise. TestExplore_FindsWrongDeciders must find each of them.
var wrongDeciders = []struct {
	name   string
	decide func(*Definition, *View) Next
	want   string // part of the error
}{
	{"undo before a step has settled", changed(func(d *Definition, v *View) (*Definition, *View) {
		for i, f := range v.Steps {
			if v.Saga.Cancel != nil && created(f) && !f.State.Terminal() && slices.ContainsFunc(v.Steps, happened) {
				v.Steps[i] = &flight.Flight{State: flight.StateCancelled}
			}
		}
		return d, v
	}), "a is undone before b has settled"},
	{"undo in the reverse order of starts", changed(func(d *Definition, v *View) (*Definition, *View) {
		for i, f := range v.Steps {
			if f != nil && f.Place != nil {
				started := *f
				started.Ended, v.Steps[i] = f.Place.Since, &started
			}
		}
		return d, v
	}), "which ended later"},
	{"two undos at once", changed(func(d *Definition, v *View) (*Definition, *View) {
		for i, f := range v.Undos {
			if created(f) && !f.State.Terminal() {
				v.Undos[i] = &flight.Flight{State: flight.StateSucceeded}
			}
		}
		return d, v
	}), "are undone at once"},
	{"a new step behind the mark", changed(func(d *Definition, v *View) (*Definition, *View) {
		v.Saga.Cancel = nil
		return d, v
	}), "*flight.Submit was answered fenced"},
	{"undo past the pivot", changed(func(d *Definition, v *View) (*Definition, *View) {
		without := *d
		without.Steps = slices.Clone(d.Steps)
		for i := range without.Steps {
			without.Steps[i].Pivot = false
		}
		return &without, v
	}), "the saga is undone, and a has happened"},
	{"flip twice", changed(func(d *Definition, v *View) (*Definition, *View) {
		v.Saga.Phase = flight.PhaseForward
		return d, v
	}), "was changed twice"},
	{"seal before the pivot has ended", then(func(d *Definition, v *View, n *Next) {
		for i, f := range v.Steps {
			if v.Saga.Cancel != nil && v.Saga.Phase == flight.PhaseForward && !n.PassPivot && !created(f) {
				n.Seal = append(n.Seal, i)
			}
		}
	}), "the saga is done, and b has not happened"},
	{"cancel what waits, and take it for ended", then(func(d *Definition, v *View, n *Next) { n.Live -= len(n.Cancel) }), "nothing goes on"},
	{"a doubt keeps the saga awake", then(func(d *Definition, v *View, n *Next) { n.Marked = n.Marked && len(n.Doubts) == 0 }), "due again, and nothing has changed"},
	{"a mark that is proposed counts as seen", then(func(d *Definition, v *View, n *Next) { n.Marked = n.Marked || n.Mark != "" }), "nothing goes on"},
	{"a step of unknown outcome is not undone", changed(func(d *Definition, v *View) (*Definition, *View) {
		for i, f := range v.Steps {
			if created(f) && f.Unknown {
				known := *f
				known.Unknown, v.Steps[i] = false, &known
			}
		}
		return d, v
	}), "the saga is undone, and a has happened"},
	{"a step of unknown outcome waits for nobody", then(func(d *Definition, v *View, n *Next) {
		n.Cancel = slices.DeleteFunc(n.Cancel, func(i int) bool { return v.Steps[i].Tainted() })
	}), "says no doubt"},
	{"end without an undo", then(func(d *Definition, v *View, n *Next) {
		if n.Undo >= 0 {
			n.Undo, n.End = -1, &End{Outcome: flight.OutcomeRefused}
		}
	}), "the saga is undone, and a has happened"},
	{"a doubt is not named", then(func(d *Definition, v *View, n *Next) { n.Doubts = nil }), "says no doubt"},
	{"the failure of a step is not noticed", changed(func(d *Definition, v *View) (*Definition, *View) {
		for i, f := range v.Steps {
			if f != nil && f.State == flight.StateFailed && v.Saga.Cancel == nil {
				v.Steps[i] = &flight.Flight{State: flight.StateRunning}
			}
		}
		return d, v
	}), "live flights"},
}

func TestExplore_FindsWrongDeciders(t *testing.T) {
	for _, wrong := range wrongDeciders {
		t.Run(wrong.name, func(t *testing.T) {
			var found []string
			for _, s := range scenarios() {
				if _, err := newExplorer(&s, wrong.decide).explore(40_000); err != nil {
					if found = append(found, s.name+": "+err.Error()); strings.Contains(err.Error(), wrong.want) {
						return
					}
				}
			}
			require.Contains(t, strings.Join(found, "\n"), wrong.want)
		})
	}
}

// A driver that reads the steps before the saga breaks a promise: see View.
func TestExplore_FindsStepsThatAreReadBeforeTheSaga(t *testing.T) {
	s := scenario{d: explored("a", "b"), outcomes: "srux", cancel: true, stale: true, runsAgain: 1}
	e := newExplorer(&s, Decide)
	e.stepsFirst = true
	_, err := e.explore(maxWorlds)
	require.ErrorContains(t, err, "nothing goes on")
}
