package openapitest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Run sends the requests of the script to the server at base. It checks each answer against the script and, if checker
// is not nil, against the document. It returns the first difference.
func (s *Script) Run(ctx context.Context, client *http.Client, base string, checker *Checker) error {
	known := bindings{}
	for i := range s.Steps {
		step := &s.Steps[i]
		x, err := step.send(ctx, client, base, known)
		if err == nil {
			err = step.compare(x, known)
		}
		if err == nil && checker != nil {
			err = checker.Check(x)
		}
		if err != nil {
			return fmt.Errorf("line %d, %s %s: %w", step.Line, step.Method, step.Target, err)
		}
	}
	return nil
}

func (s *Step) send(ctx context.Context, client *http.Client, base string, known bindings) (*Exchange, error) {
	body := known.fill(strings.TrimSuffix(s.Body, "\n"))
	req, err := http.NewRequestWithContext(ctx, s.Method, base+known.fill(s.Target), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if s.Method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range s.Header {
		req.Header.Set(name, known.fill(values[0]))
		if name == "Host" {
			req.Host = values[0]
		}
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var data []byte
	if answer.Header.Get("Content-Type") == eventStreamType {
		data, err = known.readStream(answer.Body, s.Answer)
	} else {
		data, err = io.ReadAll(answer.Body)
	}
	return &Exchange{Method: s.Method, URL: req.URL, RequestHeader: req.Header, RequestBody: []byte(body),
		Status: answer.StatusCode, Header: answer.Header, Body: data}, err
}

func (s *Step) compare(x *Exchange, known bindings) error {
	if x.Status != s.Status {
		return fmt.Errorf("status %d, expected %d: %s", x.Status, s.Status, x.Body)
	}
	for name, values := range s.AnswerHeader {
		if err := known.matchText(values[0], x.Header.Get(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	want := strings.TrimSuffix(s.Answer, "\n")
	if want == "" || x.Header.Get("Content-Type") == eventStreamType {
		return nil
	}
	if !strings.HasSuffix(x.Header.Get("Content-Type"), "json") {
		return known.matchText(want, strings.TrimSuffix(string(x.Body), "\n"))
	}
	expected, err := jsonschema.UnmarshalJSON(strings.NewReader(want))
	if err != nil {
		return fmt.Errorf("invalid JSON in the script: %w", err)
	}
	got, err := jsonschema.UnmarshalJSON(bytes.NewReader(x.Body))
	if err != nil {
		return err
	}
	if err := known.matchValue("", expected, got); err != nil {
		return fmt.Errorf("%w\n%s", err, x.Body)
	}
	return nil
}

// eventStreamType is the content type of event streams, which do not end.
const eventStreamType = "text/event-stream"

// readStream reads an event stream until it has found all expected lines, in their order. Other lines may come between
// them.
func (b bindings) readStream(body io.Reader, want string) (read []byte, err error) {
	lines := bufio.NewReader(body)
	for line := range strings.Lines(want) {
		line = strings.TrimSuffix(line, "\n")
		for {
			got, err := lines.ReadString('\n')
			if err != nil {
				return read, fmt.Errorf("the stream ended before %q: %w: %s", line, err, read)
			}
			read = append(read, got...)
			if b.matchText(line, strings.TrimSuffix(got, "\n")) == nil {
				break
			}
		}
	}
	return read, nil
}

// bindings maps placeholders to the text that they were bound to.
type bindings map[string]string

var placeholder = regexp.MustCompile(`<[a-z_0-9]*>`)

// fill replaces the placeholders that are bound.
func (b bindings) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		if value, known := b[p]; known {
			return value
		}
		return p
	})
}

// matchText compares got with want and binds the placeholders in want that are not bound yet.
func (b bindings) matchText(want, got string) error {
	want = b.fill(want)
	holes := placeholder.FindAllString(want, -1)
	pattern := "(?s)^"
	for i, literal := range placeholder.Split(want, -1) {
		switch {
		case i == 0:
		case holes[i-1] == "<>":
			pattern += "(.*)"
		default:
			pattern += "(.+)"
		}
		pattern += regexp.QuoteMeta(literal)
	}
	found := regexp.MustCompile(pattern + "$").FindStringSubmatch(got)
	if found == nil {
		return fmt.Errorf("got %q, expected %q", got, want)
	}
	for i, hole := range holes {
		if hole != "<>" {
			b[hole] = found[i+1]
		}
	}
	return nil
}

// moreMembers is the name of a member that allows an object to have more members.
const moreMembers = "..."

func (b bindings) matchValue(at string, want, got any) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		names := slices.Sorted(maps.Keys(w)) // a fixed order, so that the same member binds a placeholder in every run
		if _, more := w[moreMembers]; !ok || !more && len(g) != len(w) {
			return fmt.Errorf("%s: got %v, expected an object with %v", at, got, names)
		}
		for _, name := range names {
			value, present := g[name]
			switch {
			case name == moreMembers:
				continue
			case !present:
				return fmt.Errorf("missing member %s/%s", at, name)
			}
			if err := b.matchValue(at+"/"+name, w[name], value); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s: got %v, expected %v", at, got, want)
		}
		for i := range w {
			if err := b.matchValue(fmt.Sprintf("%s/%d", at, i), w[i], g[i]); err != nil {
				return err
			}
		}
		return nil
	case string:
		if _, isText := got.(string); !isText && !placeholder.MatchString(w) {
			return fmt.Errorf("%s: got %v, expected the string %q", at, got, w)
		}
		if err := b.matchText(w, fmt.Sprint(got)); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		return nil
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Errorf("%s: got %v, expected %v", at, got, want)
	}
	return nil
}
