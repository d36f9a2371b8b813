package executor

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// renewals is how many renewals fit into one TTL.
const renewals = 3

// guest is a session of a remote caller as the desk handles it.
type guest struct {
	session lease.Session
	ttl     time.Duration // where a process before this one made the session, what it is at least
	oneShot bool          // it was made for one flight and ends with its report
}

// boarded is an attempt, or a look-up, that was opened for a guest.
type boarded struct {
	right    lease.Lease // nil where another process made it
	claim    flight.Claim
	nonce    flight.Nonce
	version  flight.Version // of its flight when it was noted: its open was applied by then
	unlisted int            // how many renewals in a row did not list it
	reported bool           // its outcome was brought here, and may be recorded later
}

// mostUnlisted is how many renewals in a row must not list what a guest holds until it is taken for unwanted. A single one may
// have been sent before the open, and be late.
const mostUnlisted = 2

// unwanted reports whether the caller does not want what it holds. What it has reported it need not list any more, whatever it
// was told of the report: it may wait on this process's disk.
func (b *boarded) unwanted() bool { return b.unlisted >= mostUnlisted && !b.reported }

// stay is what the desk knows of one guest.
type stay struct {
	guest   guest
	flights map[flight.ID]boarded
	seen    time.Time // when it last came by
}

// guests are the remote callers that this process has seen, with what they hold. It is a help and no truth: after a
// restart it is empty, and everything works on what etcd and the ledger know.
type guests struct {
	mu        sync.Mutex
	bySession map[flight.SessionID]*stay
	byFlight  map[flight.ID]flight.SessionID
}

// enter notes a guest, or, of one that is known, the session by which it was found now. It gives what is known.
func (gs *guests) enter(g guest) guest {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	s := gs.enterLocked(g)
	s.guest.session = g.session
	return s.guest
}

func (gs *guests) enterLocked(g guest) *stay {
	if gs.bySession == nil {
		gs.bySession = make(map[flight.SessionID]*stay)
		gs.byFlight = make(map[flight.ID]flight.SessionID)
	}
	s := gs.bySession[g.session.ID()]
	if s == nil {
		s = &stay{guest: g, flights: make(map[flight.ID]boarded)}
		gs.bySession[g.session.ID()] = s
	}
	s.seen = time.Now()
	return s
}

// board notes what was opened for a guest, under which nonce.
func (gs *guests) board(g guest, f *flight.Flight, right lease.Lease, nonce flight.Nonce) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.boardLocked(g, f, right, nonce)
}

func (gs *guests) boardLocked(g guest, f *flight.Flight, right lease.Lease, nonce flight.Nonce) {
	s := gs.enterLocked(g)
	claim := f.Newest().Claim
	if right != nil {
		claim = right.Claim() // a looker's is another than that of the attempt
	}
	if gs.overtakeLocked(f.ID, claim) {
		return
	}
	s.flights[f.ID] = boarded{right: right, claim: claim, nonce: nonce, version: f.Version}
	gs.byFlight[f.ID] = g.session.ID()
}

// overtakeLocked forgets what is noted of a flight under an older claim, which is gone: this one could not have been made else.
// It reports whether a newer one is noted already.
func (gs *guests) overtakeLocked(id flight.ID, claim flight.Claim) (late bool) {
	s := gs.bySession[gs.byFlight[id]]
	if s == nil {
		return false
	}
	b, known := s.flights[id]
	switch order := b.claim.Compare(claim); {
	case !known || order == 0:
		return false
	case order > 0:
		return true
	}
	delete(s.flights, id)
	if b.right != nil {
		b.right.Release()
	}
	return false
}

// reboard notes what a process before this one opened for a guest, unless this one knows better.
func (gs *guests) reboard(g guest, f *flight.Flight) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if s := gs.bySession[g.session.ID()]; s == nil || s.flights[f.ID].claim != f.Newest().Claim {
		gs.boardLocked(g, f, nil, f.Newest().Nonce)
	}
}

// leave forgets what is held for a flight under that claim, and says what it was.
func (gs *guests) leave(id flight.ID, claim flight.Claim) (g guest, b boarded, known bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g, b, known = gs.heldLocked(id, claim); known {
		delete(gs.bySession[gs.byFlight[id]].flights, id)
		delete(gs.byFlight, id)
	}
	return g, b, known
}

func (gs *guests) heldLocked(id flight.ID, claim flight.Claim) (g guest, b boarded, known bool) {
	if s := gs.bySession[gs.byFlight[id]]; s != nil {
		if b, known = s.flights[id]; known && b.claim.Compare(claim) == 0 {
			return s.guest, b, true
		}
	}
	return guest{}, boarded{}, false
}

// report notes that the outcome of an attempt was brought.
func (gs *guests) report(id flight.ID, claim flight.Claim) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if _, b, known := gs.heldLocked(id, claim); known {
		b.reported = true
		gs.bySession[gs.byFlight[id]].flights[id] = b
	}
}

// rightOf is the right to a flight under that claim; nil where this process did not make it.
func (gs *guests) rightOf(id flight.ID, claim flight.Claim) lease.Lease {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if _, b, known := gs.heldLocked(id, claim); known {
		return b.right
	}
	return nil
}

// find gives the guest that is known by this session. One that was found anew since may hold more than is known of it.
func (gs *guests) find(session lease.Session, now time.Time) (g guest, known bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	s := gs.bySession[session.ID()]
	if s == nil || s.guest.session != session {
		return g, false
	}
	s.seen = now
	return s.guest, true
}

// renew notes a renewal, and gives what the guest holds.
func (gs *guests) renew(id flight.SessionID, now time.Time, what Renewal) map[flight.ID]boarded {
	listed := make(map[flight.Nonce]bool, len(what.Nonces))
	for _, n := range what.Nonces {
		listed[n] = true
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	s := gs.bySession[id]
	if s == nil {
		return nil
	}
	s.seen = now
	for f, b := range s.flights {
		switch {
		case what.Nonces == nil || isUnnamed(b.nonce):
			continue
		case listed[b.nonce]:
			b.unlisted = 0
		case what.Seen == flight.Version{}:
			b.unlisted++
		case !b.version.Later(what.Seen):
			b.unlisted = mostUnlisted
		}
		s.flights[f] = b
	}
	return maps.Clone(s.flights)
}

// forget drops a guest whose session is over.
func (gs *guests) forget(id flight.SessionID) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.forgetLocked(id)
}

func (gs *guests) forgetLocked(id flight.SessionID) {
	s := gs.bySession[id]
	if s == nil {
		return
	}
	for f := range s.flights {
		if gs.byFlight[f] == id {
			delete(gs.byFlight, f)
		}
	}
	delete(gs.bySession, id)
}

// tidy drops guests that have not come by for more than two TTLs: their sessions are over, or renewed through another
// node, which then knows them.
func (gs *guests) tidy(now time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for id, s := range gs.bySession {
		if now.Sub(s.seen) > 2*s.guest.ttl {
			gs.forgetLocked(id)
		}
	}
}

// renewEvery is how often a guest should renew, when trust is left to it now.
func (gs *guests) renewEvery(id flight.SessionID, trust time.Duration) time.Duration {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if s := gs.bySession[id]; s != nil {
		return s.guest.ttl / renewals
	}
	return trust / renewals
}

// turnstile lets one opener of a key at a time go on to claim it; the others find out what became of it.
type turnstile struct {
	mu    sync.Mutex
	queue map[flight.ID]*turnQueue
}

type turnQueue struct {
	turn    chan struct{}
	waiting int
}

// enter waits for the turn of this caller until ctx ends. leave must be called once.
func (ts *turnstile) enter(ctx context.Context, id flight.ID) (leave func(), err error) {
	ts.mu.Lock()
	if ts.queue == nil {
		ts.queue = make(map[flight.ID]*turnQueue)
	}
	q := ts.queue[id]
	if q == nil {
		q = &turnQueue{turn: make(chan struct{}, 1)}
		ts.queue[id] = q
	}
	q.waiting++
	ts.mu.Unlock()
	leave = func() { <-q.turn; ts.drop(id, q) }
	select {
	case q.turn <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case q.turn <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		ts.drop(id, q)
		return nil, ctx.Err()
	}
}

func (ts *turnstile) drop(id flight.ID, q *turnQueue) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		delete(ts.queue, id)
	}
}
