package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/saga"
)

// sagaVersion names a definition, or with an empty version all of a saga.
type sagaVersion struct {
	Name    string `json:"-" path:"name"`
	Version string `json:"-" path:"version"`
}

// newDefinition is a definition to store.
type newDefinition struct {
	sagaVersion
	definition *saga.Definition
}

// readBody implements ownBody.
func (d *newDefinition) readBody(body []byte) (err error) {
	d.definition, err = saga.Parse(body)
	return err
}

// oldDefinition is a definition to delete.
type oldDefinition struct {
	sagaVersion
	wire.ReasonRequest
}

// named returns the namespace and the ID of the definition that a request names.
func (sr *sagaRoutes) named(q *Request, in *sagaVersion) (ns, id string, bad *wire.Invalid) {
	if ns, bad = namespace(q.Request); bad != nil {
		return ns, "", bad
	}
	version, err := strconv.Atoi(in.Version)
	if in.Version != "" && (err != nil || version < 1 || strconv.Itoa(version) != in.Version) {
		return ns, "", wire.BadField("", "the version %.40q is not a number from 1", in.Version)
	}
	if _, err := flight.NewKey(ns, in.Name, "x"); err != nil {
		return ns, "", wire.BadField("", "%v", err)
	}
	return ns, in.Name + "@" + in.Version, nil
}

// define stores a definition. A definition never changes: the same one again is accepted, another one is a
// conflict. A token that has only the verb work may send a stored definition again, as each worker does at its start, but cannot
// create one.
func (sr *sagaRoutes) define(q *Request, in *newDefinition) (*json.RawMessage, error) {
	ns, id, bad := sr.named(q, &in.sagaVersion)
	if bad != nil {
		return nil, bad
	}
	by, bad := actor(q.Request)
	if bad != nil {
		return nil, bad
	}
	def := in.definition
	if found := saga.Lint(def); len(found) > 0 {
		bad := wire.BadField(found[0].Pointer, "%s", found[0].Detail)
		bad.Hint = fmt.Sprintf("%s; flightd sagas lint FILE shows all %d findings", cmp.Or(found[0].Hint, "correct it"), len(found))
		return nil, bad
	}
	if def.ID() != id {
		return nil, wire.BadField("/saga", "the definition is of %s, and the path names %s", def.ID(), id)
	}
	put := &flight.PutDocument{ID: flight.DefinitionID(ns, id), Body: def.JSON(), Actor: cmp.Or(recordedActor(q.Request, by), wire.UnknownActor), Reason: "defined"}
	if old := sr.store.documents.Document(put.ID); old == nil {
		if c := callerOf(q.Request); c != nil && !c.Verbs.HasAny(auth.Operate|auth.Define) {
			return nil, &wire.Invalid{Code: wire.Forbidden, Hint: "define it first, with flightd sagas apply FILE and a token that has the verb define",
				FieldError: wire.FieldError{Header: wire.HeaderAuthorization, Detail: fmt.Sprintf("%s is not defined, and the token lacks the verb define", id)}}
		}
		q.answerWith(http.StatusCreated)
		if err := sr.store.changeDocument(q.Request, put); err != nil {
			old = sr.store.documents.Document(put.ID) // perhaps somebody else was first
			if old == nil || !bytes.Equal(old.Body, put.Body) {
				return nil, err
			}
		}
	} else if !bytes.Equal(old.Body, put.Body) {
		return nil, &wire.Invalid{Code: wire.Conflict, Hint: "give the changed definition a new version; running sagas go on with theirs",
			FieldError: wire.FieldError{Detail: fmt.Sprintf("%s exists with another content, and a definition never changes", id)}}
	}
	return (*json.RawMessage)(&put.Body), nil
}

// definition returns a definition.
func (sr *sagaRoutes) definition(q *Request, in *sagaVersion) (*json.RawMessage, error) {
	ns, id, bad := sr.named(q, in)
	if bad != nil {
		return nil, bad
	}
	doc := sr.store.documents.Document(flight.DefinitionID(ns, id))
	if doc == nil {
		return nil, noDefinition(ns, id)
	}
	return (*json.RawMessage)(&doc.Body), nil
}

func noDefinition(ns, id string) *wire.Invalid {
	return &wire.Invalid{Code: wire.NotFound, Hint: "list the versions that exist with flightd sagas versions NAME, store one with flightd sagas apply FILE, and check the namespace; a worker that serves the saga defines it when it starts",
		FieldError: wire.FieldError{Detail: fmt.Sprintf("namespace %s has no saga %s", ns, id)}}
}

// versions lists the definitions of a saga. It reads no flight: the ledger counts the sagas of each.
func (sr *sagaRoutes) versions(q *Request, in *sagaVersion) (*wire.SagaVersions, error) {
	ns, _, bad := sr.named(q, in)
	if bad != nil {
		return nil, bad
	}
	out := &wire.SagaVersions{Versions: []wire.SagaVersion{}}
	for doc, def := range sr.definitions(ns, in.Name) {
		out.Versions = append(out.Versions, wire.SagaVersion{Definition: def.ID(), CreatedAt: wire.Time{Time: doc.CreatedAt.AsTime()}, By: doc.Changed.Actor, Steps: len(def.Steps),
			Running: sr.store.documents.SagasOf(doc.ID)})
	}
	slices.SortFunc(out.Versions, func(x, y wire.SagaVersion) int { // trip@10 comes after trip@9
		return cmp.Or(cmp.Compare(len(x.Definition), len(y.Definition)), cmp.Compare(x.Definition, y.Definition))
	})
	return out, nil
}

// newest returns the id of the greatest version of a saga; "": there is none.
func (sr *sagaRoutes) newest(ns, name string) (id string) {
	greatest := uint32(0)
	for _, def := range sr.definitions(ns, name) {
		if def.Version > greatest {
			greatest, id = def.Version, def.ID()
		}
	}
	return id
}

// definitions iterates over the versions of a saga.
func (sr *sagaRoutes) definitions(ns, name string) iter.Seq2[*flight.Document, *saga.Definition] {
	return func(yield func(*flight.Document, *saga.Definition) bool) {
		for _, doc := range sr.store.documents.Documents(flight.KindSaga) {
			if doc.ID.Namespace != ns || !strings.HasPrefix(doc.ID.Name, name+".") {
				continue
			}
			if def, err := saga.Parse(doc.Body); err == nil && def.Saga == name && !yield(doc, def) {
				return
			}
		}
	}
}

// remove deletes a definition. The ledger keeps the definition of a saga that is not over. Sagas that
// are over keep their receipts, which have the end of each step.
func (sr *sagaRoutes) remove(q *Request, in *oldDefinition) (*wire.Revoked, error) {
	ns, id, bad := sr.named(q, &in.sagaVersion)
	if bad != nil {
		return nil, bad
	}
	doc := flight.DefinitionID(ns, id)
	out, err := sr.store.deleteDocument(q, doc, &in.ReasonRequest, fmt.Sprintf("namespace %s has no saga %s", ns, id))
	if errors.Is(err, errInUse) {
		err = &wire.Invalid{Code: wire.PreconditionFailed, Hint: "list them with flightd sagas ls " + in.Name + ", and wait until they are over, or cancel them",
			FieldError: wire.FieldError{Detail: fmt.Sprintf("%s has sagas that are not over: %d", id, max(sr.store.documents.SagasOf(doc), 1))}}
	}
	return out, err
}
