package traces

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/flightd/flightd/flight"
)

// Without an exporter nothing is added to the way of a call.
func TestWithoutAnExporterNothingIsAllocated(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		t.Setenv(name, "")
	}
	off, err := FromEnvironment(t.Context(), "test", slog.Default())
	require.NoError(t, err)
	require.Nil(t, off)
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r, w := httptest.NewRequest(http.MethodPost, "/v1/flights:open", http.NoBody), httptest.NewRecorder()
	handler := off.Calls(next, nil, false)
	require.Zero(t, testing.AllocsPerRun(1000, func() { handler.ServeHTTP(w, r) }))
}

// grpcReceiver receives spans over gRPC.
type grpcReceiver struct {
	collector.UnimplementedTraceServiceServer
	names chan string
}

func (g *grpcReceiver) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				g.names <- span.Name
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// noFlights implements Ledger.
type noFlights struct{}

func (noFlights) Flight(flight.ID) (*flight.Flight, error) { return nil, nil }

// Only calls about flights have spans, and the name of a span never has what a caller wrote into the path.
func TestCalls_OverGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	receiver, server := &grpcReceiver{names: make(chan string, 10)}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, receiver)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	ex, err := FromEnvironment(t.Context(), "test", slog.Default())
	require.NoError(t, err)
	mux := http.NewServeMux()
	var got []string
	for _, pattern := range []string{"POST /v1/callbacks/{token}", "POST /v1/sessions", "GET /v1/flights", "POST /v1/flights:batch"} {
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Traceparent")) })
	}
	handler := ex.Calls(mux, noFlights{}, false)
	for _, call := range []string{"POST /v1/callbacks/secret", "POST /v1/sessions", "GET /v1/flights", "POST /v1/flights:batch", "POST /v1/flights/ada"} {
		method, path, _ := strings.Cut(call, " ")
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, http.NoBody))
	}
	require.NoError(t, ex.Close(t.Context()))
	server.Stop()
	require.NoError(t, <-served)
	close(receiver.names)
	var names []string
	for name := range receiver.names {
		names = append(names, name)
	}
	require.Equal(t, []string{"POST /v1/callbacks/{token}", "POST"}, names)
	require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-01$", got[0])
	require.Equal(t, []string{"", "", ""}, got[1:])
}
