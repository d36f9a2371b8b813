package httpapi

import (
	"net/http"
	"runtime"
	"slices"

	"github.com/flightd/flightd/httpapi/wire"
)

var typeText = []string{typePlain}

// live serves GET /livez: the process is running.
func (a *api) live(w http.ResponseWriter, r *http.Request) {
	writeResponse(w, r, http.StatusOK, typeText, func(b []byte) []byte { return append(b, "ok\n"...) })
}

// monitoring is the key of a context value that requests to a handler of NewMonitoring have.
type monitoring struct{}

// ready serves GET /readyz: whether the node can serve callers. With ?verbose the answer has all checks and a
// description of the node. Figures of the ledger are shown to those who may read the same ones in the metrics.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	_, verbose := r.URL.Query()["verbose"]
	if verbose && a.cfg.Auth != nil {
		if _, bad := a.authenticate(r, verboseAccess); bad != nil {
			a.writeInvalid(w, r, bad)
			return
		}
	}
	ready := a.cfg.Ready(r.Context())
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
		w.Header().Set(wire.HeaderRetryAfter, "1")
	}
	if !verbose && ready.Ready {
		ready.Checks = nil
	}
	if !verbose && a.cfg.Auth != nil { // errors can name files and addresses of the node
		ready.Checks = slices.Clone(ready.Checks)
		for i := range ready.Checks {
			ready.Checks[i].Error = ""
		}
	}
	if a.cfg.LedgerInfo != nil {
		info := a.cfg.LedgerInfo(verbose || a.cfg.Auth == nil || r.Context().Value(monitoring{}) != nil)
		ready.Ledger = &info
	}
	if verbose && a.cfg.NodeInfo != nil {
		ready.Node = a.cfg.NodeInfo(r.Context())
	}
	a.writeJSON(w, r, status, ready)
}

// version serves GET /version.
func (a *api) version(w http.ResponseWriter, r *http.Request) {
	v := a.cfg.Version
	h := a.cfg.Ledger.Header()
	v.Go, v.LedgerTime, v.FeatureLevel = runtime.Version(), int64(a.cfg.Ledger.Now()), h.FeatureLevel()
	a.writeJSON(w, r, http.StatusOK, v)
}
