package wire

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// quoted reads the string that starts here. What it gives may be part of the document.
func (s *scanner) quoted() []byte {
	start := s.pos + 1
	escaped := s.skipString()
	if s.err != nil {
		return nil
	}
	text := s.data[start : s.pos-1]
	if !escaped {
		return text
	}
	return unescape(text)
}

// skipString passes over the string that starts here and says whether it has escapes. It refuses what RFC 7493 does:
// invalid UTF-8 and lone surrogates.
func (s *scanner) skipString() (escaped bool) {
	s.pos++
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return escaped
		case c == '\\':
			escaped = true
			if !s.skipEscape() {
				return escaped
			}
		case c < ' ':
			s.syntax("a character that is not a control character")
			return escaped
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && size == 1 {
				s.wrong("byte %d is not UTF-8", s.pos+1)
				return escaped
			}
			s.pos += size
		}
	}
	s.syntax("the end of a string")
	return escaped
}

func (s *scanner) skipEscape() bool {
	if s.pos+1 >= len(s.data) {
		s.pos++
		s.syntax("an escape")
		return false
	}
	switch s.data[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return true
	case 'u':
		r := hex4(s.data[s.pos+2:])
		if r < 0 {
			s.syntax("four hex digits behind \\u")
			return false
		}
		if !utf16.IsSurrogate(r) {
			s.pos += 6
			return true
		}
		rest := s.data[s.pos+6:]
		if len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' && utf16.DecodeRune(r, hex4(rest[2:])) != utf8.RuneError {
			s.pos += 12
			return true
		}
		s.wrong("a lone surrogate at byte %d stands for no character", s.pos+1)
		return false
	}
	s.syntax("an escape")
	return false
}

// hex4 reads four hex digits; -1 when there are none.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(n)
}

// unescape reads the inside of a string that skipString accepted.
func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			out = append(out, b[i])
			i++
			continue
		}
		switch c := b[i+1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(b[i+2:])
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(b[i+8:]))
				i += 6
			}
			out = utf8.AppendRune(out, r)
			i += 4
		default:
			out = append(out, c)
		}
		i += 2
	}
	return out
}
