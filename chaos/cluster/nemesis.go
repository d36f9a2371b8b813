//go:build linux

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/report"
	"github.com/flightd/flightd/httpapi/wire"
)

// nemesis lets faults happen, in rounds, until the time is over. A round begins when every node takes part; up to Options.Together faults
// begin in it within three seconds, and overlap. When the last one is healed, the time until the cluster is well again is measured.
func (b *bed) nemesis(until time.Time) {
	kinds := slices.DeleteFunc(allFaults(b), func(f fault) bool {
		return len(b.opts.Kinds) > 0 && !slices.ContainsFunc(b.opts.Kinds, func(part string) bool { return strings.Contains(f.name, part) })
	})
	require.NotEmpty(b.t, kinds, "no kind of fault has %q in its name", b.opts.Kinds)
	var bag []fault // kinds are drawn without returning them, so that each has its turn
	for n := 1; time.Now().Before(until); n++ {
		time.Sleep(time.Duration(1500+b.random.IntN(2000)) * time.Millisecond) // of work without a fault
		var chosen []fault
		for range 1 + b.random.IntN(b.opts.Together) {
			if len(bag) == 0 {
				bag = slices.Clone(kinds)
				b.random.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
			}
			at := slices.IndexFunc(bag, func(f fault) bool { return f.fits(chosen) })
			if at < 0 {
				break
			}
			chosen = append(chosen, bag[at])
			bag = slices.Delete(bag, at, at+1)
		}
		b.round(n, chosen)
	}
}

// fits reports whether a fault may begin beside others.
func (f *fault) fits(others []fault) bool {
	return !slices.ContainsFunc(others, func(o fault) bool {
		return o.needs == needsAll && f.needs != needsCaller || f.needs == needsAll && o.needs != needsCaller || f.needs == needsProvider && o.needs == needsProvider
	})
}

// round lets these faults happen, heals them, and waits until the cluster is well.
func (b *bed) round(n int, chosen []fault) {
	began := time.Now()
	type step struct {
		at time.Duration
		do func()
	}
	var steps []step
	taken := make(map[string]bool)
	for i := range chosen {
		f := &chosen[i]
		at, most := time.Duration(b.random.IntN(3000))*time.Millisecond, cmp.Or(f.lasts, faultLasts)
		if i == 0 {
			at = 0
		}
		lasts := most/4 + time.Duration(b.random.Int64N(int64(most*3/4)))
		var heal healFunc // nil: it has not begun
		var seen report.Fault
		steps = append(steps, step{at, func() {
			victim := f.victim(b)
			for tries := 0; taken[victim] && f.needs != "" && tries < 20; tries++ {
				victim = f.victim(b)
			}
			if taken[victim] && f.needs != "" {
				return // its victim has a fault of this kind already
			}
			taken[victim] = taken[victim] || f.needs != ""
			seen = report.Fault{Kind: f.name, Victim: victim, Began: time.Now(), Round: n}
			var err error
			if heal, err = f.begin(b, victim, lasts); err != nil {
				b.t.Errorf("%s at %s: %v", f.name, victim, err)
			}
		}}, step{at + lasts, func() {
			if heal == nil {
				return
			}
			var err error
			if seen.Bites, seen.Bite, err = heal(); err != nil {
				b.t.Errorf("heal %s at %s: %v", f.name, seen.Victim, err)
			}
			seen.Healed = time.Now()
			b.faults = append(b.faults, seen)
			b.t.Logf("round %d: %s: %s for %.1fs: %s", n, seen.Victim, f.name, seen.Healed.Sub(seen.Began).Seconds(), seen.Bite)
		}})
	}
	slices.SortStableFunc(steps, func(x, y step) int { return cmp.Compare(x.at, y.at) })
	for _, s := range steps {
		time.Sleep(time.Until(began.Add(s.at)))
		s.do()
	}
	b.recover(n, began)
}

// recover measures how soon the cluster is well, after the last fault of a round was healed.
func (b *bed) recover(n int, began time.Time) {
	b.Healed = time.Now()
	r := report.Round{Began: began, Healed: b.Healed}
	clear(b.restarts)
	b.supervise()
	b.eventually("a node leads", 30*time.Second, func() error {
		if b.leaderNow() == "" {
			return fmt.Errorf("no node leads")
		}
		return nil
	})
	r.Leader = time.Since(b.Healed)
	b.eventually("a new flight is performed", 30*time.Second, func() error {
		first, found := b.firstFlightAfter(b.Healed)
		if !found {
			return fmt.Errorf("no new flight")
		}
		r.Flight = first
		return nil
	})
	r.Whole = b.whole(wholeLimit) + r.Flight
	b.collected.collect(b)
	b.rounds = append(b.rounds, r)
	b.t.Logf("round %d is healed: a node led after %v, the first new flight after %v, every node took part after %v", n,
		r.Leader.Round(time.Millisecond), r.Flight.Round(time.Millisecond), r.Whole.Round(time.Millisecond))
}

// supervise starts workers and nodes again that have ended by themselves, as systemd would, and replaces a node that cannot be started: a
// damaged block of a table shows when it is read. A worker ends that finds no leader when it starts.
func (b *bed) supervise() {
	for i, p := range b.working {
		select {
		case <-p.Ended():
			b.t.Logf("worker-%d had ended: %s", i, p.LogTail(1))
			b.working[i] = b.startWorker(i)
		default:
		}
	}
	b.superviseNodes()
}

func (b *bed) superviseNodes() {
	for _, name := range b.names {
		select {
		case <-b.nodes[name].Ended():
			said := b.nodes[name].LogTail(3)
			if b.restarts[name]++; b.restarts[name] > 1 {
				b.t.Logf("node %s had ended again, and is replaced (%v): %s", name, b.replace(name), said)
				b.restarts[name] = 0
				continue
			}
			now, err := b.startDamaged(name)
			b.t.Logf("node %s had ended: %s%s (%v)", name, said, now, err)
		default:
		}
	}
}

// leaderNow returns the name of the node that leads the ledger, by the first node that names one; "": none does.
func (b *bed) leaderNow() string {
	for _, name := range b.names {
		if state, err := b.statusAt(name); err == nil && state.Leader != "" {
			if i := slices.IndexFunc(state.Nodes, func(n wire.ClusterNode) bool { return n.Name == state.Leader }); i >= 0 && state.Nodes[i].Role == wire.RoleLeader {
				return state.Leader
			}
		}
	}
	return ""
}

// clockOf returns by how much others see that the wall clock of a node is ahead.
func (b *bed) clockOf(node string) (most time.Duration) {
	for _, other := range b.others(node) {
		state, err := b.statusAt(other)
		if err != nil {
			continue
		}
		for i := range state.Nodes {
			if d := time.Duration(state.Nodes[i].ClockMS) * time.Millisecond; state.Nodes[i].Name == node && d.Abs() > most.Abs() {
				most = d
			}
		}
	}
	return most
}

// someCallers returns the name of one program of callers.
func (b *bed) someCallers() string {
	names := slices.Sorted(maps.Keys(b.calling))
	return names[b.random.IntN(len(names))]
}
