//go:build linux

package cluster

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// startWorkers starts workers, and waits until they are ready.
func (b *bed) startWorkers(count int) {
	for i := range count {
		b.working = append(b.working, b.startWorker(i))
	}
	for _, p := range b.working {
		_, err := p.AwaitReady(b.t.Context())
		require.NoError(b.t, err)
	}
}

// worker returns the process of a worker by its name.
func (b *bed) worker(name string) *proctest.Process { return b.working[workerNumber(name)] }

func workerNumber(name string) (i int) {
	_, err := fmt.Sscanf(name, "worker-%d", &i)
	if err != nil {
		panic(err)
	}
	return i
}

// startWorkerAgain starts a worker that has ended.
func (b *bed) startWorkerAgain(name string) error {
	i := workerNumber(name)
	b.working[i] = b.startWorker(i)
	return nil
}

// startWorker starts the process of a worker, with the spool of the one before it. A third of the workers are in each language.
func (b *bed) startWorker(i int) *proctest.Process {
	return b.startPart(fmt.Sprint("worker-", i), b.programs[i%len(b.programs)], nil)
}

func (b *bed) startPart(name string, program []string, line func(line string)) *proctest.Process {
	settings, err := json.Marshal(b.config)
	require.NoError(b.t, err)
	p, err := proctest.Start(proctest.Spec{Name: name, Path: program[0], Args: program[1:], Log: b.path(name + ".log"), Start: b.host("callers").Start, Line: line,
		Env: b.env("HOME="+os.Getenv("HOME"), callersEnv+"="+string(settings), workerEnv+"="+name)})
	require.NoError(b.t, err)
	b.t.Cleanup(p.Kill)
	return p
}
