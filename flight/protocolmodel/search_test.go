package protocolmodel

import (
	"hash/maphash"
	"runtime/debug"
	"time"
	"unsafe"
)

// model is one set of rules with the bounds under which it is explored. S consists of bytes only, so that two equal
// states have equal memory.
type model[S comparable] struct {
	initial S

	// successors passes every state that follows from a state in one step to the steps.
	successors func(*S, *steps[S])

	// canonical, where set, replaces a state by the representative of its equivalence class.
	canonical func(*S)

	// violation names the property that a state violates; "" where it violates none.
	violation func(*S) string

	// settled reports whether no caller waits for the key. Property L1 is checked where live is set.
	settled func(*S) bool
	live    bool

	// outcome classifies a state for the statistics.
	outcome func(*S) outcome
}

// A step that is possible forever happens eventually, or it happens perhaps: faults, late messages, wishes.
const (
	eventually = true
	perhaps    = false
)

// steps collects the successors of one state.
type steps[S comparable] struct {
	canonical func(*S)
	emit      func(next S, fair bool, l label)
}

// add emits a successor with the name of the step that leads to it and up to three small numbers.
func (s *steps[S]) add(next S, fair bool, name string, args ...int) {
	if s.canonical != nil {
		s.canonical(&next)
	}
	s.emit(next, fair, newLabel(name, args...))
}

// Limits bound one search.
type Limits struct {
	States int           // 0: 60 million
	Time   time.Duration // 0: an hour
}

const defaultStates, defaultTime = 60_000_000, time.Hour

// edge is a fair step out of a state that is not settled.
type edge struct{ to, label uint32 }

// search is a run of explore.
type search[S comparable] struct {
	model  model[S]
	limits Limits
	start  time.Time
	seen   *stateTable
	labels labelTable
	result Result

	settled []bool   // per state, where L1 is checked
	first   []uint32 // per state: its first edge
	edges   []edge
}

// explore searches breadth first, so that the first violation found is a shortest one. A search that reaches a limit
// ends with Result.Complete false.
//
// Full states exist only in two levels of the frontier; of the others the search keeps 128 bits of hash. A collision
// hides a state: with 60 million states its chance is below 10⁻²².
func explore[S comparable](m model[S], limits Limits) Result {
	if limits.States == 0 {
		limits.States = defaultStates
	}
	if limits.Time == 0 {
		limits.Time = defaultTime
	}
	x := &search[S]{model: m, limits: limits, start: time.Now(), seen: newStateTable()}
	x.result.Outcomes = map[string]int{}
	found := x.run()
	x.result.States = x.seen.len()
	if found != nil {
		x.result.Violation, x.result.Trace = found.property, x.trace(found.state)
	} else if m.live && x.result.Complete {
		x.first = append(x.first, uint32(len(x.edges)))
		x.checkLiveness()
	}
	x.result.Elapsed = time.Since(x.start)
	*x = search[S]{result: x.result}
	debug.FreeOSMemory()
	return x.result
}

// finding is a state that violates a property.
type finding struct {
	property string
	state    uint32
}

func (se *search[S]) run() *finding {
	initial := se.model.initial
	if se.model.canonical != nil {
		se.model.canonical(&initial)
	}
	se.seen.put(hashState(&initial), 0)
	se.seen.label = append(se.seen.label, 0)
	var (
		level      = []S{initial}
		next       []S
		found      *finding
		outcomes   = map[outcome]int{}
		number     uint32 // of the state whose successors are computed
		from       *S
		wasSettled bool
	)
	defer func() {
		for o, n := range outcomes {
			se.result.Outcomes[o.String()] += n
		}
	}()
	out := &steps[S]{canonical: se.model.canonical, emit: func(s S, fair bool, l label) {
		if s == *from || found != nil {
			return
		}
		se.result.Edges++
		at, fresh := se.seen.put(hashState(&s), number)
		counts := se.model.live && fair && !wasSettled
		if !fresh && !counts {
			return
		}
		name := se.labels.number(l)
		if fresh {
			se.seen.label = append(se.seen.label, name)
			next = append(next, s)
			if property := se.model.violation(&s); property != "" {
				found = &finding{property, at}
			}
		}
		if counts {
			se.edges = append(se.edges, edge{at, name})
		}
	}}
	for len(level) > 0 {
		next = next[:0]
		for k := range level {
			from = &level[k]
			outcomes[se.model.outcome(from)]++
			if se.model.live {
				wasSettled = se.model.settled(from)
				se.settled = append(se.settled, wasSettled)
				se.first = append(se.first, uint32(len(se.edges)))
			}
			se.model.successors(from, out)
			number++
			if found != nil {
				return found
			}
			if se.seen.len() > se.limits.States || number&1023 == 0 && time.Since(se.start) > se.limits.Time {
				return nil
			}
		}
		level, next = next, level
	}
	se.result.Complete = true
	return nil
}

// trace returns the steps that lead to a state.
func (se *search[S]) trace(state uint32) []string {
	var names []string
	for ; state != 0; state = se.seen.parent[state] {
		names = append(names, se.labels.name(se.seen.label[state]))
	}
	for a, b := 0, len(names)-1; a < b; a, b = a+1, b-1 {
		names[a], names[b] = names[b], names[a]
	}
	return names
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashState[S comparable](s *S) [2]uint64 {
	b := unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s))
	return [2]uint64{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
}

// stateTable numbers states by their hashes, and remembers for each the state and the step that first led to it.
type stateTable struct {
	hash   [][2]uint64
	parent []uint32
	label  []uint32
	slots  []uint32 // number + 1 of the state, by open addressing
	mask   uint64
}

func newStateTable() *stateTable {
	const slots = 1 << 12
	return &stateTable{slots: make([]uint32, slots), mask: slots - 1}
}

func (t *stateTable) len() int { return len(t.hash) }

// put returns the number of the state with hash h, and whether it is new; the caller appends the label of a new one.
func (t *stateTable) put(h [2]uint64, parent uint32) (number uint32, fresh bool) {
	p := h[0] & t.mask
	for t.slots[p] != 0 {
		if n := t.slots[p] - 1; t.hash[n] == h {
			return n, false
		}
		p = (p + 1) & t.mask
	}
	t.hash = append(t.hash, h)
	t.parent = append(t.parent, parent)
	t.slots[p] = uint32(len(t.hash))
	if uint64(len(t.hash))*3/2 > t.mask {
		t.grow()
	}
	return uint32(len(t.hash) - 1), true
}

func (t *stateTable) grow() {
	n := len(t.slots) * 2
	t.slots, t.mask = make([]uint32, n), uint64(n-1)
	for i := range t.hash {
		p := t.hash[i][0] & t.mask
		for t.slots[p] != 0 {
			p = (p + 1) & t.mask
		}
		t.slots[p] = uint32(i + 1)
	}
}
