package httpapi_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/openapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// documentSchemas holds the schemas of the document.
type documentSchemas struct {
	t   *testing.T
	all map[string]object
	*openapitest.Checker
}

type object = map[string]any

func loadSchemas(t *testing.T) documentSchemas {
	t.Helper()
	data, err := generateDocument()
	require.NoError(t, err)
	var document struct {
		Components struct{ Schemas map[string]object }
	}
	require.NoError(t, json.Unmarshal(data, &document))
	checker, err := openapitest.New(data)
	require.NoError(t, err)
	return documentSchemas{t, document.Components.Schemas, checker}
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

// codec decodes and encodes a schema as the server and the Go client do.
type codec func(t *testing.T, data []byte) []byte

func answerCodec[T any](t *testing.T, data []byte) []byte {
	v := new(T)
	require.NoError(t, wire.DecodeAnswer(data, v))
	return strictjson.Append(nil, v)
}

func requestCodec[T any](decode func([]byte) (T, *wire.Invalid)) codec {
	return func(t *testing.T, data []byte) []byte {
		v, bad := decode(data)
		require.Nil(t, bad)
		return strictjson.Append(nil, &v)
	}
}

func codecs() map[string]codec {
	return map[string]codec{
		"OpenRequest": requestCodec(wire.Decode[wire.OpenRequest]), "AbandonRequest": requestCodec(wire.Decode[wire.AbandonRequest]), "OpenAttempt": answerCodec[wire.OpenAttempt], "ReportRequest": requestCodec(wire.Decode[wire.ReportRequest]), "VerificationRequest": requestCodec(wire.Decode[wire.VerificationRequest]),
		"SuspendRequest": requestCodec(wire.Decode[wire.SuspendRequest]), "CallbackRequest": requestCodec(wire.Decode[wire.CallbackRequest]), "CallbackAnswer": answerCodec[wire.CallbackAnswer],
		"SessionRequest": requestCodec(wire.Decode[wire.SessionRequest]), "RenewRequest": requestCodec(wire.Decode[wire.RenewRequest]),
		"OperatorRequest": requestCodec(wire.Decode[wire.OperatorRequest]), "ResolveRequest": requestCodec(wire.Decode[wire.ResolveRequest]),
		"OpenAnswer": answerCodec[wire.OpenAnswer], "AbandonAnswer": answerCodec[wire.AbandonAnswer], "Flight": answerCodec[wire.Flight], "FlightPage": answerCodec[wire.FlightPage],
		"History": answerCodec[wire.History], "SessionAnswer": answerCodec[wire.SessionAnswer], "Problem": answerCodec[wire.Problem],
		"Ready": answerCodec[wire.Ready], "LedgerInfo": answerCodec[wire.LedgerInfo], "Version": answerCodec[wire.Version], "ProblemPage": answerCodec[wire.ProblemPage],
		"Policy": answerCodec[wire.Policy], "Attempt": answerCodec[wire.Attempt], "Attribution": answerCodec[wire.Attribution], "Resolution": answerCodec[wire.Resolution],
		"Receipt": answerCodec[wire.Receipt], "Evidence": answerCodec[wire.Evidence], "PreviousGeneration": answerCodec[wire.PreviousGeneration], "Event": answerCodec[wire.Event],
		"EventPage": answerCodec[wire.EventPage], "Gap": answerCodec[wire.Gap], "DuplicateStats": answerCodec[wire.DuplicateStats], "Caller": answerCodec[wire.Caller],
		"BatchLine": requestCodec(wire.DecodeBatchLine), "BatchAnswer": answerCodec[wire.BatchAnswer],
		"ImportLine": requestCodec(wire.DecodeImport), "ImportAnswer": answerCodec[wire.ImportAnswer], "ImportDifference": answerCodec[wire.ImportDifference],
		"Node": answerCodec[wire.Node], "Spool": answerCodec[wire.Spool], "Etcd": answerCodec[wire.Etcd], "EtcdMember": answerCodec[wire.EtcdMember],
		"TokenRequest": requestCodec(wire.Decode[wire.TokenRequest]), "ReasonRequest": requestCodec(wire.Decode[wire.ReasonRequest]), "NamespaceRequest": requestCodec(wire.Decode[wire.NamespaceRequest]),
		"Restore": answerCodec[wire.Restore], "AskedPage": answerCodec[wire.AskedPage], "FinishRestore": requestCodec(wire.Decode[wire.FinishRestore]),
		"LeaseEpoch": answerCodec[wire.LeaseEpoch], "Revoked": answerCodec[wire.Revoked],
		"ReplaceNode": requestCodec(wire.Decode[wire.ReplaceNode]),
		"Cluster":     answerCodec[wire.Cluster], "ClusterNode": answerCodec[wire.ClusterNode],
		"NewToken": answerCodec[wire.NewToken], "Token": answerCodec[wire.Token], "TokenList": answerCodec[wire.TokenList], "WhoAmI": answerCodec[wire.WhoAmI],
		"Namespace": answerCodec[wire.Namespace], "NamespaceList": answerCodec[wire.NamespaceList], "AuditEntry": answerCodec[wire.AuditEntry], "AuditPage": answerCodec[wire.AuditPage],
		"ActionRequest": requestCodec(wire.Decode[wire.ActionRequest]), "Action": answerCodec[wire.Action], "ActionList": answerCodec[wire.ActionList], "ActionAnswer": answerCodec[wire.ActionAnswer],
		"PolicyDifference": answerCodec[wire.PolicyDifference], "LaneRule": answerCodec[wire.LaneRule],
		"NotifyRequest": requestCodec(wire.Decode[wire.NotifyRequest]), "Notify": answerCodec[wire.Notify], "NotifyList": answerCodec[wire.NotifyList], "NotifyMask": answerCodec[wire.NotifyMask],
		"NotifyFailure": answerCodec[wire.NotifyFailure], "NotifyTestAnswer": answerCodec[wire.NotifyTestAnswer],
		"SubmitRequest": requestCodec(wire.Decode[wire.SubmitRequest]), "SubmitAnswer": answerCodec[wire.SubmitAnswer], "SubmitLine": answerCodec[wire.SubmitLine], "Retry": answerCodec[wire.Retry],
		"StartSagaRequest": requestCodec(wire.Decode[wire.StartSagaRequest]), "UndoLateRequest": requestCodec(wire.Decode[wire.UndoLateRequest]), "StartSagaAnswer": answerCodec[wire.StartSagaAnswer], "Saga": answerCodec[wire.Saga], "SagaStep": answerCodec[wire.SagaStep],
		"SagaPage": answerCodec[wire.SagaPage], "SagaVersions": answerCodec[wire.SagaVersions], "SagaVersion": answerCodec[wire.SagaVersion],
		"ClaimRequest": requestCodec(wire.Decode[wire.ClaimRequest]), "ClaimAnswer": answerCodec[wire.ClaimAnswer], "Job": answerCodec[wire.Job],
		"Approval": answerCodec[wire.Approval], "ApprovalRequest": answerCodec[wire.ApprovalRequest], "ApprovalDecision": requestCodec(wire.Decode[wire.ApprovalDecision]),
		"QueueList": answerCodec[wire.QueueList], "Queue": answerCodec[wire.Queue], "StuckLane": answerCodec[wire.StuckLane], "FailingJob": answerCodec[wire.FailingJob],
		"Lane": answerCodec[wire.Lane], "LaneJob": answerCodec[wire.LaneJob], "Block": answerCodec[wire.Block],
		"Check": answerCodec[wire.Check], "FieldError": answerCodec[wire.FieldError],
	}
}

// Package wire reads and writes every field of the document, and no other.
func TestEveryFieldIsReadAndWritten(t *testing.T) {
	s := loadSchemas(t)
	for name, schema := range s.all {
		t.Run(name, func(t *testing.T) {
			code := codecs()[name]
			require.NotNil(t, code, "add %s to codecs()", name)
			sent, err := json.Marshal(s.fullInstance(name, schema, name))
			require.NoError(t, err)
			got := code(t, sent)
			require.JSONEq(t, string(sent), string(got), "a field of the document was lost")
			require.NoError(t, s.CheckSchema(name, got))
		})
	}
}

// The required fields of an answer are present even if they are empty.
func TestRequiredFieldsArePresentWhenEmpty(t *testing.T) {
	s := loadSchemas(t)
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
type requestReader func(data []byte) *wire.Invalid

func firstInvalid(all ...func() *wire.Invalid) *wire.Invalid {
	for _, f := range all {
		if bad := f(); bad != nil {
			return bad
		}
	}
	return nil
}

func requestReaders() map[string]requestReader {
	ttl := func(ms int64) func() *wire.Invalid {
		return func() *wire.Invalid { _, bad := wire.TTL(ms); return bad }
	}
	blob := func(b *wire.Body) func() *wire.Invalid {
		return func() *wire.Invalid { _, bad := b.Blob(); return bad }
	}
	return map[string]requestReader{
		"OpenRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.OpenRequest](data)
			r.Nonce = cmp.Or(r.Nonce, "n") // a document cannot say that not_after needs it
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := r.Parse("default"); return bad })
		},
		"SubmitRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.SubmitRequest](data)
			r.Lane = cmp.Or(r.Lane, "lane") // a document cannot say that lane_limit needs it
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, _, _, bad := r.Parse("default", 0); return bad })
		},
		"StartSagaRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.StartSagaRequest](data)
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, _, _, bad := r.Parse("default"); return bad })
		},
		"ClaimRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.ClaimRequest](data)
			for i := range r.Actions {
				r.Actions[i] = fmt.Sprint("charge", i) // keys have their own tests, and each is named once
			}
			return firstInvalid(func() *wire.Invalid { return bad }, r.Parse)
		},
		"AbandonRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.AbandonRequest](data)
			if bad == nil && r.NotAfter == 0 {
				bad = wire.BadField("/not_after", "it is missing")
			}
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.Key("default", r.Action, r.ID); return bad })
		},
		"ReportRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.ReportRequest](data)
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.ParseOutcome(r.Outcome); return bad }, blob(&r.Body))
		},
		"SuspendRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.SuspendRequest](data)
			r.Deadline, r.DeadlineMS = 0, cmp.Or(r.DeadlineMS, 1) // a document cannot say that one of them is needed
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := r.Until(1); return bad })
		},
		"CallbackRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.CallbackRequest](data)
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.ParseOutcome(r.Outcome); return bad }, blob(&r.Body))
		},
		"VerificationRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.VerificationRequest](data)
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.ParseFinding(r.Result); return bad }, blob(&r.Body), ttl(r.TTLMS))
		},
		"ResolveRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.ResolveRequest](data)
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := wire.ParseResolution(r.Result); return bad }, blob(&r.Body))
		},
		"SessionRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.SessionRequest](data)
			return firstInvalid(func() *wire.Invalid { return bad }, ttl(r.TTLMS))
		},
		"BatchLine": func(data []byte) *wire.Invalid { _, bad := wire.DecodeBatchLine(data); return bad },
		"ImportLine": func(data []byte) *wire.Invalid {
			r, bad := wire.DecodeImport(data)
			r.Key = "default/charge/order-42" // keys have their own tests
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { _, bad := r.Command("default", time.Now()); return bad })
		},
		"TokenRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.TokenRequest](data)
			return firstInvalid(func() *wire.Invalid { return bad }, func() *wire.Invalid { return wire.CheckName(r.Name, wire.FieldError{Pointer: "/name"}) })
		},
		"ReplaceNode":     func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.ReplaceNode](data); return bad },
		"FinishRestore":   func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.FinishRestore](data); return bad },
		"ReasonRequest":   func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.ReasonRequest](data); return bad },
		"UndoLateRequest": func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.UndoLateRequest](data); return bad },
		"ActionRequest": func(data []byte) *wire.Invalid {
			r, bad := wire.Decode[wire.ActionRequest](data)
			if bad != nil {
				return bad
			}
			if r.Lookup = true; r.ProviderWindowMS > 0 {
				r.Recovery = "resend" // allows the field
			}
			return r.Check()
		},
		"NotifyRequest":    func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.NotifyRequest](data); return bad },
		"NamespaceRequest": func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.NamespaceRequest](data); return bad },
		"RenewRequest":     func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.RenewRequest](data); return bad },
		"ApprovalDecision": func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.ApprovalDecision](data); return bad },
		"OperatorRequest":  func(data []byte) *wire.Invalid { _, bad := wire.Decode[wire.OperatorRequest](data); return bad },
	}
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
	for name, take := range requestReaders() {
		try := func(field string, value any) *wire.Invalid {
			r := s.minimalRequest(name, field)
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
	require.Subset(t, slices.Collect(maps.Keys(s.all)), slices.Collect(maps.Keys(requestReaders())))
	for name := range s.all {
		require.Equal(t, s.isRequest(name), requestReaders()[name] != nil, "add %s to takers()", name)
	}
}
