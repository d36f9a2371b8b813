package flight

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxKeyPart is the greatest length in bytes of each of a key's three parts.
const MaxKeyPart = 255

// Key names one business intent: namespace/name/id, for example billing/charge-card/order-42.
// It is built from business identifiers only, never from the attempt, the clock, chance or the worker.
// The key of a saga's step ends with '#' and the step's name: billing/book-trip/order-42#hotel.
//
// The zero Key names no intent. Keys are comparable, and one intent has exactly one spelling: an id is printable ASCII, other
// bytes are percent-encoded with upper-case digits, and the decoded text is in Unicode normalization form C.
type Key struct {
	full     string
	nsEnd    uint16 // index of the first '/'
	nameEnd  uint16 // index of the second '/'
	stepFrom uint16 // index of '#'; 0 when the key is not a step
}

// ID identifies a flight: the first 16 bytes of SHA-256 over its full key. It depends on nothing else, so every deployment
// computes the same id for one key.
type ID [16]byte

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// String returns the id in the form of the API: fl_ and 26 characters of lower-case base32.
func (id ID) String() string { return "fl_" + idEncoding.EncodeToString(id[:]) }

// ParseID parses the form that ID.String returns. Errors are *InvalidError.
func ParseID(s string) (ID, error) {
	var id ID
	rest, ok := strings.CutPrefix(s, "fl_")
	if !ok {
		return id, &InvalidError{Field: "id", Detail: "a flight id starts with fl_"}
	}
	raw, err := idEncoding.DecodeString(rest)
	if err == nil && len(raw) == len(id) && ID(raw).String() == s { // rejects a second spelling of the same bits
		return ID(raw), nil
	}
	return id, &InvalidError{Field: "id", Detail: "a flight id is fl_ and 26 characters of a-z and 2-7"}
}

// InvalidError reports a malformed value from outside. Nothing was changed.
type InvalidError struct {
	Field  string // the JSON field or the part of the key; "" for the whole input
	Detail string // the defect, in words for the author of the value
}

func (e *InvalidError) Error() string {
	if e.Field == "" {
		return "invalid: " + e.Detail
	}
	return fmt.Sprintf("invalid %s: %s", e.Field, e.Detail)
}

// NewKey joins and checks the three parts of a key that comes from outside. Errors are *InvalidError.
func NewKey(namespace, name, id string) (Key, error) {
	k, err := joinKey(namespace, name, id)
	if err == nil {
		err = checkNFC(id)
	}
	if err != nil {
		return Key{}, err
	}
	return k, nil
}

// joinKey checks the three parts as both the outside and the stored form of a key require, and joins them.
func joinKey(namespace, name, id string) (Key, error) {
	if err := checkWord("namespace", namespace); err != nil {
		return Key{}, err
	}
	if err := checkWord("name", name); err != nil {
		return Key{}, err
	}
	if err := checkID(id); err != nil {
		return Key{}, err
	}
	return Key{full: namespace + "/" + name + "/" + id, nsEnd: uint16(len(namespace)), nameEnd: uint16(len(namespace) + 1 + len(name))}, nil
}

// ParseKey parses a full key that comes from outside, with or without a saga step. It rejects an id that is not in Unicode
// normalization form C: a second spelling of the same text would be a second key, and run the effect again. Errors are
// *InvalidError.
func ParseKey(s string) (Key, error) {
	k, err := ParseStoredKey(s)
	if err == nil {
		err = checkNFC(k.BusinessID())
	}
	if err != nil {
		return Key{}, err
	}
	return k, nil
}

// ParseStoredKey parses a full key that this system has accepted before: from a log entry, a snapshot, a claim or a spooled
// report. It accepts every key that ParseKey accepts, and ids that are not in Unicode normalization form C, because a build
// with other Unicode tables may have stored such keys and an undecodable entry stops every node. Errors are *InvalidError.
func ParseStoredKey(s string) (Key, error) {
	namespace, rest, ok := strings.Cut(s, "/")
	if !ok {
		return Key{}, &InvalidError{Field: "key", Detail: "a key reads namespace/name/id"}
	}
	name, id, ok := strings.Cut(rest, "/")
	if !ok {
		return Key{}, &InvalidError{Field: "key", Detail: "a key reads namespace/name/id"}
	}
	id, step, isStep := strings.Cut(id, "#")
	k, err := joinKey(namespace, name, id)
	if err != nil || !isStep {
		return k, err
	}
	return k.Step(step)
}

// MustKey is ParseKey for keys in source code. It panics on an invalid key.
func MustKey(s string) Key {
	k, err := ParseKey(s)
	if err != nil {
		panic(err)
	}
	return k
}

// Step returns the key of a step of the saga with key k. The step is a word, or a word with the suffix ".undo". Errors are
// *InvalidError.
func (k Key) Step(step string) (Key, error) {
	if k.IsStep() {
		return Key{}, &InvalidError{Field: "step", Detail: "a step has no steps of its own"}
	}
	if err := checkWord("step", step); err != nil {
		return Key{}, err
	}
	k.stepFrom = uint16(len(k.full))
	k.full += "#" + step
	return k, nil
}

// String returns the full key, the form in which it is hashed, stored and printed.
func (k Key) String() string { return k.full }

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return k.full == "" }

// Namespace is the first part.
func (k Key) Namespace() string { return k.full[:k.nsEnd] }

// Name is the second part: the action's name.
func (k Key) Name() string {
	if k.IsZero() {
		return ""
	}
	return k.full[k.nsEnd+1 : k.nameEnd]
}

// BusinessID is the third part, without a step.
func (k Key) BusinessID() string {
	switch {
	case k.IsZero():
		return ""
	case k.IsStep():
		return k.full[k.nameEnd+1 : k.stepFrom]
	}
	return k.full[k.nameEnd+1:]
}

// IsStep reports whether k names a step of a saga.
func (k Key) IsStep() bool { return k.stepFrom != 0 }

// StepName is the text after '#', or "" if k is not a step.
func (k Key) StepName() string {
	if !k.IsStep() {
		return ""
	}
	return k.full[k.stepFrom+1:]
}

// IsUndo reports whether k names the undo of a step.
func (k Key) IsUndo() bool { return k.IsStep() && strings.HasSuffix(k.full, ".undo") }

// Saga is the key of the saga that contains step k; the zero Key when k is not a step.
func (k Key) Saga() Key {
	if !k.IsStep() {
		return Key{}
	}
	saga := k
	saga.full, saga.stepFrom = k.full[:k.stepFrom], 0
	return saga
}

// FlightID is the id of the flight with this key.
func (k Key) FlightID() ID {
	sum := sha256.Sum256([]byte(k.full))
	return ID(sum[:16])
}

// MarshalText writes the full key.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.full), nil }

// UnmarshalText parses a full key in its stored form; see ParseStoredKey.
func (k *Key) UnmarshalText(text []byte) error { return k.parse(string(text)) }

func (k *Key) parse(text string) error {
	if text == "" {
		*k = Key{}
		return nil
	}
	parsed, err := ParseStoredKey(text)
	if err == nil {
		*k = parsed
	}
	return err
}

func checkWord(field, s string) error {
	if err := checkLength(field, s); err != nil {
		return err
	}
	for i := range len(s) {
		if !isWordByte(s[i]) {
			return &InvalidError{Field: field, Detail: describeInvalidChar(s, i) + "; allowed are letters, digits, '.', '_' and '-'"}
		}
	}
	if s == "." || s == ".." {
		return &InvalidError{Field: field, Detail: `"." and ".." are not allowed`}
	}
	return nil
}

func checkID(s string) error {
	if err := checkLength("id", s); err != nil {
		return err
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return &InvalidError{Field: "id", Detail: `it has an empty, "." or ".." segment, which proxies and routers rewrite into another key`}
		}
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '#':
			return &InvalidError{Field: "id", Detail: "'#' separates the step of a saga; write %23"}
		case c <= ' ' || c > '~':
			if err := checkNFC(s); err != nil {
				return err // first: the suggested escape of a decomposed character would be rejected next
			}
			_, size := utf8.DecodeRuneInString(s[i:])
			return &InvalidError{Field: "id", Detail: fmt.Sprintf("%s; write %s", describeInvalidChar(s, i), escaped(s[i:i+size]))}
		case c == '%':
			if err := checkEscape(s, i); err != nil {
				return err
			}
			i += 2
		}
	}
	return nil
}

// checkNFC rejects an id whose text is not in Unicode normalization form C. The text is the id with its escapes decoded.
func checkNFC(id string) error {
	if isPlainASCII(id) || norm.NFC.IsNormalString(decodeEscapes(id)) {
		return nil
	}
	return &InvalidError{Field: "id", Detail: "it is not in Unicode normalization form C (NFC); normalize it first: " +
		"'é' is the one code point %C3%A9, not 'e' and the accent %CC%81"}
}

// isPlainASCII reports whether s is ASCII without escapes, which is always in NFC.
func isPlainASCII(s string) bool {
	for i := range len(s) {
		if s[i] == '%' || s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// decodeEscapes decodes the canonical percent-escapes of s, and leaves every other byte unchanged.
func decodeEscapes(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) && isUpperHex(s[i+1]) && isUpperHex(s[i+2]) {
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		b = append(b, c)
	}
	return string(b)
}

// describeInvalidChar names the character of s at byte i. All bytes before i are ASCII, so i is also the character's index.
func describeInvalidChar(s string, i int) string {
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("byte %d is not valid UTF-8", i+1)
	}
	return fmt.Sprintf("character %d is %q", i+1, r)
}

// escaped percent-encodes every byte.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// checkEscape rejects any but the canonical percent-encoding, so that one intent cannot have two keys.
func checkEscape(s string, at int) error {
	if at+2 >= len(s) || !isUpperHex(s[at+1]) || !isUpperHex(s[at+2]) {
		return &InvalidError{Field: "id", Detail: fmt.Sprintf("'%%' at byte %d must be followed by two upper-case hex digits; write a percent sign as %%25", at+1)}
	}
	c := unhex(s[at+1])<<4 | unhex(s[at+2])
	if c > ' ' && c <= '~' && c != '#' && c != '%' {
		return &InvalidError{Field: "id", Detail: fmt.Sprintf("%s at byte %d must be written unescaped as %q: one intent has one spelling", s[at:at+3], at+1, c)}
	}
	return nil
}

func checkLength(field, s string) error {
	switch {
	case s == "":
		return &InvalidError{Field: field, Detail: "it is empty"}
	case len(s) > MaxKeyPart:
		return &InvalidError{Field: field, Detail: fmt.Sprintf("it has %d bytes; at most %d are allowed", len(s), MaxKeyPart)}
	}
	return nil
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

func isUpperHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'F' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}
