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

	mu       sync.Mutex                    // guards the fields below, and compiler
	schemas  map[string]*jsonschema.Schema // compiled, by JSON pointer
	observed map[string]bool               // keys are "operation status"
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
	for _, s := range objectAt(root, "components", "schemas") {
		if object := s.(map[string]any); object["properties"] != nil && object["additionalProperties"] == nil {
			object["additionalProperties"] = false
		}
	}
	c := &Checker{root: root, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, observed: map[string]bool{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource(address, root)
}

// objectAt returns the object at a path, or nil if there is none.
func objectAt(v any, path ...string) map[string]any {
	object, _ := v.(map[string]any)
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}

// node is an object of the document and its JSON pointer.
type node struct {
	value   map[string]any
	pointer string
}

func (n node) child(names ...string) node {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, name := range names {
		n.value, _ = n.value[name].(map[string]any)
		n.pointer += "/" + escape.Replace(name)
	}
	return n
}

// resolveRef returns the node that p refers to; p itself if it is not a reference.
func (c *Checker) resolveRef(p node) node {
	if ref, ok := p.value["$ref"].(string); ok {
		return node{c.root, ""}.child(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return p
}

// Check returns the first difference between an exchange and the document, or nil if there is none.
func (c *Checker) Check(x *Exchange) error {
	op, parameters, found := c.findOperation(x)
	if !found {
		return c.checkUndocumented(x)
	}
	name := x.Method + " " + parameters.template
	fail := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s answered with %d: %w", name, x.Status, err)
	}
	c.mu.Lock()
	c.observed[fmt.Sprintf("%v %d", op.value["operationId"], x.Status)] = true
	c.mu.Unlock()
	if x.Status < 400 {
		if err := c.checkRequest(x, op, parameters); err != nil {
			return fail(fmt.Errorf("the request was accepted, but is not as documented: %w", err))
		}
	}
	responses := op.child("responses")
	if _, known := responses.value[strconv.Itoa(x.Status)]; !known {
		return fail(fmt.Errorf("undocumented status: %s", x.Body))
	}
	return fail(c.checkResponse(x, c.resolveRef(responses.child(strconv.Itoa(x.Status)))))
}

// Unseen lists the documented answers, other than problems, that no exchange had, as "operation status".
func (c *Checker) Unseen() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, methods := range objectAt(c.root, "paths") {
		for _, op := range objectAt(methods) {
			for status, r := range objectAt(op, "responses") {
				answer := fmt.Sprintf("%v %s", objectAt(op)["operationId"], status)
				if objectAt(r)["$ref"] == nil && !c.observed[answer] {
					all = append(all, answer)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// pathMatch is a path template and the values of its names.
type pathMatch struct {
	template string
	values   map[string]string
}

func (c *Checker) findOperation(x *Exchange) (op node, m pathMatch, found bool) {
	method := strings.ToLower(x.Method)
	if method == "head" {
		method = "get"
	}
	paths := node{c.root, ""}.child("paths")
	for _, template := range slices.Sorted(maps.Keys(paths.value)) {
		values, fits := matchPath(template, x.URL.Path)
		if op = paths.child(template, method); fits && op.value != nil {
			return op, pathMatch{template, values}, true
		}
	}
	return op, m, false
}

func matchPath(template, path string) (values map[string]string, fits bool) {
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
func (c *Checker) checkUndocumented(x *Exchange) error {
	if x.URL.Path == "/metrics" || strings.HasPrefix(x.URL.Path, "/metrics/") && x.Status == http.StatusOK {
		return nil // the metrics are not part of the API
	}
	switch x.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusForbidden, http.StatusUnsupportedMediaType:
	default:
		return fmt.Errorf("%s %s is undocumented, but was answered with %d", x.Method, x.URL.Path, x.Status)
	}
	return c.checkJSON("/components/schemas/Problem", x.Body)
}

func (c *Checker) checkRequest(x *Exchange, op node, m pathMatch) error {
	query := x.URL.Query()
	listed, _ := op.value["parameters"].([]any)
	for i, p := range listed {
		at := c.resolveRef(node{p.(map[string]any), op.pointer + "/parameters/" + strconv.Itoa(i)})
		name := at.value["name"].(string)
		var value string
		var present bool
		switch at.value["in"] {
		case "path":
			value, present = m.values[name]
		case "query":
			value, present = query.Get(name), query.Has(name)
			query.Del(name)
		case "header":
			value, present = x.RequestHeader.Get(name), x.RequestHeader.Get(name) != ""
		}
		if err := c.checkText(at, name, value, present); err != nil {
			return err
		}
	}
	if len(query) > 0 {
		return fmt.Errorf("undocumented parameters: %v", query)
	}
	contents := op.child("requestBody", "content")
	if contents.value == nil {
		return nil
	}
	if contents.child("*/*").value != nil && x.URL.RawQuery != "" {
		return nil
	}
	if content := contents.child("application/json"); content.value != nil {
		return c.checkJSON(content.child("schema").pointer, x.RequestBody)
	}
	content := contents.child(x.RequestHeader.Get("Content-Type"))
	if content.value == nil {
		return fmt.Errorf("undocumented content type %q", x.RequestHeader.Get("Content-Type"))
	}
	return c.checkEach(content, bytes.Lines(x.RequestBody))
}

// checkEach checks each part against the schema of the content.
func (c *Checker) checkEach(content node, parts iter.Seq[[]byte]) error {
	for part := range parts {
		if err := c.checkJSON(content.child("schema").pointer, part); err != nil {
			return err
		}
	}
	return nil
}

// streamMessages returns the data lines of an event stream. A last line without a line feed is skipped.
func streamMessages(stream []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(stream) {
			if data, found := bytes.CutPrefix(line, []byte("data: ")); found && bytes.HasSuffix(line, []byte("\n")) && !yield(data) {
				return
			}
		}
	}
}

// checkText checks the value of a parameter or header.
func (c *Checker) checkText(at node, name, value string, present bool) error {
	if required, _ := at.value["required"].(bool); !present {
		if required {
			return fmt.Errorf("%s is missing", name)
		}
		return nil
	}
	document, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if at.child("schema").value["type"] == "integer" {
		document = []byte(value)
	}
	if err := c.checkJSON(at.child("schema").pointer, document); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *Checker) checkResponse(x *Exchange, r node) error {
	headers := r.child("headers")
	for name := range headers.value {
		if err := c.checkText(c.resolveRef(headers.child(name)), name, x.Header.Get(name), x.Header.Get(name) != ""); err != nil {
			return err
		}
	}
	for name := range x.Header {
		if _, known := headers.value[name]; !known && !isTransportHeader(name) && headers.value[documentSpelling(name)] == nil {
			return fmt.Errorf("undocumented header %s: %s", name, x.Header.Get(name))
		}
	}
	contents := r.child("content")
	if len(contents.value) == 0 || x.Method == http.MethodHead {
		if len(x.Body) > 0 {
			return fmt.Errorf("unexpected body: %s", x.Body)
		}
		return nil
	}
	kind := x.Header.Get("Content-Type")
	content := contents.child(kind)
	if content.value == nil {
		content = contents.child("*/*")
	}
	if content.value == nil {
		return fmt.Errorf("undocumented content type %q", kind)
	}
	if kind == "text/event-stream" {
		return c.checkEach(content, streamMessages(x.Body))
	}
	if kind == "application/x-ndjson" {
		return c.checkEach(content, bytes.Lines(x.Body))
	}
	if !strings.HasSuffix(kind, "json") || content.pointer == contents.child("*/*").pointer {
		return nil
	}
	return c.checkJSON(content.child("schema").pointer, x.Body)
}

// documentSpelling returns the document's spelling of a header in Go's canonical form.
func documentSpelling(name string) string {
	if name == "Etag" {
		return "ETag"
	}
	return name
}

// isTransportHeader reports whether a header belongs to HTTP itself; the document does not list these.
func isTransportHeader(name string) bool {
	switch name {
	case "Date", "Content-Type", "Content-Length", "Connection", "Transfer-Encoding":
		return true
	}
	return false
}

// checkJSON checks data against the schema at a JSON pointer of the document.
func (c *Checker) checkJSON(pointer string, data []byte) error {
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
func (c *Checker) CheckSchema(name string, data []byte) error {
	return c.checkJSON("/components/schemas/"+name, data)
}
