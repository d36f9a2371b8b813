package executor

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// NewSession makes a session for a caller that keeps it for many flights and renews it itself.
func (d *Desk) NewSession(ctx context.Context, ttl time.Duration, owner string) (SessionAnswer, error) {
	if err := checkTTL(ttl); err != nil {
		return SessionAnswer{}, err
	}
	if d.ex.service.Err() != nil {
		return SessionAnswer{}, errDraining()
	}
	start := time.Now()
	g, err := d.newGuest(ctx, ttl, owner, false)
	if err != nil {
		return SessionAnswer{}, err
	}
	patience, cancel := d.patience(ctx)
	defer cancel()
	trust, err := g.session.Renew(patience)
	if err != nil {
		return SessionAnswer{}, d.lost(ctx, flight.Key{}, err)
	}
	d.guests.enter(g)
	return SessionAnswer{Session: g.session.ID(), Trust: trust - time.Since(start), RenewEvery: g.ttl / renewals, Version: d.ex.cfg.Memory.Header().Version}, nil
}

// Renew prolongs a session. nonces, where it is not nil, are the opens that the caller awaits or holds. An attempt of
// the session that is not among them is abandoned: its caller no longer wants it. What was opened after what the caller had seen
// when it sent this renewal it may not have listed yet. Of a caller that does not say what it had seen, a single renewal may have
// been sent before the open, and have been overtaken on the way, by the open alone or by the next renewal, too: there it must be
// missing in two in a row. A look-up is let go alike. What was opened without a nonce of the caller's cannot be listed, and is left
// alone.
func (d *Desk) Renew(ctx context.Context, id flight.SessionID, what Renewal) (SessionAnswer, error) {
	start := time.Now()
	trust, err := d.renewed(ctx, flight.Key{}, id)
	if err != nil {
		return SessionAnswer{}, err
	}
	flights := d.guests.renew(id, start, what)
	answer := SessionAnswer{Session: id, Trust: trust - time.Since(start), RenewEvery: d.guests.renewEvery(id, trust),
		Version: d.ex.cfg.Memory.Header().Version}
	for flightID, b := range flights {
		f, err := d.ex.cfg.Ledger.Flight(flightID)
		switch a := f.OpenAttempt(); {
		case err != nil:
		case a == nil || a.Claim != b.claim:
			d.leftOver(f, flightID, &b)
		case b.unwanted():
			d.unwanted(f)
		case f.Cancel != nil:
			answer.CancelRequested = append(answer.CancelRequested, flightID)
		}
	}
	return answer, nil
}

// leftOver lets go of a claim whose attempt ended without a report to this process, unless its holder looks. One that does
// not list its look-up any more brings no verdict, and keeps all others from looking for as long as its session lives.
func (d *Desk) leftOver(f *flight.Flight, id flight.ID, b *boarded) {
	if b.unwanted() || !f.Looking() || f.Probe.Claim != b.claim {
		d.leave(f, id, b.claim)
	}
}

// unwanted abandons an attempt that its caller does not hold: the answer to its open was lost and is not awaited.
func (d *Desk) unwanted(f *flight.Flight) {
	a := f.Newest()
	d.ex.background(d.ex.cfg.OpenLife, func(ctx context.Context) {
		reply, err := d.ex.cfg.Ledger.Propose(ctx, &flight.Abandon{Key: f.Key, Generation: f.Generation, Token: a.Token(), Error: "its caller does not hold it", ByCaller: true})
		d.ex.cfg.Events.Note(f.Key, reply.Events)
		if err == nil {
			d.letGo(f, a.Token())
		}
	}, func() {})
}

// CloseSession ends a session. Its claims go; what is still open under it is a matter of recovery.
func (d *Desk) CloseSession(ctx context.Context, id flight.SessionID) error {
	g, err := d.guestOf(ctx, id)
	var lost *effect.LeaseLost
	switch {
	case errors.As(err, &lost):
		return nil // that is what was wanted
	case err != nil:
		return err
	}
	d.guests.forget(id)
	if err := g.session.Close(ctx); err != nil && !errors.Is(err, lease.ErrLost) {
		return d.lost(ctx, flight.Key{}, err)
	}
	return nil
}

// patience bounds what is asked of etcd, so that its absence is said and not waited for.
func (d *Desk) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.ex.cfg.TTL/2)
}

// sessionFor is the caller's session, or one for this flight alone.
func (d *Desk) sessionFor(ctx context.Context, req OpenRequest) (guest, error) {
	if req.Session == "" {
		return d.newGuest(ctx, req.TTL, req.Owner, true)
	}
	return d.guestOf(ctx, req.Session)
}

func (d *Desk) newGuest(ctx context.Context, ttl time.Duration, owner string, oneShot bool) (guest, error) {
	if ttl == 0 {
		ttl = lease.DefaultTTL
	}
	patience, cancel := d.patience(ctx)
	defer cancel()
	session, err := d.ex.cfg.Leases.NewSession(patience, lease.Spec{TTL: ttl, Owner: owner})
	if err != nil {
		return guest{}, d.lost(ctx, flight.Key{}, err)
	}
	return guest{session: session, ttl: ttl, oneShot: oneShot}, nil
}

// guestOf finds a session, also one that another process made, or renews: whether it lives is etcd's to say, not what this
// process remembers. What was opened under it elsewhere is found in the ledger.
func (d *Desk) guestOf(ctx context.Context, id flight.SessionID) (guest, error) {
	patience, cancel := d.patience(ctx)
	defer cancel()
	session, err := d.ex.cfg.Leases.Session(patience, id) // the same one, without asking, while it is believed in here
	if err != nil {
		if errors.Is(err, lease.ErrLost) {
			d.guests.forget(id)
		}
		return guest{}, d.lost(ctx, flight.Key{}, err)
	}
	if g, known := d.guests.find(session, time.Now()); known {
		return g, nil
	}
	trust, err := session.Renew(patience)
	if err != nil {
		return guest{}, d.lost(ctx, flight.Key{}, err)
	}
	open, err := d.ex.openAttempts()
	if err != nil {
		return guest{}, d.ex.unavailable(flight.Key{}, err)
	}
	g := d.guests.enter(guest{session: session, ttl: trust + lease.Margin(trust)})
	for _, f := range open {
		if f.Newest().Claim.Session == id {
			d.guests.reboard(g, f)
		}
	}
	return g, nil
}

// renewed renews a session, and gives the trust that is left. One that is lost at this very moment is looked for once more.
func (d *Desk) renewed(ctx context.Context, key flight.Key, id flight.SessionID) (trust time.Duration, err error) {
	patience, cancel := d.patience(ctx)
	defer cancel()
	for range 2 {
		var g guest
		if g, err = d.guestOf(ctx, id); err != nil {
			return 0, err
		}
		if trust, err = g.session.Renew(patience); !errors.Is(err, lease.ErrLost) {
			break
		}
	}
	if err != nil {
		return 0, d.lost(ctx, key, err)
	}
	return trust, nil
}

// outOfSight reports whether a claim was lost only because its session was not renewed through this process: its session
// says whether it stands.
func outOfSight(right lease.Lease) bool {
	if right.Trust() > 0 {
		return false
	}
	cause := context.Cause(right.Context())
	return cause == nil || lease.LostReason(cause) == lease.LostExpired
}

// dismiss ends a session that was made for one flight, in the background.
func (d *Desk) dismiss(g guest) {
	if !g.oneShot {
		return
	}
	d.guests.forget(g.session.ID())
	d.ex.background(d.ex.cfg.OpenLife, func(ctx context.Context) { _ = g.session.Close(ctx) }, func() {})
}
