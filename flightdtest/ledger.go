package flightdtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease/leasetest"
)

// Ledger is a ledger in memory: flight.Apply over a map. It implements executor.Ledger, executor.Reader,
// executor.Sessions and lease.LedgerState. It outlives its Flightd: pass it to another one to test a restart.
type Ledger struct {
	view      // its mutex guards all fields, and those of followers
	due       *flight.Due
	onReady   []func(namespace, action string)
	onEnded   []func(namespace, action string)
	bodies    map[bodyKey][]byte
	history   map[flight.ID][]flight.Event
	changed   map[flight.ID]*flight.Flight // by the current command
	followers []*Follower
	etcd      *leasetest.Etcd // the ledger's etcd; nil until it is needed
	faults
}

type bodyKey struct {
	id         flight.ID
	generation uint32
	receipt    bool
}

var _ ledgerView = (*Ledger)(nil)

// errUnreachable is the error of commands during Cut.
var errUnreachable = errors.New("flightdtest: the ledger is unreachable")

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	l := &Ledger{view: newView(new(sync.Mutex)), bodies: make(map[bodyKey][]byte), history: make(map[flight.ID][]flight.Event)}
	l.arrived, l.due = sync.NewCond(l.mu), flight.NewDue()
	l.due.Ready = func(namespace, action string) {
		for _, f := range l.onReady {
			f(namespace, action)
		}
	}
	l.due.Ended = func(namespace, action string) {
		for _, f := range l.onEnded {
			f(namespace, action)
		}
	}
	l.apply(&flight.Bootstrap{Deployment: leasetest.Deployment, Secret: []byte("flightdtest's secret")})
	return l
}

// Propose implements executor.Ledger.
func (l *Ledger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if err := ctx.Err(); err != nil {
		return flight.Reply{}, err
	}
	c, err := encodeAndDecode(c)
	if err != nil {
		return flight.Reply{}, err
	}
	switch o, hangs := l.admit(c); {
	case hangs:
		return flight.Reply{}, l.hang(ctx, o, c)
	case o != nil:
		return flight.Reply{}, errUnreachable
	}
	return l.commit(c)
}

// commit applies a command and returns its reply, unless LoseAnswers applies.
func (l *Ledger) commit(c flight.Command) (flight.Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reply := l.apply(c)
	if l.loseAnswers > 0 {
		l.loseAnswers--
		return flight.Reply{}, effect.ErrAmbiguous
	}
	return reply, nil
}

// encodeAndDecode returns the command as a log stores it: a copy that shares no bytes. Commands that cannot be encoded
// are rejected.
func encodeAndDecode(c flight.Command) (flight.Command, error) {
	b, err := flight.Encode(c)
	if err != nil {
		return nil, err
	}
	return flight.Decode(b)
}

// hang leaves a command with an unknown outcome. It is applied at Heal.
func (l *Ledger) hang(ctx context.Context, o *outage, c flight.Command) error {
	l.deliverLater(o, c)
	select {
	case <-o.healed:
	case <-ctx.Done():
	}
	return effect.ErrAmbiguous
}

// Report implements executor.Ledger. Like the spool of a node, it keeps a report that cannot be committed, and commits
// it at Heal. The caller waits until its context ends.
func (l *Ledger) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	c, err := encodeAndDecode(r)
	if err != nil {
		return flight.Reply{}, err
	}
	for o, _ := l.admit(c); ; o, _ = l.currentOutage() {
		if o == nil {
			reply, err := l.commit(c)
			if err == nil {
				return reply, nil
			}
			continue // the answer was lost: propose it again
		}
		select {
		case <-o.healed:
		case <-ctx.Done():
			l.deliverLater(o, c)
			return flight.Reply{}, effect.ErrPending
		}
	}
}

// apply applies one command. The caller holds the lock; only NewLedger does not.
func (l *Ledger) apply(c flight.Command) flight.Reply {
	l.expire(c.Target())
	return l.applyOne(c)
}

// expire applies the end of the key's retention. A real leader does so periodically.
func (l *Ledger) expire(key flight.Key) {
	if key.IsStep() {
		l.expire(key.Saga()) // receipts of steps live as long as their saga
	}
	f := l.flights[key.FlightID()]
	if f == nil {
		return
	}
	at := f.DeletableAt()
	if f.State.Terminal() && f.State != flight.StateExpired {
		at = f.ExpiresAt()
	}
	if at > 0 && at <= max(l.header.Now, l.now()) {
		l.applyOne(&flight.Expire{Key: key, Generation: f.Generation})
	}
}

func (l *Ledger) applyOne(c flight.Command) flight.Reply {
	l.header.Now = max(l.header.Now, l.now())
	if l.wallAhead > 0 {
		l.header.Wall = l.header.Now.Add(l.wallAhead)
	}
	l.header.Version = flight.Version{Index: l.header.Version.Index + 1}
	l.sessions.ForgetExpired(l.header.Now)
	l.changed = make(map[flight.ID]*flight.Flight)
	reply := l.applyCommand(c)
	for _, f := range l.followers {
		f.pending = append(f.pending, logEntry{header: l.header, flights: l.changed})
		f.apply()
	}
	return reply
}

func (l *Ledger) applyCommand(c flight.Command) flight.Reply {
	switch c := c.(type) {
	case *flight.EndSession:
		return l.endSession(c)
	case *flight.CloseSession:
		_, held := l.sessions.HeldFlights(c.Session, flight.ID{}, 0)
		d := c.Admit(&l.header, held)
		if d == flight.DecisionAccepted {
			l.sessions.MarkEnded(c.Session, l.header.Now)
		}
		return flight.Reply{Decision: d}
	}
	reply := l.applyTo(c.Target().FlightID(), c.Target(), c)
	if w, ok := c.(*flight.WithdrawSession); ok && reply.Decision == flight.DecisionAccepted {
		l.sessions.MarkEnded(w.Session, l.header.Now)
	}
	return reply
}

// endSession applies the end of a session to the flights that it holds.
func (l *Ledger) endSession(c *flight.EndSession) flight.Reply {
	reply := flight.Reply{Decision: c.Admit(&l.header)}
	if reply.Decision != flight.DecisionAccepted {
		return reply
	}
	l.sessions.MarkEnded(c.Session.ID, l.header.Now)
	held, all := l.sessions.HeldFlights(c.Session.ID, flight.ID{}, flight.MaxEndSessionFlights)
	for _, id := range held {
		reply.PerFlight = append(reply.PerFlight, l.applyTo(id, l.flights[id].Key, c))
	}
	reply.Changed, reply.More = len(held) > 0, all > len(held)
	return reply
}

// applyTo applies a command to one flight.
func (l *Ledger) applyTo(id flight.ID, key flight.Key, c flight.Command) flight.Reply {
	before := l.flights[id]
	view := flight.View{Header: l.header, Flight: before}
	if key.IsStep() {
		view.Saga = l.flights[key.Saga().FlightID()]
	}
	if open, ok := c.(*flight.Open); ok {
		view.SessionEnded, view.LaneBlocked = l.sessions.HasEnded(open.Session.ID, l.header.Now), l.due.LaneBlocks(id)
	}
	after, reply := flight.Apply(view, c)
	l.header = after.Header
	if !reply.Changed {
		return reply
	}
	if reply.Deleted {
		delete(l.flights, id)
	} else {
		reply.Flight = l.storeBodies(after.Flight)
		l.flights[id] = reply.Flight
	}
	l.sessions.Update(before, reply.Flight)
	l.due.Update(before, l.flights[id])
	l.history[id] = append(l.history[id], reply.Events...)
	l.changed[id] = reply.Flight
	l.wake(id)
	return reply
}

// storeBodies stores the bytes of bodies apart from the flight, as the real ledger does.
func (l *Ledger) storeBodies(f *flight.Flight) *flight.Flight {
	if f.Input.Data == nil && (f.Receipt == nil || f.Receipt.Body.Data == nil) {
		return f
	}
	kept := *f
	if kept.Input.Data != nil {
		l.bodies[bodyKey{f.ID, f.InputGeneration, false}] = bytes.Clone(kept.Input.Data)
		kept.Input = kept.Input.WithoutData()
	}
	if r := kept.Receipt; r != nil && r.Body.Data != nil {
		l.bodies[bodyKey{f.ID, f.Generation, true}] = bytes.Clone(r.Body.Data)
		receipt := *r
		receipt.Body = receipt.Body.WithoutData()
		kept.Receipt = &receipt
	}
	return &kept
}

// Flight implements executor.Ledger.
func (l *Ledger) Flight(id flight.ID) (*flight.Flight, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.flights[id]; f != nil && l.outage == nil {
		l.expire(f.Key)
	}
	return l.flights[id], nil
}

// Now implements executor.Reader.
func (l *Ledger) Now() flight.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.header.Now, l.now())
}

func (l *Ledger) now() flight.Time { return flight.Time(time.Now().Add(l.clockAhead).UnixMilli()) }

// Overdue implements executor.Reader.
func (l *Ledger) Overdue(limit int) []flight.ID { return l.overdue(l.Now(), limit) }

// Input implements executor.Reader.
func (l *Ledger) Input(f *flight.Flight) ([]byte, error) {
	return l.body(bodyKey{f.ID, f.InputGeneration, false}, f.Input)
}

// ReceiptBody implements executor.Reader.
func (l *Ledger) ReceiptBody(f *flight.Flight) ([]byte, error) {
	if f.Receipt == nil {
		return nil, nil
	}
	return l.body(bodyKey{f.ID, f.Generation, true}, f.Receipt.Body)
}

func (l *Ledger) body(k bodyKey, b flight.Blob) ([]byte, error) {
	if b.StoredSize == 0 {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	data, ok := l.bodies[k]
	if !ok {
		return nil, errors.New("flightdtest: no such body")
	}
	return bytes.Clone(data), nil
}

// History returns the events of a key, in order, of all its generations.
func (l *Ledger) History(key flight.Key) []flight.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.history[key.FlightID()])
}

// ProposeAll proposes the commands in order.
func (l *Ledger) ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error) {
	replies := make([]flight.Reply, len(all))
	for i, c := range all {
		var err error
		if replies[i], err = l.Propose(ctx, c); err != nil {
			return replies, err
		}
	}
	return replies, nil
}
