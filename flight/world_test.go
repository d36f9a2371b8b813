package flight_test

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flight/flighttest"
)

// The small world that the explorers and the rule tests live in.
const (
	start   = flight.Time(1_000_000)
	sessA   = flight.SessionID("A")
	sessB   = flight.SessionID("B")
	settle  = 5 * time.Second
	window  = 20 * time.Second
	retains = 30 * time.Second
)

var (
	soloKey = flight.MustKey("test/charge/order-1")
	sagaKey = flight.MustKey("test/trip/order-1")
	stepKey = flight.MustKey("test/trip/order-1#hotel")
	undoKey = flight.MustKey("test/trip/order-1#hotel.undo")

	fp1, fp2       = flight.Fingerprint{1}, flight.Fingerprint{2}
	nonce1, nonce2 = flight.Nonce{1}, flight.Nonce{2}
	// notAfter says until when the Open of each nonce is valid.
	notAfter = map[flight.Nonce]flight.Time{nonce1: start.Add(25 * time.Second), nonce2: start.Add(59 * time.Second)}

	claims = [...]flight.Claim{
		{Epoch: 1, Revision: 10, Session: sessA},
		{Epoch: 1, Revision: 20, Session: sessB},
		{Epoch: 1, Revision: 30, Session: sessA},
	}
	testHeader = flight.Header{Deployment: "test", Secret: []byte("secret"), LeaseEpoch: 1, StoreEpoch: 1, Now: start}
)

// attemptRef is an attempt that the ledger opened at some time.
type attemptRef struct {
	generation uint32
	token      flight.Token
}

// world is a ledger of a few keys, with the memory that a stranger would have of it.
type world struct {
	header  flight.Header
	keys    []flight.Key
	flights [3]*flight.Flight
	issued  [3][]attemptRef
	opened  map[nonceRef]bool // never changed: copied
	voided  map[nonceRef]bool
}

type nonceRef struct {
	key     int
	session flight.SessionID
	nonce   flight.Nonce
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

// step applies a command, judges it, repeats it and judges that, and gives the world afterwards; w stays as it is.
func (w *world) step(c flight.Command) (*world, flight.Reply, error) {
	if t, ok := c.(*tick); ok {
		next := *w
		next.header.Now = w.header.Now.Add(t.by)
		return &next, flight.Reply{Decision: flight.Accepted}, nil
	}
	before := w.view(c.Target())
	after, reply := flight.Apply(before, c)
	if err := flighttest.Check(before, c, after, reply); err != nil {
		return nil, reply, err
	}
	if _, abandons := c.(*flight.Abandon); !reply.Changed && !abandons && after.Header.LeaseEpoch == before.Header.LeaseEpoch {
		return w, reply, nil // the same state, and a repeat of a pure function
	}
	again := after
	again.Header.Version.Pos++
	second, repeated := flight.Apply(again, c)
	if err := flighttest.Check(again, c, second, repeated); err != nil {
		return nil, reply, fmt.Errorf("I10: repeated: %w", err)
	}
	if err := flighttest.CheckRepeat(after, second, c, repeated); err != nil {
		return nil, reply, err
	}
	if reply.Decision == flight.Proceed && (repeated.Decision != flight.Proceed || repeated.Token != reply.Token) {
		return nil, reply, fmt.Errorf("I10: a repeated Open answered %v", repeated.Decision)
	}
	next, err := w.advance(c, before, after, reply)
	return next, reply, err
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
		ref := nonceRef{i, c.Claim.Session, c.Nonce}
		if reply.Decision != flight.Proceed || before.Flight != nil && before.Flight.Fence == after.Flight.Fence {
			break
		}
		if w.opened[ref] || w.voided[ref] {
			return nil, fmt.Errorf("I10: nonce %x of %s opened although it had opened (%v) or was abandoned (%v) before",
				c.Nonce[0], c.Claim.Session, w.opened[ref], w.voided[ref])
		}
		next.opened = with(w.opened, ref)
		next.issued[i] = append(next.issued[i][:len(next.issued[i]):len(next.issued[i])], attemptRef{after.Flight.Generation, reply.Token})
	case *flight.Abandon:
		if c.Token.IsZero() && reply.Decision == flight.Accepted {
			next.voided = with(w.voided, nonceRef{i, c.Session, c.Nonce})
		}
	}
	return &next, nil
}

func with(set map[nonceRef]bool, ref nonceRef) map[nonceRef]bool {
	grown := make(map[nonceRef]bool, len(set)+1)
	for k := range set {
		grown[k] = true
	}
	grown[ref] = true
	return grown
}

// tick lets the ledger's time go on.
type tick struct {
	flight.Tick
	by time.Duration
}

func body(text string) flight.Blob { return flight.NewBlob("text/plain", []byte(text), 100) }

var bodies = map[string]flight.Blob{"x": body("x"), "y": body("y"), "": {}}

func openOf(k flight.Key, p flight.Policy, c flight.Claim, n flight.Nonce, fp flight.Fingerprint) *flight.Open {
	return &flight.Open{Key: k, Submission: flight.Submission{Fingerprint: fp, Policy: p}, Claim: c, Nonce: n,
		NotAfter: notAfter[n], Owner: "host:1", StoreEpoch: 1}
}

// importOf brings a receipt of an effect that happened a second before the world began.
func importOf(k flight.Key, o flight.Outcome, id string, fp flight.Fingerprint) *flight.Import {
	return &flight.Import{Key: k, Fingerprint: fp, Outcome: o, ExternalID: id, Body: bodies[id], FinishedAt: start.Add(-time.Second), Retention: retains, Who: "ann"}
}

func reportOf(k flight.Key, at attemptRef, o flight.Outcome, id string) *flight.Report {
	return &flight.Report{Key: k, Generation: at.generation, Token: at.token, Outcome: o, ExternalID: id, Body: bodies[id]}
}

// fingerprintOf names a state of the world by everything that the rules may depend on. Left out are versions, texts,
// and the times at which attempts were opened and closed.
func (w *world) fingerprintOf(buf []byte) []byte {
	buf = binary.AppendVarint(buf, int64(w.header.Now))
	buf = append(buf, byte(w.header.LeaseEpoch))
	buf = binary.AppendVarint(buf, int64(w.header.EpochHold))
	for i := range w.keys {
		buf = appendFlight(append(buf, '|'), w.flights[i])
		for _, session := range [...]flight.SessionID{sessA, sessB} {
			for _, n := range [...]flight.Nonce{nonce1, nonce2} {
				ref := nonceRef{i, session, n}
				buf = append(buf, bitOf(w.opened[ref]), bitOf(w.voided[ref]))
			}
		}
		for _, at := range w.issued[i] {
			buf = append(buf, byte(at.generation), byte(at.token.Number), byte(at.token.Revision), byte(at.token.Epoch))
		}
	}
	return buf
}

func bitOf(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendFlight(buf []byte, f *flight.Flight) []byte {
	if f == nil {
		return buf
	}
	buf = append(buf, byte(f.Generation), byte(f.State), f.Fingerprint[0], byte(f.Doubts), byte(f.Counted), byte(f.AttemptCount),
		bitOf(f.Cancel != nil), bitOf(f.Redacted != nil), bitOf(f.Overlap), bitOf(f.Sealed), byte(f.Phase), byte(f.Was), byte(f.Fence.Number), byte(f.Fence.Revision))
	for i := range f.Attempts {
		at := &f.Attempts[i]
		buf = append(buf, byte(at.Claim.Revision), byte(at.Claim.Epoch), at.Nonce[0], bitOf(at.Open()), byte(at.Outcome), bitOf(at.Lost), bitOf(at.Doubt), at.Reported)
	}
	if w := f.Policy; w.ProviderWindow > 0 || w.Retry.Within > 0 {
		buf = binary.AppendVarint(buf, int64(f.FirstSend))
	}
	buf = binary.AppendVarint(buf, int64(f.NotBefore))
	buf = binary.AppendVarint(buf, int64(f.FinishedAt))
	if p := f.Probe; p != nil {
		buf = binary.AppendVarint(append(buf, 'p', byte(p.Tries), byte(p.Claim.Revision)), int64(p.NotBefore))
	}
	if r := f.Receipt; r != nil {
		buf = append(append(buf, 'r', byte(r.Outcome), byte(r.Source), bitOf(r.Body.Kept > 0)), r.ExternalID...)
	}
	if f.Wake != nil {
		buf = binary.AppendVarint(append(buf, 'w', bitOf(f.Wake.Callback)), int64(f.Wake.At))
	}
	if f.Settled != nil {
		buf = append(buf, 's', byte(f.Settled.Verb))
	}
	seen := byte(0)
	for _, e := range f.Evidence {
		if e.Outcome == flight.Succeeded {
			seen |= 1 << (2*bitOf(e.Generation == f.Generation) + bitOf(e.ExternalID == "x"))
		}
	}
	buf = append(buf, seen)
	for _, s := range f.Spent {
		buf = append(append(buf, 'n', s.Nonce[0]), s.Session...)
	}
	for _, p := range f.Past {
		buf = append(buf, 'g', byte(p.State))
		if p.Receipt != nil {
			buf = append(append(buf, bitOf(p.Receipt.Body.Kept > 0)), p.Receipt.ExternalID...)
		}
	}
	return buf
}

var digestSeed = maphash.MakeSeed()

func (w *world) digest(buf []byte) (uint64, []byte) {
	buf = w.fingerprintOf(buf[:0])
	return maphash.Bytes(digestSeed, buf), buf
}

// isStill reports whether nothing that the rules depend on is another than in v.
func (w *world) isStill(v *world) bool {
	return w == v || w.flights == v.flights && w.header.Now == v.header.Now && w.header.LeaseEpoch == v.header.LeaseEpoch &&
		w.header.EpochHold == v.header.EpochHold && len(w.voided) == len(v.voided)
}
