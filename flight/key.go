package flight

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyPart is the greatest length in bytes of each of a key's three parts.
const MaxKeyPart = 255

// Key names one business intent: namespace/name/id, for example billing/charge-card/order-42.
// It is built from business identifiers only, never from the attempt, the clock, chance or the worker.
// A key of a saga's step carries the step behind a '#': billing/book-trip/order-42#hotel.
//
// The zero Key names nothing. Keys are comparable; one intent has exactly one spelling.
type Key struct {
	full     string
	nsEnd    uint16 // index of the first '/'
	nameEnd  uint16 // index of the second '/'
	stepFrom uint16 // index of '#', or 0 when the key is no saga step
}

// ID identifies a flight: the first 16 bytes of SHA-256 over its full key. The same key has the same id everywhere
// and for ever.
type ID [16]byte

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// String gives the id as the API shows it: fl_ and 26 characters of lower-case base32.
func (id ID) String() string { return "fl_" + idEncoding.EncodeToString(id[:]) }

// ParseID reads what ID.String wrote.
func ParseID(s string) (ID, error) {
	var id ID
	rest, ok := strings.CutPrefix(s, "fl_")
	if !ok {
		return id, &InvalidError{Field: "id", Detail: "a flight id starts with fl_"}
	}
	raw, err := idEncoding.DecodeString(rest)
	if err == nil && len(raw) == len(id) && ID(raw).String() == s { // one id has one spelling
		return ID(raw), nil
	}
	return id, &InvalidError{Field: "id", Detail: "a flight id is fl_ and 26 characters of a-z and 2-7"}
}

// InvalidError says that a value from outside cannot be what it claims to be. Nothing was changed.
type InvalidError struct {
	Field  string // which value: a JSON field or a part of the key
	Detail string // what is wrong with it, in words for the person who wrote it
}

func (e *InvalidError) Error() string {
	if e.Field == "" { // it is about the whole
		return "invalid: " + e.Detail
	}
	return fmt.Sprintf("invalid %s: %s", e.Field, e.Detail)
}

// NewKey joins and checks the three parts of a key. Errors are *InvalidError.
func NewKey(namespace, name, id string) (Key, error) {
	if err := checkWord("namespace", namespace); err != nil {
		return Key{}, err
	}
	if err := checkWord("name", name); err != nil {
		return Key{}, err
	}
	if err := checkID(id); err != nil {
		return Key{}, err
	}
	return assemble(namespace, name, id, ""), nil
}

// ParseKey reads a full key as Key.String writes it, with or without a saga step. Errors are *InvalidError.
func ParseKey(s string) (Key, error) {
	namespace, rest, ok := strings.Cut(s, "/")
	if !ok {
		return Key{}, &InvalidError{Field: "key", Detail: "a key reads namespace/name/id"}
	}
	name, id, ok := strings.Cut(rest, "/")
	if !ok {
		return Key{}, &InvalidError{Field: "key", Detail: "a key reads namespace/name/id"}
	}
	id, step, isStep := strings.Cut(id, "#")
	k, err := NewKey(namespace, name, id)
	if err != nil || !isStep {
		return k, err
	}
	return k.Step(step)
}

// MustKey is ParseKey for keys written in source code; it panics on a bad one.
func MustKey(s string) Key {
	k, err := ParseKey(s)
	if err != nil {
		panic(err)
	}
	return k
}

// Step gives the key of a step of the saga that k names: step is a word, or a word with ".undo" behind it.
func (k Key) Step(step string) (Key, error) {
	if k.IsStep() {
		return Key{}, &InvalidError{Field: "step", Detail: "a step has no steps of its own"}
	}
	if err := checkWord("step", step); err != nil {
		return Key{}, err
	}
	return assemble(k.Namespace(), k.Name(), k.BusinessID(), step), nil
}

func assemble(namespace, name, id, step string) Key {
	k := Key{
		full:    namespace + "/" + name + "/" + id,
		nsEnd:   uint16(len(namespace)),
		nameEnd: uint16(len(namespace) + 1 + len(name)),
	}
	if step != "" {
		k.stepFrom = uint16(len(k.full))
		k.full += "#" + step
	}
	return k
}

// String gives the full key, the form in which it is hashed, stored and shown.
func (k Key) String() string { return k.full }

// IsZero reports whether k names nothing.
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

// StepName is the word behind '#', "" when k is no step.
func (k Key) StepName() string {
	if !k.IsStep() {
		return ""
	}
	return k.full[k.stepFrom+1:]
}

// IsUndo reports whether k names the undo of a step.
func (k Key) IsUndo() bool { return k.IsStep() && strings.HasSuffix(k.full, ".undo") }

// Saga is the key of the saga that k is a step of; the zero Key when k is no step.
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

// UnmarshalText reads a full key and checks it.
func (k *Key) UnmarshalText(text []byte) error { return k.parse(string(text)) }

func (k *Key) parse(text string) error {
	if text == "" {
		*k = Key{}
		return nil
	}
	parsed, err := ParseKey(text)
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
			return &InvalidError{Field: field, Detail: stranger(s, i) + "; allowed are letters, digits, '.', '_' and '-'"}
		}
	}
	if s == "." || s == ".." {
		return &InvalidError{Field: field, Detail: `"." and ".." name nothing`}
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
			return &InvalidError{Field: "id", Detail: "'#' is reserved for steps of sagas; write %23"}
		case c <= ' ' || c > '~':
			_, size := utf8.DecodeRuneInString(s[i:])
			return &InvalidError{Field: "id", Detail: fmt.Sprintf("%s; write %s", stranger(s, i), escaped(s[i:i+size]))}
		case c == '%':
			if err := checkEscape(s, i); err != nil {
				return err
			}
			i += 2
		}
	}
	return nil
}

// stranger names the first character of s that must not be there; before it all is ASCII, so that it is the i-th byte, too.
func stranger(s string, i int) string {
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("byte %d is no UTF-8", i+1)
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

// checkEscape holds percent-encoding to its one canonical spelling, so that one intent cannot have two keys.
func checkEscape(s string, at int) error {
	if at+2 >= len(s) || !isUpperHex(s[at+1]) || !isUpperHex(s[at+2]) {
		return &InvalidError{Field: "id", Detail: fmt.Sprintf("'%%' at byte %d needs two upper-case hex digits behind it; a percent sign itself is %%25", at+1)}
	}
	c := unhex(s[at+1])<<4 | unhex(s[at+2])
	if c > ' ' && c <= '~' && c != '#' && c != '%' {
		return &InvalidError{Field: "id", Detail: fmt.Sprintf("%s at byte %d must be written plainly as %q: one intent has one spelling", s[at:at+3], at+1, c)}
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
