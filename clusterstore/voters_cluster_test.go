package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// testCluster is three voters in one process, each with its own disk and wall clock.
type testCluster struct {
	t          *testing.T
	disks      [3]*vfs.MemFS
	transports [3]*raft.InmemTransport
	stores     [3]*Store
	skew       [3]atomic.Int64 // wall clock minus the true time, in nanoseconds
	cut        [3]bool         // isolated
	steps      atomic.Int32    // of the ledger's clock, by all nodes
	configure  func(i int, cfg *Config)
}

func newTestCluster(t *testing.T) *testCluster { return newSkewedCluster(t, [3]time.Duration{}) }

func newSkewedCluster(t *testing.T, skew [3]time.Duration) *testCluster {
	c := &testCluster{t: t}
	for i, d := range skew {
		c.skew[i].Store(int64(d))
	}
	c.startAll()
	lead := c.leader()
	require.NoError(t, lead.waitForLeadership(context.Background()))
	return c
}

// startAll starts three empty nodes. They are closed when the test ends.
func (c *testCluster) startAll() {
	for i := range c.disks {
		c.disks[i] = vfs.NewMem()
		c.start(i)
	}
	c.connectAll()
	c.t.Cleanup(func() {
		for _, s := range c.stores {
			require.NoError(c.t, s.Close(context.Background()))
		}
	})
}

func (c *testCluster) start(i int) {
	c.t.Helper()
	var founding []Voter
	for n := range c.disks {
		founding = append(founding, Voter{ID: fmt.Sprint("node-", n), Address: string('a' + rune(n))})
	}
	_, c.transports[i] = raft.NewInmemTransport(raft.ServerAddress(founding[i].Address))
	cfg := memConfig(c.disks[i])
	cfg.NodeID, cfg.ClusterID = founding[i].ID, "trio"
	cfg.Log.Trailing = 1
	start := time.Now()
	cfg.Clock = Clock{Wall: func() time.Time { return c.wall(i) }, Mono: func() time.Duration { return time.Since(start) }}
	cfg.Events.ClockStepped = func(flight.Time, flight.Time) { c.steps.Add(1) }
	cfg.Peers = &Peers{Transport: c.transports[i], Founding: founding, Levels: allLevels}
	if c.configure != nil {
		c.configure(i, &cfg)
	}
	s, err := Open(context.Background(), cfg)
	require.NoError(c.t, err)
	c.stores[i] = s
}

func (c *testCluster) wall(i int) time.Time { return time.Now().Add(time.Duration(c.skew[i].Load())) }

// pollClocks tells every node the clocks of those that it reaches.
func (c *testCluster) pollClocks() {
	for i, s := range c.stores {
		var walls []time.Time
		for j := range c.stores {
			if i != j && !c.cut[i] && !c.cut[j] {
				walls = append(walls, c.wall(j))
			}
		}
		s.SetPeerClocks(walls)
	}
}

// run lets time pass while the nodes poll each other.
func (c *testCluster) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(500*time.Millisecond, time.Until(end))) {
		c.pollClocks()
	}
}

// allLevels says that every voter reads the newest feature level.
func allLevels() map[string]uint32 {
	return map[string]uint32{"node-0": flight.MaxLevel, "node-1": flight.MaxLevel, "node-2": flight.MaxLevel}
}

// lastEntry names the last entry that a node has in its log or its state.
func lastEntry(s *Store) EntryID {
	last := s.LastApplied()
	if index, _ := s.log.LastIndex(); index > last.Index {
		if term, err := s.termAt(index); err == nil {
			return EntryID{Index: index, Term: term}
		}
	}
	return last
}

func (c *testCluster) connectAll() {
	c.cut = [3]bool{}
	for i, a := range c.transports {
		for j, b := range c.transports {
			if i != j {
				a.Connect(b.LocalAddr(), b)
			}
		}
	}
}

func (c *testCluster) isolate(i int) {
	c.cut[i] = true
	c.transports[i].DisconnectAll()
	for j, other := range c.transports {
		if j != i {
			other.Disconnect(c.transports[i].LocalAddr())
		}
	}
}

// leader waits for a leader that is none of the given nodes.
func (c *testCluster) leader(not ...*Store) *Store {
	c.t.Helper()
	for range 1000 {
	nodes:
		for _, s := range c.stores {
			for _, n := range not {
				if s == n {
					continue nodes
				}
			}
			if s != nil && s.leading.Load() != nil {
				return s
			}
		}
		c.run(100 * time.Millisecond)
	}
	require.Fail(c.t, "nobody leads")
	return nil
}

func (c *testCluster) indexOf(s *Store) int {
	for i := range c.stores {
		if c.stores[i] == s {
			return i
		}
	}
	return -1
}

// requireSame waits until all nodes have applied the same entries and checks that they hold the same rows.
func (c *testCluster) requireSame() {
	c.t.Helper()
	for range 120 { // of virtual time: a node that was cut off may stand for election first
		time.Sleep(time.Second)
		if a, b, d := c.stores[0].LastApplied(), c.stores[1].LastApplied(), c.stores[2].LastApplied(); a == b && a == d {
			break
		}
	}
	var rows [3]map[string]string
	for i, s := range c.stores {
		rows[i] = dump(c.t, s)
		requireConsistent(c.t, s)
		delete(rows[i], string(kindKey(metaRow))) // holds the node id
	}
	require.Equal(c.t, rows[0], rows[1])
	require.Equal(c.t, rows[0], rows[2])
}

func TestHazard28_LeadershipLostIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		old := c.leader()
		openAndReport(t, old, 1)
		open := openOf(old, testKey(2), 2)
		c.isolate(c.indexOf(old))
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, err := old.Propose(ctx, open)
		require.True(t, errors.Is(err, effect.ErrAmbiguous), "it is in one log, and may yet be in all: %v", err)
		_, err = old.Propose(context.Background(), openOf(old, testKey(3), 3))
		require.ErrorIs(t, err, ErrNotLeader, "an isolated node has no leader")

		next := c.leader(old)
		reply := propose(t, next, open)
		require.Equal(t, flight.DecisionProceed, reply.Decision)
		require.Equal(t, uint32(1), reply.Token.Number)
		propose(t, next, reportOf(testKey(2), reply.Token, "x"))
		c.connectAll()
		c.requireSame()
	})
}

func TestHazard29_StaleNodeSaysAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		old := c.leader()
		require.NoError(t, old.Barrier(context.Background()))
		c.isolate(c.indexOf(old))
		synctest.Wait() // so that responses to earlier heartbeats do not count for the next request
		require.Equal(t, raft.Leader, old.raft.State(), "it has not noticed yet")
		soon, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		require.Error(t, old.Barrier(soon), "and is not believed")
		next := c.leader(old)
		openAndReport(t, next, 7)
		f, err := old.Flight(testKey(7).FlightID())
		require.NoError(t, err)
		require.Nil(t, f, "an isolated node does not know of the flight")
		require.Error(t, old.Barrier(context.Background()), "and it does not say that it does")
		_, err = old.Propose(context.Background(), openOf(old, testKey(7), 7))
		require.ErrorIs(t, err, ErrNotLeader, "only the log decides")
		require.NoError(t, next.Barrier(context.Background()))
		require.NotNil(t, mustFlight(t, next, 7))
		c.connectAll()
		c.requireSame()
	})
}

// A node that was away for longer than the log reaches back receives a snapshot. Followers decode the entries, the
// leader does not, and all hold the same rows.
func TestFollowerIsRestoredFromASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		lead := c.leader()
		away := (c.indexOf(lead) + 1) % 3
		require.NoError(t, c.stores[away].Close(context.Background()))
		c.isolate(away)
		everything(t, lead)
		require.NoError(t, lead.takeSnapshot())
		for n := 100; n < 120; n++ {
			openAndReport(t, lead, n)
		}
		first, _ := lead.log.FirstIndex()
		require.Greater(t, first, uint64(60))
		c.start(away)
		c.connectAll()
		c.requireSame()
		require.NotEqual(t, stateName(1), c.stores[away].state.name, "the node received a snapshot")
		_, err := Open(context.Background(), c.stores[away].cfg)
		require.ErrorIs(t, err, ErrLocked)

		// The node restarts with the restored state.
		require.NoError(t, c.stores[away].Close(context.Background()))
		c.isolate(away)
		c.start(away)
		c.connectAll()
		openAndReport(t, c.leader(), 500)
		c.requireSame()
	})
}

// requireSameSessions checks that all voters hold the same sessions.
func (c *testCluster) requireSameSessions(held, ended int) {
	c.t.Helper()
	c.requireSame()
	want := c.stores[0].fsm.sessions
	require.Len(c.t, heldByAll(want), held)
	require.Len(c.t, want.EndedSessions(), ended)
	for _, s := range c.stores {
		require.Equal(c.t, heldByAll(want), heldByAll(s.fsm.sessions))
		require.ElementsMatch(c.t, want.EndedSessions(), s.fsm.sessions.EndedSessions())
	}
}

// All voters hold the same sessions: those that applied the log, the one that received a snapshot, and the next
// leader. They forget ended sessions at the same entry.
func TestVotersKnowTheSameSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		lead := c.leader()
		manySessions(t, lead)
		c.requireSameSessions(4, 2)

		away := (c.indexOf(lead) + 1) % 3
		require.NoError(t, c.stores[away].Close(context.Background()))
		c.isolate(away)
		require.Equal(t, flight.DecisionAccepted, propose(t, lead, endedOf(lead, "session-2")).Decision)
		require.NoError(t, lead.takeSnapshot())
		require.Equal(t, flight.DecisionProceed, openUnder(t, lead, 700, "session-0", flight.Policy{}).Decision)
		c.start(away)
		c.connectAll()
		c.requireSameSessions(3, 3)
		require.NotEqual(t, stateName(1), c.stores[away].state.name, "the node received a snapshot")

		c.isolate(c.indexOf(lead))
		next := c.leader(lead)
		require.Equal(t, flight.DecisionSessionEnded, openUnder(t, next, 800, "session-2", flight.Policy{}).Decision)
		time.Sleep(flight.MaxOpenLife + flight.MaxOpenLife/10) // the ledger's time may be slewed by a twentieth
		propose(t, next, &flight.Tick{})
		require.Equal(t, flight.DecisionProceed, openUnder(t, next, 801, "session-2", flight.Policy{}).Decision)
		c.connectAll()
		c.requireSameSessions(4, 0)
		for key := range dump(t, lead) {
			require.NotEqual(t, byte(endedRow), key[0])
		}
	})
}

// A leader that is cut off has entries that nobody else gets, and truncates its log up to the last committed one. When it is back, the new leader replaces
// them, although the log no longer has the entry before them.
func TestUncommittedEntriesAfterATruncatedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		old := c.leader()
		for n := range 2 {
			openAndReport(t, old, n)
			for _, s := range c.stores {
				require.NoError(t, s.waitApplied(t.Context(), old.LastApplied().Index))
				if s != old && n == 0 {
					require.NoError(t, s.takeSnapshotKeeping(0))
				}
			}
		}
		c.isolate(c.indexOf(old))
		for range 3 {
			soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err := old.Propose(soon, &flight.Tick{})
			cancel()
			require.Error(t, err)
		}
		require.Greater(t, lastEntry(old).Index, old.LastApplied().Index)
		require.NoError(t, old.takeSnapshotKeeping(0)) // newer than those of the others
		lead := c.leader(old)
		openAndReport(t, lead, 3)
		c.connectAll()
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, old.waitApplied(soon, lead.LastApplied().Index))
	})
}
