package httpapi

import (
	"context"

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

// targetChange asks for a new or another target.
type targetChange struct {
	documentName
	wire.NotifyRequest
}

func (nr *notifyRoutes) routes() []declaration {
	admin := with(auth.Admin)
	return []declaration{
		Endpoint[struct{}, wire.NotifyList]{Pattern: "GET /v1/notify", Access: admin, Serve: nr.list},
		Endpoint[documentName, wire.Notify]{Pattern: "GET /v1/notify/{name}", Access: admin, Serve: nr.get},
		Endpoint[targetChange, wire.Notify]{Pattern: "PUT /v1/notify/{name}", Access: admin, Body: wire.MaxSmallBody, Serve: nr.put},
		Endpoint[removal, wire.Revoked]{Pattern: "DELETE /v1/notify/{name}", Access: admin, Body: wire.MaxSmallBody, Serve: nr.remove},
		Endpoint[documentName, wire.NotifyTestAnswer]{Pattern: "POST /v1/notify/{name}/test",
			Access: admin, Body: wire.MaxSmallBody, Serve: nr.test},
	}
}

// allowed rejects a token of one namespace: a target can see all of them.
func (nr *notifyRoutes) allowed(q *Request) *wire.Invalid {
	if nr.documents == nil || nr.sender == nil {
		return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server sends no notifications"}}
	}
	return onlyAllNamespaces(q.Request)
}

// id returns the document of a target.
func (nr *notifyRoutes) id(q *Request, in *documentName) (flight.DocumentID, *wire.Invalid) {
	id := flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindNotify, Name: in.Name}
	bad := nr.allowed(q)
	if bad == nil {
		bad = wire.CheckName(id.Name, wire.FieldError{Parameter: "name"})
	}
	return id, bad
}

// stored returns the document of a target.
func (nr *notifyRoutes) stored(q *Request, in *documentName) (*flight.Document, *wire.Invalid) {
	id, bad := nr.id(q, in)
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

// list returns the targets by name.
func (nr *notifyRoutes) list(q *Request, _ *struct{}) (*wire.NotifyList, error) {
	if bad := nr.allowed(q); bad != nil {
		return nil, bad
	}
	out := &wire.NotifyList{Targets: []wire.Notify{}}
	for _, doc := range nr.documents.Documents(flight.KindNotify) {
		shown, err := nr.shown(doc)
		if err != nil {
			return nil, err
		}
		out.Targets = append(out.Targets, *shown)
	}
	return out, nil
}

// get returns a target.
func (nr *notifyRoutes) get(q *Request, in *documentName) (*wire.Notify, error) {
	doc, bad := nr.stored(q, in)
	if bad != nil {
		return nil, bad
	}
	return nr.shown(doc)
}

// put creates or replaces a target, which keeps its secret if the request has none. A new target is notified of later events only.
//
// Crash safety: the target is as before, or as the request wants it. If the answer is lost, nobody knows a random secret: the caller sends
// the request again with a secret.
func (nr *notifyRoutes) put(q *Request, in *targetChange) (*wire.Notify, error) {
	put := &flight.PutDocument{}
	var bad *wire.Invalid
	if put.ID, bad = nr.id(q, &in.documentName); bad == nil {
		put.Actor, put.Reason, bad = attribution(q.Request, in.Actor, in.Reason)
	}
	if bad != nil {
		return nil, bad
	}
	made := in.Secret
	t := wire.NotifyTarget{URL: in.URL, Secret: in.Secret, NotifyRules: in.NotifyRules, Since: nr.ledger.Header().Version.String()}
	switch old := nr.documents.Document(put.ID); {
	case old != nil:
		before, err := notify.DecodeTarget(old)
		if err != nil {
			return nil, err
		}
		if put.Expect, t.Since = old.Version, before.Since; t.Secret == "" {
			t.Secret = before.Secret
		}
	case len(nr.documents.Documents(flight.KindNotify)) >= wire.MaxNotifyTargets:
		return nil, &effect.QuotaExceeded{Limit: "the ledger stores the maximum number of targets of notifications", RetryAfter: operatorRetryAfter}
	case made == "":
		made = wire.NewNotifySecret()
		t.Secret = made
	}
	put.Body = t.Encode()
	if err := nr.changeDocument(q.Request, put); err != nil {
		return nil, err
	}
	doc := nr.documents.Document(put.ID)
	if doc == nil { // deleted meanwhile
		return nil, documentChanged()
	}
	shown, err := nr.shown(doc)
	if err == nil && in.Secret == "" {
		shown.Secret = made
	}
	return shown, err
}

// remove deletes a target.
func (nr *notifyRoutes) remove(q *Request, in *removal) (*wire.Revoked, error) {
	id, bad := nr.id(q, &in.documentName)
	if bad != nil {
		return nil, bad
	}
	return nr.deleteDocument(q, id, &in.ReasonRequest, noTarget)
}

// test posts a message to a target, once. The answer is 200 also if the target did not take it.
func (nr *notifyRoutes) test(q *Request, in *documentName) (*wire.NotifyTestAnswer, error) {
	doc, bad := nr.stored(q, in)
	if bad != nil {
		return nil, bad
	}
	out, err := nr.sender.Test(q.Context(), doc)
	return &out, err
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
