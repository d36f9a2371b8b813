package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// status ends with 0 only if the cluster is whole, and waits for that with --wait.
func TestClusterStatus_Whole(t *testing.T) {
	t.Parallel()
	node := func(name, role string, applied, behind uint64, etcd bool) client.ClusterNode {
		return client.ClusterNode{Name: name, Role: role, Applied: applied, Behind: behind, EtcdOK: etcd}
	}
	leader, follower := node("a", "leader", 500, 0, true), node("b", "follower", 500, 0, true)
	looks := []client.Cluster{}
	api := httpapi.New(httpapitest.New(t).Config())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/cluster" {
			api.ServeHTTP(w, r)
			return
		}
		w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		_ = json.NewEncoder(w).Encode(&looks[0])
		if len(looks) > 1 {
			looks = looks[1:]
		}
	}))
	defer server.Close()
	env := map[string]string{"FLIGHTD_ADDR": server.URL}
	for _, c := range []struct {
		leader, problem string
		third           client.ClusterNode
	}{
		{leader: "a", third: node("c", "follower", 500, 0, true)},
		{leader: "a", third: node("c", "follower", 480, 20, true)},
		{leader: "a", third: node("c", "follower", 0, 387, false), problem: "c: lacks 387 entries of the ledger"},
		{leader: "a", third: node("c", "follower", 500, 0, false), problem: "c: its etcd does not answer"},
		{leader: "a", third: node("c", "follower", 500, 1001, true), problem: "c: lacks 1001 entries of the ledger"},
		{leader: "a", third: node("c", "unreachable", 0, 0, false), problem: "c: does not answer"},
		{third: node("c", "follower", 500, 0, true), problem: "no node leads"},
	} {
		looks = []client.Cluster{{Leader: c.leader, Nodes: []client.ClusterNode{leader, follower, c.third}}}
		r := flightd(env, "cluster", "status")
		if c.problem == "" {
			require.Zero(t, r.code, "%v", r)
			continue
		}
		require.Equal(t, cli.ExitFailed, r.code, "%v", r)
		require.Contains(t, r.err, "the cluster is not whole: "+c.problem)
		if name, problem, isNode := strings.Cut(c.problem, ": "); isNode {
			require.Regexp(t, "(?m)^"+name+" .* "+problem+"$", r.out)
		}
	}
	state := func(third client.ClusterNode) client.Cluster {
		return client.Cluster{Leader: "a", Nodes: []client.ClusterNode{leader, follower, third}}
	}
	looks = []client.Cluster{state(node("c", "unreachable", 0, 0, false)), state(node("c", "follower", 0, 500, false)), state(node("c", "follower", 499, 30, true)), state(node("c", "follower", 500, 30, true))}
	flightd(env, "cluster", "status", "--wait", "5m").want(t, cli.ExitOK, "", "")
	require.Len(t, looks, 1, "it looked until the node had the ledger of the beginning")
	looks = looks[:0]
	looks = append(looks, state(node("c", "unreachable", 0, 0, false)))
	require.Equal(t, cli.ExitFailed, flightd(env, "cluster", "status", "--wait", "300ms").code)
}
