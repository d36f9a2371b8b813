package flight

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flightd/flightd/internal/strictjson"
)

// MaxJSONDepth is the greatest number of nested arrays and objects in an input.
const MaxJSONDepth = 128

// CanonicalJSON returns the canonical form of a JSON document by RFC 8785. Two documents with the same canonical form
// mean the same.
//
// Every document that two readers could read differently is rejected with an *InvalidError: a document outside RFC
// 7493 (duplicate names, lone surrogates, noncharacters, invalid UTF-8), nesting deeper than MaxJSONDepth, trailing
// data, and numbers that RFC 8785 would silently change because a double does not hold them: integers beyond 2^53 in
// either direction (from 1e21 on, where the canonical form has an exponent, only those that a double does not hold),
// and every other number whose shortest double has another decimal value (1.00000000000000001, 1e400, 1e-400). Such a
// number must be sent as a string. 1.0, 1e0 and 1 are the same number, and so are -0 and 0: the sign of zero is no
// part of a business intent.
func CanonicalJSON(input []byte) ([]byte, error) {
	if err := checkDocument(input); err != nil {
		return nil, err
	}
	text := jsontext.Value(bytes.Clone(input))
	if err := text.Canonicalize(); err != nil {
		return nil, invalidDocument(strictjson.Explain(input, err))
	}
	return text, nil
}

// checkDocument reads a JSON document and returns an *InvalidError for the first place at which CanonicalJSON rejects
// it.
func checkDocument(input []byte) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(input))
	for first := true; first || d.StackDepth() > 0; first = false {
		var err error
		var text jsontext.Value
		detail := ""
		switch d.PeekKind() {
		case '"':
			text, err = d.ReadValue()
			detail = checkString(text)
		case '0':
			text, err = d.ReadValue()
			detail = checkNumber(string(text))
		default:
			if _, err = d.ReadToken(); d.StackDepth() > MaxJSONDepth {
				detail = fmt.Sprintf("nested deeper than %d levels", MaxJSONDepth)
			}
		}
		switch {
		case err != nil:
			return invalidDocument(strictjson.Explain(input, err))
		case detail != "":
			return invalidDocument(&strictjson.Error{Pointer: string(d.StackPointer()), Detail: detail})
		}
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return invalidDocument(&strictjson.Error{Detail: fmt.Sprintf("trailing data after the JSON document, at byte %d", d.InputOffset()+1)})
	}
	return nil
}

func invalidDocument(err error) error {
	detail := err.Error()
	if at, ok := err.(*strictjson.Error); ok && at.Pointer != "" {
		detail = "at " + detail
	}
	return &InvalidError{Field: "input", Detail: detail}
}

// checkString returns the reason for which a string of JSON is rejected although it is valid JSON: RFC 7493 excludes
// noncharacters.
func checkString(quoted jsontext.Value) string {
	if !slices.ContainsFunc(quoted, func(c byte) bool { return c >= 0x80 || c == '\\' }) {
		return ""
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return "" // the decoder has found the error before
	}
	for _, r := range string(text) {
		if r&0xFFFE == 0xFFFE || r >= 0xFDD0 && r <= 0xFDEF {
			return fmt.Sprintf("the string has %U, which is a noncharacter", r)
		}
	}
	return ""
}

// node is one value of a canonical JSON document.
type node struct {
	kind    jsontext.Kind
	text    string   // of a scalar
	members []member // of an array or object
}

type member struct {
	name    string // decoded; "" in an array
	value   node
	ignored bool
}

func (n *node) isObject() bool { return n.kind == '{' }
func (n *node) isArray() bool  { return n.kind == '[' }

// parseDocument returns the canonical document as a tree. Errors are those of CanonicalJSON.
func parseDocument(input []byte) (node, error) {
	text, err := CanonicalJSON(input)
	if err != nil {
		return node{}, err
	}
	return readNode(jsontext.NewDecoder(bytes.NewBuffer(text)))
}

func readNode(d *jsontext.Decoder) (n node, err error) {
	n.kind = d.PeekKind()
	if !n.isObject() && !n.isArray() {
		text, err := d.ReadValue()
		n.text = string(text)
		return n, err
	}
	if _, err = d.ReadToken(); err != nil {
		return n, err
	}
	for d.PeekKind() != n.kind+2 { // ']' and '}' are two behind '[' and '{'
		var c member
		if n.isObject() {
			name, err := d.ReadToken()
			if err != nil {
				return n, err
			}
			c.name = name.String()
		}
		if c.value, err = readNode(d); err != nil {
			return n, err
		}
		n.members = append(n.members, c)
	}
	_, err = d.ReadToken()
	return n, err
}

// appendTo appends the canonical document without the values that were removed from it.
func (n *node) appendTo(b []byte) []byte {
	if !n.isObject() && !n.isArray() {
		return append(b, n.text...)
	}
	b = append(b, byte(n.kind))
	for i := range n.members {
		c := &n.members[i]
		if i > 0 {
			b = append(b, ',')
		}
		if n.isObject() {
			b, _ = jsontext.AppendQuote(b, c.name) // its only error is invalid UTF-8, which no canonical document has
			b = append(b, ':')
		}
		b = c.value.appendTo(b)
	}
	return append(b, byte(n.kind)+2)
}
