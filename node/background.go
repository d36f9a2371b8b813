package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/lease/etcdlease"
)

// startBackground starts the loops that bound the data on disk: compaction of an embedded etcd, and retention.
func (n *node) startBackground() {
	n.parts.start("compactor", func(ctx context.Context) error {
		compactor := etcdlease.Compactor{Client: n.etcd.client, Settings: n.cfg.tuning.compactor, Events: n.metrics.Compactor(compactorEvents(n.cfg.Logger, &n.etcdFull))}
		if n.etcd.member == nil {
			compactor.Settings.Interval = cmp.Or(compactor.Settings.Interval, 5*time.Second) // each check is a connection to every member
		} else {
			compactor.Member, compactor.Quota = n.etcd.member.Server, n.cfg.tuning.etcdQuota
		}
		if n.cluster != nil {
			compactor.Turn = n.defrag.take
		}
		compactor.Run(ctx)
		return nil
	})
	n.parts.start("retention", func(ctx context.Context) error {
		n.expire(ctx)
		return nil
	})
}

// expire runs until ctx ends. Every tuning.expireEvery it removes redacted data from the disk and expires flights whose
// retention is over. The next run repeats a step that failed, also after a crash.
func (n *node) expire(ctx context.Context) {
	for clock.Sleep(ctx, n.cfg.tuning.expireEvery) {
		if _, err := n.store.Scrub(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Logger.Warn("removing redacted data from the disk failed; it is retried", "error", err)
		}
		if _, err := n.store.Expire(ctx, clusterstore.NoLimit); err != nil && ctx.Err() == nil && !errors.Is(err, clusterstore.ErrNotLeader) {
			n.cfg.Logger.Warn("expiring flights failed; it is retried", "error", err)
		}
	}
}
