package httpapi

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/flightd/flightd/internal/wire"
)

var typeText = []string{"text/plain; charset=utf-8"}

// live serves GET /livez: the process answers.
func (a *api) live(w http.ResponseWriter, r *http.Request) {
	send(w, r, http.StatusOK, typeText, func(b []byte) []byte { return append(b, "ok\n"...) })
}

// ready serves GET /readyz: the node can do its share; with ?verbose what it looked at, and
// what the node tells about itself.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	ready := a.cfg.Ready(r.Context())
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
		w.Header().Set(wire.HeaderRetryAfter, "1")
	}
	_, verbose := r.URL.Query()["verbose"]
	if !verbose && ready.Ready {
		ready.Checks = nil
	}
	if verbose && a.cfg.About != nil {
		ready.Node = a.cfg.About(r.Context())
	}
	a.sendValue(w, r, status, ready)
}

// version serves GET /version.
func (a *api) version(w http.ResponseWriter, r *http.Request) {
	v := a.cfg.Version
	v.Go = runtime.Version()
	a.sendValue(w, r, http.StatusOK, v)
}

// problemPage serves GET /problems/{code}: what the type of a problem leads to.
func (a *api) problemPage(w http.ResponseWriter, r *http.Request) {
	class, known := wire.Code(r.PathValue("code")).Class()
	if !known {
		a.refuse(w, r, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "there is no such code"}})
		return
	}
	again := "Sending the same request again changes nothing."
	if class.Retryable {
		again = "The same request may be sent again."
	}
	send(w, r, http.StatusOK, typeText, func(b []byte) []byte {
		return fmt.Appendf(b, "%s (%d)\n%s\n\n%s\n%s\n\nWhat to do: %s.\n", class.Code, class.Status, class.Title, class.About, again, class.Hint)
	})
}
