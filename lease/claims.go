package lease

import (
	"cmp"
	"context"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Claims implements ClaimKeys.
func (d *Lessor) Claims(ctx context.Context) ([]Held, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*d.cfg.CommitTimeout) // a long list takes many requests
	defer cancel()
	if _, err := d.guard.admit(ctx); err != nil {
		return nil, err
	}
	entries, err := d.cfg.Store.List(ctx)
	if err != nil {
		return nil, unavailable("list claims", err)
	}
	all := make([]Held, 0, len(entries))
	for _, e := range entries {
		h, err := e.held()
		if err != nil {
			return nil, fmt.Errorf("%w: %q", err, e.Key)
		}
		all = append(all, h)
	}
	return all, nil
}

// RemoveClaims implements ClaimKeys.
func (d *Lessor) RemoveClaims(ctx context.Context, claims []Held) error {
	ops := make([]*op, len(claims))
	for i, h := range claims {
		ops[i] = &op{done: make(chan error, 1)}
		ops[i].Op = Op{Kind: OpRemove, Key: h.Key.String(), ModRevision: h.ModRevision}
	}
	if !d.batch.put(ops...) {
		return ErrClosed
	}
	var first error
	for _, o := range ops {
		select {
		case err := <-o.done:
			first = cmp.Or(first, err)
		case <-ctx.Done():
			return unavailable("remove claims", context.Cause(ctx))
		}
	}
	return first
}

// ReleaseClaim implements ClaimKeys.
func (d *Lessor) ReleaseClaim(key flight.Key, session flight.SessionID, nonce flight.Nonce) {
	o := &op{}
	o.Op = Op{
		Kind: OpRelease, Key: key.String(), Session: session,
		Value: ClaimValue{Epoch: d.cfg.Guard.Epoch(), Nonce: nonce, Session: session}.String(),
	}
	d.release(o)
}
