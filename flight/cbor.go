package flight

// The major types of CBOR (RFC 8949, section 3.1), shifted to their bits of a head.
const (
	cborUint  = 0 << 5
	cborMinus = 1 << 5 // -1 minus the argument
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5
	cborFalse = 7<<5 | 20
	cborTrue  = 7<<5 | 21
)

// The values of a CBOR head that announce an argument of 1, 2, 4 or 8 bytes; smaller arguments are part of the head itself.
const (
	cbor8 = 24 + iota
	cbor16
	cbor32
	cbor64
)

// appendHead appends a head in its shortest form, as deterministic encoding requires.
func appendHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < cbor8:
		return append(b, major|byte(n))
	case n <= 0xff:
		return append(b, major|cbor8, byte(n))
	case n <= 0xffff:
		return append(b, major|cbor16, byte(n>>8), byte(n))
	case n <= 0xffff_ffff:
		return append(b, major|cbor32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, major|cbor64, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32),
		byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}
