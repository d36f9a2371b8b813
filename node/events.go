package node

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// The functions in this file log the events that an operator should see. Each line about a flight has its key. The
// metrics handle the same events first and then call these functions.

// executorEvents also notes the keys that were asked for after a restore.
func executorEvents(log *slog.Logger, asked *atomic.Pointer[askedKeys]) executor.Events {
	return executor.Events{
		Called: func(key flight.Key, result string, _ time.Duration) {
			if result == executor.ResultReconciling {
				asked.Load().add(key)
			}
		},
		InDoubt: func(key flight.Key, attempt uint32, cause string) {
			log.Warn("a flight is in doubt and waits for a person", "key", key.String(), "attempt", attempt, "cause", cause,
				"resolve", "flightd doubt resolve "+key.String())
		},
		Fenced: func(key flight.Key, attempt uint32) {
			log.Warn("a report came too late and was stored as evidence", "key", key.String(), "attempt", attempt)
		},
		Overlap: func(key flight.Key) {
			log.Error("evidence of a second effect", "key", key.String(), "look", "flightd why "+key.String())
		},
		Recovered: func(key flight.Key, attempt uint32, state flight.State) {
			log.Warn("the session of an attempt has ended", "key", key.String(), "attempt", attempt, "state", state.String())
		},
		SweepFailed: func(err error) { log.Warn("looking for ended sessions failed; it is retried", "error", err) },
	}
}

func leaseEvents(log *slog.Logger) lease.Events {
	return lease.Events{
		SessionEnded: func(_ flight.SessionID, cause error, leases int) {
			if why := lease.LostReason(cause); why != "" && leases > 0 {
				log.Warn("trust in a session was lost while attempts under it were open", "attempts", leases, "reason", why)
			}
		},
		EtcdRefused: func(err error) {
			if err != nil {
				log.Error("etcd is rejected: new claims are disabled", "error", err)
			} else {
				log.Warn("etcd is accepted: new claims are enabled")
			}
		},
	}
}

func storeEvents(log *slog.Logger, others *cluster, events *executor.Events) clusterstore.Events {
	return clusterstore.Events{
		Leader: func(bool) {
			if others != nil {
				others.changed.Broadcast()
			}
		},
		Spooled: func(key flight.Key) {
			log.Warn("the ledger did not store a report in time; the report is in the spool", "key", key.String())
		},
		Unspooled: func(key flight.Key) {
			log.Info("the ledger has stored a report from the spool", "key", key.String())
		},
		ReportedLate: func(number uint32, outcome flight.Outcome, reply flight.Reply) {
			events.PublishReport(&reply, number, outcome)
		},
		Stalled: func(op string, after time.Duration) {
			log.Error("the disk stalls; the process exits", "operation", op, "after", after)
		},
		DiskSpace: func(enough bool, free uint64) {
			if enough {
				log.Warn("enough disk space is free again: new flights are accepted", "free_bytes", free)
			} else {
				log.Error("disk space is low: new flights are rejected; reports are still accepted, receipts still returned", "free_bytes", free)
			}
		},
		ClockStepped: func(from, to flight.Time) {
			log.Info("the ledger's time was set forward to the clock", "from", from.AsTime(), "to", to.AsTime())
		},
	}
}

func compactorEvents(log *slog.Logger, etcdFull *atomic.Bool) etcdlease.CompactorEvents {
	return etcdlease.CompactorEvents{
		NearQuota: func(near bool, used, quota int64) {
			if near {
				log.Warn("etcd's database is near its quota", "used_bytes", used, "quota_bytes", quota)
			}
		},
		NoSpace: func(full bool) {
			etcdFull.Store(full)
			if full {
				log.Error("etcd is full and rejects claims; receipts are still returned")
			} else {
				log.Warn("etcd accepts claims again")
			}
		},
		Failed: func(err error) { log.Warn("looking after etcd failed; it is retried", "error", err) },
	}
}
