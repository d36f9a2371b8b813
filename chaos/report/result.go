// Package report has the result of a run of chaos, and writes it as one HTML page that needs nothing else.
package report

import "time"

// Result is all that a run of chaos has seen and found.
type Result struct {
	Seed         uint64
	Version      string // of flightd
	Machine      string
	Command      string // that repeats the run
	Began, Ended time.Time
	Nodes        int
	Etcd         string // where it ran
	Faults       []Fault
	Rounds       []Round
	Seconds      []Second
	Workloads    []Workload
	Invariants   []Invariant
	Hazards      []Hazard
	Histories    []History
	NotCovered   []string // what runs of this kind cannot show, in sentences
}

// Fault is one fault that was injected.
type Fault struct {
	Kind   string
	Victim string // node, member, worker or provider
	Began  time.Time
	Healed time.Time
	Bites  int    // what it did: packets dropped, processes ended, writes refused; 0: it was not seen to do anything
	Bite   string // the same in words
	Round  int
}

// Round is a time of faults, between two moments at which the cluster was whole.
type Round struct {
	Began  time.Time
	Healed time.Time     // when the last fault was healed
	Whole  time.Duration // from then until every node took part
	Leader time.Duration // until a node led
	Flight time.Duration // until the first effect of a key that was first called after the heal
}

// Second is one second of the run.
type Second struct {
	At       int // seconds after the start
	Calls    int // answered
	Effects  int // requests at the provider
	Replays  int // answers from a receipt
	Errors   int // answers that say: call again
	P50, P99 time.Duration
}

// Workload is one kind of use.
type Workload struct {
	Name       string
	Operations int
	Effects    int
	Text       string // what became of them
}

// Invariant is a promise that was judged.
type Invariant struct {
	Name       string
	Promise    string // in a sentence
	Checked    int    // how many things were compared
	Violations []Violation
}

// Violation is one way in which a promise was broken.
type Violation struct {
	Key  string // it is in Result.Histories
	Text string
}

// Hazard is a row of docs/hazards.md, and how often the run met it.
type Hazard struct {
	Number int
	Text   string
	Met    int
	How    string // under which workload and fault
}

// History is what was seen of one key, in the order of time.
type History struct {
	Key   string
	Lines []Line
}

// Line is one thing that was seen.
type Line struct {
	At     time.Time
	Source string // provider, a caller, a node, or a fault
	Text   string
}

// Broken returns how many violations there are.
func (r *Result) Broken() (count int) {
	for i := range r.Invariants {
		count += len(r.Invariants[i].Violations)
	}
	return count
}

// Bitten returns the number of faults that were seen to do something, and of their kinds.
func (r *Result) Bitten() (faults, kinds int) {
	seen := make(map[string]bool)
	for i := range r.Faults {
		if r.Faults[i].Bites > 0 {
			faults++
			seen[r.Faults[i].Kind] = true
		}
	}
	return faults, len(seen)
}
