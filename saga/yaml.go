package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/yamlfile"
)

// Place is a place in a file of YAML.
type Place struct{ Line, Column int }

// Places are the places of the values of a definition, by JSON pointer.
type Places map[string]Place

// Of returns the place of a value, or of the nearest value around it.
func (p Places) Of(pointer string) Place {
	for {
		if place, ok := p[pointer]; ok || pointer == "" {
			return place
		}
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
	}
}

// ParseYAML reads a definition as people write it: as Parse, and the steps may be a mapping by name. Errors have the line and the
// column; an error about a value is a *wire.Invalid. With *UnknownFields, which has every unknown field, ParseYAML also returns
// the places.
func ParseYAML(data []byte) (*Definition, Places, error) {
	docs, err := YAMLDocuments(data, nil)
	switch {
	case err != nil:
		return nil, nil, err
	case len(docs) > 1:
		return nil, nil, badYAML(docs[1].Places[""], "", "a file has one definition")
	case len(docs) == 0 || docs[0].JSON[0] != '{':
		return nil, nil, wire.BadField("", "a definition begins with the line saga: NAME")
	}
	d, err := Parse(docs[0].JSON)
	if err != nil {
		if bad, ok := errors.AsType[*wire.Invalid](err); ok {
			at := docs[0].Places.Of(bad.Pointer)
			bad.Detail = fmt.Sprintf("line %d, column %d: %s", at.Line, at.Column, bad.Detail)
			if found := unknownFields(docs[0].JSON); len(found) > 0 {
				return nil, docs[0].Places, &UnknownFields{Found: found, first: bad}
			}
		}
		return nil, nil, err
	}
	return d, docs[0].Places, nil
}

func badYAML(at Place, pointer, detail string) error {
	return wire.BadField(pointer, "line %d, column %d: %s", at.Line, at.Column, detail)
}

func placeOf(n ast.Node) Place {
	at := n.GetToken().Position
	return Place{at.Line, at.Column}
}

// converter writes YAML as JSON.
type converter struct {
	out    bytes.Buffer
	places Places
	isText func(pointer string) bool // reports whether the value at a pointer is a text even if it looks like a number or a bool; may be nil
}

// YAMLDocument is one document of a YAML file, converted to JSON.
type YAMLDocument struct {
	JSON   []byte
	Places Places
}

// YAMLDocuments converts the documents of a YAML file that have content. A scalar for which isText returns true becomes a JSON
// string with the text of the file. Every other number must also be a JSON number: some YAML readers take 0100 for 64, and others
// for 100.
func YAMLDocuments(data []byte, isText func(pointer string) bool) (all []YAMLDocument, err error) {
	bodies, err := yamlfile.Parse(data)
	if err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	for _, body := range bodies {
		c := &converter{places: make(Places), isText: isText}
		if err := c.convert(body, ""); err != nil {
			return nil, err
		}
		all = append(all, YAMLDocument{c.out.Bytes(), c.places})
	}
	return all, nil
}

func (c *converter) convert(n ast.Node, pointer string) error {
	if _, ok := c.places[pointer]; !ok {
		c.places[pointer] = placeOf(n)
	}
	switch n.Type() {
	case ast.IntegerType, ast.FloatType, ast.BoolType, ast.InfinityType, ast.NanType:
		if c.isText != nil && c.isText(pointer) {
			c.text(n.GetToken().Value)
			return nil
		}
	}
	switch v := n.(type) {
	case ast.MapNode:
		return c.object(v, pointer, "")
	case *ast.SequenceNode:
		c.out.WriteByte('[')
		for i, inner := range v.Values {
			if i > 0 {
				c.out.WriteByte(',')
			}
			if err := c.convert(inner, fmt.Sprintf("%s/%d", pointer, i)); err != nil {
				return err
			}
		}
		c.out.WriteByte(']')
	case *ast.StringNode:
		c.text(v.Value)
	case *ast.LiteralNode:
		c.text(v.Value.Value)
	case *ast.BoolNode:
		fmt.Fprint(&c.out, v.Value)
	case *ast.NullNode:
		c.out.WriteString("null")
	case *ast.IntegerNode, *ast.FloatNode:
		text := n.GetToken().Value
		if !json.Valid([]byte(text)) {
			return badYAML(placeOf(n), pointer, text+" is no number of JSON; write it in decimal digits, or as a text in quotation marks")
		}
		c.out.WriteString(text)
	default:
		return badYAML(placeOf(n), pointer, fmt.Sprintf("%s is not supported here; write the value out", strings.ToLower(n.Type().String())))
	}
	return nil
}

// object writes a mapping. The mapping of the steps becomes a list, in which each step has its name.
func (c *converter) object(n ast.MapNode, pointer, name string) error {
	list := pointer == "/steps"
	opening, closing := byte('{'), byte('}')
	if list {
		opening, closing = '[', ']'
	}
	c.out.WriteByte(opening)
	first := true
	if name != "" {
		c.out.WriteString(`"name":`)
		c.text(name)
		first = false
	}
	for i, field := 0, n.MapRange(); field.Next(); i++ {
		key, ok := field.Key().(ast.ScalarNode)
		if !ok {
			return badYAML(placeOf(field.Key()), pointer, "the name of a field is a text")
		}
		if !first {
			c.out.WriteByte(',')
		}
		first = false
		text := key.GetToken().Value
		at := pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(text)
		if list {
			at = fmt.Sprintf("/steps/%d", i)
		}
		c.places[at] = placeOf(field.Key())
		if list {
			step, ok := field.Value().(ast.MapNode)
			if !ok {
				return badYAML(placeOf(field.Key()), at, "step "+text+" is not a mapping of fields; write {} for a step without any")
			}
			if err := c.object(step, at, text); err != nil {
				return err
			}
			continue
		}
		c.text(text)
		c.out.WriteByte(':')
		if err := c.convert(field.Value(), at); err != nil {
			return err
		}
	}
	c.out.WriteByte(closing)
	return nil
}

func (c *converter) text(s string) { c.out.Write(encode(s)) }
