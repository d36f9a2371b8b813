// Package strictjson reads and writes JSON with the library github.com/go-json-experiment/json, and says in plain words
// where and why a document is rejected.
//
// A request is read by RFC 7493: duplicate names, unknown fields, invalid UTF-8, lone surrogates and trailing data are
// rejected. A field of type json.RawMessage is carried byte for byte: its names may repeat, as in a provider's answer,
// and its white space is kept.
package strictjson

import (
	"bytes"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// UnknownField is the detail of an Error about a field that the Go type does not have.
const UnknownField = "unknown field"

// Error is the first place at which a document is rejected, and the reason.
type Error struct {
	Pointer string // JSON pointer (RFC 6901); empty: the document as a whole
	Detail  string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Detail
	}
	return e.Pointer + ": " + e.Detail
}

var (
	looseBase64 = jsonv1.ParseBytesWithLooseRFC4648(true) // line breaks inside base64 are skipped, as many encoders write them
	strict      = json.JoinOptions(json.RejectUnknownMembers(true), looseBase64)
	repeating   = json.JoinOptions(strict, jsontext.AllowDuplicateNames(true))
	lenient     = json.JoinOptions(looseBase64, jsontext.AllowDuplicateNames(true))
)

// DecodeRequest reads a document strictly into the struct that into points to. It returns an *Error.
func DecodeRequest(data []byte, into any) error {
	err := json.Unmarshal(data, into, strict)
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok && syntax.Err == jsontext.ErrDuplicateName && syntax.JSONPointer.Parent() != "" {
		// The name repeats inside a raw value, where it may. The names of the document itself are still to be checked.
		if err = uniqueNames(data); err == nil {
			err = json.Unmarshal(data, into, repeating)
		}
	}
	return Explain(data, err)
}

// uniqueNames checks the names of the outermost object.
func uniqueNames(data []byte) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if seen[name.String()] {
			return &jsontext.SyntacticError{JSONPointer: d.StackPointer(), Err: jsontext.ErrDuplicateName}
		}
		seen[name.String()] = true
		if err := d.SkipValue(); err != nil {
			return err
		}
	}
	return nil
}

// DecodeAnswer reads an answer leniently: unknown fields and repeated names are accepted, since later versions may add
// fields. It returns an *Error.
func DecodeAnswer(data []byte, into any) error {
	return Explain(data, json.Unmarshal(data, into, lenient))
}

// Valid reports whether b is one JSON value in valid UTF-8, without white space around it and nested at most maxDepth
// deep. Such a value can be a part of a document, and is read from it byte for byte.
func Valid(b []byte, maxDepth int) bool {
	if len(b) == 0 || isSpace(b[0]) || isSpace(b[len(b)-1]) {
		return false
	}
	return jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true)) && Depth(b) <= maxDepth
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// Depth is the number of arrays and objects around the innermost value of a valid JSON value.
func Depth(valid []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(valid); i++ {
		switch c := valid[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case inString:
		case c == '{', c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}', c == ']':
			depth--
		}
	}
	return deepest
}

// Explain turns an error of the library about the document data into an *Error, and nil into nil.
func Explain(data []byte, err error) error {
	if err == nil {
		return nil
	}
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return explainSyntax(data, syntax)
	case errors.As(err, &semantic):
		return explainType(semantic)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &Error{Detail: "invalid JSON: unexpected end"}
	}
	return &Error{Detail: "invalid JSON: " + err.Error()}
}

func explainSyntax(data []byte, e *jsontext.SyntacticError) *Error {
	at := min(max(int(e.ByteOffset), 0), len(data))
	whole := jsontext.Value(bytes.TrimSpace(data[:at]))
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return &Error{Pointer: string(e.JSONPointer), Detail: "duplicate field"}
	case e.JSONPointer == "" && len(whole) > 0 && whole.IsValid(jsontext.AllowDuplicateNames(true)):
		return &Error{Detail: fmt.Sprintf("trailing data after the JSON document, at byte %d", at+1)}
	case errors.Is(e.Err, io.ErrUnexpectedEOF):
		return &Error{Pointer: string(e.JSONPointer), Detail: fmt.Sprintf("invalid JSON: unexpected end at byte %d", at+1)}
	}
	return &Error{Pointer: string(e.JSONPointer), Detail: fmt.Sprintf("invalid JSON at byte %d: %v", at+1, e.Err)}
}

func explainType(e *json.SemanticError) *Error {
	out := &Error{Pointer: string(e.JSONPointer)}
	want, kind := "another type", jsontext.Kind(0)
	switch t := e.GoType; {
	case errors.Is(e.Err, json.ErrUnknownName):
		out.Detail = UnknownField
		return out
	case t == nil:
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		want = "a string"
	case t == reflect.TypeFor[[]byte](), t.Kind() == reflect.String:
		want, kind = "a string", '"'
	case t.Kind() == reflect.Bool:
		want = "true or false"
	case t.Kind() == reflect.Slice:
		want = "an array"
	case t.Kind() == reflect.Struct:
		want = "an object"
	default:
		want, kind = "a whole number", '0'
	}
	switch {
	case e.JSONKind == kind && kind == '0':
		out.Detail = fmt.Sprintf("%s is not a whole number of 64 bits", e.JSONValue)
	case e.JSONKind == kind && e.Err != nil:
		out.Detail = fmt.Sprintf("it is not base64 in the standard alphabet with padding: %v", e.Err)
	case e.Err != nil:
		out.Detail = "invalid value: " + e.Err.Error()
	default:
		out.Detail = fmt.Sprintf("unexpected type: %s is expected, not %s", want, kindName(e.JSONKind))
	}
	return out
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	}
	return "an object"
}

// encoder writes one document at a time. The library removes white space inside raw values, so they are written as null
// first and inserted afterwards.
type encoder struct {
	out     bytes.Buffer
	raw     []rawValue
	options json.Options
}

type rawValue struct {
	at   int // offset of its null
	text []byte
}

const placeholder = "null"

// encoders keeps encoders for reuse: the library caches its plan for a type per set of marshalers.
var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.options = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
		json.WithMarshalers(json.MarshalToFunc(func(to *jsontext.Encoder, v stdjson.RawMessage) error {
			err := to.WriteToken(jsontext.Null)
			if v != nil {
				e.raw = append(e.raw, rawValue{at: int(to.OutputOffset()) - len(placeholder), text: v})
			}
			return err
		})))
	return e
}}

// Append appends v as JSON. Fields of type json.RawMessage are appended byte for byte and must be valid JSON. Invalid
// UTF-8 in a string becomes U+FFFD. It panics where v is of a type that has no JSON.
func Append(b []byte, v any) []byte {
	e := encoders.Get().(*encoder)
	e.out.Reset()
	e.raw = e.raw[:0]
	if err := json.MarshalWrite(&e.out, v, e.options); err != nil {
		panic(fmt.Sprintf("strictjson: %T cannot be written: %v", v, err))
	}
	written, from, size := e.out.Bytes(), 0, e.out.Len()
	for _, r := range e.raw {
		size += len(r.text)
	}
	b = slices.Grow(b, size)
	for _, r := range e.raw {
		b = append(append(b, written[from:r.at]...), r.text...)
		from = r.at + len(placeholder)
	}
	b = append(b, written[from:]...)
	clear(e.raw)
	encoders.Put(e)
	return b
}
