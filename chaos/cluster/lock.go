//go:build linux

package cluster

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/report"
	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

const (
	lockWorkers = 5               // of flightd, and as many that hold a mutex
	lockFreeze  = 3 * lockSession // how long a worker stands still
	lockEvery   = 5 * time.Second // between two freezes
)

// lockExperiment compares two ways to let one worker at a time read, change and write a register, while workers stand still for three
// sessions. Each worker of flightd has a twin that holds a mutex of etcd, and both stand still at once.
//
// With flightd, an update is a job in a lane of limit 1 of its register: the lane takes the place of the lock. A key of its own for each
// update would stop the repeat of an update, and not two updates at once. No lease holds the lane: the next job opens when the ledger has
// the end of the one before it, and an unknown end is a doubt, which keeps the lane.
func lockExperiment(t *run, opts *Options) *report.Result {
	began := time.Now()
	b := newBed(t, opts)
	binary, err := etcdtest.Binary()
	require.NoError(t, err)
	host := b.host(ownMembers()[0])
	member := etcdtest.Member{Name: "mutex", Dir: b.path("data-mutex"), Client: fmt.Sprintf("%s:%d", host.Address, etcdClientPort), Peer: fmt.Sprintf("%s:%d", host.Address, etcdPort)}
	spec := etcdtest.Spec(binary, []etcdtest.Member{member}, 0)
	spec.Start, spec.Env = host.Start, b.env()
	b.awaitReady(b.start(spec))
	b.config.SessionMS, b.config.MutexEtcd = lockSession.Milliseconds(), member.URL()
	b.startWorkers(lockWorkers)
	var mutexes []*proctest.Process
	for i := range lockWorkers {
		name := fmt.Sprint(guardMutex, i)
		mutexes = append(mutexes, b.startPart(name, b.programs[0], eventsOf(b, name), workerEnv+"="+name))
		b.awaitReady(mutexes[i])
	}
	t.Logf("%d nodes; %d workers, and %d with a mutex; seed %d; data and logs in %s", opts.Nodes, lockWorkers, lockWorkers, opts.Seed, b.dir)
	b.tell(order{Do: "lanes", Name: "lanes"})
	freezeTwins(b, mutexes, time.Now().Add(opts.For))
	b.carryOut(order{Do: "stop", Name: "lanes"}, 5*time.Minute)
	for _, p := range append(mutexes, b.working...) { // late reports arrive before a worker ends
		if err := p.Stop(30 * time.Second); err != nil {
			t.Errorf("%v: %s", err, p.LogTail(20))
		}
	}
	flags := order{Do: "flags", Name: "flags"}
	for _, end := range b.JobEnds {
		if !isMutex(recoveryOf(end.Key)) {
			flags.Keys = append(flags.Keys, end.Key)
		}
	}
	b.carryOut(flags, 5*time.Minute)

	rows, found := judgeLocks(b.books.writes, b.books.values, b.JobEnds, b.Readings)
	found = append(found, b.stopCalling()...)
	result := &report.Result{Seed: opts.Seed, Machine: machine(), Began: began, Ended: time.Now(), Nodes: len(b.names), Etcd: "in the nodes", Faults: b.faults}
	_, _ = fmt.Fprintf(opts.Output, "\n%s; %d freezes of a worker and its twin\n\n%s", result.Machine, len(b.faults)/2, lockHeader)
	for _, r := range rows {
		_, _ = fmt.Fprintf(opts.Output, "| %s | %d | %d | %d | %d | %d | %d |\n", r.guard, r.acknowledged, r.lost, r.twice, r.beyond, r.flagged, r.unflagged)
		result.Workloads = append(result.Workloads, report.Workload{Name: r.guard, Operations: r.acknowledged, Effects: r.effects,
			Text: fmt.Sprintf("%d flights were flagged, and a person decided %d doubts", r.flags, r.doubts)})
	}
	for _, p := range append((&judge{b}).promises(), report.Invariant{Name: ruleLost, Promise: "An acknowledged update is in its register."},
		report.Invariant{Name: ruleOverlap, Promise: "A flight with a second effect, or with a write over a value that was not read, is flagged."}) {
		if slices.Contains([]string{ruleOneEffect, ruleSameKey, ruleTrue, ruleKeeps, ruleNotBlocked, ruleReported, ruleLane, ruleLost, ruleOverlap}, p.Name) {
			p.Checked = len(flags.Keys) // the others are no part of this experiment
			result.Invariants = append(result.Invariants, p)
		}
	}
	result.Invariants = addViolations(result.Invariants, found)
	require.Positive(t, rows[0].lost, "the mutex has lost no update: the run shows nothing; let it run for longer")
	return result
}

// freezeTwins lets one or two workers, with their twins, stand still at a time.
func freezeTwins(b *bed, mutexes []*proctest.Process, until time.Time) {
	var freezes sync.WaitGroup
	var mu sync.Mutex // guards b.faults
	thawed := make([]time.Time, lockWorkers)
	for ; time.Now().Before(until); time.Sleep(lockEvery) {
		count := 1 + b.random.IntN(2)
		for _, i := range b.random.Perm(lockWorkers) {
			if count == 0 || time.Now().Before(thawed[i]) {
				continue
			}
			count--
			thawed[i] = time.Now().Add(lockFreeze + time.Second)
			for _, twin := range []*proctest.Process{b.working[i], mutexes[i]} {
				f := report.Fault{Kind: "worker stands still for 3 sessions", Victim: fmt.Sprint("worker-", i), Began: time.Now()}
				heal, err := b.freeze(twin)
				require.NoError(b.t, err)
				freezes.Go(func() {
					time.Sleep(lockFreeze)
					var err error
					if f.Bites, f.Bite, err = heal(); err != nil {
						b.t.Errorf("%s: %v", f.Victim, err)
					}
					f.Healed = time.Now()
					mu.Lock()
					defer mu.Unlock()
					b.faults = append(b.faults, f)
				})
			}
		}
	}
	freezes.Wait()
}
