package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// actionRoutes serve the documents of actions: the policy of their jobs.
type actionRoutes struct{ *documentStore }

func (ar *actionRoutes) routes() []declaration {
	read := with(auth.Work | auth.Read | auth.Operate | auth.Define)
	return []declaration{
		route{pattern: "GET /v1/actions", serve: ar.listActions, access: read},
		route{pattern: "GET /v1/actions/{name}", serve: ar.getAction, access: read},
		route{pattern: "PUT /v1/actions/{name}", serve: ar.putAction, access: with(auth.Operate | auth.Define)},
		route{pattern: "DELETE /v1/actions/{name}", serve: ar.deleteAction, access: with(auth.Operate)},
		route{pattern: "POST /v1/actions/{name}/declare", serve: ar.declareAction, access: with(auth.Submit | auth.Work | auth.Operate | auth.Define)},
	}
}

// policyOf returns the policy of an action's document; nil: it has none.
func (ds *documentStore) policyOf(namespace, action string) (*wire.ActionPolicy, error) {
	if ds.documents == nil {
		return nil, nil
	}
	doc := ds.documents.Document(flight.DocumentID{Namespace: namespace, Kind: flight.KindAction, Name: action})
	if doc == nil {
		return nil, nil
	}
	p, bad := wire.DecodeActionPolicy(doc.Body)
	if bad != nil { // a job without its lane, or under hold, is not what the document says
		return nil, fmt.Errorf("the document of the action %s cannot be read: %v", action, bad)
	}
	return p, nil
}

// listActions serves GET /v1/actions: those of the namespace, by name.
func (ar *actionRoutes) listActions(w http.ResponseWriter, r *http.Request) error {
	ns, bad := namespace(r)
	if bad == nil {
		bad = wire.CheckName(ns, wire.FieldError{Header: wire.HeaderNamespace})
	}
	if bad == nil {
		bad = ar.requireDocuments()
	}
	if bad != nil {
		return bad
	}
	out := wire.ActionList{Actions: []wire.Action{}}
	for _, doc := range ar.documents.Documents(flight.KindAction) {
		if doc.ID.Namespace != ns {
			continue
		}
		shown, err := actionOf(doc)
		if err != nil {
			return err
		}
		out.Actions = append(out.Actions, *shown)
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

// getAction serves GET /v1/actions/{name}.
func (ar *actionRoutes) getAction(w http.ResponseWriter, r *http.Request) error {
	id, bad := ar.actionID(r)
	if bad != nil {
		return bad
	}
	doc := ar.documents.Document(id)
	if doc == nil {
		return &wire.Invalid{Code: wire.NotFound, Hint: "create it with flightd actions apply, or check the name and the namespace",
			FieldError: wire.FieldError{Detail: "the action has no document; its jobs have the policies of their submissions, else hold"}}
	}
	shown, err := actionOf(doc)
	if err != nil {
		return err
	}
	w.Header()["Etag"] = []string{etag(doc.Version)}
	return writeJSON(w, r, http.StatusOK, shown)
}

// deleteAction serves DELETE /v1/actions/{name}. Jobs that were submitted keep their policies.
func (ar *actionRoutes) deleteAction(w http.ResponseWriter, r *http.Request) error {
	id, bad := ar.actionID(r)
	if bad != nil {
		return bad
	}
	return ar.deleteDocument(w, r, id, "the action has no document")
}

// putAction serves PUT /v1/actions/{name}: the policy becomes that of the document, whatever was there; with If-Match, only if the
// document still has that version.
//
// Crash safety: the document is as before, or as the request wants it; the same request again is answered unchanged.
func (ar *actionRoutes) putAction(w http.ResponseWriter, r *http.Request) error {
	id, bad := ar.actionID(r)
	if bad != nil {
		return bad
	}
	req, d, bad := ar.actionRequest(w, r, "")
	if bad != nil {
		return bad
	}
	tag, bad := singleHeader(r, "If-Match")
	if bad == nil && tag != "" {
		d.seen, bad = parseETag("If-Match", tag)
	}
	if bad != nil {
		return bad
	}
	old := ar.documents.Document(id)
	if now := cmp.Or(old, &flight.Document{}).Version; tag != "" && now != d.seen {
		return documentChanged()
	}
	req.Complete()
	out := wire.ActionAnswer{Status: wire.ActionCreated}
	if old != nil {
		switch stored, err := ar.policyOf(id.Namespace, id.Name); {
		case err != nil: // a later version of flightd has stored a field that this version would drop
			out.Differences = []wire.PolicyDifference{{Field: "document", Document: err.Error()}}
		case stored != nil:
			out.Differences = req.Differences(stored, false)
		}
		if out.Status = wire.ActionChanged; string(req.ActionPolicy.Encode()) == string(old.Body) {
			out.Status = wire.ActionUnchanged
		}
	}
	if out.Status != wire.ActionUnchanged && !req.DryRun {
		if err := ar.changeAction(r, id, &req, d, old); err != nil {
			return err
		}
	}
	return ar.writeAction(w, r, id, &out, req.DryRun)
}

// declareAction serves POST /v1/actions/{name}/declare: a worker says which policy it brings. A document that is there counts, and
// the answer has the differences. If there is none, it is created, provided that the token has the verb.
//
// Crash safety: as putAction.
func (ar *actionRoutes) declareAction(w http.ResponseWriter, r *http.Request) error {
	id, bad := ar.actionID(r)
	if bad != nil {
		return bad
	}
	req, d, bad := ar.actionRequest(w, r, "a worker declared it")
	if bad != nil {
		return bad
	}
	c := callerOf(r)
	mayCreate := c == nil || c.Verbs.HasAny(auth.Operate|auth.Define)
	out := wire.ActionAnswer{Status: wire.ActionUndeclared}
	for first := true; ; first = false {
		stored, err := ar.policyOf(id.Namespace, id.Name)
		switch {
		case err != nil:
			return err
		case stored != nil:
			if out.Status, out.Differences = wire.ActionUnchanged, req.Differences(stored, true); len(out.Differences) > 0 {
				out.Status = wire.ActionDifferent
			}
		case mayCreate:
			made := req
			made.Complete()
			if out.Status = wire.ActionCreated; req.DryRun {
				break
			}
			err := ar.changeAction(r, id, &made, d, ar.documents.Document(id))
			if changed, ok := errors.AsType[*wire.Invalid](err); ok && first && changed.Code == wire.PreconditionFailed { // another worker was first
				continue
			}
			if err != nil {
				return err
			}
		}
		break
	}
	return ar.writeAction(w, r, id, &out, req.DryRun)
}

// actionID returns the document of the action in the path, in the namespace of the request.
func (ar *actionRoutes) actionID(r *http.Request) (id flight.DocumentID, bad *wire.Invalid) {
	id = flight.DocumentID{Kind: flight.KindAction, Name: r.PathValue("name")}
	if bad = ar.requireDocuments(); bad == nil {
		id.Namespace, bad = namespace(r)
	}
	if bad == nil {
		bad = wire.CheckName(id.Namespace, wire.FieldError{Header: wire.HeaderNamespace})
	}
	if bad == nil {
		bad = wire.CheckName(id.Name, wire.FieldError{Parameter: "name"})
	}
	return id, bad
}

// actionRequest reads the body of a change. reason is that of a request without one.
func (ar *actionRoutes) actionRequest(w http.ResponseWriter, r *http.Request, reason string) (req wire.ActionRequest, d operatorRequest, bad *wire.Invalid) {
	req, bad = receive(ar.readAdminBody, w, r, wire.MaxSmallBody, wire.Decode[wire.ActionRequest])
	if bad == nil {
		bad = req.Check()
	}
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, cmp.Or(req.Reason, reason))
	}
	return req, d, bad
}

// changeAction writes the document of an action, if it still is the old one; nil: if there is none.
func (ar *actionRoutes) changeAction(r *http.Request, id flight.DocumentID, req *wire.ActionRequest, d operatorRequest, old *flight.Document) error {
	put := &flight.PutDocument{ID: id, Body: req.ActionPolicy.Encode(), Actor: d.actor, Reason: d.reason}
	if old != nil {
		put.Expect = old.Version
	}
	return ar.changeDocument(r, put)
}

// writeAction answers a change with the document as it is now.
func (ar *actionRoutes) writeAction(w http.ResponseWriter, r *http.Request, id flight.DocumentID, out *wire.ActionAnswer, dryRun bool) error {
	if doc := ar.documents.Document(id); doc != nil && !dryRun {
		var err error
		if out.Action, err = actionOf(doc); err != nil {
			return err
		}
	}
	return writeJSON(w, r, http.StatusOK, out)
}

// actionOf converts a document.
func actionOf(doc *flight.Document) (*wire.Action, error) {
	p, bad := wire.DecodeActionPolicy(doc.Body)
	if bad != nil {
		return nil, fmt.Errorf("the document %s cannot be read: %v", doc.ID, bad)
	}
	return &wire.Action{Name: doc.ID.Name, ActionPolicy: *p, Version: doc.Version.String(), ChangedAt: wireTime(doc.Changed.At), ChangedBy: doc.Changed.Actor, Reason: doc.Changed.Reason}, nil
}
