package protocolmodel

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is the result of a search.
type Result struct {
	States, Edges int
	Complete      bool // every reachable state was visited
	Elapsed       time.Duration
	Outcomes      map[string]int // how often each outcome occurs among the states

	Violation string   // of a safety property: its name and the violation
	Trace     []string // a shortest run to Violation

	// Property L1; only a complete search of a model with settled states checks it.
	Live       bool     // it was checked
	Stuck      int      // states from which no fair steps lead to a settled state
	StuckTrace []string // a shortest run to one of them
	Cycles     int      // of fair steps through states that are not settled
	FairCycles int      // those that weak fairness does not leave
	CycleTrace []string // a run to one of them
	CycleSteps []string // the steps on it
}

// Blocked reports whether property L1 was refuted.
func (r Result) Blocked() bool { return r.Stuck > 0 || r.FairCycles > 0 }

// String returns the counts in one line: states, edges, completeness, time, outcomes.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d states, %d edges, %.1fs, ", r.States, r.Edges, r.Elapsed.Seconds())
	switch {
	case r.Violation != "":
		fmt.Fprintf(&b, "violation after %d steps: %s", len(r.Trace), r.Violation)
	case !r.Complete:
		fmt.Fprintf(&b, "NOT COMPLETE (stopped at %d states, %.0fs)", r.States, r.Elapsed.Seconds())
	default:
		b.WriteString("complete")
	}
	switch {
	case r.Stuck > 0:
		fmt.Fprintf(&b, "; L1 violated: %d states stuck", r.Stuck)
	case r.FairCycles > 0:
		fmt.Fprintf(&b, "; L1 violated: %d fair cycles", r.FairCycles)
	case r.Live:
		fmt.Fprintf(&b, "; L1 holds (%d cycles, none fair)", r.Cycles)
	}
	if r.Violation == "" {
		var counts []string
		for o, n := range r.Outcomes {
			counts = append(counts, fmt.Sprintf("%s: %d", o, n))
		}
		slices.Sort(counts)
		fmt.Fprintf(&b, "; %s", strings.Join(counts, ", "))
	}
	return b.String()
}

// Explanation returns the run to the violation that was found, a step in a line, or "" where none was found.
func (r Result) Explanation() string {
	lines := func(title string, steps []string) string {
		return title + "\n  " + strings.Join(steps, "\n  ")
	}
	switch {
	case r.Violation != "":
		return lines(r.Violation+", after:", r.Trace)
	case r.Stuck > 0:
		return lines("L1: no fair step leads to a settled state, after:", r.StuckTrace)
	case r.FairCycles > 0:
		return lines("L1: a fair cycle, after:", r.CycleTrace) + "\n" + lines("the steps of the cycle:", r.CycleSteps)
	}
	return ""
}

// outcome classifies a state for the statistics.
type outcome struct {
	effects    uint8 // started so far
	flight     uint8 // free, running, inDoubt or done
	falseDoubt bool  // an owner reported an attempt that it never started as unknown
}

func (o outcome) String() string {
	s := fmt.Sprintf("%d effects, %s", o.effects, [...]string{"free", "running", "in doubt", "done"}[o.flight])
	if o.falseDoubt {
		s += ", false doubt"
	}
	return s
}
