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

func (tr *tokenRoutes) routes() []declaration {
	return []declaration{
		route{pattern: "POST /v1/tokens", serve: tr.createToken, access: with(auth.Admin)},
		route{pattern: "GET /v1/tokens", serve: tr.listTokens, access: with(auth.Admin)},
		route{pattern: "DELETE /v1/tokens/{namespace}/{name}", serve: tr.revokeToken, access: with(auth.Admin)},
		route{pattern: "GET /v1/whoami", serve: tr.whoAmI, access: anyToken},
	}
}

// defaultVerbs are the verbs of a token whose request names none.
const defaultVerbs = auth.Submit | auth.Read

// createToken serves POST /v1/tokens: a new token, or with rotate a new secret of an existing one.
//
// Crash safety: the secret is only in the answer. If the answer is lost, the token exists, and rotate gives it another
// secret.
func (tr *tokenRoutes) createToken(w http.ResponseWriter, r *http.Request) error {
	req, d, bad := tr.tokenRequest(w, r)
	if bad != nil {
		return bad
	}
	id := auth.TokenID(req.Namespace, req.Name)
	old := tr.documents.Document(id)
	token, bad := changedToken(r, &req, old)
	if bad != nil {
		return bad
	}
	now := tr.ledger.Now()
	var expires flight.Time
	if req.ExpiresInMS > 0 {
		expires = now.Add(time.Duration(req.ExpiresInMS) * time.Millisecond)
	}
	secret, err := token.Issue(req.Namespace, now, expires, time.Duration(req.KeepOldMS)*time.Millisecond)
	if err != nil {
		bad := wire.BadField("/keep_old_ms", "%v", err)
		bad.Hint = "wait until older secrets have expired, or rotate without keep_old_ms"
		return bad
	}
	put := &flight.PutDocument{ID: id, Body: token.Encode(), Actor: d.actor, Reason: d.reason}
	if old != nil {
		put.Expect = old.Version
	}
	if err := tr.changeDocument(r, put); err != nil {
		return err
	}
	made := &wire.NewToken{Name: req.Name, Namespace: req.Namespace, Verbs: token.Verbs.Names(), ExpiresAt: wireTime(expires), Token: secret}
	if req.Rotate && tr.awaitNodes != nil {
		made.NotYet = tr.awaitNodes(r.Context())
	}
	return writeJSON(w, r, http.StatusCreated, made)
}

// tokenRequest parses the body of createToken. The namespace is set.
func (tr *tokenRoutes) tokenRequest(w http.ResponseWriter, r *http.Request) (req wire.TokenRequest, d operatorRequest, bad *wire.Invalid) {
	if req, bad = receive(tr.readAdminBody, w, r, wire.MaxSmallBody, wire.Decode[wire.TokenRequest]); bad != nil {
		return req, d, bad
	}
	if req.Namespace == "" {
		if req.Namespace, bad = namespace(r); bad != nil {
			return req, d, bad
		}
	}
	if bad = allowNamespace(r, req.Namespace, wire.FieldError{Pointer: "/namespace"}); bad != nil {
		return req, d, bad
	}
	if bad = checkNamespace(req.Namespace, wire.FieldError{Pointer: "/namespace"}); bad != nil {
		return req, d, bad
	}
	if bad = wire.CheckName(req.Name, wire.FieldError{Pointer: "/name"}); bad != nil {
		return req, d, bad
	}
	if req.KeepOldMS > 0 && !req.Rotate {
		return req, d, wire.BadField("/keep_old_ms", "keep_old_ms is allowed only with rotate")
	}
	return req, d, d.setAttribution(r, req.Actor, req.Reason)
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

// listTokens serves GET /v1/tokens.
func (tr *tokenRoutes) listTokens(w http.ResponseWriter, r *http.Request) error {
	if bad := tr.requireDocuments(); bad != nil {
		return bad
	}
	now, out := tr.ledger.Now(), wire.TokenList{Tokens: []wire.Token{}}
	for _, doc := range tr.documents.Documents(flight.KindToken) {
		if allowNamespace(r, doc.ID.Namespace, wire.FieldError{}) != nil {
			continue
		}
		shown := wire.Token{Name: doc.ID.Name, Namespace: doc.ID.Namespace, Verbs: []string{}, CreatedAt: wireTime(doc.CreatedAt), Version: doc.Version.String()}
		if token, err := auth.DecodeToken(doc.Body); err == nil {
			n, ends := token.Valid(now)
			shown.Verbs, shown.Secrets, shown.ExpiresAt = token.Verbs.Names(), n, wireTime(ends)
		}
		out.Tokens = append(out.Tokens, shown)
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

// revokeToken serves DELETE /v1/tokens/{namespace}/{name}.
func (tr *tokenRoutes) revokeToken(w http.ResponseWriter, r *http.Request) error {
	id := auth.TokenID(r.PathValue("namespace"), r.PathValue("name"))
	bad := allowNamespace(r, id.Namespace, wire.FieldError{Parameter: "namespace"})
	if bad == nil {
		bad = checkNamespace(id.Namespace, wire.FieldError{Parameter: "namespace"})
	}
	if bad == nil {
		bad = wire.CheckName(id.Name, wire.FieldError{Parameter: "name"})
	}
	if bad != nil {
		return bad
	}
	return tr.deleteDocument(w, r, id, "no token has this name; it was never created, or it was revoked already")
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

// whoAmI serves GET /v1/whoami: the credential of the request.
func (tr *tokenRoutes) whoAmI(w http.ResponseWriter, r *http.Request) error {
	out := wire.WhoAmI{Namespace: wire.AllNamespaces, Verbs: auth.AllVerbs.Names()}
	if c := callerOf(r); c != nil {
		out = wire.WhoAmI{Name: c.Name, Namespace: c.Namespace, Verbs: c.Verbs.Names(), ExpiresAt: wireTime(c.ExpiresAt)}
	}
	return writeJSON(w, r, http.StatusOK, &out)
}
