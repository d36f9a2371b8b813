package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/clusterstore"
)

// raft holds the metrics of the raft log and of the report spool.
type raft struct {
	append    prometheus.Histogram
	apply     prometheus.Histogram
	entries   prometheus.Counter
	commands  prometheus.Counter
	taken     prometheus.Counter
	failed    prometheus.Counter
	changes   prometheus.Counter
	expired   prometheus.Counter
	spooled   prometheus.Counter
	unspooled prometheus.Counter
	damaged   prometheus.Counter
}

func newRaft(in factory) raft {
	snapshots := in.counters("raft_snapshots_total", "Snapshots, by result.", "result")
	return raft{
		append:    in.histogram("raft_append_duration_seconds", "Duration of a write of entries to the raft log, including its sync.", writes()),
		apply:     in.histogram("raft_apply_duration_seconds", "Duration of applying a batch of committed entries in memory.", writes()),
		entries:   in.counter("raft_entries_appended_total", "Entries written to the raft log."),
		commands:  in.counter("raft_commands_applied_total", "Commands applied, including those that are applied again after a start."),
		taken:     snapshots.WithLabelValues("taken"),
		failed:    snapshots.WithLabelValues("failed"),
		changes:   in.counter("raft_leadership_changes_total", "Times that this node gained or lost leadership."),
		expired:   in.counter("flights_expired_total", "Flights that this node expired at the end of their retention."),
		spooled:   in.counter("reports_spooled_total", "Reports that were spooled on this node's disk because the ledger did not store them in time."),
		unspooled: in.counter("reports_unspooled_total", "Reports from this node's spool that the ledger stored later."),
		damaged:   in.counter("report_spool_damaged_total", "Files of the spool that could not be read and were quarantined."),
	}
}

// Store returns events that count and then call next.
func (m *Metrics) Store(also clusterstore.Events) clusterstore.Events {
	r, e := &m.raft, also
	e.Appended = func(entries int, d time.Duration) {
		r.entries.Add(float64(entries))
		r.append.Observe(d.Seconds())
		if also.Appended != nil {
			also.Appended(entries, d)
		}
	}
	e.Applied = func(entries, commands int, d time.Duration) {
		r.commands.Add(float64(commands))
		r.apply.Observe(d.Seconds())
		if also.Applied != nil {
			also.Applied(entries, commands, d)
		}
	}
	e.Snapshot = func(index uint64, d time.Duration, err error) {
		if err == nil {
			r.taken.Inc()
		} else {
			r.failed.Inc()
		}
		if also.Snapshot != nil {
			also.Snapshot(index, d, err)
		}
	}
	e.Expired = func(flights int) {
		r.expired.Add(float64(flights))
		if also.Expired != nil {
			also.Expired(flights)
		}
	}
	e.Leader = counted(r.changes, also.Leader)
	e.Spooled = counted(r.spooled, also.Spooled)
	e.Unspooled = counted(r.unspooled, also.Unspooled)
	e.SpoolDamaged = counted2(r.damaged, also.SpoolDamaged)
	return e
}
