package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
)

func TestDoctor_ComparesServersAndNodes(t *testing.T) {
	cluster := func(change func(*client.ClusterNode)) checkResult {
		nodes := []client.ClusterNode{
			{Name: "a", Role: "leader", Version: "1", EtcdOK: true, Reads: 5}, {Name: "b", Role: "follower", Version: "1", EtcdOK: true, Reads: 5, ClockMS: -200},
			{Name: "c", Role: "follower", Version: "1", EtcdOK: true, Reads: 5, ClockMS: 300},
		}
		change(&nodes[2])
		return checkCluster(&client.Cluster{Leader: "a", Nodes: nodes})
	}
	servers := func(deployment, version string) checkResult {
		return checkServers([]listedServer{{"http://a", "d1", "1"}, {"http://b", "d1", "1"}, {"http://c", deployment, version}})
	}
	for name, test := range map[string]struct {
		got  checkResult
		want string
		says string
	}{
		"one deployment":      {servers("d1", "1"), statusOK, "3 servers of one deployment"},
		"two deployments":     {servers("d2", "1"), statusFail, "http://a serves deployment d1, and http://c d2"},
		"two versions":        {servers("d1", "2"), statusWarn, "http://c 2"},
		"an unknown version":  {servers("d1", ""), statusOK, "3 servers"},
		"a whole cluster":     {cluster(func(*client.ClusterNode) {}), statusOK, "3 nodes, led by a"},
		"a node is down":      {cluster(func(n *client.ClusterNode) { n.Role, n.Problem, n.Reads = "unreachable", "no route", 0 }), statusWarn, "node c does not answer: no route"},
		"a node without etcd": {cluster(func(n *client.ClusterNode) { n.EtcdOK = false }), statusWarn, "etcd does not answer node c"},
		"clocks":              {cluster(func(n *client.ClusterNode) { n.ClockMS = -5000 }), statusWarn, "the clock of node c is 5s behind of the leader's"},
		"versions":            {cluster(func(n *client.ClusterNode) { n.Version = "2" }), statusWarn, "versions 1, 2"},
		"levels":              {cluster(func(n *client.ClusterNode) { n.Reads = 6 }), statusWarn, "feature levels 5, 6"},
	} {
		f := test.got
		require.Equal(t, test.want, f.Status, "%s: %+v", name, f)
		require.Contains(t, f.Says, test.says, "%s: %+v", name, f)
		require.Equal(t, f.Status == statusOK, f.Do == "", "%s: %+v", name, f)
		require.NotContains(t, f.Says, "levels 0", name)
	}
}

// Two lone servers in one list are two ledgers.
func TestDoctor_TwoLedgersInOneList(t *testing.T) {
	s, other := startServer(t), startServer(t)
	by, r := s.runDoctor("--server", s.url()+","+other.url())
	require.Equal(t, exitFailed, r.code, "%v", r)
	require.Equal(t, statusFail, by["servers"].Status, "%v", r)
	require.Contains(t, by["servers"].Do, "FLIGHTD_DEPLOYMENT")
	by, _ = s.runDoctor("--server", s.url()+","+s.url())
	require.Equal(t, statusOK, by["servers"].Status)
	require.Empty(t, by["cluster"].Status, "a lone node is no cluster")
}
