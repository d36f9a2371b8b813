package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// New returns the handler of all routes.
func New(cfg Config) http.Handler {
	a := &api{cfg: cfg, log: cfg.Logger, ids: newRequestIDs(), bodies: newBodyMemory(cmp.Or(cfg.bodyMemory, maxBodyMemory))}
	if a.log == nil {
		a.log = slog.Default()
	}
	a.log = slog.New(auth.RedactingHandler(a.log.Handler()))
	if a.limits = cfg.Limits; a.limits == nil {
		a.limits = auth.NewLimiter(nil, nil, auth.NodeLimits{})
	}
	if a.directory = cfg.Auth; a.directory == nil && cfg.Documents != nil {
		a.directory = auth.NewDirectory(cfg.Documents, a.log)
	}
	a.cfg.Version.API = "v1"
	if cfg.Duplicates == nil {
		a.cfg.Duplicates = noDuplicates{}
	}
	mux := http.NewServeMux()
	for pattern, route := range a.routes() {
		mux.HandleFunc(pattern, a.withAccess(route.access, a.withDeploymentCheck(pattern, route.serve)))
	}
	if cfg.Metrics != nil && cfg.Auth == nil { // a token has no verb for metrics
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
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), monitoring{}, true)))
		})
	}
	mux.HandleFunc("/", a.notFound(mux))
	if loopbackOnly {
		return a.withRequestID(LoopbackOnly(mux))
	}
	return a.withRequestID(mux)
}

// routes returns every route of the API, with the permission that it needs. operations describes each of them; a test
// compares the two.
func (a *api) routes() map[string]route {
	const report = auth.Submit | auth.Work
	return map[string]route{
		"POST /v1/flights:open":                {a.noQuery(a.open), with(auth.Submit)},
		"POST /v1/flights:abandon":             {a.noQuery(a.abandon), with(report)},
		"GET /v1/flights":                      {a.list, with(auth.Read)},
		"GET /v1/flights/{id}":                 {a.noQuery(a.flight), with(auth.Read)},
		"GET /v1/flights/{id}/input":           {a.noQuery(a.input), with(auth.Read)},
		"GET /v1/flights/{id}/receipt":         {a.noQuery(a.receipt), with(auth.Read)},
		"GET /v1/flights/{id}/events":          {a.flightEvents, with(auth.Read)},
		"GET /v1/events":                       {a.allEvents, with(auth.Read)},
		"POST /v1/flights/{id}/report":         {a.noQuery(a.report), with(report)},
		"POST /v1/flights/{id}/verification":   {a.noQuery(a.verification), with(report)},
		"POST /v1/flights/{id}/resolve":        {a.noQuery(a.resolve), with(auth.Operate)},
		"POST /v1/flights/{id}/cancel":         {a.noQuery(a.cancel), with(auth.Operate)},
		"POST /v1/flights/{id}/retry":          {a.noQuery(a.retry), with(auth.Operate)},
		"POST /v1/flights/{id}/free":           {a.noQuery(a.free), with(auth.Operate)},
		"POST /v1/flights/{id}/redact":         {a.noQuery(a.redact), with(auth.Operate)},
		"POST /v1/flights:import":              {a.importReceipts, with(auth.Operate)},
		"POST /v1/sessions":                    {a.noQuery(a.newSession), with(report)},
		"POST /v1/sessions/{id}/renew":         {a.noQuery(a.renewSession), with(report)},
		"POST /v1/sessions/{id}/close":         {a.noQuery(a.closeSession), with(report)},
		"POST /v1/tokens":                      {a.noQuery(a.createToken), with(auth.Admin)},
		"GET /v1/tokens":                       {a.noQuery(a.listTokens), with(auth.Admin)},
		"DELETE /v1/tokens/{namespace}/{name}": {a.noQuery(a.revokeToken), with(auth.Admin)},
		"GET /v1/namespaces":                   {a.noQuery(a.listNamespaces), with(auth.Admin)},
		"GET /v1/namespaces/{name}":            {a.noQuery(a.namespaceLimits), with(auth.Admin)},
		"PUT /v1/namespaces/{name}":            {a.noQuery(a.setNamespaceLimits), with(auth.Admin)},
		"DELETE /v1/namespaces/{name}":         {a.noQuery(a.deleteNamespaceLimits), with(auth.Admin)},
		"GET /v1/audit":                        {a.audit, with(auth.Operate | auth.Admin)},
		"GET /v1/backup":                       {a.noQuery(a.backup), with(auth.Admin)},
		"GET /v1/restore":                      {a.noQuery(a.restoreState), with(auth.Operate | auth.Admin)},
		"GET /v1/restore/asked":                {a.restoreAsked, with(auth.Operate | auth.Admin)},
		"POST /v1/restore:finish":              {a.noQuery(a.finishRestore), with(auth.Admin)},
		"GET /v1/cluster":                      {a.noQuery(a.clusterState), with(auth.Operate | auth.Admin)},
		"POST /v1/lease-epoch:raise":           {a.noQuery(a.raiseLeaseEpoch), with(auth.Admin)},
		"GET /v1/whoami":                       {a.noQuery(a.whoAmI), anyToken},
		"GET /livez":                           {a.live, anyone},
		"GET /readyz":                          {a.ready, anyone}, // verboseAccess applies to ?verbose
		"GET /version":                         {a.version, anyToken},
		"GET " + problemPath + "{code}":        {a.problemPage, anyone},
		"GET " + documentPath:                  {a.openapi(), anyone},

		"POST /v1/cluster/nodes/{name}/replace": {a.noQuery(a.replaceNode), with(auth.Admin)},
	}
}

// verboseAccess is the access of GET /readyz?verbose, which describes the node.
var verboseAccess = with(auth.Operate | auth.Admin)

// api holds what the handlers share.
type api struct {
	cfg         Config
	log         *slog.Logger
	ids         *requestIDs
	limits      *auth.Limiter
	directory   *auth.Directory // Config.Auth; without credentials, limits are shown and not applied
	openStreams atomic.Int64    // number of open event streams
	bodies      *bodyMemory
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
