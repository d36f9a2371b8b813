package node

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// api returns the handler of the API.
func (a *actor) api() http.Handler { return httpapi.New(a.apiConfig()) }

func (a *actor) apiConfig() httpapi.Config {
	cfg := httpapi.Config{
		Remote: a.remote, Ledger: a.store, Operator: operator{a.store, &a.events}, Documents: a.store, Restores: a.node, Logger: a.cfg.Logger,
		Events:  httpapi.Events{Feed: a.store.Feed(), Duplicates: a.store, MaxStreams: a.cfg.tuning.connections / 2},
		Callers: httpapi.Callers{TokenTime: a.store.UpperTime, Limits: a.limits, LoopbackOnly: a.cfg.NoCredentials && a.cluster == nil},
		Cluster: httpapi.Cluster{State: a.clusterState, RaiseLeaseEpoch: a.raiseIfRegressed, LedgerBehind: a.ledgerBehind},
		About: httpapi.About{Version: wire.Version{Version: a.cfg.Version, Deployment: a.store.Header().Deployment},
			Ready: a.readiness, Ledger: a.ledgerInfo, Node: a.about},
	}
	if a.cluster != nil {
		cfg.Cluster.AwaitNodes, cfg.Cluster.ReplaceNode = a.awaitApplied, a.replacementOf
	}
	if a.cfg.NoCredentials {
		cfg.About.Metrics = a.metrics.Handler()
	} else { // metrics are served by Config.ListenMetrics only
		cfg.Callers.Auth = a.tokens
	}
	return cfg
}

// Backup implements httpapi.Restores.
func (n *node) Backup(ctx context.Context, w io.Writer) error {
	return n.store.Backup(ctx, n.cfg.Version, w)
}

// Asked implements httpapi.Restores.
func (n *node) Asked(after string, limit int) (keys []string, total int) {
	return n.asked.page(after, limit)
}

// loneNode is the name of a lone node in the description of its cluster.
const loneNode = "lone"

// clusterState describes the nodes as this one sees them.
func (n *node) clusterState() wire.Cluster {
	if n.cluster == nil {
		applied := n.store.LastApplied().Index
		only := wire.ClusterNode{Name: loneNode, Role: wire.RoleLeader, Version: n.cfg.Version, Applied: applied, EtcdOK: !n.etcdFull.Load(), Reads: flight.MaxLevel}
		return wire.Cluster{Leader: loneNode, Nodes: []wire.ClusterNode{only}}
	}
	own := n.status()
	state := wire.Cluster{ID: n.cluster.founding.ClusterID, Leader: own.Leader}
	leader := own.Applied
	if v := n.cluster.viewOf(own.Leader); v != nil {
		leader = v.status.Applied
	}
	for _, node := range n.cluster.founding.Nodes {
		about, out, then := own, wire.ClusterNode{Name: node.Name, Role: wire.RoleFollower, Address: node.Address, Etcd: node.Etcd}, leader
		if v := n.cluster.viewOf(node.Name); node.Name != n.cluster.name() {
			if v == nil {
				v = &view{err: errors.New("it has not answered since this node started")}
			}
			about = v.status
			if state.Leader == n.cluster.name() && v.err == nil {
				then = v.own // when the node was asked
			}
			out.ClockMS = v.wall.Milliseconds()
			if v.err != nil {
				out.Role, out.Problem = wire.RoleUnreachable, v.err.Error()
			}
			if !v.sent.IsZero() {
				out.SeenBefore = time.Since(v.sent).Milliseconds()
			}
		}
		if out.Role == wire.RoleFollower && node.Name == state.Leader {
			out.Role = wire.RoleLeader
		}
		out.Instance, out.Version, out.Applied, out.EtcdOK, out.Reads = about.Instance, about.Version, about.Applied, about.EtcdOK && out.Problem == "", about.Reads
		out.Behind = max(then, about.Applied) - about.Applied
		if waits := own.Members.pending(node.Name); waits != "" {
			out.Problem = waits
		}
		state.Nodes = append(state.Nodes, out)
	}
	return state
}

// ledgerBehind reports whether this ledger, which leads, does not reach a position that a caller was told, and says so.
func (a *actor) ledgerBehind(ctx context.Context, told wire.Index) (bool, error) {
	if a.cluster != nil {
		if err := a.check.stillLeads(ctx); err != nil {
			return false, &effect.Unavailable{Code: string(wire.LeaderLost), Cause: err}
		}
	}
	h := a.store.Header()
	has := wire.Index{Epoch: h.StoreEpoch, Entry: h.Version.Index}
	if !told.After(has) {
		return false, nil
	}
	a.metrics.LedgerBehind()
	a.cfg.Logger.Error("the ledger has lost entries: a caller was told a later position. Stop this node and keep its data directory; put the newest copy back, or run flightd restore accept",
		"ledger", has.String(), "caller", told.String())
	return true, nil
}
