package lease

import (
	"encoding/binary"
	"errors"

	"github.com/flightd/flightd/flight"
)

// claimVersion is the first byte of every claim's value.
const claimVersion = 2

// ClaimValue is the value of a claim: under which session, and for which open, it was written. No two leases write the
// same value, so whoever finds it knows whose claim it is.
type ClaimValue struct {
	Epoch   uint32 // lease epoch
	Nonce   flight.Nonce
	Session flight.SessionID
}

// String encodes the value: version, epoch, nonce, session.
func (v ClaimValue) String() string {
	var buf [64]byte // longer session ids move to the heap
	b := append(buf[:0], claimVersion)
	b = binary.BigEndian.AppendUint32(b, v.Epoch)
	b = append(b, v.Nonce[:]...)
	return string(append(b, v.Session...))
}

var errClaimValue = errors.New("lease: this is not the value of a claim of this version")

// ParseClaimValue decodes the value of a claim.
func ParseClaimValue(s string) (v ClaimValue, err error) {
	const head = 1 + 4 + len(v.Nonce)
	if len(s) <= head || s[0] != claimVersion {
		return v, errClaimValue
	}
	v.Epoch = binary.BigEndian.Uint32([]byte(s[1:5]))
	copy(v.Nonce[:], s[5:head])
	v.Session = flight.SessionID(s[head:])
	return v, nil
}

// held reads an entry as a claim. Where the value cannot be decoded, the key and its revision are all that is known.
func (e Entry) held() (Held, error) {
	key, err := flight.ParseKey(e.Key)
	if err != nil {
		return Held{}, err
	}
	h := Held{Key: key, ModRevision: e.ModRevision}
	if v, err := ParseClaimValue(e.Value); err == nil {
		h.Session, h.Nonce = v.Session, v.Nonce
	}
	return h, nil
}
