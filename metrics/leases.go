package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// leases holds the metrics of leases.
type leases struct {
	lost     map[string]prometheus.Counter // by reason; immutable
	commit   prometheus.Histogram
	failed   prometheus.Counter
	renewals prometheus.Counter
	disabled prometheus.Gauge
}

func newLeases(in factory) leases {
	lost := in.counters("leases_lost_total", "Claims that were lost because their session ended, by reason; released claims do not count.", "reason")
	l := leases{
		lost:     make(map[string]prometheus.Counter),
		commit:   in.histogram("lease_commit_duration_seconds", "Duration of an etcd transaction of claims and releases.", writeBuckets()),
		failed:   in.counter("lease_commit_failures_total", "Transactions of claims and releases that etcd rejected or did not answer."),
		renewals: in.counter("lease_renewal_failures_total", "Renewals of sessions that etcd did not answer."),
		disabled: in.gauge("leases_disabled", "1 while new claims are disabled because etcd lost data or belongs to another deployment."),
	}
	for _, reason := range lease.LostReasons() {
		l.lost[reason] = lost.WithLabelValues(reason)
	}
	return l
}

// Leases returns events that count and then call next.
func (m *Metrics) Leases(next lease.Events) lease.Events {
	l, e := &m.leases, next
	e.SessionEnded = then3(func(_ flight.SessionID, cause error, leases int) {
		if lost := l.lost[lease.LostReason(cause)]; lost != nil {
			lost.Add(float64(leases))
		}
	}, next.SessionEnded)
	e.Committed = then3(func(_ int, took time.Duration, err error) {
		l.commit.Observe(took.Seconds())
		if err != nil {
			l.failed.Inc()
		}
	}, next.Committed)
	e.RenewFailed = then3(func(flight.SessionID, time.Duration, error) { l.renewals.Inc() }, next.RenewFailed)
	e.EtcdRefused = then(func(err error) { l.disabled.Set(boolValue(err != nil)) }, next.EtcdRefused)
	return e
}

// etcd holds the metrics of the embedded etcd that flightd maintains.
type etcd struct {
	size, inUse, quota prometheus.Gauge
	noSpace            prometheus.Gauge
	compactions        prometheus.Counter
	failures           prometheus.Counter
}

func newEtcd(in factory) etcd {
	return etcd{
		size:        in.gauge("etcd_db_size_bytes", "Size of etcd's database file, a few seconds old at most."),
		inUse:       in.gauge("etcd_db_in_use_bytes", "Bytes of etcd's database file that are in use."),
		quota:       in.gauge("etcd_quota_bytes", "Size at which etcd rejects claims."),
		noSpace:     in.gauge("etcd_no_space", "1 while etcd rejects claims because its quota is exceeded."),
		compactions: in.counter("etcd_compactions_total", "Compactions of etcd's history by this process."),
		failures:    in.counter("etcd_maintenance_failures_total", "Runs of etcd maintenance that failed."),
	}
}

// Compactor returns events that count and then call next.
func (m *Metrics) Compactor(next etcdlease.CompactorEvents) etcdlease.CompactorEvents {
	c, e := &m.etcd, next
	e.SizeRead = then3(func(size, inUse, quota int64) {
		c.size.Set(float64(size))
		c.inUse.Set(float64(inUse))
		c.quota.Set(float64(quota))
	}, next.SizeRead)
	e.NoSpace = then(func(full bool) { c.noSpace.Set(boolValue(full)) }, next.NoSpace)
	e.Compacted = then2(func(int64, time.Duration) { c.compactions.Inc() }, next.Compacted)
	e.Failed = then(func(error) { c.failures.Inc() }, next.Failed)
	return e
}

func boolValue(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
