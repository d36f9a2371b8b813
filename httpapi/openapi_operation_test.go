package httpapi_test

import (
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
)

// Operation describes one route.
type Operation struct {
	Pattern string // as registered: "POST /v1/flights/{id}/report"
	ID      string // unique, for generated clients: "reportFlight"
	Tag     string // the name of its Tag
	Summary string // one line
	About   string // details, as Markdown
	// Parameters names the request headers; the table requestHeaders documents them.
	Parameters []string
	Query      []Parameter
	Request    any    // a value of the body's type; nil: no body
	AnyBody    string // what a body of any other type means, which a query then describes; "": the route takes none
	LinesType  string // the content type of a body with one such value per line; "": the body is one JSON value
	Example    string // an example of the body
	Answers    []Answer
	Problems   []wire.Code // the possible codes
	Public     bool        // also served without a token
	Verbs      []string    // the token has one of them; empty: any token
}

// Answer is an answer of a route that is not a problem.
type Answer struct {
	Status   int
	About    string
	Headers  []string // always present
	Optional []string // optional
	Content  []Content
}

// Content is a possible body of an answer. If there are several, the request's Accept selects one.
type Content struct {
	Type string // the content type; "*/*" if it varies
	// Value is a value of the body's type; nil: text or bytes; struct{}{}: any object. For an event stream it is the type
	// of the data of its messages.
	Value        any
	Alternatives []any // other possible types
}

// Parameter is a query parameter.
type Parameter struct {
	Name     string
	About    string
	Schema   Schema
	Required bool
}

// method and path return the parts of the pattern.
func (o *Operation) method() string { m, _, _ := strings.Cut(o.Pattern, " "); return m }
func (o *Operation) path() string   { _, p, _ := strings.Cut(o.Pattern, " "); return p }

// pathParameters returns the names in braces, and for each a key with the segment before it: "flights/{id}".
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
