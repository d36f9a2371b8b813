package httpapi_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// documentSchemas holds the schemas of the document.
type documentSchemas struct {
	t     *testing.T
	all   map[string]object
	types map[string]reflect.Type
	*openapitest.Checker
}

type object = map[string]any

func loadSchemas(t *testing.T) documentSchemas {
	t.Helper()
	var document struct {
		Components struct{ Schemas map[string]object }
	}
	require.NoError(t, json.Unmarshal(docs.OpenAPI, &document))
	return documentSchemas{t, document.Components.Schemas, httpapi.DocumentTypes(t), checker(t)}
}

// isRequest reports whether a schema is a request; only requests reject unknown fields.
func (s documentSchemas) isRequest(name string) bool {
	return s.all[name]["additionalProperties"] == false
}

// fullInstance returns an instance of a schema with every field. An object inside an object of the same schema is
// omitted.
func (s documentSchemas) fullInstance(name string, schema object, inside ...string) any {
	if ref, ok := schema["$ref"].(string); ok {
		inner := strings.TrimPrefix(ref, "#/components/schemas/")
		return s.fullInstance(inner, s.all[inner], append(inside, inner)...)
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
				instance[field] = s.fullInstance(field, p.(object), inside...)
			}
		}
		return instance
	case "array":
		return []any{s.fullInstance(name, schema["items"].(object), inside...)}
	case "integer", "number":
		return float64(499)
	case "boolean":
		return true
	case nil:
		return object{"any": []any{"thing", nil}}
	}
	return s.sampleString(name, schema)
}

func (s documentSchemas) sampleString(field string, schema object) string {
	pattern, _ := schema["pattern"].(string)
	switch {
	case schema["format"] == "date-time":
		return "2026-01-31T12:00:00.123Z"
	case schema["contentEncoding"] == "base64":
		return "AP8="
	case strings.Contains(pattern, "{32}"):
		return strings.Repeat("0a", 16)
	case strings.Contains(pattern, "{64}") && !strings.Contains(pattern, "sha256"):
		return strings.Repeat("0a", 32)
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

// recode decodes a schema and encodes it again, as the server and the Go client do.
func (s documentSchemas) recode(name string, data []byte) []byte {
	require.NotNil(s.t, s.types[name], "no type has the name %s", name)
	v := reflect.New(s.types[name]).Interface()
	if s.isRequest(name) {
		require.Nil(s.t, wire.DecodeInto(data, v), name)
	} else {
		require.NoError(s.t, wire.DecodeAnswer(data, v), name)
	}
	return strictjson.Append(nil, v)
}

// Package wire reads and writes every field of the document, and no other.
func TestEveryFieldIsReadAndWritten(t *testing.T) {
	s := loadSchemas(t)
	for name, schema := range s.all {
		sent, err := json.Marshal(s.fullInstance(name, schema, name))
		require.NoError(t, err)
		got := s.recode(name, sent)
		require.JSONEq(t, string(sent), string(got), "a field of %s was lost", name)
		require.NoError(t, s.CheckSchema(name, got))
	}
}

// The required fields of an answer are present even if they are empty.
func TestRequiredFieldsArePresentWhenEmpty(t *testing.T) {
	s := loadSchemas(t)
	for name := range s.all {
		if s.isRequest(name) {
			continue
		}
		var got object
		require.NoError(t, json.Unmarshal(s.recode(name, []byte(`{}`)), &got))
		required, _ := s.all[name]["required"].([]any)
		for _, field := range required {
			require.Contains(t, got, field, "%s", name)
		}
	}
}

// checkRequest checks a request as the API does, except for checks that need more than the request. Keys have their own tests.
func checkRequest(request any) (bad *wire.Invalid) {
	blob := func(b *wire.Body, bad *wire.Invalid) *wire.Invalid {
		_, badBody := b.Blob()
		return cmp.Or(bad, badBody)
	}
	switch r := request.(type) {
	case *wire.OpenRequest:
		r.Nonce = cmp.Or(r.Nonce, "n") // a document cannot say that not_after needs it
		_, bad = r.Parse("default")
	case *wire.SubmitRequest:
		r.Lane = cmp.Or(r.Lane, "lane") // a document cannot say that lane_limit needs it
		_, _, _, bad = r.Parse("default", 0)
	case *wire.StartSagaRequest:
		_, _, _, bad = r.Parse("default")
	case *wire.ClaimRequest:
		for i := range r.Actions {
			r.Actions[i] = fmt.Sprint("charge", i) // each is named once
		}
		bad = r.Parse()
	case *wire.AbandonRequest:
		if _, bad = wire.Key("default", r.Action, r.ID); r.NotAfter == 0 {
			bad = wire.BadField("/not_after", "it is missing")
		}
	case *wire.ReportRequest:
		_, bad = wire.ParseOutcome(r.Outcome)
		bad = blob(&r.Body, bad)
	case *wire.CallbackRequest:
		_, bad = wire.ParseOutcome(r.Outcome)
		bad = blob(&r.Body, bad)
	case *wire.ResolveRequest:
		_, bad = wire.ParseResolution(r.Result)
		bad = blob(&r.Body, bad)
	case *wire.VerificationRequest:
		_, badTTL := wire.TTL(r.TTLMS)
		_, bad = wire.ParseFinding(r.Result)
		bad = blob(&r.Body, cmp.Or(bad, badTTL))
	case *wire.SuspendRequest:
		r.Deadline, r.DeadlineMS = 0, cmp.Or(r.DeadlineMS, 1) // a document cannot say that one of them is needed
		_, bad = r.Until(1)
	case *wire.SessionRequest:
		_, bad = wire.TTL(r.TTLMS)
	case *wire.ImportLine:
		r.Key = "default/charge/order-42"
		_, bad = r.Command("default", time.Now())
	case *wire.TokenRequest:
		bad = wire.CheckName(r.Name, wire.FieldError{Pointer: "/name"})
	case *wire.ActionRequest:
		if r.Lookup = true; r.ProviderWindowMS > 0 {
			r.Recovery = "resend" // allows the field
		}
		bad = r.Check()
	}
	return bad
}

// minimalRequest returns a request with the required fields and those that the given field needs.
func (s documentSchemas) minimalRequest(name, field string) object {
	r := object{}
	required, _ := s.all[name]["required"].([]any)
	for _, f := range required {
		r[f.(string)] = s.fullInstance(f.(string), s.all[name]["properties"].(object)[f.(string)].(object))
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
	s := loadSchemas(t)
	for name := range s.all {
		if !s.isRequest(name) {
			continue
		}
		try := func(field string, value any) *wire.Invalid {
			r := s.minimalRequest(name, field)
			r[field] = value
			data, err := json.Marshal(r)
			require.NoError(t, err)
			request := reflect.New(s.types[name]).Interface()
			if bad := wire.DecodeInto(data, request); bad != nil {
				return bad
			}
			return checkRequest(request)
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
			if field == "wait_ms" && name != "ClaimRequest" {
				require.EqualValues(t, wire.DefaultWaitMS, p["default"])
			}
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
}
