package protocolmodel

import "slices"

// checkLiveness checks property L1 on the graph of fair steps, that is, when faults have stopped: from every state a
// path leads to a settled one, and no cycle that weak fairness permits avoids the settled ones.
func (x *search[S]) checkLiveness() {
	x.result.Live = true
	if x.findStuck(); x.result.Stuck == 0 {
		x.findFairCycles()
	}
}

// findStuck counts the states from which no path leads to a settled state.
func (x *search[S]) findStuck() {
	reaches := slices.Clone(x.settled)
	for changed := true; changed; {
		changed = false
		for i := len(reaches) - 1; i >= 0; i-- {
			for _, e := range x.out(uint32(i)) {
				if !reaches[i] && reaches[e.to] {
					reaches[i], changed = true, true
				}
			}
		}
	}
	for i, ok := range reaches {
		if ok {
			continue
		}
		if x.result.Stuck == 0 {
			x.result.StuckTrace = x.trace(uint32(i))
		}
		x.result.Stuck++
	}
}

func (x *search[S]) out(state uint32) []edge { return x.edges[x.first[state]:x.first[state+1]] }

// findFairCycles walks the strongly connected components of the states that are not settled (Tarjan's algorithm,
// without recursion), and judges each of more than one state.
func (x *search[S]) findFairCycles() {
	n := len(x.settled)
	index := make([]int32, n) // order of discovery + 1
	low := make([]int32, n)
	component := make([]int32, n) // number + 1
	var (
		stack   []uint32
		calls   []struct{ state, edge uint32 }
		counter int32
		last    int32 // number of the component found last
		badFrom = n
	)
	enter := func(v uint32) {
		counter++
		index[v], low[v] = counter, counter
		stack = append(stack, v)
		calls = append(calls, struct{ state, edge uint32 }{v, x.first[v]})
	}
	for root := range n {
		if x.settled[root] || index[root] > 0 {
			continue
		}
		enter(uint32(root))
		for len(calls) > 0 {
			call := &calls[len(calls)-1]
			v := call.state
			if call.edge < x.first[v+1] {
				w := x.edges[call.edge].to
				call.edge++
				switch {
				case x.settled[w]:
				case index[w] == 0:
					enter(w)
				case component[w] == 0 && index[w] < low[v]:
					low[v] = index[w]
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				u := calls[len(calls)-1].state
				low[u] = min(low[u], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			last++
			from := len(stack) - 1
			for stack[from] != v {
				from--
			}
			members := stack[from:]
			for _, w := range members {
				component[w] = last
			}
			if len(members) > 1 {
				x.result.Cycles++
				if inside, fair := x.inspectComponent(members, component, last); fair {
					x.result.FairCycles++
					if int(v) < badFrom {
						badFrom = int(v)
						x.result.CycleTrace, x.result.CycleSteps = x.trace(v), inside
					}
				}
			}
			stack = stack[:from]
		}
	}
}

// inspectComponent reports whether a run may stay in a component forever under weak fairness: no step is possible in all of its
// states without being taken inside. It returns the steps inside.
func (x *search[S]) inspectComponent(members []uint32, component []int32, number int32) (steps []string, fair bool) {
	possible := map[uint32]int{} // in how many members
	inside := map[uint32]bool{}
	for _, w := range members {
		here := map[uint32]bool{}
		for _, e := range x.out(w) {
			if !here[e.label] {
				here[e.label] = true
				possible[e.label]++
			}
			if component[e.to] == number {
				inside[e.label] = true
			}
		}
	}
	for l, n := range possible {
		if n == len(members) && !inside[l] {
			return nil, false
		}
	}
	for l := range inside {
		steps = append(steps, x.labels.name(l))
	}
	slices.Sort(steps)
	return steps, true
}
