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
	b.tell(order{Do: "sagas", Name: "sagas", Count: opts.Load.Sagas, Every: opts.For * time.Duration(min(sagaSlots, opts.Load.Sagas)) / time.Duration(2*max(1, opts.Load.Sagas)), Lasts: opts.Timeout})
	b.tell(order{Do: "operations", Name: "operations", Every: 80 * time.Millisecond, Lasts: max(5*time.Second, opts.For/6)})
	approvals := max(60, opts.Load.Jobs/20)
	b.tell(order{Do: "approvals", Name: "approvals", Count: approvals, Every: opts.For / time.Duration(approvals)})
	b.tell(order{Do: "callbacks", Name: "callbacks", Every: 700 * time.Millisecond})
	execs := b.startExecs()
	b.nemesis(began.Add(opts.For))
	execs()
	for _, name := range []string{"operations", "load", "pace", "callbacks"} {
		b.tell(order{Do: "stop", Name: name})
	}
	await := func(late time.Time, names ...string) {
		for _, name := range names {
			if err := b.await(name, late); err != nil { // keys are blocked
				b.found = append(b.found, Violation{ruleNotBlocked, name, err.Error()})
			}
		}
	}
	await(time.Now().Add(opts.Timeout), "operations", "load", "pace", "callbacks", "jobs", "sagas", "approvals")
	b.tell(order{Do: "stop", Name: "person"})
	await(time.Now().Add(90*time.Second), "person")
	t.Logf("all work was over %.1fs after the last fault was healed", time.Since(b.Healed).Seconds())
	result := (&judge{b}).judge()
	result.Began, result.Ended = began, time.Now()
	return result
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
