package openapitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Exchange is a request and its answer.
type Exchange struct {
	Method        string
	URL           *url.URL
	RequestHeader http.Header
	RequestBody   []byte
	Status        int
	Header        http.Header
	Body          []byte
}

// Checker checks exchanges against one document. Its methods are safe for concurrent use.
type Checker struct {
	root     map[string]any
	compiler *jsonschema.Compiler

	mu      sync.Mutex                    // guards the fields below, and compiler
	schemas map[string]*jsonschema.Schema // compiled, by JSON pointer
	seen    map[string]bool               // keys are "operation status"
}

const address = "https://flightd.invalid/openapi.json"

// New returns a checker for a document. It sets additionalProperties to false in every schema that allows more fields.
func New(document []byte) (*Checker, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, err
	}
	root, ok := parsed.(map[string]any)
	if !ok {
		return nil, errors.New("openapitest: the document is not an object")
	}
	for _, s := range within(root, "components", "schemas") {
		if object := s.(map[string]any); object["properties"] != nil && object["additionalProperties"] == nil {
			object["additionalProperties"] = false
		}
	}
	c := &Checker{root: root, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, seen: map[string]bool{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource(address, root)
}

// objectAt returns the object at a path; nil if there is none.
func within(v any, path ...string) map[string]any {
	object, _ := v.(map[string]any)
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}

// node is an object of the document and its JSON pointer.
type place struct {
	node    map[string]any
	pointer string
}

func (p place) down(names ...string) place {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, name := range names {
		p.node, _ = p.node[name].(map[string]any)
		p.pointer += "/" + escape.Replace(name)
	}
	return p
}

// resolveRef returns the node that p refers to; p itself if it is not a reference.
func (c *Checker) follow(p place) place {
	if ref, ok := p.node["$ref"].(string); ok {
		return place{c.root, ""}.down(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return p
}

// Check returns the first difference between an exchange and the document; nil if there is none.
func (c *Checker) Check(x *Exchange) error {
	op, parameters, found := c.operation(x)
	if !found {
		return c.lost(x)
	}
	name := x.Method + " " + parameters.template
	fail := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s answered with %d: %w", name, x.Status, err)
	}
	c.mu.Lock()
	c.seen[fmt.Sprintf("%v %d", op.node["operationId"], x.Status)] = true
	c.mu.Unlock()
	if x.Status < 400 {
		if err := c.request(x, op, parameters); err != nil {
			return fail(fmt.Errorf("the request was accepted, but is not as documented: %w", err))
		}
	}
	responses := op.down("responses")
	if _, known := responses.node[strconv.Itoa(x.Status)]; !known {
		return fail(fmt.Errorf("undocumented status: %s", x.Body))
	}
	return fail(c.answer(x, c.follow(responses.down(strconv.Itoa(x.Status)))))
}

// Unseen lists the documented answers, other than problems, that no exchange had, as "operation status".
func (c *Checker) Unseen() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, methods := range within(c.root, "paths") {
		for _, op := range within(methods) {
			for status, r := range within(op, "responses") {
				answer := fmt.Sprintf("%v %s", within(op)["operationId"], status)
				if within(r)["$ref"] == nil && !c.seen[answer] {
					all = append(all, answer)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// pathMatch is a path template and the values of its names.
type matched struct {
	template string
	values   map[string]string
}

func (c *Checker) operation(x *Exchange) (op place, m matched, found bool) {
	method := strings.ToLower(x.Method)
	if method == "head" {
		method = "get"
	}
	paths := place{c.root, ""}.down("paths")
	for _, template := range slices.Sorted(maps.Keys(paths.node)) {
		values, fits := match(template, x.URL.Path)
		if op = paths.down(template, method); fits && op.node != nil {
			return op, matched{template, values}, true
		}
	}
	return op, m, false
}

func match(template, path string) (values map[string]string, fits bool) {
	want, have := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return nil, false
	}
	values = map[string]string{}
	for i, w := range want {
		if strings.HasPrefix(w, "{") {
			values[strings.Trim(w, "{}")] = have[i]
		} else if w != have[i] {
			return nil, false
		}
	}
	return values, true
}

// checkUndocumented checks the answer to an undocumented request, which must be a problem.
func (c *Checker) lost(x *Exchange) error {
	if x.URL.Path == "/metrics" || strings.HasPrefix(x.URL.Path, "/metrics/") && x.Status == http.StatusOK {
		return nil // the metrics are not part of the API
	}
	switch x.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusForbidden, http.StatusUnsupportedMediaType:
	default:
		return fmt.Errorf("%s %s is undocumented, but was answered with %d", x.Method, x.URL.Path, x.Status)
	}
	return c.value("/components/schemas/Problem", x.Body)
}

func (c *Checker) request(x *Exchange, op place, m matched) error {
	query := x.URL.Query()
	listed, _ := op.node["parameters"].([]any)
	for i, p := range listed {
		at := c.follow(place{p.(map[string]any), op.pointer + "/parameters/" + strconv.Itoa(i)})
		name := at.node["name"].(string)
		var value string
		var there bool
		switch at.node["in"] {
		case "path":
			value, there = m.values[name]
		case "query":
			value, there = query.Get(name), query.Has(name)
			query.Del(name)
		case "header":
			value, there = x.RequestHeader.Get(name), x.RequestHeader.Get(name) != ""
		}
		if err := c.text(at, name, value, there); err != nil {
			return err
		}
	}
	if len(query) > 0 {
		return fmt.Errorf("undocumented parameters: %v", query)
	}
	contents := op.down("requestBody", "content")
	if contents.node == nil {
		return nil
	}
	if content := contents.down("application/json"); content.node != nil {
		return c.value(content.down("schema").pointer, x.RequestBody)
	}
	content := contents.down(x.RequestHeader.Get("Content-Type"))
	if content.node == nil {
		return fmt.Errorf("undocumented content type %q", x.RequestHeader.Get("Content-Type"))
	}
	return c.each(content, bytes.Lines(x.RequestBody))
}

// checkEach checks each part against the schema of the content.
func (c *Checker) each(content place, parts iter.Seq[[]byte]) error {
	for part := range parts {
		if err := c.value(content.down("schema").pointer, part); err != nil {
			return err
		}
	}
	return nil
}

// streamMessages returns the data lines of an event stream. A last line without a line feed is skipped.
func messages(stream []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(stream) {
			if data, found := bytes.CutPrefix(line, []byte("data: ")); found && bytes.HasSuffix(line, []byte("\n")) && !yield(data) {
				return
			}
		}
	}
}

// checkText checks the value of a parameter or header.
func (c *Checker) text(at place, name, value string, there bool) error {
	if required, _ := at.node["required"].(bool); !there {
		if required {
			return fmt.Errorf("%s is missing", name)
		}
		return nil
	}
	document, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if at.down("schema").node["type"] == "integer" {
		document = []byte(value)
	}
	if err := c.value(at.down("schema").pointer, document); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *Checker) answer(x *Exchange, r place) error {
	headers := r.down("headers")
	for name := range headers.node {
		if err := c.text(c.follow(headers.down(name)), name, x.Header.Get(name), x.Header.Get(name) != ""); err != nil {
			return err
		}
	}
	for name := range x.Header {
		if _, known := headers.node[name]; !known && !ofTransport(name) && headers.node[inDocument(name)] == nil {
			return fmt.Errorf("undocumented header %s: %s", name, x.Header.Get(name))
		}
	}
	contents := r.down("content")
	if len(contents.node) == 0 || x.Method == http.MethodHead {
		if len(x.Body) > 0 {
			return fmt.Errorf("unexpected body: %s", x.Body)
		}
		return nil
	}
	kind := x.Header.Get("Content-Type")
	content := contents.down(kind)
	if content.node == nil {
		content = contents.down("*/*")
	}
	if content.node == nil {
		return fmt.Errorf("undocumented content type %q", kind)
	}
	if kind == "text/event-stream" {
		return c.each(content, messages(x.Body))
	}
	if !strings.HasSuffix(kind, "json") || content.pointer == contents.down("*/*").pointer {
		return nil
	}
	return c.value(content.down("schema").pointer, x.Body)
}

// documentSpelling returns the document's spelling of a header in Go's canonical form.
func inDocument(name string) string {
	if name == "Etag" {
		return "ETag"
	}
	return name
}

// isTransportHeader reports whether a header belongs to HTTP itself; the document does not list these.
func ofTransport(name string) bool {
	switch name {
	case "Date", "Content-Type", "Content-Length", "Connection", "Transfer-Encoding":
		return true
	}
	return false
}

// checkJSON checks data against the schema at a JSON pointer of the document.
func (c *Checker) value(pointer string, data []byte) error {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%w: %s", err, data)
	}
	schema, err := c.schema(pointer)
	if err != nil {
		return err
	}
	if err := schema.Validate(parsed); err != nil {
		return fmt.Errorf("%w\n%s", err, data)
	}
	return nil
}

func (c *Checker) schema(pointer string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schemas[pointer]; s != nil {
		return s, nil
	}
	s, err := c.compiler.Compile(address + "#" + (&url.URL{Path: pointer}).EscapedPath())
	if err == nil {
		c.schemas[pointer] = s
	}
	return s, err
}

// CheckSchema checks data against a schema of the document, by its name.
func (c *Checker) Schema(name string, data []byte) error {
	return c.value("/components/schemas/"+name, data)
}
