//go:build linux

package cluster

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/chaos/linear"
	"github.com/flightd/flightd/chaos/report"
	"github.com/flightd/flightd/flight"
)

// judge judges what was seen of a bed.
type judge struct{ *bed }

// judge lets every checker judge what was seen.
func (j *judge) judge() *report.Result {
	for _, p := range j.working {
		if err := p.Stop(30 * time.Second); err != nil {
			j.t.Errorf("%v: %s", err, p.LogTail(20))
		}
	}
	j.carryOut(order{Do: "saga ends", Name: "saga ends"}, 2*time.Minute)
	j.carryOut(order{Do: "replay", Name: "replay", Keys: j.keys()}, 10*time.Minute)
	j.MayEnd = j.sessionsMayEnd()
	found := append(j.found, j.checkRecovery()...)
	found = append(found, j.stopCalling()...)
	found = append(found, Check(&History{Nodes: j.names, Session: j.Session, MayEnd: j.MayEnd, Healed: j.Healed, Calls: j.Calls, Readings: j.Readings, Effects: j.effectsOfCalls()})...)
	found = append(found, CheckJobs(append(jobsOf(j.opts.Load.Jobs), j.atWork...), j.Effects, j.JobEnds, j.MayEnd)...)
	found = append(found, checkApprovals(j.Approvals, j.Effects)...)
	found = append(found, checkExecs(j.Execs, j.Effects)...)
	for _, v := range linear.Check(j.Ops) {
		found = append(found, Violation{ruleLinear, v.Key, v.String()})
	}
	underWay, last := 0, j.Healed
	for _, end := range j.SagaEnds {
		if end.Began.Before(j.Healed) && end.Over.After(j.Healed) {
			underWay++
			if end.Over.After(last) {
				last = end.Over
			}
		}
	}
	j.t.Logf("%d sagas were under way when the last fault was healed; the last of them was over %.1fs later", underWay, last.Sub(j.Healed).Seconds())
	inSagas, flagged := CheckSagas(sagaDefinitions(), j.Effects, j.SagaEnds, j.Healed)
	found = append(found, inSagas...)
	explained := j.explain(found)
	found = append(found, j.leftOver(!j.opts.First || len(found) == 0)...)
	result := j.result(found)
	result.Histories = explained
	j.t.Logf("flagged: %v", flagged)
	return result
}

// carryOut gives the callers an order, and waits until they have carried it out. Nodes are supervised meanwhile: what they read now can be the
// first that they read of a damaged block.
func (j *judge) carryOut(o order, within time.Duration) {
	over := make(chan struct{})
	var supervisor sync.WaitGroup
	supervisor.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Second):
				j.superviseNodes()
			}
		}
	})
	defer supervisor.Wait()
	defer close(over)
	j.bed.carryOut(o, within)
}

// sessionsMayEnd reports whether a fault may have ended the session of a caller who lives. A node that is away for less than a session does not.
func (j *judge) sessionsMayEnd() bool {
	return slices.ContainsFunc(j.faults, func(f report.Fault) bool {
		return f.Kind != faultNodeKilled && f.Kind != faultNodeStopped || f.Healed.Sub(f.Began) > 10*time.Second
	})
}

// effectsOfCalls returns the effects that belong neither to jobs nor to sagas.
func (j *judge) effectsOfCalls() (effects []Effect) {
	for _, e := range j.Effects {
		if key := flight.MustKey(e.Key); !isStep(e.Key) && !isJob(e.Key) && key.Name() != actionApproved && key.Name() != actionExec {
			effects = append(effects, e)
		}
	}
	return effects
}

// result counts and sorts what was seen.
func (j *judge) result(found []Violation) *report.Result {
	r := &report.Result{Seed: j.opts.Seed, Nodes: len(j.names), Etcd: "in the nodes", Faults: j.faults, Rounds: j.rounds, Machine: machine()}
	if j.etcd != nil {
		r.Etcd = "three processes of its own"
	}
	r.Invariants, r.Seconds, r.Workloads = addViolations(j.promises(), found), j.seconds(), j.workloads()
	j.t.Logf("all but %d of the %d entries of the log were judged, with the events %v and the answers %v", j.counts.Missing, j.counts.To, j.counts.Seen.Events, j.counts.Seen.Answers)
	r.Hazards, r.NotCovered = hazards(j.History, j.faults, &j.counts.Seen), append(notCovered(len(j.names), j.etcd != nil, j.counts.Missing), j.unread...)
	if len(j.missing) > 0 {
		r.NotCovered = append(r.NotCovered, "Faults that this machine cannot have: "+strings.Join(j.missing, "; ")+".")
	}
	return r
}

// addViolations adds what was found to the promises that it breaks.
func addViolations(promises []report.Invariant, found []Violation) []report.Invariant {
	for _, v := range found {
		i := slices.IndexFunc(promises, func(p report.Invariant) bool { return p.Name == v.Rule })
		if i < 0 {
			i, promises = len(promises), append(promises, report.Invariant{Name: v.Rule})
		}
		promises[i].Violations = append(promises[i].Violations, report.Violation{Key: v.Key, Text: v.Text})
	}
	return promises
}

// promises returns every invariant that is judged, and how often.
func (j *judge) promises() []report.Invariant {
	calls, readings, kept := len(j.Calls), len(j.Readings), len(j.Calls)
	if j.MayEnd {
		kept = 0
	}
	return []report.Invariant{
		{Name: ruleOneEffect, Promise: "No effect happens beyond what the recovery of its key promises.", Checked: len(j.Effects)},
		{Name: ruleSameKey, Promise: "A resend has the idempotency key of the first send, and stays in the provider's window.", Checked: len(j.Effects)},
		{Name: ruleKept, Promise: "An acknowledged receipt is the same for everybody, for ever, at every node.", Checked: readings},
		{Name: ruleTrue, Promise: "No caller is told what is not true.", Checked: calls},
		{Name: ruleKeeps, Promise: "An attempt whose holder lives ends with its report; judged in runs whose faults end no session.", Checked: kept},
		{Name: ruleNotBlocked, Promise: "Each key ends soon after the last fault was healed.", Checked: calls + len(j.JobEnds) + len(j.SagaEnds)},
		{Name: ruleReported, Promise: "Every report arrives.", Checked: calls},
		{Name: ruleLane, Promise: "Jobs of a lane run in order, and not more at once than its limit.", Checked: len(j.JobEnds)},
		{Name: ruleAllOrNone, Promise: "Everything in a saga has happened, or everything that has happened was undone.", Checked: len(j.SagaEnds)},
		{Name: ruleReverse, Promise: "Undos run one at a time, in the reverse order in which their steps have ended.", Checked: len(j.SagaEnds)},
		{Name: ruleSettled, Promise: "No undo starts before every step is resolved.", Checked: len(j.SagaEnds)},
		{Name: ruleAfterUndo, Promise: "No effect happens after its undo.", Checked: len(j.SagaEnds)},
		{Name: ruleMark, Promise: "No step starts in a saga that was cancelled.", Checked: len(j.SagaEnds)},
		{Name: rulePivot, Promise: "Nothing is undone once the pivot has happened.", Checked: len(j.SagaEnds)},
		{Name: ruleNeeds, Promise: "A step starts when all that it needs has happened.", Checked: len(j.SagaEnds)},
		{Name: ruleSaysWhy, Promise: "A saga in doubt names its doubt.", Checked: len(j.SagaEnds)},
		{Name: ruleOneOutcome, Promise: "A person who cancels a saga is told what becomes of it.", Checked: len(j.SagaEnds)},
		{Name: ruleRecovers, Promise: fmt.Sprintf("After the last fault, a node leads within %v, and a new flight is performed within %v; %v more after a start of all nodes. An attempt of a dead worker is declared lost within its session and %v, and its job is over within %v more.", report.LeaderLimit*time.Duration(j.opts.Load.Slow), report.FlightLimit*time.Duration(j.opts.Load.Slow), startLimit, lossLimit*time.Duration(j.opts.Load.Slow), (overLimit-lossLimit)*time.Duration(j.opts.Load.Slow)), Checked: 2*len(j.rounds) + 2*len(j.atWork)},
		{Name: ruleApproval, Promise: "Nothing happens without a person's approval, and two persons make one decision.", Checked: len(j.Approvals)},
		{Name: ruleExec, Promise: "flightd exec prints the answer of the one effect of its key.", Checked: len(j.Execs)},
		{Name: ruleLinear, Promise: "The answers to operators and readers have an order, and no reader goes back in time.", Checked: len(j.Ops)},
		{Name: ruleLog, Promise: "The nodes have one log, which keeps every rule at every index, and their states are what it makes.", Checked: j.counts.Commands},
		{Name: ruleLeft, Promise: "Nothing is left of callers and workers that have ended.", Checked: 1},
	}
}

// seconds counts what happened in each second.
func (j *judge) seconds() (all []report.Second) {
	latencies := make(map[int][]time.Duration)
	of := func(at time.Time) *report.Second {
		n := max(0, int(at.Sub(j.began).Seconds()))
		for len(all) <= n {
			all = append(all, report.Second{At: len(all)})
		}
		return &all[n]
	}
	for i := range j.Calls {
		c := &j.Calls[i]
		s := of(c.Ended)
		s.Calls++
		switch {
		case c.Result != resultSucceeded:
			s.Errors++
		case c.Source == "replayed":
			s.Replays++
		}
		latencies[s.At] = append(latencies[s.At], c.Ended.Sub(c.Began)-c.Lasts)
	}
	for _, e := range j.Effects {
		of(e.At).Effects++
	}
	for at, took := range latencies {
		slices.Sort(took)
		all[at].P50, all[at].P99 = took[len(took)/2], took[len(took)*99/100]
	}
	return all
}

// workloads counts the use of the cluster, by kind.
func (j *judge) workloads() []report.Workload {
	calls := make(map[string]*report.Workload)
	effects := countBy(j.Effects, func(e *Effect) string { return kindOf(e.Key) })
	results := make(map[string]map[string]int)
	for i := range j.Calls {
		c := &j.Calls[i]
		kind := kindOf(c.Key)
		if calls[kind] == nil {
			calls[kind], results[kind] = &report.Workload{Name: kind}, make(map[string]int)
		}
		calls[kind].Operations++
		results[kind][c.Result]++
	}
	var all []report.Workload
	for kind, w := range calls {
		w.Effects, w.Text = effects[kind], fmt.Sprint(results[kind])
		all = append(all, *w)
	}
	slices.SortFunc(all, func(x, y report.Workload) int { return cmp.Compare(x.Name, y.Name) })
	doubts := 0
	for _, end := range j.JobEnds {
		doubts += end.Doubts
	}
	return append(all,
		report.Workload{Name: "jobs that await approval", Operations: 3 * len(j.Approvals), Effects: effects[actionApproved]},
		report.Workload{Name: "flightd exec", Operations: len(j.Execs), Effects: effects[actionExec]},
		report.Workload{Name: "operators and readers", Operations: len(j.Ops), Text: fmt.Sprint(countBy(j.Ops, func(o *linear.Op) string { return o.Kind }))},
		report.Workload{Name: kindJobs, Operations: 3 * len(j.JobEnds), Effects: effects[kindJobs], Text: fmt.Sprintf("%d jobs, each submitted three times; a person decided %d doubts", len(j.JobEnds), doubts)},
		report.Workload{Name: kindSagas, Operations: len(j.SagaEnds), Effects: effects[kindSagas], Text: fmt.Sprint(countBy(j.SagaEnds, func(end *SagaEnd) string { return end.State }))},
		report.Workload{Name: "replays at the end", Operations: len(j.Readings), Text: "each key at each node"})
}

func countBy[T any](all []T, kind func(*T) string) map[string]int {
	counts := make(map[string]int)
	for i := range all {
		counts[kind(&all[i])]++
	}
	return counts
}

const (
	kindJobs  = "jobs for workers"
	kindSagas = "sagas"
)

// kindOf returns the workload of a key.
func kindOf(key string) string {
	switch name := flight.MustKey(key).Name(); {
	case name == actionApproved, name == actionExec:
		return name
	case name == actionCallback:
		return "calls with a callback"
	case isStep(key):
		return kindSagas
	case isJob(key):
		return kindJobs
	case strings.Contains(key, "/pace-"):
		return "calls at a steady pace"
	case strings.Contains(key, "-shared-"):
		return "keys shared by four callers"
	}
	return "keys of one caller"
}

// explain returns what was seen of the keys of which a promise was broken.
func (j *judge) explain(found []Violation) (all []report.History) {
	explained := make(map[string]bool)
	for _, v := range found {
		key, isKey := strings.CutPrefix(v.Key, "default/")
		if len(explained) == 20 || !isKey || explained[key] {
			continue
		}
		explained[key] = true
		h := report.History{Key: v.Key}
		for _, e := range j.Effects {
			if e.Key == v.Key || strings.HasPrefix(e.Key, v.Key+"#") {
				h.Lines = append(h.Lines, report.Line{At: e.At, Source: "provider", Text: fmt.Sprintf("%s: a request of %s with fencing token %s and idempotency key %s; known: %v; %s", e.Key, e.Agent, e.FencingToken, e.IdempotencyKey, e.Repeat, e.Trouble)})
			}
		}
		for i := range j.Calls {
			if c := &j.Calls[i]; c.Key == v.Key {
				h.Lines = append(h.Lines, report.Line{At: c.Ended, Source: "caller " + c.Caller, Text: fmt.Sprintf("called at %s: %s %s attempt %d %s", clockText(c.Began), c.Result, c.Source, c.Attempt, c.Err)})
			}
		}
		for _, f := range j.faults {
			if len(h.Lines) > 0 && f.Healed.After(h.Lines[0].At.Add(-time.Minute)) && f.Began.Before(h.Lines[len(h.Lines)-1].At) {
				h.Lines = append(h.Lines, report.Line{At: f.Began, Source: "fault", Text: fmt.Sprintf("%s: %s until %s", f.Victim, f.Kind, clockText(f.Healed))})
			}
		}
		slices.SortStableFunc(h.Lines, func(x, y report.Line) int { return x.At.Compare(y.At) })
		text, err := j.run("why", key)
		if err != nil {
			text = err.Error()
		}
		h.Lines = append(h.Lines, report.Line{At: time.Now(), Source: "flightd why", Text: text})
		all = append(all, h)
	}
	return all
}

// machine describes the machine.
func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it, the name is missing
	for line := range strings.Lines(string(text)) {
		if name, isName := strings.CutPrefix(line, "model name\t: "); isName {
			return fmt.Sprintf("%s, %d cores, %s", strings.TrimSpace(name), runtime.NumCPU(), runtime.Version())
		}
	}
	return fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.Version())
}

// checkRecovery judges how soon the cluster was well after each round.
func (j *judge) checkRecovery() (found []Violation) {
	for i, r := range j.rounds {
		leader, flight := report.LeaderLimit*time.Duration(j.opts.Load.Slow), report.FlightLimit*time.Duration(j.opts.Load.Slow)
		if slices.ContainsFunc(j.faults, func(f report.Fault) bool { return f.Round == i+1 && strings.Contains(f.Kind, "all nodes") }) {
			leader, flight = leader+startLimit, flight+startLimit // from the moment when their processes are started
		}
		if r.Leader > leader {
			found = append(found, Violation{ruleRecovers, fmt.Sprint("round ", i+1), fmt.Sprintf("a node led only %v after the last fault was healed; the limit is %v", r.Leader, leader)})
		}
		if r.Flight > flight {
			found = append(found, Violation{ruleRecovers, fmt.Sprint("round ", i+1), fmt.Sprintf("the first new flight came only %v after; the limit is %v", r.Flight, flight)})
		}
	}
	return found
}

const (
	// startLimit is how long the start of all nodes may take.
	startLimit = 3 * time.Second
	// lossLimit is how much longer than the session of a dead worker it may take until its attempts are declared lost.
	lossLimit = 3 * time.Second
	// overLimit is how much longer than that session it may take until their jobs are over, which last for 8 s.
	overLimit = 15 * time.Second
)
