package openapi

import (
	"strings"

	"github.com/flightd/flightd/internal/wire"
)

// Operation describes one route.
type Operation struct {
	Pattern string // as the route is registered: "POST /v1/flights/{id}/report"
	ID      string // a name for programs, unique: "reportOutcome"
	Tag     string // the chapter that it stands in
	Summary string // one line
	About   string // what is worth saying beyond that
	// Parameters names headers of the request; what they mean is in the table of headers.
	Parameters []string
	Query      []Parameter
	Request    any    // a value of the type that the body has; nil: it has none
	Lines      string // the content type, where the body has one such value a line; else it is one, as JSON
	Example    string // of the request's body
	Answers    []Answer
	Problems   []wire.Code // that it may answer with
}

// Answer is one way in which a route answers when nothing is wrong.
type Answer struct {
	Status  int
	About   string
	Headers []string // always there
	Maybe   []string // there where they have something to say
	Content []Content
}

// Content is a body that an answer may have; which one, the request's Accept says where there are several.
type Content struct {
	Type string // of the content; "*/*" where it is not the same for all
	Of   any    // a value of the type that the body has; nil: text, or bytes; struct{}{}: any object. Of a stream of
	// events it is what their data are
	Or []any // other types that it may have
}

// Parameter is a parameter of the query.
type Parameter struct {
	Name     string
	About    string
	Schema   Schema
	Required bool
}

// method and path take a pattern apart.
func (o *Operation) method() string { m, _, _ := strings.Cut(o.Pattern, " "); return m }
func (o *Operation) path() string   { _, p, _ := strings.Cut(o.Pattern, " "); return p }

// pathParameters are the names in braces, each with what stands before it: "flights/{id}".
func (o *Operation) pathParameters() (names, keys []string) {
	segments := strings.Split(o.path(), "/")
	for i, s := range segments {
		if name, found := strings.CutPrefix(s, "{"); found {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
			names, keys = append(names, name), append(keys, segments[i-1]+"/{"+name+"}")
		}
	}
	return names, keys
}
