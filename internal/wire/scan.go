package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/flightd/flightd/flight"
)

// Invalid says that a request cannot be what it claims to be, and where. Nothing was changed.
type Invalid struct {
	Code Code
	FieldError
	Hint string // empty: that of the code
}

func (e *Invalid) Error() string {
	switch {
	case e.Pointer != "":
		return e.Pointer + ": " + e.Detail
	case e.Header != "":
		return e.Header + ": " + e.Detail
	case e.Parameter != "":
		return e.Parameter + ": " + e.Detail
	}
	return e.Detail
}

// BadField is the usual Invalid: a field of the body.
func BadField(pointer, format string, args ...any) *Invalid {
	return &Invalid{Code: InputInvalid, FieldError: FieldError{Pointer: pointer, Detail: fmt.Sprintf(format, args...)}}
}

// BadHeader is an Invalid about a header.
func BadHeader(name, format string, args ...any) *Invalid {
	return &Invalid{Code: InputInvalid, FieldError: FieldError{Header: name, Detail: fmt.Sprintf(format, args...)}}
}

// BadParameter is an Invalid about a parameter of the query.
func BadParameter(name, format string, args ...any) *Invalid {
	return &Invalid{Code: InputInvalid, FieldError: FieldError{Parameter: name, Detail: fmt.Sprintf(format, args...)}}
}

// scanner reads one JSON document from front to back. The first thing that is wrong ends it: every reader method
// answers zero values from then on, and err says what it was.
type scanner struct {
	data  []byte
	pos   int
	field []byte // the name of the field being read; nil: none
	none  bool   // its value is null: it is as if it were not there
	loose bool   // unknown fields are passed over: what is read is an answer, which later versions may add to
	err   *Invalid
}

// readObject reads a document that must be an object and calls known for each of its fields. known reads the value and
// returns true, or returns false for a name that it does not know. A field that is null counts as missing.
func readObject(data []byte, known func(s *scanner, name []byte) bool) *Invalid {
	s := &scanner{data: data}
	s.space()
	if s.pos == len(data) {
		return withHint(BadField("", "the body is empty; a JSON object is expected"), "send a JSON object, at least {}")
	}
	if !s.take('{') {
		return withHint(BadField("", "the body is no JSON object"), "send a JSON object, at least {}")
	}
	s.fields(known)
	s.space()
	if s.err == nil && s.pos != len(data) {
		s.wrong("trailing data after the JSON document, at byte %d", s.pos+1)
	}
	return s.err
}

func withHint(e *Invalid, hint string) *Invalid {
	e.Hint = hint
	return e
}

func (s *scanner) fields(known func(s *scanner, name []byte) bool) {
	var seen [24][]byte
	names := seen[:0]
	s.space()
	if s.take('}') {
		return
	}
	for s.err == nil {
		name := s.name()
		if s.err != nil {
			return
		}
		s.field = name
		if !s.loose {
			if slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) }) {
				s.wrong("duplicate field")
				return
			}
			names = append(names, name)
		}
		s.none = s.null()
		switch {
		case known(s, name) || s.err != nil:
		case s.loose:
			s.raw()
		default:
			s.wrong("unknown field")
			s.err.Hint = "remove it or fix the spelling; unknown fields are rejected, never ignored"
			return
		}
		s.field, s.none = nil, false
		s.space()
		if s.take('}') {
			return
		}
		s.expect(',')
	}
}

// null passes over a null. It stays where it stands for the body of a receipt, which may be null.
func (s *scanner) null() bool {
	s.space()
	if len(s.data)-s.pos >= 4 && string(s.data[s.pos:s.pos+4]) == "null" && string(s.field) != "body" {
		s.pos += 4
		return true
	}
	return false
}

func (s *scanner) name() []byte {
	s.space()
	if s.pos >= len(s.data) || s.data[s.pos] != '"' {
		s.syntax("a field's name in double quotes")
		return nil
	}
	name := s.quoted()
	s.space()
	s.expect(':')
	return name
}

// str reads a string of at most limit bytes.
func (s *scanner) str(limit int) string {
	if s.none || !s.is('"', "a string") {
		return ""
	}
	text := string(s.quoted())
	if s.err == nil && len(text) > limit {
		s.wrong("it has %d bytes; at most %d are allowed", len(text), limit)
	}
	return text
}

// integer reads a whole number between the bounds.
func (s *scanner) integer(from, to int64) int64 {
	if s.none {
		return 0
	}
	s.space()
	start := s.pos
	if s.pos >= len(s.data) || s.data[s.pos] != '-' && (s.data[s.pos] < '0' || s.data[s.pos] > '9') {
		s.wrongType("a whole number")
		return 0
	}
	s.skipNumber()
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(s.data[start:s.pos]), 10, 64)
	if err != nil || n < from || n > to {
		s.wrong("%s is not a whole number from %d to %d", s.data[start:s.pos], from, to)
		return 0
	}
	return n
}

func (s *scanner) boolean() bool {
	if s.none {
		return false
	}
	s.space()
	for _, word := range [...]string{"true", "false"} {
		if len(s.data)-s.pos >= len(word) && string(s.data[s.pos:s.pos+len(word)]) == word {
			s.pos += len(word)
			return word == "true"
		}
	}
	s.wrongType("true or false")
	return false
}

// raw reads any value and gives its exact bytes, which are those of the document and not a copy.
func (s *scanner) raw() []byte {
	if s.none {
		return nil
	}
	s.space()
	start := s.pos
	s.skip(0)
	if s.err != nil {
		return nil
	}
	return s.data[start:s.pos:s.pos]
}

// is checks that a value of the wanted type starts here.
func (s *scanner) is(first byte, want string) bool {
	s.space()
	if s.err == nil && s.pos < len(s.data) && s.data[s.pos] == first {
		return true
	}
	s.wrongType(want)
	return false
}

func (s *scanner) wrongType(want string) {
	if s.pos >= len(s.data) {
		s.syntax("a value")
		return
	}
	got := "a number"
	switch s.data[s.pos] {
	case '"':
		got = "a string"
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case 't', 'f':
		got = "a boolean"
	case 'n':
		got = "null"
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
	default:
		s.syntax("a value")
		return
	}
	s.wrong("%s is expected here, not %s", want, got)
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.err == nil && s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) expect(c byte) {
	if !s.take(c) {
		s.syntax("'" + string(c) + "'")
	}
}

// wrong says that something is wrong with the field being read, or with the document where there is none.
func (s *scanner) wrong(format string, args ...any) {
	if s.err != nil {
		return
	}
	pointer := ""
	if s.field != nil {
		pointer = "/" + escapePointer(string(s.field))
	}
	s.err = BadField(pointer, format, args...)
}

func (s *scanner) syntax(want string) {
	if s.pos >= len(s.data) {
		s.wrong("the JSON ends too early; %s is expected at byte %d", want, s.pos+1)
		return
	}
	s.wrong("invalid JSON: %s is expected at byte %d, not %q", want, s.pos+1, s.data[s.pos])
}

// maxDepth is how deep values may nest; it is that of an input.
const maxDepth = flight.MaxJSONDepth
