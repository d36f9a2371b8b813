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
	if cfg.Tallies == nil {
		a.cfg.Tallies = untold{}
	}
	mux := http.NewServeMux()
	for pattern, h := range a.routes() {
		mux.HandleFunc(pattern, a.own(pattern, h))
	}
	if cfg.Metrics != nil {
		for _, path := range [...]string{"GET /metrics", "GET /metrics/etcd", "GET /metrics/raft"} {
			mux.Handle(path, cfg.Metrics)
		}
	}
	mux.HandleFunc("/", a.lost(mux))
	var h http.Handler = a.first(mux)
	if cfg.Dev {
		h = a.first(LoopbackOnly(mux))
	}
	return h
}

// NewMonitoring returns a handler that serves only the given routes, and only to this machine. It rejects other
// requests with the same problems as New. A nil logger means slog.Default.
func Apart(routes map[string]http.Handler, logger *slog.Logger) http.Handler {
	a := &api{log: logger, ids: newRequestIDs()}
	if a.log == nil {
		a.log = slog.Default()
	}
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	mux.HandleFunc("/", a.lost(mux))
	return a.first(LoopbackOnly(mux))
}

// routes returns every route of the API. operations describes each of them; a test compares the two.
func (a *api) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/flights:open":         a.bare(a.open),
		"POST /v1/flights:abandon":      a.bare(a.abandon),
		"GET /v1/flights":               a.list,
		"GET /v1/flights/{id}":          a.bare(a.flight),
		"GET /v1/flights/{id}/input":    a.bare(a.input),
		"GET /v1/flights/{id}/receipt":  a.bare(a.receipt),
		"GET /v1/flights/{id}/events":   a.events,
		"GET /v1/events":                a.allEvents,
		"POST /v1/flights/{id}/report":  a.bare(a.report),
		"POST /v1/flights/{id}/verdict": a.bare(a.verdict),
		"POST /v1/flights/{id}/resolve": a.bare(a.resolve),
		"POST /v1/flights/{id}/cancel":  a.bare(a.cancel),
		"POST /v1/flights/{id}/retry":   a.bare(a.retry),
		"POST /v1/flights/{id}/free":    a.bare(a.free),
		"POST /v1/flights/{id}/redact":  a.bare(a.redact),
		"POST /v1/flights:import":       a.bringReceipts,
		"POST /v1/sessions":             a.bare(a.newSession),
		"POST /v1/sessions/{id}/renew":  a.bare(a.renewSession),
		"POST /v1/sessions/{id}/close":  a.bare(a.closeSession),
		"GET /livez":                    a.live,
		"GET /readyz":                   a.ready,
		"GET /version":                  a.version,
		"GET " + problemPath + "{code}": a.problemPage,
		"GET " + documentPath:           a.openapi(),
	}
}

// api holds what the handlers share.
type api struct {
	cfg   Config
	log   *slog.Logger
	ids   *requestIDs
	tails atomic.Int64 // number of open event streams
}

var (
	noStore     = []string{"no-store"}
	typeJSON    = []string{wire.TypeJSON}
	typeProblem = []string{wire.TypeProblem}
	yes         = []string{"true"}
	no          = []string{"false"}
)

// Server returns an http.Server whose timeouts are longer than the longest wait: a caller that sends slowly is
// disconnected, a caller that waits for a result is not.
func Server(addr string, h http.Handler) *http.Server {
	const longest = wire.MaxWaitMS * time.Millisecond
	return &http.Server{
		Addr: addr, Handler: h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       longest + 20*time.Second, // also limits how long a request may wait, so it must exceed longest
		WriteTimeout:      longest + 40*time.Second, // for callers that do not read the answer; streams set their own deadlines
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}
