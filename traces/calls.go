package traces

import (
	"maps"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Ledger reads flights. Its result is not changed.
type Ledger interface {
	Flight(id flight.ID) (*flight.Flight, error)
}

// Calls returns a handler that makes a span of each call that next answers: of each POST about flights, and of each line of a batch. next
// gets the span as the traceparent of the request. Without an Exporter it returns next itself.
//
// With follower set, next may leave a call to the leader, by another answer than that of a final receipt; then the leader makes the span.
func (ex *Exporter) Calls(next http.Handler, ledger Ledger, follower bool) http.Handler {
	if ex == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if r.Method != http.MethodPost || path == "/v1/flights:batch" || !strings.HasPrefix(path, "/v1/flights") && !strings.HasPrefix(path, "/v1/callbacks/") {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		if given := r.Header[effect.HeaderTraceparent]; len(given) == 1 && effect.TraceID(given[0]) != "" {
			ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
		}
		ctx, span := ex.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("http.request.method", r.Method)))
		call := r.WithContext(r.Context())
		call.Header = maps.Clone(r.Header) // lines of a batch share it
		delete(call.Header, effect.HeaderTraceparent)
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(call.Header))
		answer := &answer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, call)
		if follower && answer.status != http.StatusOK && answer.status != http.StatusFailedDependency {
			return // a span that never ends is not exported
		}
		if span.IsRecording() {
			describe(span, call.Pattern, answer, ledger)
		}
		span.End()
	})
}

// describe names the span of a call by its route, and links it to the attempt that acts, or has acted. The call that opened the attempt is its
// parent instead.
func describe(span trace.Span, pattern string, a *answer, ledger Ledger) {
	if _, route, found := strings.Cut(pattern, " "); found {
		span.SetName(pattern)
		span.SetAttributes(attribute.String("http.route", route))
	}
	span.SetAttributes(attribute.Int("http.response.status_code", a.status))
	if a.status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	id, err := flight.ParseID(a.Header().Get(wire.HeaderFlightID))
	if err != nil {
		return
	}
	f, err := ledger.Flight(id)
	if err != nil || f == nil || f.Key.IsZero() {
		return
	}
	span.SetAttributes(attributesOf(f)...)
	span.SetAttributes(attribute.String("flightd.state", f.State.String()))
	acted := f.Newest()
	for i := range f.Attempts {
		if f.Receipt != nil && f.Attempts[i].Number == f.Receipt.Attempt {
			acted = &f.Attempts[i]
		}
	}
	if linked := f.Span(acted); !linked.IsZero() && a.status != http.StatusCreated {
		span.AddLink(trace.Link{SpanContext: contextOf(linked)})
	}
}

// answer notes the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the underlying writer.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
