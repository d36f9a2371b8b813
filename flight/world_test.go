package flight_test

import (
	"fmt"
	"maps"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flight/flighttest"
)

// The times and keys of the exhaustive tests and the rule tests.
const (
	start   = flight.Time(1_000_000)
	settle  = 5 * time.Second
	window  = 20 * time.Second
	retains = 30 * time.Second
	timeout = 5 * time.Second // of an attempt; its deadline is 20.5 s after it was opened
)

var (
	soloKey = flight.MustKey("test/charge/order-1")
	sagaKey = flight.MustKey("test/trip/order-1")
	stepKey = flight.MustKey("test/trip/order-1#hotel")
	undoKey = flight.MustKey("test/trip/order-1#hotel.undo")

	fp1, fp2               = flight.Fingerprint{1}, flight.Fingerprint{2}
	nonce1, nonce2, nonce3 = flight.Nonce{1}, flight.Nonce{2}, flight.Nonce{3}
	// notAfter has the NotAfter for the Open of each nonce. The third one is too far ahead at first.
	notAfter = map[flight.Nonce]flight.Time{nonce1: start.Add(25 * time.Second), nonce2: start.Add(59 * time.Second), nonce3: start.Add(70 * time.Second)}

	// sessions are two long-lived sessions with a one-shot session between them.
	sessions = [...]flight.Session{
		{ID: "A", Revision: 10, Epoch: 1},
		{ID: "B", Revision: 20, Epoch: 1, OneShot: true},
		{ID: "C", Revision: 30, Epoch: 1},
	}
	testHeader = flight.Header{Deployment: "test", Secret: []byte("secret"), LeaseEpoch: 1, StoreEpoch: 1, Now: start}
)

// attemptRef identifies an attempt that the ledger has opened.
type attemptRef struct {
	generation uint32
	token      flight.Token
	nonce      flight.Nonce
}

// ledger is a ledger of a few keys and its ended sessions, with an observer's record of opened attempts and used nonces.
type world struct {
	header  flight.Header
	keys    []flight.Key
	flights [3]*flight.Flight
	issued  [3][]attemptRef
	ended   map[flight.SessionID]flight.Time // end of the time for which a session is remembered as ended; copied on change
	opened  map[nonceRef]bool                // nonces that have opened an attempt; copied on change
	voided  map[nonceRef]bool                // nonces that an answer has used up; copied
}

type nonceRef struct {
	key   int
	nonce flight.Nonce
}

func newWorld(keys ...flight.Key) *world {
	h := testHeader
	h.Version = flight.Version{Index: 1}
	return &world{header: h, keys: keys}
}

func (w *world) index(k flight.Key) int {
	for i := range w.keys {
		if w.keys[i] == k {
			return i
		}
	}
	return -1
}

func (w *world) flight(k flight.Key) *flight.Flight { return w.flights[w.index(k)] }

func (w *world) view(k flight.Key) flight.View {
	v := flight.View{Header: w.header}
	if i := w.index(k); i >= 0 {
		v.Flight = w.flights[i]
	}
	if i := w.index(k.Saga()); k.IsStep() && i >= 0 {
		v.Saga = w.flights[i]
	}
	return v
}

func (w *world) hasEnded(id flight.SessionID) bool {
	until, ok := w.ended[id]
	return ok && until >= w.header.Now
}

// apply applies a command, repeats it, checks both steps, and returns the ledger afterwards; w does not change.
func (w *world) step(c flight.Command) (*world, flight.Reply, error) {
	switch c := c.(type) {
	case *tick:
		next := *w
		next.header.Now = w.header.Now.Add(c.by)
		if c.ahead > 0 || w.header.Wall > 0 {
			next.header.Wall = max(w.header.Wall.Add(c.by), next.header.Now.Add(c.ahead))
		}
		return &next, flight.Reply{Decision: flight.Accepted}, nil
	case *restore:
		next := *w
		next.header.StoreEpoch++
		return &next, flight.Reply{Decision: flight.Accepted}, nil
	case *flight.Ended:
		return w.end(c)
	}
	before := w.view(c.Target())
	if o, ok := c.(*flight.Open); ok {
		before.Ended = w.hasEnded(o.Session.ID)
	}
	after, reply, err := applyTwice(before, c)
	if err != nil {
		return nil, reply, err
	}
	_, withdraws := c.(*flight.Withdraw)
	_, abandons := c.(*flight.Abandon)
	if !reply.Changed && sameHeader(after.Header, before.Header) && !withdraws && !abandons {
		return w, reply, nil // the same state
	}
	next, err := w.advance(c, before, after, reply)
	return next, reply, err
}

func sameHeader(a, b flight.Header) bool {
	return a.LeaseEpoch == b.LeaseEpoch && a.StoreEpoch == b.StoreEpoch && a.EpochHold == b.EpochHold && a.Guard == b.Guard &&
		a.Deployment == b.Deployment
}

// applyTwice applies a command, repeats it if it changed something, and checks both steps.
func applyTwice(before flight.View, c flight.Command) (flight.View, flight.Reply, error) {
	after, reply := flight.Apply(before, c)
	if err := flighttest.Check(before, c, after, reply); err != nil {
		return after, reply, err
	}
	if !reply.Changed && sameHeader(after.Header, before.Header) {
		return after, reply, nil // a repeat of a pure function
	}
	again := after
	again.Header.Version.Pos++
	second, repeated := flight.Apply(again, c)
	if err := flighttest.Check(again, c, second, repeated); err != nil {
		return after, reply, fmt.Errorf("I10: repeated: %w", err)
	}
	if err := flighttest.CheckRepeat(after, second, c, repeated); err != nil {
		return after, reply, err
	}
	switch first := reply.Decision; first {
	case flight.Proceed, flight.Look, flight.Doubtful, flight.OpenExpired:
		if repeated.Decision != first || repeated.Token != reply.Token || repeated.Probe != reply.Probe {
			return after, reply, fmt.Errorf("I10: an Open was answered %v, and its repeat %v", first, repeated.Decision)
		}
	}
	return after, reply, nil
}

// applyEndSession applies the proof that a session has ended, as the state machine does.
func (w *world) end(c *flight.Ended) (*world, flight.Reply, error) {
	next := *w
	admitted := c.Admit(&w.header)
	reply := flight.Reply{Decision: admitted}
	for i, k := range w.keys {
		after, r, err := applyTwice(w.view(k), c)
		if err != nil {
			return nil, r, err
		}
		reply.Changed = reply.Changed || r.Changed
		next.flights[i] = after.Flight
	}
	if admitted == flight.Accepted {
		next.remember(c.Session.ID)
	}
	if !reply.Changed && len(next.ended) == len(w.ended) {
		return w, reply, nil
	}
	next.header.Version.Index++
	return &next, reply, nil
}

// rememberEnded records that a session has ended, as Sessions.MarkEnded does.
func (w *world) remember(id flight.SessionID) {
	w.ended = maps.Clone(w.ended)
	if w.ended == nil {
		w.ended = make(map[flight.SessionID]flight.Time)
	}
	w.ended[id] = w.header.Now.Add(flight.MaxOpenLife)
}

func (w *world) advance(c flight.Command, before, after flight.View, reply flight.Reply) (*world, error) {
	next := *w
	next.header = after.Header
	next.header.Version = flight.Version{Index: w.header.Version.Index + 1}
	i := w.index(c.Target())
	if i < 0 {
		return &next, nil
	}
	next.flights[i] = after.Flight
	switch c := c.(type) {
	case *flight.Open:
		ref := nonceRef{i, c.Nonce}
		opened := reply.Decision == flight.Proceed && (before.Flight == nil || before.Flight.Fence != after.Flight.Fence)
		switch far := c.NotAfter > w.header.Now.Add(flight.MaxNonceLife); {
		case opened && (w.opened[ref] || w.voided[ref]):
			return nil, fmt.Errorf("I10: nonce %x opened although it had opened (%v) or was used up (%v) before", c.Nonce[0], w.opened[ref], w.voided[ref])
		case opened:
			next.opened = with(w.opened, ref)
			next.issued[i] = append(next.issued[i][:len(next.issued[i]):len(next.issued[i])], attemptRef{after.Flight.Generation, reply.Token, c.Nonce})
		case c.NotAfter < w.header.Now: // expired: it opens nothing later
		case reply.Decision == flight.Doubtful, reply.Decision == flight.Look, reply.Decision == flight.OpenExpired && !far:
			next.voided = with(w.voided, ref)
		}
	case *flight.Abandon:
		if reply.Decision == flight.Accepted && c.NotAfter >= w.header.Now {
			next.voided = with(w.voided, nonceRef{i, c.Nonce})
		}
	case *flight.Withdraw:
		if reply.Decision == flight.Accepted {
			next.remember(c.Session)
		}
	}
	return &next, nil
}

func with(set map[nonceRef]bool, ref nonceRef) map[nonceRef]bool {
	if set[ref] {
		return set
	}
	grown := make(map[nonceRef]bool, len(set)+1)
	maps.Copy(grown, set)
	grown[ref] = true
	return grown
}

// tick advances the ledger's time, and may set the leader's wall clock ahead of it.
type tick struct {
	flight.Tick
	by    time.Duration
	ahead time.Duration
}

// restore turns this ledger into a restored one that has lost nothing: its store epoch rises.
type restore struct{ flight.Tick }

func body(text string) flight.Blob { return flight.NewBlob("text/plain", []byte(text), 100) }

var bodies = map[string]flight.Blob{"x": body("x"), "y": body("y"), "": {}}

func openOf(k flight.Key, p flight.Policy, x flight.Session, n flight.Nonce, fp flight.Fingerprint) *flight.Open {
	return &flight.Open{Key: k, Submission: flight.Submission{Fingerprint: fp, Policy: p}, Session: x, Nonce: n,
		NotAfter: notAfter[n], Owner: "host:1", StoreEpoch: 1}
}

func abandonOf(k flight.Key, n flight.Nonce) *flight.Abandon {
	return &flight.Abandon{Key: k, Nonce: n, NotAfter: notAfter[n], StoreEpoch: 1}
}

// endSessionOf returns the proof that a session has ended, by a read long after the creation of the session.
func endedOf(x flight.Session) *flight.Ended {
	return &flight.Ended{Session: x, ReadRevision: 100, Epoch: 1, StoreEpoch: 1}
}

// importOf returns an import of an effect that happened a second before the test's start.
func importOf(k flight.Key, o flight.Outcome, id string, fp flight.Fingerprint) *flight.Import {
	return &flight.Import{Key: k, Fingerprint: fp, Outcome: o, ExternalID: id, Body: bodies[id], FinishedAt: start.Add(-time.Second), Retention: retains, Who: "ann"}
}

func reportOf(k flight.Key, at attemptRef, o flight.Outcome, id string) *flight.Report {
	return &flight.Report{Key: k, Generation: at.generation, Token: at.token, Outcome: o, ExternalID: id, Body: bodies[id]}
}
