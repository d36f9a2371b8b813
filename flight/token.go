package flight

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// SessionID is the id of a session: 128 random bits as text, never etcd's lease id.
type SessionID string

// Session identifies a session: an etcd lease and the session key attached to it. A session is created once and ends once.
// Its owner may act while the session key is in etcd.
type Session struct {
	ID       SessionID `cbor:"1,keyasint,omitempty"`
	Revision int64     `cbor:"2,keyasint,omitempty"` // etcd create revision of the session key
	Epoch    uint32    `cbor:"3,keyasint,omitempty"` // lease epoch in which the session was created
	OneShot  bool      `cbor:"4,keyasint,omitempty"` // a node created it for one Open; it ends with the report of that attempt
}

// Token is the fencing token of an attempt. Tokens of one key strictly increase: the ledger assigns the number, which rises
// with each attempt of the key and never restarts, and the store epoch rises when an older ledger is restored.
type Token struct {
	StoreEpoch uint32 `cbor:"1,keyasint,omitempty"`
	Number     uint32 `cbor:"2,keyasint,omitempty"`
}

// Compare orders tokens by age: negative when t is the older one.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.StoreEpoch, u.StoreEpoch), cmp.Compare(t.Number, u.Number))
}

// IsZero reports whether t is the zero Token, which no attempt has.
func (t Token) IsZero() bool { return t == Token{} }

// The lengths of a sealed token's two halves in hex digits: store epoch, number, generation and the hash of a session;
// and the MAC over them and the flight's id.
const (
	sealedNumbers = 2 * (4 + 4 + 4 + 8)
	sealedMAC     = 2 * 16
)

// Seal encodes the token for the wire. The width is fixed, so that sealed tokens sort by age. A MAC under the deployment's
// secret binds the token to one flight, generation and session; no other flight accepts it. An empty secret seals nothing,
// because anybody could compute the MAC: the result is "", which is no token.
func (t Token) Seal(secret []byte, id ID, generation uint32, session SessionID) string {
	if len(secret) == 0 {
		return ""
	}
	var numbers [sealedNumbers / 2]byte
	binary.BigEndian.PutUint32(numbers[0:], t.StoreEpoch)
	binary.BigEndian.PutUint32(numbers[4:], t.Number)
	binary.BigEndian.PutUint32(numbers[8:], generation)
	hash := sha256.Sum256([]byte(session))
	copy(numbers[12:], hash[:8])
	sealed := make([]byte, 0, sealedNumbers+1+sealedMAC)
	sealed = append(hex.AppendEncode(sealed, numbers[:]), '.')
	return string(hex.AppendEncode(sealed, tokenMAC(secret, numbers[:], id)))
}

// Unseal decodes a sealed token and its generation. It returns an *InvalidError for a token that was not sealed for this
// flight under this secret, and for every token while the secret is empty.
func Unseal(s string, secret []byte, id ID) (t Token, generation uint32, err error) {
	head, tail, ok := strings.Cut(s, ".")
	numbers, err1 := hex.DecodeString(head)
	mac, err2 := hex.DecodeString(tail)
	if !ok || err1 != nil || err2 != nil || len(head) != sealedNumbers || len(tail) != sealedMAC || strings.ContainsAny(s, "ABCDEF") {
		return Token{}, 0, &InvalidError{Field: "fencing_token", Detail: "this is not a fencing token of flightd"}
	}
	if len(secret) == 0 || !hmac.Equal(mac, tokenMAC(secret, numbers, id)) {
		return Token{}, 0, &InvalidError{Field: "fencing_token", Detail: "this fencing token belongs to another flight or deployment"}
	}
	t = Token{StoreEpoch: binary.BigEndian.Uint32(numbers[0:]), Number: binary.BigEndian.Uint32(numbers[4:])}
	return t, binary.BigEndian.Uint32(numbers[8:]), nil
}

func tokenMAC(secret, numbers []byte, id ID) []byte {
	mac := hmacSHA256(secret, numbers, id[:])
	return mac[:sealedMAC/2]
}

// hmacSHA256 is HMAC (RFC 2104) with SHA-256 over both parts. It allocates nothing; crypto/hmac allocates eight objects, and
// every attempt is sealed. A test compares it with crypto/hmac.
func hmacSHA256(key, first, second []byte) [sha256.Size]byte {
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	var block [2 * sha256.BlockSize]byte
	inner := block[:sha256.BlockSize]
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
