package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// The ledger reads and writes a few rows for each flight, so the coder uses no reflection, which takes about three times as long and leaves
// more garbage. codergen writes a transcode method for each type from its struct tags, for both directions. The order of the fields'
// numbers is the order of the core deterministic encoding.

//go:generate go run ./internal/codergen

// coder appends a value to b, or reads it from b. A zero field is left out, as omitempty does.
type coder struct {
	b         []byte // the output; or the unread input
	reading   bool
	err       error // the first error; nothing is read after it
	fields          // of the current map
	enclosing [maxDepth]fields
	depth     int
}

// maxDepth is the nesting depth of the types: a flight, a previous generation, a receipt, a body.
const maxDepth = 4

// fields is a map from integers that is being written or read.
type fields struct {
	head int // writing: the position of the map's head
	n    int // writing: number of fields; reading: number of fields after the next one
	next int // reading: the number of the next field; noField after the last one, and while writing
}

const noField = -1

var (
	errTruncated      = errors.New("unexpected end of data")
	errUnexpectedType = errors.New("unexpected type")
	errOutOfRange     = errors.New("number out of range")
	errInvalidUTF8    = errors.New("text is not valid UTF-8")
	errTrailingData   = errors.New("trailing data")
)

// fail records the first error and stops reading.
func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b, c.next = nil, noField
}

// readHead reads a head.
func (c *coder) readHead() (major byte, n uint64) {
	if len(c.b) == 0 {
		c.fail(errTruncated)
		return 0, 0
	}
	major, short := c.b[0]&0xe0, c.b[0]&0x1f
	c.b = c.b[1:]
	if short < cbor8 {
		return major, uint64(short)
	}
	if short > cbor64 { // reserved, or of indefinite length, which is never deterministic
		c.fail(errUnexpectedType)
		return 0, 0
	}
	size := 1 << (short - cbor8)
	if len(c.b) < size {
		c.fail(errTruncated)
		return 0, 0
	}
	var full [8]byte
	copy(full[8-size:], c.b)
	c.b = c.b[size:]
	return major, binary.BigEndian.Uint64(full[:])
}

// readHeadOf reads a head of the given major type and returns its argument.
func (c *coder) readHeadOf(major byte) uint64 {
	got, n := c.readHead()
	if c.err == nil && got != major {
		c.fail(errUnexpectedType)
	}
	if c.err != nil {
		return 0
	}
	return n
}

// readLength reads a head of the given major type whose argument is a number of bytes or elements. Each element has at
// least one byte, so a greater length than the unread input is an error, found before any allocation.
func (c *coder) readLength(major byte) int {
	n := c.readHeadOf(major)
	if n > uint64(len(c.b)) {
		c.fail(errTruncated)
		return 0
	}
	return int(n)
}

// readBytes reads a byte string or a text. The result aliases the coder's buffer.
func (c *coder) readBytes(major byte) []byte {
	n := c.readLength(major)
	data := c.b[:n]
	c.b = c.b[n:]
	return data
}

// beginMap enters a map.
func (c *coder) beginMap() {
	c.enclosing[c.depth] = c.fields
	c.depth++
	if c.reading {
		c.n = c.readLength(cborMap)
		c.nextField()
		return
	}
	c.fields = fields{head: len(c.b), next: noField}
	c.b = append(c.b, cborMap)
}

// endMap leaves a map. When writing, one byte was reserved for the head; a map with more fields than fit is shifted by a
// byte.
func (c *coder) endMap() {
	switch {
	case c.reading:
		if c.next != noField {
			c.fail(fmt.Errorf("unexpected field %d", c.next))
		}
	case c.n < cbor8:
		c.b[c.head] |= byte(c.n)
	default:
		c.b = append(c.b, 0)
		copy(c.b[c.head+2:], c.b[c.head+1:])
		c.b[c.head], c.b[c.head+1] = cborMap|cbor8, byte(c.n)
	}
	c.depth--
	c.fields = c.enclosing[c.depth]
}

// nextField reads the number of the next field of a map.
func (c *coder) nextField() {
	c.next = noField
	if c.n == 0 || c.err != nil {
		return
	}
	c.n--
	const most = 1 << 16 // fields have small numbers
	switch n := c.readHeadOf(cborUint); {
	case c.err != nil:
	case n > most:
		c.fail(errOutOfRange)
	default:
		c.next = int(n)
	}
}

// atField reports whether the value of field k is to be written or read now; when writing, it appends the field's number. A
// caller that reads the value calls nextField afterwards. Most fields are left out; so the callers test for
// that case first, in code small enough to be inlined.
func (c *coder) atField(k byte) bool {
	if c.reading {
		return c.next == int(k)
	}
	c.n++
	if k < cbor8 {
		c.b = append(c.b, k)
	} else {
		c.b = append(c.b, cbor8, k)
	}
	return true
}

// beginField enters the map in field k, if the field is present. A caller that gets true must call endField.
func (c *coder) beginField(k byte, present bool) bool {
	return (present || c.next == int(k)) && c.beginMapAt(k)
}

func (c *coder) beginMapAt(k byte) bool {
	if !c.atField(k) {
		return false
	}
	c.beginMap()
	return true
}

func (c *coder) endField() {
	c.endMap()
	if c.reading {
		c.nextField()
	}
}

// allocOnRead returns *p, which it allocates when reading.
func allocOnRead[T any](c *coder, p **T) *T {
	if c.reading {
		*p = new(T)
	}
	return *p
}

// beginList enters the list in field k, if the field is present, and allocates the list when reading. A caller that gets true
// transcodes each element between beginMap and endMap, and then calls endList.
func beginList[T any](c *coder, k byte, p *[]T) bool {
	return (len(*p) > 0 || c.next == int(k)) && beginListAt(c, k, p)
}

func beginListAt[T any](c *coder, k byte, p *[]T) bool {
	if !c.atField(k) {
		return false
	}
	if c.reading {
		*p = make([]T, c.readLength(cborArray))
	} else {
		c.b = appendHead(c.b, cborArray, uint64(len(*p)))
	}
	return true
}

func (c *coder) endList() {
	if c.reading {
		c.nextField()
	}
}

type integer interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int | ~int16 | ~int64
}

// numberField is a number that is left out when it is zero.
func numberField[T integer](c *coder, k byte, p *T) {
	if *p != 0 || c.next == int(k) {
		requiredNumberField(c, k, p)
	}
}

// requiredNumberField is a number that is always written.
func requiredNumberField[T integer](c *coder, k byte, p *T) {
	switch {
	case !c.atField(k):
	case c.reading:
		*p = readNumber[T](c)
		c.nextField()
	case *p < 0:
		c.b = appendHead(c.b, cborMinus, uint64(^*p))
	default:
		c.b = appendHead(c.b, cborUint, uint64(*p))
	}
}

func readNumber[T integer](c *coder) T {
	major, n := c.readHead()
	switch v := T(n); {
	case c.err != nil:
	case major == cborUint && uint64(v) == n && v >= 0:
		return v
	case major == cborMinus && int64(n) >= 0 && int64(^v) == ^int64(n) && ^v < 0:
		return ^v
	case major == cborUint, major == cborMinus:
		c.fail(errOutOfRange)
	default:
		c.fail(errUnexpectedType)
	}
	return 0
}

func (c *coder) boolField(k byte, p *bool) {
	if *p || c.next == int(k) {
		c.boolFieldAt(k, p)
	}
}

func (c *coder) boolFieldAt(k byte, p *bool) {
	switch {
	case !c.atField(k):
	case !c.reading:
		c.b = append(c.b, cborTrue)
	case len(c.b) > 0 && (c.b[0] == cborTrue || c.b[0] == cborFalse):
		*p = c.b[0] == cborTrue
		c.b = c.b[1:]
		c.nextField()
	default:
		c.fail(errUnexpectedType)
	}
}

// textField is a text that is left out when it is empty.
func textField[T ~string](c *coder, k byte, p *T) {
	if *p != "" || c.next == int(k) {
		requiredTextField(c, k, p)
	}
}

// requiredTextField is a text that is always written.
func requiredTextField[T ~string](c *coder, k byte, p *T) {
	switch {
	case !c.atField(k):
	case c.reading:
		*p = T(c.readText())
		c.nextField()
	default:
		if !utf8.ValidString(string(*p)) {
			c.err = errInvalidUTF8 // Decode would reject it
		}
		c.b = append(appendHead(c.b, cborText, uint64(len(*p))), *p...)
	}
}

func (c *coder) readText() string {
	b := c.readBytes(cborText)
	if !utf8.Valid(b) {
		c.fail(errInvalidUTF8)
		return ""
	}
	return string(b)
}

// bytesField is a byte string of any length.
func (c *coder) bytesField(k byte, p *[]byte) {
	if len(*p) > 0 || c.next == int(k) {
		c.bytesFieldAt(k, p)
	}
}

func (c *coder) bytesFieldAt(k byte, p *[]byte) {
	switch {
	case !c.atField(k):
	case c.reading:
		*p = append([]byte{}, c.readBytes(cborBytes)...)
		c.nextField()
	default:
		c.b = append(appendHead(c.b, cborBytes, uint64(len(*p))), *p...)
	}
}

// fixedBytesField is a byte string of fixed length: a digest, an id, a nonce.
func (c *coder) fixedBytesField(k byte, p []byte, present bool) {
	if present || c.next == int(k) {
		c.fixedBytesFieldAt(k, p)
	}
}

func (c *coder) fixedBytesFieldAt(k byte, p []byte) {
	switch {
	case !c.atField(k):
	case !c.reading:
		c.b = append(appendHead(c.b, cborBytes, uint64(len(p))), p...)
	default:
		if b := c.readBytes(cborBytes); len(b) == len(p) {
			copy(p, b)
		} else {
			c.fail(errUnexpectedType)
		}
		c.nextField()
	}
}

func (c *coder) keyField(k byte, p *Key, present bool) {
	switch {
	case !present && c.next != int(k), !c.atField(k):
	case !c.reading:
		c.b = append(appendHead(c.b, cborText, uint64(len(p.full))), p.full...)
	default:
		if err := p.parse(c.readText()); err != nil {
			c.fail(err)
		}
		c.nextField()
	}
}
