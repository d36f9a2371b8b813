package lease

import (
	"context"
	"fmt"
)

// AheadError says that the guard key has a later lease epoch than the ledger: the ledger on this node is behind, or a raise
// was begun and did not end.
type AheadError struct {
	Ledger, Etcd uint32 // lease epochs
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("lease: the ledger on this node is behind: lease epoch %d, in etcd %d", e.Ledger, e.Etcd)
}

// Is makes every AheadError an ErrUnavailable.
func (e *AheadError) Is(target error) bool { return target == ErrUnavailable }

// RaiseEpoch leaves a lease epoch, so that an etcd that has lost data is accepted: the guard key gets the next epoch, then the
// sessions of older epochs end in etcd, then inLedger raises the ledger's. In another order an owner could go on renewing
// a session that the ledger has given up: a renewal reads no guard key.
//
// If the process dies in between, etcd is one epoch ahead of the ledger (*AheadError). Nothing is claimed and no session is
// declared ended until RaiseEpoch is repeated. Errors: ErrForeign, *AheadError, ErrUnavailable, or that of inLedger.
func (l *Lessor) RaiseEpoch(ctx context.Context, from uint32, inLedger func(context.Context) error) error {
	next := Ownership{Deployment: l.cfg.Deployment, Epoch: from + 1}
	found, err := l.cfg.Store.ReadGuard(ctx)
	if err != nil {
		return unavailable("read the guard key", err)
	}
	switch owner := found.Owner; {
	case owner != nil && owner.Deployment != next.Deployment:
		return fmt.Errorf("%w: %q, want %q", ErrForeign, owner.Deployment, next.Deployment)
	case owner != nil && owner.Epoch > next.Epoch:
		return &AheadError{Ledger: from, Etcd: owner.Epoch}
	case owner == nil || *owner != next:
		if err := l.cfg.Store.SetOwnership(ctx, owner, next); err != nil {
			return unavailable("write the guard key of the next lease epoch", err)
		}
	}
	sessions, err := l.cfg.Store.SessionKeys(ctx)
	if err != nil {
		return unavailable("list the sessions of older lease epochs", err)
	}
	for _, s := range sessions {
		if s.Session.Epoch < next.Epoch {
			if err := l.cfg.Store.Revoke(ctx, s.Lease); err != nil {
				return unavailable("end a session of an older lease epoch", err)
			}
		}
	}
	return inLedger(ctx)
}
