package lease

import (
	"context"

	"github.com/flightd/flightd/flight"
)

// Living implements Liveness.
func (l *Lessor) Living(ctx context.Context, ids ...flight.SessionID) (Living, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	p, err := l.guard.admit(ctx)
	if err != nil {
		return Living{}, err
	}
	state, found, err := l.cfg.Store.ReadLiving(ctx, ids)
	if err != nil {
		return Living{}, unavailable("read sessions", err)
	}
	if err := l.validate(ctx, p, state); err != nil {
		return Living{}, err
	}
	living := Living{Sessions: make(map[flight.SessionID]struct{}, len(found)), Revision: state.Revision, Epoch: p.owner.Epoch, Counter: state.Counter}
	for _, id := range found {
		living.Sessions[id] = struct{}{}
	}
	return living, nil
}

// validate returns nil only if state has our guard key and a counter that is not below the ledger's record.
func (l *Lessor) validate(ctx context.Context, p permit, state GuardState) error {
	err := l.guard.validate(p, state)
	if isOwnershipError(err) {
		return l.guard.ownershipChanged(ctx)
	}
	return err
}

// Watch implements Liveness.
func (l *Lessor) Watch(ctx context.Context, ended func(flight.SessionID)) error {
	err := l.cfg.Store.WatchSessionKeys(ctx, ended)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return unavailable("watch sessions", err)
}

// RaiseGuard implements Service.
func (l *Lessor) RaiseGuard(ctx context.Context) (epoch uint32, counter uint64, err error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	for range 3 {
		p, err := l.guard.admit(ctx)
		if err != nil {
			return 0, 0, err
		}
		state, err := l.cfg.Store.ReadGuard(ctx)
		if err != nil {
			return 0, 0, unavailable("read the guard key", err)
		}
		if err := l.validate(ctx, p, state); err != nil {
			return 0, 0, err
		}
		raised, err := l.cfg.Store.RaiseCounter(ctx, p.owner, state.Counter)
		switch {
		case isOwnershipError(err):
			return 0, 0, l.guard.ownershipChanged(ctx)
		case err != nil:
			return 0, 0, unavailable("raise the counter of the guard key", err)
		case raised:
			return p.owner.Epoch, state.Counter + 1, nil
		}
	}
	return 0, 0, unavailable("raise the counter of the guard key: other nodes raise it at the same time", nil)
}
