//go:build chaos

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/netbed"
)

// fault is a fault of one node, or of links, and how it is healed.
type fault struct {
	name  string
	begin func(b *bed, victim string) error
	heal  func(b *bed, victim string) error
}

func faultsOfNodes() []fault {
	cut := func(name string, port int, from, to bool) fault {
		return fault{name, func(b *bed, victim string) error {
			var links []netbed.Link
			others, port := b.rest(victim, port)
			for _, other := range others {
				if from {
					links = append(links, netbed.Link{From: other, To: b.host(victim), Port: port})
				}
				if to {
					links = append(links, netbed.Link{From: b.host(victim), To: other, Port: port})
				}
			}
			return b.net.CutLinks(links...)
		}, func(b *bed, _ string) error { return b.net.HealLinks() }}
	}
	return []fault{
		{"kill",
			func(b *bed, victim string) error { b.nodes[victim].Kill(); return nil },
			func(b *bed, victim string) error { return b.startNodes(victim) }},
		{"freeze",
			func(b *bed, victim string) error { return b.nodes[victim].Freeze() },
			func(b *bed, victim string) error { return b.nodes[victim].Thaw() }},
		{"stop",
			func(b *bed, victim string) error { return b.nodes[victim].Stop(20 * time.Second) },
			func(b *bed, victim string) error { return b.startNodes(victim) }},
		{"kill all nodes, beginning with the",
			func(b *bed, victim string) error {
				b.nodes[victim].Kill()
				for _, other := range b.others(victim) {
					b.nodes[other].Kill()
				}
				return nil
			},
			func(b *bed, _ string) error { return b.startNodes(b.names...) }},
		{"kill two nodes, beginning with the",
			func(b *bed, victim string) error {
				b.nodes[victim].Kill()
				b.nodes[b.others(victim)[0]].Kill()
				return nil
			},
			func(b *bed, victim string) error { return b.startNodes(victim, b.others(victim)[0]) }},
		cut("cut off", 0, true, true),
		cut("cut off from what the others send", 0, true, false),
		cut("cut off from sending to the others", 0, false, true),
		cut("cut off from the ledger", nodesPort, true, true),
		cut("cut off from etcd", etcdPort, true, true),
		{"one link cut",
			func(b *bed, victim string) error {
				return b.net.CutLinks(netbed.BothWays(b.host(victim), b.host(b.others(victim)[b.random.IntN(2)]))...)
			},
			func(b *bed, _ string) error { return b.net.HealLinks() }},
	}
}

// Random faults, one at a time, each shorter than the life of a session, so that no attempt may end.
func TestRandomFaults(t *testing.T) {
	if *faults == 0 {
		t.Skip("-faults is not set")
	}
	b := newBed(t)
	b.tell(order{Do: "load", Name: "load", Callers: 32, Every: *pause, MaxKeys: 100_000, Lasts: 10 * time.Second, LongOneIn: 50})
	b.tell(order{Do: "pace", Name: "pace", Every: 100 * time.Millisecond})
	kinds := faultsOfNodes()
	for i := range *faults {
		time.Sleep(time.Duration(1+b.random.IntN(4)) * time.Second)
		f := kinds[b.random.IntN(len(kinds))]
		victim := b.leader()
		role := "leader"
		if b.random.IntN(3) == 0 {
			victim, role = b.others(victim)[b.random.IntN(2)], "follower"
		}
		lasts := time.Duration(500+b.random.IntN(9_500)) * time.Millisecond
		began := time.Now()
		require.NoError(t, f.begin(b, victim))
		time.Sleep(lasts)
		probes := fmt.Sprint("read-", i)
		b.tell(order{Do: "read", Name: probes, Node: victim, Every: 50 * time.Millisecond})
		require.NoError(t, f.heal(b, victim))
		whole := b.whole(30 * time.Second)
		b.Healed = time.Now()
		b.stopAndAwait(probes, 20*time.Second)
		gap := b.longestGap(began, time.Now())
		t.Logf("%s: %s, %s %s for %v; the longest time without an effect was %v; all nodes took part after %v", clockText(began), f.name, role, victim, lasts, gap.Round(time.Millisecond), whole.Round(time.Millisecond))
		require.Less(t, gap, failoverLimit)
	}
	b.stopAndAwait("pace", time.Minute)
	b.stopAndAwait("load", time.Minute)
	b.judge()
}
