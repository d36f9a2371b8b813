package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errNoKeyFound = errors.New("flight: read key of command: no key found in the encoding")

// Target reads only the key of an encoded command, for readers of the log that select entries by key. The key is the first
// field of every command that has one; the fields after it are not decoded. Target returns the zero Key for commands about
// the header. Decode may still reject a command that Target accepts.
func Target(b []byte) (Key, error) {
	if len(b) < 2 {
		return Key{}, errNoKeyFound
	}
	if b[0] != CodecVersion {
		return Key{}, fmt.Errorf("%w: command of codec version %d", ErrNewerCodec, b[0])
	}
	if kind(b[1]).keyless() {
		return Key{}, nil
	}
	rest, ok := skipToFirstField(b[2:])
	if !ok {
		return Key{}, errNoKeyFound
	}
	text, ok := textAt(rest)
	if !ok {
		return Key{}, errNoKeyFound
	}
	return ParseStoredKey(string(text))
}

// skipToFirstField returns the bytes after the head of a map and the number 1 of its first field.
func skipToFirstField(b []byte) ([]byte, bool) {
	switch {
	case len(b) >= 2 && b[0] > cborMap && b[0] < cborMap|cbor8 && b[1] == 1:
		return b[2:], true
	case len(b) >= 3 && b[0] == cborMap|cbor8 && b[2] == 1:
		return b[3:], true
	}
	return nil, false
}

// textAt returns the text at the start of b.
func textAt(b []byte) ([]byte, bool) {
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
