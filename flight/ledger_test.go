package flight_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flight/flighttest"
)

// The times and keys of the exhaustive tests and the rule tests.
const (
	start          = flight.Time(1_000_000)
	settleDelay    = 5 * time.Second
	providerWindow = 20 * time.Second
	retention      = 30 * time.Second
	timeout        = 5 * time.Second // of an attempt; its deadline is 20.5 s after it was opened
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
type ledger struct {
	header         flight.Header
	keys           []flight.Key
	flights        [3]*flight.Flight
	openedAttempts [3][]attemptRef
	ended          map[flight.SessionID]flight.Time // end of the time for which a session is remembered as ended; copied on change
	openedNonces   map[nonceRef]bool                // nonces that have opened an attempt; copied on change
	usedUp         map[nonceRef]bool                // nonces that an answer has used up; copied

	// holderEnds is when the time of each key's holder is over, by a clock that never steps; 0: never. While it lasts, no other
	// party gets the key, however far the ledger's clock steps.
	holderEnds [3]flight.Time
}

// realTime is the time of a clock that starts with the ledger's and never steps.
func (l *ledger) realTime() flight.Time { return l.header.Now.Add(-l.header.Steps) }

type nonceRef struct {
	key   int
	nonce flight.Nonce
}

func newLedger(keys ...flight.Key) *ledger {
	h := testHeader
	h.Version = flight.Version{Index: 1}
	return &ledger{header: h, keys: keys}
}

func (l *ledger) keyIndex(k flight.Key) int {
	for i := range l.keys {
		if l.keys[i] == k {
			return i
		}
	}
	return -1
}

func (l *ledger) flight(k flight.Key) *flight.Flight { return l.flights[l.keyIndex(k)] }

func (l *ledger) view(k flight.Key) flight.View {
	v := flight.View{Header: l.header}
	if i := l.keyIndex(k); i >= 0 {
		v.Flight = l.flights[i]
	}
	if i := l.keyIndex(k.Saga()); k.IsStep() && i >= 0 {
		v.Saga = l.flights[i]
	}
	return v
}

func (l *ledger) hasEnded(id flight.SessionID) bool {
	until, ok := l.ended[id]
	return ok && until >= l.header.Now
}

// apply applies a command, repeats it, checks both steps, and returns the ledger afterwards; w does not change.
func (l *ledger) apply(c flight.Command) (*ledger, flight.Reply, error) {
	switch c := c.(type) {
	case *tick:
		next := *l
		next.header.Now = l.header.Now.Add(c.by)
		if c.ahead > 0 || l.header.Wall > 0 {
			next.header.Wall = max(l.header.Wall.Add(c.by), next.header.Now.Add(c.ahead))
		}
		return &next, flight.Reply{Decision: flight.DecisionAccepted}, nil
	case *restore:
		next := *l
		next.header.StoreEpoch++
		return &next, flight.Reply{Decision: flight.DecisionAccepted}, nil
	case *flight.EndSession:
		return l.applyEndSession(c)
	}
	before := l.view(c.Target())
	if o, ok := c.(*flight.Open); ok {
		before.SessionEnded = l.hasEnded(o.Session.ID)
	}
	after, reply, err := applyTwice(before, c)
	if err != nil {
		return nil, reply, err
	}
	_, withdraws := c.(*flight.WithdrawSession)
	_, abandons := c.(*flight.Abandon)
	if !reply.Changed && sameHeader(after.Header, before.Header) && !withdraws && !abandons {
		return l, reply, nil // the same state
	}
	next, err := l.advance(c, before, after, reply)
	return next, reply, err
}

func sameHeader(a, b flight.Header) bool {
	return a.LeaseEpoch == b.LeaseEpoch && a.StoreEpoch == b.StoreEpoch && a.EpochHold == b.EpochHold && a.GuardCounter == b.GuardCounter &&
		a.Deployment == b.Deployment && a.Reconciling == b.Reconciling && a.Steps == b.Steps
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
	case flight.DecisionProceed, flight.DecisionVerify, flight.DecisionInDoubt, flight.DecisionOpenExpired:
		if repeated.Decision != first || repeated.Token != reply.Token || repeated.Verification != reply.Verification {
			return after, reply, fmt.Errorf("I10: an Open was answered %v, and its repeat %v", first, repeated.Decision)
		}
	}
	return after, reply, nil
}

// applyEndSession applies the proof that a session has ended, as the state machine does.
func (l *ledger) applyEndSession(c *flight.EndSession) (*ledger, flight.Reply, error) {
	next := *l
	admitted := c.Admit(&l.header)
	reply := flight.Reply{Decision: admitted}
	for i, k := range l.keys {
		after, r, err := applyTwice(l.view(k), c)
		if err != nil {
			return nil, r, err
		}
		reply.Changed = reply.Changed || r.Changed
		next.flights[i] = after.Flight
	}
	if admitted == flight.DecisionAccepted {
		next.rememberEnded(c.Session.ID)
	}
	if !reply.Changed && len(next.ended) == len(l.ended) {
		return l, reply, nil
	}
	next.header.Version.Index++
	return &next, reply, nil
}

// rememberEnded records that a session has ended, as Sessions.MarkEnded does.
func (l *ledger) rememberEnded(id flight.SessionID) {
	l.ended = maps.Clone(l.ended)
	if l.ended == nil {
		l.ended = make(map[flight.SessionID]flight.Time)
	}
	l.ended[id] = l.header.Now.Add(flight.MaxOpenLife)
}

func (l *ledger) advance(c flight.Command, before, after flight.View, reply flight.Reply) (*ledger, error) {
	next := *l
	next.header = after.Header
	next.header.Version = flight.Version{Index: l.header.Version.Index + 1}
	i := l.keyIndex(c.Target())
	if i < 0 {
		return &next, nil
	}
	next.flights[i] = after.Flight
	if err := next.trackHolder(i, before.Flight, reply); err != nil {
		return nil, err
	}
	switch c := c.(type) {
	case *flight.Open:
		ref := nonceRef{i, c.Nonce}
		opened := reply.Decision == flight.DecisionProceed && (before.Flight == nil || before.Flight.Fence != after.Flight.Fence)
		switch far := c.NotAfter > l.header.Now.Add(flight.MaxNonceLife); {
		case opened && (l.openedNonces[ref] || l.usedUp[ref]):
			return nil, fmt.Errorf("I10: nonce %x opened although it had opened (%v) or was used up (%v) before", c.Nonce[0], l.openedNonces[ref], l.usedUp[ref])
		case opened:
			next.openedNonces = with(l.openedNonces, ref)
			next.openedAttempts[i] = append(next.openedAttempts[i][:len(next.openedAttempts[i]):len(next.openedAttempts[i])], attemptRef{after.Flight.Generation, reply.Token, c.Nonce})
		case c.NotAfter < l.header.Now: // expired: it opens nothing later
		case reply.Decision == flight.DecisionInDoubt, reply.Decision == flight.DecisionVerify, reply.Decision == flight.DecisionOpenExpired && !far:
			next.usedUp = with(l.usedUp, ref)
		}
	case *flight.Abandon:
		if reply.Decision == flight.DecisionAccepted && c.NotAfter >= l.header.Now {
			next.usedUp = with(l.usedUp, nonceRef{i, c.Nonce})
		}
	case *flight.WithdrawSession:
		if reply.Decision == flight.DecisionAccepted {
			next.rememberEnded(c.Session)
		}
	}
	return &next, nil
}

// trackHolder notes when the time of the key's holder is over, and checks that no holder has lost the key before, except to
// the success of an attempt that a restore had lost.
func (l *ledger) trackHolder(i int, before *flight.Flight, reply flight.Reply) error {
	f := l.flights[i]
	if f == nil {
		return nil
	}
	old := before.OpenAttempt()
	lost := old != nil && slices.ContainsFunc(f.Attempts, func(a flight.Attempt) bool { return a.Number == old.Number && a.Lost }) &&
		(f.Receipt == nil || f.Receipt.Source != flight.SourceReportAfterRestore)
	asked := reply.Decision == flight.DecisionVerify && before.Verifying() && before.Verification.Session != (flight.Session{})
	if ends := l.holderEnds[i]; (lost && old.Session.Epoch == l.header.LeaseEpoch || asked) && reply.Changed && (ends == 0 || l.realTime() < ends) {
		return fmt.Errorf("I1: a holder lost the key at %d, before the end of its time at %d", l.realTime(), ends)
	}
	switch {
	case !reply.Changed:
	case reply.Decision == flight.DecisionVerify:
		l.holderEnds[i] = l.realTime().Add(flighttest.VerifyTimeout(f.Policy))
	case before != nil && before.State != flight.StateWaiting && f.State == flight.StateWaiting && f.Wake.Callback:
		l.holderEnds[i] = 0
		if f.Wake.At > 0 {
			l.holderEnds[i] = f.Wake.At.Add(-l.header.Steps)
		}
	case reply.Decision == flight.DecisionProceed:
		l.holderEnds[i] = 0
		if p := f.Policy.AttemptTimeout; p > 0 {
			l.holderEnds[i] = l.realTime().Add(p + p/10 + flight.PauseBound)
		}
	}
	return nil
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
func endSessionOf(x flight.Session) *flight.EndSession {
	return &flight.EndSession{Session: x, ReadRevision: 100, Epoch: 1, StoreEpoch: 1}
}

// importOf returns an import of an effect that happened a second before the test's start.
func importOf(k flight.Key, o flight.Outcome, id string, fp flight.Fingerprint) *flight.Import {
	return &flight.Import{Key: k, Fingerprint: fp, Outcome: o, ExternalID: id, Body: bodies[id], FinishedAt: start.Add(-time.Second), Retention: retention, Actor: "ann"}
}

func reportOf(k flight.Key, at attemptRef, o flight.Outcome, id string) *flight.Report {
	return &flight.Report{Key: k, Generation: at.generation, Token: at.token, Outcome: o, ExternalID: id, Body: bodies[id]}
}
