package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/internal/wire"
)

// New makes the handler of all routes.
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

// Apart is a door to a few routes and nothing else, for this machine. What it refuses it refuses as New's does. A nil
// logger is slog.Default.
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

// routes are all that this door has. Each is described in operations: a test says which one is not.
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

// anybodys are the routes that tell of the server alone.
var anybodys = []string{"GET /livez", "GET /readyz", "GET /version"}

// own lets no request through to a route that names another deployment: this one knows nothing of what was done there, and
// would let the caller do it once more.
func (a *api) own(pattern string, route http.HandlerFunc) http.HandlerFunc {
	if slices.Contains(anybodys, pattern) {
		return route
	}
	return func(w http.ResponseWriter, r *http.Request) {
		named, bad := single(r, wire.HeaderDeployment)
		switch {
		case bad != nil:
			a.refuse(w, r, bad)
		case named != "" && named != a.cfg.Version.Deployment:
			p := newProblem(wire.WrongDeployment)
			p.Detail = fmt.Sprintf("the request is for deployment %.100q, and this server is of %q", named, a.cfg.Version.Deployment)
			if id, bad := flightID(r); bad == nil {
				p.FlightID = id.String()
			}
			writeProblem(w, r, p)
			a.note(r, p, nil)
		default:
			route(w, r)
		}
	}
}

// api holds what the handlers share.
type api struct {
	cfg   Config
	log   *slog.Logger
	ids   *requestIDs
	tails atomic.Int64 // streams that are open
}

// first does for every request what comes before its route: an id, headers of the answer, and no paths that ServeMux
// would clean into others. Where there is a ledger, the answer carries its time.
func (a *api) first(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h[wire.HeaderRequestID] = []string{a.ids.of(r)}
		h["Cache-Control"] = noStore
		if a.cfg.Ledger != nil {
			w = &timedWriter{ResponseWriter: w, now: a.cfg.Ledger.Now}
		}
		if !cleanPath(r) {
			a.refuse(w, r, &wire.Invalid{Code: wire.NotFound,
				FieldError: wire.FieldError{Detail: `a path with an empty, "." or ".." segment names nothing`}})
			return
		}
		next.ServeHTTP(w, r)
	})
}

var (
	noStore     = []string{"no-store"}
	typeJSON    = []string{wire.TypeJSON}
	typeProblem = []string{wire.TypeProblem}
	yes         = []string{"true"}
	no          = []string{"false"}
)

// cleanPath reports whether ServeMux will take the path as it is. It redirects others, and so would carry a request to
// another key than the one that was written.
func cleanPath(r *http.Request) bool {
	path := r.URL.Path
	if path == "" || path[0] != '/' {
		return false
	}
	return path == "/" || !strings.Contains(path, "//") && !strings.HasSuffix(path, "/") && !hasDots(path)
}

func hasDots(path string) bool {
	if !strings.Contains(path, "/.") {
		return false
	}
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}

// lost answers requests that no route takes: for another method, or for no path of ours.
func (a *api) lost(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range [...]string{http.MethodGet, http.MethodHead, http.MethodPost} {
			other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
			if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
				allowed = append(allowed, method)
			}
		}
		bad := &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "there is nothing at this path"},
			Hint: "/openapi.json describes every path; flightd --help tells of the commands that use them"}
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			bad = &wire.Invalid{Code: wire.MethodNotAllowed, FieldError: wire.FieldError{Detail: "this path does not take " + r.Method}}
		}
		a.refuse(w, r, bad)
	}
}

// Server is an http.Server for the door, with time-outs that are compatible with the longest wait: a caller that sends
// slowly is cut off, one that waits is not.
func Server(addr string, h http.Handler) *http.Server {
	const longest = wire.MaxWaitMS * time.Millisecond
	return &http.Server{
		Addr: addr, Handler: h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       longest + 20*time.Second, // it also bounds how long a request may wait: it must be the longer one
		WriteTimeout:      longest + 40*time.Second, // whoever does not read the answer; streams have deadlines of their own
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}
