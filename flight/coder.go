package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Every flight writes an Open, a Report, its record and some events, and a replay that is not at hand reads a record.
// Reflection over them takes about three times as long as this and leaves more garbage. So these types, and what they are
// made of, say by hand what they consist of, once for writing and reading: field by field in the order of their numbers,
// which is the order of the core deterministic encoding, to exactly the bytes that their struct tags promise. A new
// field is added in coder_commands.go or coder_records.go too; a test compares every field with its tag.

// coder goes over a value and appends it to b, or reads it off b. A zero field is left out, as omitempty does.
type coder struct {
	b      []byte // what was written; or what is left to read
	reads  bool
	err    error // what was wrong first; nothing is read after it
	fields       // of the map that it is in
	outer  [maxDepth]fields
	depth  int
}

// maxDepth is how deep the types written by hand are nested: a flight, its past, a receipt, a body.
const maxDepth = 4

// fields is a map from integers that is being written or read.
type fields struct {
	head int // writing: the position of the map's head
	n    int // writing: how many fields; reading: how many follow the next one
	next int // reading: the number of the next field; noField after the last one, and while writing
}

const noField = -1

// roomy is what guesses how many bytes it usually needs at most; a wrong guess costs time and nothing else.
type roomy interface{ room() int }

var (
	errCut   = errors.New("it ends too early")
	errShape = errors.New("something else stands where a field was expected")
	errRange = errors.New("a number is out of its range")
	errUTF8  = errors.New("a text is not UTF-8")
	errLong  = errors.New("something stands behind its end")
)

// fail remembers what was wrong; nothing is read any more.
func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b, c.next = nil, noField
}

// readHead reads a head.
func (c *coder) readHead() (major byte, n uint64) {
	if len(c.b) == 0 {
		c.fail(errCut)
		return 0, 0
	}
	major, short := c.b[0]&0xe0, c.b[0]&0x1f
	c.b = c.b[1:]
	if short < cbor8 {
		return major, uint64(short)
	}
	if short > cbor64 { // reserved, or of indefinite length, which is never deterministic
		c.fail(errShape)
		return 0, 0
	}
	size := 1 << (short - cbor8)
	if len(c.b) < size {
		c.fail(errCut)
		return 0, 0
	}
	var full [8]byte
	copy(full[8-size:], c.b)
	c.b = c.b[size:]
	return major, binary.BigEndian.Uint64(full[:])
}

// want reads a head of that type.
func (c *coder) want(major byte) uint64 {
	got, n := c.readHead()
	if c.err == nil && got != major {
		c.fail(errShape)
	}
	if c.err != nil {
		return 0
	}
	return n
}

// count reads a head of that type whose argument counts what follows, of which nothing is shorter than a byte.
func (c *coder) count(major byte) int {
	n := c.want(major)
	if n > uint64(len(c.b)) {
		c.fail(errCut)
		return 0
	}
	return int(n)
}

// take reads the bytes or the text that comes next. It is the coder's own memory.
func (c *coder) take(major byte) []byte {
	n := c.count(major)
	data := c.b[:n]
	c.b = c.b[n:]
	return data
}

// begin enters a map.
func (c *coder) begin() {
	c.outer[c.depth] = c.fields
	c.depth++
	if c.reads {
		c.n = c.count(cborMap)
		c.advance()
		return
	}
	c.fields = fields{head: len(c.b), next: noField}
	c.b = append(c.b, cborMap)
}

// end leaves a map. Writing, one byte was left for its head; a map of more fields than that can say is moved up.
func (c *coder) end() {
	switch {
	case c.reads:
		if c.next != noField {
			c.fail(fmt.Errorf("a field %d stands where none was expected", c.next))
		}
	case c.n < cbor8:
		c.b[c.head] |= byte(c.n)
	default:
		c.b = append(c.b, 0)
		copy(c.b[c.head+2:], c.b[c.head+1:])
		c.b[c.head], c.b[c.head+1] = cborMap|cbor8, byte(c.n)
	}
	c.depth--
	c.fields = c.outer[c.depth]
}

// advance reads the number of the next field of a map.
func (c *coder) advance() {
	c.next = noField
	if c.n == 0 || c.err != nil {
		return
	}
	c.n--
	const most = 1 << 16 // fields have small numbers
	switch n := c.want(cborUint); {
	case c.err != nil:
	case n > most:
		c.fail(errRange)
	default:
		c.next = int(n)
	}
}

// has reports whether the value of field k, which is not left out, is to be written or read now. A caller that reads it calls
// advance. Most fields are left out; so those that ask for one look first whether it could be, where the compiler puts
// that in their place.
func (c *coder) has(k byte) bool {
	if c.reads {
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

// enter goes into the map in field k, if it is there. A caller that gets true calls leave.
func (c *coder) enter(k byte, present bool) bool {
	return (present || c.next == int(k)) && c.mapAt(k)
}

func (c *coder) mapAt(k byte) bool {
	if !c.has(k) {
		return false
	}
	c.begin()
	return true
}

func (c *coder) leave() {
	c.end()
	if c.reads {
		c.advance()
	}
}

// made is what p points to, allocated when reading.
func made[T any](c *coder, p **T) *T {
	if c.reads {
		*p = new(T)
	}
	return *p
}

// list goes into the list in field k, if it is there, allocated when reading. A caller that gets true goes over its
// items, each between begin and end, and calls listed.
func list[T any](c *coder, k byte, p *[]T) bool {
	return (len(*p) > 0 || c.next == int(k)) && listAt(c, k, p)
}

func listAt[T any](c *coder, k byte, p *[]T) bool {
	if !c.has(k) {
		return false
	}
	if c.reads {
		*p = make([]T, c.count(cborArray))
	} else {
		c.b = appendHead(c.b, cborArray, uint64(len(*p)))
	}
	return true
}

func (c *coder) listed() {
	if c.reads {
		c.advance()
	}
}

type integer interface {
	~uint8 | ~uint32 | ~uint64 | ~int | ~int64
}

// number is a number that is left out when it is zero.
func number[T integer](c *coder, k byte, p *T) {
	if *p != 0 || c.next == int(k) {
		always(c, k, p)
	}
}

// always is a number that is written whatever it is.
func always[T integer](c *coder, k byte, p *T) {
	switch {
	case !c.has(k):
	case c.reads:
		*p = readNumber[T](c)
		c.advance()
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
		c.fail(errRange)
	default:
		c.fail(errShape)
	}
	return 0
}

func (c *coder) flag(k byte, p *bool) {
	if *p || c.next == int(k) {
		c.flagAt(k, p)
	}
}

func (c *coder) flagAt(k byte, p *bool) {
	switch {
	case !c.has(k):
	case !c.reads:
		c.b = append(c.b, cborTrue)
	case len(c.b) > 0 && (c.b[0] == cborTrue || c.b[0] == cborFalse):
		*p = c.b[0] == cborTrue
		c.b = c.b[1:]
		c.advance()
	default:
		c.fail(errShape)
	}
}

func str[T ~string](c *coder, k byte, p *T) {
	if *p != "" || c.next == int(k) {
		strAt(c, k, p)
	}
}

func strAt[T ~string](c *coder, k byte, p *T) {
	switch {
	case !c.has(k):
	case c.reads:
		*p = T(c.readText())
		c.advance()
	default:
		if !utf8.ValidString(string(*p)) {
			c.err = errUTF8 // nobody could read it
		}
		c.b = append(appendHead(c.b, cborText, uint64(len(*p))), *p...)
	}
}

func (c *coder) readText() string {
	b := c.take(cborText)
	if !utf8.Valid(b) {
		c.fail(errUTF8)
		return ""
	}
	return string(b)
}

// data is bytes of any number.
func (c *coder) data(k byte, p *[]byte) {
	if len(*p) > 0 || c.next == int(k) {
		c.dataAt(k, p)
	}
}

func (c *coder) dataAt(k byte, p *[]byte) {
	switch {
	case !c.has(k):
	case c.reads:
		*p = append([]byte{}, c.take(cborBytes)...)
		c.advance()
	default:
		c.b = append(appendHead(c.b, cborBytes, uint64(len(*p))), *p...)
	}
}

// exact is bytes of which there are always as many: a digest, an id, a nonce.
func (c *coder) exact(k byte, p []byte, present bool) {
	if present || c.next == int(k) {
		c.exactAt(k, p)
	}
}

func (c *coder) exactAt(k byte, p []byte) {
	switch {
	case !c.has(k):
	case !c.reads:
		c.b = append(appendHead(c.b, cborBytes, uint64(len(p))), p...)
	default:
		if b := c.take(cborBytes); len(b) == len(p) {
			copy(p, b)
		} else {
			c.fail(errShape)
		}
		c.advance()
	}
}

func (c *coder) key(k byte, p *Key, present bool) {
	switch {
	case !present && c.next != int(k), !c.has(k):
	case !c.reads:
		c.b = p.appendCBOR(c.b)
	default:
		if err := p.parse(c.readText()); err != nil {
			c.fail(err)
		}
		c.advance()
	}
}

func (k Key) appendCBOR(b []byte) []byte {
	return append(appendHead(b, cborText, uint64(len(k.full))), k.full...)
}
