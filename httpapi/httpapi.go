package httpapi

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/internal/wire"
)

// New returns the handler of all routes.
func New(cfg Config) http.Handler {
	a := &api{cfg: cfg, log: cfg.Logger, ids: newRequestIDs()}
	if a.log == nil {
		a.log = slog.Default()
	}
	a.cfg.Version.API = "v1"
	if cfg.Duplicates == nil {
		a.cfg.Duplicates = noDuplicates{}
	}
	mux := http.NewServeMux()
	for pattern, h := range a.routes() {
		mux.HandleFunc(pattern, a.withDeploymentCheck(pattern, h))
	}
	if cfg.Metrics != nil {
		for _, path := range [...]string{"GET /metrics", "GET /metrics/etcd", "GET /metrics/raft"} {
			mux.Handle(path, cfg.Metrics)
		}
	}
	mux.HandleFunc("/", a.notFound(mux))
	var h http.Handler = a.withRequestID(mux)
	if cfg.LoopbackOnly {
		h = a.withRequestID(LoopbackOnly(mux))
	}
	return h
}

// NewMonitoring returns a handler that serves only the given routes, with loopbackOnly only to this machine. It rejects
// other requests with the same problems as New. A nil logger means slog.Default.
func NewMonitoring(routes map[string]http.Handler, loopbackOnly bool, logger *slog.Logger) http.Handler {
	a := &api{log: logger, ids: newRequestIDs()}
	if a.log == nil {
		a.log = slog.Default()
	}
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	mux.HandleFunc("/", a.notFound(mux))
	if loopbackOnly {
		return a.withRequestID(LoopbackOnly(mux))
	}
	return a.withRequestID(mux)
}

// routes returns every route of the API. operations describes each of them; a test compares the two.
func (a *api) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/flights:open":              a.noQuery(a.open),
		"POST /v1/flights:abandon":           a.noQuery(a.abandon),
		"GET /v1/flights":                    a.list,
		"GET /v1/flights/{id}":               a.noQuery(a.flight),
		"GET /v1/flights/{id}/input":         a.noQuery(a.input),
		"GET /v1/flights/{id}/receipt":       a.noQuery(a.receipt),
		"GET /v1/flights/{id}/events":        a.flightEvents,
		"GET /v1/events":                     a.allEvents,
		"POST /v1/flights/{id}/report":       a.noQuery(a.report),
		"POST /v1/flights/{id}/verification": a.noQuery(a.verification),
		"POST /v1/flights/{id}/resolve":      a.noQuery(a.resolve),
		"POST /v1/flights/{id}/cancel":       a.noQuery(a.cancel),
		"POST /v1/flights/{id}/retry":        a.noQuery(a.retry),
		"POST /v1/flights/{id}/free":         a.noQuery(a.free),
		"POST /v1/flights/{id}/redact":       a.noQuery(a.redact),
		"POST /v1/flights:import":            a.importReceipts,
		"POST /v1/sessions":                  a.noQuery(a.newSession),
		"POST /v1/sessions/{id}/renew":       a.noQuery(a.renewSession),
		"POST /v1/sessions/{id}/close":       a.noQuery(a.closeSession),
		"GET /livez":                         a.live,
		"GET /readyz":                        a.ready,
		"GET /version":                       a.version,
		"GET " + problemPath + "{code}":      a.problemPage,
		"GET " + documentPath:                a.openapi(),
	}
}

// api holds what the handlers share.
type api struct {
	cfg         Config
	log         *slog.Logger
	ids         *requestIDs
	openStreams atomic.Int64 // number of open event streams
}

var (
	noStore     = []string{"no-store"}
	typeJSON    = []string{wire.TypeJSON}
	typeProblem = []string{wire.TypeProblem}
	headerTrue  = []string{"true"}
	headerFalse = []string{"false"}
)

// Server returns an http.Server whose timeouts are longer than the longest wait: a caller that sends slowly is
// disconnected, a caller that waits for a result is not. It speaks HTTP/1.1 only: there one connection has one request,
// so limits of connections limit requests, too.
func Server(addr string, h http.Handler) *http.Server {
	const longest = wire.MaxWaitMS * time.Millisecond
	http1 := &http.Protocols{}
	http1.SetHTTP1(true)
	return &http.Server{
		Addr: addr, Handler: awaitBody(h), Protocols: http1,
		ReadHeaderTimeout: 5 * time.Second,          // of a TLS handshake, too
		ReadTimeout:       longest + 20*time.Second, // awaitBody shortens it for a body; it also limits how long a request may wait, so it must exceed longest
		WriteTimeout:      longest + 40*time.Second, // for callers that do not read the answer; streams set their own deadlines
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}
