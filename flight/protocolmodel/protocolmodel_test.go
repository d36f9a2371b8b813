package protocolmodel

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// exploreTable explores configurations, each in a sub-test. FLIGHTD_MODEL, where set, is the ID of the only one.
func exploreTable(t *testing.T, limits Limits, table []Configuration) {
	only := os.Getenv("FLIGHTD_MODEL")
	for _, c := range table {
		if only != "" && c.ID() != only {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			limits := limits
			switch {
			case c.Expect == Blocks: // which states are stuck is known when all are
				limits = Limits{}
			case c.Expect == Holds && testing.Short(): // make long explores it completely
				limits = Limits{Time: 200 * time.Millisecond}
			}
			r := c.Run(limits)
			t.Log(r)
			if testing.Verbose() && r.Explanation() != "" {
				t.Log(r.Explanation())
			}
			require.Empty(t, c.Failure(r), r.Explanation())
		})
	}
}

// short returns the configurations that make test explores, and all where FLIGHTD_MODEL names one.
func short() []Configuration {
	var table []Configuration
	for _, c := range Configurations() {
		if c.Short || os.Getenv("FLIGHTD_MODEL") != "" {
			table = append(table, c)
		}
	}
	return table
}

func TestModel(t *testing.T) {
	exploreTable(t, Limits{Time: 5 * time.Minute}, short())
}

// A name identifies a configuration, and every control is explored by make test.
func TestConfigurations(t *testing.T) {
	names := map[string]bool{}
	inShort := map[string]bool{}
	for _, c := range Configurations() {
		require.False(t, names[c.Name], c.Name)
		names[c.Name] = true
		inShort[c.ID()] = inShort[c.ID()] || c.Short
	}
	for _, c := range Configurations() {
		if c.Expect == Violates {
			require.True(t, inShort[c.ID()], "%s is a control that make test does not explore", c.Name)
		}
	}
}

// counter is a state of one byte for tests of the search itself: from 0 it counts to a limit.
type counter struct{ value uint8 }

func countTo(limit uint8, fair bool) model[counter] {
	return model[counter]{
		successors: func(s *counter, out *steps[counter]) {
			if s.value < limit {
				out.add(counter{value: s.value + 1}, fair, "count", int(s.value))
			}
		},
		violation: func(*counter) string { return "" },
		settled:   func(s *counter) bool { return s.value == limit },
		live:      true,
		outcome:   func(*counter) outcome { return outcome{} },
	}
}

func TestSearchVisitsEveryState(t *testing.T) {
	r := explore(countTo(9, eventually), Limits{})
	require.True(t, r.Complete)
	require.Equal(t, 10, r.States)
	require.Equal(t, 9, r.Edges)
	require.True(t, r.Live)
	require.False(t, r.Blocked())
}

func TestSearchStopsAtItsLimit(t *testing.T) {
	r := explore(countTo(9, eventually), Limits{States: 4})
	require.False(t, r.Complete)
	require.Contains(t, r.String(), "NOT COMPLETE (stopped at 5 states")
}

func TestSearchFindsShortestViolation(t *testing.T) {
	m := countTo(9, eventually)
	m.violation = func(s *counter) string {
		if s.value == 3 {
			return "three"
		}
		return ""
	}
	r := explore(m, Limits{})
	require.Equal(t, "three", r.Violation)
	require.Equal(t, []string{"count 0", "count 1", "count 2"}, r.Trace)
}

func TestSearchFindsStuckStates(t *testing.T) {
	r := explore(countTo(9, perhaps), Limits{})
	require.Equal(t, 9, r.Stuck)
}

// Two steps that undo each other make a cycle. A third step out of both ends it, unless it is possible in one alone.
func TestSearchFindsFairCycles(t *testing.T) {
	for _, exits := range []int{1, 2} {
		m := model[counter]{
			successors: func(s *counter, out *steps[counter]) {
				if s.value < 2 {
					out.add(counter{value: 1 - s.value}, eventually, "swap", int(s.value))
				}
				if int(s.value) < exits {
					out.add(counter{value: 2}, eventually, "leave")
				}
			},
			violation: func(*counter) string { return "" },
			settled:   func(s *counter) bool { return s.value == 2 },
			live:      true,
			outcome:   func(*counter) outcome { return outcome{} },
		}
		r := explore(m, Limits{})
		require.Equal(t, 1, r.Cycles)
		require.Equal(t, exits == 1, r.Blocked())
	}
}
