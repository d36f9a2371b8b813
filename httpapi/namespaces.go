package httpapi

import (
	"maps"
	"net/http"
	"slices"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// listNamespaces serves GET /v1/namespaces: "*", and the namespaces that hold flights or have limits of their own.
func (a *api) listNamespaces(w http.ResponseWriter, r *http.Request) {
	if bad := a.hasDocuments(); bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	out := wire.NamespaceList{Namespaces: []wire.Namespace{}}
	if c := boundCaller(r); c != nil {
		out.Namespaces = append(out.Namespaces, a.namespaceOf(c.Namespace))
	} else {
		stored, tombstones := a.cfg.Documents.Stored()
		for _, doc := range a.cfg.Documents.Documents(flight.KindNamespace) {
			stored[doc.ID.Namespace] += 0
		}
		delete(stored, wire.AllNamespaces)
		for _, name := range append([]string{wire.AllNamespaces}, slices.Sorted(maps.Keys(stored))...) {
			out.Namespaces = append(out.Namespaces, a.namespaceOf(name))
		}
		out.Tombstones = tombstones
	}
	a.writeJSON(w, r, http.StatusOK, &out)
}

// namespaceLimits serves GET /v1/namespaces/{name}.
func (a *api) namespaceLimits(w http.ResponseWriter, r *http.Request) {
	name, bad := a.namedNamespace(r)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	shown := a.namespaceOf(name)
	a.writeJSON(w, r, http.StatusOK, &shown)
}

// setNamespaceLimits serves PUT /v1/namespaces/{name}. The request replaces all limits of the namespace.
func (a *api) setNamespaceLimits(w http.ResponseWriter, r *http.Request) {
	name, bad := a.namedNamespace(r)
	if bad == nil {
		bad = onlyAllNamespaces(r)
	}
	var body []byte
	if bad == nil {
		body, bad = a.readAdminBody(w, r)
	}
	var req wire.NamespaceRequest
	if bad == nil {
		req, bad = wire.DecodeNamespace(body)
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	put := &flight.PutDocument{ID: auth.LimitsID(name), Body: auth.Limits(req.NamespaceLimits).Encode(), Actor: d.actor, Reason: d.reason}
	if old := a.cfg.Documents.Document(put.ID); old != nil {
		put.Expect = old.Version
	}
	if a.changeDocument(w, r, put) {
		shown := a.namespaceOf(name)
		a.writeJSON(w, r, http.StatusOK, &shown)
	}
}

// deleteNamespaceLimits serves DELETE /v1/namespaces/{name}. The limits of "*" apply then. No flight is deleted.
func (a *api) deleteNamespaceLimits(w http.ResponseWriter, r *http.Request) {
	name, bad := a.namedNamespace(r)
	if bad == nil {
		bad = onlyAllNamespaces(r)
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	a.deleteDocument(w, r, auth.LimitsID(name), "the namespace has no limits of its own")
}

// namedNamespace returns the namespace in the path.
func (a *api) namedNamespace(r *http.Request) (name string, bad *wire.Invalid) {
	name = r.PathValue("name")
	place := wire.FieldError{Parameter: "name"}
	if bad = a.hasDocuments(); bad == nil {
		bad = allowNamespace(r, name, place)
	}
	if bad == nil {
		bad = checkNamespace(name, place)
	}
	return name, bad
}

// onlyAllNamespaces rejects a token of one namespace, which must not raise its own limits.
func onlyAllNamespaces(r *http.Request) *wire.Invalid {
	if boundCaller(r) == nil {
		return nil
	}
	return &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
		Detail: "a token of one namespace cannot change its limits"}}
}

// namespaceOf describes a namespace: the limits in force, and the use.
func (a *api) namespaceOf(name string) wire.Namespace {
	out := wire.Namespace{Name: name}
	out.NamespaceLimits = wire.NamespaceLimits(a.directory.Limits(name))
	if name != wire.AllNamespaces {
		out.Open, out.Stored = int64(a.cfg.Documents.HeldIn(name)), a.cfg.Documents.StoredIn(name)
	}
	return out
}
