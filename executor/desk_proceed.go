package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// follow does what the ledger answered to an Open.
func (d *Desk) follow(ctx context.Context, g guest, v *visit, right lease.Lease, reply flight.Reply) (OpenAnswer, error) {
	switch reply.Decision {
	case flight.Proceed, flight.Look:
		answer, err := d.grant(*v, reply, d.trust(g, right))
		if ctx.Err() != nil && isUnnamed(v.req.Nonce) { // nobody hears it, and nobody can ask for it once more
			err = context.Cause(ctx)
		}
		if err != nil {
			d.giveUp(g, v, reply, right)
			return OpenAnswer{}, err
		}
		// Also when the caller has gone meanwhile: it may come back with the same nonce for this answer.
		d.guests.board(g, reply.Flight, right, v.req.Nonce)
		answer.RenewEvery = d.guests.renewEvery(answer.Session, answer.Trust)
		if d.ex.cfg.Events.Opened != nil && reply.Decision == flight.Proceed {
			d.ex.cfg.Events.Opened(v.req.Key, reply.Token.Number)
		}
		return answer, nil
	case flight.Fenced:
		right.Release()
		if spent(reply.Flight, v.req.Nonce) || v.req.Key.IsStep() {
			return OpenAnswer{}, &effect.Fenced{Key: v.req.Key}
		}
		return OpenAnswer{}, &effect.Unavailable{Code: "lease_unavailable", Cause: fmt.Errorf("%s: %w", v.req.Key, errRefused)}
	}
	right.Release()
	return d.settled(*v, reply.Flight, false)
}

// trust is how long the caller may believe in its session, counted from any moment before now. When little is left the
// session is renewed first, whether the caller is still there or not.
func (d *Desk) trust(g guest, right lease.Lease) time.Duration {
	trust := right.Trust()
	if trust >= g.ttl/2 {
		return trust
	}
	if errors.Is(prolong(d.ex.life, g), lease.ErrLost) {
		return 0
	}
	return right.Trust()
}

// renewPatience bounds the renewal that an open does on its way.
const renewPatience = 2 * time.Second

// prolong renews a session on the way of an open.
func prolong(ctx context.Context, g guest) error {
	ctx, cancel := context.WithTimeout(ctx, renewPatience)
	defer cancel()
	_, err := g.session.Renew(ctx)
	return err
}

// grant is the answer to an open that was let through, with what is left of the caller's trust.
func (d *Desk) grant(v visit, reply flight.Reply, trust time.Duration) (OpenAnswer, error) {
	switch {
	case trust <= 0:
		return OpenAnswer{}, &effect.LeaseLost{Key: v.req.Key}
	case reply.Decision == flight.Look:
		return d.look(v, reply, trust)
	}
	return d.proceed(v, reply, trust)
}

// giveUp ends what was opened for a caller that was not told to act: nothing was sent.
func (d *Desk) giveUp(g guest, v *visit, reply flight.Reply, right lease.Lease) {
	if reply.Decision == flight.Proceed {
		d.forsake(g, v, abandonReply(reply, "its caller was not told to act"), right)
		return
	}
	right.Release()
}

// spent reports whether the nonce can open nothing any more.
func spent(f *flight.Flight, nonce flight.Nonce) bool {
	return f != nil && (slices.ContainsFunc(f.Attempts, func(a flight.Attempt) bool { return a.Nonce == nonce }) ||
		slices.ContainsFunc(f.Spent, func(s flight.SpentNonce) bool { return s.Nonce == nonce }))
}

func (d *Desk) proceed(v visit, reply flight.Reply, trust time.Duration) (OpenAnswer, error) {
	answer, err := d.fill(v, reply.Flight, reply.Flight.Newest().Claim.Session, trust)
	answer.Decision = flight.Proceed
	answer.FencingToken = d.ex.seal(reply.Flight, reply.Token)
	answer.Previous = previous(reply.Flight)
	return answer, err
}

func (d *Desk) look(v visit, reply flight.Reply, trust time.Duration) (OpenAnswer, error) {
	f := reply.Flight
	answer, err := d.fill(v, f, f.Probe.Claim.Session, trust)
	answer.Decision = flight.Look
	answer.Probe = d.sealProbe(f, reply.Probe)
	newest := *f.Newest()
	answer.Previous = &newest
	return answer, err
}

// fill is what Proceed and Look have in common.
func (d *Desk) fill(v visit, f *flight.Flight, session flight.SessionID, trust time.Duration) (OpenAnswer, error) {
	input, err := d.ex.input(&v.req.Submission, f)
	if err != nil {
		return OpenAnswer{}, d.ex.unavailable(v.req.Key, err)
	}
	return OpenAnswer{
		Flight: f, Session: session, IdempotencyKey: d.ex.idempotencyKey(f), Input: input,
		Trust: trust, RenewEvery: d.guests.renewEvery(session, trust),
		PolicyDiffers: f.Policy != v.req.Submission.Policy,
	}, nil
}
