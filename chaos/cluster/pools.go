//go:build linux

package cluster

import (
	"fmt"

	"github.com/flightd/flightd/internal/proctest"
)

// startWorkers starts workers, and waits until they are ready.
func (b *bed) startWorkers(count int) {
	for i := range count {
		b.working = append(b.working, b.startWorker(i))
	}
	for _, p := range b.working {
		b.awaitReady(p)
	}
}

// startWorker starts the process of a worker, with the spool of the one before it. A third of the workers are in each language.
func (b *bed) startWorker(i int) *proctest.Process {
	name := fmt.Sprint("worker-", i)
	return b.startPart(name, b.programs[i%len(b.programs)], nil, workerEnv+"="+name)
}

// workerNumber returns the number of a worker by its name.
func workerNumber(name string) (i int) {
	if _, err := fmt.Sscanf(name, "worker-%d", &i); err != nil {
		panic(err)
	}
	return i
}
