package openapi_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapi/openapitest"
	"github.com/flightd/flightd/internal/wire"
)

// documentSchemas holds the schemas of the document.
type shapes struct {
	t   *testing.T
	all map[string]object
	*openapitest.Checker
}

type object = map[string]any

func newShapes(t *testing.T) shapes {
	t.Helper()
	data, err := httpapi.Document()
	require.NoError(t, err)
	var document struct {
		Components struct{ Schemas map[string]object }
	}
	require.NoError(t, json.Unmarshal(data, &document))
	checker, err := openapitest.New(data)
	require.NoError(t, err)
	return shapes{t, document.Components.Schemas, checker}
}

// isRequest reports whether a schema is a request; only requests reject unknown fields.
func (s shapes) isRequest(name string) bool { return s.all[name]["additionalProperties"] == false }

// fullInstance returns an instance of a schema with every field. An object inside an object of the same schema is
// omitted.
func (s shapes) full(name string, schema object, inside ...string) any {
	if ref, ok := schema["$ref"].(string); ok {
		inner := strings.TrimPrefix(ref, "#/components/schemas/")
		return s.full(inner, s.all[inner], append(inside, inner)...)
	}
	if words, ok := schema["enum"].([]any); ok {
		return words[len(words)-1]
	}
	switch schema["type"] {
	case "object":
		instance := object{}
		properties, _ := schema["properties"].(object)
		for field, p := range properties {
			ref, _ := p.(object)["$ref"].(string)
			if !slices.Contains(inside, strings.TrimPrefix(ref, "#/components/schemas/")) {
				instance[field] = s.full(field, p.(object), inside...)
			}
		}
		return instance
	case "array":
		return []any{s.full(name, schema["items"].(object), inside...)}
	case "integer":
		return float64(499)
	case "boolean":
		return true
	case nil:
		return object{"any": []any{"thing", nil}}
	}
	return s.word(name, schema)
}

func (s shapes) word(field string, schema object) string {
	pattern, _ := schema["pattern"].(string)
	switch {
	case schema["format"] == "date-time":
		return "2026-01-31T12:00:00.123Z"
	case schema["contentEncoding"] == "base64":
		return "AP8="
	case strings.Contains(pattern, "{32}"):
		return strings.Repeat("0a", 16)
	case strings.Contains(pattern, "sha256"):
		return "sha256:" + strings.Repeat("0a", 32)
	case strings.Contains(pattern, "d)?"):
		return "30d"
	case strings.Contains(pattern, "fl_"):
		return flight.MustKey("a/b/c").FlightID().String()
	case strings.Contains(pattern, `\.[0-9]+$`):
		return "8123.4"
	}
	return field
}

// codec decodes and encodes a schema as the server and the Go client do.
type codec func(t *testing.T, data []byte) []byte

type appender interface{ AppendJSON([]byte) []byte }

func answer[T any](t *testing.T, data []byte) []byte {
	v := new(T)
	require.NoError(t, wire.DecodeAnswer(data, v))
	return written(t, v)
}

func request[T any](decode func([]byte) (T, *wire.Invalid)) codec {
	return func(t *testing.T, data []byte) []byte {
		v, bad := decode(data)
		require.Nil(t, bad)
		return written(t, &v)
	}
}

func written(t *testing.T, v any) []byte {
	if a, ok := v.(appender); ok {
		return a.AppendJSON(nil)
	}
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

func codecs() map[string]codec {
	return map[string]codec{
		"OpenRequest": request(wire.DecodeOpen), "AbandonRequest": request(wire.DecodeAbandon), "OpenAttempt": answer[wire.OpenAttempt], "ReportRequest": request(wire.DecodeReport), "VerdictRequest": request(wire.DecodeVerdict),
		"SessionRequest": request(wire.DecodeSession), "RenewRequest": request(wire.DecodeRenew),
		"OperatorRequest": request(wire.DecodeOperator), "ResolveRequest": request(wire.DecodeResolve),
		"OpenAnswer": answer[wire.OpenAnswer], "Flight": answer[wire.Flight], "FlightPage": answer[wire.FlightPage],
		"History": answer[wire.History], "SessionAnswer": answer[wire.SessionAnswer], "Problem": answer[wire.Problem],
		"Ready": answer[wire.Ready], "Version": answer[wire.Version], "ProblemPage": answer[wire.ProblemPage],
		"Policy": answer[wire.Policy], "Attempt": answer[wire.Attempt], "Mark": answer[wire.Mark], "Settled": answer[wire.Settled],
		"Receipt": answer[wire.Receipt], "Evidence": answer[wire.Evidence], "Past": answer[wire.Past], "Event": answer[wire.Event],
		"EventPage": answer[wire.EventPage], "Gap": answer[wire.Gap], "Duplicates": answer[wire.Duplicates], "Caller": answer[wire.Caller],
		"ImportLine": request(wire.DecodeImport), "ImportAnswer": answer[wire.ImportAnswer], "ImportTrouble": answer[wire.ImportTrouble],
		"Node": answer[wire.Node], "Spool": answer[wire.Spool], "Etcd": answer[wire.Etcd],
		"Check": answer[wire.Check], "FieldError": answer[wire.FieldError],
	}
}

// Package wire reads and writes every field of the document, and no other.
func TestEveryFieldTravels(t *testing.T) {
	s := newShapes(t)
	for name, schema := range s.all {
		t.Run(name, func(t *testing.T) {
			code := codecs()[name]
			require.NotNil(t, code, "add %s to codecs()", name)
			sent, err := json.Marshal(s.full(name, schema, name))
			require.NoError(t, err)
			got := code(t, sent)
			require.JSONEq(t, string(sent), string(got), "a field of the document was lost")
			require.NoError(t, s.Schema(name, got))
		})
	}
}

// The required fields of an answer are present even if they are empty.
func TestWhatIsAlwaysThere(t *testing.T) {
	s := newShapes(t)
	for name, code := range codecs() {
		if s.isRequest(name) {
			continue
		}
		var got object
		require.NoError(t, json.Unmarshal(code(t, []byte(`{}`)), &got))
		required, _ := s.all[name]["required"].([]any)
		for _, field := range required {
			require.Contains(t, got, field, "%s", name)
		}
	}
}

// requestReader validates a request as the API does, except for checks that need more than the request.
type taker func(data []byte) *wire.Invalid

func first(all ...func() *wire.Invalid) *wire.Invalid {
	for _, f := range all {
		if bad := f(); bad != nil {
			return bad
		}
	}
	return nil
}

func takers() map[string]taker {
	ttl := func(ms int64) func() *wire.Invalid {
		return func() *wire.Invalid { _, bad := wire.TTL(ms); return bad }
	}
	blob := func(b *wire.Body) func() *wire.Invalid {
		return func() *wire.Invalid { _, bad := b.Blob(); return bad }
	}
	return map[string]taker{
		"OpenRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeOpen(data)
			return first(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.Key("default", r.Action, r.ID); return bad },
				func() *wire.Invalid { _, bad := r.Submission(); return bad }, ttl(r.TTLMS))
		},
		"AbandonRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeAbandon(data)
			if bad == nil && r.NotAfter == 0 {
				bad = wire.BadField("/not_after", "it is missing")
			}
			return first(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.Key("default", r.Action, r.ID); return bad })
		},
		"ReportRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeReport(data)
			return first(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.ParseOutcome(r.Outcome); return bad }, blob(&r.Body))
		},
		"VerdictRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeVerdict(data)
			return first(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.ParseVerdict(r.Result); return bad }, blob(&r.Body), ttl(r.TTLMS))
		},
		"ResolveRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeResolve(data)
			return first(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.ParseResolution(r.Result); return bad }, blob(&r.Body))
		},
		"SessionRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeSession(data)
			return first(func() *wire.Invalid { return bad }, ttl(r.TTLMS))
		},
		"ImportLine": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeImport(data)
			r.Key = "default/charge/order-42" // keys have their own tests
			return first(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := r.Command("default", time.Now()); return bad })
		},
		"RenewRequest":    func(data []byte) *wire.Invalid { _, bad := wire.DecodeRenew(data); return bad },
		"OperatorRequest": func(data []byte) *wire.Invalid { _, bad := wire.DecodeOperator(data); return bad },
	}
}

// minimalRequest returns a request with the required fields and those that the given field needs.
func (s shapes) least(name, field string) object {
	r := object{}
	required, _ := s.all[name]["required"].([]any)
	for _, f := range required {
		r[f.(string)] = s.full(f.(string), s.all[name]["properties"].(object)[f.(string)].(object))
	}
	switch field {
	case "size", "digest":
		r["truncated"], r["size"], r["body_base64"], r["digest"] = true, 9, "AP8=", "sha256:"+strings.Repeat("0a", 32)
	case "content_type":
		r["body_base64"] = "AP8="
	}
	return r
}

// The limits in the document are those of the API: a value at the limit is accepted, a value beyond it is rejected.
func TestBounds(t *testing.T) {
	s := newShapes(t)
	for name, take := range takers() {
		try := func(field string, value any) *wire.Invalid {
			r := s.least(name, field)
			r[field] = value
			data, err := json.Marshal(r)
			require.NoError(t, err)
			return take(data)
		}
		taken := func(field string, value any) {
			require.Nil(t, try(field, value), "%s: %s %.50v", name, field, value)
		}
		refused := func(field string, value any) {
			bad := try(field, value)
			require.NotNil(t, bad, "%s: %s %.50v", name, field, value)
			require.True(t, strings.HasPrefix(bad.Pointer, "/"+field), "%s: %s", name, bad.Pointer)
		}
		refused("no_such_field", 1)
		for field, p := range s.all[name]["properties"].(object) {
			p := p.(object)
			if most, ok := p["maximum"].(float64); ok {
				taken(field, most)
				refused(field, most+1)
				refused(field, p["minimum"].(float64)-1)
			}
			if most, ok := p["maxLength"].(float64); ok {
				taken(field, strings.Repeat("a", int(most)))
				refused(field, strings.Repeat("a", int(most)+1))
			}
			if most, ok := p["maxItems"].(float64); ok {
				taken(field, make([]string, int(most)))
				refused(field, make([]string, int(most)+1))
			}
			words, _ := p["enum"].([]any)
			for _, word := range words {
				taken(field, word)
			}
			if words != nil || p["pattern"] != nil {
				refused(field, "no such word")
			}
			if p["type"] != nil {
				refused(field, object{"a": "thing"})
			}
		}
	}
	require.Subset(t, slices.Collect(maps.Keys(s.all)), slices.Collect(maps.Keys(takers())))
	for name := range s.all {
		require.Equal(t, s.isRequest(name), takers()[name] != nil, "add %s to takers()", name)
	}
}
