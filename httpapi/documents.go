package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// documentStore reads and changes documents. The routes of tokens, namespaces and the cluster share it.
type documentStore struct {
	*responder
	documents  Documents // nil: the server has none
	operator   Operator
	awaitNodes func(ctx context.Context) (notYet []string) // Cluster.AwaitNodes
}

// requireDocuments returns an error if the server has no documents.
func (ds *documentStore) requireDocuments() *wire.Invalid {
	if ds.documents == nil {
		return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no documents"}}
	}
	return nil
}

// documentName is a request about the document of a name.
type documentName struct {
	Name string `json:"-" path:"name"`
}

// removal asks for the deletion of a document.
type removal struct {
	documentName
	wire.ReasonRequest
}

// changeDocument proposes a change. It returns the error to answer with if the ledger rejects the change, or if the document was changed
// after the request was made.
func (ds *documentStore) changeDocument(r *http.Request, c *flight.PutDocument) error {
	if bad := ds.requireDocuments(); bad != nil {
		return bad
	}
	if doc := ds.documents.Document(c.ID); doc == nil || !bytes.Equal(doc.Body, c.Body) {
		if bad := ds.checkNotOutdated(r, c.ID, doc); bad != nil {
			return bad
		}
	}
	reply, err := ds.operator.Propose(r.Context(), c)
	switch {
	case err != nil:
		return err
	case reply.Decision == flight.DecisionAccepted:
		return nil
	case reply.Decision == flight.DecisionExhausted:
		if here, sagas := ds.countDocuments(c.ID.Namespace); sagas > 0 && here >= flight.MaxDocumentsOfNamespace {
			return &effect.QuotaExceeded{Limit: fmt.Sprintf("the namespace stores all of its %d documents, of which %d are definitions of sagas; delete versions that nobody starts any more (flightd sagas versions NAME, flightd sagas delete NAME@N), or tokens, actions and limits",
				here, sagas), RetryAfter: operatorRetryAfter}
		}
		return &effect.QuotaExceeded{Limit: "the ledger stores the maximum number of documents; revoke tokens and delete limits that nobody uses", RetryAfter: operatorRetryAfter}
	case reply.Decision == flight.DecisionFailedPrecondition:
		return documentChanged()
	}
	return errors.New("httpapi: unexpected decision " + reply.Decision.String())
}

// checkNotOutdated returns PreconditionFailed if the document was changed or deleted after the ledger position in the request's
// Flightd-Index. doc is nil if the document does not exist. Without the check, a copy of the request that the network delivers late would
// undo a newer change. A request without a position is not checked. A deletion is not found if more lines of the audit log follow it than
// one read returns.
func (ds *documentStore) checkNotOutdated(r *http.Request, id flight.DocumentID, doc *flight.Document) *wire.Invalid {
	seen, err := wire.ParseIndex(r.Header.Get(wire.HeaderIndex))
	if h := ds.ledger.Header(); err != nil || seen.Epoch != h.StoreEpoch {
		return nil
	}
	var last flight.Version
	if doc != nil {
		last = doc.Version
	} else if lines, _, err := ds.documents.Audit(flight.Version{}, 1, func(e *flight.AuditEntry) bool { return e.IsAbout(id) }); err == nil && len(lines) > 0 {
		last = lines[0].Version
	}
	if last.Index > seen.Entry {
		return documentChanged()
	}
	return nil
}

// countDocuments returns the number of documents of a namespace, and of definitions of sagas among them.
func (ds *documentStore) countDocuments(namespace string) (all, sagas int) {
	for _, doc := range ds.documents.Documents("") {
		if doc.ID.Namespace == namespace {
			all++
			if doc.ID.Kind == flight.KindSaga {
				sagas++
			}
		}
	}
	return all, sagas
}

// deleteDocument deletes a document, whatever its version is: if another person changes the document meanwhile,
// deleteDocument deletes the changed document, unless the request has a position in Flightd-Index. It returns errInUse if a saga that is
// not over uses the document.
func (ds *documentStore) deleteDocument(q *Request, id flight.DocumentID, in *wire.ReasonRequest, missing string) (*wire.Revoked, error) {
	who, why, bad := attribution(q.Request, in.Actor, in.Reason)
	if bad == nil {
		bad = ds.requireDocuments()
	}
	if bad != nil {
		return nil, bad
	}
	doc := ds.documents.Document(id)
	if doc == nil {
		return nil, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: missing}, Hint: "list the names that exist, and check the namespace"}
	}
	for range 3 {
		if bad := ds.checkNotOutdated(q.Request, id, doc); bad != nil {
			return nil, bad
		}
		seen := doc.Version
		reply, err := ds.operator.Propose(q.Context(), &flight.DeleteDocument{ID: id, Actor: who, Reason: why, Expect: seen})
		switch {
		case err != nil:
			return nil, err
		case reply.Decision == flight.DecisionAccepted || reply.Document == nil:
			out := &wire.Revoked{}
			if id.Kind == flight.KindToken && ds.awaitNodes != nil {
				out.NotYet = ds.awaitNodes(q.Context())
			}
			return out, nil
		case reply.Document.Version == seen:
			return nil, errInUse
		}
		doc = reply.Document
	}
	return nil, documentChanged()
}

var errInUse = errors.New("httpapi: a saga that is not over uses the document")

func documentChanged() *wire.Invalid {
	return &wire.Invalid{Code: wire.PreconditionFailed, Hint: "look at the present state, and send the request again if it is still right",
		FieldError: wire.FieldError{Detail: "another person changed it after you had read it, or at the same time"}}
}

// onlyAllNamespaces rejects a token of one namespace: it must not raise its own limits, nor touch what concerns other namespaces.
func onlyAllNamespaces(r *http.Request) *wire.Invalid {
	if boundCaller(r) == nil {
		return nil
	}
	return &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
		Detail: "a token of one namespace cannot change its limits, or what concerns all namespaces"}}
}
