package executor

import (
	"context"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// sightings remember since when claims were seen that stand in the way of their own session.
type sightings struct {
	mu   sync.Mutex
	seen map[flight.ID]sighting
}

type sighting struct {
	claim flight.Claim
	at    time.Time
}

// muchSeen is how many sightings are kept before old ones are dropped.
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
		s.seen[id] = known
	}
	return known.at
}

func (s *sightings) pruneLocked() {
	for id, known := range s.seen {
		if time.Since(known.at) > lease.MaxTTL {
			delete(s.seen, id)
		}
	}
}

func (s *sightings) forget(id flight.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
}

// unstick frees a caller whose own session stands in its way: the process that claimed the key for it died before it
// asked the ledger, or cannot reach it, and the session lives on, because the caller renews it. Such a claim is removed
// once its open was given up, half a TTL later, and the ledger shows nothing that it opened.
//
// That process may live, and abandon the open, or the open may yet arrive: see confirm.
func (d *Desk) unstick(ctx context.Context, g guest, v *visit) func(*lease.HeldError) {
	return func(held *lease.HeldError) {
		if held.Claim.Session != g.session.ID() {
			return
		}
		v.shared = true
		if time.Since(d.strays.since(v.id, held.Claim)) < d.ex.cfg.TTL/2+lastPoll {
			return
		}
		f, err := d.ex.cfg.Ledger.Flight(v.id)
		if err != nil || f.OpenAttempt() != nil || v.looks(f) {
			return
		}
		d.remove(ctx, v.req.Key, held.Claim)
		d.strays.forget(v.id)
	}
}

// confirm makes sure that an attempt is this sending's of the open, where another process may handle another sending of it:
// a claim for the same session was in the way. What that process abandons it names by the nonce, so that only an attempt
// whose caller was told to act, as the ledger knows from a repeat, is safe from it. And what it opened after all stands
// under a claim that is gone: nobody may act for that.
func (d *Desk) confirm(v *visit, right lease.Lease, reply flight.Reply) (flight.Reply, error) {
	switch {
	case reply.Decision != flight.Proceed:
	case reply.Flight.Newest().Claim != right.Claim():
		told, err := d.ex.insist(d.ex.asking.Context(), abandonReply(reply, "its claim is gone"))
		told.Decision = flight.Fenced // the nonce has had its attempt
		return told, err
	case v.shared:
		return d.ex.propose(d.repeatOf(v, right.Claim()))
	}
	return reply, nil
}
