package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// LedgerLostError is returned when the ledger of a data directory does not hold what etcd has recorded of it, or is another
// ledger. Receipts of effects that happened would be missing.
type LedgerLostError struct {
	EtcdDeployments  string               // deployments that have keys in etcd
	LedgerDeployment string               // deployment of the ledger; "": a new one
	Recorded         clusterstore.EntryID // entry that was durable; zero if the ledger is another one
	Last             clusterstore.EntryID // last entry of the ledger
}

func (e *LedgerLostError) Error() string {
	switch {
	case e.Recorded.Index == 0 && e.LedgerDeployment == "":
		return fmt.Sprintf("etcd has keys of deployment %s, but the ledger is missing: a new one would not know the effects that happened", e.EtcdDeployments)
	case e.Recorded.Index == 0:
		return fmt.Sprintf("etcd has keys of deployment %s, but the ledger belongs to deployment %s: receipts are missing", e.EtcdDeployments, e.LedgerDeployment)
	case e.Last.Index < e.Recorded.Index:
		return fmt.Sprintf("the ledger has lost entries: it ends at entry %d, but etcd has recorded entry %d", e.Last.Index, e.Recorded.Index)
	}
	return fmt.Sprintf("the ledger has lost entries: etcd has recorded entry %d of term %d, which the ledger does not hold", e.Recorded.Index, e.Recorded.Term)
}

// checkLedgerHistory returns *LedgerLostError if the ledger is older than etcd's records of it, or is another ledger. It
// runs before raft starts: a start that is rejected appends nothing, so repeating it changes nothing.
//
// An etcd of the operator's own may have keys of other deployments, also under this root. If it has none of this ledger's, the
// guard key decides: the counter that the ledger has recorded is missing. At an accepted restore, the keys of this deployment
// belong to the lost ledger, and are deleted; after a crash the next start does so again.
func (n *node) checkLedgerHistory(ctx context.Context, e *etcd, past clusterstore.Past) error {
	if n.restored() && e.member == nil {
		return e.root.Clear(ctx, e.client, past.Deployment)
	}
	served, err := e.root.Deployments(ctx, e.client)
	if err != nil || len(served) == 0 {
		return err
	}
	if n.cluster != nil && past.Deployment == "" {
		return n.checkNeverApplied(ctx, e, served)
	}
	lost := &LedgerLostError{EtcdDeployments: strings.Join(served, ", "), LedgerDeployment: past.Deployment, Last: past.Last}
	if !slices.Contains(served, past.Deployment) {
		if e.member == nil {
			return nil
		}
		return lost
	}
	of := "" // all: an earlier build, and a lone node whose ledger became a cluster's, used other names
	if n.cluster != nil {
		of = n.recordName()
	}
	records, err := e.root.RecordedEntries(ctx, e.client, past.Deployment, of)
	if err != nil {
		return n.cfg.etcdError(err)
	}
	for _, r := range records {
		lost.Recorded = clusterstore.EntryID(r)
		if holds, err := past.Holds(lost.Recorded); err != nil || !holds {
			return cmp.Or[error](err, lost)
		}
	}
	level := slog.LevelInfo
	if past.Discarded > 0 {
		level = slog.LevelWarn
	}
	if !past.Closed {
		n.cfg.Logger.Log(ctx, level, "the ledger was not closed at the last stop; it holds all that etcd has recorded. Damage of the disk could have removed what was acknowledged after that record, in the last 250 ms",
			"ends_at", past.Last.Index, "recorded", lost.Recorded.Index, "discarded_bytes", past.Discarded)
	}
	return nil
}

// checkNeverApplied returns *LedgerLostError if etcd has a record of this node, although its ledger has no entry that names a
// deployment. Without a record the node has applied nothing yet: the others have founded the ledger while it was away.
func (n *node) checkNeverApplied(ctx context.Context, e *etcd, served []string) error {
	for _, deployment := range served {
		records, err := e.root.RecordedEntries(ctx, e.client, deployment, n.recordName())
		if err != nil {
			return err
		}
		if len(records) > 0 {
			return &LedgerLostError{EtcdDeployments: deployment}
		}
	}
	return nil
}

// startRecord starts the part that records this node's ledger in etcd. Applied entries are durable in the ledger, so etcd
// never has an entry that the ledger can lose in a crash.
func (n *node) startRecord() {
	n.parts.start("ledger record", func(ctx context.Context) error { return n.recordLedger(ctx, n.record) })
}

// newRecord returns the record of this node's ledger in etcd.
func (n *node) newRecord() *etcdlease.LedgerRecord {
	return &etcdlease.LedgerRecord{
		Client: n.etcd.client, Root: n.etcd.root, Deployment: n.store.Header().Deployment, Node: n.recordName(),
		Durable: func() etcdlease.Entry { return etcdlease.Entry(n.store.LastApplied()) },
	}
}

// recordName is the name of this node's record in etcd. In a cluster it has the instance: nodes of another cluster that shares
// the etcd may have the same names.
func (n *node) recordName() string {
	if n.cluster != nil {
		return n.name() + "/" + n.cluster.instance
	}
	return n.name()
}

// recordLedger records the ledger every tuning.recordEvery while it moves, and at a stop: in etcd, and in the file that
// tells this directory from a copy.
func (n *node) recordLedger(ctx context.Context, record *etcdlease.LedgerRecord) error {
	tick := time.NewTicker(n.cfg.tuning.recordEvery)
	defer tick.Stop()
	var placed clusterstore.EntryID
	write := func(ctx context.Context) {
		if err := record.Write(ctx); err != nil {
			n.cfg.Logger.Debug("recording the ledger in etcd failed", "error", err) // the older record remains valid
		}
		if last := n.store.LastApplied(); last != placed {
			if err := writePlace(n.cfg.Data); err != nil {
				n.cfg.Logger.Debug("writing the file "+placeName+" failed", "error", err)
				return
			}
			placed = last
		}
	}
	for ctx.Err() == nil {
		write(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return n.withStopTimeout(ctx, func(ctx context.Context) error {
		write(ctx)
		return nil
	})
}

// checkEtcdHistory returns lease.ErrRegressed if etcd knows less than the ledger: the claims of running effects may be
// missing. With Config.Operator.RaiseLeaseEpoch it raises the lease epoch instead. It also ends a raise that an earlier process, or an
// earlier leader, has begun. Errors: lease.ErrRegressed, *EtcdError.
func (a *actor) checkEtcdHistory(ctx context.Context) (err error) {
	defer func() {
		if errors.Is(err, etcdlease.ErrUnreadable) {
			err = a.cfg.etcdError(err)
		}
	}()
	err = a.leases.Ready(ctx)
	reason := a.cfg.Operator.RaiseLeaseEpoch
	switch ahead := (*lease.AheadError)(nil); {
	case errors.As(err, &ahead) && ahead.Etcd == ahead.Ledger+1:
		reason = "a raise that was begun before is ended"
	case reason == "" || !errors.Is(err, lease.ErrRegressed):
		return err
	}
	if err := a.raiseLeaseEpoch(ctx, a.cfg.Operator.Actor, reason, err); err != nil {
		return err
	}
	return a.leases.Ready(ctx)
}

// endRaises ends a raise of the lease epoch that an earlier leader has begun, until ctx ends.
func (a *actor) endRaises(ctx context.Context) error {
	defer a.etcdRefused.Store(false)
	for ctx.Err() == nil {
		if err := a.store.Barrier(ctx); err == nil { // else this ledger may be behind
			err := a.checkEtcdHistory(ctx) // what remains is shown by readiness, metrics and log
			a.etcdRefused.Store(errors.Is(err, lease.ErrRegressed) || errors.Is(err, lease.ErrForeign))
		}
		clock.Sleep(ctx, raiseCheckEvery)
	}
	return nil
}

// raiseCheckEvery is how often a leader compares the lease epoch of etcd with the ledger's.
const raiseCheckEvery = 5 * time.Second

// raiseIfRegressed raises the lease epoch if etcd knows less than the ledger.
func (a *actor) raiseIfRegressed(ctx context.Context, actor, reason string) error {
	err := a.leases.Ready(ctx)
	switch {
	case errors.Is(err, lease.ErrRegressed):
		return a.raiseLeaseEpoch(ctx, actor, reason, err)
	case err != nil:
		return &effect.Unavailable{Code: string(wire.LeaseUnavailable), Cause: err}
	}
	return nil
}

// raiseLeaseEpoch raises the lease epoch, which makes this etcd acceptable and all earlier claims void. A holder of an
// earlier claim may still act, so its key is not given to another caller before the hold has passed (epochHold).
//
// If the process dies before the ledger has the new epoch, the next start or leader ends the raise; after that, it finds
// nothing to raise.
func (a *actor) raiseLeaseEpoch(ctx context.Context, actor, reason string, lost error) error {
	was := a.store.Header().LeaseEpoch
	inLedger := func(ctx context.Context) error {
		return raiseInLedger(ctx, a.store, a.cfg.Logger, &flight.RaiseEpoch{From: was, Actor: actor, Reason: reason}, lost)
	}
	if err := a.leases.RaiseEpoch(ctx, was, inLedger); err != nil {
		return fmt.Errorf("raise the lease epoch: %w", err)
	}
	return nil
}

// raiseInLedger proposes the lease epoch after raise.From, with its hold. Owners must not be able to renew a session of an older
// epoch. A repeat changes nothing.
func raiseInLedger(ctx context.Context, store *clusterstore.Store, log *slog.Logger, raise *flight.RaiseEpoch, lost error) error {
	hold, open, err := epochHold(store)
	if err != nil {
		return err
	}
	raise.Hold = hold
	reply, err := store.Propose(ctx, raise)
	if err == nil && reply.Decision != flight.DecisionAccepted {
		err = fmt.Errorf("the ledger decided %v", reply.Decision)
	}
	if err != nil {
		return err
	}
	log.Warn("the lease epoch was raised", "from", raise.From, "to", raise.From+1, "actor", raise.Actor, "reason", raise.Reason,
		"open_attempts", open, "hold", hold, "cause", lost)
	return nil
}

// epochHold returns how long an attempt under a void claim may still be running: the largest session TTL plus the
// largest attempt timeout and settle delay of the open attempts. An attempt without a timeout has no such bound; there,
// as always, verification, an operator or the provider's idempotency decides.
func epochHold(l *clusterstore.Store) (hold time.Duration, open int, err error) {
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
