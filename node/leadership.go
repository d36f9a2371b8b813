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

// fitness decides when a leader hands leadership over because it cannot take new work: etcd does not answer it, its disk is
// nearly full, or a block on it is damaged. One goroutine uses it.
type fitness struct {
	lastFit    time.Time // zero: not since the start
	handedOver time.Time
}

// successor returns the node to hand leadership to now; "": none. candidates are the other nodes by name.
func (f *fitness) successor(now time.Time, fit, leads bool, applied uint64, candidates map[string]*view) (name string) {
	if fit || f.lastFit.IsZero() {
		f.lastFit = now
	}
	if !leads || now.Sub(f.lastFit) < unfitTimeout || now.Sub(f.handedOver) < handOverPause {
		return ""
	}
	var best *view
	for other, v := range candidates {
		fresh := v.err == nil && now.Sub(v.sent) < 2*pollEvery && v.status.EtcdOK && v.status.DiskOK
		if fresh && v.status.Applied+maxBehind >= applied && (best == nil || v.status.Applied > best.status.Applied) {
			name, best = other, v
		}
	}
	if name != "" {
		f.handedOver = now
	}
	return name
}

// maxBehind is how many entries a successor may be behind: raft sends them before the transfer.
const maxBehind = 1000

// leaveToFitNode hands leadership to a node that can take new work, if this one cannot.
func (p *poller) leaveToFitNode(ctx context.Context) {
	_, leads := p.store.Leading()
	c := p.cluster
	c.mu.Lock()
	candidates := maps.Clone(c.views)
	to := p.fit.successor(time.Now(), p.etcdAnswers.Load() && !p.etcdRefused.Load() && p.store.IsDiskFit(), leads, p.store.LastApplied().Index, candidates)
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
