// Package httpapitest is a node without a node, for tests of the HTTP door and of its clients: the rules of package
// flight over maps in memory, sessions that end when a test says so, and levers.
package httpapitest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/wire"
)

// World is a ledger, leases and a desk in memory. It implements all that httpapi.Config asks for.
type World struct {
	mu       sync.Mutex
	header   flight.Header
	flights  map[flight.ID]*flight.Flight
	bodies   map[bodyKey][]byte
	history  map[flight.ID][]httpapi.Event
	feed     []httpapi.FeedEvent
	tallies  map[flight.ID]flight.Tally
	sessions map[flight.SessionID]*session
	claims   map[flight.Key]flight.Claim
	revision int64
	changed  chan struct{} // closed by the next change of anything
	skew     flight.Time   // added to the clock
	levers   Levers
}

// Levers change how the world behaves. Zero values are the usual.
type Levers struct {
	Trust      time.Duration // granted to sessions; 0: four fifths of the TTL
	RenewEvery time.Duration // 0: a third of the TTL
	// Before is called at the start of each call of the desk, by the name of the method; its error is the answer.
	Before func(ctx context.Context, method string) error
	// Renewed is told of every renewal that went well, with the nonces that were listed.
	Renewed func(id flight.SessionID, nonces []flight.Nonce)
	NotOK   string // why the node is not ready
	// Cut is the place up to which the feed is gone.
	Cut flight.Version
}

type bodyKey struct {
	id         flight.ID
	generation uint32
	receipt    bool
}

type session struct {
	ttl      time.Duration
	oneShot  bool
	unlisted map[int64]int // by claims: how many renewals in a row did not list their attempts
}

// misses notes that a renewal lists the attempt of a flight under a claim, or does not, and reports whether it is taken for
// unwanted.
func (s *session) misses(f *flight.Flight, claim flight.Claim, what executor.Renewal) bool {
	switch {
	case what.Nonces == nil:
		return false
	case slices.Contains(what.Nonces, f.Newest().Nonce):
		delete(s.unlisted, claim.Revision)
		return false
	case what.Seen != flight.Version{}:
		return !f.Version.Later(what.Seen)
	}
	if s.unlisted == nil {
		s.unlisted = make(map[int64]int)
	}
	s.unlisted[claim.Revision]++
	return s.unlisted[claim.Revision] >= 2
}

var (
	_ httpapi.Desk     = (*World)(nil)
	_ httpapi.Sessions = (*World)(nil)
	_ httpapi.Ledger   = (*World)(nil)
	_ httpapi.Operator = (*World)(nil)
	_ httpapi.Feed     = (*World)(nil)
	_ httpapi.Tallies  = (*World)(nil)
)

// NewWorld makes an empty world.
func NewWorld() *World {
	w := &World{
		flights: make(map[flight.ID]*flight.Flight), bodies: make(map[bodyKey][]byte), history: make(map[flight.ID][]httpapi.Event),
		tallies: make(map[flight.ID]flight.Tally), sessions: make(map[flight.SessionID]*session), claims: make(map[flight.Key]flight.Claim), changed: make(chan struct{}),
	}
	w.applyLocked(&flight.Bootstrap{Deployment: "test", Secret: []byte("a secret of thirty-two bytes....")})
	return w
}

// Config is the door's configuration over this world.
func (w *World) Config() httpapi.Config {
	return httpapi.Config{Desk: w, Sessions: w, Ledger: w, Feed: w, Tallies: w, Operator: w, Ready: w.ready, Version: wire.Version{Version: "test", Deployment: "test"}}
}

// Pull changes the levers.
func (w *World) Pull(change func(*Levers)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.levers)
}

// Pass lets the ledger's time go by.
func (w *World) Pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew = w.skew.Add(d)
	w.wakeLocked()
}

// Expire ends a session as if its holder had not renewed it, and lets the ledger know whose attempts are lost.
func (w *World) Expire(id flight.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expireLocked(id)
}

func (w *World) expireLocked(id flight.SessionID) {
	delete(w.sessions, id)
	for key, claim := range w.claims {
		if claim.Session == id {
			w.revision++
			w.applyLocked(&flight.Recover{Key: key, Claim: flight.Claim{Epoch: 1, Revision: w.revision, Session: "sweeper"}})
			delete(w.claims, key)
		}
	}
	w.wakeLocked()
}

// SessionIDs lists the sessions that live.
func (w *World) SessionIDs() []flight.SessionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []flight.SessionID
	for id := range w.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Snapshot is a text of everything that is stored, to see that nothing has changed.
func (w *World) Snapshot() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for id, f := range w.flights {
		lines = append(lines, fmt.Sprintf("%s %s %s", id, f.State, f.Version))
	}
	for id := range w.sessions {
		lines = append(lines, string(id))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Do applies a command as nobody in particular.
func (w *World) Do(c flight.Command) flight.Reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applyLocked(c)
}

// Header implements httpapi.Ledger.
func (w *World) Header() flight.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.header
	h.Now = w.nowLocked()
	return h
}

// nowLocked is the ledger's time; it does not go back.
func (w *World) nowLocked() flight.Time {
	return max(w.header.Now, flight.Time(time.Now().UnixMilli())+w.skew)
}

func (w *World) applyLocked(c flight.Command) flight.Reply {
	w.header.Version = flight.Version{Index: w.header.Version.Index + 1}
	w.header.Now = w.nowLocked()
	id := c.Target().FlightID()
	v, reply := flight.Apply(flight.View{Header: w.header, Flight: w.flights[id]}, c)
	w.header = v.Header
	if reply.Changed {
		reply.Flight = w.storeLocked(v.Flight)
		for _, e := range reply.Events {
			w.history[id] = append(w.history[id], httpapi.Event{Version: v.Flight.Version, Event: e})
			w.feed = append(w.feed, httpapi.FeedEvent{Key: c.Target(), Event: httpapi.Event{Version: v.Flight.Version, Event: e}})
		}
		w.wakeLocked()
	}
	return reply
}

// storeLocked keeps the bodies beside the record, as the ledger does.
func (w *World) storeLocked(f *flight.Flight) *flight.Flight {
	stored := *f
	if stored.Input.Data != nil {
		w.bodies[bodyKey{f.ID, f.InputFrom, false}] = stored.Input.Data
		stored.Input = stored.Input.WithoutData()
	}
	if r := stored.Receipt; r != nil && r.Body.Data != nil {
		w.bodies[bodyKey{f.ID, f.Generation, true}] = r.Body.Data
		bare := *r
		bare.Body = bare.Body.WithoutData()
		stored.Receipt = &bare
	}
	w.flights[f.ID] = &stored
	return &stored
}

func (w *World) wakeLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Flight implements httpapi.Ledger.
func (w *World) Flight(id flight.ID) (*flight.Flight, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flights[id], nil
}

// Wait implements httpapi.Ledger.
func (w *World) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	for {
		w.mu.Lock()
		f, changed := w.flights[id], w.changed
		w.mu.Unlock()
		if f != nil && f.Version != seen {
			return f, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ReceiptBody implements httpapi.Ledger.
func (w *World) ReceiptBody(f *flight.Flight) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bodies[bodyKey{f.ID, f.Generation, true}], nil
}

// History implements httpapi.Ledger.
func (w *World) History(id flight.ID) ([]httpapi.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.history[id]), nil
}

// List implements httpapi.Ledger.
func (w *World) List(q httpapi.Query) (httpapi.Page, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var fit []*flight.Flight
	for _, f := range w.flights {
		key := f.Key
		if key.IsZero() || f.State == flight.Absent || len(q.States) > 0 && !slices.Contains(q.States, f.State) ||
			!strings.HasPrefix(key.String(), q.Prefix) || q.Name != "" && key.Name() != q.Name ||
			q.Namespace != "" && key.Namespace() != q.Namespace || f.CreatedAt < q.Since {
			continue
		}
		fit = append(fit, f)
	}
	slices.SortFunc(fit, func(a, b *flight.Flight) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	from := slices.IndexFunc(fit, func(f *flight.Flight) bool { return f.ID == q.After.ID }) + 1
	page := httpapi.Page{Flights: fit[from:]}
	if len(page.Flights) > q.Limit {
		page.Flights, page.More = page.Flights[:q.Limit], true
		last := page.Flights[q.Limit-1]
		page.Next = httpapi.Cursor{Created: last.CreatedAt, ID: last.ID}
	}
	return page, nil
}

// Propose implements httpapi.Operator.
func (w *World) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if err := w.before(ctx, "Propose"); err != nil {
		return flight.Reply{}, err
	}
	return w.Do(c), nil
}

func (w *World) ready(context.Context) wire.Ready {
	w.mu.Lock()
	defer w.mu.Unlock()
	why := w.levers.NotOK
	return wire.Ready{Ready: why == "", Checks: []wire.Check{{Name: "world", OK: why == "", Error: why}}}
}

func (w *World) before(ctx context.Context, method string) error {
	w.mu.Lock()
	before := w.levers.Before
	w.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx, method)
}

func newID() string { return strings.ToLower(rand.Text()) }

// ProposeAll implements httpapi.Operator.
func (w *World) ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error) {
	replies := make([]flight.Reply, len(all))
	for i, c := range all {
		var err error
		if replies[i], err = w.Propose(ctx, c); err != nil {
			return replies, err
		}
	}
	return replies, nil
}
