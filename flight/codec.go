package flight

import (
	"cmp"
	"errors"
	"fmt"
)

// CodecVersion is the first byte of every encoded command and record of this version.
const CodecVersion = 1

// ErrNewerCodec is returned for bytes that a newer flightd wrote. Nothing of them was applied. A node that reads them must
// stop.
var ErrNewerCodec = errors.New("flight: written by a newer version of flightd")

// Encode encodes a command: version, kind, then CBOR with integer keys (RFC 8949, core deterministic encoding). It returns an
// *InvalidError for a command that Decode would reject, because a node cannot continue after such a command in its log.
func Encode(c Command) ([]byte, error) {
	if err := checkDocumentCommand(c); err != nil {
		return nil, err
	}
	b, err := encode(c, CodecVersion, byte(c.kind()))
	if err != nil {
		return nil, &InvalidError{Field: "command", Detail: fmt.Sprintf("encode %T: %v", c, err)}
	}
	return b, nil
}

// encode encodes v after its head, usually in one allocation.
func encode(v any, head ...byte) ([]byte, error) {
	const spare = 32 // for the head, and a few longer numbers than size counts
	w := coder{b: append(make([]byte, 0, spare+v.(interface{ size() int }).size()), head...)}
	w.transcode(v)
	return w.b, w.err
}

// Decode decodes the form that Encode returns, and rejects any other bytes.
func Decode(b []byte) (Command, error) {
	if len(b) < 2 {
		return nil, errors.New("flight: decode command: shorter than two bytes")
	}
	if b[0] != CodecVersion {
		return nil, fmt.Errorf("%w: command of codec version %d", ErrNewerCodec, b[0])
	}
	c := newCommand(kind(b[1]))
	if c == nil {
		return nil, fmt.Errorf("%w: command of kind %d", ErrNewerCodec, b[1])
	}
	if err := decode(b[2:], c); err != nil {
		return nil, fmt.Errorf("flight: decode command of kind %d: %w", b[1], err)
	}
	if c.Target().IsZero() && !c.kind().keyless() {
		return nil, fmt.Errorf("flight: decode command of kind %d: the key is missing", b[1])
	}
	return c, nil
}

var errNoKeyFound = errors.New("flight: read key of command: no key found in the encoding")

// Target reads only the key of an encoded command, for readers of the log that select entries by key. The key is the first
// field of every command that has one; the fields after it are not decoded. Target returns the zero Key for commands about
// the header. Decode may still reject a command that Target accepts.
func Target(b []byte) (k Key, err error) {
	if len(b) < 2 {
		return Key{}, errNoKeyFound
	}
	if b[0] != CodecVersion {
		return Key{}, fmt.Errorf("%w: command of codec version %d", ErrNewerCodec, b[0])
	}
	if kind(b[1]).keyless() {
		return Key{}, nil
	}
	r := coder{b: b[2:], reading: true}
	r.beginMap()
	if r.keyField(1, &k, true); k.IsZero() { // an error after the key is for Decode to report
		return Key{}, cmp.Or(r.err, errNoKeyFound)
	}
	return k, nil
}

// decode decodes all of b into v, which must be zero. v does not alias b.
func decode(b []byte, v any) error {
	r := coder{b: b, reading: true}
	if r.transcode(v); r.err == nil && len(r.b) > 0 {
		return errTrailingData
	}
	return r.err
}

// storedRecord is any type that is stored by itself, outside a command.
type storedRecord interface {
	*Flight | *Header | *Event | *DuplicateStats | *Document | *AuditEntry
}

// EncodeRecord encodes a flight, a header, an event, duplicate statistics, a document or a line of the audit log as they
// are stored: version, then CBOR.
func EncodeRecord[R storedRecord](r R) ([]byte, error) {
	b, err := encode(r, CodecVersion)
	if err != nil {
		return nil, fmt.Errorf("flight: encode %T: %w", r, err)
	}
	return b, nil
}

// AppendRecord appends the result of EncodeRecord to b. It retains neither argument.
func AppendRecord[R storedRecord](b []byte, r R) ([]byte, error) {
	w := coder{b: append(b, CodecVersion)}
	w.transcode(r)
	return w.b, w.err
}

// DecodeRecord decodes the form that EncodeRecord returns into r.
func DecodeRecord[R storedRecord](b []byte, r R) error {
	if len(b) == 0 {
		return errors.New("flight: decode record: it is empty")
	}
	if b[0] != CodecVersion {
		return fmt.Errorf("%w: record of codec version %d", ErrNewerCodec, b[0])
	}
	if err := decode(b[1:], r); err != nil {
		return fmt.Errorf("flight: decode %T: %w", r, err)
	}
	return nil
}
