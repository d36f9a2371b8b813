package wire

import "strings"

// skip passes over the value that starts here and checks that it is JSON.
func (s *scanner) skip(depth int) {
	s.space()
	if s.err != nil {
		return
	}
	if s.pos >= len(s.data) {
		s.syntax("a value")
		return
	}
	switch c := s.data[s.pos]; {
	case c == '"':
		s.skipString()
	case c == '{' || c == '[':
		if depth == maxDepth {
			s.wrong("it nests deeper than %d levels", maxDepth)
			return
		}
		s.skipMembers(c, depth+1)
	case c == '-' || c >= '0' && c <= '9':
		s.skipNumber()
	case c == 't':
		s.skipWord("true")
	case c == 'f':
		s.skipWord("false")
	case c == 'n':
		s.skipWord("null")
	default:
		s.syntax("a value")
	}
}

func (s *scanner) skipMembers(open byte, depth int) {
	s.pos++
	end := open + 2 // '}' and ']' stand two behind their openers
	s.space()
	if s.take(end) {
		return
	}
	for s.err == nil {
		if open == '{' {
			s.space()
			if s.pos >= len(s.data) || s.data[s.pos] != '"' {
				s.syntax("a field's name in double quotes")
				return
			}
			s.skipString()
			s.space()
			s.expect(':')
		}
		s.skip(depth)
		s.space()
		if s.take(end) {
			return
		}
		s.expect(',')
	}
}

func (s *scanner) skipWord(word string) {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		s.syntax("a value")
		return
	}
	s.pos += len(word)
}

// skipNumber passes over a number in the grammar of RFC 8259.
func (s *scanner) skipNumber() {
	s.take('-')
	if !s.take('0') && !s.digits() {
		s.syntax("a digit")
		return
	}
	if s.take('.') && !s.digits() {
		s.syntax("a digit")
		return
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		if !s.digits() {
			s.syntax("a digit")
		}
	}
}

func (s *scanner) digits() bool {
	from := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > from
}

// ValidJSON reports whether b is exactly one JSON value in valid UTF-8, with nothing around it: then it can stand as a
// value inside a document, and comes out of it byte for byte.
func ValidJSON(b []byte) bool {
	if len(b) == 0 || isSpace(b[0]) || isSpace(b[len(b)-1]) {
		return false
	}
	s := scanner{data: b}
	s.skip(0)
	return s.err == nil && s.pos == len(b)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// IsJSONType reports whether a content type says that the body is JSON.
func IsJSONType(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return kind == TypeJSON || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// escapePointer writes a name as a token of a JSON pointer (RFC 6901).
func escapePointer(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
