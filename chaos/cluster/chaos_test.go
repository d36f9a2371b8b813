//go:build chaos

package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// failoverLimit is the longest time from a kill to the first new flight.
const failoverLimit = 15 * time.Second

// Leaders and followers are killed under load, and started again. Nothing acknowledged is lost, no effect happens twice, and new
// flights go on soon.
func TestKilledNodes(t *testing.T) {
	b := newBed(t)
	b.tell(order{Do: "load", Name: "load", Callers: 32, MaxKeys: 400, Lasts: 3 * time.Second, LongOneIn: 50})
	b.tell(order{Do: "pace", Name: "pace", Every: 100 * time.Millisecond})
	time.Sleep(2 * time.Second)
	var took []time.Duration
	for _, role := range []string{"leader", "follower", "leader", "leader"} {
		victim := b.leader()
		if role == "follower" {
			victim = b.others(victim)[b.random.IntN(2)]
		}
		killed := time.Now()
		b.nodes[victim].Kill()
		var first time.Duration
		found := false
		for !found && time.Since(killed) < failoverLimit+5*time.Second {
			time.Sleep(20 * time.Millisecond)
			first, found = b.firstFlightAfter(killed)
		}
		require.True(t, found, "no new flight within %v after the kill of the %s", time.Since(killed), role)
		t.Logf("%s: killed %s, the %s: the first new flight after %v", clockText(killed), victim, role, first.Round(time.Millisecond))
		took = append(took, first)
		began := time.Now()
		b.startNode(victim)
		serving := time.Since(began)
		t.Logf("started %s again: it serves after %v, and all nodes take part %v later", victim, serving.Round(time.Millisecond), b.whole(30*time.Second).Round(time.Millisecond))
		b.Healed = time.Now()
	}
	b.stopAndAwait("pace", time.Minute)
	b.stopAndAwait("load", time.Minute)
	slices.Sort(took)
	t.Logf("the first new flight after a kill: median %v, maximum %v", took[(len(took)-1)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	require.Less(t, took[len(took)-1], failoverLimit)
	b.judge()
}
