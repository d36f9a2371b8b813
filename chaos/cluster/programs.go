//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// startCallers starts the provider and the processes of the callers.
func (b *bed) startCallers() {
	l, err := b.host("provider").Listen(80)
	require.NoError(b.t, err)
	books := newProvider(l, b.History)
	b.t.Cleanup(books.close)
	b.books, books.calling = books, &http.Client{Transport: b.transport("provider")}
	self := b.opts.Self
	b.programs = [][]string{{self}}
	if !b.opts.Lock {
		python, err := exec.LookPath("python3")
		require.NoError(b.t, err, "run `make chaos-tools`, which installs it")
		node, err := exec.LookPath("node")
		require.NoError(b.t, err, "run `make chaos-tools`, which installs it")
		compiled, err := filepath.Abs(filepath.Join(b.opts.Source, "clients/typescript/dist/conformance/load.mjs"))
		require.NoError(b.t, err)
		require.FileExists(b.t, compiled, "run `make chaos-tools`, which builds it")
		source, err := filepath.Abs(filepath.Join(b.opts.Source, "clients/conformance/load.py"))
		require.NoError(b.t, err)
		b.programs = append(b.programs, []string{python, "-B", source}, []string{node, compiled})
	}
	b.config = callersConfig{Nodes: b.names, Provider: "http://" + l.Addr().String(), Token: b.token, Spool: b.path("spool"), Seed: b.opts.Seed,
		Parts: len(b.programs), policyTimes: policyTimes{providerWindow.Milliseconds(), settleDelay.Milliseconds()},
		SessionMS: workerSession.Milliseconds()}
	balancer := b.startBalancer()
	for i, name := range b.names {
		b.config.URLs = append(b.config.URLs, b.url(name))
		next, last := b.names[(i+1)%len(b.names)], b.names[(i+2)%len(b.names)]
		// A client that knows two nodes asks one that does not lead, a third of the time.
		b.config.Addresses = append(b.config.Addresses, b.urls([]string{name, next, last}), balancer, b.urls([]string{name, next}), balancer)
	}
	for part, program := range b.programs {
		b.config.Part = part
		name := "callers-" + filepath.Base(program[len(program)-1])
		b.calling[name] = b.startPart(name, program, eventsOf(b, name))
	}
	for _, p := range b.calling {
		b.awaitReady(p)
	}
}

// startWorkers starts workers, and waits until they are ready.
func (b *bed) startWorkers(count int) {
	for i := range count {
		b.working = append(b.working, b.startWorker(i))
	}
	for _, p := range b.working {
		b.awaitReady(p)
	}
}

// startWorker starts the process of a worker, with the spool of the one before it. A third of the workers are in each language. Of those in
// Python, every second one pauses its threads at random places.
func (b *bed) startWorker(i int) *proctest.Process {
	name := fmt.Sprint("worker-", i)
	env := []string{workerEnv + "=" + name}
	if i%2 == 0 {
		env = append(env, fmt.Sprint("FLIGHTD_TEST_PAUSES=", b.opts.Seed))
	}
	return b.startPart(name, b.programs[i%len(b.programs)], nil, env...)
}

// workerNumber returns the number of a worker by its name.
func workerNumber(name string) (i int) {
	if _, err := fmt.Sscanf(name, "worker-%d", &i); err != nil {
		panic(err)
	}
	return i
}

// startPart starts the process of callers, or of a worker, which the environment names.
func (b *bed) startPart(name string, program []string, line func(line string), env ...string) *proctest.Process {
	settings, err := json.Marshal(b.config)
	require.NoError(b.t, err)
	return b.start(proctest.Spec{Name: name, Path: program[0], Args: program[1:], Log: b.path(name + ".log"), Start: b.host("callers").Start, Line: line,
		Env: b.env(append(env, "HOME="+os.Getenv("HOME"), callersEnv+"="+string(settings))...)})
}

// start starts a process, which is killed when the run is over.
func (b *bed) start(spec proctest.Spec) *proctest.Process {
	p, err := proctest.Start(spec)
	require.NoError(b.t, err)
	b.t.Cleanup(p.Kill)
	return p
}

func (b *bed) awaitReady(p *proctest.Process) {
	_, err := p.AwaitReady(b.t.Context())
	require.NoError(b.t, err)
}

// eventsOf returns a function that stores the events of a program, which are the lines that it writes.
func eventsOf(b *bed, program string) func(line string) {
	return func(line string) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.t.Errorf("%s wrote %q: %v", program, line, err)
		}
		b.add(&e)
		if e.Done != "" {
			close(b.doneOf(program, e.Done))
		}
	}
}

func (b *bed) doneOf(program, order string) chan struct{} {
	b.doneMu.Lock()
	defer b.doneMu.Unlock()
	name := program + " " + order
	if b.done[name] == nil {
		b.done[name] = make(chan struct{})
	}
	return b.done[name]
}

// tell gives the callers an order.
func (b *bed) tell(o order) {
	text, err := json.Marshal(o)
	require.NoError(b.t, err)
	for _, p := range b.calling {
		require.NoError(b.t, p.WriteLine(string(text)))
	}
}

// await waits until all callers have carried out an order, until late at most.
func (b *bed) await(name string, late time.Time) (err error) {
	for program, p := range b.calling {
		select {
		case <-b.doneOf(program, name):
		case <-p.Ended():
			err = errors.Join(err, fmt.Errorf("%s has ended: %s", program, p.LogTail(20)))
		case <-time.After(time.Until(late)):
			err = errors.Join(err, fmt.Errorf("%s has not carried out %s", program, name))
		}
	}
	return err
}

// carryOut gives the callers an order, and waits until they have carried it out.
func (b *bed) carryOut(o order, within time.Duration) {
	b.tell(o)
	require.NoError(b.t, b.await(o.Name, time.Now().Add(within)))
}
