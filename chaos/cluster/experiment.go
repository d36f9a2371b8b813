//go:build linux

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/ledgerlog"
	"github.com/flightd/flightd/chaos/report"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

// experiment is one run: a cluster under all workloads at once, faults until the time is over, and the judgement.
func experiment(t *run, opts *Options) *report.Result {
	began := time.Now()
	b := newBed(t, opts)
	b.began = began
	b.startWorkers(opts.Load.Workers)
	t.Logf("%d nodes, %d callers and %d workers in Go, Python and TypeScript; seed %d; data and logs in %s", opts.Nodes, opts.Load.Callers, opts.Load.Workers, opts.Seed, b.dir)
	b.tell(order{Do: "load", Name: "load", Callers: opts.Load.Callers, Every: opts.Load.Pause, MaxKeys: 1_000_000, Lasts: 10 * time.Second, LongOneIn: 60})
	b.tell(order{Do: "pace", Name: "pace", Every: 150 * time.Millisecond})
	b.tell(order{Do: "person", Name: "person", Every: 2 * time.Second})
	b.tell(order{Do: "jobs", Name: "jobs", Count: opts.Load.Jobs, Every: opts.For * 3 / 4 * time.Duration(min(submitters, opts.Load.Jobs/laneLength)) / time.Duration(max(1, opts.Load.Jobs))})
	b.tell(order{Do: "sagas", Name: "sagas", Count: opts.Load.Sagas, Every: opts.For * time.Duration(min(sagaSlots, opts.Load.Sagas)) / time.Duration(max(1, opts.Load.Sagas)), Lasts: opts.Timeout})
	b.tell(order{Do: "operations", Name: "operations", Every: 80 * time.Millisecond, Lasts: max(5*time.Second, opts.For/6)})
	approvals := max(60, opts.Load.Jobs/20)
	b.tell(order{Do: "approvals", Name: "approvals", Count: approvals, Every: opts.For / time.Duration(approvals)})
	b.tell(order{Do: "callbacks", Name: "callbacks", Every: 700 * time.Millisecond})
	execs := b.startExecs()
	b.nemesis(began.Add(opts.For))
	execs()
	for _, name := range []string{"operations", "load", "pace", "callbacks", "jobs", "sagas"} {
		b.tell(order{Do: "stop", Name: name})
	}
	await := func(within time.Duration, names ...string) {
		for late := time.Now().Add(within); len(names) > 0; names = names[1:] {
			if err := b.await(names[0], late); err != nil { // keys are blocked
				b.found = append(b.found, Violation{ruleNotBlocked, names[0], err.Error()})
				continue
			}
			t.Logf("%s: over %.1fs after the last fault was healed", names[0], time.Since(b.Healed).Seconds())
		}
	}
	await(opts.Timeout, "operations", "load", "pace", "callbacks", "approvals", "jobs", "sagas")
	b.tell(order{Do: "stop", Name: "person"})
	await(90*time.Second, "person")
	if !opts.First && len(b.found) == 0 {
		b.found = b.killWorkersAtWork()
	}
	result := (&judge{b}).judge()
	result.Began, result.Ended = began, time.Now()
	return result
}

// killWorkersAtWork kills half of the workers in the middle of jobs, starts them again, and judges how soon their attempts are declared lost.
func (b *bed) killWorkersAtWork() (found []Violation) {
	b.atWork = jobsAtWork(4 * len(b.working)) // half of the places that the workers have
	b.tell(order{Do: "jobs at work", Name: "jobs at work", Count: len(b.atWork)})
	for until := time.Now().Add(4 * time.Second); b.countKeys(atWork) < len(b.atWork) && time.Now().Before(until); {
		time.Sleep(100 * time.Millisecond)
	}
	dead := (len(b.working) + 1) / 2
	killed := time.Now()
	for _, p := range b.working[:dead] {
		p.Kill()
	}
	for i := range dead {
		b.working[i] = b.startWorker(i)
	}
	if err := b.await("jobs at work", time.Now().Add(b.opts.Timeout)); err != nil {
		return []Violation{{ruleNotBlocked, "jobs at work", err.Error()}}
	}
	over, slow := time.Since(killed), time.Duration(b.opts.Load.Slow)
	if most := workerSession + overLimit*slow; over > most {
		found = append(found, Violation{ruleRecovers, "jobs at work", fmt.Sprintf("all were over %v after their workers had died; the limit is %v", over, most)})
	}
	lost, last, limit := 0, time.Duration(0), workerSession+lossLimit*slow
	for _, end := range b.JobEnds {
		if end.Lost.IsZero() {
			continue
		}
		lost++
		after := end.Lost.Sub(killed)
		if last = max(last, after); after < 0 || after > limit {
			found = append(found, Violation{ruleRecovers, end.Key, fmt.Sprintf("its attempt was declared lost %v after its worker had died; the limit is %v", after, limit)})
		}
	}
	if lost == 0 {
		found = append(found, Violation{ruleRecovers, "jobs at work", "no attempt of a dead worker was declared lost"})
	}
	b.t.Logf("%d workers died at work, whose sessions live for %v: their %d attempts were declared lost within %v, and all jobs were over within %v", dead, workerSession, lost,
		last.Round(time.Millisecond), over.Round(time.Millisecond))
	return found
}

// startExecs runs flightd exec, each key three times, until the function is called that it returns.
func (b *bed) startExecs() (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ; i++ {
			id := fmt.Sprint("print-", i/3)
			running.Go(func() {
				x := Exec{Key: "default/" + actionExec + "/" + id}
				var err error
				if x.Output, err = b.run("exec", "--key", actionExec+"/"+id, "--", "env", actEnv+"=http://"+b.host("provider").Address.String(), "FLIGHTD_KEY="+x.Key, b.opts.Self); err != nil {
					x.Err = err.Error()
				}
				x.Ended = time.Now()
				b.mu.Lock()
				b.Execs = append(b.Execs, x)
				b.mu.Unlock()
			})
			select {
			case <-ended:
				return
			case <-time.After(400 * time.Millisecond):
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}

// stopCalling ends the callers, when no worker runs. All reports must have arrived.
func (b *bed) stopCalling() (found []Violation) {
	b.carryOut(order{Do: "close", Name: "close"}, 30*time.Second)
	for _, p := range b.calling {
		p.Kill()
	}
	require.NoError(b.t, filepath.WalkDir(b.path("spool"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, Violation{ruleReported, path, "the report is still in the spool, or was rejected"})
		}
		return err
	}))
	return found
}

// leftOver kills the nodes, checks their log, and looks in etcd for what should be gone: leases and keys of callers and workers that have ended.
func (b *bed) leftOver(waits bool) (found []Violation) {
	if waits {
		time.Sleep(lease.DefaultTTL + 2*time.Second) // sessions of callers and of workers that were killed end
	}
	data := filepath.Join(b.data(b.names[0]), "etcd")
	for _, p := range b.nodes {
		p.Kill()
	}
	if b.etcd != nil {
		for _, p := range b.etcd.running {
			p.Kill()
		}
		data = b.etcd.members[0].Dir
	}
	var logs []*ledgerlog.Log
	for _, name := range b.names {
		_ = b.collected.log.Add(b.data(name)) // if it cannot be read, the next line says so
		log, err := ledgerlog.Read(b.data(name))
		if err != nil && slices.ContainsFunc(b.faults, func(f report.Fault) bool { return f.Victim == name && strings.HasPrefix(f.Kind, "a bit of") }) {
			b.unread = append(b.unread, fmt.Sprintf("The log of node %s, which a fault has damaged, could not be read in the end: %v.", name, err))
			continue
		}
		if err != nil {
			found = append(found, Violation{ruleLog, name, err.Error()})
			continue
		}
		logs = append(logs, log)
	}
	inLog, counts := ledgerlog.Check(&b.collected.log, logs...)
	b.counts = counts
	for _, v := range inLog {
		found = append(found, Violation{ruleLog, v.Key, v.String()})
	}
	if !waits {
		return found
	}
	if keys, leases := etcdtest.Leased(b.t, data); len(keys)+len(leases) > 0 {
		found = append(found, Violation{ruleLeft, "etcd", fmt.Sprintf("the leases %.1000q, and the keys %.2000q", leases, keys)})
	}
	return found
}
