package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
	"github.com/flightd/flightd/httpapi/wire"
)

// object is a JSON object.
type object = map[string]any

// member returns the object at a path, or nil.
func member(o object, path ...string) object {
	for _, name := range path {
		o, _ = o[name].(object)
	}
	return o
}

func text(o object, name string) string { s, _ := o[name].(string); return s }

// walk calls visit for each object in a value, with its JSON pointer.
func walk(at string, v any, visit func(at string, o object)) {
	switch v := v.(type) {
	case object:
		visit(at, v)
		for name, inner := range v {
			walk(at+"/"+name, inner, visit)
		}
	case []any:
		for i, inner := range v {
			walk(at+"/"+strconv.Itoa(i), inner, visit)
		}
	}
}

// JSON pointers of the components.
const (
	schemaPath    = "#/components/schemas/"
	parameterPath = "#/components/parameters/"
	responsePath  = "#/components/responses/"
)

// optional ends the name of the component for a header that not every answer has.
const optional = ".maybe"

// commonHeaders are the request headers of every operation.
var commonHeaders = []string{wire.HeaderRequestID, wire.HeaderEcho, "Traceparent", wire.HeaderDeployment, wire.HeaderIndex}

// otherTypes are the types of the routes that read and write HTTP themselves. The operations in the document name them.
var otherTypes = []any{
	wire.BatchLine{}, wire.BatchAnswer{}, wire.CallbackRequest{}, wire.CallbackAnswer{}, wire.ClaimRequest{}, wire.ClaimAnswer{},
	wire.SubmitRequest{}, wire.SubmitAnswer{}, wire.SubmitLine{}, wire.ImportLine{}, wire.ImportAnswer{}, wire.Event{}, wire.EventPage{},
	wire.Gap{}, wire.DuplicateStats{}, wire.History{}, wire.Problem{}, wire.ProblemPage{}, wire.Ready{}, wire.Version{},
}

// generator makes a new docs/openapi.json of the present one. The document is the only place of the texts, examples, limits and patterns,
// of the answers that are no problems with their headers, and of the codes of single routes: an operation that refers to
// #/components/responses/lease_lost.expired has these two codes. The generator derives the rest: from routes(), from the types of requests
// and answers, and from the table of codes. New parts have empty texts. Parts that the code no longer has disappear.
type generator struct {
	t                         *testing.T
	old                       object
	order                     map[string]int // of the members of objects, by JSON pointers without escapes
	paths, schemas, responses object
	types                     map[string]reflect.Type // of the schemas
}

func newGenerator(t *testing.T) *generator {
	g := &generator{t: t, order: map[string]int{}, types: map[string]reflect.Type{},
		paths: object{}, schemas: object{}, responses: object{}}
	require.NoError(t, json.Unmarshal(docs.OpenAPI, &g.old))
	d := jsontext.NewDecoder(bytes.NewReader(docs.OpenAPI))
	for i := 1; ; i++ {
		if _, err := d.ReadToken(); err != nil {
			break
		}
		g.order[strings.ReplaceAll(string(d.StackPointer()), "~1", "/")] = i
	}
	routes := routePatterns()
	for pattern, r := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		method = strings.ToLower(method)
		if g.paths[path] == nil {
			g.paths[path] = object{}
		}
		member(g.paths, path)[method] = g.operation(r, path, member(g.old, "paths", path, method))
	}
	for _, v := range otherTypes {
		g.value(reflect.TypeOf(v))
	}
	for _, r := range routes {
		if r.request != nil {
			g.value(r.answer)
		}
	}
	return g
}

// DocumentTypes returns the types of the document's schemas.
func DocumentTypes(t *testing.T) map[string]reflect.Type { return newGenerator(t).types }

// usualOrder is the order of members that are new.
var usualOrder = []string{"operationId", "tags", "summary", "$ref", "name", "in", "type", "description", "parameters", "required",
	"requestBody", "headers", "content", "responses"}

// encode appends a value. The members of its objects are in the order that they have in the present document. New ones are at the end.
func (g *generator) encode(b []byte, at string, v any) []byte {
	switch v := v.(type) {
	case object:
		b = append(b, '{')
		rank := func(name string) int {
			return cmp.Or(g.order[at+"/"+name], math.MaxInt32+slices.Index(append(usualOrder, name), name))
		}
		names := slices.Sorted(maps.Keys(v))
		slices.SortStableFunc(names, func(x, y string) int { return rank(x) - rank(y) })
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(g.encode(b, "", name), ':')
			b = g.encode(b, at+"/"+name, v[name])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, inner := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = g.encode(b, at+"/"+strconv.Itoa(i), inner)
		}
		return append(b, ']')
	}
	data, err := json.Marshal(v)
	require.NoError(g.t, err)
	return append(b, data...)
}

// document returns the document, with the components that its operations use.
func (g *generator) document() object {
	old, headers, examples := member(g.old, "components"), object{}, object{}
	for name, h := range member(old, "headers") {
		headers[name] = h
		if always := member(old, "headers", strings.TrimSuffix(name, optional)); strings.HasSuffix(name, optional) && always != nil {
			headers[name] = object{"description": always["description"], "schema": always["schema"]}
		}
	}
	for _, class := range wire.Classes() {
		examples[string(class.Code)] = object{"summary": class.Title, "value": pageOf(class).Example}
	}
	components := object{"schemas": g.schemas, "responses": g.responses, "examples": examples, "headers": headers,
		"parameters": old["parameters"]}
	used := map[string]bool{}
	var use func(v any)
	use = func(v any) {
		walk("", v, func(_ string, o object) {
			if pointer := text(o, "$ref"); pointer != "" && !used[pointer] {
				used[pointer] = true
				use(member(components, strings.Split(pointer, "/")[2:]...))
			}
		})
	}
	use(g.paths)
	for kind := range components {
		maps.DeleteFunc(member(components, kind), func(name string, _ any) bool { return !used["#/components/"+kind+"/"+name] })
	}
	walk("", g.paths, func(_ string, op object) { // requests reject unknown fields
		walk("", op["requestBody"], func(_ string, o object) {
			if schema := member(g.schemas, strings.TrimPrefix(text(o, "$ref"), schemaPath)); schema != nil {
				schema["additionalProperties"] = false
			}
		})
	})
	components["securitySchemes"] = old["securitySchemes"]
	doc := maps.Clone(g.old)
	doc["paths"], doc["components"] = g.paths, components
	return doc
}

func (g *generator) operation(r route, path string, old object) object {
	op := object{"operationId": "", "tags": []any{}, "summary": "", "parameters": g.parameters(r, path, old)}
	for _, name := range []string{"operationId", "tags", "summary", "description"} {
		if old[name] != nil {
			op[name] = old[name]
		}
	}
	if body := g.requestBody(r, member(old, "requestBody")); body != nil {
		op["requestBody"] = body
		r.body = true
	}
	op["responses"] = g.answers(r, path, member(old, "responses"))
	security := []any{}
	for _, verb := range r.access.verbs.Names() {
		security = append(security, object{"token": []any{verb}})
	}
	if len(security) == 0 && !r.access.public {
		security = append(security, object{"token": []any{}})
	}
	op["security"] = security
	return op
}

var pathName = regexp.MustCompile(`\{([a-z]+)`)

// parameters returns the parameters of an operation. The document has the query of a route that reads it itself, and the headers that no
// field is bound to.
func (g *generator) parameters(r route, path string, old object) (all []any) {
	given := map[string]object{}
	var query, headers []string
	list, _ := old["parameters"].([]any)
	for _, v := range list {
		p := v.(object)
		given[text(p, "in")+text(p, "name")] = p
		if p["in"] == "query" {
			query = append(query, text(p, "name"))
		}
		if name := strings.TrimPrefix(text(p, "$ref"), parameterPath); name != "" && !slices.Contains(commonHeaders, name) {
			headers = append(headers, name)
		}
	}
	types := map[string]reflect.Type{}
	if r.request != nil {
		bound := boundFieldsOf(r.request)
		for _, f := range bound.fields {
			types[f.query] = r.request.FieldByIndex(f.index).Type
			if f.header != "" && !slices.Contains(headers, f.header) {
				headers = append(headers, f.header)
			}
		}
		query = slices.DeleteFunc(append(query, bound.query...), func(name string) bool { return types[name] == nil })
	}
	add := func(in, name string, schema object) {
		p := object{"name": name, "in": in, "description": text(given[in+name], "description")}
		if in == "path" {
			p["required"] = true
		}
		p["schema"] = withLimits(schema, member(given[in+name], "schema"))
		all = append(all, p)
	}
	for _, match := range pathName.FindAllStringSubmatch(path, -1) {
		add("path", match[1], object{"type": "string"})
	}
	for i, name := range query {
		switch {
		case slices.Contains(query[:i], name):
		case types[name] == nil:
			add("query", name, member(given["query"+name], "schema"))
		case types[name] == reflect.TypeFor[limitParameter]():
			add("query", name, object{"type": "integer", "minimum": 1, "maximum": maxPage})
		default:
			add("query", name, object{"type": "string"})
		}
	}
	for _, name := range slices.Concat(headers, commonHeaders) {
		all = append(all, object{"$ref": parameterPath + name})
	}
	return all
}

// requestBody returns the body of an operation. The document has those of routes that read it themselves, or ignore it.
func (g *generator) requestBody(r route, old object) object {
	if r.request != nil && !r.body {
		return nil
	}
	if r.request == nil || !reflect.PointerTo(r.request).Implements(reflect.TypeFor[ownBody]()) && boundFieldsOf(r.request).noOther {
		return old
	}
	content := object{"schema": object{"type": "object"}}
	itself := reflect.StructField{Type: r.request, Anonymous: true}
	for _, f := range append([]reflect.StructField{itself}, reflect.VisibleFields(r.request)...) {
		if f.Anonymous && f.Type.PkgPath() == reflect.TypeFor[wire.Problem]().PkgPath() {
			content["schema"] = g.value(f.Type)
			break
		}
	}
	if example := member(old, "content", wire.TypeJSON)["example"]; example != nil {
		content["example"] = example
	}
	return object{"required": true, "content": object{wire.TypeJSON: content}}
}

// answers returns the answers of the document, with the types of the present code, and the problems: those of the document and those that
// each such route has.
func (g *generator) answers(r route, path string, old object) object {
	if old == nil {
		headers := member(g.old, "paths", "/v1/whoami", "get", "responses", "200", "headers")
		old = object{"200": object{"description": "", "headers": headers, "content": object{wire.TypeJSON: object{"schema": object{}}}}}
	}
	all, codes := object{}, []wire.Code{wire.Forbidden}
	for status := range old {
		if names, isProblem := strings.CutPrefix(text(member(old, status), "$ref"), responsePath); isProblem {
			for name := range strings.SplitSeq(names, ".") {
				_, known := wire.Code(name).Class()
				require.True(g.t, known, "%s: no code %s", r.pattern, name)
				codes = append(codes, wire.Code(name))
			}
			continue
		}
		all[status] = old[status]
		content := member(old, status, "content", wire.TypeJSON) // the document may leave an answer open
		if r.answer != nil && r.answer.Kind() == reflect.Struct && content != nil && member(content, "schema")["type"] != "object" {
			content["schema"] = g.value(r.answer)
		}
	}
	if !r.access.public {
		codes = append(codes, wire.Unauthenticated)
	}
	if strings.HasPrefix(path, "/v1/") {
		codes = append(codes, wire.InputInvalid, wire.WrongDeployment, wire.Internal, wire.NoLeader, wire.LeaderLost,
			wire.LedgerBehind, wire.Draining)
	}
	if strings.HasPrefix(r.pattern, "GET /v1/") {
		codes = append(codes, wire.RateLimited) // the answer may find no memory
	}
	if r.body {
		codes = append(codes, wire.PayloadTooLarge, wire.UnsupportedMediaType, wire.RequestIncomplete)
	}
	byStatus := map[string][]wire.Class{}
	for _, class := range wire.Classes() {
		if status := strconv.Itoa(class.Status); slices.Contains(codes, class.Code) {
			byStatus[status] = append(byStatus[status], class)
		}
	}
	for status, classes := range byStatus {
		if all[status] == nil {
			all[status] = object{"$ref": responsePath + g.problem(classes)}
		}
	}
	return all
}

// problem adds the response of codes that have the same status, and returns its name. It has the headers that such a response has in the
// document.
func (g *generator) problem(classes []wire.Class) string {
	var codes, titles []string
	examples, headers := object{}, object{}
	for _, class := range classes {
		code := string(class.Code)
		codes, titles = append(codes, code), append(titles, "`"+code+"`: "+class.Title)
		examples[code] = object{"$ref": "#/components/examples/" + code}
	}
	for name, response := range member(g.old, "components", "responses") {
		first, _, _ := strings.Cut(name, ".")
		if class, _ := wire.Code(first).Class(); class.Status == classes[0].Status {
			headers = member(response.(object), "headers")
		}
	}
	code := object{"code": object{"type": "string", "enum": codes}}
	schema := object{"allOf": []any{object{"$ref": schemaPath + "Problem"}, object{"type": "object", "properties": code}}}
	g.responses[strings.Join(codes, ".")] = object{"description": strings.Join(titles, "; "), "headers": headers,
		"content": object{wire.TypeProblem: object{"schema": schema, "examples": examples}}}
	return strings.Join(codes, ".")
}

// value returns the schema of a value, and adds the schemas of its structs to the components.
func (g *generator) value(t reflect.Type) object {
	kinds := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer",
		reflect.Uint32: "integer", reflect.Uint64: "integer", reflect.Float64: "number"}
	switch kind := kinds[t.Kind()]; {
	case t == reflect.TypeFor[wire.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{}
	case t == reflect.TypeFor[struct{}]():
		return object{"type": "object"}
	case t.Kind() == reflect.Pointer:
		return g.value(t.Elem())
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": g.value(t.Elem())}
	case t.Kind() == reflect.Struct:
		require.NotEmpty(g.t, t.Name())
		require.Contains(g.t, []reflect.Type{nil, t}, g.types[t.Name()], "two types have the name %s", t.Name())
		if g.types[t.Name()] == nil {
			g.types[t.Name()] = t
			g.schemas[t.Name()] = g.object(t)
		}
		return object{"$ref": schemaPath + t.Name()}
	default:
		require.NotEmpty(g.t, kind, "no rule for the type %s", t)
		return object{"type": kind}
	}
}

// object returns the schema of a struct, with its fields in their order.
func (g *generator) object(t reflect.Type) object {
	old, properties := member(g.old, "components", "schemas", t.Name()), object{}
	schema := object{"type": "object", "description": text(old, "description"), "properties": properties}
	var required []any
	for i, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" || name == "-" || !f.IsExported() {
			continue
		}
		p := member(old, "properties", name)
		field := withLimits(g.value(f.Type), p)
		field["description"] = text(p, "description")
		properties[name] = field
		g.order["/components/schemas/"+t.Name()+"/properties/"+name] = i + 1
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	if required != nil {
		schema["required"] = required
	}
	return schema
}

// withLimits returns a schema with the limits of an old one.
func withLimits(schema, old object) object {
	limited := object{}
	for _, limit := range []string{"enum", "pattern", "maxLength", "minimum", "maximum", "maxItems", "default"} {
		if old[limit] != nil {
			limited[limit] = old[limit]
		}
	}
	maps.Copy(limited, schema)
	return limited
}
