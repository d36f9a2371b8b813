package flight_test

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/flightd/flightd/flight"
)

var digestSeed = maphash.MakeSeed()

func (l *ledger) digest(buf []byte) (uint64, []byte) {
	buf = l.appendState(buf[:0])
	return maphash.Bytes(digestSeed, buf), buf
}

// equals reports whether w and v are equal in every field that a rule depends on.
func (l *ledger) equals(v *ledger) bool {
	return l == v || l.flights == v.flights && l.header.Now == v.header.Now && l.header.Wall == v.header.Wall && sameHeader(l.header, v.header) &&
		len(l.usedUp) == len(v.usedUp) && len(l.ended) == len(v.ended)
}

// appendState appends every part of the state that a rule depends on. It leaves out versions, texts, the times at which
// attempts were closed, and the time for which a session is remembered as ended: that is longer than any Open of these
// tests is valid, except the Open of the third nonce.
func (l *ledger) appendState(buf []byte) []byte {
	buf = binary.AppendVarint(buf, int64(l.header.Now))
	buf = binary.AppendVarint(buf, int64(l.header.Wall))
	buf = binary.AppendVarint(buf, int64(l.header.Steps))
	buf = append(buf, byte(l.header.LeaseEpoch), byte(l.header.StoreEpoch), byte(l.header.GuardCounter))
	buf = binary.AppendVarint(buf, int64(l.header.EpochHold))
	for i := range sessions {
		buf = append(buf, bitOf(l.hasEnded(sessions[i].ID)))
	}
	for i := range l.keys {
		buf = appendFlight(append(buf, '|'), l.flights[i])
		for _, n := range [...]flight.Nonce{nonce1, nonce2, nonce3} {
			ref := nonceRef{i, n}
			buf = append(buf, bitOf(l.openedNonces[ref]), bitOf(l.usedUp[ref]))
		}
		for _, at := range l.openedAttempts[i] {
			buf = append(buf, byte(at.generation), byte(at.token.Number), byte(at.token.StoreEpoch))
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

func appendSession(buf []byte, x flight.Session) []byte {
	return append(append(buf, byte(x.Epoch)), x.ID...)
}

func appendFlight(buf []byte, f *flight.Flight) []byte {
	if f == nil {
		return buf
	}
	buf = append(buf, byte(f.Generation), byte(f.State), f.Fingerprint[0], byte(f.TaintingAttempts), byte(f.CountedAttempts), byte(f.AttemptCount),
		bitOf(f.Cancel != nil), bitOf(f.Redacted != nil), bitOf(f.Overlap), bitOf(f.Sealed), byte(f.Phase), byte(f.FinalState),
		byte(f.Fence.Number), byte(f.Fence.StoreEpoch))
	for i := range f.Attempts {
		at := &f.Attempts[i]
		buf = appendSession(append(buf, '.'), at.Session)
		buf = append(buf, at.Nonce[0], byte(at.StoreEpoch), bitOf(at.IsOpen()), byte(at.Outcome), bitOf(at.Lost), bitOf(at.Taints), at.ReportedOutcomes)
	}
	if p := f.Policy; p.ProviderWindow > 0 || p.Retry.Within > 0 {
		buf = binary.AppendVarint(buf, int64(f.FirstSend))
	}
	if at := f.OpenAttempt(); at != nil && f.Policy.AttemptTimeout > 0 {
		buf = binary.AppendVarint(buf, int64(at.OpenedAt))
	}
	buf = binary.AppendVarint(buf, int64(f.Steps))
	buf = binary.AppendVarint(buf, int64(f.NotBefore))
	buf = binary.AppendVarint(buf, int64(f.FinishedAt))
	if p := f.Verification; p != nil {
		buf = binary.AppendVarint(append(buf, 'p', byte(p.Tries), p.Nonce[0]), int64(p.NotBefore))
		buf = binary.AppendVarint(appendSession(buf, p.Session), int64(p.Until))
	}
	if r := f.Receipt; r != nil {
		buf = append(append(buf, 'r', byte(r.Outcome), byte(r.Source), bitOf(r.Body.StoredSize > 0)), r.ExternalID...)
	}
	if f.Wake != nil {
		buf = binary.AppendVarint(append(buf, 'w', bitOf(f.Wake.Callback)), int64(f.Wake.At))
	}
	if f.Resolution != nil {
		buf = append(buf, 's', byte(f.Resolution.Finding))
	}
	seen := byte(0)
	for _, e := range f.Evidence {
		if e.Outcome == flight.OutcomeSucceeded {
			seen |= 1 << (2*bitOf(e.Generation == f.Generation) + bitOf(e.ExternalID == "x"))
		}
	}
	buf = append(buf, seen)
	for _, u := range f.UsedNonces {
		buf = append(buf, 'n', u.Nonce[0])
	}
	for _, p := range f.PreviousGenerations {
		buf = append(buf, 'g', byte(p.State))
		if p.Receipt != nil {
			buf = append(append(buf, bitOf(p.Receipt.Body.StoredSize > 0)), p.Receipt.ExternalID...)
		}
	}
	return buf
}
