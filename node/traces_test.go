package node

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// spans receives spans over OTLP.
type spans struct {
	mu       sync.Mutex
	received []*otlp.Span
	services map[string]bool
}

// receiveSpans starts a receiver, and names it in the environment of the test.
func receiveSpans(t *testing.T) *spans {
	s := &spans{services: make(map[string]bool)}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
			panic("not OTLP: " + r.URL.Path)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, of := range request.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					s.services[a.Value.GetStringValue()] = true
				}
			}
			for _, scope := range of.ScopeSpans {
				s.received = append(s.received, scope.Spans...)
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return s
}

// find returns the spans with a name. The node has ended, so all have arrived.
func (s *spans) find(name string) (found []*otlp.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.received {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

func (s *spans) one(t *testing.T, name string) *otlp.Span {
	t.Helper()
	found := s.find(name)
	require.Len(t, found, 1, name)
	return found[0]
}

func attribute(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func traceparentOf(s *otlp.Span) string {
	return "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
}

const (
	callerTrace    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	duplicateTrace = "00-11111111111111111111111111111111-2222222222222222-01"
)

func exportSpans(c *Config) { c.Process.Traces = true }

// The span of a call is a child of the caller's, and that of the attempt a child of the call's. The provider gets the attempt's. The call of a
// duplicate is linked to the attempt, also after a restart.
func TestTraces_FromTheCallerToTheProvider(t *testing.T) {
	received, data := receiveSpans(t), t.TempDir()
	var atProvider string
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { atProvider = r.Header.Get("traceparent") }))
	defer provider.Close()
	key := client.Key("charge", "order-of-ada")
	pay := func(n *runningNode, traceparent string) {
		ex := connectTo(t, n)
		_, err := client.Do(client.WithTraceparent(t.Context(), traceparent), ex, key, order{42}, func(ctx context.Context, at client.Attempt) (charge, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, nil)
			require.NoError(t, err)
			_, err = effect.FromHTTP((&http.Client{Transport: at.Transport(nil)}).Do(req))
			return charge{"ch_1"}, err
		})
		require.NoError(t, err)
		require.NoError(t, ex.Close(t.Context()))
	}
	n := startNodeWith(t, data, exportSpans)
	pay(n, callerTrace)
	n.end()
	call, attempt, report := received.one(t, "POST /v1/flights:open"), received.one(t, "charge"), received.one(t, "POST /v1/flights/{id}/report")
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(call.ParentSpanId))
	require.Equal(t, otlp.Span_SPAN_KIND_SERVER, call.Kind)
	require.Equal(t, call.SpanId, attempt.ParentSpanId)
	require.Equal(t, traceparentOf(attempt), atProvider)
	require.Equal(t, "succeeded", attribute(attempt, "flightd.outcome"))
	require.Regexp(t, "^fl_[a-z2-7]{26}$", attribute(attempt, "flightd.flight_id"))
	require.LessOrEqual(t, attempt.StartTimeUnixNano, attempt.EndTimeUnixNano)
	require.Empty(t, call.Links, "the call that opened the attempt is its parent")
	require.Equal(t, attempt.SpanId, report.Links[0].SpanId)
	for _, span := range []*otlp.Span{call, attempt, report} {
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", hex.EncodeToString(span.TraceId))
		require.NotContains(t, span.String(), "ada", "a key may name a person")
	}
	require.True(t, received.services["flightd"])

	n = startNodeWith(t, data, exportSpans)
	pay(n, duplicateTrace)
	n.end()
	require.Len(t, received.find("charge"), 1, "nothing ran again")
	duplicate := received.find("POST /v1/flights:open")[1]
	require.Equal(t, "11111111111111111111111111111111", hex.EncodeToString(duplicate.TraceId))
	require.Len(t, duplicate.Links, 1)
	require.Equal(t, attempt.SpanId, duplicate.Links[0].SpanId)
	require.Equal(t, attempt.TraceId, duplicate.Links[0].TraceId)
}

// An attempt whose caller has gone has a span, too. A job belongs to the trace of its submission, each attempt with a span of its own. A call of another
// language gets the traceparent in the answer, also as a line of a batch and without one of its own.
func TestTraces_OfEachAttempt(t *testing.T) {
	received := receiveSpans(t)
	t.Setenv("OTEL_SERVICE_NAME", "payments")
	n := startNodeWith(t, t.TempDir(), exportSpans)
	c := connectTo(t, n)
	w := c.Worker()
	tries, seen, done := 0, []string{}, make(chan struct{})
	client.Work(w, "render", func(_ context.Context, at client.Attempt, _ order) (charge, error) {
		if seen = append(seen, at.Traceparent()); tries == 0 {
			tries++
			return charge{}, client.NotDone(errors.New("busy"))
		}
		close(done)
		return charge{"f_1"}, nil
	})
	_, err := c.Submit(client.WithTraceparent(t.Context(), callerTrace), client.Key("render", "film-7"), order{1}, client.JobPolicy(flight.Policy{Retry: flight.RetryPolicy{Attempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond}}))
	require.NoError(t, err)
	runWorker(t, w)
	<-done
	line := `{"open":{"action":"pay","id":"batch-1","nonce":"` + strings.Repeat("n", 32) + `"}}`
	answer, err := http.Post(n.url+"/v1/flights:batch", "application/x-ndjson", strings.NewReader(line))
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"traceparent":"00-`)
	_, err = client.Do(t.Context(), c, client.Key("charge", "o-2"), order{2}, func(context.Context, client.Attempt) (charge, error) {
		return charge{}, client.NotDone(errors.New("no"))
	})
	require.Error(t, err)
	_, _ = client.Do(client.WithTraceparent(t.Context(), strings.TrimSuffix(callerTrace, "1")+"0"), c, client.Key("unsampled", "o-3"), order{3},
		func(_ context.Context, at client.Attempt) (charge, error) {
			require.True(t, strings.HasSuffix(at.Traceparent(), "-00"), "the caller's, unchanged")
			return charge{}, nil
		})
	require.NoError(t, c.Close(t.Context()))
	n.end()

	attempts, submit := received.find("render"), received.one(t, "POST /v1/flights:submit")
	require.Len(t, attempts, 2)
	for i, a := range attempts {
		require.Equal(t, submit.SpanId, a.ParentSpanId)
		require.Equal(t, traceparentOf(a), seen[i])
		require.Equal(t, []string{"not_done", "succeeded"}[i], attribute(a, "flightd.outcome"))
		require.Equal(t, []otlp.Status_StatusCode{otlp.Status_STATUS_CODE_ERROR, otlp.Status_STATUS_CODE_UNSET}[i], a.Status.GetCode())
	}
	for _, call := range received.find("POST /v1/flights:open") {
		require.Empty(t, call.ParentSpanId)
	}
	require.Equal(t, "not_done", attribute(received.one(t, "charge"), "flightd.outcome"))
	require.Empty(t, received.find("unsampled"))
	require.True(t, received.services["payments"])
}

// Without an endpoint in the environment, or if traces are switched off, nothing is exported and nothing is stored.
func TestTraces_Off(t *testing.T) {
	received := receiveSpans(t)
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": ""} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			n := startNodeWith(t, t.TempDir(), exportSpans)
			c := connectTo(t, n)
			_, err := client.Do(client.WithTraceparent(t.Context(), callerTrace), c, client.Key("charge", "o-1"), order{1}, func(_ context.Context, at client.Attempt) (charge, error) {
				require.Equal(t, callerTrace, at.Traceparent())
				return charge{}, nil
			})
			require.NoError(t, err)
			require.NoError(t, c.Close(t.Context()))
			n.end()
			require.Empty(t, received.received)
		})
	}
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "zipkin")
			cfg := Dev(t.TempDir(), "127.0.0.1:0")
			exportSpans(&cfg)
			require.ErrorContains(t, Run(t.Context(), cfg), name)
		})
	}
}

// The attempt of a program that embeds a lone node belongs to the program's own span.
func TestTraces_OfAProgram(t *testing.T) {
	received := receiveSpans(t)
	var embedded effect.Doer
	n := startNodeWith(t, t.TempDir(), func(c *Config) {
		exportSpans(c)
		ready := c.Ready
		c.Ready = func(r Ready) { embedded = r.Executor; ready(r) }
	})
	var seen string
	_, err := client.Do(client.WithTraceparent(t.Context(), callerTrace), embedded, client.Key("charge", "o-1"), order{1}, func(ctx context.Context, at client.Attempt) (charge, error) {
		seen = at.Traceparent()
		return charge{"ch_1"}, nil
	})
	require.NoError(t, err)
	n.end()
	attempt := received.one(t, "charge")
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(attempt.ParentSpanId))
	require.Equal(t, traceparentOf(attempt), seen)
}

// Calls at any node of a cluster have one span each, of the node that answers them: that of an attempt is exported once, also if nobody reports it, and
// a follower links a duplicate to it by its own view.
func TestTraces_OfACluster(t *testing.T) {
	received := receiveSpans(t)
	c := newTestCluster(t, exportSpans)
	follower := (c.leader() + 1) % 3
	c.run(follower, "kept", succeeded)
	lost := c.fetch(follower, http.MethodPost, "/v1/flights:open", `{"action":"lose","id":"order-1","ttl_ms":2000,"recovery":"hold"}`, "Traceparent", callerTrace)
	require.Equal(t, http.StatusCreated, lost.status, lost.body)
	require.Eventually(t, func() bool {
		return strings.Contains(c.fetch(follower, http.MethodGet, "/v1/flights?key=default/lose/order-1", "").body, `"in_doubt"`)
	}, waitLimit, 100*time.Millisecond)
	c.complete(follower)
	passed := c.passedOn(c.leader())
	require.Equal(t, http.StatusOK, c.open(follower, "kept", "again").status)
	require.Zero(t, passed.Load())
	for i := range c.nodes {
		c.stop(i)
	}
	acted, opens := received.one(t, "pay"), received.find("POST /v1/flights:open")
	require.Len(t, opens, 3)
	var linked int
	for _, open := range opens {
		for _, link := range open.Links {
			require.Equal(t, acted.SpanId, link.SpanId)
			linked++
		}
	}
	require.Equal(t, 1, linked)
	end := received.one(t, "lose")
	require.Equal(t, "unknown", attribute(end, "flightd.outcome"))
	require.Equal(t, otlp.Status_STATUS_CODE_ERROR, end.Status.GetCode())
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", hex.EncodeToString(end.TraceId))
}
