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
			Client: n.etcd.client, Member: n.etcd.member.Server, Quota: n.cfg.tuning.etcdQuota,
			Settings: n.cfg.tuning.compactor, Events: n.metrics.Compactor(n.compactorEvents()),
		}
		compactor.Run(ctx)
		return nil
	})
	n.parts.start("retention", func(ctx context.Context) error {
		n.expire(ctx)
		return nil
	})
}

// expire ends retentions that are over, from time to time, and makes what was redacted leave the disk, until ctx ends.
func (n *node) expire(ctx context.Context) {
	tick := time.NewTicker(n.cfg.tuning.expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := n.store.Scrub(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Logger.Warn("what was redacted has not left the disk yet; the next round tries again", "error", err)
		}
		if _, err := n.store.Expire(ctx, clusterstore.NoLimit); err != nil {
			n.tellExpireFailed(ctx, err)
		}
	}
}

func (n *node) tellExpireFailed(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, clusterstore.ErrNotLeader) {
		n.cfg.Logger.Warn("retentions could not be ended; the next round tries again", "error", err)
	}
}
