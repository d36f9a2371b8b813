package flight

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// SessionID names a session: a party that holds claims and must keep renewing its right to them.
type SessionID string

// Claim is what a lease grants: the right to run attempts for one key, as long as the session lives.
// Of two claims on a key the one with the greater (Epoch, Revision) is the newer; the older one's key was gone from
// etcd before the newer one could be made.
type Claim struct {
	Epoch    uint32    `cbor:"1,keyasint,omitempty"` // lease epoch, raised by an operator when etcd lost its past
	Revision int64     `cbor:"2,keyasint,omitempty"` // etcd revision of the transaction that made the claim
	Session  SessionID `cbor:"3,keyasint,omitempty"` // whose it is
}

// Compare orders claims by age: negative when c is the older one.
func (c Claim) Compare(d Claim) int {
	return cmp.Or(cmp.Compare(c.Epoch, d.Epoch), cmp.Compare(c.Revision, d.Revision))
}

// Token is the fencing token of an attempt: strictly increasing per key. Epoch and revision are the claim's and may
// repeat under one lease; the number is given by the ledger at Open and never restarts.
type Token struct {
	Epoch    uint32 `cbor:"1,keyasint,omitempty"`
	Revision int64  `cbor:"2,keyasint,omitempty"`
	Number   uint32 `cbor:"3,keyasint,omitempty"`
}

// Compare orders tokens by age: negative when t is the older one.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.Epoch, u.Epoch), cmp.Compare(t.Revision, u.Revision), cmp.Compare(t.Number, u.Number))
}

// IsZero reports whether t is no token at all.
func (t Token) IsZero() bool { return t == Token{} }

// The lengths of a sealed token's two halves in hex digits: epoch, revision, number, generation and the hash of a
// session; and the MAC over them and the flight's id.
const (
	sealedNumbers = 2 * (4 + 8 + 4 + 4 + 8)
	sealedMAC     = 2 * 16
)

// Seal writes the token for the wire: fixed width, so that strings sort by age, and bound by a MAC under the
// deployment's secret to one flight, generation and session, so that it is worthless anywhere else.
func (t Token) Seal(secret []byte, id ID, generation uint32, session SessionID) string {
	var numbers [sealedNumbers / 2]byte
	binary.BigEndian.PutUint32(numbers[0:], t.Epoch)
	binary.BigEndian.PutUint64(numbers[4:], uint64(t.Revision))
	binary.BigEndian.PutUint32(numbers[12:], t.Number)
	binary.BigEndian.PutUint32(numbers[16:], generation)
	hash := sha256.Sum256([]byte(session))
	copy(numbers[20:], hash[:8])
	sealed := make([]byte, 0, sealedNumbers+1+sealedMAC)
	sealed = append(hex.AppendEncode(sealed, numbers[:]), '.')
	return string(hex.AppendEncode(sealed, tokenMAC(secret, numbers[:], id)))
}

// OpenSeal reads a sealed token and the generation it belongs to. It refuses with an *InvalidError one that was not
// sealed for this flight under this secret.
func OpenSeal(s string, secret []byte, id ID) (t Token, generation uint32, err error) {
	head, tail, ok := strings.Cut(s, ".")
	numbers, err1 := hex.DecodeString(head)
	mac, err2 := hex.DecodeString(tail)
	if !ok || err1 != nil || err2 != nil || len(head) != sealedNumbers || len(tail) != sealedMAC || strings.ContainsAny(s, "ABCDEF") {
		return Token{}, 0, &InvalidError{Field: "fencing_token", Detail: "this is not a fencing token of flightd"}
	}
	if !hmac.Equal(mac, tokenMAC(secret, numbers, id)) {
		return Token{}, 0, &InvalidError{Field: "fencing_token", Detail: "this fencing token belongs to another flight or deployment"}
	}
	t = Token{
		Epoch:    binary.BigEndian.Uint32(numbers[0:]),
		Revision: int64(binary.BigEndian.Uint64(numbers[4:])),
		Number:   binary.BigEndian.Uint32(numbers[12:]),
	}
	return t, binary.BigEndian.Uint32(numbers[16:]), nil
}

func tokenMAC(secret, numbers []byte, id ID) []byte {
	mac := hmacSHA256(secret, numbers, id[:])
	return mac[:sealedMAC/2]
}

// hmacSHA256 is HMAC (RFC 2104) with SHA-256 over both parts, on the stack: every attempt is sealed, and crypto/hmac
// allocates eight objects for it. A test holds it against crypto/hmac.
func hmacSHA256(key, first, second []byte) [sha256.Size]byte {
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	var room [2 * sha256.BlockSize]byte
	inner := room[:sha256.BlockSize]
	copy(inner, key)
	for i := range inner {
		inner[i] ^= 0x36
	}
	sum := sha256.Sum256(append(append(inner, first...), second...))
	var outer [sha256.BlockSize + sha256.Size]byte
	copy(outer[:], key)
	for i := range outer[:sha256.BlockSize] {
		outer[i] ^= 0x5c
	}
	copy(outer[sha256.BlockSize:], sum[:])
	return sha256.Sum256(outer[:])
}
