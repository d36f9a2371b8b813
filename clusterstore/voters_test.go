package clusterstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

func TestIdentify(t *testing.T) {
	dir := t.TempDir()
	id, started, err := Identify(dir, "trio")
	require.NoError(t, err)
	require.NotEmpty(t, id)
	require.False(t, started)
	again, started, err := Identify(dir, "trio")
	require.NoError(t, err)
	require.Equal(t, id, again, "the id is durable before the first Open")
	require.False(t, started)
	_, _, err = Identify(dir, "quartet")
	require.ErrorIs(t, err, ErrForeign)

	s, err := Open(t.Context(), Config{Dir: dir, NodeID: id, ClusterID: "trio"})
	require.NoError(t, err)
	_, _, err = Identify(dir, "trio")
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, s.Close(context.Background()))
	again, started, err = Identify(dir, "trio")
	require.NoError(t, err)
	require.Equal(t, id, again)
	require.True(t, started)
}

// A first start that died after the first entry, and before IDENTITY was marked, has started.
func TestIdentify_UnmarkedStart(t *testing.T) {
	fs := vfs.NewMem()
	cfg, err := memConfig(fs).withDefaults()
	require.NoError(t, err)
	_, started, err := identifyDir(&cfg)
	require.NoError(t, err)
	require.False(t, started)
	for _, entries := range []bool{false, true} {
		log, err := pebblelog.Open("ledger/"+logDir, pebblelog.Options(&pebble.Options{FS: fs}))
		require.NoError(t, err)
		if entries {
			require.NoError(t, log.Bootstrap(raft.Configuration{}))
		}
		require.NoError(t, log.Close())
		_, started, err = identifyDir(&cfg)
		require.NoError(t, err)
		require.Equal(t, entries, started)
	}
}

func TestFoundingConfiguration(t *testing.T) {
	a, b, c := Voter{"1", "a"}, Voter{"2", "b"}, Voter{"3", "c"}
	want, err := foundingConfiguration([]Voter{a, b, c}, a)
	require.NoError(t, err)
	got, err := foundingConfiguration([]Voter{c, a, b}, b)
	require.NoError(t, err)
	require.Equal(t, want, got, "the first entry is the same on every node")
	for name, list := range map[string][]Voter{
		"empty": {}, "without this node": {b, c}, "other address": {{"1", "b"}, c}, "same id": {a, {"1", "b"}}, "same address": {a, {"2", "a"}}, "no id": {a, {"", "b"}}, "no address": {a, {"2", ""}},
	} {
		_, err := foundingConfiguration(list, a)
		require.Error(t, err, name)
	}
}

// peersConfig is the configuration of a node with an in-memory transport.
func peersConfig(id, name string, founding ...Voter) (Config, *raft.InmemTransport) {
	_, transport := raft.NewInmemTransport(raft.ServerAddress(name))
	cfg := memConfig(vfs.NewMem())
	cfg.NodeID, cfg.ClusterID, cfg.Peers = id, "trio", &Peers{Transport: transport, Founding: founding}
	return cfg, transport
}

// A new node without a founding list waits, through restarts too, until a leader adds it. A lone ledger that is opened with
// peers leads alone, and takes the node in.
func TestLoneLedgerBecomesACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		lone, first := peersConfig("node-0", "a")
		peers := lone.Peers
		lone.Peers = nil
		s, err := Open(ctx, lone)
		require.NoError(t, err)
		openAndReport(t, s, 1)
		deployment := s.Header().Deployment
		require.NoError(t, s.Close(ctx))
		lone.Peers = peers
		s = openStore(t, lone)
		require.NoError(t, s.waitForLeadership(ctx))
		require.NoError(t, s.AddVoter(ctx, Voter{"node-0", "a"}))

		empty, _ := peersConfig("node-1", "b")
		joiner, err := Open(ctx, empty)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, EntryID{}, lastEntry(joiner), "it has founded nothing")
		require.NoError(t, joiner.Close(ctx))
		_, started, err := identifyDir(&joiner.cfg)
		require.NoError(t, err)
		require.False(t, started)
		_, second := raft.NewInmemTransport("b")
		empty.Peers.Transport = second
		joiner = openStore(t, empty)
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		require.ErrorIs(t, joiner.AwaitDeployment(soon), context.DeadlineExceeded)
		_, ok := joiner.Leading()
		require.False(t, ok)

		first.Connect("b", second)
		second.Connect("a", first)
		require.ErrorIs(t, joiner.AddNonvoter(ctx, Voter{"node-1", "b"}), ErrNotLeader)
		require.NoError(t, s.AddNonvoter(ctx, Voter{"node-1", "b"}))
		require.NoError(t, joiner.AwaitDeployment(ctx))
		require.Equal(t, deployment, joiner.Header().Deployment)
		voters, _, err := s.Voters()
		require.NoError(t, err)
		require.Equal(t, []Voter{{"node-0", "a"}}, voters, "it does not vote yet")
		require.NoError(t, s.AddVoter(ctx, Voter{"node-1", "b"}))
		require.NoError(t, joiner.waitApplied(ctx, s.LastApplied().Index))
		for _, node := range []*Store{s, joiner} {
			voters, index, err := node.Voters()
			require.NoError(t, err)
			require.Equal(t, []Voter{{"node-0", "a"}, {"node-1", "b"}}, voters)
			require.Equal(t, s.LastApplied().Index, index)
			require.Equal(t, "a", node.Leader())
		}
		require.True(t, joiner.id.Started, "from its first entry on")
		require.NoError(t, s.RemoveServer(ctx, "node-1"))
		voters, _, err = s.Voters()
		require.NoError(t, err)
		require.Equal(t, []Voter{{"node-0", "a"}}, voters)
	})
}

func TestTransferLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		lead := c.leader()
		openAndReport(t, lead, 1)
		term, ok := lead.Leading()
		require.True(t, ok)
		next := c.stores[(c.indexOf(lead)+1)%3]
		require.ErrorIs(t, next.TransferLeadership(t.Context(), ""), ErrNotLeader)
		require.Error(t, lead.TransferLeadership(t.Context(), "node-9"))
		require.NoError(t, lead.TransferLeadership(t.Context(), next.cfg.NodeID))
		require.Same(t, next, c.leader(lead))
		after, _ := next.Leading()
		require.Greater(t, after, term)
		require.NoError(t, lead.waitApplied(t.Context(), next.LastApplied().Index), "it hears of the new leader with its entries")
		require.Equal(t, next.cfg.Peers.Transport.LocalAddr(), raft.ServerAddress(lead.Leader()))
		_, ok = lead.Leading()
		require.False(t, ok)
		require.NoError(t, next.TransferLeadership(t.Context(), ""))
		openAndReport(t, c.leader(next), 2)
	})
}

// A deployment has one name and one secret, whatever its first leaders propose.
func TestDeploymentIsNamedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		lead := c.leader()
		before := lead.Header()
		require.NotEmpty(t, before.Secret)
		require.NoError(t, lead.proposeAtStart(t.Context(), &flight.Bootstrap{Deployment: "other", Secret: []byte("other")}))
		for _, s := range c.stores {
			require.NoError(t, s.AwaitDeployment(t.Context()))
		}
		c.isolate(c.indexOf(lead))
		next := c.leader(lead)
		require.Equal(t, before.Deployment, next.Header().Deployment)
		require.Equal(t, before.Secret, next.Header().Secret)
		c.connectAll()
		c.requireSame()
	})
}

// A ledger of several voters is not opened as a lone one: it would wait for an election that it cannot win.
func TestOpenWithoutPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := peersConfig("node-0", "a", Voter{"node-0", "a"}, Voter{"node-1", "b"})
		s, err := Open(context.Background(), cfg)
		require.NoError(t, err)
		require.NoError(t, s.Close(context.Background()))
		cfg.Peers = nil
		_, err = Open(context.Background(), cfg)
		require.ErrorContains(t, err, "Peers is required")
	})
}

// closeCounter counts how often a transport is closed.
type closeCounter struct {
	*raft.InmemTransport
	closed *int
}

func (c closeCounter) Close() error { *c.closed++; return c.InmemTransport.Close() }

func TestCloseClosesTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, founding := range map[string][]Voter{"open": {{"node-0", "a"}}, "failed open": {{"node-9", "a"}}} {
			cfg, transport := peersConfig("node-0", "a", founding...)
			closed := 0
			cfg.Peers.Transport = closeCounter{transport, &closed}
			s, err := Open(context.Background(), cfg)
			require.Equal(t, strings.HasPrefix(name, "failed"), err != nil, name)
			if err == nil {
				require.Zero(t, closed)
				require.NoError(t, s.Close(context.Background()))
				require.NoError(t, s.Close(context.Background()))
			}
			require.Equal(t, 1, closed, name)
		}
	})
}

// silentTarget is a transport whose TimeoutNow gets no answer until it is released.
type silentTarget struct {
	*raft.InmemTransport
	release chan struct{}
}

func (s silentTarget) TimeoutNow(raft.ServerID, raft.ServerAddress, *raft.TimeoutNowRequest, *raft.TimeoutNowResponse) error {
	<-s.release
	return errors.New("no answer")
}

// A transfer to a node that does not answer fails after a second. Raft rejects commands until the transport gives up; the
// start of a term waits for that, because raft does not tell when it is over.
func TestTransferLeadership_SilentTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &testCluster{t: t}
		release := make(chan struct{})
		c.configure = func(i int, cfg *Config) { cfg.Peers.Transport = silentTarget{c.transports[i], release} }
		c.startAll()
		lead := c.leader()
		require.Error(t, lead.TransferLeadership(t.Context(), c.stores[(c.indexOf(lead)+1)%3].cfg.NodeID))
		_, leads := lead.Leading()
		require.True(t, leads)
		_, err := lead.Propose(t.Context(), openOf(lead, testKey(1), 1))
		require.ErrorIs(t, err, ErrUnavailable)
		started := make(chan error, 1)
		go func() { started <- lead.proposeAtStart(context.Background(), &flight.Tick{}) }()
		time.Sleep(time.Second)
		require.Empty(t, started)
		close(release)
		require.NoError(t, <-started)
		openAndReport(t, lead, 2)
	})
}
