package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Endpoint declares a route of the API. The package derives the rest from it: routing, authorisation, decoding and checks of the
// request, and how the answer or the problem is written.
//
// Fields of Req with the tag path or header take the value of that name in the path, or that header. The others are the JSON fields of
// the body, which is rejected if it has any other field. Resp is written as JSON.
type Endpoint[Req, Resp any] struct {
	Pattern string // method and path, in the form of http.ServeMux
	Access  access // the token that a caller needs
	Body    int64  // the longest body, in bytes; 0: the request has none
	// Proved: the request proves by a secret of its attempt that it may report, so it is taken even if the token of its sender was
	// revoked while the body was on its way.
	Proved bool
	// Serve answers a request. It returns the error to answer with: one of package effect, a *wire.Invalid, or a problemError.
	Serve func(q *Request, in *Req) (*Resp, error)
}

// Request is what the function of an endpoint knows about a request besides its content, and where it says what its answer is about.
type Request struct {
	*http.Request
	status int         // of the answer
	header http.Header // of the answer

	// What the request is about, as far as it is known. A problem names it, so that a caller concludes nothing from the answer to
	// another request.
	key            flight.Key
	nonce, session string
}

// answerWith sets the status of the answer, if the request succeeds.
func (q *Request) answerWith(status int) { q.status = status }

// describe sets the headers of the answer that describe a flight.
func (q *Request) describe(f *flight.Flight) { setFlightHeaders(q.header, f) }

// about returns the error with what the request is about.
func (q *Request) about(err error) error {
	if made, ok := errors.AsType[problemError](err); ok {
		made.problem.Nonce, made.problem.Session = cmp.Or(made.problem.Nonce, q.nonce), cmp.Or(made.problem.Session, q.session)
		return err
	}
	return named{error: err, key: q.key, nonce: q.nonce, session: q.session}
}

// declaration is an Endpoint, or a route that reads and writes HTTP itself.
type declaration interface {
	// route returns the route that is declared. sc authenticates the sender of a request again when its body has arrived.
	route(sc *scope) route
}

// route implements declaration.
func (r route) route(*scope) route { return r }

// route implements declaration.
func (e Endpoint[Req, Resp]) route(sc *scope) route {
	bound, bodyless := boundFields[Req]()
	read := sc.receiveBody
	if e.Proved {
		read = readBody
	}
	return route{pattern: e.Pattern, access: e.Access, serve: func(w http.ResponseWriter, r *http.Request) error {
		q, in := &Request{Request: r, header: w.Header(), status: http.StatusOK}, new(Req)
		bad := bind(bound, r, in)
		var body []byte
		if bad == nil && e.Body > 0 {
			body, bad = read(w, r, e.Body)
		}
		if bad == nil && (!bodyless || len(body) > 0) {
			bad = wire.DecodeInto(body, in)
		}
		if bad != nil {
			return bad
		}
		out, err := e.Serve(q, in)
		switch {
		case err != nil:
			return q.about(err)
		case out == nil:
			w.WriteHeader(q.status)
			return nil
		}
		return writeJSON(w, r, q.status, out)
	}}
}

// decodeEmpty reads the body of a request without fields: no body, or an empty object.
func decodeEmpty(body []byte) *wire.Invalid {
	if len(body) == 0 {
		return nil
	}
	return wire.DecodeInto(body, new(struct{}))
}

// boundField is a field of a request that takes a value from the path or a header.
type boundField struct {
	path, header string // one of them is the name
	index        []int
}

// boundFields returns the fields of a request with the tags path and header, and whether it has no others.
func boundFields[Req any]() (bound []boundField, only bool) {
	only = true
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Req]()) {
		switch path, header := f.Tag.Get("path"), f.Tag.Get("header"); {
		case path != "" || header != "":
			bound = append(bound, boundField{path, header, f.Index})
		case !f.Anonymous:
			only = false
		}
	}
	return bound, only
}

// bind sets the fields of a request that its path and its headers have.
func bind(fields []boundField, r *http.Request, in any) (bad *wire.Invalid) {
	if len(fields) == 0 {
		return nil
	}
	v := reflect.ValueOf(in).Elem()
	for _, f := range fields {
		switch field := v.FieldByIndex(f.index).Addr().Interface().(type) {
		case *string:
			*field = r.PathValue(f.path)
		case *flight.ID:
			*field, bad = flightID(r)
		case *flight.Version:
			*field, bad = seenVersion(r, f.header)
		default:
			panic(fmt.Sprintf("httpapi: a field that the path or a header sets has the type %T", field))
		}
		if bad != nil {
			return bad
		}
	}
	return nil
}

// seenVersion returns the version in a header that a decision must have: that of the flight that the decision was made on. With
// If-Match: *, a delayed request would apply to a version that nobody has seen.
func seenVersion(r *http.Request, header string) (v flight.Version, bad *wire.Invalid) {
	tag, bad := singleHeader(r, header)
	switch {
	case bad != nil:
	case tag == "":
		bad = &wire.Invalid{Code: wire.PreconditionRequired, FieldError: wire.FieldError{Header: header, Detail: "missing"}}
	default:
		if v, bad = parseETag(header, tag); bad != nil {
			bad.Hint = "GET the flight first, decide by its state, and send its ETag in " + header
		}
	}
	return v, bad
}
