package flightdtest

import (
	"iter"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// jobs implements remote.Jobs.
type jobs struct{ *Ledger }

var _ remote.Jobs = jobs{}

// Ready implements remote.Jobs.
func (j jobs) Ready(namespace, action string) iter.Seq[flight.ID] {
	return func(yield func(flight.ID) bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.due.ReadyJobs(namespace, action)(yield)
	}
}

// Advance implements remote.Jobs.
func (j jobs) Advance() {
	j.mu.Lock()
	defer j.mu.Unlock()
	header := j.header
	header.Now = max(header.Now, j.now())
	j.due.Advance(&header)
}

// OnReady implements remote.Jobs. Each process over the ledger has a function of its own.
func (j jobs) OnReady(f func(namespace, action string)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onReady = append(j.onReady, f)
}

// Pools returns the pools of jobs.
func (fl *Flightd) Pools() *remote.Pools { return fl.pools }
