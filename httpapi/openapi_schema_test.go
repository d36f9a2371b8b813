package httpapi_test

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
)

// Schema is the subset of JSON Schema 2020-12 that the document uses. The zero Schema allows any value.
type Schema struct {
	Ref         string       `json:"$ref,omitempty"`
	Type        string       `json:"type,omitempty"`
	Description string       `json:"description,omitempty"`
	Enum        []string     `json:"enum,omitempty"`
	Format      string       `json:"format,omitempty"`
	Pattern     string       `json:"pattern,omitempty"`
	Encoding    string       `json:"contentEncoding,omitempty"`
	MinLength   int          `json:"minLength,omitempty"`
	MaxLength   int          `json:"maxLength,omitempty"`
	Minimum     *int64       `json:"minimum,omitempty"`
	Maximum     *int64       `json:"maximum,omitempty"`
	MaxItems    int          `json:"maxItems,omitempty"`
	Default     any          `json:"default,omitempty"`
	Items       *Schema      `json:"items,omitempty"`
	Properties  Map[*Schema] `json:"properties,omitempty"`
	Required    []string     `json:"required,omitempty"`
	// Additional is false if unknown fields are rejected.
	Additional *bool     `json:"additionalProperties,omitempty"`
	AllOf      []*Schema `json:"allOf,omitempty"`
	AnyOf      []*Schema `json:"anyOf,omitempty"`
}

// schemas collects the types of package wire that the operations use.
type schemas struct {
	all     Map[*Schema]
	docs    map[string]fieldDoc // the documentation of each type and field
	unknown []string            // undocumented types and fields
	used    map[string]bool     // table entries that were used
}

func newSchemas() *schemas {
	return &schemas{docs: allDocs(), used: map[string]bool{}}
}

// ref returns a reference to the schema of v's type. Requests reject unknown fields; answers may get new fields.
func (s *schemas) ref(v any, request bool) *Schema {
	t := reflect.TypeOf(v)
	if t == reflect.TypeFor[struct{}]() {
		return &Schema{Type: "object"}
	}
	if _, known := s.all.Get(t.Name()); !known {
		s.addType(t, request)
	}
	return &Schema{Ref: schemaPath + t.Name()}
}

func (s *schemas) addType(t reflect.Type, request bool) {
	object := &Schema{Type: "object", Description: s.docs[t.Name()].about}
	s.used[t.Name()] = true
	if object.Description == "" {
		s.unknown = append(s.unknown, t.Name())
	}
	s.all.put(t.Name(), object) // before its fields, because a type may contain itself
	s.addFields(object, t)
	if request {
		object.Additional = new(bool)
	}
}

// addFields adds the fields of a struct, including those of embedded structs.
func (s *schemas) addFields(object *Schema, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addFields(object, f.Type)
			continue
		case name == "-" || !f.IsExported():
			continue
		}
		object.Properties.put(name, s.fieldSchema(t, f, name))
		if !strings.Contains(options, "omit") {
			object.Required = append(object.Required, name)
		}
	}
}

// fieldSchema returns the schema of a field, from its type and its documentation.
func (s *schemas) fieldSchema(owner reflect.Type, f reflect.StructField, name string) *Schema {
	schema := s.schemaOf(f.Type)
	key := owner.Name() + "." + name
	words, known := s.docs[key]
	if !known {
		key = name
		words, known = s.docs[key]
	}
	if !known {
		s.unknown = append(s.unknown, owner.Name()+"."+name)
		return schema
	}
	s.used[key] = true
	words.applyTo(schema)
	return schema
}

func (s *schemas) schemaOf(t reflect.Type) *Schema {
	switch t {
	case reflect.TypeFor[wire.Time]():
		return &Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return &Schema{}
	case reflect.TypeFor[[]byte]():
		return &Schema{Type: "string", Encoding: "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.schemaOf(t.Elem())
	case reflect.Struct:
		return s.ref(reflect.Zero(t).Interface(), false)
	case reflect.Slice:
		return &Schema{Type: "array", Items: s.schemaOf(t.Elem())}
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return &Schema{Type: "integer"}
	case reflect.Float64:
		return &Schema{Type: "number"}
	}
	s.unknown = append(s.unknown, t.String())
	return &Schema{}
}
