package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// sightings remember since when claims were seen that stand in somebody's way.
type sightings struct {
	mu   sync.Mutex
	seen map[flight.ID]sighting
}

type sighting struct {
	claim    flight.Claim
	at, last time.Time
}

// muchSeen is how many sightings are kept before those are dropped that nobody has met lately: most were on their way out.
const muchSeen = 1024

// since is when the claim was first seen on that flight.
func (s *sightings) since(id flight.ID, claim flight.Claim) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.seen[id]
	if !ok || known.claim != claim {
		if s.seen == nil {
			s.seen = make(map[flight.ID]sighting)
		}
		if len(s.seen) >= muchSeen {
			s.pruneLocked()
		}
		known = sighting{claim: claim, at: time.Now()}
	}
	known.last = time.Now()
	s.seen[id] = known
	return known.at
}

func (s *sightings) pruneLocked() {
	for id, known := range s.seen {
		if time.Since(known.last) > time.Minute {
			delete(s.seen, id)
		}
	}
}

func (s *sightings) forget(id flight.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
}

// givenUpAfter is for how long the claim of another caller's session must have stood in the way with nothing under it until
// it is taken away. By then its open can open nothing any more, and whoever abandons that has given up, too.
const givenUpAfter = reportHold + flight.MaxOpenLife

// unstick frees a caller of a claim under which nobody acts, and of which nobody knows: the process that made it died before
// it asked the ledger, or cannot reach it, or its caller was sent to look and has gone, while the session lives on, because
// it is renewed for other flights. Where it is the caller's own session, the claim is removed once its open was given up,
// half a TTL later, and the ledger shows nothing that it opened; that of another session much later.
//
// That process may live, and abandon the open, or the open may yet arrive: see confirm. A look-up changes nothing: whoever
// is late with one is fenced.
func (d *Desk) unstick(ctx context.Context, g guest, v *visit) func(*lease.HeldError) {
	return func(held *lease.HeldError) {
		own, patience := held.Claim.Session == g.session.ID(), givenUpAfter
		switch {
		case own:
			patience = d.ex.cfg.TTL/2 + lastPoll
		case d.guests.rightOf(v.id, held.Claim) != nil:
			return // somebody known here acts, looks, or has just reported
		}
		if time.Since(d.strays.since(v.id, held.Claim)) < patience {
			return
		}
		f, err := d.ex.cfg.Ledger.Flight(v.id)
		if err != nil || f.OpenAttempt() != nil || v.looks(f) || !own && !d.isGuests(ctx, held.Claim) {
			return
		}
		d.remove(ctx, v.req.Key, held.Claim)
		d.strays.forget(v.id)
	}
}

// repeated asks the ledger whether the caller of an open attempt may act. Where this process does not hold the claim, it looks
// first whether that still stands.
func (d *Desk) repeated(ctx context.Context, v *visit, claim flight.Claim, right lease.Lease) (flight.Reply, error) {
	if right == nil || outOfSight(right) {
		if reply, err := d.bereft(ctx, v.req.Key, claim); err != nil || reply.Flight != nil {
			return reply, err
		}
	}
	reply, err := d.ex.propose(d.repeatOf(v, claim))
	if err != nil {
		err = d.ex.unavailable(v.req.Key, err)
	}
	return reply, err
}

// bereft is what the ledger says of an attempt whose claim this process did not make, and which is gone; the zero Reply where it
// stands. A claim that was in the way may have been taken out of it, and the open that was stuck under it may have arrived since:
// whoever is told to act for that acts beside the next one. That its holder is gone is proved as the sweeper proves it.
func (d *Desk) bereft(ctx context.Context, key flight.Key, claim flight.Claim) (flight.Reply, error) {
	patience, cancel := d.patience(ctx)
	defer cancel()
	right, err := d.ex.session.TryAcquire(patience, key)
	var held *lease.HeldError
	switch {
	case errors.As(err, &held) && held.Claim == claim:
		return flight.Reply{}, nil
	case held != nil:
		return flight.Reply{}, &effect.Fenced{Key: key} // somebody else has the key: it is a matter of recovery
	case err != nil:
		return flight.Reply{}, d.lost(ctx, key, err)
	}
	defer right.Release()
	reply, err := d.ex.cfg.Ledger.Propose(patience, &flight.Recover{Key: key, Claim: right.Claim()})
	if err != nil {
		return reply, d.ex.unavailable(key, err)
	}
	d.ex.settle.observe(reply.Flight)
	d.ex.cfg.Events.Note(key, reply.Events)
	return reply, nil
}

// isGuests reports whether a claim is of a remote caller's session that lives. A process that holds one for itself may wait
// under it for as long as it likes.
func (d *Desk) isGuests(ctx context.Context, claim flight.Claim) bool {
	patience, cancel := d.patience(ctx)
	defer cancel()
	_, err := d.ex.cfg.Leases.Session(patience, claim.Session)
	return err == nil
}

// confirm makes sure that an attempt is this sending's of the open: another process may handle another sending of it. What
// that one opened after all stands under a claim that is gone: nobody may act for that. What it abandons it names by the
// claim under which it asked, which is not this one.
func (d *Desk) confirm(right lease.Lease, reply flight.Reply) (flight.Reply, error) {
	if reply.Decision != flight.Proceed || reply.Flight.Newest().Claim == right.Claim() {
		return reply, nil
	}
	told, err := d.ex.insist(d.ex.asking.Context(), abandonReply(reply, "its claim is gone"))
	told.Decision = flight.Fenced // the nonce has had its attempt
	return told, err
}
