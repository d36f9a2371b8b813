package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/httpapi/wire"
)

// RegisterCluster adds the gauges of all nodes of the cluster, as this node sees them. It must be called at most once.
func (m *Metrics) RegisterCluster(state func() wire.Cluster) {
	f := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_cluster_"+name, help, []string{"node"}, nil)
	}
	m.registry.MustRegister(&clusterCollector{
		state:  state,
		up:     f("node_up", "1 if a node of the cluster answers this node."),
		behind: f("behind_entries", "Entries of the ledger that a node lacks; absent while it does not answer."),
		apart:  f("clock_apart_seconds", "How far the wall clock of a node is from that of this node; absent while it does not answer."),
		etcd:   f("etcd_up", "1 if etcd answers a node; absent while the node does not answer."),
	})
}

type clusterCollector struct {
	state                   func() wire.Cluster
	up, behind, apart, etcd *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *clusterCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.behind, c.apart, c.etcd} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *clusterCollector) Collect(to chan<- prometheus.Metric) {
	for _, n := range c.state().Nodes {
		send := func(d *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, n.Name)
		}
		answers := n.Role != wire.RoleUnreachable
		send(c.up, boolValue(answers))
		if !answers {
			continue
		}
		send(c.behind, float64(n.Behind))
		send(c.apart, math.Abs(float64(n.ClockMS))/1000)
		send(c.etcd, boolValue(n.EtcdOK))
	}
}
