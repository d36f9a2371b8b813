package flight

import (
	"crypto/sha256"
	"encoding/hex"
)

// Trace is a span of W3C Trace Context: the 16 bytes of its trace id, then the 8 bytes of its own id. Only sampled spans are stored,
// and only while a node exports spans.
type Trace [24]byte

// IsZero reports whether t is the zero Trace: no trace.
func (t Trace) IsZero() bool { return t == Trace{} }

// Traceparent returns t as the header of W3C Trace Context, or "" for the zero Trace.
func (t Trace) Traceparent() string {
	if t.IsZero() {
		return ""
	}
	return "00-" + hex.EncodeToString(t[:16]) + "-" + hex.EncodeToString(t[16:]) + "-01"
}

// Span returns the span of an attempt of the flight, which is in the trace of the call that opened it; zero: the attempt has no trace. Its id
// follows from the key and the nonce. So every node links the same span, also years later, although nobody has stored the id.
func (f *Flight) Span(a *Attempt) Trace {
	if a == nil || a.Trace.IsZero() {
		return Trace{}
	}
	span, id := a.Trace, sha256.Sum256(append(append([]byte("flightd span "), f.ID[:]...), a.Nonce[:]...))
	copy(span[16:], id[:])
	return span
}
