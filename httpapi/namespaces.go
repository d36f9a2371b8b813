package httpapi

import (
	"maps"
	"net/http"
	"slices"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// namespaceRoutes serve the limits of namespaces.
type namespaceRoutes struct {
	*documentStore
	directory *auth.Directory // Callers.Auth; without credentials, limits are shown and not applied
}

func newNamespaceRoutes(cfg *Config, ds *documentStore) *namespaceRoutes {
	nr := &namespaceRoutes{ds, cfg.Callers.Auth}
	if nr.directory == nil && cfg.Documents != nil {
		nr.directory = auth.NewDirectory(cfg.Documents, ds.log)
	}
	return nr
}

func (nr *namespaceRoutes) routes() []declaration {
	access := with(auth.Admin)
	return []declaration{
		route{pattern: "GET /v1/namespaces", serve: nr.listNamespaces, access: access},
		route{pattern: "GET /v1/namespaces/{name}", serve: nr.namespaceLimits, access: access},
		route{pattern: "PUT /v1/namespaces/{name}", serve: nr.setNamespaceLimits, access: access},
		route{pattern: "DELETE /v1/namespaces/{name}", serve: nr.deleteNamespaceLimits, access: access},
	}
}

// listNamespaces serves GET /v1/namespaces: "*", and the namespaces that hold flights or have limits of their own.
func (nr *namespaceRoutes) listNamespaces(w http.ResponseWriter, r *http.Request) error {
	if bad := nr.requireDocuments(); bad != nil {
		return bad
	}
	out := wire.NamespaceList{Namespaces: []wire.Namespace{}}
	if c := boundCaller(r); c != nil {
		out.Namespaces = append(out.Namespaces, nr.namespaceOf(c.Namespace))
	} else {
		stored, tombstones := nr.documents.Stored()
		for _, doc := range nr.documents.Documents(flight.KindNamespace) {
			stored[doc.ID.Namespace] += 0
		}
		delete(stored, wire.AllNamespaces)
		for _, name := range append([]string{wire.AllNamespaces}, slices.Sorted(maps.Keys(stored))...) {
			out.Namespaces = append(out.Namespaces, nr.namespaceOf(name))
		}
		out.Tombstones = tombstones
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

// namespaceLimits serves GET /v1/namespaces/{name}.
func (nr *namespaceRoutes) namespaceLimits(w http.ResponseWriter, r *http.Request) error {
	name, bad := nr.namedNamespace(r)
	if bad != nil {
		return bad
	}
	shown := nr.namespaceOf(name)
	return writeJSON(w, r, http.StatusOK, &shown)
}

// setNamespaceLimits serves PUT /v1/namespaces/{name}. The request replaces all limits of the namespace.
func (nr *namespaceRoutes) setNamespaceLimits(w http.ResponseWriter, r *http.Request) error {
	name, bad := nr.namedNamespace(r)
	if bad == nil {
		bad = onlyAllNamespaces(r)
	}
	var req wire.NamespaceRequest
	if bad == nil {
		req, bad = receive(nr.readAdminBody, w, r, wire.MaxSmallBody, wire.Decode[wire.NamespaceRequest])
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		return bad
	}
	put := &flight.PutDocument{ID: auth.LimitsID(name), Body: auth.Limits(req.NamespaceLimits).Encode(), Actor: d.actor, Reason: d.reason}
	if old := nr.documents.Document(put.ID); old != nil {
		put.Expect = old.Version
	}
	if err := nr.changeDocument(r, put); err != nil {
		return err
	}
	shown := nr.namespaceOf(name)
	return writeJSON(w, r, http.StatusOK, &shown)
}

// deleteNamespaceLimits serves DELETE /v1/namespaces/{name}. The limits of "*" apply then. No flight is deleted.
func (nr *namespaceRoutes) deleteNamespaceLimits(w http.ResponseWriter, r *http.Request) error {
	name, bad := nr.namedNamespace(r)
	if bad == nil {
		bad = onlyAllNamespaces(r)
	}
	if bad != nil {
		return bad
	}
	return nr.deleteDocument(w, r, auth.LimitsID(name), "the namespace has no limits of its own")
}

// namedNamespace returns the namespace in the path.
func (nr *namespaceRoutes) namedNamespace(r *http.Request) (name string, bad *wire.Invalid) {
	name = r.PathValue("name")
	place := wire.FieldError{Parameter: "name"}
	if bad = nr.requireDocuments(); bad == nil {
		bad = allowNamespace(r, name, place)
	}
	if bad == nil {
		bad = checkNamespace(name, place)
	}
	return name, bad
}

// namespaceOf describes a namespace: the limits in force, and the use.
func (nr *namespaceRoutes) namespaceOf(name string) wire.Namespace {
	out := wire.Namespace{Name: name}
	out.NamespaceLimits = wire.NamespaceLimits(nr.directory.Limits(name))
	if name != wire.AllNamespaces {
		out.Open, out.Stored = int64(nr.documents.HeldIn(name)), nr.documents.StoredIn(name)
	}
	return out
}
