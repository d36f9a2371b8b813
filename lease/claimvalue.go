package lease

import (
	"encoding/binary"
	"errors"

	"github.com/flightd/flightd/flight"
)

// claimVersion is the first byte of every claim's value.
const claimVersion = 2

// ClaimValue is the value of a claim: the session under which, and the nonce of the open for which it was written. No
// two leases write the same value, so the value identifies the owner of the claim.
type ClaimValue struct {
	Epoch   uint32 // lease epoch
	Nonce   flight.Nonce
	Session flight.SessionID
}

// String encodes the value: version, epoch, nonce, session.
func (v ClaimValue) String() string {
	var buf [64]byte // on the stack; longer session ids need the heap
	b := append(buf[:0], claimVersion)
	b = binary.BigEndian.AppendUint32(b, v.Epoch)
	b = append(b, v.Nonce[:]...)
	return string(append(b, v.Session...))
}

var errClaimValue = errors.New("lease: claim value is damaged or of another version")

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

// decode decodes the claim. If its value cannot be decoded, only key and revision are set.
func (c RawClaim) decode() (ListedClaim, error) {
	key, err := flight.ParseStoredKey(c.Key)
	if err != nil {
		return ListedClaim{}, err
	}
	h := ListedClaim{Key: key, ModRevision: c.ModRevision}
	if v, err := ParseClaimValue(c.Value); err == nil {
		h.Session, h.Nonce = v.Session, v.Nonce
	}
	return h, nil
}
