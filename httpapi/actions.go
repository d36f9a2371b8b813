package httpapi

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// actionRoutes serve the documents of actions: the policy of their jobs.
type actionRoutes struct{ *documentStore }

// actionChange asks for another policy of an action.
type actionChange struct {
	documentName
	Seen *flight.Version `json:"-" header:"If-Match"`
	wire.ActionRequest
}

// actionDeclaration names the policy that a worker brings.
type actionDeclaration struct {
	documentName
	wire.ActionRequest
}

func (ar *actionRoutes) routes() []declaration {
	read := with(auth.Work | auth.Read | auth.Operate | auth.Define)
	return []declaration{
		Endpoint[struct{}, wire.ActionList]{Pattern: "GET /v1/actions", Access: read, Serve: ar.list},
		Endpoint[documentName, wire.Action]{Pattern: "GET /v1/actions/{name}", Access: read, Serve: ar.get},
		Endpoint[actionChange, wire.ActionAnswer]{Pattern: "PUT /v1/actions/{name}", Place: Leader,
			Access: with(auth.Operate | auth.Define), Body: wire.MaxSmallBody, Serve: ar.put},
		Endpoint[removal, wire.Revoked]{Pattern: "DELETE /v1/actions/{name}", Place: Leader,
			Access: with(auth.Operate), Body: wire.MaxSmallBody, Serve: ar.remove},
		Endpoint[actionDeclaration, wire.ActionAnswer]{Pattern: "POST /v1/actions/{name}/declare", Place: Leader, Access: with(auth.Submit | auth.Work | auth.Operate | auth.Define),
			Body: wire.MaxSmallBody, Serve: ar.declare},
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

// list returns the actions of the namespace that have a document, by name.
func (ar *actionRoutes) list(q *Request, _ *struct{}) (*wire.ActionList, error) {
	ns, bad := ar.namespace(q)
	if bad != nil {
		return nil, bad
	}
	out := &wire.ActionList{Actions: []wire.Action{}}
	for _, doc := range ar.documents.Documents(flight.KindAction) {
		if doc.ID.Namespace != ns {
			continue
		}
		shown, err := actionOf(doc)
		if err != nil {
			return nil, err
		}
		out.Actions = append(out.Actions, *shown)
	}
	return out, nil
}

// get returns the document of an action.
func (ar *actionRoutes) get(q *Request, in *documentName) (*wire.Action, error) {
	id, bad := ar.id(q, in)
	if bad != nil {
		return nil, bad
	}
	doc := ar.documents.Document(id)
	if doc == nil {
		return nil, &wire.Invalid{Code: wire.NotFound, Hint: "create it with flightd actions apply, or check the name and the namespace",
			FieldError: wire.FieldError{Detail: "the action has no document; its jobs have the policies of their submissions, else hold"}}
	}
	q.header["Etag"] = []string{etag(doc.Version)}
	return actionOf(doc)
}

// remove deletes the document of an action. Jobs that were submitted keep their policies.
func (ar *actionRoutes) remove(q *Request, in *removal) (*wire.Revoked, error) {
	id, bad := ar.id(q, &in.documentName)
	if bad != nil {
		return nil, bad
	}
	return ar.deleteDocument(q, id, &in.ReasonRequest, "the action has no document")
}

// put sets the policy of an action, whatever was there; with If-Match, only if the document still has that version.
//
// Crash safety: the document is as before, or as the request wants it; the same request again is answered unchanged.
func (ar *actionRoutes) put(q *Request, in *actionChange) (*wire.ActionAnswer, error) {
	change, bad := ar.change(q, &in.documentName, &in.ActionRequest, "")
	if bad != nil {
		return nil, bad
	}
	old := ar.documents.Document(change.ID)
	if in.Seen != nil && *in.Seen != cmp.Or(old, &flight.Document{}).Version {
		return nil, documentChanged()
	}
	in.Complete()
	change.Body = in.ActionPolicy.Encode()
	out := &wire.ActionAnswer{Status: wire.ActionCreated}
	if old != nil {
		change.Expect = old.Version
		switch stored, err := ar.policyOf(change.ID.Namespace, change.ID.Name); {
		case err != nil: // a later version of flightd has stored a field that this version would drop
			out.Differences = []wire.PolicyDifference{{Field: "document", Document: err.Error()}}
		case stored != nil:
			out.Differences = in.Differences(stored, false)
		}
		if out.Status = wire.ActionChanged; string(change.Body) == string(old.Body) {
			out.Status = wire.ActionUnchanged
		}
	}
	if out.Status != wire.ActionUnchanged && !in.DryRun {
		if err := ar.changeDocument(q.Request, change); err != nil {
			return nil, err
		}
	}
	return ar.withDocument(out, change.ID, in.DryRun)
}

// declare compares the policy that a worker brings with the document, which counts. If there is none, it is created, provided that the
// token has the verb.
//
// Crash safety: as put.
func (ar *actionRoutes) declare(q *Request, in *actionDeclaration) (*wire.ActionAnswer, error) {
	change, bad := ar.change(q, &in.documentName, &in.ActionRequest, "a worker declared it")
	if bad != nil {
		return nil, bad
	}
	c := callerOf(q.Request)
	mayCreate := c == nil || c.Verbs.HasAny(auth.Operate|auth.Define)
	out := &wire.ActionAnswer{Status: wire.ActionUndeclared}
	for first := true; ; first = false {
		stored, err := ar.policyOf(change.ID.Namespace, change.ID.Name)
		switch {
		case err != nil:
			return nil, err
		case stored != nil:
			if out.Status, out.Differences = wire.ActionUnchanged, in.Differences(stored, true); len(out.Differences) > 0 {
				out.Status = wire.ActionDifferent
			}
		case mayCreate:
			made := in.ActionPolicy
			made.Complete()
			if out.Status = wire.ActionCreated; in.DryRun {
				break
			}
			change.Body = made.Encode()
			err := ar.changeDocument(q.Request, change)
			if changed, ok := errors.AsType[*wire.Invalid](err); ok && first && changed.Code == wire.PreconditionFailed { // another worker was first
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		return ar.withDocument(out, change.ID, in.DryRun)
	}
}

// namespace returns the namespace of a request about actions.
func (ar *actionRoutes) namespace(q *Request) (ns string, bad *wire.Invalid) {
	if bad = ar.requireDocuments(); bad == nil {
		ns, bad = namespace(q.Request)
	}
	if bad == nil {
		bad = wire.CheckName(ns, wire.FieldError{Header: wire.HeaderNamespace})
	}
	return ns, bad
}

// id returns the document of an action, in the namespace of the request.
func (ar *actionRoutes) id(q *Request, in *documentName) (id flight.DocumentID, bad *wire.Invalid) {
	id = flight.DocumentID{Kind: flight.KindAction, Name: in.Name}
	if id.Namespace, bad = ar.namespace(q); bad == nil {
		bad = wire.CheckName(id.Name, wire.FieldError{Parameter: "name"})
	}
	return id, bad
}

// change returns the change that a request asks for, without its body. reason is the default.
func (ar *actionRoutes) change(q *Request, name *documentName, in *wire.ActionRequest, reason string) (c *flight.PutDocument,
	bad *wire.Invalid) {
	c = &flight.PutDocument{}
	if c.ID, bad = ar.id(q, name); bad == nil {
		c.Actor, c.Reason, bad = attribution(q.Request, in.Actor, cmp.Or(in.Reason, reason))
	}
	return c, bad
}

// withDocument adds the document to the answer to a change, as it is now.
func (ar *actionRoutes) withDocument(out *wire.ActionAnswer, id flight.DocumentID, dryRun bool) (*wire.ActionAnswer, error) {
	var err error
	if doc := ar.documents.Document(id); doc != nil && !dryRun {
		out.Action, err = actionOf(doc)
	}
	return out, err
}

// actionOf converts a document.
func actionOf(doc *flight.Document) (*wire.Action, error) {
	p, bad := wire.DecodeActionPolicy(doc.Body)
	if bad != nil {
		return nil, fmt.Errorf("the document %s cannot be read: %v", doc.ID, bad)
	}
	return &wire.Action{Name: doc.ID.Name, ActionPolicy: *p, Version: doc.Version.String(), ChangedAt: wireTime(doc.Changed.At), ChangedBy: doc.Changed.Actor, Reason: doc.Changed.Reason}, nil
}
