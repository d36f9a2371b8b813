package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/remote"
)

// LoopbackOnly protects a server without credentials from web pages. A page of a foreign origin can make the user's
// browser send requests to this machine, so LoopbackOnly rejects:
//
//   - requests whose Host is not this machine, because DNS rebinding lets a foreign name resolve to it (403);
//   - requests with a foreign Origin, or that Sec-Fetch-Site marks as cross-site or same-site (403);
//   - requests other than GET, HEAD and OPTIONS without a JSON or YAML content type (415). A browser sends forms,
//     text/plain and bodies without a type to other origins without a CORS preflight. JSON and YAML need a preflight,
//     which this server rejects.
//
// The content type is checked last, so a request that browsers mark as foreign is always a 403. A callback is served for every host and
// content type, because it comes through a tunnel, and its URL is a secret that no web page has.
func LoopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bad := checkSameOrigin(r); bad != nil {
			writeProblem(w, r, problemOfInvalid(bad))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkSameOrigin returns the reason to reject a request that a web page could have sent, or nil if there is none.
func checkSameOrigin(r *http.Request) *wire.Invalid {
	if strings.HasPrefix(r.URL.Path, remote.CallbackPath) {
		return nil
	}
	forbidden := func(header, hint, format string, args ...any) *wire.Invalid {
		return &wire.Invalid{Code: wire.Forbidden, Hint: hint,
			FieldError: wire.FieldError{Header: header, Detail: fmt.Sprintf(format, args...)}}
	}
	if !isLoopback(r.Host) {
		return forbidden("Host", "use localhost, 127.0.0.1 or [::1] as the host", "%.100q is not a loopback host", r.Host)
	}
	for _, origin := range r.Header["Origin"] {
		if origin != "http://"+r.Host && origin != "https://"+r.Host {
			return forbidden("Origin", "send the request from a page of this server or from a program; other web origins are rejected", "%.100q is a foreign origin", origin)
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		return forbidden("Sec-Fetch-Site", "send the request from a page of this server or from a program; other web origins are rejected", "%.100q is not allowed", site)
	}
	// A web page sends other methods than these only after a preflight request, which no route answers.
	if r.Method != http.MethodPost {
		return nil
	}
	if kind := r.Header.Get("Content-Type"); !wire.IsJSONType(kind) && !wire.IsNDJSONType(kind) && !isYAML(kind) {
		return unsupportedType(kind)
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

// isLoopback reports whether a Host header names the loopback interface.
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
