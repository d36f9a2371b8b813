package flightdtest

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// jobs implements remote.Jobs.
type jobs struct {
	*Ledger
	paused func(namespace, action string) bool // Options.Paused
}

var _ remote.Jobs = jobs{}

func (j jobs) Ready(namespace, action string, lookUps bool) iter.Seq[flight.ID] {
	return func(yield func(flight.ID) bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.due.ReadyJobs(namespace, action, lookUps)(yield)
	}
}

func (j jobs) Advance() {
	j.mu.Lock()
	defer j.mu.Unlock()
	header := j.header
	header.Now = max(header.Now, j.now())
	for j.due.Advance(&header) {
	}
}

func (j jobs) LookUps(most int) []flight.ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.due.LookUps(most)
}

// OnReady implements remote.Jobs. Each process over the ledger has a function of its own.
func (j jobs) OnReady(f func(namespace, action string)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onReady = append(j.onReady, f)
}

func (j jobs) OnEnded(f func(namespace, action string)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onEnded = append(j.onEnded, f)
}

func (j jobs) Paused(namespace, action string) bool {
	return j.paused != nil && j.paused(namespace, action)
}

func (j jobs) Pools(namespace, after string) iter.Seq[flight.PoolStatus] {
	j.mu.Lock()
	defer j.mu.Unlock()
	var pools []flight.PoolStatus
	from, action, _ := strings.Cut(cmp.Or(after, namespace), "/")
	for p := range j.due.PoolsFrom(from, action) {
		if namespace == "" || p.Namespace == namespace {
			pools = append(pools, p)
		}
	}
	return slices.Values(pools)
}

func (j jobs) Lane(namespace, action, lane string, limit int) (all []flight.ID, open, total int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, mayOpen := range j.due.LaneJobs(namespace, action, lane) {
		if len(all) == limit {
			break
		}
		if all = append(all, id); mayOpen {
			open++
		}
	}
	return all, open, j.due.LaneSize(namespace, action, lane)
}

func (j jobs) LaneBlocker(id flight.ID) (first flight.ID, blocked bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.due.LaneBlocker(id)
}

// Pools returns the pools of jobs.
func (fl *Flightd) Pools() *remote.Pools { return fl.pools }
