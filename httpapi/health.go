package httpapi

import (
	"net/http"
	"runtime"
	"slices"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// serverRoutes describe the server, and serve the documents of its API.
type serverRoutes struct {
	*responder
	about About
}

func (sr *serverRoutes) routes() []declaration {
	return []declaration{
		route{pattern: "GET /livez", place: ThisNode, serve: sr.live, access: anyone, query: true},
		route{pattern: "GET /readyz", place: ThisNode, serve: sr.ready, access: anyone, query: true}, // verboseAccess applies to ?verbose
		route{pattern: "GET /version", place: ThisNode, serve: sr.version, access: anyToken, query: true},
		route{pattern: "GET " + problemPath + "{code}", place: ThisNode, serve: sr.problemPage, access: anyone, query: true},
		route{pattern: "GET " + documentPath, place: ThisNode, serve: sr.openapi, access: anyone, query: true},
	}
}

// verboseAccess is the access of GET /readyz?verbose, which describes the node.
var verboseAccess = with(auth.Operate | auth.Admin)

var typeText = []string{typePlain}

// live serves GET /livez: the process is running.
func (sr *serverRoutes) live(w http.ResponseWriter, r *http.Request) error {
	writeResponse(w, r, http.StatusOK, typeText, func(b []byte) []byte { return append(b, "ok\n"...) })
	return nil
}

// monitoring is the key of a context value that requests to a handler of NewMonitoring have.
type monitoring struct{}

// ready serves GET /readyz: whether the node can serve callers. With ?verbose the answer has all checks and a
// description of the node. Figures of the ledger are shown to those who may read the same ones in the metrics.
func (sr *serverRoutes) ready(w http.ResponseWriter, r *http.Request) error {
	_, verbose := r.URL.Query()["verbose"]
	if verbose && sr.tokens != nil {
		if _, bad := sr.authenticate(r, verboseAccess); bad != nil {
			return bad
		}
	}
	ready := sr.about.Ready(r.Context())
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
		w.Header().Set(wire.HeaderRetryAfter, "1")
	}
	if !verbose && ready.Ready {
		ready.Checks = nil
	}
	if !verbose && sr.tokens != nil { // errors can name files and addresses of the node
		ready.Checks = slices.Clone(ready.Checks)
		for i := range ready.Checks {
			ready.Checks[i].Error = ""
		}
	}
	if sr.about.Ledger != nil {
		info := sr.about.Ledger(verbose || sr.tokens == nil || r.Context().Value(monitoring{}) != nil)
		ready.Ledger = &info
	}
	if verbose && sr.about.Node != nil {
		ready.Node = sr.about.Node(r.Context())
	}
	return writeJSON(w, r, status, ready)
}

// version serves GET /version.
func (sr *serverRoutes) version(w http.ResponseWriter, r *http.Request) error {
	v := sr.about.Version
	h := sr.ledger.Header()
	v.API, v.Go, v.LedgerTime, v.FeatureLevel = "v1", runtime.Version(), int64(sr.ledger.Now()), h.FeatureLevel()
	return writeJSON(w, r, http.StatusOK, v)
}
