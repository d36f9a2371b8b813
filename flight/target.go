package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errNoTarget = errors.New("flight: the command's key cannot be found in its encoding")

// Target reads from an encoded command just the key that it touches, for readers of the log who want to know whom an
// entry is about: the key is the first field of every command that has one, and bodies behind it are not looked at. It
// is the zero Key for commands about the header. What it accepts Decode may still refuse.
func Target(b []byte) (Key, error) {
	if len(b) < 2 {
		return Key{}, errNoTarget
	}
	if b[0] != CodecVersion {
		return Key{}, fmt.Errorf("%w: command of codec version %d", ErrNewerCodec, b[0])
	}
	if kind(b[1]).keyless() {
		return Key{}, nil
	}
	rest, ok := firstField(b[2:])
	if !ok {
		return Key{}, errNoTarget
	}
	text, ok := textOf(rest)
	if !ok {
		return Key{}, errNoTarget
	}
	return ParseKey(string(text))
}

// firstField gives what follows the head of a map and the number of its field 1.
func firstField(b []byte) ([]byte, bool) {
	switch {
	case len(b) >= 2 && b[0] > cborMap && b[0] < cborMap|cbor8 && b[1] == 1:
		return b[2:], true
	case len(b) >= 3 && b[0] == cborMap|cbor8 && b[2] == 1:
		return b[3:], true
	}
	return nil, false
}

// textOf gives the text at the start of b.
func textOf(b []byte) ([]byte, bool) {
	n, head := 0, 0
	switch {
	case len(b) >= 1 && b[0] >= cborText && b[0] < cborText|cbor8:
		n, head = int(b[0]-cborText), 1
	case len(b) >= 2 && b[0] == cborText|cbor8:
		n, head = int(b[1]), 2
	case len(b) >= 3 && b[0] == cborText|cbor16:
		n, head = int(binary.BigEndian.Uint16(b[1:])), 3
	default:
		return nil, false
	}
	if len(b) < head+n {
		return nil, false
	}
	return b[head : head+n], true
}
