package clusterstore

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

const year = 365 * 24 * time.Hour

func TestMedians(t *testing.T) {
	for _, c := range []struct {
		r                       readings
		lower, upper, highest   int64
		majorityOf3, majorityOf int
	}{
		{readings{4}, 4, 4, 4, 0, 1},
		{readings{4, 9}, 4, 9, 9, 1, 3},
		{readings{1, 4, 9}, 4, 4, 9, 1, 5},
		{readings{1, 4, 9, 10}, 4, 9, 10, 1, 7},
		{readings{1, 2, 4, 9, 10}, 4, 4, 10, 1, 9},
	} {
		require.Equal(t, []int64{c.lower, c.upper, c.highest}, []int64{c.r.lowerMedian(), c.r.upperMedian(), c.r.highest()}, "%v", c.r)
		require.Equal(t, c.majorityOf3 == 1, c.r.majorityOf(3))
		require.True(t, c.r.majorityOf(c.majorityOf))
		require.False(t, c.r.majorityOf(c.majorityOf+1))
	}
}

// While less than half of the answers are wrong, the medians lie between the right ones.
func TestMedians_MinorityDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		right := rapid.SliceOfN(rapid.Int64Range(1000, 1010), 2, 5).Draw(t, "right")
		wrong := rapid.SliceOfN(rapid.Int64(), 0, len(right)-1).Draw(t, "wrong")
		r := slices.Sorted(slices.Values(append(slices.Clone(right), wrong...)))
		for _, median := range []int64{readings(r).lowerMedian(), readings(r).upperMedian()} {
			require.GreaterOrEqual(t, median, slices.Min(right))
			require.LessOrEqual(t, median, slices.Max(right))
		}
	})
}

// Without the clocks of a majority the leader's time goes on by its monotonic clock, whatever its own wall clock says, and
// nothing expires. With them it steps again.
func TestClockWithoutAMajority(t *testing.T) {
	l := &fakeClock{wall: time.UnixMilli(1_700_000_000_000)}
	c := &ledgerClock{source: l.clock()}
	const ledger = flight.Time(1_600_000_000_000)
	walls := func() []time.Time { return []time.Time{l.wall, l.wall.Add(-time.Millisecond)} }
	c.setVoters(3)
	c.lead(ledger)
	_, _, due := c.planStep()
	require.False(t, due)
	l.wall = l.wall.Add(year)
	l.advance(time.Hour)
	require.Equal(t, ledger.Add(time.Hour), c.read(), "no slew to its own clock")
	require.Zero(t, c.expiryHorizon())
	_, known := c.upperTime()
	require.False(t, known)
	l.wall = l.wall.Add(-year)

	c.setPeers(walls(), 3)
	now, to, due := c.planStep()
	require.True(t, due)
	require.Equal(t, ledger.Add(time.Hour), now)
	require.Equal(t, flight.Time(l.wall.UnixMilli()), to, "the median of three")
	c.setForward(to, to)
	require.Equal(t, to, c.expiryHorizon(), "no grace")
	l.advance(time.Second)
	l.wall = l.wall.Add(year)
	_, _, due = c.planStep()
	require.False(t, due, "one step in a term")
	require.Equal(t, flight.Time(l.wall.UnixMilli()), c.stamp().wall, "the highest clock ends the provider's window")
	require.Equal(t, to.Add(time.Second), c.read())

	l.advance(time.Minute)
	require.Equal(t, to.Add(61*time.Second), c.read(), "older than peerClocksLife")
	at, known := c.upperTime()
	require.True(t, known)
	require.Equal(t, to.Add(61*time.Second), at, "carried on")
	l.wall = l.wall.Add(-year + 2*time.Hour)
	c.setPeers(walls()[:1], 3)
	_, to, due = c.planStep()
	require.True(t, due, "after a time without a majority")
	require.Equal(t, flight.Time(l.wall.UnixMilli()), to, "two of three are a majority")
	c.setForward(to, to)
	c.setPeers([]time.Time{l.wall.Add(time.Hour)}, 3)
	at, _ = c.upperTime()
	require.Equal(t, flight.Time(l.wall.UnixMilli()).Add(time.Hour), at, "of two clocks the later")
	require.Equal(t, to, c.read(), "of two clocks the earlier")
	c.lead(0)
	_, _, due = c.planStep()
	require.True(t, due, "once in each term")
}

// A clock of another node is a number from the network: no value makes the ledger's time jump or fall.
func TestClockOfAnotherNodeIsAnyNumber(t *testing.T) {
	l := &fakeClock{wall: time.UnixMilli(1_700_000_000_000), mono: time.Hour}
	c := &ledgerClock{source: l.clock()}
	c.lead(1_700_000_000_000)
	for _, wall := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		before := c.read()
		c.setPeers([]time.Time{time.UnixMilli(wall), l.wall}, 3)
		l.advance(time.Second)
		require.Equal(t, before.Add(time.Second), c.read(), "%d", wall)
		require.GreaterOrEqual(t, c.stamp().wall, flight.Time(0))
	}
}

func requireNear(t *testing.T, want time.Time, got flight.Time, what string) {
	t.Helper()
	require.InDelta(t, want.UnixMilli(), int64(got), 1500, what)
}

// leadBy makes node i the leader.
func (c *testCluster) leadBy(i int) *Store {
	c.t.Helper()
	lead := c.leader()
	if c.stores[i] != lead {
		require.NoError(c.t, lead.TransferLeadership(context.Background(), c.stores[i].cfg.NodeID))
		require.Same(c.t, c.stores[i], c.leader(lead))
	}
	return c.stores[i]
}

// A wrong clock of three, that of the leader or of another node: a year ahead, an hour behind, or one that has stood still
// for six hours. Nobody is locked out, and no protection ends early. The permission to resend ends by the highest clock.
func TestHazard25_OneClockOfThreeIsWrong(t *testing.T) {
	for name, skew := range map[string]time.Duration{"ahead": year, "slow": -time.Hour, "stood still": -6 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newSkewedCluster(t, [3]time.Duration{skew, 0, 300 * time.Millisecond})
				for n, i := range []int{0, 1, 0, 2} {
					lead := c.leadBy(i)
					openAndReport(t, lead, n)
					c.run(10 * time.Second)
					reply := propose(t, lead, openOf(lead, testKey(100+n), n))
					require.Equal(t, flight.DecisionProceed, reply.Decision)
					requireNear(t, time.Now(), lead.Now(), "ledger time")
					requireNear(t, time.Now(), lead.Header().Now, "stamp")
					requireNear(t, time.Now(), lead.clock.expiryHorizon(), "retention")
					for _, s := range c.stores {
						requireNear(t, time.Now(), s.UpperTime(), "expiry of tokens")
					}
					if skew > 0 {
						requireNear(t, time.Now().Add(skew), lead.Header().Wall, "provider window")
					} else {
						require.LessOrEqual(t, lead.Header().Wall, lead.Header().Now+1500)
					}
				}
				require.Zero(t, c.leader().Header().Steps, "leaders whose time is nearly right make no step")
				c.requireSame()
			})
		})
	}
}

// All nodes stop for a day. The next leader, here with a wrong clock, steps to the median when it has a majority's clocks,
// and goes on from the last stamp until then. No holder loses time.
func TestHazard25_AllNodesStop(t *testing.T) {
	for name, skew := range map[string]time.Duration{"right": 0, "ahead": year, "slow": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCluster(t)
				lead := c.leader()
				openUnder(t, lead, 1, "first", flight.Policy{Recovery: flight.RecoveryHold, AttemptTimeout: time.Minute})
				stopped := lead.Header().Now
				for _, s := range c.stores {
					require.NoError(t, s.Close(context.Background()))
				}
				time.Sleep(24 * time.Hour)
				for i := range c.stores {
					c.start(i)
				}
				c.connectAll()
				lead = nil
				for lead == nil {
					time.Sleep(10 * time.Millisecond)
					for i, s := range c.stores {
						if _, leads := s.Leading(); leads {
							lead = s
							c.skew[i].Store(int64(skew))
						}
					}
				}
				propose(t, lead, &flight.Tick{})
				require.InDelta(t, int64(stopped), int64(lead.Header().Now), 5000, "without a majority's clocks")
				require.Equal(t, lead.Now(), lead.UpperTime())
				require.Zero(t, c.steps.Load())
				c.run(time.Second)
				propose(t, lead, &flight.Tick{})
				requireNear(t, time.Now(), lead.Header().Now, "stepped")
				require.EqualValues(t, 1, c.steps.Load())
				requireNear(t, time.Now(), lead.clock.expiryHorizon(), "no grace")

				wake := &flight.WakeUp{Key: testKey(1), Generation: 1}
				require.Equal(t, flight.DecisionBusy, propose(t, lead, wake).Decision, "the step ends no holder")
				c.run(90 * time.Second) // more than the time-out and the settle delay
				require.Equal(t, flight.DecisionInDoubt, propose(t, lead, wake).Decision)
				require.EqualValues(t, 1, c.steps.Load())
				c.requireSame()
			})
		})
	}
}

// A new ledger waits for the clocks of a majority: its leader's own clock may be a year ahead, and no ledger's time goes back.
func TestNewLedgerWaitsForClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &testCluster{t: t}
		for i := range c.stores {
			c.skew[i].Store(int64(time.Duration(i) * year))
		}
		c.startAll()
		for range 10 {
			time.Sleep(time.Second)
			for _, s := range c.stores {
				s.SetPeerClocks(nil)
				_, leads := s.Leading()
				require.False(t, leads)
				require.Empty(t, s.Header().Deployment)
			}
		}
		entries := lastEntry(c.stores[0]).Index
		require.Less(t, entries, uint64(10), "waiting writes nothing")
		lead := c.leader()
		require.NotEmpty(t, lead.Header().Deployment)
		requireNear(t, time.Now().Add(year), lead.Header().Now, "the median of three")
		require.Zero(t, c.steps.Load())
	})
}
