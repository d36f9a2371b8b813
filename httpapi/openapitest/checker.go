package openapitest

import (
	"bytes"
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
	root     node
	routes   *http.ServeMux // finds the operation of a request
	compiler *jsonschema.Compiler

	mu      sync.Mutex                    // guards the fields below, and compiler
	schemas map[string]*jsonschema.Schema // compiled, by JSON pointer
	unseen  map[string]bool               // see Unseen
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
	c := &Checker{root: node{root, ""}, routes: http.NewServeMux(), compiler: jsonschema.NewCompiler(),
		schemas: map[string]*jsonschema.Schema{}, unseen: map[string]bool{}}
	schemas := c.root.child("components", "schemas")
	for name := range schemas.value {
		if object := schemas.child(name).value; object["properties"] != nil && object["additionalProperties"] == nil {
			object["additionalProperties"] = false
		}
	}
	paths := c.root.child("paths")
	for path := range paths.value {
		for method := range paths.child(path).value {
			c.routes.Handle(strings.ToUpper(method)+" "+path, http.NotFoundHandler())
			op := paths.child(path, method)
			for status := range op.child("responses").value {
				if op.child("responses", status).value["$ref"] == nil {
					c.unseen[fmt.Sprintf("%v %s", op.value["operationId"], status)] = true
				}
			}
		}
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource(address, root)
}

// Unseen lists the documented answers, other than problems, that no exchange had, as "operation status".
func (c *Checker) Unseen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.unseen))
}

// node is an object of the document and its JSON pointer. The object is nil if the document does not have it.
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
		return c.root.child(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return p
}

// Check returns the first difference between an exchange and the document, or nil if there is none.
func (c *Checker) Check(x *Exchange) error {
	_, pattern := c.routes.Handler(&http.Request{Method: x.Method, URL: x.URL})
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		return c.checkUndocumented(x)
	}
	op, status := c.root.child("paths", path, strings.ToLower(method)), strconv.Itoa(x.Status)
	c.mu.Lock()
	delete(c.unseen, fmt.Sprintf("%v %s", op.value["operationId"], status))
	c.mu.Unlock()
	if x.Status < 400 {
		if err := c.checkRequest(x, op, path); err != nil {
			return fmt.Errorf("%s was answered with %s, but is not as documented: %w", pattern, status, err)
		}
	}
	response := c.resolveRef(op.child("responses", status))
	if response.value == nil {
		return fmt.Errorf("%s was answered with %s, which is undocumented: %s", pattern, status, x.Body)
	}
	if err := c.checkResponse(x, response); err != nil {
		return fmt.Errorf("%s was answered with %s: %w", pattern, status, err)
	}
	return nil
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

func (c *Checker) checkRequest(x *Exchange, op node, path string) error {
	query, segments, names := x.URL.Query(), strings.Split(x.URL.Path, "/"), strings.Split(path, "/")
	listed, _ := op.value["parameters"].([]any)
	for i, p := range listed {
		at := c.resolveRef(node{p.(map[string]any), op.pointer + "/parameters/" + strconv.Itoa(i)})
		name := at.value["name"].(string)
		value := x.RequestHeader.Get(name)
		present := value != ""
		switch at.value["in"] {
		case "path":
			value, present = segments[slices.Index(names, "{"+name+"}")], true
		case "query":
			value, present = query.Get(name), query.Has(name)
			query.Del(name)
		}
		if err := c.checkText(at, name, value, present); err != nil {
			return err
		}
	}
	if len(query) > 0 {
		return fmt.Errorf("undocumented parameters: %v", query)
	}
	contents, kind := op.child("requestBody", "content"), x.RequestHeader.Get("Content-Type")
	switch {
	case contents.value == nil || contents.child("*/*").value != nil && x.URL.RawQuery != "":
		return nil
	case contents.child("application/json").value != nil:
		kind = "application/json"
	}
	return c.checkBody(contents, kind, x.RequestBody)
}

// checkBody checks a body, or each of its lines or messages.
func (c *Checker) checkBody(contents node, kind string, body []byte) error {
	content, parts := contents.child(kind), slices.Values([][]byte{body})
	switch {
	case content.value == nil && contents.child("*/*").value == nil:
		return fmt.Errorf("undocumented content type %q", kind)
	case kind == eventStreamType:
		parts = streamMessages(body)
	case content.value == nil || !strings.HasSuffix(kind, "json"):
		return nil
	case kind == "application/x-ndjson":
		parts = bytes.Lines(body)
	}
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
	if !present {
		if at.value["required"] == true {
			return fmt.Errorf("%s is missing", name)
		}
		return nil
	}
	schema := at.child("schema")
	err := c.validate(schema.pointer, value)
	if schema.value["type"] == "integer" {
		err = c.checkJSON(schema.pointer, []byte(value))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *Checker) checkResponse(x *Exchange, r node) error {
	headers := r.child("headers")
	// HTTP itself has these headers.
	known := map[string]bool{"Date": true, "Content-Type": true, "Content-Length": true, "Connection": true, "Transfer-Encoding": true}
	for name := range headers.value {
		known[http.CanonicalHeaderKey(name)] = true
		if err := c.checkText(c.resolveRef(headers.child(name)), name, x.Header.Get(name), x.Header.Get(name) != ""); err != nil {
			return err
		}
	}
	for name := range x.Header {
		if !known[name] {
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
	return c.checkBody(contents, x.Header.Get("Content-Type"), x.Body)
}

// checkJSON checks data against the schema at a JSON pointer of the document.
func (c *Checker) checkJSON(pointer string, data []byte) error {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%w: %s", err, data)
	}
	if err := c.validate(pointer, parsed); err != nil {
		return fmt.Errorf("%w\n%s", err, data)
	}
	return nil
}

// validate checks a value against the schema at a JSON pointer of the document.
func (c *Checker) validate(pointer string, value any) error {
	schema, err := c.schema(pointer)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (c *Checker) schema(pointer string) (s *jsonschema.Schema, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s = c.schemas[pointer]; s == nil {
		s, err = c.compiler.Compile(address + "#" + (&url.URL{Path: pointer}).EscapedPath())
		c.schemas[pointer] = s
	}
	return s, err
}

// CheckSchema checks data against a schema of the document, by its name.
func (c *Checker) CheckSchema(name string, data []byte) error {
	return c.checkJSON("/components/schemas/"+name, data)
}
