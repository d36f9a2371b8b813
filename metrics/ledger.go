package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/clusterstore"
)

// raft are the metrics of the ledger's writing side.
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
	snapshots := in.counters("raft_snapshots_total", "Snapshots, by what became of them.", "result")
	return raft{
		append:    in.histogram("raft_append_duration_seconds", "One write of entries to the raft log, its sync included.", writes()),
		apply:     in.histogram("raft_apply_duration_seconds", "One turn of applying committed entries in memory.", writes()),
		entries:   in.counter("raft_entries_appended_total", "Entries written to the raft log."),
		commands:  in.counter("raft_commands_applied_total", "Commands applied, those that a start applies again included."),
		taken:     snapshots.WithLabelValues("taken"),
		failed:    snapshots.WithLabelValues("failed"),
		changes:   in.counter("raft_leadership_changes_total", "How often this node began or ceased to lead."),
		expired:   in.counter("flights_expired_total", "Flights whose retention this node ended."),
		spooled:   in.counter("reports_spooled_total", "Reports that went to this node's disk because the ledger did not take them in time."),
		unspooled: in.counter("reports_unspooled_total", "Reports from this node's disk that the ledger took at last."),
		damaged:   in.counter("report_spool_damaged_total", "Files of the spool that could not be read, and were put aside."),
	}
}

// Store counts what the ledger tells, and passes it on to also.
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
