package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// defaultVerbs are the verbs of a token whose request names none.
const defaultVerbs = auth.Submit | auth.Read

// createToken serves POST /v1/tokens: a new token, or with rotate a new secret of an existing one.
//
// Crash safety: the secret is only in the answer. If the answer is lost, the token exists, and rotate gives it another
// secret.
func (a *api) createToken(w http.ResponseWriter, r *http.Request) {
	req, d, bad := a.tokenRequest(w, r)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	id := auth.TokenID(req.Namespace, req.Name)
	old := a.cfg.Documents.Document(id)
	token, bad := changedToken(r, &req, old)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	now := a.cfg.Ledger.Now()
	var expires flight.Time
	if req.ExpiresInMS > 0 {
		expires = now.Add(time.Duration(req.ExpiresInMS) * time.Millisecond)
	}
	secret, err := token.Issue(req.Namespace, now, expires, time.Duration(req.KeepOldMS)*time.Millisecond)
	if err != nil {
		bad := wire.BadField("/keep_old_ms", "%v", err)
		bad.Hint = "wait until older secrets have expired, or rotate without keep_old_ms"
		a.writeInvalid(w, r, bad)
		return
	}
	put := &flight.PutDocument{ID: id, Body: token.Encode(), Actor: d.actor, Reason: d.reason}
	if old != nil {
		put.Expect = old.Version
	}
	if !a.changeDocument(w, r, put) {
		return
	}
	made := &wire.NewToken{Name: req.Name, Namespace: req.Namespace, Verbs: token.Verbs.Names(), ExpiresAt: wireTime(expires), Token: secret}
	if req.Rotate && a.cfg.AwaitNodes != nil {
		made.NotYet = a.cfg.AwaitNodes(r.Context())
	}
	a.writeJSON(w, r, http.StatusCreated, made)
}

// tokenRequest parses the body of createToken. The namespace is set.
func (a *api) tokenRequest(w http.ResponseWriter, r *http.Request) (req wire.TokenRequest, d operatorRequest, bad *wire.Invalid) {
	body, bad := a.readAdminBody(w, r)
	if bad != nil {
		return req, d, bad
	}
	if req, bad = wire.DecodeToken(body); bad != nil {
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
	if c := callerOf(r); c != nil && !c.Verbs.HasAll(token.Verbs) {
		return nil, &wire.Invalid{Code: wire.Forbidden, Hint: "name only verbs that your own token has",
			FieldError: wire.FieldError{Pointer: "/verbs", Detail: "your token lacks the verb " + (token.Verbs &^ c.Verbs).String()}}
	}
	return token, nil
}

// listTokens serves GET /v1/tokens.
func (a *api) listTokens(w http.ResponseWriter, r *http.Request) {
	if bad := a.hasDocuments(); bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	now, out := a.cfg.Ledger.Now(), wire.TokenList{Tokens: []wire.Token{}}
	for _, doc := range a.cfg.Documents.Documents(flight.KindToken) {
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
	a.writeJSON(w, r, http.StatusOK, &out)
}

// revokeToken serves DELETE /v1/tokens/{namespace}/{name}.
func (a *api) revokeToken(w http.ResponseWriter, r *http.Request) {
	id := auth.TokenID(r.PathValue("namespace"), r.PathValue("name"))
	bad := allowNamespace(r, id.Namespace, wire.FieldError{Parameter: "namespace"})
	if bad == nil {
		bad = checkNamespace(id.Namespace, wire.FieldError{Parameter: "namespace"})
	}
	if bad == nil {
		bad = wire.CheckName(id.Name, wire.FieldError{Parameter: "name"})
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	a.deleteDocument(w, r, id, "no token has this name; it was never created, or it was revoked already")
}

// deleteDocument serves the deletion of a document, whatever its version is: if another person changes the document
// meanwhile, deleteDocument deletes the changed one.
func (a *api) deleteDocument(w http.ResponseWriter, r *http.Request, id flight.DocumentID, missing string) {
	body, bad := a.readAdminBody(w, r)
	var req wire.ReasonRequest
	if bad == nil {
		req, bad = wire.DecodeReason(body)
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	doc := (*flight.Document)(nil)
	if bad == nil {
		if doc = a.cfg.Documents.Document(id); doc == nil {
			bad = &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: missing}, Hint: "list the names that exist, and check the namespace"}
		}
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	c := &flight.DeleteDocument{ID: id, Actor: d.actor, Reason: d.reason}
	for range 3 {
		c.Expect = doc.Version
		reply, err := a.cfg.Operator.Propose(r.Context(), c)
		switch {
		case err != nil:
			a.writeError(w, r, flight.Key{}, err)
			return
		case reply.Decision == flight.DecisionAccepted || reply.Document == nil:
			var out wire.Revoked
			if id.Kind == flight.KindToken && a.cfg.AwaitNodes != nil {
				out.NotYet = a.cfg.AwaitNodes(r.Context())
			}
			a.writeJSON(w, r, http.StatusOK, &out)
			return
		}
		doc = reply.Document
	}
	a.writeDocumentChanged(w, r)
}

// changeDocument proposes a change. If the ledger does not accept it, changeDocument has answered the request and
// returns false.
func (a *api) changeDocument(w http.ResponseWriter, r *http.Request, c *flight.PutDocument) bool {
	reply, err := a.cfg.Operator.Propose(r.Context(), c)
	switch {
	case err != nil:
		a.writeError(w, r, flight.Key{}, err)
	case reply.Decision == flight.DecisionAccepted:
		return true
	case reply.Decision == flight.DecisionExhausted:
		a.writeError(w, r, flight.Key{}, &effect.QuotaExceeded{Limit: "the ledger stores the maximum number of documents; revoke tokens and delete limits that nobody uses", RetryAfter: operatorRetryAfter})
	case reply.Decision == flight.DecisionFailedPrecondition:
		a.writeDocumentChanged(w, r)
	default:
		a.writeError(w, r, flight.Key{}, errors.New("httpapi: unexpected decision "+reply.Decision.String()))
	}
	return false
}

func (a *api) writeDocumentChanged(w http.ResponseWriter, r *http.Request) {
	a.writeInvalid(w, r, &wire.Invalid{Code: wire.PreconditionFailed, Hint: "look at the present state, and send the request again if it is still right",
		FieldError: wire.FieldError{Detail: "another person changed it at the same time"}})
}

// hasDocuments returns the error of a server without documents.
func (a *api) hasDocuments() *wire.Invalid {
	if a.cfg.Documents == nil {
		return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no documents"}}
	}
	return nil
}

// readAdminBody reads the body of a change of a document.
func (a *api) readAdminBody(w http.ResponseWriter, r *http.Request) ([]byte, *wire.Invalid) {
	if bad := a.hasDocuments(); bad != nil {
		return nil, bad
	}
	return a.receiveBody(w, r, wire.MaxSmallBody)
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
