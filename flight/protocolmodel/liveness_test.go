package protocolmodel

import "slices"

// checkLiveness checks property L1 on the graph of fair steps, that is, when faults have stopped: from every state a
// path leads to a settled one, and no cycle that weak fairness permits avoids the settled ones.
func (se *search[S]) checkLiveness() {
	se.result.Live = true
	if se.findStuck(); se.result.Stuck == 0 {
		se.findFairCycles()
	}
}

// findStuck counts the states from which no path leads to a settled state.
func (se *search[S]) findStuck() {
	reaches := slices.Clone(se.settled)
	for changed := true; changed; {
		changed = false
		for i := len(reaches) - 1; i >= 0; i-- {
			for _, e := range se.out(uint32(i)) {
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
		if se.result.Stuck == 0 {
			se.result.StuckTrace = se.trace(uint32(i))
		}
		se.result.Stuck++
	}
}

func (se *search[S]) out(state uint32) []edge { return se.edges[se.first[state]:se.first[state+1]] }

// findFairCycles walks the strongly connected components of the states that are not settled (Tarjan's algorithm,
// without recursion), and judges each of more than one state.
func (se *search[S]) findFairCycles() {
	n := len(se.settled)
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
		calls = append(calls, struct{ state, edge uint32 }{v, se.first[v]})
	}
	for root := range n {
		if se.settled[root] || index[root] > 0 {
			continue
		}
		enter(uint32(root))
		for len(calls) > 0 {
			call := &calls[len(calls)-1]
			v := call.state
			if call.edge < se.first[v+1] {
				w := se.edges[call.edge].to
				call.edge++
				switch {
				case se.settled[w]:
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
				se.result.Cycles++
				if inside, fair := se.inspectComponent(members, component, last); fair {
					se.result.FairCycles++
					if int(v) < badFrom {
						badFrom = int(v)
						se.result.CycleTrace, se.result.CycleSteps = se.trace(v), inside
					}
				}
			}
			stack = stack[:from]
		}
	}
}

// inspectComponent reports whether a run may stay in a component forever under weak fairness: no step is possible in all of its
// states without being taken inside. It returns the steps inside.
func (se *search[S]) inspectComponent(members []uint32, component []int32, number int32) (steps []string, fair bool) {
	possible := map[uint32]int{} // in how many members
	inside := map[uint32]bool{}
	for _, w := range members {
		here := map[uint32]bool{}
		for _, e := range se.out(w) {
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
		steps = append(steps, se.labels.name(l))
	}
	slices.Sort(steps)
	return steps, true
}
