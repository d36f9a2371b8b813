package node

import (
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// What follows writes down what a person should see. Each line about a flight carries its key. The metrics listen to
// the same events and pass them on to these.

func (n *node) executorEvents() executor.Events {
	log := n.cfg.Logger
	return executor.Events{
		Doubted: func(key flight.Key, attempt uint32, cause string) {
			log.Warn("a flight is in doubt and waits for a person", "key", key.String(), "attempt", attempt, "cause", cause,
				"settle", "flightd doubt resolve "+key.String())
		},
		Fenced: func(key flight.Key, attempt uint32) {
			log.Warn("a report came too late and is kept as evidence", "key", key.String(), "attempt", attempt)
		},
		Overlap: func(key flight.Key) {
			log.Error("evidence of a second effect", "key", key.String(), "look", "flightd why "+key.String())
		},
		Recovered: func(key flight.Key, attempt uint32, state flight.State) {
			log.Warn("the session of an attempt has ended", "key", key.String(), "attempt", attempt, "state", state.String())
		},
		SweepFailed: func(err error) { log.Warn("looking for dead holders failed; the next round tries again", "error", err) },
	}
}

func (n *node) leaseEvents() lease.Events {
	log := n.cfg.Logger
	return lease.Events{
		SessionEnded: func(_ flight.SessionID, cause error, leases int) {
			if why := lease.LostReason(cause); why != "" && leases > 0 {
				log.Warn("trust in a session was lost while attempts under it were open", "attempts", leases, "reason", why)
			}
		},
		Refused: func(err error) {
			if err != nil {
				log.Error("no claims are made any more", "error", err)
			} else {
				log.Warn("claims are made again")
			}
		},
	}
}

func (n *node) storeEvents() clusterstore.Events {
	log := n.cfg.Logger
	return clusterstore.Events{
		Spooled: func(key flight.Key) {
			log.Warn("the ledger did not take a report in time; it waits on this disk", "key", key.String())
		},
		Unspooled: func(key flight.Key) {
			log.Info("a report that waited on this disk is in the ledger", "key", key.String())
		},
		Late: func(number uint32, outcome flight.Outcome, reply flight.Reply) {
			n.events.NoteReport(&reply, number, outcome)
		},
		Stalled: func(op string, after time.Duration) {
			log.Error("the disk stalls; this process ends", "operation", op, "after", after)
		},
		Room: func(enough bool, free uint64) {
			if enough {
				log.Warn("new flights are taken again: the disk has room", "free_bytes", free)
			} else {
				log.Error("too little of the disk is free: nothing new starts; reports and receipts are still taken and answered", "free_bytes", free)
			}
		},
		Jumped: func(from, to flight.Time) {
			log.Info("the ledger's time was set forward to the clock's", "from", from.At(), "to", to.At())
		},
	}
}

func (n *node) compactorEvents() etcdlease.CompactorEvents {
	log := n.cfg.Logger
	return etcdlease.CompactorEvents{
		NearQuota: func(near bool, used, quota int64) {
			if near {
				log.Warn("etcd is filling up", "used_bytes", used, "quota_bytes", quota)
			}
		},
		NoSpace: func(full bool) {
			n.noSpace.Store(full)
			if full {
				log.Error("etcd is full and takes no claims; receipts are still answered")
			} else {
				log.Warn("etcd takes claims again")
			}
		},
		Failed: func(err error) { log.Warn("etcd could not be compacted; the next round tries again", "error", err) },
	}
}
