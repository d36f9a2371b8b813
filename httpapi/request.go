package httpapi

import (
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func rejectParameters(r *http.Request) *wire.Invalid {
	if r.URL.RawQuery == "" {
		return nil
	}
	params, bad := queryParameters(r)
	if bad != nil || len(params) == 0 {
		return bad
	}
	bad = wire.BadParameter(slices.Min(slices.Collect(maps.Keys(params))), "this route takes no parameters")
	bad.Hint = "remove the parameter; this route reads only the path, the headers and the body"
	return bad
}

// queryParameters parses the query of a request.
func queryParameters(r *http.Request) (url.Values, *wire.Invalid) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wire.BadParameter("query", "invalid query: %v", err)
	}
	return params, nil
}

// singleHeader returns a header that may occur at most once, or "" if it is absent. Duplicates are rejected because
// flightd cannot know which value was meant.
func singleHeader(r *http.Request, name string) (string, *wire.Invalid) {
	switch given := r.Header[name]; len(given) {
	case 0:
		return "", nil
	case 1:
		return given[0], nil
	}
	return "", wire.BadHeader(name, "duplicate header")
}

// hasOtherCharset reports whether a content type has a charset other than UTF-8. Every body is read as UTF-8.
func hasOtherCharset(contentType string) bool {
	_, parameters, err := mime.ParseMediaType(contentType)
	return err == nil && !slices.Contains([]string{"", "utf-8", "utf8", "us-ascii"}, strings.ToLower(parameters["charset"]))
}

// unsupportedType is the error for a request whose content type is missing, or is not one that the route accepts.
func unsupportedType(kind string) *wire.Invalid {
	bad := wire.BadHeader("Content-Type", "missing")
	if kind != "" {
		bad = wire.BadHeader("Content-Type", "%.100q is not supported here", kind)
	}
	bad.Code = wire.UnsupportedMediaType
	return bad
}

func tooLarge(limit int64) *wire.Invalid {
	bad := wire.BadField("", "the body is longer than %d bytes, the limit of this route", limit)
	bad.Code = wire.PayloadTooLarge
	return bad
}

// flightID returns the flight id in the path.
func flightID(r *http.Request) (flight.ID, *wire.Invalid) {
	id, err := flight.ParseID(r.PathValue("id"))
	if err != nil {
		return id, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "invalid flight id: it is fl_ followed by 26 characters of a-z and 2-7"}}
	}
	return id, nil
}
