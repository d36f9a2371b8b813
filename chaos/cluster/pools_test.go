//go:build chaos

package cluster

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

var (
	jobCount = flag.Int("jobs", 800, "number of jobs of TestPools")
	workers  = flag.Int("workers", 6, "number of workers of TestPools")
	trouble  = flag.Duration("trouble", 25*time.Second, "how long TestPools kills and freezes workers and nodes")
)

// ruleLeft: nothing is left of workers that have ended, or of jobs that are over.
const ruleLeft = "left over"

// Workers in three languages and nodes are killed, and frozen for less and for longer than a session lives, while each of many jobs
// is submitted three times. CheckJobs judges the provider's books: a receipt for each job, no effect beyond what its recovery
// promises, and the order of lanes. In the end nothing is left: no claim, no session, no report.
func TestPools(t *testing.T) {
	b := newBed(t)
	running := b.startWorkers(*workers)
	began := time.Now()
	b.tell(order{Do: "jobs", Name: "jobs", Count: *jobCount, Every: *trouble * submitters / time.Duration(*jobCount)})
	for time.Since(began) < *trouble {
		b.troubleRound(running)
	}
	b.Healed = time.Now()
	b.await("jobs", 5*time.Minute)
	t.Logf("all %d jobs were over after %v, %v after the last fault", *jobCount, time.Since(began).Round(time.Millisecond), time.Since(b.Healed).Round(time.Millisecond))
	for _, p := range running {
		require.NoError(t, p.Stop(30*time.Second), p.LogTail(20))
	}
	b.tell(order{Do: "close", Name: "close"})
	b.await("close", 30*time.Second)
	for _, p := range b.calling {
		p.Kill()
	}
	doubts, repeats, agents := 0, 0, make(map[string]int)
	for _, end := range b.JobEnds {
		doubts += end.Doubts
	}
	for _, e := range b.Effects {
		agents[e.Agent]++
		if e.Repeat {
			repeats++
		}
	}
	t.Logf("%d requests at the provider, of which it knew %d, from %v; a person decided %d doubts", len(b.Effects), repeats, agents, doubts)
	require.Len(t, agents, len(b.programs), "workers in each language perform jobs")
	found := CheckJobs(jobsOf(*jobCount), b.Effects, b.JobEnds)
	spooled, err := spooledFiles(b.path("spool"))
	require.NoError(t, err)
	for _, file := range spooled {
		found = append(found, Violation{ruleReported, file, "the report is still in the spool, or was rejected"})
	}
	b.explain(found)
	time.Sleep(lease.DefaultTTL + 2*time.Second) // sessions of callers and of workers that were killed end
	data := b.path(filepath.Join("data-"+b.names[0], "etcd"))
	for _, p := range b.nodes {
		p.Kill()
	}
	if b.etcd != nil {
		for _, p := range b.etcd.running {
			p.Kill()
		}
		data = b.etcd.members[0].Dir
	}
	keys, leases := etcdtest.Leased(t, data)
	if len(keys)+leases > 0 {
		found = append(found, Violation{ruleLeft, "etcd", fmt.Sprintf("%d leases, and the keys %.2000q", leases, keys)})
	}
	b.fail(found)
}

// troubleRound kills or freezes some workers, and half of the time a node, heals them and waits until all nodes take part.
func (b *bed) troubleRound(running []*proctest.Process) {
	b.t.Helper()
	lasts := time.Duration(500+b.random.IntN(8_500)) * time.Millisecond
	said := fmt.Sprintf("%s: for %v,", clockText(time.Now()), lasts)
	var heal []func() error
	for _, i := range b.random.Perm(len(running))[:1+b.random.IntN(1+len(running)/3)] {
		if b.random.IntN(2) == 0 {
			running[i].Kill()
			said += fmt.Sprint(" worker ", i, " is killed,")
			heal = append(heal, func() error { running[i] = b.startWorker(i); return nil })
		} else {
			require.NoError(b.t, running[i].Freeze())
			said += fmt.Sprint(" worker ", i, " is frozen,")
			heal = append(heal, running[i].Thaw)
		}
	}
	if b.random.IntN(2) == 0 {
		victim := b.leader()
		if b.random.IntN(3) == 0 {
			victim = b.others(victim)[b.random.IntN(2)]
		}
		if b.random.IntN(2) == 0 {
			b.nodes[victim].Kill()
			said += fmt.Sprint(" node ", victim, " is killed,")
			heal = append(heal, func() error { return b.startNodes(victim) })
		} else {
			require.NoError(b.t, b.nodes[victim].Freeze())
			said += fmt.Sprint(" node ", victim, " is frozen,")
			heal = append(heal, b.nodes[victim].Thaw)
		}
	}
	time.Sleep(lasts)
	for _, f := range heal {
		require.NoError(b.t, f())
	}
	b.whole(30 * time.Second)
	b.t.Logf("%s then all nodes take part; the provider has got %d requests", said, len(b.effectsOf("job")))
}

// startWorkers starts workers, and waits until they are ready.
func (b *bed) startWorkers(count int) []*proctest.Process {
	b.t.Helper()
	running := make([]*proctest.Process, count)
	for i := range running {
		running[i] = b.startWorker(i)
	}
	for _, p := range running {
		_, err := p.AwaitReady(b.t.Context())
		require.NoError(b.t, err)
	}
	return running
}

// startWorker starts the process of a worker, with the spool of the one before it. A third of the workers are in each language.
func (b *bed) startWorker(i int) *proctest.Process {
	b.t.Helper()
	settings, err := json.Marshal(b.config)
	require.NoError(b.t, err)
	name, program := fmt.Sprint("worker-", i), b.programs[i%len(b.programs)]
	p, err := proctest.Start(proctest.Spec{Name: name, Path: program[0], Args: program[1:], Log: b.path(name + ".log"), Start: b.host("callers").Start,
		Env: b.env("HOME="+os.Getenv("HOME"), callersEnv+"="+string(settings), workerEnv+"="+name)})
	require.NoError(b.t, err)
	b.t.Cleanup(p.Kill)
	return p
}
