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
	up := f("node_up", "1 if a node of the cluster answers this node.")
	behind := f("behind_entries", "Entries of the ledger that a node lacks; absent while it does not answer.")
	apart := f("clock_apart_seconds", "How far the wall clock of a node is from that of this node; absent while it does not answer.")
	etcd := f("etcd_up", "1 if etcd answers a node; absent while the node does not answer.")
	m.registry.MustRegister(collector{[]*prometheus.Desc{up, behind, apart, etcd}, func(to chan<- prometheus.Metric) {
		for _, n := range state().Nodes {
			send := func(d *prometheus.Desc, value float64) {
				to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, n.Name)
			}
			answers := n.Role != wire.RoleUnreachable
			send(up, boolValue(answers))
			if !answers {
				continue
			}
			send(behind, float64(n.Behind))
			send(apart, math.Abs(float64(n.ClockMS))/1000)
			send(etcd, boolValue(n.EtcdOK))
		}
	}})
}
