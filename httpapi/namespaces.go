package httpapi

import (
	"maps"
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

// limitsOf sets the limits of a namespace.
type limitsOf struct {
	documentName
	wire.NamespaceRequest
}

func (nr *namespaceRoutes) routes() []declaration {
	admin := with(auth.Admin)
	return []declaration{
		Endpoint[struct{}, wire.NamespaceList]{Pattern: "GET /v1/namespaces", Access: admin, Serve: nr.list},
		Endpoint[documentName, wire.Namespace]{Pattern: "GET /v1/namespaces/{name}", Access: admin, Serve: nr.get},
		Endpoint[limitsOf, wire.Namespace]{Pattern: "PUT /v1/namespaces/{name}", Access: admin, Body: wire.MaxSmallBody, Serve: nr.put},
		Endpoint[removal, wire.Revoked]{Pattern: "DELETE /v1/namespaces/{name}", Access: admin, Body: wire.MaxSmallBody, Serve: nr.remove},
	}
}

// list returns "*", and the namespaces that hold flights or have limits of their own.
func (nr *namespaceRoutes) list(q *Request, _ *struct{}) (*wire.NamespaceList, error) {
	if bad := nr.requireDocuments(); bad != nil {
		return nil, bad
	}
	out := &wire.NamespaceList{}
	if c := boundCaller(q.Request); c != nil {
		out.Namespaces = []wire.Namespace{*nr.namespaceOf(c.Namespace)}
		return out, nil
	}
	stored, tombstones := nr.documents.Stored()
	for _, doc := range nr.documents.Documents(flight.KindNamespace) {
		stored[doc.ID.Namespace] += 0
	}
	delete(stored, wire.AllNamespaces)
	for _, name := range append([]string{wire.AllNamespaces}, slices.Sorted(maps.Keys(stored))...) {
		out.Namespaces = append(out.Namespaces, *nr.namespaceOf(name))
	}
	out.Tombstones = tombstones
	return out, nil
}

// get returns the limits of a namespace.
func (nr *namespaceRoutes) get(q *Request, in *documentName) (*wire.Namespace, error) {
	if bad := nr.check(q, in); bad != nil {
		return nil, bad
	}
	return nr.namespaceOf(in.Name), nil
}

// put replaces all limits of a namespace.
func (nr *namespaceRoutes) put(q *Request, in *limitsOf) (*wire.Namespace, error) {
	put := &flight.PutDocument{ID: auth.LimitsID(in.Name), Body: auth.Limits(in.NamespaceLimits).Encode()}
	bad := nr.checkChange(q, &in.documentName)
	if bad == nil {
		put.Actor, put.Reason, bad = attribution(q.Request, in.Actor, in.Reason)
	}
	if bad != nil {
		return nil, bad
	}
	if old := nr.documents.Document(put.ID); old != nil {
		put.Expect = old.Version
	}
	if err := nr.changeDocument(q.Request, put); err != nil {
		return nil, err
	}
	return nr.namespaceOf(in.Name), nil
}

// remove deletes the limits of a namespace. Those of "*" apply then. No flight is deleted.
func (nr *namespaceRoutes) remove(q *Request, in *removal) (*wire.Revoked, error) {
	if bad := nr.checkChange(q, &in.documentName); bad != nil {
		return nil, bad
	}
	return nr.deleteDocument(q, auth.LimitsID(in.Name), &in.ReasonRequest, "the namespace has no limits of its own")
}

// check rejects a namespace that the sender may not see.
func (nr *namespaceRoutes) check(q *Request, in *documentName) (bad *wire.Invalid) {
	place := wire.FieldError{Parameter: "name"}
	if bad = nr.requireDocuments(); bad == nil {
		bad = allowNamespace(q.Request, in.Name, place)
	}
	if bad == nil {
		bad = checkNamespace(in.Name, place)
	}
	return bad
}

// checkChange rejects a change that the sender may not make.
func (nr *namespaceRoutes) checkChange(q *Request, in *documentName) *wire.Invalid {
	if bad := nr.check(q, in); bad != nil {
		return bad
	}
	return onlyAllNamespaces(q.Request)
}

// namespaceOf describes a namespace: the limits in force, and the use.
func (nr *namespaceRoutes) namespaceOf(name string) *wire.Namespace {
	out := &wire.Namespace{Name: name}
	out.NamespaceLimits = wire.NamespaceLimits(nr.directory.Limits(name))
	if name != wire.AllNamespaces {
		out.Open, out.Stored = int64(nr.documents.HeldIn(name)), nr.documents.StoredIn(name)
	}
	return out
}
