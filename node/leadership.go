package node

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/flightd/flightd/clusterstore"
)

// handOver hands the leadership of the ledger to another node, so that a stop costs no election.
func handOver(ctx context.Context, store *clusterstore.Store, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, leads := store.Leading(); !leads {
		return
	}
	if err := store.TransferLeadership(ctx, ""); err != nil {
		log.Info("leadership was not handed over; the others elect a leader", "error", err)
	}
}

const (
	// unfitTimeout is how long a leader goes on without an answer of etcd, or with a disk that takes no new work or has a
	// damaged block, before it hands leadership to a node that is fit.
	unfitTimeout = 3 * time.Second
	// handOverPause is the least time between two such transfers.
	handOverPause = 30 * time.Second
)

// fitness decides when a leader hands leadership over: because it cannot take new work, as etcd does not answer it or its disk is
// nearly full, or because a block on its disk is damaged. One goroutine uses it.
type fitness struct {
	lastFit    time.Time // zero: not since the start
	handedOver time.Time
}

// successor returns the node to hand leadership to now; "": none. own is the status of this node, candidates are the other nodes by
// name. A node whose disk is whole goes first; one with a damaged block is asked only by a leader that cannot take new work.
func (f *fitness) successor(now time.Time, own *status, leads bool, candidates map[string]*view) (name string) {
	able := own.EtcdOK && own.DiskOK
	if able && !own.Damaged || f.lastFit.IsZero() {
		f.lastFit = now
	}
	if !leads || now.Sub(f.lastFit) < unfitTimeout || now.Sub(f.handedOver) < handOverPause {
		return ""
	}
	var best *status
	for other, v := range candidates {
		s := &v.status
		fresh := v.err == nil && now.Sub(v.sent) < 2*pollEvery && s.Applied+maxBehind >= own.Applied
		if !fresh || !s.EtcdOK || !s.DiskOK || s.Damaged && able {
			continue
		}
		if best == nil || best.Damaged && !s.Damaged || best.Damaged == s.Damaged && s.Applied > best.Applied {
			name, best = other, s
		}
	}
	if name != "" {
		f.handedOver = now
	}
	return name
}

// maxBehind is how many entries a successor may be behind: raft sends them before the transfer.
const maxBehind = 1000

// leaveToFitNode hands leadership to a node that is fit for it, if this one is not.
func (p *poller) leaveToFitNode(ctx context.Context) {
	_, leads := p.store.Leading()
	own, c := peerAPI{p.node}.status(), p.cluster
	own.EtcdOK = own.EtcdOK && !p.etcdRefused.Load()
	c.mu.Lock()
	candidates := maps.Clone(c.views)
	to := p.fit.successor(time.Now(), &own, leads, candidates)
	instance := c.members.Instances[to]
	c.mu.Unlock()
	if to == "" {
		return
	}
	p.cfg.Logger.Warn("this node leads the ledger and cannot use its etcd, or its disk is nearly full or damaged: leadership goes to another node", "node", to)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := p.store.TransferLeadership(ctx, instance); err != nil {
		p.cfg.Logger.Warn("leadership was not handed over", "node", to, "error", err)
	}
}
