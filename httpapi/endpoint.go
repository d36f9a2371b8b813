package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Endpoint declares a route of the API. The package derives the rest from it: routing, authorisation, decoding and checks of the
// request, and how the answer or the problem is written.
//
// Fields of Req with the tag path, header or query take the value of that name. The others are the JSON fields of the body. A request with
// another parameter or another field is rejected. Resp is written as JSON.
type Endpoint[Req, Resp any] struct {
	Pattern string // method and path, in the form of http.ServeMux
	Access  access // the token that a caller needs
	Body    int64  // the longest body, in bytes; 0: the request has none
	Place   Place  // where it is served in a cluster
	// Proved: the request proves by a secret of its attempt that it may report, so it is taken even if the token of its sender was
	// revoked while the body was on its way.
	Proved bool
	// Serve answers a request. It returns the error to answer with: one of package effect, a *wire.Invalid, or a problemError.
	Serve func(q *Request, in *Req) (*Resp, error)
}

// Request is a request to an endpoint, besides its content. The function of the endpoint sets status and headers of the answer here.
type Request struct {
	*http.Request
	status int         // of the answer
	header http.Header // of the answer

	// The subject of the request, as far as it is known. A problem names it, so that a caller concludes nothing from the answer to
	// another request.
	key            flight.Key
	nonce, session string
}

// answerWith sets the status of the answer, if the request succeeds.
func (r *Request) answerWith(status int) { r.status = status }

// describe sets the headers of the answer that describe a flight.
func (r *Request) describe(f *flight.Flight) { setFlightHeaders(r.header, f) }

// about returns the error with the subject of the request.
func (r *Request) about(err error) error {
	if made, ok := errors.AsType[problemError](err); ok {
		made.problem.Nonce, made.problem.Session = cmp.Or(made.problem.Nonce, r.nonce), cmp.Or(made.problem.Session, r.session)
		return err
	}
	if errors.As(err, new(named)) {
		return err
	}
	return named{error: err, key: r.key, nonce: r.nonce, session: r.session}
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
	request := reflect.TypeFor[Req]()
	bound := boundFieldsOf(request)
	read := sc.receiveBody
	if e.Proved {
		read = readBody
	}
	serve := func(w http.ResponseWriter, r *http.Request) error {
		q, in := &Request{Request: r, header: w.Header(), status: http.StatusOK}, new(Req)
		bad := bound.bind(r, in)
		var body []byte
		if bad == nil && e.Body > 0 {
			body, bad = read(w, r, e.Body)
		}
		if own, ok := any(in).(ownBody); ok && bad == nil {
			if err := own.readBody(body); err != nil {
				return err
			}
		} else if bad == nil && (!bound.noOther || len(body) > 0) {
			bad = wire.DecodeInto(body, in)
		}
		if checked, ok := any(in).(interface{ Check() *wire.Invalid }); ok && bad == nil {
			bad = checked.Check()
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
	}
	return route{pattern: e.Pattern, access: e.Access, place: e.Place, query: len(bound.query) > 0, serve: serve,
		request: request, answer: reflect.TypeFor[Resp](), body: e.Body > 0}
}

// ownBody is a request that reads its body itself.
type ownBody interface{ readBody(body []byte) error }

// boundField is a field of a request that takes a value from the path, a header or the query.
type boundField struct {
	path, header, query string // one of them is the name
	index               []int
}

// boundFields are the fields of a request that do not come from its body.
type boundFields struct {
	fields  []boundField
	query   []string // the names of the parameters
	lists   []string // those that may be given several times
	noOther bool     // the request has no fields in its body
}

func boundFieldsOf(request reflect.Type) boundFields {
	b := boundFields{noOther: true}
	for _, f := range reflect.VisibleFields(request) {
		field := boundField{f.Tag.Get("path"), f.Tag.Get("header"), f.Tag.Get("query"), f.Index}
		switch {
		case field.path+field.header+field.query != "":
			b.fields = append(b.fields, field)
			if field.query != "" {
				b.query = append(b.query, field.query)
			}
			if f.Type == reflect.TypeFor[[]string]() {
				b.lists = append(b.lists, field.query)
			}
		case !f.Anonymous:
			b.noOther = false
		}
	}
	return b
}

// parameter is the type of a field that the query sets.
type parameter interface {
	// set parses the value of a parameter.
	set(name, value string) *wire.Invalid
}

// bind sets the fields of a request.
func (b *boundFields) bind(r *http.Request, in any) (bad *wire.Invalid) {
	if len(b.fields) == 0 {
		return nil
	}
	params, bad := b.parameters(r)
	if bad != nil {
		return bad
	}
	v := reflect.ValueOf(in).Elem()
	for _, f := range b.fields {
		values, given := params[f.query]
		switch field := v.FieldByIndex(f.index).Addr().Interface().(type) {
		case *string:
			if *field = r.PathValue(f.path); given {
				*field = values[0]
			}
		case **string:
			if given {
				*field = &values[0]
			}
		case *[]string:
			if given {
				*field = strings.Split(strings.Join(values, ","), ",")
			}
		case *flight.ID:
			*field, bad = flightID(r)
		case **flight.Version:
			*field, bad = optionalVersion(r, f.header)
		case *flight.Version:
			*field, bad = seenVersion(r, f.header)
		case parameter:
			if given {
				bad = field.set(f.query, values[0])
			}
		default:
			panic(fmt.Sprintf("httpapi: a request has a field of type %T, which has no rule", field))
		}
		if bad != nil {
			return bad
		}
	}
	return nil
}

// parameters returns the query of a request. It rejects parameters that the endpoint does not have.
func (b *boundFields) parameters(r *http.Request) (url.Values, *wire.Invalid) {
	if len(b.query) == 0 || r.URL.RawQuery == "" {
		return nil, nil // New has rejected a query
	}
	params, bad := queryParameters(r)
	if bad != nil {
		return nil, bad
	}
	for name, values := range params {
		switch {
		case !slices.Contains(b.query, name):
			return nil, wire.BadParameter(name, "unknown parameter; allowed: %s", strings.Join(b.query, ", "))
		case len(values) > 1 && !slices.Contains(b.lists, name):
			return nil, duplicateParameter(name)
		}
	}
	return params, nil
}

// limitParameter is how many elements a page may have; 0: the default.
type limitParameter int

func (l *limitParameter) set(name, value string) *wire.Invalid {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxPage {
		return wire.BadParameter(name, "must be from 1 to %d", maxPage)
	}
	*l = limitParameter(n)
	return nil
}

// or returns the limit, or the default.
func (l limitParameter) or(n int) int { return cmp.Or(int(l), n) }

// versionParameter is the version of an entry of the audit log.
type versionParameter struct{ flight.Version }

func (v *versionParameter) set(name, value string) (bad *wire.Invalid) {
	var err error
	if v.Version, err = flight.ParseVersion(value); err != nil {
		return wire.BadParameter(name, "it must be a version or the next of an earlier page, like 8123.4")
	}
	return nil
}

// sinceParameter is a time, or a duration before now.
type sinceParameter flight.Time

func (s *sinceParameter) set(_, value string) (bad *wire.Invalid) {
	at, bad := parseSince(value, time.Now())
	*s = sinceParameter(at)
	return bad
}

// linkNext names the next page, which has the same path and parameters, in the header Link.
func (r *Request) linkNext(cursor string) {
	params, _ := queryParameters(r.Request) // it was parsed before
	params.Set("cursor", cursor)
	r.header.Set("Link", "<"+r.URL.Path+"?"+params.Encode()+`>; rel="next"`)
}

// seenVersion returns the version in a header that every decision has: the version of the flight that the person saw. With
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

// optionalVersion returns the version in a header, or nil without the header.
func optionalVersion(r *http.Request, header string) (*flight.Version, *wire.Invalid) {
	tag, bad := singleHeader(r, header)
	if bad != nil || tag == "" {
		return nil, bad
	}
	v, bad := parseETag(header, tag)
	return &v, bad
}
