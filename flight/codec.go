package flight

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// CodecVersion is the first byte of every encoded command and record of this version.
const CodecVersion = 1

// ErrNewerCodec is returned for bytes that a newer flightd wrote. Nothing of them was applied. A node that reads them must
// stop.
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
	const head = 3 // a key is at most four parts of MaxKeyPart bytes, so its length fits a 2-byte argument
	return k.appendCBOR(make([]byte, 0, head+len(k.full))), nil
}

// UnmarshalCBOR reads a text string and parses it as a stored key; see ParseStoredKey.
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

// Encode encodes a command: version, kind, then CBOR with integer keys (RFC 8949, core deterministic encoding). It returns an
// *InvalidError for a command that Decode would reject, because a node cannot continue after such a command in its log.
func Encode(c Command) ([]byte, error) {
	if err := checkDocumentCommand(c); err != nil {
		return nil, err
	}
	b, err := encode(c, CodecVersion, byte(c.kind()))
	if _, byHand := c.(sizeHinter); err == nil && !byHand { // the handwritten coders check while they write
		err = decode(b[2:], newCommand(c.kind()))
	}
	if err != nil {
		return nil, &InvalidError{Field: "command", Detail: fmt.Sprintf("encode %T: %v", c, err)}
	}
	return b, nil
}

// encode encodes v after its head, in one allocation.
func encode(v any, head ...byte) ([]byte, error) {
	if r, ok := v.(sizeHinter); ok {
		w := coder{b: append(make([]byte, 0, len(head)+r.sizeHint()), head...)}
		w.transcode(v)
		return w.b, w.err
	}
	const usual = 512 // most commands and records without a body are shorter
	buf := bytes.NewBuffer(append(make([]byte, 0, usual), head...))
	if err := encMode.MarshalToBuffer(v, buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
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

// decode decodes all of b into v, which must be zero. v does not alias b.
func decode(b []byte, v any) error {
	r := coder{b: b, reading: true}
	switch {
	case !r.transcode(v):
		return decMode.Unmarshal(b, v)
	case r.err == nil && len(r.b) > 0:
		return errTrailingData
	}
	return r.err
}

// newCommands make an empty command of each kind.
var newCommands = [...]func() Command{
	kindSubmit:          construct[Submit],
	kindOpen:            construct[Open],
	kindReport:          construct[Report],
	kindAbandon:         construct[Abandon],
	kindEndSession:      construct[EndSession],
	kindReportFinding:   construct[ReportFinding],
	kindSuspend:         construct[Suspend],
	kindWakeUp:          construct[WakeUp],
	kindCancel:          construct[Cancel],
	kindResolve:         construct[Resolve],
	kindDecideApproval:  construct[DecideApproval],
	kindRetry:           construct[Retry],
	kindFreeKey:         construct[FreeKey],
	kindSealKey:         construct[SealKey],
	kindBeginUndo:       construct[BeginUndo],
	kindPassPivot:       construct[PassPivot],
	kindExpire:          construct[Expire],
	kindBootstrap:       construct[Bootstrap],
	kindRaiseEpoch:      construct[RaiseEpoch],
	kindTick:            construct[Tick],
	kindRedact:          construct[Redact],
	kindImport:          construct[Import],
	kindCountDuplicates: construct[CountDuplicates],
	kindWithdrawSession: construct[WithdrawSession],
	kindGuard:           construct[RecordGuard],
	kindRaiseLevel:      construct[RaiseLevel],
	kindPutDocument:     construct[PutDocument],
	kindDeleteDocument:  construct[DeleteDocument],
	kindCloseSession:    construct[CloseSession],
	kindRestore:         construct[Restore],
	kindFinishRestore:   construct[FinishRestore],
}

func construct[T any, P interface {
	*T
	Command
}]() Command {
	return P(new(T))
}

// newCommand returns an empty command of a kind, or nil if this build has no such kind.
func newCommand(k kind) Command {
	if int(k) >= len(newCommands) || newCommands[k] == nil {
		return nil
	}
	return newCommands[k]()
}

// transcode writes or reads v, and reports whether its type has a handwritten coder. The types are listed here, instead of an
// interface call, so that the coder does not escape to the heap.
func (c *coder) transcode(v any) bool {
	switch v := v.(type) {
	case *Submit:
		c.beginMap()
		v.transcode(c)
	case *Open:
		c.beginMap()
		v.transcode(c)
	case *Suspend:
		c.beginMap()
		v.transcode(c)
	case *Report:
		c.beginMap()
		v.transcode(c)
	case *Import:
		c.beginMap()
		v.transcode(c)
	case *Flight:
		c.beginMap()
		v.transcode(c)
	case *Event:
		c.beginMap()
		v.transcode(c)
	case *DuplicateStats:
		c.beginMap()
		v.transcode(c)
	default:
		return false
	}
	c.endMap()
	return true
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
	if w := (coder{b: append(b, CodecVersion)}); w.transcode(r) {
		return w.b, w.err
	}
	encoded, err := EncodeRecord(r)
	return append(b, encoded...), err
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
