//go:build chaos

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/netbed"
	"github.com/flightd/flightd/internal/proctest"
)

// failoverLimit is the longest time from a kill to the first new flight.
const failoverLimit = 15 * time.Second

// Leaders and followers are killed under load, and started again. Nothing acknowledged is lost, no effect happens twice, and new
// flights go on soon.
func TestKilledNodes(t *testing.T) {
	b := newBed(t)
	b.tell(order{Do: "load", Name: "load", Callers: *loads, Every: *pause, MaxKeys: 100_000, Lasts: 3 * time.Second, LongOneIn: 50})
	b.tell(order{Do: "pace", Name: "pace", Every: 100 * time.Millisecond})
	var took []time.Duration
	began := time.Now()
	for i := range *kills {
		time.Sleep(5 * time.Second) // of work between two faults
		victim, role := b.leader(), [...]string{"leader", "follower", "leader", "leader"}[i%4]
		if i%4 == 3 && b.etcd != nil {
			member, killed := b.etcdLeader(), time.Now()
			b.etcd.running[member].Kill()
			took = append(took, b.awaitFlightAfter(killed))
			t.Logf("%s: killed %s, which led etcd: the first new flight after %v", clockText(killed), member, took[i].Round(time.Millisecond))
			b.startMembers(member)
			b.whole(30 * time.Second)
			b.Healed = time.Now()
			continue
		}
		if role == "follower" {
			victim = b.others(victim)[b.random.IntN(2)]
		}
		killed := time.Now()
		b.nodes[victim].Kill()
		first := b.awaitFlightAfter(killed)
		t.Logf("%s: killed %s, the %s: the first new flight after %v", clockText(killed), victim, role, first.Round(time.Millisecond))
		took = append(took, first)
		started := time.Now()
		require.NoError(t, b.startNodes(victim))
		serving := time.Since(started)
		t.Logf("started %s again: it serves after %v, and all nodes take part %v later", victim, serving.Round(time.Millisecond), b.whole(30*time.Second).Round(time.Millisecond))
		b.Healed = time.Now()
	}
	lasted := time.Since(began)
	b.stopAndAwait("pace", time.Minute)
	b.stopAndAwait("load", time.Minute)
	t.Logf("%d callers used %.0f keys a second for %v", *loads, float64(len(b.keys()))/lasted.Seconds(), lasted.Round(time.Second))
	slices.Sort(took)
	t.Logf("the first new flight after a kill: median %v, nine of ten %v, maximum %v", took[(len(took)-1)/2].Round(time.Millisecond),
		took[(len(took)-1)*9/10].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	require.Less(t, took[len(took)-1], failoverLimit)
	b.judge()
}

// awaitFlightAfter waits until a flight was performed that was first called after a moment, and returns how long that took.
func (b *bed) awaitFlightAfter(moment time.Time) time.Duration {
	b.t.Helper()
	for time.Since(moment) < failoverLimit+5*time.Second {
		if first, found := b.firstFlightAfter(moment); found {
			return first
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.Fail(b.t, "no new flight", "within %v", time.Since(moment))
	return 0
}

// A node is cut off from the other two under load, both ways and then one way. It starts nothing and answers no untruth; the
// others go on; after the cut has healed it takes part by itself.
func TestCutOffNode(t *testing.T) {
	b := newBed(t)
	b.tell(order{Do: "load", Name: "load", Callers: *loads, Every: *pause, MaxKeys: 100_000, Lasts: 10 * time.Second, LongOneIn: 100})
	b.tell(order{Do: "pace", Name: "pace", Every: 100 * time.Millisecond})
	for _, ways := range []string{"both ways", "from the others", "to the others"} {
		time.Sleep(4 * time.Second)
		victim := b.leader()
		if ways != "both ways" && b.random.IntN(2) == 0 {
			victim = b.others(victim)[b.random.IntN(2)]
		}
		air := "air-" + strings.ReplaceAll(ways, " ", "-")
		b.tell(order{Do: "flights", Name: air, Count: 12, Callers: 1, Lasts: 10 * time.Second, Recovery: []string{recoveryHold, recoveryResend}})
		b.awaitEffects(air, 12)
		var cuts []netbed.Link
		others, _ := b.rest(victim, 0)
		for _, other := range others {
			if ways != "to the others" {
				cuts = append(cuts, netbed.Link{From: other, To: b.host(victim)})
			}
			if ways != "from the others" {
				cuts = append(cuts, netbed.Link{From: b.host(victim), To: other})
			}
		}
		leads := b.leader() == victim
		require.NoError(t, b.net.CutLinks(cuts...))
		cut := time.Now()
		t.Logf("%s: cut %s off, %s; it led the ledger: %v", clockText(cut), victim, ways, leads)
		probes := "probe-" + strings.ReplaceAll(ways, " ", "-")
		b.tell(order{Do: "probe", Name: probes, Node: victim, Every: 500 * time.Millisecond})
		t.Logf("the first new flight after %v", b.awaitFlightAfter(cut).Round(time.Millisecond))
		time.Sleep(time.Until(cut.Add(9 * time.Second)))
		b.stopAndAwait(probes, 11*time.Second) // no probe lasts longer than its client waits
		time.Sleep(time.Until(cut.Add(*cutFor)))
		gap := b.longestGap(cut, time.Now())
		t.Logf("the longest time without an effect was %v", gap.Round(time.Millisecond))
		require.Less(t, gap, failoverLimit)
		require.NoError(t, b.net.HealLinks())
		t.Logf("%s: healed; all nodes take part after %v", clockText(time.Now()), b.whole(30*time.Second).Round(time.Millisecond))
		b.Healed = time.Now()
		b.await(air, time.Minute)
		b.logProbes(probes)
	}
	b.stopAndAwait("pace", time.Minute)
	b.stopAndAwait("load", time.Minute)
	b.judge()
}

// awaitEffects waits until count effects of an order have reached the provider.
func (b *bed) awaitEffects(name string, count int) {
	b.t.Helper()
	b.eventually("the effects of "+name+" are in the air", 20*time.Second, func() error {
		if at := len(b.effectsOf(name)); at < count {
			return fmt.Errorf("%d of %d are", at, count)
		}
		return nil
	})
}

// logProbes logs how a node that was cut off answered.
func (b *bed) logProbes(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answers := make(map[string]int)
	slowest := make(map[string]time.Duration)
	for i := range b.Probes {
		p := &b.Probes[i]
		what := "read " + p.Answer
		if p.Open {
			what = "open " + p.Answer
		}
		answers[what]++
		slowest[what] = max(slowest[what], p.Ended.Sub(p.Began).Round(time.Millisecond))
	}
	b.t.Logf("answers of nodes that were cut off, up to %s: %v; the slowest took %v", name, answers, slowest)
}

// The ledger or etcd has no majority for three times the life of a session, with 100 effects in the air, each of them with a second
// caller that waits. judge holds the outcome of each key to sentences of docs/guarantees.md:
//
//   - "one committed receipt per key; no acknowledged receipt is lost or changed" (ruleKept)
//   - "a late report of the newest attempt is accepted, also after its session has ended" (I8): each effect is a receipt at the end
//     (ruleKept), and no report is left (ruleReported)
//   - hold: "at most one effect"; resend and verify: "never two effects" (ruleOneEffect, ruleSameKey)
//
// The other assertions name their sentences below. Attempts may be "in the hands of their policy": a caller may be told in_doubt, or
// fenced. The load has such callers also while etcd is whole: a client in Python or TypeScript does not renew the session of an
// attempt whose report no server has stored.
func TestNoMajority(t *testing.T) {
	const lasts = 45 * time.Second
	all := func(b *bed, names []string, processes map[string]*proctest.Process, signal func(*proctest.Process) error) {
		for _, name := range names {
			require.NoError(b.t, signal(processes[name]))
		}
	}
	for _, row := range []struct {
		how     string
		ownEtcd bool
		whole   bool // etcd has a majority. Else a leader of it that was frozen ends the leases of the time in which it stood still
		begin   func(*bed)
		heal    func(*bed)
	}{
		{"ports of the ledger cut", *ownEtcd, true, func(b *bed) {
			for i, name := range b.names {
				for _, other := range b.names[i+1:] {
					links := netbed.BothWays(b.host(name), b.host(other))
					links[0].Port, links[1].Port = nodesPort, nodesPort
					require.NoError(b.t, b.net.CutLinks(links...))
				}
			}
		}, func(b *bed) { require.NoError(b.t, b.net.HealLinks()) }},
		{"two nodes frozen", *ownEtcd, *ownEtcd,
			func(b *bed) { all(b, b.names[1:], b.nodes, (*proctest.Process).Freeze) },
			func(b *bed) { all(b, b.names[1:], b.nodes, (*proctest.Process).Thaw) }},
		{"etcd frozen", true, false,
			func(b *bed) { all(b, ownMembers(), b.etcd.running, (*proctest.Process).Freeze) },
			func(b *bed) { all(b, ownMembers(), b.etcd.running, (*proctest.Process).Thaw) }},
		{"etcd killed", true, false,
			func(b *bed) {
				all(b, ownMembers(), b.etcd.running, func(p *proctest.Process) error { p.Kill(); return nil })
			},
			func(b *bed) { b.startMembers(ownMembers()...) }},
	} {
		t.Run(row.how, func(t *testing.T) {
			t.Parallel() // all mostly wait
			b := newBedWith(t, row.ownEtcd)
			b.MayEnd = true
			b.tell(order{Do: "load", Name: "load", Callers: 8, Every: *pause, MaxKeys: 100_000})
			b.tell(order{Do: "pace", Name: "pace", Every: time.Second})
			flights := []order{ // their effects end without the majority, soon after it is back, and when that is long ago
				{Name: "short", Count: 40, Lasts: 20 * time.Second},
				{Name: "long", Count: 30, Lasts: lasts + 10*time.Second},
				{Name: "longest", Count: 30, Lasts: lasts + 30*time.Second},
			}
			for _, o := range flights {
				o.Do, o.Callers, o.Recovery = "flights", 2, []string{recoveryHold, recoveryResend, recoveryVerify}
				b.tell(o)
			}
			for _, o := range flights {
				b.awaitEffects(o.Name, o.Count)
			}
			leader, began := b.leader(), time.Now()
			row.begin(b)
			t.Logf("%s: no majority; the leader was %s", clockText(began), leader)
			time.Sleep(time.Until(began.Add(b.Session)))
			b.tell(order{Do: "probe", Name: "probe", Node: b.names[0], Every: 500 * time.Millisecond})
			time.Sleep(time.Until(began.Add(2 * b.Session)))
			b.stopAndAwait("probe", 14*time.Second)
			time.Sleep(time.Until(began.Add(lasts)))
			healed := time.Now()
			row.heal(b)
			t.Logf("%s: healed; all nodes take part after %v", clockText(healed), b.whole(30*time.Second).Round(time.Millisecond))
			b.Healed = time.Now()
			t.Logf("the first new flight %v after the majority was back", b.awaitFlightAfter(healed).Round(time.Millisecond))
			for _, o := range flights {
				b.await(o.Name, 2*time.Minute)
			}
			b.stopAndAwait("pace", time.Minute)
			b.stopAndAwait("load", time.Minute)
			b.logProbes("probe")
			b.judge()
			// I5: "the effect starts only after its attempt is committed, and only inside the holder's trust window".
			for _, e := range b.Effects {
				require.False(t, e.At.After(began.Add(b.Session)) && e.At.Before(healed), "%s started at %s, without a majority", e.Key, clockText(e.At))
			}
			// hold: "at most one effect"; verify: a look-up shows the effect, so nobody sends a second request.
			for _, o := range flights {
				for _, e := range b.effectsOf(o.Name) {
					require.True(t, recoveryOf(e.Key) == recoveryResend || e.At.Before(began), "%s was performed again at %s", e.Key, clockText(e.At))
				}
			}
			// "While the ledger has no majority and etcd has one, sessions are kept as long as their owners renew them." "For 15 s after
			// etcd was away nothing is ended, so that owners report first."
			for _, r := range b.Readings {
				if strings.Contains(r.Key, "/short-") || strings.Contains(r.Key, "/long-") || row.whole && strings.Contains(r.Key, "/longest-") {
					require.True(t, r.Attempts == 1 && r.Lost == 0, "%s has %d attempts, and %d were lost", r.Key, r.Attempts, r.Lost)
				}
			}
		})
	}
}
