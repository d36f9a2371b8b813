package httpapi

import (
	"context"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/notify"
)

// Notifications post to the targets of notifications.
type Notifications interface {
	// Test posts a message to a target, once, and says what became of it.
	Test(ctx context.Context, target *flight.Document) (wire.NotifyTestAnswer, error)
	// Failing returns since when each target that has not taken its newest message has not, and why.
	Failing() map[string]wire.NotifyFailure
}

// notifyRoutes serve the targets of notifications.
type notifyRoutes struct {
	*documentStore
	sender Notifications
}

func (nr *notifyRoutes) routes() []declaration {
	return []declaration{
		route{pattern: "GET /v1/notify", serve: nr.list, access: with(auth.Admin)},
		route{pattern: "GET /v1/notify/{name}", serve: nr.get, access: with(auth.Admin)},
		route{pattern: "PUT /v1/notify/{name}", serve: nr.put, access: with(auth.Admin)},
		route{pattern: "DELETE /v1/notify/{name}", serve: nr.remove, access: with(auth.Admin)},
		route{pattern: "POST /v1/notify/{name}/test", serve: nr.test, access: with(auth.Admin)},
	}
}

// allowed rejects a token of one namespace: a target can see all of them.
func (nr *notifyRoutes) allowed(r *http.Request) *wire.Invalid {
	if nr.documents == nil || nr.sender == nil {
		return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server sends no notifications"}}
	}
	return onlyAllNamespaces(r)
}

// target returns the id of the target in the path.
func (nr *notifyRoutes) target(r *http.Request) (flight.DocumentID, *wire.Invalid) {
	id := flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindNotify, Name: r.PathValue("name")}
	bad := nr.allowed(r)
	if bad == nil {
		bad = wire.CheckName(id.Name, wire.FieldError{Parameter: "name"})
	}
	return id, bad
}

// stored returns the document of the target in the path.
func (nr *notifyRoutes) stored(r *http.Request) (*flight.Document, *wire.Invalid) {
	id, bad := nr.target(r)
	if bad != nil {
		return nil, bad
	}
	doc := nr.documents.Document(id)
	if doc == nil {
		return nil, &wire.Invalid{Code: wire.NotFound, Hint: "list the targets with flightd notify ls", FieldError: wire.FieldError{Detail: noTarget}}
	}
	return doc, nil
}

const noTarget = "there is no such target of notifications"

// list serves GET /v1/notify: the targets by name.
func (nr *notifyRoutes) list(w http.ResponseWriter, r *http.Request) error {
	if bad := nr.allowed(r); bad != nil {
		return bad
	}
	out := wire.NotifyList{Targets: []wire.Notify{}}
	for _, doc := range nr.documents.Documents(flight.KindNotify) {
		shown, err := nr.shown(doc)
		if err != nil {
			return err
		}
		out.Targets = append(out.Targets, *shown)
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

// get serves GET /v1/notify/{name}.
func (nr *notifyRoutes) get(w http.ResponseWriter, r *http.Request) error {
	doc, bad := nr.stored(r)
	if bad != nil {
		return bad
	}
	shown, err := nr.shown(doc)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, shown)
}

// put serves PUT /v1/notify/{name}: the target becomes that of the request, and keeps its secret if the request has none. A new target is
// notified of what happens after the request.
//
// Crash safety: the target is as before, or as the request wants it. If the answer is lost, nobody knows a random secret: the caller sends
// the request again with a secret.
func (nr *notifyRoutes) put(w http.ResponseWriter, r *http.Request) error {
	id, bad := nr.target(r)
	var req wire.NotifyRequest
	if bad == nil {
		req, bad = receive(nr.readAdminBody, w, r, wire.MaxSmallBody, wire.Decode[wire.NotifyRequest])
	}
	if bad == nil {
		bad = req.Check()
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		return bad
	}
	made := req.Secret
	t := wire.NotifyTarget{URL: req.URL, Secret: req.Secret, NotifyRules: req.NotifyRules, Since: nr.ledger.Header().Version.String()}
	put := &flight.PutDocument{ID: id, Actor: d.actor, Reason: d.reason}
	switch old := nr.documents.Document(id); {
	case old != nil:
		before, err := notify.DecodeTarget(old)
		if err != nil {
			return err
		}
		if put.Expect, t.Since = old.Version, before.Since; t.Secret == "" {
			t.Secret = before.Secret
		}
	case len(nr.documents.Documents(flight.KindNotify)) >= wire.MaxNotifyTargets:
		return &effect.QuotaExceeded{Limit: "the ledger stores the maximum number of targets of notifications", RetryAfter: operatorRetryAfter}
	case made == "":
		made = wire.NewNotifySecret()
		t.Secret = made
	}
	put.Body = t.Encode()
	if err := nr.changeDocument(r, put); err != nil {
		return err
	}
	doc := nr.documents.Document(id)
	if doc == nil { // deleted meanwhile
		return documentChanged()
	}
	shown, err := nr.shown(doc)
	if err != nil {
		return err
	}
	if req.Secret == "" {
		shown.Secret = made
	}
	return writeJSON(w, r, http.StatusOK, shown)
}

// remove serves DELETE /v1/notify/{name}.
func (nr *notifyRoutes) remove(w http.ResponseWriter, r *http.Request) error {
	id, bad := nr.target(r)
	if bad != nil {
		return bad
	}
	return nr.deleteDocument(w, r, id, noTarget)
}

// test serves POST /v1/notify/{name}/test: it posts a message to the target, once. The answer is 200 also if the target did not take it.
func (nr *notifyRoutes) test(w http.ResponseWriter, r *http.Request) error {
	doc, bad := nr.stored(r)
	var body []byte
	if bad == nil {
		body, bad = nr.readAdminBody(w, r, wire.MaxSmallBody)
	}
	if bad == nil {
		bad = decodeEmpty(body)
	}
	if bad != nil {
		return bad
	}
	out, err := nr.sender.Test(r.Context(), doc)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

// shown converts a document, without its secret.
func (nr *notifyRoutes) shown(doc *flight.Document) (*wire.Notify, error) {
	t, err := notify.DecodeTarget(doc)
	if err != nil {
		return nil, err
	}
	out := &wire.Notify{Name: doc.ID.Name, URL: t.ShownURL(), NotifyRules: t.NotifyRules, Version: doc.Version.String(), ChangedAt: wireTime(doc.Changed.At), ChangedBy: doc.Changed.Actor, Reason: doc.Changed.Reason}
	if f, ok := nr.sender.Failing()[doc.ID.Name]; ok {
		out.Failing = &f
	}
	return out, nil
}
