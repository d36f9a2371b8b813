package lease

import (
	"context"

	"github.com/flightd/flightd/flight"
)

// Living implements Liveness.
func (d *Lessor) Living(ctx context.Context, ids ...flight.SessionID) (Living, error) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	p, err := d.guard.admit(ctx)
	if err != nil {
		return Living{}, err
	}
	state, found, err := d.cfg.Store.ReadLiving(ctx, ids)
	if err != nil {
		return Living{}, unavailable("read sessions", err)
	}
	if err := d.verify(ctx, p, state); err != nil {
		return Living{}, err
	}
	living := Living{Sessions: make(map[flight.SessionID]struct{}, len(found)), Revision: state.Revision, Epoch: p.own.Epoch, Counter: state.Counter}
	for _, id := range found {
		living.Sessions[id] = struct{}{}
	}
	return living, nil
}

// validate returns nil only if state has our guard key and a counter that is not below the ledger's record.
func (d *Lessor) verify(ctx context.Context, p permit, state GuardState) error {
	err := d.guard.verify(p, state)
	if isOwnership(err) {
		return d.guard.changed(ctx)
	}
	return err
}

// Watch implements Liveness.
func (d *Lessor) Watch(ctx context.Context, ended func(flight.SessionID)) error {
	err := d.cfg.Store.WatchMarkers(ctx, ended)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return unavailable("watch sessions", err)
}

// RaiseGuard implements Service.
func (d *Lessor) RaiseGuard(ctx context.Context) (epoch uint32, counter uint64, err error) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	for range 3 {
		p, err := d.guard.admit(ctx)
		if err != nil {
			return 0, 0, err
		}
		state, err := d.cfg.Store.ReadGuard(ctx)
		if err != nil {
			return 0, 0, unavailable("read the guard key", err)
		}
		if err := d.verify(ctx, p, state); err != nil {
			return 0, 0, err
		}
		raised, err := d.cfg.Store.RaiseCounter(ctx, p.own, state.Counter)
		switch {
		case isOwnership(err):
			return 0, 0, d.guard.changed(ctx)
		case err != nil:
			return 0, 0, unavailable("raise the counter of the guard key", err)
		case raised:
			return p.own.Epoch, state.Counter + 1, nil
		}
	}
	return 0, 0, unavailable("raise the counter of the guard key: other nodes raise it at the same time", nil)
}
