package node

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease/etcdlease"
)

// keepHouse starts the chores that keep a node small however long it lives.
func (n *node) keepHouse() {
	n.parts.start("compactor", func(ctx context.Context) error {
		compactor := etcdlease.Compactor{
			Client: n.etcd.client, Quota: n.cfg.tuning.etcdQuota, Settings: n.cfg.tuning.compactor, Events: n.compactorEvents(),
		}
		compactor.Run(ctx)
		return nil
	})
	n.parts.start("retention", func(ctx context.Context) error {
		n.expire(ctx)
		return nil
	})
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

// expire ends retentions that are over, a chunk at a time, until ctx ends.
func (n *node) expire(ctx context.Context) {
	tick := time.NewTicker(n.cfg.tuning.expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		done := expireChunk
		for done == expireChunk && ctx.Err() == nil {
			var err error
			if done, err = n.store.Expire(ctx, expireChunk); err != nil {
				n.tellExpireFailed(ctx, err)
				break
			}
		}
	}
}

func (n *node) tellExpireFailed(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, clusterstore.ErrNotLeader) {
		n.cfg.Logger.Warn("retentions could not be ended; the next round tries again", "error", err)
	}
}

// executorEvents writes down what a person should see. Each line about a flight carries its key.
func (n *node) executorEvents() executor.Events {
	log := n.cfg.Logger
	return executor.Events{
		Fenced: func(key flight.Key, attempt uint32) {
			log.Warn("a report came too late and is kept as evidence", "key", key.String(), "attempt", attempt)
		},
		Overlap: func(key flight.Key) {
			log.Error("evidence of a second effect", "key", key.String(), "look", "flightd why "+key.String())
		},
		Recovered: func(key flight.Key, attempt uint32, decision flight.Decision) {
			log.Warn("the holder of an attempt is gone", "key", key.String(), "attempt", attempt, "decision", decision.String())
		},
		SweepFailed: func(err error) { log.Warn("looking for dead holders failed; the next round tries again", "error", err) },
	}
}
