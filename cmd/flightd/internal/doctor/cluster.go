package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/httpapi/wire"
)

// listedServer is what one of several listed servers says of itself.
type listedServer struct {
	address    string
	deployment string
	version    string // "": not known
}

// checkServers compares the servers of a list. Callers take any of them, so they must serve one ledger.
func checkServers(list []listedServer) Finding {
	f := Finding{Check: "servers", Status: StatusOK, Says: fmt.Sprintf("%d servers of one deployment", len(list))}
	first := list[0]
	for _, s := range list[1:] {
		switch {
		case s.deployment != first.deployment:
			f.Status, f.Says = StatusFail, fmt.Sprintf("%s serves deployment %s, and %s %s: a caller who goes on at the other one acts a second time", first.address, first.deployment, s.address, s.deployment)
			f.Do = "list servers of one deployment alone, also behind a load balancer, and set FLIGHTD_DEPLOYMENT at the callers"
			return f
		case s.version != first.version && s.version != "" && first.version != "":
			f.Status, f.Says = StatusWarn, fmt.Sprintf("%s is %s, and %s %s", first.address, first.version, s.address, s.version)
			f.Do = "end the upgrade: run one version at all servers"
		}
	}
	return f
}

// checkCluster is about the nodes of a cluster, as its leader sees them.
func checkCluster(state *client.Cluster) Finding {
	f := Finding{Check: "cluster", Status: StatusOK, Says: fmt.Sprintf("%d nodes, led by %s", len(state.Nodes), state.Leader), Facts: map[string]any{"leader": state.Leader, "nodes": len(state.Nodes)}}
	var says []string
	warn := func(do, format string, args ...any) {
		f.Status, f.Do = StatusWarn, cmp.Or(f.Do, do)
		says = append(says, fmt.Sprintf(format, args...))
	}
	for _, n := range state.Nodes { // first: its remedy is the most urgent one
		switch {
		case n.DiskDamaged && len(state.Nodes) == 1:
			warn("stop the callers and run flightd backup, which fails if receipts are lost; restore that backup on another disk, and an older one only if it fails",
				"a block on the disk is damaged")
		case n.DiskDamaged:
			warn("while a whole node leads, stop node "+n.Name+" and run flightd cluster replace "+n.Name+", one node at a time; if none is whole, run flightd backup first",
				"a block on the disk of node %s is damaged", n.Name)
		}
	}
	var answering []client.ClusterNode
	for _, n := range state.Nodes {
		clock := time.Duration(n.ClockMS) * time.Millisecond
		if n.Role == wire.RoleUnreachable {
			warn("start node "+n.Name+" with its data directory; if its disk is lost, run flightd cluster replace "+n.Name, "node %s does not answer: %s", n.Name, n.Problem)
			continue
		}
		answering = append(answering, n)
		if !n.EtcdOK {
			warn("read the log of node "+n.Name, "etcd does not answer node %s", n.Name)
		}
		if clock.Abs() > clockWarn {
			warn("let NTP set the clocks of all nodes", "the clock of node %s is %s of the leader's", n.Name, offsetText(clock))
		}
	}
	differ := func(what func(client.ClusterNode) string) (values []string) {
		for _, n := range answering {
			values = append(values, what(n))
		}
		slices.Sort(values)
		return slices.Compact(values)
	}
	const upgrade = "end the upgrade: run one version at all nodes; until then no new feature level begins"
	if v := differ(func(n client.ClusterNode) string { return n.Version }); len(v) > 1 {
		warn(upgrade, "the nodes have versions %s", strings.Join(v, ", "))
	}
	if v := differ(func(n client.ClusterNode) string { return fmt.Sprint(n.Reads) }); len(v) > 1 {
		warn(upgrade, "the nodes read feature levels %s", strings.Join(v, ", "))
	}
	if len(says) > 0 {
		f.Says = strings.Join(says, "; ")
	}
	return f
}

// measureCluster asks for the state of the cluster, once. A lone node has none, unless its disk is damaged.
func (r *run) measureCluster(ctx context.Context, c *client.Client) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	state, err := c.Cluster(ctx)
	switch {
	case client.CodeOf(err) == wire.Forbidden:
		r.add(skipped("cluster", "operate or admin"))
	case err == nil && (len(state.Nodes) > 1 || len(state.Nodes) == 1 && state.Nodes[0].DiskDamaged): // an older server has no such route
		r.add(checkCluster(state))
	}
}
