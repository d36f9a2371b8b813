package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/flightd/flightd/internal/wire"
)

// LoopbackOnly refuses whatever a web page could make a browser send to a server that asks for no credential: requests
// for another Host than this machine (a name that was rebound to it), from a foreign Origin, and writes without a JSON
// or YAML content type, which a form or a script could send without being asked first.
func LoopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bad := foreign(r); bad != nil {
			writeInvalid(w, r, bad)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func foreign(r *http.Request) *wire.Invalid {
	forbidden := func(header, hint, format string, args ...any) *wire.Invalid {
		return &wire.Invalid{Code: wire.Forbidden, Hint: hint,
			FieldError: wire.FieldError{Header: header, Detail: fmt.Sprintf(format, args...)}}
	}
	if !isLoopback(r.Host) {
		return forbidden("Host", "address this server as localhost, 127.0.0.1 or [::1]", "%.100q is not this machine", r.Host)
	}
	for _, origin := range r.Header["Origin"] {
		if origin != "http://"+r.Host && origin != "https://"+r.Host {
			return forbidden("Origin", "a development server takes no requests from web pages of other origins", "%.100q is another origin", origin)
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		return forbidden("Sec-Fetch-Site", "a development server takes no requests from web pages of other origins", "the request comes from another site")
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	if kind := r.Header.Get("Content-Type"); !wire.IsJSONType(kind) && !wire.IsNDJSONType(kind) && !isYAML(kind) {
		return forbidden("Content-Type", "send Content-Type: application/json", "a write needs a JSON or YAML content type, not %.100q", kind)
	}
	return nil
}

func isYAML(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml":
		return true
	}
	return false
}

// isLoopback reports whether a Host header names this machine.
func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
