package flight

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// CodecVersion is the first byte of every encoded command and record of this version.
const CodecVersion = 1

// ErrNewerCodec is returned for bytes that a newer flightd wrote: a node that reads them must not go on, and it has
// applied nothing of them.
var ErrNewerCodec = errors.New("flight: written by a newer version of flightd")

var encMode, decMode = codecModes()

func codecModes() (cbor.UserBufferEncMode, cbor.DecMode) {
	opts := cbor.CoreDetEncOptions()
	enc, err := opts.UserBufferEncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		MaxNestedLevels:   16,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return enc, dec
}

// MarshalCBOR writes the key as a text string.
func (k Key) MarshalCBOR() ([]byte, error) {
	const head = 3 // a key is never longer than four of its parts
	return k.appendCBOR(make([]byte, 0, head+len(k.full))), nil
}

// UnmarshalCBOR reads a text string and checks that it is a key.
func (k *Key) UnmarshalCBOR(b []byte) error {
	var s string
	switch n := len(b); {
	case n > 0 && int(b[0]) == cborText+n-1 && b[0] < cborText|cbor8:
		s = string(b[1:])
	case n > 1 && b[0] == cborText|cbor8 && int(b[1]) == n-2:
		s = string(b[2:])
	default:
		if err := decMode.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	return k.parse(s)
}

// Encode writes a command: version, kind, then CBOR with integer keys (RFC 8949, core deterministic encoding). It refuses,
// with an *InvalidError, what Decode would refuse: a node that finds such a command in its log can apply nothing more.
func Encode(c Command) ([]byte, error) {
	b, err := encode(c, CodecVersion, byte(c.kind()))
	if _, byHand := c.(roomy); err == nil && !byHand { // what is written by hand was checked on the way
		err = decode(b[2:], newCommand(c.kind()))
	}
	if err != nil {
		return nil, &InvalidError{Field: "command", Detail: fmt.Sprintf("a %T cannot be written: %v", c, err)}
	}
	return b, nil
}

// encode writes v after its head, in one allocation.
func encode(v any, head ...byte) ([]byte, error) {
	if r, ok := v.(roomy); ok {
		w := coder{b: append(make([]byte, 0, len(head)+r.room()), head...)}
		w.walk(v)
		return w.b, w.err
	}
	const usual = 512 // most commands and records are shorter, but for the bytes that they carry
	buf := bytes.NewBuffer(append(make([]byte, 0, usual), head...))
	if err := encMode.MarshalToBuffer(v, buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Decode reads what Encode wrote. It refuses anything else, without having changed anything.
func Decode(b []byte) (Command, error) {
	if len(b) < 2 {
		return nil, errors.New("flight: a command has at least two bytes")
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
		return nil, fmt.Errorf("flight: a command of kind %d names no key", b[1])
	}
	return c, nil
}

// decode reads the whole of b into v, which is zero. It keeps nothing of b.
func decode(b []byte, v any) error {
	r := coder{b: b, reads: true}
	switch {
	case !r.walk(v):
		return decMode.Unmarshal(b, v)
	case r.err == nil && len(r.b) > 0:
		return errLong
	}
	return r.err
}

func newCommand(k kind) Command {
	switch k {
	case kindSubmit:
		return new(Submit)
	case kindOpen:
		return new(Open)
	case kindReport:
		return new(Report)
	case kindAbandon:
		return new(Abandon)
	case kindEnded:
		return new(Ended)
	case kindVerdict:
		return new(Verdict)
	case kindSuspend:
		return new(Suspend)
	case kindWakeUp:
		return new(WakeUp)
	case kindCancel:
		return new(Cancel)
	case kindResolve:
		return new(Resolve)
	case kindDecide:
		return new(Decide)
	case kindRetry:
		return new(Retry)
	case kindFree:
		return new(Free)
	case kindSeal:
		return new(Seal)
	case kindTurn:
		return new(Turn)
	case kindExpire:
		return new(Expire)
	case kindBootstrap:
		return new(Bootstrap)
	case kindRaiseEpoch:
		return new(RaiseEpoch)
	case kindTick:
		return new(Tick)
	case kindRedact:
		return new(Redact)
	case kindImport:
		return new(Import)
	case kindCount:
		return new(Count)
	case kindWithdraw:
		return new(Withdraw)
	case kindGuard:
		return new(RecordGuard)
	}
	return nil
}

// walk goes over v, and reports whether it is of a type that is written by hand. Types stand here by name, so that the
// coder can stay on its owner's stack.
func (c *coder) walk(v any) bool {
	switch v := v.(type) {
	case *Open:
		c.begin()
		v.walk(c)
	case *Report:
		c.begin()
		v.walk(c)
	case *Import:
		c.begin()
		v.walk(c)
	case *Flight:
		c.begin()
		v.walk(c)
	case *Event:
		c.begin()
		v.walk(c)
	case *Tally:
		c.begin()
		v.walk(c)
	default:
		return false
	}
	c.end()
	return true
}

// record is anything of ours that is stored by itself.
type record interface {
	*Flight | *Header | *Event | *Tally
}

// EncodeRecord writes a flight, a header, an event or a tally as it is stored: version, then CBOR.
func EncodeRecord[R record](r R) ([]byte, error) {
	b, err := encode(r, CodecVersion)
	if err != nil {
		return nil, fmt.Errorf("flight: encode %T: %w", r, err)
	}
	return b, nil
}

// AppendRecord appends to b what EncodeRecord writes. It keeps neither.
func AppendRecord[R record](b []byte, r R) ([]byte, error) {
	if w := (coder{b: append(b, CodecVersion)}); w.walk(r) {
		return w.b, w.err
	}
	encoded, err := EncodeRecord(r)
	return append(b, encoded...), err
}

// DecodeRecord reads what EncodeRecord wrote into r.
func DecodeRecord[R record](b []byte, r R) error {
	if len(b) == 0 {
		return errors.New("flight: an empty record")
	}
	if b[0] != CodecVersion {
		return fmt.Errorf("%w: record of codec version %d", ErrNewerCodec, b[0])
	}
	if err := decode(b[1:], r); err != nil {
		return fmt.Errorf("flight: decode %T: %w", r, err)
	}
	return nil
}
