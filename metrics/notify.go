package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/httpapi/wire"
)

// newNotified returns the counter of notifications. Each event has a series from the start, so that its first increase is seen.
func newNotified(in factory) *prometheus.CounterVec {
	c := in.counters("notifications_total", "Notifications that targets have taken (delivered), have not taken and that are sent again (failed), or are skipped because of their content (rejected).", "event", "result")
	for _, event := range wire.NotifyEvents() {
		for _, result := range [...]string{"delivered", "failed", "rejected"} {
			c.WithLabelValues(event, result)
		}
	}
	return c
}

// NotificationSent counts one try to notify a target.
func (m *Metrics) NotificationSent(event, result string) {
	m.notified.WithLabelValues(event, result).Inc()
}

// RegisterNotify adds the gauge of failing targets. failing returns for how many seconds each target has not taken its newest
// notification, and whether this node leads the ledger; if not, there is no gauge. It must be called at most once.
func (m *Metrics) RegisterNotify(failing func() (seconds map[string]float64, leads bool)) {
	d := prometheus.NewDesc(namespace+"_notify_failing_seconds", "For how long some target has not taken its newest notification, the longest of all, at the node that leads the ledger; 0: all have.", nil, nil)
	m.registry.MustRegister(collector{[]*prometheus.Desc{d}, func(to chan<- prometheus.Metric) {
		targets, leads := failing()
		if !leads {
			return
		}
		longest := 0.0
		for _, seconds := range targets {
			longest = max(longest, seconds)
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, longest)
	}})
}
