package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// New returns the handler of all routes.
func New(cfg Config) *API {
	ro := newRouter(&cfg)
	mux := http.NewServeMux()
	lines := ro.withRequestID(mux)
	if cfg.Callers.Lines != nil {
		lines = cfg.Callers.Lines(lines)
	}
	all := routes(&cfg, ro.responder, lines)
	for pattern, route := range all {
		serve := route.serve
		if !route.query {
			serve = withoutQuery(serve)
		}
		mux.HandleFunc(pattern, route.placed(ro.withAccess(route.access, ro.withDeploymentCheck(pattern, ro.withErrors(serve)))))
	}
	if cfg.About.Metrics != nil && cfg.Callers.Auth == nil { // a token has no verb for metrics
		for _, path := range [...]string{"GET /metrics", "GET /metrics/etcd", "GET /metrics/raft"} {
			all[path] = route{place: ThisNode, access: anyone}
			mux.HandleFunc(path, all[path].placed(cfg.About.Metrics.ServeHTTP))
		}
	}
	return &API{ro.handler(mux, cfg.Callers.LoopbackOnly), mux, all}
}

// API serves all routes.
type API struct {
	http.Handler
	mux    *http.ServeMux
	routes map[string]route // by pattern
}

// Place returns the place of the route that a request is for; Leader if there is no such route.
func (a *API) Place(r *http.Request) Place {
	_, pattern := a.mux.Handler(r)
	route, found := a.routes[pattern]
	if !found || !cleanPath(r) {
		return Leader
	}
	return route.placeOf(r)
}

// Place is the node of a cluster that serves a route, and whether an answer outlives the term in which it was made.
type Place uint8

const (
	// byMethod is Leader for a GET, and Proposal for the rest. It is the place of a declaration without one.
	byMethod Place = iota
	// Leader: the node that leads the ledger. Its answer rests on a read, and is given only if the node leads afterwards.
	Leader
	// Proposal: the leader. A success is the result of a proposal, and stays true. Other answers are as with Leader.
	Proposal
	// FinalProposal is Proposal, but a node that does not lead replays final receipts by itself.
	FinalProposal
	// Final is Leader, but a node that does not lead gives final answers by itself.
	Final
	// Renewal is Leader, but while no node leads, every node renews sessions by itself and rejects no renewal.
	Renewal
	// ThisNode: the node that took the request, which the answer describes.
	ThisNode
)

// isCurrent reports whether an answer with this status rests on a read.
func (p Place) isCurrent(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone,
		http.StatusPreconditionFailed, http.StatusUnprocessableEntity, http.StatusFailedDependency:
		return true
	}
	return status < http.StatusBadRequest && p != Proposal && p != FinalProposal
}

// placeOf returns the place of a request for the route. Tokens are judged by the leader: those that this node knows may be old.
func (r route) placeOf(request *http.Request) Place {
	switch {
	case r.place == ThisNode && !r.access.public && NodeOf(request.Context()) == "":
		return Leader
	case r.place == byMethod && !strings.HasPrefix(r.pattern, http.MethodGet):
		return Proposal
	case r.place == byMethod:
		return Leader
	}
	return r.place
}

// placed names the place of a request to the writer of its answer.
func (r route) placed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		if answer, ok := w.(*answerWriter); ok {
			answer.place = r.placeOf(request)
		}
		next(w, request)
	}
}

// NewMonitoring returns a handler that serves only the given routes, with loopbackOnly only to this machine. It rejects
// other requests with the same problems as New. A nil logger means slog.Default.
func NewMonitoring(routes map[string]http.Handler, loopbackOnly bool, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), monitoring{}, true)))
		})
	}
	return newRouter(&Config{Logger: logger}).handler(mux, loopbackOnly)
}

// handler answers a request, or returns the error to answer it with: an error of package effect, *wire.Invalid, one that about
// has wrapped, or a problemError.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is a handler and the permission that it needs.
type route struct {
	pattern string // method and path, in the form of http.ServeMux
	serve   handler
	access  access
	place   Place
	query   bool // the handler reads the query; all other routes take no query parameters

	// Types of an Endpoint, for the OpenAPI document; nil if the handler reads and writes HTTP itself.
	request, answer reflect.Type
	body            bool
}

// routes returns every route of the API by its pattern. Each subject has a type with its handlers, its ports and its routes.
// docs/openapi.json is derived from them. lines serves the lines of batches.
func routes(cfg *Config, re *responder, lines http.Handler) map[string]route {
	limits, duplicates := cfg.Callers.Limits, cfg.Events.Duplicates
	if duplicates == nil {
		duplicates = noDuplicates{}
	}
	if limits == nil {
		limits = auth.NewLimiter(nil, nil, auth.NodeLimits{})
	}
	operator := proposer{cfg.Operator}
	fw := &flightWriter{responder: re, flights: cfg.Ledger, limits: limits, queues: cfg.Work.Pools, documents: cfg.Documents}
	ds := &documentStore{responder: re, documents: cfg.Documents, operator: operator, awaitNodes: cfg.Cluster.AwaitNodes}
	calls := &callRoutes{fw, cfg.Remote, duplicates, cfg.About.Version.Deployment, cfg.Callers.PublicURL}
	all := make(map[string]route)
	for _, subject := range []interface{ routes() []declaration }{
		calls,
		&callbackRoutes{calls, cfg.Remote},
		&jobRoutes{fw, cfg.Work, cfg.Remote, ds, cfg.About.Version.Deployment, cfg.Callers.PublicURL},
		&queueRoutes{fw, ds},
		&sagaRoutes{fw, ds, cfg.Work.Sagas},
		&batchRoutes{re, lines, make(chan struct{}, maxLineWorkers)},
		&sessionRoutes{responder: re, sessions: cfg.Remote, limits: limits},
		&flightRoutes{fw, cfg.Work.Sagas},
		newEventRoutes(cfg, re, duplicates, limits),
		&decisionRoutes{flightWriter: fw, operator: operator},
		&approvalRoutes{&decisionRoutes{flightWriter: fw, operator: operator}, &flightRoutes{fw, cfg.Work.Sagas}},
		&tokenRoutes{ds},
		newNamespaceRoutes(cfg, ds),
		&actionRoutes{ds},
		&notifyRoutes{ds, cfg.Notify},
		&auditRoutes{documentStore: ds, auditLog: cfg.Documents, limits: limits},
		&restoreRoutes{fw, cfg.Work.Sagas, cfg.Restores, operator},
		&clusterRoutes{documentStore: ds, cluster: cfg.Cluster},
		&serverRoutes{responder: re, about: cfg.About},
	} {
		for _, declared := range subject.routes() {
			r := declared.route(re.scope)
			if _, twice := all[r.pattern]; twice {
				panic("httpapi: two subjects have the route " + r.pattern)
			}
			all[r.pattern] = r
		}
	}
	return all
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
		ReadTimeout:       longest + 20*time.Second, // awaitBody shortens it for a body
		WriteTimeout:      longest + 40*time.Second, // includes the wait; node.connections shortens it when an answer begins
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}
