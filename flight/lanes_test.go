package flight_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// laneWorld has three jobs of one lane, as a ledger holds them. Each command is applied by the rules; only whether the lane lets
// a job open comes from the definition that is explored.
type laneWorld struct {
	header  flight.Header
	flights [3]*flight.Flight
	retried int // how often persons let a job run again
}

// laneRule is a definition of a lane.
type laneRule struct {
	name   string
	limits [3]uint16
	// blocks reports whether job i may not open; nil: as the table says.
	blocks func(w *laneWorld, i int) bool
	// keepsPlace: a job that a person lets run again keeps its place.
	keepsPlace bool
	violates   string // the property that the definition breaks; "": none
}

func (w *laneWorld) live(i int) bool {
	f := w.flights[i]
	return f != nil && f.State != flight.StateAbsent && !f.State.Terminal()
}

func (w *laneWorld) before(i, j int) bool {
	a, b := w.flights[i].Place, w.flights[j].Place
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Since.Index, b.Since.Index)) < 0
}

// standing returns the live jobs before job i that a definition counts.
func (w *laneWorld) standing(i int, counts func(f *flight.Flight) bool) (n, smallest int) {
	smallest = int(w.flights[i].Place.Queue.Limit)
	for j, f := range w.flights {
		if j != i && w.live(j) && w.before(j, i) && counts(f) {
			n++
			smallest = min(smallest, int(f.Place.Queue.Limit))
		}
	}
	return n, smallest
}

// byTable is the definition of the product.
func byTable(w *laneWorld, i int) bool {
	table := flight.NewDue()
	for _, f := range w.flights {
		table.Update(nil, f)
	}
	return table.LaneBlocks(w.flights[i].ID)
}

// byDefinition is the same as a sentence: a job opens if fewer live ones stand before it than the smallest limit among them.
func byDefinition(w *laneWorld, i int) bool {
	n, limit := w.standing(i, func(*flight.Flight) bool { return true })
	return n >= limit
}

func laneRules() []laneRule {
	due := func(f *flight.Flight) bool { return f.State == flight.StateReady || f.State == flight.StateRunning }
	onlyDue := func(w *laneWorld, i int) bool { n, limit := w.standing(i, due); return n >= limit }
	ownLimit := func(w *laneWorld, i int) bool {
		n, _ := w.standing(i, func(*flight.Flight) bool { return true })
		return n >= int(w.flights[i].Place.Queue.Limit)
	}
	const overtaken, tooMany = "overtaken", "too many"
	return []laneRule{
		{name: "one at a time", limits: [3]uint16{1, 1, 1}},
		{name: "two at a time", limits: [3]uint16{2, 2, 2}},
		{name: "different limits, the smallest first", limits: [3]uint16{1, 2, 2}},
		{name: "different limits, the smallest last", limits: [3]uint16{2, 2, 1}},
		{name: "only jobs that are due now are counted", limits: [3]uint16{1, 1, 1}, blocks: onlyDue, violates: overtaken},
		{name: "each job has its own limit", limits: [3]uint16{1, 2, 2}, blocks: ownLimit, violates: tooMany},
		{name: "a job that a person lets run again keeps its place", limits: [3]uint16{1, 1, 1}, keepsPlace: true, violates: overtaken},
	}
}

// violation names the property that a state breaks. Two jobs of a lane are open at once only if both limits allow it; in a lane
// of limit one nothing opens while an earlier job is live.
func (w *laneWorld) violation() string {
	open, limit := 0, 3
	for _, f := range w.flights {
		if f.OpenAttempt() != nil {
			open++
			limit = min(limit, int(f.Place.Queue.Limit))
		}
	}
	if open > limit {
		return "too many"
	}
	for i, f := range w.flights {
		if f.OpenAttempt() == nil || f.Place.Queue.Limit > 1 {
			continue
		}
		for j := range w.flights {
			if j != i && w.live(j) && w.before(j, i) {
				return "overtaken"
			}
		}
	}
	return ""
}

// abstract is what distinguishes two states for the lane: of each job its state, its order, and what may happen to it next.
func (w *laneWorld) abstract() string {
	var b strings.Builder
	order := make([]int, 0, 3)
	for i, f := range w.flights {
		if f != nil && f.Place != nil {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		if w.before(i, j) {
			return -1
		}
		return 1
	})
	for i, f := range w.flights {
		if f == nil {
			b.WriteString("- ")
			continue
		}
		fmt.Fprintf(&b, "%v %d %v %v %d %v ", f.State, slices.Index(order, i), f.OpenAttempt() != nil, f.NotBefore > w.header.Now, f.CountedAttempts, f.Cancel != nil)
	}
	fmt.Fprint(&b, w.retried)
	return b.String()
}

// successors returns the states that one command leads to, by name.
func (w *laneWorld) successors(t *testing.T, rule *laneRule) map[string]*laneWorld {
	all := make(map[string]*laneWorld)
	apply := func(name string, i int, c flight.Command) {
		next := *w
		next.header.Version.Index++
		view := flight.View{Header: next.header, Flight: w.flights[i]}
		if _, ok := c.(*flight.Open); ok && w.live(i) {
			view.LaneBlocked = byTable(w, i)
			if rule.blocks == nil {
				require.Equal(t, byDefinition(w, i), view.LaneBlocked, "the table agrees with the definition: %s", w.abstract())
			} else {
				view.LaneBlocked = rule.blocks(w, i)
			}
		}
		after, reply := flight.Apply(view, c)
		if !reply.Changed {
			return
		}
		next.header, next.flights[i] = after.Header, after.Flight
		if f := next.flights[i]; rule.keepsPlace && f.Place != nil && w.flights[i] != nil && w.flights[i].Place != nil {
			kept := *f
			kept.Place = w.flights[i].Place
			next.flights[i] = &kept
		}
		all[fmt.Sprintf("%s %d", name, i+1)] = &next
	}
	for i := range w.flights {
		f, key := w.flights[i], flight.MustKey(fmt.Sprintf("test/charge/order-%d", i+1))
		if !w.live(i) && f == nil {
			policy := flight.Policy{Retry: flight.RetryPolicy{Attempts: 2, MinBackoff: time.Second, MaxBackoff: time.Second}}
			apply("submit", i, &flight.Submit{Key: key, Submission: flight.Submission{Policy: policy}, Queue: &flight.Queue{Lane: "a", Limit: rule.limits[i]}})
			continue
		}
		apply("open", i, &flight.Open{Key: key, Session: flight.Session{ID: "s", Epoch: w.header.LeaseEpoch}, Nonce: flight.Nonce{byte(w.header.Version.Index), 1},
			NotAfter: w.header.Now, StoreEpoch: w.header.StoreEpoch})
		if a := f.OpenAttempt(); a != nil {
			for _, o := range []flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeNotDone, flight.OutcomeUnknown} {
				apply("report "+o.String(), i, &flight.Report{Key: key, Generation: f.Generation, Token: w.header.TokenOf(a), Outcome: o})
			}
		}
		apply("resolve", i, &flight.Resolve{Key: key, Generation: f.Generation, Version: f.Version, Finding: flight.FindingNotHappened})
		apply("cancel", i, &flight.Cancel{Key: key, Generation: f.Generation})
		if w.retried < 2 && !(w.retried > 0 && testing.Short()) {
			before := len(all)
			apply("retry", i, &flight.Retry{Key: key, Generation: f.Generation})
			if len(all) > before {
				all[fmt.Sprintf("retry %d", i+1)].retried++
			}
		}
	}
	later := *w
	later.header.Now = w.header.Now.Add(time.Second)
	all["a second later"] = &later
	return all
}

// TestLanes_Explored reaches every state of three jobs in a lane, and checks each. In a lane that holds, some live job may open
// or is open, or a person is asked, in every state: a lane is never stuck. The other definitions are why it is defined so.
func TestLanes_Explored(t *testing.T) {
	for _, rule := range laneRules() {
		t.Run(rule.name, func(t *testing.T) {
			type visited struct {
				world *laneWorld
				from  int
				by    string
			}
			first := &laneWorld{header: testHeader}
			first.header.Version = flight.Version{Index: 1}
			found, list := map[string]bool{first.abstract(): true}, []visited{{world: first}}
			for n := 0; n < len(list); n++ {
				w := list[n].world
				if broken := w.violation(); broken != "" {
					var trace []string
					for k := n; k > 0; k = list[k].from {
						trace = append([]string{list[k].by}, trace...)
					}
					require.Equal(t, rule.violates, broken, strings.Join(trace, ", "))
					t.Logf("%s after %s (%d states)", broken, strings.Join(trace, ", "), len(list))
					return
				}
				require.Less(t, n, 200_000, "the states have no end")
				next := w.successors(t, &rule)
				moves := false
				for by, world := range next {
					moves = moves || by != "a second later" && !strings.HasPrefix(by, "submit") && !strings.HasPrefix(by, "cancel")
					if key := world.abstract(); !found[key] {
						found[key] = true
						list = append(list, visited{world, n, by})
					}
				}
				waits := slices.ContainsFunc(w.flights[:], func(f *flight.Flight) bool { return f != nil && f.NotBefore > w.header.Now })
				require.True(t, moves || waits || !w.live(0) && !w.live(1) && !w.live(2), "stuck: %s", w.abstract())
			}
			require.Empty(t, rule.violates, "the definition holds in %d states", len(list))
			t.Logf("holds in %d states", len(list))
		})
	}
}
