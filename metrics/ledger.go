package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// raft holds the metrics of the raft log and of the report spool.
type raft struct {
	append            prometheus.Histogram
	apply             prometheus.Histogram
	entries           prometheus.Counter
	commands          prometheus.Counter
	snapshotsTaken    prometheus.Counter
	snapshotsFailed   prometheus.Counter
	leadershipChanges prometheus.Counter
	expired           prometheus.Counter
	spooled           prometheus.Counter
	unspooled         prometheus.Counter
	damagedReports    prometheus.Counter
}

func newRaft(in factory) raft {
	snapshots := in.counters("raft_snapshots_total", "Snapshots, by result.", "result")
	return raft{
		append:            in.histogram("raft_append_duration_seconds", "Duration of a write of entries to the raft log, including its sync.", writeBuckets()),
		apply:             in.histogram("raft_apply_duration_seconds", "Duration of applying a batch of committed entries in memory.", writeBuckets()),
		entries:           in.counter("raft_entries_appended_total", "Entries written to the raft log."),
		commands:          in.counter("raft_commands_applied_total", "Commands applied, including those that are applied again after a start."),
		snapshotsTaken:    snapshots.WithLabelValues("taken"),
		snapshotsFailed:   snapshots.WithLabelValues("failed"),
		leadershipChanges: in.counter("raft_leadership_changes_total", "Times that this node gained or lost leadership."),
		expired:           in.counter("flights_expired_total", "Flights that this node expired at the end of their retention."),
		spooled:           in.counter("reports_spooled_total", "Reports that were spooled on this node's disk because the ledger did not store them in time."),
		unspooled:         in.counter("reports_unspooled_total", "Reports from this node's spool that the ledger stored later."),
		damagedReports:    in.counter("report_spool_damaged_total", "Files of the spool that could not be read and were quarantined."),
	}
}

// Store returns events that count and then call next.
func (m *Metrics) Store(next clusterstore.Events) clusterstore.Events {
	r, e := &m.raft, next
	e.Appended = then2(func(entries int, d time.Duration) {
		r.entries.Add(float64(entries))
		r.append.Observe(d.Seconds())
	}, next.Appended)
	e.Applied = then3(func(_, commands int, d time.Duration) {
		r.commands.Add(float64(commands))
		r.apply.Observe(d.Seconds())
	}, next.Applied)
	e.Snapshot = then3(func(_ uint64, _ time.Duration, err error) {
		if err == nil {
			r.snapshotsTaken.Inc()
		} else {
			r.snapshotsFailed.Inc()
		}
	}, next.Snapshot)
	e.Expired = then(func(flights int) { r.expired.Add(float64(flights)) }, next.Expired)
	e.Leader = then(func(bool) { r.leadershipChanges.Inc() }, next.Leader)
	e.Spooled = then(func(flight.Key) { r.spooled.Inc() }, next.Spooled)
	e.Unspooled = then(func(flight.Key) { r.unspooled.Inc() }, next.Unspooled)
	e.ReportQuarantined = then2(func(string, error) { r.damagedReports.Inc() }, next.ReportQuarantined)
	return e
}
