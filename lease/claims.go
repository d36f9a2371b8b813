package lease

import (
	"cmp"
	"context"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Claims implements ClaimKeys.
func (l *Lessor) Claims(ctx context.Context) ([]ListedClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*l.cfg.CommitTimeout) // a long list takes many requests
	defer cancel()
	if _, err := l.guard.admit(ctx); err != nil {
		return nil, err
	}
	entries, err := l.cfg.Store.List(ctx)
	if err != nil {
		return nil, unavailable("list claims", err)
	}
	all := make([]ListedClaim, 0, len(entries))
	for _, e := range entries {
		h, err := e.decode()
		if err != nil {
			return nil, fmt.Errorf("%w: %q", err, e.Key)
		}
		all = append(all, h)
	}
	return all, nil
}

// RemoveClaims implements ClaimKeys.
func (l *Lessor) RemoveClaims(ctx context.Context, claims []ListedClaim) error {
	ops := make([]*op, len(claims))
	for i, h := range claims {
		ops[i] = &op{done: make(chan error, 1)}
		ops[i].Op = Op{Kind: OpRemove, Key: h.Key.String(), ModRevision: h.ModRevision}
	}
	if !l.batch.enqueue(ops...) {
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
func (l *Lessor) ReleaseClaim(key flight.Key, session flight.SessionID, nonce flight.Nonce) {
	o := &op{}
	o.Op = Op{
		Kind: OpRelease, Key: key.String(), Session: session,
		Value: ClaimValue{Epoch: l.cfg.Ledger.Header().LeaseEpoch, Nonce: nonce, Session: session}.String(),
	}
	l.queueRelease(o)
	if g := l.find(session); g != nil && !g.local {
		g.unreserve(nonce)
	}
}
