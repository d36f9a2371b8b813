package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// LedgerLostError says that the ledger of a data directory has forgotten, or is gone: etcd beside it served it later than
// it is, or served another one. Receipts of effects that happened would be missing.
type LedgerLostError struct {
	Served  string // the deployments that etcd served
	Found   string // the deployment of the ledger that is here
	Known   uint64 // the index of an entry that the ledger had; 0 where it is another one
	Applied uint64 // the index of the newest entry that it has
}

func (e *LedgerLostError) Error() string {
	if e.Known == 0 {
		return fmt.Sprintf("etcd here served the ledger %s; the ledger beside it is %s, and holds none of its receipts", e.Served, e.Found)
	}
	return fmt.Sprintf("the ledger has lost its past: it ends with entry %d, and etcd beside it remembers entry %d", e.Applied, e.Known)
}

// checkLedger refuses a ledger that is not the one, or no longer the one, that etcd served. Nothing may look at the guard
// key before, because who does may write it.
func (n *node) checkLedger(ctx context.Context) error {
	mine := n.store.Header().Deployment
	served, err := etcdlease.Deployments(ctx, n.etcd.client)
	if err != nil || len(served) == 0 {
		return err
	}
	if !slices.Contains(served, mine) {
		return &LedgerLostError{Served: strings.Join(served, ", "), Found: mine}
	}
	known, err := etcdlease.LedgerIndex(ctx, n.etcd.client, mine)
	if err != nil {
		return err
	}
	if applied, _ := n.store.Applied(); applied < known {
		return &LedgerLostError{Served: mine, Found: mine, Known: known, Applied: applied}
	}
	return nil
}

// witness lets etcd remember how far the ledger is, from time to time and when it ends. What is applied here is durable.
func (n *node) witness(ctx context.Context) error {
	tick := time.NewTicker(n.cfg.tuning.witnessEvery)
	defer tick.Stop()
	var told uint64
	tell := func(ctx context.Context) {
		index, _ := n.store.Applied()
		if index == told {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, lease.DefaultTTL)
		defer cancel()
		if err := etcdlease.SetLedgerIndex(ctx, n.etcd.client, n.store.Header().Deployment, index); err != nil {
			n.cfg.Logger.Debug("etcd was not told how far the ledger is", "error", err) // it knows an earlier index, which is true, too
			return
		}
		told = index
	}
	for ctx.Err() == nil {
		tell(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return n.within(ctx, func(ctx context.Context) error {
		tell(ctx)
		return nil
	})
}

// checkPast refuses an etcd that knows less than the ledger, until a person says why it is to be believed: its claims are
// what keeps others from a key whose effect is in the air.
func (n *node) checkPast(ctx context.Context) error {
	err := n.desk.Ready(ctx)
	if n.cfg.RaiseLeaseEpoch == "" || !errors.Is(err, lease.ErrRegressed) {
		return err
	}
	if err := n.raiseLeaseEpoch(ctx, err); err != nil {
		return err
	}
	return n.desk.Ready(ctx)
}

// raiseLeaseEpoch accepts the etcd that is here. Claims of the epoch that ends are void from now on. Whoever acts for one
// of them does not know yet, so for a time nobody else gets its key.
func (n *node) raiseLeaseEpoch(ctx context.Context, lost error) error {
	was := n.store.Header().LeaseEpoch
	hold, open, err := holdOf(ledger{n.store})
	if err != nil {
		return err
	}
	reply, err := n.store.Propose(ctx, &flight.RaiseEpoch{From: was, Hold: hold, Who: n.cfg.Who, Why: n.cfg.RaiseLeaseEpoch})
	if err == nil && reply.Decision != flight.Accepted {
		err = fmt.Errorf("the ledger says %v", reply.Decision)
	}
	if err != nil {
		return fmt.Errorf("raise the lease epoch: %w", err)
	}
	n.cfg.Logger.Warn("the lease epoch was raised", "from", was, "to", was+1, "who", n.cfg.Who, "why", n.cfg.RaiseLeaseEpoch,
		"open_attempts", open, "not_taken_over_for", hold, "because", lost)
	return nil
}

// holdOf is for how long an attempt that was opened under a lost claim may still be in the air: the longest time to live of
// a session, and the longest that an open attempt asked for to end and to be seen at its provider. An attempt without a
// time-out has no such end, as ever: a look, a person or the provider's idempotency decides about it.
func holdOf(book ledger) (hold time.Duration, open int, err error) {
	var longest time.Duration
	for f, err := range book.Live() {
		if err != nil {
			return 0, 0, err
		}
		if f.OpenAttempt() != nil {
			open++
			longest = max(longest, f.Policy.AttemptTimeout+f.Policy.SettleDelay)
		}
	}
	return lease.MaxTTL + longest, open, nil
}
