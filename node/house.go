package node

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/lease/etcdlease"
)

// keepHouse starts the chores that keep a node small however long it lives.
func (n *node) keepHouse() {
	n.parts.start("compactor", func(ctx context.Context) error {
		compactor := etcdlease.Compactor{
			Client: n.etcd.client, Quota: n.cfg.tuning.etcdQuota, Settings: n.cfg.tuning.compactor, Events: n.metrics.Compactor(n.compactorEvents()),
		}
		compactor.Run(ctx)
		return nil
	})
	n.parts.start("retention", func(ctx context.Context) error {
		n.expire(ctx)
		return nil
	})
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
