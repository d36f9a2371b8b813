package node

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// A member of etcd that is defragmented does not answer meanwhile. Two of three at a time would be an etcd without a majority.
// So in a cluster a member waits for its turn, and the node that acts gives one turn at a time, to its own member last.
const (
	// turnLasts bounds the time from the turn to the begin of the defragmentation.
	turnLasts = 5 * time.Second
	// turnPause is the least time between two turns, also of two leaders in succession. After that, a member that is still
	// defragmented is recognised: etcd does not answer its node.
	turnPause = 10 * time.Second
	// awayPause is the least time between two turns while the etcd of a node does not answer. Only a full member, which rejects
	// claims, gets a turn then.
	awayPause = time.Minute
)

// defragTurn is the turn of this node's member.
type defragTurn struct {
	mu     sync.Mutex // guards the fields below
	wanted time.Time  // when take was called last without success
	full   bool
	given  time.Time // zero: the turn was taken, or was never given
}

// take takes the turn if it is this member's, else it asks for it.
func (d *defragTurn) take(full bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.wanted, d.full = now, full
	if now.Sub(d.given) > turnLasts {
		return false
	}
	d.wanted, d.given = time.Time{}, time.Time{}
	return true
}

func (d *defragTurn) give() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.given = time.Now()
}

// wants reports whether the member waits for its turn, and whether it is full.
func (d *defragTurn) wants() (due, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	due = time.Since(d.wanted) < turnLasts
	return due, due && d.full
}

// candidate is what the node that gives turns knows of a member.
type candidate struct {
	node        string
	answers     bool // etcd answers its node
	wants, full bool
}

// nextTurn returns the node whose member may pause now; "": none. The candidates are all members, in the order of their turns.
// since is the time since the last turn.
func nextTurn(candidates []candidate, since time.Duration) (next string) {
	pause, all := turnPause, true
	for _, c := range candidates {
		all = all && c.answers
	}
	if !all {
		pause = awayPause
	}
	if since < pause {
		return ""
	}
	for _, c := range candidates {
		if c.answers && c.wants && (all || c.full) {
			return c.node
		}
	}
	return ""
}

// giveTurns gives turns until ctx ends. A leader that has just begun waits, because the one before it may have given one.
func (a *actor) giveTurns(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; a.cluster.waitChange(ctx, pollEvery) {
		var all []candidate
		for _, name := range a.cluster.others() {
			c := candidate{node: name}
			if v := a.cluster.viewOf(name); v != nil && v.err == nil && time.Since(v.sent) < 2*pollEvery {
				c.answers, c.wants, c.full = v.status.EtcdOK, v.status.DefragDue, v.status.EtcdFull
			}
			all = append(all, c)
		}
		own := candidate{node: a.cluster.name(), answers: a.etcdAnswers.Load()}
		own.wants, own.full = a.defrag.wants()
		next := nextTurn(append(all, own), time.Since(last))
		if next == "" {
			continue
		}
		last = time.Now()
		a.cfg.Logger.Info("the etcd member of a node may be defragmented", "node", next)
		if next == own.node {
			a.defrag.give()
			continue
		}
		asked, cancel := context.WithTimeout(ctx, pollTimeout)
		if err := a.cluster.request(asked, http.MethodPost, next, defragPath, new(struct{})); err != nil {
			a.cfg.Logger.Info("the node did not get its turn", "node", next, "error", err)
		}
		cancel()
	}
}
