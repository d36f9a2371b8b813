package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// A node that does not answer is down, and its last figures are not shown as those of now.
func TestClusterGauges(t *testing.T) {
	m := New(Config{})
	m.RegisterCluster(func() wire.Cluster {
		return wire.Cluster{Leader: "a", Nodes: []wire.ClusterNode{
			{Name: "a", Role: wire.RoleLeader, EtcdOK: true},
			{Name: "b", Role: wire.RoleFollower, Behind: 7, ClockMS: -1500},
			{Name: "c", Role: wire.RoleUnreachable, Behind: 9, ClockMS: 2000, Problem: "no answer"},
		}}
	})
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	var lines []string
	for line := range strings.Lines(scrape(t, m)) {
		if strings.HasPrefix(line, "flightd_cluster_") {
			lines = append(lines, strings.TrimSpace(strings.TrimPrefix(line, "flightd_cluster_")))
		}
	}
	require.ElementsMatch(t, []string{
		`node_up{node="a"} 1`, `node_up{node="b"} 1`, `node_up{node="c"} 0`,
		`behind_entries{node="a"} 0`, `behind_entries{node="b"} 7`,
		`clock_apart_seconds{node="a"} 0`, `clock_apart_seconds{node="b"} 1.5`,
		`etcd_up{node="a"} 1`, `etcd_up{node="b"} 0`,
	}, lines)
}
