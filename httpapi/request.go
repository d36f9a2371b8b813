package httpapi

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// noQuery wraps a route that has no query parameters. It rejects every parameter: if dry_run were ignored on an open,
// the caller would act although it asked for a dry run.
func (a *api) noQuery(route http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if bad := rejectParameters(r); bad != nil {
			a.writeInvalid(w, r, bad)
			return
		}
		route(w, r)
	}
}

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

// singleHeader returns a header that may occur at most once; "" if it is absent. Duplicates are rejected because
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

// readBody reads a request's body of at most limit bytes into a buffer that only this request uses.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *wire.Invalid) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if kind := r.Header.Get("Content-Type"); kind != "" && !wire.IsJSONType(kind) {
		return nil, unsupportedType(kind)
	}
	if n := r.ContentLength; n >= 0 && n <= maxPooledBuffer { // a longer body is buffered as it arrives: its announced length is not trusted
		body := make([]byte, n)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return nil, incompleteBody(r, err)
		}
		return body, nil
	}
	if timed, ok := w.(*ledgerTimeWriter); ok {
		w = timed.ResponseWriter // MaxBytesReader must see the server's own writer to close the connection
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, incompleteBody(r, err)
	}
	return body, nil
}

// incompleteBody is the error for a body that did not arrive completely. It does not judge the request: the same
// request may succeed when it is sent again. If the body was interrupted because this node stops, the code is draining.
func incompleteBody(r *http.Request, err error) *wire.Invalid {
	var stops *effect.Unavailable
	if errors.As(context.Cause(r.Context()), &stops) {
		return &wire.Invalid{Code: wire.Draining, FieldError: wire.FieldError{Detail: "this node is stopping, and the request body had not arrived completely"}}
	}
	bad := wire.BadField("", "the request body did not arrive completely: %v", err)
	bad.Code = wire.RequestIncomplete
	return bad
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

// namespace returns the namespace in the request's header, or the default.
func namespace(r *http.Request) (string, *wire.Invalid) {
	if len(r.Header[wire.HeaderNamespace]) == 0 {
		return wire.DefaultNamespace, nil
	}
	return singleHeader(r, wire.HeaderNamespace)
}

// flightID returns the flight id in the path.
func flightID(r *http.Request) (flight.ID, *wire.Invalid) {
	id, err := flight.ParseID(r.PathValue("id"))
	if err != nil {
		return id, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "invalid flight id: it is fl_ followed by 26 characters of a-z and 2-7"}}
	}
	return id, nil
}
