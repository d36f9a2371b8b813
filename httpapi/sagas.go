package httpapi

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/saga"
)

// Sagas show the sagas of the ledger.
type Sagas interface {
	// View returns the definition of a saga, and the flights of its steps.
	View(f *flight.Flight) (*saga.Definition, *saga.View, error)
	// StepInput returns the input of the job of a step or an undo.
	StepInput(f *flight.Flight) ([]byte, error)
}

// sagaRoutes serve definitions of sagas, and start and show sagas. A saga is a flight: the routes of flights cancel it and wait for it.
type sagaRoutes struct {
	*flightWriter
	store *documentStore
	sagas Sagas // nil: the routes answer not_found
}

func (sr *sagaRoutes) routes() map[string]route {
	all := map[string]route{
		"PUT /v1/sagas/{name}/versions/{version}": {serve: sr.define, access: with(mayDefine)},
		"GET /v1/sagas/{name}/versions/{version}": {serve: sr.definition, access: with(auth.Read)},
		"GET /v1/sagas/{name}/versions":           {serve: sr.versions, access: with(auth.Read)},
		"POST /v1/sagas:start":                    {serve: sr.start, access: with(auth.Submit)},
		"GET /v1/sagas":                           {serve: sr.list, access: with(auth.Read), query: true},
		"GET /v1/flights/{id}/saga":               {serve: sr.show, access: with(auth.Read)},
	}
	if sr.sagas == nil {
		for pattern, r := range all {
			r.serve = func(http.ResponseWriter, *http.Request) error {
				return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no sagas"}}
			}
			all[pattern] = r
		}
	}
	return all
}

// mayDefine is the verb of those who define sagas.
const mayDefine = auth.Operate

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
// conflict.
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
	put := &flight.PutDocument{ID: definitionID(ns, id), Body: def.JSON(), Actor: cmp.Or(recordedActor(r, by), unknownActor), Reason: "defined"}
	status := http.StatusOK
	if old := sr.store.documents.Document(put.ID); old == nil {
		status = http.StatusCreated
		if err := sr.store.changeDocument(r.Context(), put); err != nil {
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
	doc := sr.store.documents.Document(definitionID(ns, id))
	if doc == nil || doc.Body == nil {
		return noDefinition(ns, id)
	}
	writeResponse(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, doc.Body...) })
	return nil
}

// definitionID is the document of a definition.
func definitionID(ns, id string) flight.DocumentID {
	return flight.DocumentID{Namespace: ns, Kind: flight.KindSaga, Name: saga.DocumentNameOf(id)}
}

func noDefinition(ns, id string) *wire.Invalid {
	return &wire.Invalid{Code: wire.NotFound, Hint: "list the versions that exist with flightd sagas versions, and check the namespace; a worker that serves the saga defines it when it starts",
		FieldError: wire.FieldError{Detail: fmt.Sprintf("namespace %s has no saga %s", ns, id)}}
}

// versions serves GET /v1/sagas/{name}/versions.
func (sr *sagaRoutes) versions(w http.ResponseWriter, r *http.Request) error {
	ns, _, bad := sr.named(r)
	if bad != nil {
		return bad
	}
	out := wire.SagaVersions{Versions: []wire.SagaVersion{}}
	for _, doc := range sr.store.documents.Documents(flight.KindSaga) {
		if def, err := saga.Parse(doc.Body); err == nil && doc.ID.Namespace == ns && def.Saga == r.PathValue("name") {
			out.Versions = append(out.Versions, wire.SagaVersion{Definition: def.ID(), CreatedAt: wire.Time{Time: doc.CreatedAt.AsTime()}, By: doc.Changed.Actor, Steps: len(def.Steps)})
		}
	}
	slices.SortFunc(out.Versions, func(x, y wire.SagaVersion) int { // trip@10 comes after trip@9
		return cmp.Or(cmp.Compare(len(x.Definition), len(y.Definition)), cmp.Compare(x.Definition, y.Definition))
	})
	return writeJSON(w, r, http.StatusOK, &out)
}

// newest returns the id of the greatest version of a saga; "": there is none.
func (sr *sagaRoutes) newest(ns, name string) (id string) {
	greatest := uint32(0)
	for _, doc := range sr.store.documents.Documents(flight.KindSaga) {
		if def, err := saga.Parse(doc.Body); err == nil && doc.ID.Namespace == ns && def.Saga == name && def.Version > greatest {
			greatest, id = def.Version, def.ID()
		}
	}
	return id
}

// start serves POST /v1/sagas:start. If the process dies before the command is committed, nothing has started; after that the leader, this
// one or the next, drives the saga. The same request again finds it.
func (sr *sagaRoutes) start(w http.ResponseWriter, r *http.Request) error {
	body, bad := sr.receiveBody(w, r, wire.MaxOpenBody)
	if bad != nil {
		return bad
	}
	ns, bad := namespace(r)
	if bad != nil {
		return bad
	}
	req, bad := wire.DecodeStartSaga(body)
	if bad != nil {
		return bad
	}
	key, submission, version, bad := req.Parse(ns)
	if bad != nil {
		return about(key, bad)
	}
	f, err := sr.flightOf(r, key.FlightID(), key)
	if err != nil {
		return about(key, err)
	}
	if f != nil && f.State == flight.StateAbsent && f.Generation > 1 { // its steps still have the outcomes of the run before
		return about(key, &wire.Invalid{Code: wire.Conflict, Hint: "use another id", FieldError: wire.FieldError{Detail: "a saga with this id has run before, and a key of a saga is not used again"}})
	}
	if f == nil || f.State == flight.StateAbsent {
		id := fmt.Sprintf("%s@%d", key.Name(), version)
		if version == 0 {
			id = sr.newest(ns, key.Name())
		}
		if id == "" || sr.store.documents.Document(definitionID(ns, id)) == nil {
			return noDefinition(ns, req.Saga)
		}
		if def, err := saga.Parse(sr.store.documents.Document(definitionID(ns, id)).Body); err != nil {
			return about(key, err)
		} else if err := def.CheckInput(submission.Input.Data); err != nil {
			return about(key, wire.BadField("/input", "%v", err))
		}
		if err := sr.limits.AllowFlights(key, 1); err != nil {
			return about(key, err)
		}
		submission.Policy.Saga, submission.Policy.Definition = true, id
	}
	reply, err := sr.store.operator.Propose(r.Context(), &flight.Submit{Key: key, Submission: submission})
	switch {
	case err != nil:
		return about(key, err)
	case reply.Decision == flight.DecisionReconciling:
		return about(key, &effect.Unavailable{Code: string(wire.Reconciling)})
	case reply.Decision == flight.DecisionConflict:
		return about(key, &effect.Conflict{Key: key})
	case reply.Decision == flight.DecisionExpired:
		return about(key, &effect.Expired{Key: key})
	case reply.Flight == nil || !reply.Flight.Policy.Saga:
		return about(key, &wire.Invalid{Code: wire.Conflict, Hint: "use another id", FieldError: wire.FieldError{Detail: "the key belongs to a flight that is no saga"}})
	}
	out := wire.StartSagaAnswer{Status: wire.StatusDuplicate}
	status := http.StatusOK
	if reply.Changed {
		out.Status, status = wire.StatusQueued, http.StatusCreated
	}
	if out.Saga, err = sr.sagaOf(r, reply.Flight); err != nil {
		return about(key, err)
	}
	setFlightHeaders(w.Header(), reply.Flight)
	writeResponse(w, r, status, typeJSON, out.AppendJSON)
	return nil
}

// show serves GET /v1/flights/{id}/saga.
func (sr *sagaRoutes) show(w http.ResponseWriter, r *http.Request) error {
	id, bad := flightID(r)
	if bad != nil {
		return bad
	}
	f, err := sr.findFlight(r, id, flight.Key{})
	if err != nil {
		return err
	}
	if f.State == flight.StateExpired {
		return &effect.Expired{Key: f.Key}
	}
	if !f.Policy.Saga {
		return about(f.Key, &wire.Invalid{Code: wire.NotFound, Hint: "read the flight itself: GET /v1/flights/" + f.ID.String(), FieldError: wire.FieldError{Detail: "the flight is no saga"}})
	}
	out, err := sr.sagaOf(r, f)
	if err != nil {
		return about(f.Key, err)
	}
	setFlightHeaders(w.Header(), f)
	writeResponse(w, r, http.StatusOK, typeJSON, out.AppendJSON)
	return nil
}

// sagaOf returns a saga with its steps, as people see it.
func (sr *sagaRoutes) sagaOf(r *http.Request, f *flight.Flight) (*wire.Saga, error) {
	def, v, err := sr.sagas.View(f)
	if err != nil {
		return nil, err
	}
	f, body, err := sr.loadReceiptBody(r, f)
	if err != nil {
		return nil, err
	}
	out := sagaHead(f, saga.StateOf(v))
	out.Receipt = wire.FlightOf(f, body, true).Receipt
	for i := range def.Steps {
		step := wire.SagaStep{Step: def.Steps[i].Name, Action: def.ActionOf(i, false), Pivot: def.Steps[i].Pivot, Needs: def.Steps[i].Needs}
		if of := v.Steps[i]; of != nil {
			if of, body, err = sr.loadReceiptBody(r, of); err != nil {
				return nil, err
			}
			step.Flight = wire.FlightOf(of, body, true)
		}
		if of := v.Undos[i]; of != nil {
			step.Undo = wire.FlightOf(of, nil, false)
		}
		out.Steps = append(out.Steps, step)
	}
	return out, nil
}

// sagaHead returns a saga without its steps and its receipt.
func sagaHead(f *flight.Flight, state string) *wire.Saga {
	shown := wire.FlightOf(f, nil, false)
	out := &wire.Saga{ID: shown.ID, Key: shown.Key, Definition: f.Policy.Definition, Version: shown.Version, State: state, Cancel: shown.CancelRequested,
		CreatedAt: shown.CreatedAt, FinishedAt: shown.FinishedAt}
	if f.Cancel != nil {
		out.Cause = f.Cancel.Reason
	}
	return out
}

// list serves GET /v1/sagas. The states of sagas that are not over depend on their steps, so a filter by state shortens pages.
func (sr *sagaRoutes) list(w http.ResponseWriter, r *http.Request) error {
	params, bad := queryParameters(r)
	if bad != nil {
		return bad
	}
	q, states, bad := sr.parseListQuery(r, params)
	if bad != nil {
		return bad
	}
	end, err := sr.limits.StartScan(cmp.Or(q.Namespace, wire.AllNamespaces))
	if err != nil {
		return err
	}
	defer end()
	page, err := sr.flights.List(q)
	if err != nil {
		return err
	}
	out := wire.SagaPage{Sagas: []wire.Saga{}}
	for _, f := range page.Flights {
		v := &saga.View{Saga: f}
		if !f.State.Terminal() {
			if _, v, err = sr.sagas.View(f); err != nil {
				return about(f.Key, err)
			}
		}
		if state := saga.StateOf(v); len(states) == 0 || slices.Contains(states, state) {
			out.Sagas = append(out.Sagas, *sagaHead(f, state))
		}
	}
	if page.More {
		out.Next = sr.sealCursor(r, encodeCursor(page.Next, 0))
		params.Set("cursor", out.Next)
		w.Header().Set("Link", "<"+r.URL.Path+"?"+params.Encode()+`>; rel="next"`)
	}
	writeResponse(w, r, http.StatusOK, typeJSON, out.AppendJSON)
	return nil
}

// parseListQuery parses the filters. The query selects more sagas than the states do.
func (sr *sagaRoutes) parseListQuery(r *http.Request, params url.Values) (q flight.Query, states []string, bad *wire.Invalid) {
	q.Limit, q.Sagas = defaultPage, true
	for name, values := range params {
		value := values[0]
		if len(values) > 1 && name != "state" {
			return q, nil, duplicateParameter(name)
		}
		switch name {
		case "state":
			states = strings.Split(strings.Join(values, ","), ",")
		case "name":
			q.Name = value
		case "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxPage {
				return q, nil, wire.BadParameter(name, "must be from 1 to %d", maxPage)
			}
			q.Limit = n
		case "cursor":
			if q.After, _, bad = decodeCursor(sr.unsealCursor(r, value)); bad != nil {
				return q, nil, bad
			}
		default:
			return q, nil, wire.BadParameter(name, "unknown filter; allowed: state, name, limit, cursor")
		}
	}
	for _, state := range states {
		switch state {
		case wire.SagaDone:
			q.States = append(q.States, flight.StateSucceeded)
		case wire.SagaUndone:
			q.States = append(q.States, flight.StateFailed)
		case wire.SagaCancelled:
			q.States = append(q.States, flight.StateCancelled)
		case wire.SagaRunning, wire.SagaCommitted, wire.SagaUndoing, wire.SagaInDoubt:
			q.States = append(q.States, flight.StateReady, flight.StateRunning, flight.StateWaiting)
		default:
			return q, nil, wire.BadParameter("state", "unknown state %.50q; allowed: %s", state, strings.Join(wire.SagaStates(), ", "))
		}
	}
	ns, bad := namespace(r)
	if bad == nil {
		q.Namespace, bad = wire.ParseListNamespace(ns, "")
	}
	return q, states, bad
}
