package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// access says which requests a route serves, if the server needs credentials.
type access struct {
	public bool       // also without a token
	verbs  auth.Verbs // the token has one of them; 0: any token
}

var (
	anyone   = access{public: true}
	anyToken = access{}
)

// with returns the access that a token with one of the verbs has.
func with(verbs auth.Verbs) access { return access{verbs: verbs} }

// allows reports whether a credential has one of the verbs.
func (a access) allows(c *auth.Credential) bool { return a.verbs == 0 || c.Verbs.HasAny(a.verbs) }

// caller is the sender of a request, on a server that needs credentials.
type caller struct {
	*auth.Credential
	arrived time.Time
	access  access // of the route
}

// scope is what the sender of a request may do and see (scope.go). The handlers of all subjects share it.
type scope struct {
	ledger    LedgerState
	tokens    *auth.Directory    // nil: the server needs no credentials
	tokenTime func() flight.Time // at which the expiry of tokens is judged
	follower  func() bool        // Cluster.Follower
	traces    bool               // Callers.Traces
}

type callerKey struct{}

type nodeKey struct{}

// AsNode returns a context for the requests of the program that embeds a node of the cluster: they need no token.
func AsNode(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// NodeOf returns the node whose program sent a request, or "" for every other caller.
func NodeOf(ctx context.Context) string {
	node, _ := ctx.Value(nodeKey{}).(string)
	return node
}

// callerOf returns the sender of a request, or nil if the server needs no credentials, or if the route is public.
func callerOf(r *http.Request) *caller {
	c, _ := r.Context().Value(callerKey{}).(*caller)
	return c
}

// boundCaller returns the sender of a request if its token belongs to one namespace; else nil.
func boundCaller(r *http.Request) *caller {
	if c := callerOf(r); c != nil && !c.AllNamespaces() {
		return c
	}
	return nil
}

// authenticate returns the sender of a request. It returns Unauthenticated for a request without a valid token, and
// Forbidden for a token without the verb.
func (sc *scope) authenticate(r *http.Request, need access) (*caller, *wire.Invalid) {
	if sc.follower != nil && !sc.follower() {
		return nil, &wire.Invalid{Code: wire.NoLeader, FieldError: wire.FieldError{Detail: "this node has not heard of the leader for too long to judge a token"}}
	}
	c := &caller{arrived: time.Now(), access: need}
	given, err := r.Header[wire.HeaderAuthorization], error(nil)
	switch node := NodeOf(r.Context()); {
	case node != "":
		c.Credential = &auth.Credential{Namespace: flight.AllNamespaces, Name: "node/" + node, Verbs: auth.Submit | auth.Work | auth.Read | auth.Define}
	case len(given) == 0:
		err = auth.ErrMissing
	case len(given) == 1:
		c.Credential, err = sc.tokens.Check(given[0], sc.tokenTime())
	default:
		err = auth.ErrMalformed
	}
	if err != nil {
		return nil, &wire.Invalid{Code: wire.Unauthenticated, FieldError: wire.FieldError{Header: wire.HeaderAuthorization, Detail: err.Error()}}
	}
	if !need.allows(c.Credential) {
		return nil, &wire.Invalid{Code: wire.Forbidden, Hint: "use a token that has the verb; an administrator creates it with flightd token create",
			FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
				Detail: fmt.Sprintf("the token has the verbs %s, but this request needs %s", c.Verbs, strings.Join(need.verbs.Names(), " or "))}}
	}
	return c, nil
}

// recheck authenticates the sender of a request again, who was authenticated before the body arrived or the request
// waited. The verbs are those of now, too. A stream asks before each write, so a revoked token receives no further event.
func (sc *scope) recheck(r *http.Request) *wire.Invalid {
	c := callerOf(r)
	if c == nil {
		return nil
	}
	now, bad := sc.authenticate(r, c.access)
	if bad == nil && now.Namespace != c.Namespace {
		bad = foreignNamespace(wire.FieldError{Header: wire.HeaderAuthorization})
	}
	if bad == nil {
		c.Credential = now.Credential
	}
	return bad
}

func (sc *scope) stillAllowed(r *http.Request) bool { return sc.recheck(r) == nil }

// receiveBody reads a body as readBody does, and then authenticates the sender again: a token that was revoked while
// the body was on its way changes nothing.
func (sc *scope) receiveBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *wire.Invalid) {
	body, bad := readBody(w, r, limit)
	if bad == nil {
		bad = sc.recheck(r)
	}
	return body, bad
}

// receive reads the body of a request with read, such as receiveBody, and decodes it.
func receive[T any](read func(http.ResponseWriter, *http.Request, int64) ([]byte, *wire.Invalid), w http.ResponseWriter, r *http.Request, limit int64,
	decode func([]byte) (T, *wire.Invalid)) (req T, bad *wire.Invalid) {
	body, bad := read(w, r, limit)
	if bad == nil {
		req, bad = decode(body)
	}
	return req, bad
}

// receiveLines reads a body with one JSON object per line, as receiveBody does.
func (sc *scope) receiveLines(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *wire.Invalid) {
	if kind := r.Header.Get("Content-Type"); !wire.IsNDJSONType(kind) || hasOtherCharset(kind) {
		bad := unsupportedType(kind)
		bad.Hint = "send one JSON object per line, with Content-Type: " + wire.TypeNDJSON
		return nil, bad
	}
	r.Header.Del("Content-Type") // readBody accepts only JSON
	return sc.receiveBody(w, r, limit)
}

// setStillAllowed makes an open authenticate its sender again after each wait.
func (sc *scope) setStillAllowed(r *http.Request, req *remote.OpenRequest) {
	if callerOf(r) == nil {
		return
	}
	req.StillAllowed = func() error {
		if bad := sc.recheck(r); bad != nil {
			return bad
		}
		return nil
	}
}

// rejectSecrets rejects requests that contain a secret in the URL or in another header than Authorization. Proxies write
// URLs to their logs.
func rejectSecrets(r *http.Request) *wire.Invalid {
	const detail = "contains a token; send a token only in the header Authorization, and revoke this one if others may have seen it"
	if auth.ContainsSecret(r.URL.Path) || auth.ContainsSecret(r.URL.RawQuery) {
		return &wire.Invalid{Code: wire.InputInvalid, FieldError: wire.FieldError{Parameter: "URL", Detail: detail}}
	}
	for name, values := range r.Header {
		if name != wire.HeaderAuthorization && slices.ContainsFunc(values, auth.ContainsSecret) {
			return wire.BadHeader(auth.Redact(name), detail)
		}
	}
	return nil
}

// recordedActor returns the actor that the ledger stores for a person's decision: with the namespace and the name of the
// token, if the server needs credentials. A caller cannot choose that part.
func recordedActor(r *http.Request, who string) string {
	c := callerOf(r)
	if c == nil {
		return who
	}
	token := "token " + c.Namespace + "/" + c.Name
	if who == "" {
		return token
	}
	suffix := " (" + token + ")"
	return flight.Sanitize(who[:min(len(who), flight.MaxText-len(suffix))]) + suffix
}
