package saga

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// explore visits every world, and returns their number. From each one, moves that must come lead to the end of the saga, or to persons.
func (e *explorer) explore(limit int) (int, error) {
	first := &world{version: 1}
	reply, err := e.submit(first)
	if err != nil || reply.Decision != flight.DecisionAccepted {
		return 0, fmt.Errorf("the saga was not submitted: %v %w", reply.Decision, err)
	}
	type visit struct {
		w    *world
		from int
		by   string
	}
	visits := []visit{{first, -1, ""}}
	seen := map[string]int{string(e.key(first, nil)): 0}
	var back [][]int32 // by world: the worlds from which a move that must come leads here
	var ended []int
	path := func(at int) string {
		var way []string
		for ; at > 0; at = visits[at].from {
			way = append(way, visits[at].by)
		}
		slices.Reverse(way)
		return strings.Join(way, "\n  ")
	}
	back = append(back, nil)
	var buf []byte
	for at := 0; at < len(visits); at++ {
		if len(visits) > limit {
			return len(visits), fmt.Errorf("more than %d worlds", limit)
		}
		w := visits[at].w
		moves, err := e.moves(w)
		if err != nil {
			return len(visits), fmt.Errorf("%w\n  %s", err, path(at))
		}
		if w.saga.State.Terminal() && len(w.pending) == 0 {
			ended = append(ended, at)
		}
		must, persons := 0, 0
		for _, m := range moves {
			buf = e.key(m.to, buf[:0])
			to, known := seen[string(buf)]
			if !known {
				to = len(visits)
				seen[string(buf)] = to
				visits = append(visits, visit{m.to, at, m.name})
				back = append(back, nil)
			}
			if awake := m.to.saga.State == flight.StateReady || m.to.saga.Wake != nil && e.live(m.to) < int(m.to.saga.Wake.Live); m.name == "the driver" && to == at && awake {
				return len(visits), fmt.Errorf("the saga is due again, and nothing has changed\n  %s", path(at))
			}
			if !m.optional {
				back[to] = append(back[to], int32(at))
			}
			if m.person {
				persons++
			} else if !m.optional {
				must++
			}
		}
		switch {
		case w.saga.State.Terminal() || must > 0:
		case persons == 0:
			return len(visits), fmt.Errorf("nothing goes on\n  %s", path(at))
		case len(e.decide(e.d, e.view(w)).Doubts) == 0 && !slices.ContainsFunc(w.steps[:], func(f *flight.Flight) bool { return f != nil && f.State == flight.StateAwaitingApproval }):
			return len(visits), fmt.Errorf("the saga waits for a person, and says no doubt\n  %s", path(at))
		}
		visits[at].w = nil
	}
	reached := make([]bool, len(visits))
	for _, at := range ended {
		reached[at] = true
	}
	for len(ended) > 0 {
		at := ended[len(ended)-1]
		ended = ended[:len(ended)-1]
		for _, from := range back[at] {
			if !reached[from] {
				reached[from] = true
				ended = append(ended, int(from))
			}
		}
	}
	if at := slices.Index(reached, false); at >= 0 {
		return len(visits), fmt.Errorf("the saga never ends\n  %s", path(at))
	}
	return len(visits), nil
}

// submit submits the saga.
func (e *explorer) submit(w *world) (flight.Reply, error) {
	w.version++
	v, reply := flight.Apply(flight.View{Header: w.header()}, &flight.Submit{Key: worldKey, Submission: flight.Submission{Policy: flight.Policy{Saga: true, Definition: e.d.ID()}}})
	w.saga = v.Flight
	return reply, nil
}

// saga returns a definition from lines like "a", "b<a,c" (b needs a and c), "c!" (the pivot), "d?" (skipped), "e~" (its undo is safe if e is
// absent), "f-" (nothing to undo), "g+" (resend), "h=" (an approval). Steps from the pivot on have no undo.
func explored(lines ...string) *Definition {
	d := &Definition{Saga: "trip", Version: 1}
	for _, line := range lines {
		name, needs, _ := strings.Cut(line, "<")
		s := Step{Name: name[:1], Undo: &Undo{RunPolicy: RunPolicy{Retry: &Retry{Attempts: 2}}}, RunPolicy: RunPolicy{Retry: &Retry{Attempts: 2}}}
		if needs != "" {
			s.Needs = strings.Split(needs, ",")
		}
		for _, mark := range name[1:] {
			switch mark {
			case '!':
				s.Pivot, s.Undo = true, nil
			case '?':
				s.If = &Condition{Value: "/input/cents", Above: json.RawMessage("5")}
			case '~':
				s.Undo.SafeIfAbsent = true
			case '-':
				s.NoUndo, s.Undo = true, nil
			case '+':
				s.Recovery = "resend"
			case '=':
				s.Approval, s.Undo, s.RunPolicy = &Approval{}, nil, RunPolicy{}
			}
		}
		d.Steps = append(d.Steps, s)
	}
	if p := d.pivot(); p >= 0 {
		for i, after := range d.comesAfter() {
			if after.has(p) {
				d.Steps[i].Undo = nil
			}
		}
	}
	return d
}

func scenarios() (all []scenario) {
	add := func(s scenario, lines ...string) {
		s.name, s.d = strings.Join(lines, " ")+s.name, explored(lines...)
		all = append(all, s)
	}
	for _, lines := range [][]string{{"a"}, {"a+"}, {"a!"}, {"a~"}, {"a+~"}, {"a-"}} {
		add(scenario{name: ", everything", outcomes: "srnux", cancel: true, tooLate: true, runsAgain: 1, dies: true, short: true}, lines...)
		all[len(all)-1].d.Deadline = Duration(worldDeadline)
		add(scenario{name: ", stale", outcomes: "srnux", cancel: true, stale: true, runsAgain: 1, short: true}, lines...)
		add(scenario{name: ", slow drivers", outcomes: "srux", cancel: true, slow: true, runsAgain: 1, short: true}, lines...)
	}
	for _, lines := range [][]string{{"a", "b"}, {"a", "b<a"}, {"a", "b!<a"}, {"a!", "b<a"}, {"a~", "b"}, {"a-", "b+<a"}, {"a?", "b<a"}} {
		add(scenario{name: ", all outcomes", outcomes: "srux", cancel: true, short: true}, lines...)
		add(scenario{name: ", drivers die", outcomes: "sr", cancel: true, dies: true, short: true}, lines...)
		add(scenario{name: ", stale", outcomes: "sru", cancel: true, stale: true}, lines...)
		add(scenario{name: ", slow drivers", outcomes: "srn", cancel: true, slow: true}, lines...)
		add(scenario{name: ", every report", outcomes: "srnux", cancel: true, runsAgain: 1}, lines...)
		add(scenario{name: ", late reports", outcomes: "sux", cancel: true, tooLate: true, runsAgain: 1}, lines...)
	}
	for _, lines := range [][]string{{"a", "b", "c"}, {"a", "b=<a", "c!<b"}, {"a", "b!<a", "c<b"}, {"a", "b~<a", "c<a"}, {"a?", "b<a", "c!<b"}} {
		add(scenario{name: ", all outcomes", outcomes: "sru", cancel: true}, lines...)
		add(scenario{outcomes: "sr", cancel: true, short: true}, lines...)
		add(scenario{name: ", stale", outcomes: "sr", cancel: true, stale: true}, lines...)
	}
	add(scenario{name: ", slow drivers", outcomes: "sr", cancel: true, slow: true}, "a", "b!<a", "c<b")
	add(scenario{name: ", drivers die", outcomes: "sru", cancel: true, dies: true}, "a", "b!<a", "c<b")
	for _, lines := range [][]string{{"a", "b<a", "c<b", "d<c"}, {"a", "b<a", "c<a", "d!<b,c"}, {"a", "b!<a", "c<b", "d<b"}} {
		add(scenario{name: ", all outcomes", outcomes: "sru", cancel: true}, lines...)
		add(scenario{outcomes: "sr", cancel: true, short: true}, lines...)
	}
	add(scenario{name: ", all outcomes", outcomes: "sru", cancel: true}, "a", "b", "c=<a,b", "d!<c", "e<d")
	add(scenario{name: ", all outcomes", outcomes: "sru", cancel: true}, "a", "b<a", "c<a", "d<b,c", "e<d")
	for _, lines := range [][]string{{"a", "b<a", "c<b", "d<c", "e<d"}, {"a", "b", "c=<a,b", "d!<c", "e<d"}, {"a", "b<a", "c<a", "d<b,c", "e<d"}} {
		add(scenario{outcomes: "sr", cancel: true}, lines...)
	}
	return all
}

// maxWorlds bounds a scenario that grows by mistake.
const maxWorlds = 2_000_000

// TestExplore tries every sequence of what workers, providers, persons and drivers do, under the real rules of the ledger. A saga always
// ends or waits for a person; at its end all effects have happened, or none is left.
func TestExplore(t *testing.T) {
	began, total := time.Now(), 0
	for _, s := range scenarios() {
		if testing.Short() && !s.short {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			require.Empty(t, Lint(s.d))
			began := time.Now()
			n, err := newExplorer(&s, Decide).explore(maxWorlds)
			require.NoError(t, err, "after %d worlds", n)
			t.Logf("%d worlds in %v", n, time.Since(began).Round(time.Millisecond))
			total += n
		})
	}
	t.Logf("%d worlds in %v", total, time.Since(began).Round(time.Millisecond))
}
