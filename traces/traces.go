// Package traces exports spans by OTLP, as the OTEL_* variables of the environment say: one span for each call of a node's API, and one for
// each attempt.
//
// The call's span is a child of the caller's traceparent, or the root of a new trace. If the trace is sampled, the ledger stores the call's
// span with the attempt that the call opens. The span of the attempt is a child of it. Its id follows from the key and the nonce, so the
// provider can get it before the span exists, and each later node links duplicates to it. The node that leads the ledger exports the span
// when the attempt has ended, whatever has ended it.
//
// # What is true if the process dies
//
// The ledger has the traces of attempts; spans are only in memory until they are exported. A process that dies loses the spans of the last
// seconds. The span of an attempt that ended in them is never exported. Its id stays valid in links, and in the spans of the provider.
// Around a change of leader the span of an attempt may be exported twice, with the same id.
package traces

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/flightd/flightd/flight"
)

// Exporter exports spans. A nil Exporter exports none.
type Exporter struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	log      *slog.Logger
}

// FromEnvironment returns the exporter that the OTEL_* variables ask for, or nil if they name no endpoint of OTLP or switch traces off. It
// does not connect. Errors are *flight.InvalidError for a variable with an unknown value. The SDK itself reads the variables that are not named here.
//
// The log gets the errors of exports, which are those of the whole process: a process makes one Exporter.
func FromEnvironment(ctx context.Context, version string, log *slog.Logger) (*Exporter, error) {
	env := func(names ...string) (name, value string) {
		for _, name = range names {
			if value = strings.TrimSpace(os.Getenv(name)); value != "" {
				return name, value
			}
		}
		return name, ""
	}
	_, endpoint := env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	_, disabled := env("OTEL_SDK_DISABLED")
	name, kind := env("OTEL_TRACES_EXPORTER")
	switch {
	case endpoint == "" || strings.EqualFold(disabled, "true") || kind == "none":
		return nil, nil
	case kind != "" && kind != "otlp":
		return nil, &flight.InvalidError{Field: name, Detail: fmt.Sprintf("%q is not supported; allowed: otlp, none", kind)}
	}
	var client otlptrace.Client
	switch name, protocol := env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "http/protobuf":
		client = otlptracehttp.NewClient()
	case "grpc":
		client = otlptracegrpc.NewClient()
	default:
		return nil, &flight.InvalidError{Field: name, Detail: fmt.Sprintf("%q is not supported; allowed: http/protobuf, grpc", protocol)}
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "flightd"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, &flight.InvalidError{Field: "OTEL_RESOURCE_ATTRIBUTES", Detail: err.Error()}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans could not be exported", "error", err) }))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about), sdk.WithIDGenerator(ids{}))
	return &Exporter{provider, provider.Tracer("github.com/flightd/flightd", trace.WithInstrumentationVersion(version)), log}, nil
}

// Close exports the spans that have ended, until ctx ends. The rest is lost, which is only logged.
func (ex *Exporter) Close(ctx context.Context) error {
	if err := ex.provider.Shutdown(ctx); err != nil {
		ex.log.Warn("the last spans could not be exported", "error", err)
	}
	return nil
}

// spanKey is the key of the span that a context wants to start, instead of one with a random id.
type spanKey struct{}

// ids implements sdk.IDGenerator.
type ids struct{}

// NewIDs returns the ids of a root span.
func (i ids) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	_, _ = crand.Read(t[:]) // crypto/rand never returns an error
	return t, i.NewSpanID(ctx, t)
}

// NewSpanID returns the id of a span with a parent.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (s trace.SpanID) {
	if span, ok := ctx.Value(spanKey{}).(flight.Trace); ok {
		return trace.SpanID(span[16:])
	}
	_, _ = crand.Read(s[:])
	return s
}

// contextOf returns the span context of a stored span.
func contextOf(t flight.Trace) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(t[:16]), SpanID: trace.SpanID(t[16:]), TraceFlags: trace.FlagsSampled, Remote: true})
}

// attributesOf describes a flight without its key: keys may name persons. `flightd why` finds the flight by its id.
func attributesOf(f *flight.Flight) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("flightd.flight_id", f.ID.String()), attribute.String("flightd.namespace", f.Key.Namespace()),
		attribute.String("flightd.action", f.Key.Name()), attribute.Int64("flightd.generation", int64(f.Generation))}
}
