package httpapi

import (
	"bytes"
	"cmp"
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

// named returns the namespace, and the name and version in the path.
func (sr *sagaRoutes) named(r *http.Request) (ns, id string, bad *wire.Invalid) {
	if ns, bad = namespace(r); bad != nil {
		return ns, "", bad
	}
	name, number := r.PathValue("name"), r.PathValue("version")
	version, err := strconv.Atoi(number)
	if number != "" && (err != nil || version < 1 || strconv.Itoa(version) != number) {
		return ns, "", wire.BadField("", "the version %.40q is not a number from 1", number)
	}
	if _, err := flight.NewKey(ns, name, "x"); err != nil {
		return ns, "", wire.BadField("", "%v", err)
	}
	return ns, name + "@" + number, nil
}

// define serves PUT /v1/sagas/{name}/versions/{version}. A definition never changes: the same one again is accepted, another one is a
// conflict. A token that has only the verb work may send a stored definition again, as each worker does at its start, but cannot
// create one.
func (sr *sagaRoutes) define(w http.ResponseWriter, r *http.Request) error {
	body, bad := sr.receiveBody(w, r, flight.MaxDocument)
	if bad != nil {
		return bad
	}
	ns, id, bad := sr.named(r)
	if bad != nil {
		return bad
	}
	by, bad := actor(r)
	if bad != nil {
		return bad
	}
	def, err := saga.Parse(body)
	if err != nil {
		return err
	}
	if found := saga.Lint(def); len(found) > 0 {
		bad := wire.BadField(found[0].Pointer, "%s", found[0].Detail)
		bad.Hint = fmt.Sprintf("%s; flightd sagas lint FILE shows all %d findings", cmp.Or(found[0].Hint, "correct it"), len(found))
		return bad
	}
	if def.ID() != id {
		return wire.BadField("/saga", "the definition is of %s, and the path names %s", def.ID(), id)
	}
	put := &flight.PutDocument{ID: flight.DefinitionID(ns, id), Body: def.JSON(), Actor: cmp.Or(recordedActor(r, by), wire.UnknownActor), Reason: "defined"}
	status := http.StatusOK
	if old := sr.store.documents.Document(put.ID); old == nil {
		if c := callerOf(r); c != nil && !c.Verbs.HasAny(auth.Operate|auth.Define) {
			return &wire.Invalid{Code: wire.Forbidden, Hint: "define it first, with flightd sagas apply FILE and a token that has the verb define",
				FieldError: wire.FieldError{Header: wire.HeaderAuthorization, Detail: fmt.Sprintf("%s is not defined, and the token lacks the verb define", id)}}
		}
		status = http.StatusCreated
		if err := sr.store.changeDocument(r, put); err != nil {
			old = sr.store.documents.Document(put.ID) // perhaps somebody else was first
			if old == nil || !bytes.Equal(old.Body, put.Body) {
				return err
			}
		}
	} else if !bytes.Equal(old.Body, put.Body) {
		return &wire.Invalid{Code: wire.Conflict, Hint: "give the changed definition a new version; running sagas go on with theirs",
			FieldError: wire.FieldError{Detail: fmt.Sprintf("%s exists with another content, and a definition never changes", id)}}
	}
	writeResponse(w, r, status, typeJSON, func(b []byte) []byte { return append(b, put.Body...) })
	return nil
}

// definition serves GET /v1/sagas/{name}/versions/{version}.
func (sr *sagaRoutes) definition(w http.ResponseWriter, r *http.Request) error {
	ns, id, bad := sr.named(r)
	if bad != nil {
		return bad
	}
	doc := sr.store.documents.Document(flight.DefinitionID(ns, id))
	if doc == nil {
		return noDefinition(ns, id)
	}
	writeResponse(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, doc.Body...) })
	return nil
}

func noDefinition(ns, id string) *wire.Invalid {
	return &wire.Invalid{Code: wire.NotFound, Hint: "list the versions that exist with flightd sagas versions NAME, store one with flightd sagas apply FILE, and check the namespace; a worker that serves the saga defines it when it starts",
		FieldError: wire.FieldError{Detail: fmt.Sprintf("namespace %s has no saga %s", ns, id)}}
}

// versions serves GET /v1/sagas/{name}/versions. It reads the definitions, and no flight: the ledger counts the sagas of each.
func (sr *sagaRoutes) versions(w http.ResponseWriter, r *http.Request) error {
	ns, _, bad := sr.named(r)
	if bad != nil {
		return bad
	}
	out := wire.SagaVersions{Versions: []wire.SagaVersion{}}
	for doc, def := range sr.definitions(ns, r.PathValue("name")) {
		out.Versions = append(out.Versions, wire.SagaVersion{Definition: def.ID(), CreatedAt: wire.Time{Time: doc.CreatedAt.AsTime()}, By: doc.Changed.Actor, Steps: len(def.Steps),
			Running: sr.store.documents.SagasOf(doc.ID)})
	}
	slices.SortFunc(out.Versions, func(x, y wire.SagaVersion) int { // trip@10 comes after trip@9
		return cmp.Or(cmp.Compare(len(x.Definition), len(y.Definition)), cmp.Compare(x.Definition, y.Definition))
	})
	return writeJSON(w, r, http.StatusOK, &out)
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

// deleteDefinition serves DELETE /v1/sagas/{name}/versions/{version}. The ledger keeps the definition of a saga that is not over. Sagas that
// are over keep their receipts, which have the end of each step.
func (sr *sagaRoutes) deleteDefinition(w http.ResponseWriter, r *http.Request) error {
	ns, id, bad := sr.named(r)
	if bad != nil {
		return bad
	}
	doc := flight.DefinitionID(ns, id)
	err := sr.store.deleteDocument(w, r, doc, fmt.Sprintf("namespace %s has no saga %s", ns, id))
	if errors.Is(err, errInUse) {
		return &wire.Invalid{Code: wire.PreconditionFailed, Hint: "list them with flightd sagas ls " + r.PathValue("name") + ", and wait until they are over, or cancel them",
			FieldError: wire.FieldError{Detail: fmt.Sprintf("%s has sagas that are not over: %d", id, max(sr.store.documents.SagasOf(doc), 1))}}
	}
	return err
}
