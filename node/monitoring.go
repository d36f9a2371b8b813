package node

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/metrics"
)

// monitor answers what operators and load balancers ask of a node: its health, its figures, and its cluster as it sees it.
type monitor struct{ *node }

// register adds the gauges of ledger, leases and nodes to the metrics.
func (m monitor) register() {
	m.metrics.RegisterState(m.store, m)
	m.metrics.RegisterCluster(m.clusterState)
	m.metrics.RegisterQueues(m.queues)
	m.metrics.RegisterNotify(m.notifyFailing)
}

// notifyFailing returns for how many seconds each target of notifications that fails has failed, if this node acts.
func (m monitor) notifyFailing() (seconds map[string]float64, leads bool) {
	a := m.act.Load()
	if a == nil || a.notify == nil {
		return nil, false
	}
	seconds = make(map[string]float64)
	for name, f := range a.notify.Failing() {
		seconds[name] = max(0, m.wall().Sub(f.Since.Time).Seconds())
	}
	return seconds, true
}

// queues describes the queues of all namespaces, if this node acts.
func (m monitor) queues() (queues iter.Seq[metrics.Queue], leads bool) {
	a := m.act.Load()
	if a == nil || a.pools == nil {
		return nil, false
	}
	now, jobs := m.store.Now(), m.store.Jobs()
	return func(yield func(metrics.Queue) bool) {
		for q := range a.pools.Queues("", "") {
			out := metrics.Queue{Action: q.Action, Ready: q.Ready, Running: q.Running, Workers: q.Workers, Paused: jobs.Paused(q.Namespace, q.Action)}
			if q.Oldest > 0 {
				out.OldestSeconds = max(0, now.AsTime().Sub(q.Oldest.AsTime()).Seconds())
			}
			if !yield(out) {
				return
			}
		}
	}, true
}

// Counts implements metrics.Leases.
func (m monitor) Counts() (claims, sessions int) {
	if a := m.act.Load(); a != nil {
		return a.leases.Counts()
	}
	return 0, 0
}

// monitoringConnections is the largest number of open connections of Config.Listen.Metrics.
const monitoringConnections = 128

// serve answers requests for metrics and health on Config.Listen.Metrics, if set. The address answers during the start and
// the stop of the node, too. Requests need no token there, so the answers name no key and no caller.
func (m monitor) serve() error {
	if m.cfg.Listen.Metrics == "" {
		return nil
	}
	listener, err := m.cfg.listen("listen_metrics", m.cfg.Listen.Metrics)
	if err != nil {
		return err
	}
	m.metricsURL = "http://" + listener.Addr().String()
	routes := map[string]http.Handler{}
	for _, path := range [...]string{"GET /metrics", "GET /metrics/etcd", "GET /metrics/raft"} {
		routes[path] = m.metrics.Handler()
	}
	for _, path := range [...]string{"GET /livez", "GET /readyz", "GET /version", "GET /problems/{code}"} {
		routes[path] = m.server
	}
	server := httpapi.Server(m.cfg.Listen.Metrics, httpapi.NewMonitoring(routes, m.cfg.NoCredentials, m.cfg.Logger))
	server.ErrorLog, server.ReadTimeout, server.WriteTimeout = httpErrors(m.cfg.Logger), 15*time.Second, time.Minute
	connections := newConnections(listener, min(monitoringConnections, m.cfg.tuning.connections), nil)
	connections.watch(server)
	m.parts.start("metrics", func(ctx context.Context) error {
		served := make(chan error, 1) // the part waits for it in every case
		go func() { served <- server.Serve(connections) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		err := server.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	return nil
}

// loneNode is the name of a lone node in the description of its cluster.
const loneNode = "lone"

// damagedDisk is the problem of a node on whose disk a block was found damaged.
const damagedDisk = "a block on its disk is damaged: flightd doctor says what to do"

// clusterState describes the nodes as this one sees them.
func (m monitor) clusterState() wire.Cluster {
	if m.cluster == nil {
		applied := m.store.LastApplied().Index
		only := wire.ClusterNode{Name: loneNode, Role: wire.RoleLeader, Version: m.cfg.Process.Version, Applied: applied, EtcdOK: !m.etcdFull.Load(), Reads: flight.MaxLevel, BackedUp: m.lastBackup()}
		if only.DiskDamaged = m.store.IsDamaged(); only.DiskDamaged {
			only.Problem = damagedDisk
		}
		return wire.Cluster{Leader: loneNode, Nodes: []wire.ClusterNode{only}}
	}
	own := peerAPI(m).status()
	state := wire.Cluster{ID: m.cluster.founding.ClusterID, Leader: own.Leader}
	leader := own.Applied
	if v := m.cluster.viewOf(own.Leader); v != nil {
		leader = v.status.Applied
	}
	for _, node := range m.cluster.founding.Nodes {
		about, out, then := own, wire.ClusterNode{Name: node.Name, Role: wire.RoleFollower, Address: node.Address, Etcd: node.Etcd}, leader
		if v := m.cluster.viewOf(node.Name); node.Name != m.cluster.name() {
			if v == nil {
				v = &view{err: errors.New("it has not answered since this node started")}
			}
			about = v.status
			if state.Leader == m.cluster.name() && v.err == nil {
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
		out.BackedUp = about.BackedUp
		out.Behind = max(then, about.Applied) - about.Applied
		if out.DiskDamaged = about.Damaged; out.DiskDamaged && out.Problem == "" {
			out.Problem = damagedDisk
		}
		if waits := own.Members.pending(node.Name); waits != "" {
			if about.Joins != "" && out.Role != wire.RoleUnreachable {
				waits = "it joins the cluster: it runs, and the leader has not taken it in yet"
			}
			out.Problem = strings.TrimSuffix(waits+"; "+out.Problem, "; ")
		}
		state.Nodes = append(state.Nodes, out)
	}
	return state
}
