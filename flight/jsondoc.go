package flight

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// node is one value of a JSON document, with its own spelling kept.
type node struct {
	kind     nodeKind
	text     []byte  // of a scalar, as it was spelled
	children []child // of an array or object
}

type nodeKind uint8

const (
	scalarNode nodeKind = iota
	arrayNode
	objectNode
)

type child struct {
	name    string // decoded; "" in an array
	spelled []byte // the name as it was spelled, with its quotes
	value   node
	ignored bool
}

// documentError says what is wrong with a document, and where.
type documentError struct{ pointer, detail string }

// parseDocument reads a document strictly: see CanonicalJSON. The nodes share input's bytes.
func parseDocument(input []byte) (node, error) {
	p := &documentParser{rest: input}
	doc, err := p.value(0)
	p.space()
	if err == nil && len(p.rest) > 0 {
		err = &documentError{detail: "something stands behind the JSON document"}
	}
	if err == nil {
		return doc, nil
	}
	detail := err.detail
	if err.pointer != "" {
		detail = "at " + err.pointer + ": " + detail
	}
	return node{}, &InvalidError{Field: "input", Detail: detail}
}

type documentParser struct{ rest []byte }

func (p *documentParser) space() { p.rest = bytes.TrimLeft(p.rest, " \t\r\n") }

// next skips white space and takes c if it stands there.
func (p *documentParser) next(c byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *documentParser) value(depth int) (node, *documentError) {
	p.space()
	if len(p.rest) == 0 {
		return node{}, &documentError{detail: "the JSON document ends too early"}
	}
	switch p.rest[0] {
	case '{', '[':
		if depth >= MaxJSONDepth {
			return node{}, &documentError{detail: fmt.Sprintf("it nests deeper than %d", MaxJSONDepth)}
		}
		if p.rest[0] == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case '"':
		_, spelled, err := p.text()
		return node{text: spelled}, err
	}
	return p.word()
}

func (p *documentParser) array(depth int) (node, *documentError) {
	n := node{kind: arrayNode}
	p.next('[')
	if p.next(']') {
		return n, nil
	}
	for {
		v, err := p.value(depth)
		if err != nil {
			err.pointer = "/" + strconv.Itoa(len(n.children)) + err.pointer
			return n, err
		}
		n.children = append(n.children, child{value: v})
		if p.next(']') {
			return n, nil
		}
		if !p.next(',') {
			return n, &documentError{detail: "an array wants ',' or ']'"}
		}
	}
}

func (p *documentParser) object(depth int) (node, *documentError) {
	n := node{kind: objectNode}
	p.next('{')
	if p.next('}') {
		return n, nil
	}
	seen := make(map[string]bool)
	for {
		p.space()
		name, spelled, err := p.text()
		if err != nil {
			return n, err
		}
		if seen[name] {
			return n, &documentError{pointer: "/" + escapePointer(name), detail: "this name stands twice in one object"}
		}
		seen[name] = true
		if !p.next(':') {
			return n, &documentError{detail: "a name in an object wants ':'"}
		}
		v, err := p.value(depth)
		if err != nil {
			err.pointer = "/" + escapePointer(name) + err.pointer
			return n, err
		}
		n.children = append(n.children, child{name: name, spelled: spelled, value: v})
		if p.next('}') {
			return n, nil
		}
		if !p.next(',') {
			return n, &documentError{detail: "an object wants ',' or '}'"}
		}
	}
}

// text reads a string: what it says, and how it was spelled.
func (p *documentParser) text() (string, []byte, *documentError) {
	from := p.rest
	if len(from) == 0 || from[0] != '"' {
		return "", nil, &documentError{detail: "a name in an object is a string"}
	}
	var said []byte
	for i := 1; i < len(from); {
		switch c := from[i]; {
		case c == '"':
			p.rest = from[i+1:]
			return string(said), from[:i+1], nil
		case c < ' ':
			return "", nil, &documentError{detail: "a string holds a control character that is not escaped"}
		case c == '\\':
			r, width, err := unescape(from[i:])
			if err != nil {
				return "", nil, err
			}
			said, i = utf8.AppendRune(said, r), i+width
		default:
			r, width := utf8.DecodeRune(from[i:])
			if r == utf8.RuneError && width == 1 {
				return "", nil, &documentError{detail: "a string is not valid UTF-8"}
			}
			if isNoncharacter(r) {
				return "", nil, noncharacter(r)
			}
			said, i = append(said, from[i:i+width]...), i+width
		}
	}
	return "", nil, &documentError{detail: "a string has no end"}
}

// unescape reads one escape, or the two of a surrogate pair.
func unescape(s []byte) (r rune, width int, err *documentError) {
	const escapes, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if len(s) < 2 {
		return 0, 0, &documentError{detail: "a string has no end"}
	}
	if at := strings.IndexByte(escapes, s[1]); at >= 0 {
		return rune(meanings[at]), 2, nil
	}
	r, ok := hexEscape(s)
	if !ok {
		return 0, 0, &documentError{detail: `a string holds '\' without an escape behind it`}
	}
	width = 6
	if utf16.IsSurrogate(r) {
		low, _ := hexEscape(s[6:])
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return 0, 0, &documentError{detail: "a string holds half of a surrogate pair"}
		}
		width = 12
	}
	if isNoncharacter(r) {
		return 0, 0, noncharacter(r)
	}
	return r, width, nil
}

func hexEscape(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s[2:6]), 16, 32)
	return rune(n), err == nil
}

func isNoncharacter(r rune) bool { return r&0xFFFE == 0xFFFE || r >= 0xFDD0 && r <= 0xFDEF }

func noncharacter(r rune) *documentError {
	return &documentError{detail: fmt.Sprintf("a string holds %U, which is no character", r)}
}

// word reads true, false, null or a number.
func (p *documentParser) word() (node, *documentError) {
	end := bytes.IndexAny(p.rest, " \t\r\n,:]}[{\"")
	if end < 0 {
		end = len(p.rest)
	}
	w := p.rest[:end]
	p.rest = p.rest[end:]
	switch string(w) {
	case "true", "false", "null":
		return node{text: w}, nil
	}
	if !isNumber(w) {
		return node{}, &documentError{detail: "here stands neither a value nor a number of JSON"}
	}
	if detail := checkNumber(string(w)); detail != "" {
		return node{}, &documentError{detail: detail}
	}
	return node{text: w}, nil
}

// isNumber holds w to the grammar of RFC 8259, section 6.
func isNumber(w []byte) bool {
	w = bytes.TrimPrefix(w, []byte("-"))
	leading := bytes.HasPrefix(w, []byte("0"))
	whole, w := digits(w)
	if whole == 0 || whole > 1 && leading {
		return false
	}
	if fraction, ok := bytes.CutPrefix(w, []byte(".")); ok {
		if whole, w = digits(fraction); whole == 0 {
			return false
		}
	}
	if len(w) > 0 && (w[0] == 'e' || w[0] == 'E') {
		w = w[1:]
		if len(w) > 0 && (w[0] == '+' || w[0] == '-') {
			w = w[1:]
		}
		if whole, w = digits(w); whole == 0 {
			return false
		}
	}
	return len(w) == 0
}

func digits(w []byte) (n int, rest []byte) {
	for n < len(w) && w[n] >= '0' && w[n] <= '9' {
		n++
	}
	return n, w[n:]
}
