package httpapi

import (
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// tokenRoutes serve tokens.
type tokenRoutes struct{ *documentStore }

// tokenName names a token.
type tokenName struct {
	Namespace string `json:"-" path:"namespace"`
	Name      string `json:"-" path:"name"`
	wire.ReasonRequest
}

func (tr *tokenRoutes) routes() []declaration {
	admin := with(auth.Admin)
	return []declaration{
		Endpoint[wire.TokenRequest, wire.NewToken]{Pattern: "POST /v1/tokens", Access: admin, Body: wire.MaxSmallBody, Serve: tr.create},
		Endpoint[struct{}, wire.TokenList]{Pattern: "GET /v1/tokens", Access: admin, Serve: tr.list},
		Endpoint[tokenName, wire.Revoked]{Pattern: "DELETE /v1/tokens/{namespace}/{name}",
			Access: admin, Body: wire.MaxSmallBody, Serve: tr.revoke},
		Endpoint[struct{}, wire.WhoAmI]{Pattern: "GET /v1/whoami", Access: anyToken, Serve: tr.whoAmI},
	}
}

// defaultVerbs are the verbs of a token whose request names none.
const defaultVerbs = auth.Submit | auth.Read

// create makes a new token, or with rotate a new secret of an existing one.
//
// Crash safety: the secret is only in the answer. If the answer is lost, the token exists, and rotate gives it another
// secret.
func (tr *tokenRoutes) create(q *Request, in *wire.TokenRequest) (*wire.NewToken, error) {
	if bad := tr.check(q, in); bad != nil {
		return nil, bad
	}
	put := &flight.PutDocument{ID: auth.TokenID(in.Namespace, in.Name)}
	var bad *wire.Invalid
	if put.Actor, put.Reason, bad = attribution(q.Request, in.Actor, in.Reason); bad != nil {
		return nil, bad
	}
	old := tr.documents.Document(put.ID)
	token, bad := changedToken(q.Request, in, old)
	if bad != nil {
		return nil, bad
	}
	now := tr.ledger.Now()
	var expires flight.Time
	if in.ExpiresInMS > 0 {
		expires = now.Add(time.Duration(in.ExpiresInMS) * time.Millisecond)
	}
	secret, err := token.Issue(in.Namespace, now, expires, time.Duration(in.KeepOldMS)*time.Millisecond)
	if err != nil {
		bad := wire.BadField("/keep_old_ms", "%v", err)
		bad.Hint = "wait until older secrets have expired, or rotate without keep_old_ms"
		return nil, bad
	}
	if put.Body = token.Encode(); old != nil {
		put.Expect = old.Version
	}
	if err := tr.changeDocument(q.Request, put); err != nil {
		return nil, err
	}
	made := &wire.NewToken{Name: in.Name, Namespace: in.Namespace, Verbs: token.Verbs.Names(), ExpiresAt: wireTime(expires), Token: secret}
	if in.Rotate && tr.awaitNodes != nil {
		made.NotYet = tr.awaitNodes(q.Context())
	}
	q.answerWith(http.StatusCreated)
	return made, nil
}

// check checks a request for a token, and sets its namespace.
func (tr *tokenRoutes) check(q *Request, in *wire.TokenRequest) *wire.Invalid {
	bad := tr.requireDocuments()
	if bad == nil && in.Namespace == "" {
		in.Namespace, bad = namespace(q.Request)
	}
	if bad == nil {
		bad = allowNamespace(q.Request, in.Namespace, wire.FieldError{Pointer: "/namespace"})
	}
	if bad == nil {
		bad = checkNamespace(in.Namespace, wire.FieldError{Pointer: "/namespace"})
	}
	if bad == nil {
		bad = wire.CheckName(in.Name, wire.FieldError{Pointer: "/name"})
	}
	if bad == nil && in.KeepOldMS > 0 && !in.Rotate {
		bad = wire.BadField("/keep_old_ms", "keep_old_ms is allowed only with rotate")
	}
	return bad
}

// changedToken returns the token that a request asks for, without its new secret. It returns Forbidden if the token would
// have a verb that the sender's own token lacks, also if a rotation leaves the verbs as they are.
func changedToken(r *http.Request, req *wire.TokenRequest, old *flight.Document) (*auth.Token, *wire.Invalid) {
	token := &auth.Token{Verbs: defaultVerbs}
	switch {
	case old != nil && !req.Rotate:
		return nil, &wire.Invalid{Code: wire.PreconditionFailed, Hint: "send rotate to give this token a new secret, or use another name",
			FieldError: wire.FieldError{Pointer: "/name", Detail: "a token of this name exists"}}
	case old == nil && req.Rotate:
		return nil, &wire.Invalid{Code: wire.NotFound, Hint: "leave out rotate to create the token", FieldError: wire.FieldError{Pointer: "/name", Detail: "no token has this name"}}
	case old != nil:
		stored, err := auth.DecodeToken(old.Body)
		switch {
		case err == nil:
			token = stored
		case len(req.Verbs) == 0:
			return nil, wire.BadField("/verbs", "missing; the document of this token cannot be read, so its verbs are not known")
		}
	}
	if len(req.Verbs) > 0 {
		verbs, err := auth.ParseVerbs(req.Verbs)
		if err != nil {
			return nil, wire.BadField("/verbs", "%v", err)
		}
		token.Verbs = verbs
	}
	if c := callerOf(r); c != nil {
		own := c.Verbs
		if own.HasAny(auth.Operate) { // operate allows all that define does
			own |= auth.Define
		}
		if !own.HasAll(token.Verbs) {
			return nil, &wire.Invalid{Code: wire.Forbidden, Hint: "name only verbs that your own token has",
				FieldError: wire.FieldError{Pointer: "/verbs", Detail: "your token lacks the verb " + (token.Verbs &^ own).String()}}
		}
	}
	return token, nil
}

// list returns the tokens that the sender may see.
func (tr *tokenRoutes) list(q *Request, _ *struct{}) (*wire.TokenList, error) {
	if bad := tr.requireDocuments(); bad != nil {
		return nil, bad
	}
	now, out := tr.ledger.Now(), &wire.TokenList{Tokens: []wire.Token{}}
	for _, doc := range tr.documents.Documents(flight.KindToken) {
		if allowNamespace(q.Request, doc.ID.Namespace, wire.FieldError{}) != nil {
			continue
		}
		shown := wire.Token{Name: doc.ID.Name, Namespace: doc.ID.Namespace, Verbs: []string{}, CreatedAt: wireTime(doc.CreatedAt), Version: doc.Version.String()}
		if token, err := auth.DecodeToken(doc.Body); err == nil {
			n, ends := token.Valid(now)
			shown.Verbs, shown.Secrets, shown.ExpiresAt = token.Verbs.Names(), n, wireTime(ends)
		}
		out.Tokens = append(out.Tokens, shown)
	}
	return out, nil
}

// revoke deletes a token.
func (tr *tokenRoutes) revoke(q *Request, in *tokenName) (*wire.Revoked, error) {
	bad := allowNamespace(q.Request, in.Namespace, wire.FieldError{Parameter: "namespace"})
	if bad == nil {
		bad = checkNamespace(in.Namespace, wire.FieldError{Parameter: "namespace"})
	}
	if bad == nil {
		bad = wire.CheckName(in.Name, wire.FieldError{Parameter: "name"})
	}
	if bad != nil {
		return nil, bad
	}
	return tr.deleteDocument(q, auth.TokenID(in.Namespace, in.Name), &in.ReasonRequest, "no token has this name; it was never created, or it was revoked already")
}

// checkNamespace rejects a name that neither is a namespace nor stands for all of them.
func checkNamespace(name string, place wire.FieldError) *wire.Invalid {
	if name == wire.AllNamespaces {
		return nil
	}
	return wire.CheckName(name, place)
}

// wireTime converts a time of the ledger; 0 is absent in the answer.
func wireTime(t flight.Time) wire.Time {
	if t == 0 {
		return wire.Time{}
	}
	return wire.Time{Time: t.AsTime()}
}

// whoAmI describes the token of the request.
func (tr *tokenRoutes) whoAmI(q *Request, _ *struct{}) (*wire.WhoAmI, error) {
	if c := callerOf(q.Request); c != nil {
		return &wire.WhoAmI{Name: c.Name, Namespace: c.Namespace, Verbs: c.Verbs.Names(), ExpiresAt: wireTime(c.ExpiresAt)}, nil
	}
	return &wire.WhoAmI{Namespace: wire.AllNamespaces, Verbs: auth.AllVerbs.Names()}, nil
}
