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

// LedgerLostError is returned when the ledger of a data directory is older than etcd's record of it, or is another
// ledger. Receipts of effects that happened would be missing.
type LedgerLostError struct {
	EtcdDeployments  string // deployments that have keys in etcd
	LedgerDeployment string // deployment of the ledger
	EtcdIndex        uint64 // ledger index recorded in etcd; 0 if the ledger is another one
	LedgerIndex      uint64 // index of the newest entry of the ledger
}

func (e *LedgerLostError) Error() string {
	if e.EtcdIndex == 0 {
		return fmt.Sprintf("etcd has keys of deployment %s, but the ledger belongs to deployment %s: receipts are missing", e.EtcdDeployments, e.LedgerDeployment)
	}
	return fmt.Sprintf("the ledger has lost entries: it ends at entry %d, but etcd has recorded entry %d", e.LedgerIndex, e.EtcdIndex)
}

// checkLedgerHistory returns *LedgerLostError if the ledger is older than etcd's record of it, or is another ledger.
//
// It must run before the lease service reads the guard key: that read may write the key for the wrong ledger.
func (n *node) checkLedgerHistory(ctx context.Context) error {
	mine := n.store.Header().Deployment
	served, err := etcdlease.Deployments(ctx, n.etcd.client)
	if err != nil || len(served) == 0 {
		return err
	}
	if !slices.Contains(served, mine) {
		return &LedgerLostError{EtcdDeployments: strings.Join(served, ", "), LedgerDeployment: mine}
	}
	known, err := etcdlease.LedgerIndex(ctx, n.etcd.client, mine)
	if err != nil {
		return err
	}
	if applied, _ := n.store.Applied(); applied < known {
		return &LedgerLostError{EtcdDeployments: mine, LedgerDeployment: mine, EtcdIndex: known, LedgerIndex: applied}
	}
	return nil
}

// recordLedgerIndex writes the ledger's applied index to etcd, every tuning.indexEvery and at a stop. Applied entries
// are durable in the ledger, so etcd never has an index that the ledger can lose in a crash.
func (n *node) recordLedgerIndex(ctx context.Context) error {
	tick := time.NewTicker(n.cfg.tuning.indexEvery)
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
			n.cfg.Logger.Debug("recording the ledger index in etcd failed", "error", err) // the older index remains valid
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
	return n.withStopTimeout(ctx, func(ctx context.Context) error {
		tell(ctx)
		return nil
	})
}

// checkEtcdHistory returns lease.ErrRegressed if etcd knows less than the ledger: the claims of running effects may be
// missing. With Config.RaiseLeaseEpoch it raises the lease epoch instead.
func (n *node) checkEtcdHistory(ctx context.Context) error {
	err := n.leases.Ready(ctx)
	if n.cfg.RaiseLeaseEpoch == "" || !errors.Is(err, lease.ErrRegressed) {
		return err
	}
	if err := n.raiseLeaseEpoch(ctx, err); err != nil {
		return err
	}
	return n.leases.Ready(ctx)
}

// raiseLeaseEpoch proposes the next lease epoch, which makes this etcd acceptable and all earlier claims void. A holder
// of an earlier claim may still act, so its key is not given to another caller before the hold has passed (epochHold).
//
// If the process dies after the proposal was committed, the next start finds the new epoch and raises nothing.
func (n *node) raiseLeaseEpoch(ctx context.Context, lost error) error {
	was := n.store.Header().LeaseEpoch
	hold, open, err := epochHold(ledger{n.store})
	if err != nil {
		return err
	}
	reply, err := n.store.Propose(ctx, &flight.RaiseEpoch{From: was, Hold: hold, Actor: n.cfg.Actor, Reason: n.cfg.RaiseLeaseEpoch})
	if err == nil && reply.Decision != flight.DecisionAccepted {
		err = fmt.Errorf("the ledger decided %v", reply.Decision)
	}
	if err != nil {
		return fmt.Errorf("raise the lease epoch: %w", err)
	}
	n.cfg.Logger.Warn("the lease epoch was raised", "from", was, "to", was+1, "actor", n.cfg.Actor, "reason", n.cfg.RaiseLeaseEpoch,
		"open_attempts", open, "hold", hold, "cause", lost)
	return nil
}

// epochHold returns how long an attempt under a void claim may still be running: the largest session TTL plus the
// largest attempt timeout and settle delay of the open attempts. An attempt without a timeout has no such bound; there,
// as always, verification, an operator or the provider's idempotency decides.
func epochHold(l ledger) (hold time.Duration, open int, err error) {
	var longest time.Duration
	for f, err := range l.Live() {
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
