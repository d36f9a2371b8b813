package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
)

// The generator of docs/openapi.json. It derives the schemas of the bodies by reflection from the types of package wire. The routes are
// in openapi_operations_test.go and its siblings, the meaning and the limits of the fields in openapi_fields_test.go and its siblings.

// JSON pointers of the components, for references.
const (
	schemaPath    = "#/components/schemas/"
	headerPath    = "#/components/headers/"
	parameterPath = "#/components/parameters/"
	responsePath  = "#/components/responses/"
)

// Tag is a group of operations in the document.
type Tag struct {
	Name  string `json:"name"`
	About string `json:"description"`
}

// Spec is the input of Build.
type Spec struct {
	Title, Version, Summary, About string
	Tags                           []Tag
	Operations                     []Operation
	Problems                       []wire.ProblemPage // every code, with an example
}

// builder builds a document. It collects the errors in the tables instead of stopping at the first one.
type builder struct {
	doc       *Document
	schemas   *schemas
	problems  []string
	usedIn    map[string]bool // request headers
	usedOut   map[string]bool // response headers, with the suffix of optional ones
	usedCodes map[wire.Code]bool
}

// Build builds the document. The error lists everything that is undocumented, and every table entry that nothing uses.
func Build(spec *Spec) (*Document, error) {
	b := &builder{doc: newDocument(spec), schemas: newSchemas(), usedIn: map[string]bool{}, usedOut: map[string]bool{}, usedCodes: map[wire.Code]bool{}}
	b.schemas.ref(wire.Problem{}, false)
	for i := range spec.Operations {
		b.operation(&spec.Operations[i])
	}
	b.addComponents(spec)
	b.checkUnused()
	if len(b.problems) > 0 {
		return nil, errors.New("openapi: " + strings.Join(b.problems, "; "))
	}
	return b.doc, nil
}

func newDocument(spec *Spec) *Document {
	return &Document{
		OpenAPI: "3.1.0",
		Info: info{Title: spec.Title, Version: spec.Version, Summary: spec.Summary, Description: spec.About,
			License: license{Name: "Apache-2.0", Identifier: "Apache-2.0"}},
		Servers:  []server{{URL: "/", Description: "the server that serves this document"}},
		Security: []securityRequirement{{tokenScheme: {}}},
		Tags:     spec.Tags,
	}
}

func (b *builder) addProblem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func (b *builder) operation(o *Operation) {
	for _, code := range o.Problems {
		if _, known := code.Class(); !known {
			b.addProblem("%s: unknown code %s", o.Pattern, code)
		}
	}
	if o.ID == "" || o.Tag == "" || o.Summary == "" || len(o.Answers) == 0 {
		b.addProblem("%s: ID, Tag, Summary and Answers are required", o.Pattern)
	}
	d := &pathOperation{ID: o.ID, Tags: []string{o.Tag}, Summary: o.Summary, Description: o.About, Security: securityOf(o)}
	b.addParameters(d, o)
	if o.Request != nil {
		d.Body = b.requestBodyOf(o)
	}
	for i := range o.Answers {
		b.addResponse(d, &o.Answers[i])
	}
	b.addProblemResponses(d, o)
	slices.SortStableFunc(d.Responses, func(x, y Member[*response]) int { return strings.Compare(x.Name, y.Name) })
	b.addOperation(o, d)
}

// securityOf returns the security requirements of an operation: one of them is enough.
func securityOf(o *Operation) []securityRequirement {
	switch {
	case o.Public:
		return []securityRequirement{}
	case len(o.Verbs) == 0:
		return []securityRequirement{{tokenScheme: {}}}
	}
	var alternatives []securityRequirement
	for _, verb := range o.Verbs {
		alternatives = append(alternatives, securityRequirement{tokenScheme: {verb}})
	}
	return alternatives
}

func (b *builder) requestBodyOf(o *Operation) *requestBody {
	r, kind := &requestBody{Required: true}, wire.TypeJSON
	if o.LinesType != "" {
		r.Description, kind = "One such object per line.", o.LinesType
	}
	m := media{Schema: b.schemas.ref(o.Request, true)}
	if o.Example != "" {
		m.Example = json.RawMessage(o.Example)
	}
	r.Content.put(kind, m)
	if o.AnyBody != "" {
		r.Description = o.AnyBody
		r.Content.put("*/*", media{})
	}
	return r
}

func (b *builder) addOperation(o *Operation, d *pathOperation) {
	path, method := o.path(), strings.ToLower(o.method())
	for i := range b.doc.Paths {
		if b.doc.Paths[i].Name == path {
			b.doc.Paths[i].Value.put(method, d)
			return
		}
	}
	b.doc.Paths.put(path, Map[*pathOperation]{{method, d}})
}

func (b *builder) addParameters(d *pathOperation, o *Operation) {
	names, keys := o.pathParameters()
	for i, name := range names {
		w, known := pathDocs()[keys[i]]
		if !known {
			b.addProblem("%s: %s is not in the table pathWords", o.Pattern, keys[i])
		}
		d.Parameters = append(d.Parameters, &parameter{Name: name, In: "path", Description: w.about, Required: true, Schema: stringSchema(w.pattern)})
	}
	for i := range o.Query {
		q := &o.Query[i]
		d.Parameters = append(d.Parameters, &parameter{Name: q.Name, In: "query", Description: q.About, Required: q.Required, Schema: &q.Schema})
	}
	for _, name := range slices.Concat(o.Parameters, commonRequestHeaders()) {
		if _, known := requestHeaders()[name]; !known {
			b.addProblem("%s: %s is not in the table requestHeaders", o.Pattern, name)
		}
		b.usedIn[name] = true
		d.Parameters = append(d.Parameters, &parameter{Ref: parameterPath + name})
	}
}

// addResponse documents an answer that is not a problem.
func (b *builder) addResponse(d *pathOperation, a *Answer) {
	r := &response{Description: a.About}
	always, sometimes := commonResponseHeaders(a.Status)
	b.headers(r, slices.Concat(always, a.Headers), slices.Concat(sometimes, a.Optional))
	for _, c := range a.Content {
		m := media{Schema: &Schema{}}
		switch {
		case c.Alternatives != nil:
			for _, of := range append([]any{c.Value}, c.Alternatives...) {
				m.Schema.AnyOf = append(m.Schema.AnyOf, b.schemas.ref(of, false))
			}
		case c.Value != nil:
			m.Schema = b.schemas.ref(c.Value, false)
		case strings.HasPrefix(c.Type, "text/"):
			m.Schema.Type = "string"
		}
		r.Content.put(c.Type, m)
	}
	d.Responses.put(strconv.Itoa(a.Status), r)
}

// optionalSuffix marks the component of an optional response header. A header that is required in one answer and
// optional in another needs two components.
const optionalSuffix = ".maybe"

func (b *builder) headers(r *response, always, sometimes []string) {
	put := func(name, suffix string) {
		if _, known := answerHeaders()[name]; !known {
			b.addProblem("%s is not in the table answerHeaders", name)
		}
		b.usedOut[name+suffix] = true
		r.Headers.put(name, &headerRef{Ref: headerPath + name + suffix})
	}
	for _, name := range always {
		put(name, "")
	}
	for _, name := range sometimes {
		put(name, optionalSuffix)
	}
}

// addProblemResponses documents the problems of an operation, grouped by status.
func (b *builder) addProblemResponses(d *pathOperation, o *Operation) {
	byStatus := map[string][]wire.Code{}
	largeRead := strings.HasPrefix(o.Pattern, "GET /v1/") // its answer may find no memory
	for _, class := range wire.Classes() {
		if slices.Contains(o.Problems, class.Code) || largeRead && class.Code == wire.RateLimited {
			status := strconv.Itoa(class.Status)
			byStatus[status] = append(byStatus[status], class.Code)
		}
	}
	for _, status := range sortedKeys(byStatus) {
		name, r := b.problemResponse(byStatus[status])
		if have, both := d.Responses.Get(status); both { // GET /readyz has two kinds of 503
			have.Description += "; or " + r.Description
			have.Content = append(have.Content, r.Content...)
			continue
		}
		if _, known := b.doc.Components.Responses.Get(name); !known { // operations with the same codes share the component
			b.doc.Components.Responses.put(name, r)
		}
		d.Responses.put(status, &response{Ref: responsePath + name})
	}
}

// problemResponse returns the response for codes that have the same status, and the name of its component.
func (b *builder) problemResponse(codes []wire.Code) (name string, r *response) {
	r = &response{}
	m := media{}
	var titles, names []string
	for _, code := range codes {
		class, _ := code.Class()
		titles, names = append(titles, "`"+string(code)+"`: "+class.Title), append(names, string(code))
		m.Examples.put(string(code), example{Ref: "#/components/examples/" + string(code)})
		b.usedCodes[code] = true
	}
	named := &Schema{Type: "object", Properties: Map[*Schema]{{"code", enumSchema(names...)}}}
	m.Schema = &Schema{AllOf: []*Schema{{Ref: schemaPath + "Problem"}, named}}
	r.Description = strings.Join(titles, "; ")
	r.Content.put(wire.TypeProblem, m)
	always, sometimes := problemHeaders(codes[0])
	b.headers(r, always, sometimes)
	return strings.Join(names, "."), r
}

// problemHeaders returns the response headers of a code.
func problemHeaders(code wire.Code) (always, sometimes []string) {
	class, _ := code.Class()
	always, sometimes = commonResponseHeaders(class.Status)
	sometimes = append(sometimes, flightHeaderNames()...)
	if class.Retryable || class.Status == http.StatusConflict {
		always = append(always, wire.HeaderRetryAfter)
	}
	switch class.Status {
	case http.StatusUnauthorized:
		always = append(always, wire.HeaderAuthenticate)
	case http.StatusConflict:
		sometimes = append(sometimes, wire.HeaderStripeRetry, wire.HeaderShouldRetry)
	case http.StatusGone:
		sometimes = append(sometimes, wire.HeaderIdempotencyExpires)
	case http.StatusFailedDependency:
		sometimes = append(sometimes, wire.HeaderReplayed, wire.HeaderIdempotencyExpires)
	}
	return always, sometimes
}

func (b *builder) addComponents(spec *Spec) {
	c := &b.doc.Components
	for _, p := range spec.Problems {
		if b.usedCodes[p.Code] {
			c.Examples.put(string(p.Code), example{Summary: p.Title, Value: p.Example})
		}
	}
	c.Schemas = b.schemas.all
	c.SecuritySchemes = map[string]securityScheme{tokenScheme: {Type: "http", Scheme: "bearer",
		Description: "A token of the server, which begins with fltd_. The role names are verbs of the token. A server without credentials, which listens on loopback only, needs none."}}
	for _, name := range sortedKeys(answerHeaders()) {
		for _, suffix := range []string{"", optionalSuffix} {
			if b.usedOut[name+suffix] {
				h := answerHeaders()[name]
				h.Required = suffix == ""
				c.Headers.put(name+suffix, h)
			}
		}
	}
	for _, name := range sortedKeys(requestHeaders()) {
		if b.usedIn[name] {
			h := requestHeaders()[name]
			c.Parameters.put(name, &parameter{Name: name, In: "header", Description: h.Description, Required: h.Required, Schema: h.Schema, Example: h.example})
		}
	}
}

// checkUnused reports undocumented fields and unused table entries.
func (b *builder) checkUnused() {
	for _, name := range b.schemas.unknown {
		b.addProblem("%s is not in the tables of httpapi/openapi_fields_test.go", name)
	}
	for _, name := range sortedKeys(b.schemas.docs) {
		if !b.schemas.used[name] {
			b.addProblem("%s is in the tables of httpapi/openapi_fields_test.go, but no type has it", name)
		}
	}
	for _, name := range sortedKeys(answerHeaders()) {
		if !b.usedOut[name] && !b.usedOut[name+optionalSuffix] {
			b.addProblem("%s is in the table answerHeaders, but no answer has it", name)
		}
	}
	for _, name := range sortedKeys(requestHeaders()) {
		if !b.usedIn[name] {
			b.addProblem("%s is in the table requestHeaders, but no route reads it", name)
		}
	}
}

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
