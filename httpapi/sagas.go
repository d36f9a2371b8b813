package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/saga"
)

// Sagas show the sagas of the ledger.
type Sagas interface {
	// Flights returns the definition of a saga, and the flights of its steps and undos without the bytes of their bodies.
	Flights(f *flight.Flight) (*saga.Definition, *saga.View, error)
	// View is Flights with the bytes of their bodies.
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

func (sr *sagaRoutes) routes() []declaration {
	all := []declaration{
		Endpoint[newDefinition, json.RawMessage]{Pattern: "PUT /v1/sagas/{name}/versions/{version}",
			Access: with(auth.Work | auth.Operate | auth.Define), Body: flight.MaxDocument, Serve: sr.define},
		Endpoint[sagaVersion, json.RawMessage]{Pattern: "GET /v1/sagas/{name}/versions/{version}",
			Access: with(auth.Read), Serve: sr.definition},
		Endpoint[oldDefinition, wire.Revoked]{Pattern: "DELETE /v1/sagas/{name}/versions/{version}",
			Access: with(auth.Operate), Body: wire.MaxSmallBody, Serve: sr.remove},
		Endpoint[sagaVersion, wire.SagaVersions]{Pattern: "GET /v1/sagas/{name}/versions", Access: with(auth.Read), Serve: sr.versions},
		Endpoint[wire.StartSagaRequest, wire.StartSagaAnswer]{Pattern: "POST /v1/sagas:start",
			Access: with(auth.Submit), Body: wire.MaxOpenBody, Serve: sr.start},
		Endpoint[sagasQuery, wire.SagaPage]{Pattern: "GET /v1/sagas", Access: with(auth.Read), Serve: sr.list},
		Endpoint[flightPath, wire.Saga]{Pattern: "GET /v1/flights/{id}/saga", Access: with(auth.Read), Serve: sr.show},
		Endpoint[lateUndo, wire.Saga]{Pattern: "POST /v1/flights/{id}/undo-late",
			Access: with(auth.Operate), Body: wire.MaxSmallBody, Serve: sr.undoLate},
	}
	if sr.sagas == nil {
		for i := range all {
			r := all[i].route(sr.scope)
			r.serve = func(http.ResponseWriter, *http.Request) error {
				return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no sagas"}}
			}
			all[i] = r
		}
	}
	return all
}

// checkStart checks that a saga may start that has not run, and completes its submission: with the newest definition if version is 0.
func (sr *sagaRoutes) checkStart(q *Request, in *wire.StartSagaRequest, ns string, s *flight.Submission, version int) error {
	id := fmt.Sprintf("%s@%d", q.key.Name(), version)
	if version == 0 {
		id = sr.newest(ns, q.key.Name())
	}
	var doc *flight.Document
	if id != "" {
		doc = sr.store.documents.Document(flight.DefinitionID(ns, id))
	}
	if doc == nil {
		q.key = flight.Key{} // commands take a key that is not found for a flight
		return noDefinition(ns, in.Saga)
	}
	if def, err := saga.Parse(doc.Body); err != nil {
		return err
	} else if err := def.CheckInput(s.Input.Data); err != nil {
		return wire.BadField("/input", "%v", err)
	} else if err := def.CheckRetention(cmp.Or(s.Policy.Retention, flight.DefaultRetention)); err != nil {
		return wire.BadField("/retention", "%v", err)
	}
	err := sr.limits.AllowWork(ns)
	if err == nil {
		err = sr.limits.AllowFlights(q.key, 1)
	}
	if err != nil {
		return err
	}
	s.Policy.Saga, s.Policy.Definition = true, id
	if bad := setRequester(q.Request, s, ""); bad != nil {
		return bad
	}
	return nil
}

// start starts a saga. If the process dies before the command is committed, nothing has started; after that the leader, this
// one or the next, drives the saga. The same request again finds it.
func (sr *sagaRoutes) start(q *Request, in *wire.StartSagaRequest) (*wire.StartSagaAnswer, error) {
	ns, bad := namespace(q.Request)
	if bad != nil {
		return nil, bad
	}
	key, submission, version, bad := in.Parse(ns)
	if q.key = key; bad != nil {
		return nil, bad
	}
	switch f, err := sr.flightOf(q.Request, key.FlightID(), key); {
	case err != nil:
		return nil, err
	case f != nil && f.State == flight.StateAbsent && f.Generation > 1: // its steps still have the outcomes of the run before
		return nil, &wire.Invalid{Code: wire.Conflict, Hint: "use another id", FieldError: wire.FieldError{Detail: "a saga with this id has run before, and a key of a saga is not used again"}}
	case f == nil || f.State == flight.StateAbsent:
		if err := sr.checkStart(q, in, ns, &submission, version); err != nil {
			return nil, err
		}
	}
	reply, err := sr.store.operator.Propose(q.Context(), &flight.Submit{Key: key, Submission: submission})
	switch {
	case err != nil:
		return nil, err
	case reply.Decision == flight.DecisionReconciling:
		return nil, &effect.Unavailable{Code: string(wire.Reconciling)}
	case reply.Decision == flight.DecisionNotFound: // the definition was deleted meanwhile
		q.key = flight.Key{}
		return nil, noDefinition(ns, submission.Policy.Definition)
	case reply.Decision == flight.DecisionConflict:
		return nil, &effect.Conflict{Key: key}
	case reply.Decision == flight.DecisionExpired:
		return nil, &effect.Expired{Key: key}
	case reply.Flight == nil || !mayBeSaga(reply.Flight):
		return nil, &wire.Invalid{Code: wire.Conflict, Hint: "use another id", FieldError: wire.FieldError{Detail: "the key belongs to a flight that is no saga"}}
	}
	out := &wire.StartSagaAnswer{Status: wire.StatusDuplicate}
	if reply.Changed {
		out.Status = wire.StatusQueued
		q.answerWith(http.StatusCreated)
	}
	q.describe(reply.Flight)
	out.Saga, err = sr.sagaOf(q.Request, reply.Flight)
	return out, err
}

// find returns a saga.
func (sr *sagaRoutes) find(q *Request, id flight.ID) (*flight.Flight, error) {
	f, err := sr.findFlight(q.Request, id, flight.Key{})
	switch {
	case err != nil:
		return nil, err
	case f.State == flight.StateExpired:
		return nil, &effect.Expired{Key: f.Key, Outcome: f.FinalState}
	}
	if q.key = f.Key; !mayBeSaga(f) {
		return nil, &wire.Invalid{Code: wire.NotFound, Hint: "read the flight itself: GET /v1/flights/" + f.ID.String(), FieldError: wire.FieldError{Detail: "the flight is no saga"}}
	}
	return f, nil
}

// mayBeSaga reports whether a flight is or was a saga. An imported receipt may be one of a saga, because flightd namespace copy also copies
// sagas that have ended, and these must not run again.
func mayBeSaga(f *flight.Flight) bool {
	return f.Policy.Saga || f.Receipt != nil && f.Receipt.Source == flight.SourceImport
}

// show returns a saga. With Prefer: wait=N it waits until the saga is over, or waits for a person.
func (sr *sagaRoutes) show(q *Request, in *flightPath) (*wire.Saga, error) {
	f, err := sr.find(q, in.Flight)
	if err != nil {
		return nil, err
	}
	if f, err = sr.waitForEnd(q, f); err != nil {
		return nil, err
	}
	if f.State == flight.StateExpired {
		return nil, &effect.Expired{Key: f.Key, Outcome: f.FinalState}
	}
	q.describe(f)
	return sr.sagaOf(q.Request, f)
}

// doubtInterval is how often a wait for the end of a saga looks for a step in doubt, which does not change the flight of the saga.
const doubtInterval = time.Second

// waitForEnd waits as long as Prefer asks until a saga is over, or waits for a person. It returns the newest version that it has read.
func (sr *sagaRoutes) waitForEnd(q *Request, f *flight.Flight) (*flight.Flight, error) {
	wait := preferredWait(q.Request)
	if wait == 0 || f.State.Terminal() {
		return f, nil
	}
	end, ok := startWait(sr.limits, q.Request, f.Key)
	if !ok {
		return f, nil
	}
	defer end()
	ctx, cancel := context.WithTimeout(q.Context(), wait)
	defer cancel()
	q.header.Set(wire.HeaderPreferenceApplied, "wait="+strconv.Itoa(int(wait/time.Second)))
	for !f.State.Terminal() && ctx.Err() == nil {
		_, v, err := sr.sagas.Flights(f)
		if errors.Is(err, saga.ErrNoDefinition) { // it was deleted since f was read: the saga is over
			v, err = &saga.View{Saga: f}, nil
		}
		if err != nil || saga.StateOf(v) == wire.SagaInDoubt {
			return f, err
		}
		look, stop := context.WithTimeout(ctx, doubtInterval)
		for !f.State.Terminal() && look.Err() == nil {
			next, err := sr.ledger.Wait(look, f.ID, f.Version)
			if err == nil && next != nil {
				f = next
			} else if look.Err() == nil { // the ledger failed
				stop()
				return f, err
			}
		}
		stop()
		if bad := sr.recheck(q.Request); bad != nil {
			return f, bad
		}
	}
	return f, context.Cause(q.Context())
}

// sagaOf returns a saga with its steps, as people see it.
func (sr *sagaRoutes) sagaOf(r *http.Request, f *flight.Flight) (*wire.Saga, error) {
	def, v, err := sr.sagas.Flights(f)
	if errors.Is(err, saga.ErrNoDefinition) { // it was deleted: the receipt has the end of each step
		def, v, err = new(saga.Definition), &saga.View{Saga: f}, nil
	}
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
		if step.Late = saga.IsLate(def, v, i); step.Late {
			of, err := sr.flightOf(r, undoLateKey(def, f.Key, i).FlightID(), undoLateKey(def, f.Key, i))
			if err != nil {
				return nil, err
			}
			if of != nil && of.State != flight.StateAbsent {
				step.LateUndo = wire.FlightOf(of, nil, false)
			}
		}
		out.Steps = append(out.Steps, step)
	}
	return out, nil
}

// sagaHead returns a saga without its steps and its receipt.
func sagaHead(f *flight.Flight, state string) *wire.Saga {
	shown := wire.FlightOf(f, nil, false)
	out := &wire.Saga{ID: shown.ID, RequestedBy: f.Requester, Key: shown.Key, Definition: f.Policy.Definition, Version: shown.Version, State: state, Cancel: shown.CancelRequested,
		CreatedAt: shown.CreatedAt, FinishedAt: shown.FinishedAt}
	if f.Cancel != nil {
		out.Cause = f.Cancel.Reason
	}
	return out
}

// sagasQuery selects a page of sagas. Its states are those of wire.SagaStates.
type sagasQuery struct {
	States []string       `query:"state"`
	Name   string         `query:"name"`
	Limit  limitParameter `query:"limit"`
	Cursor *string        `query:"cursor"`
}

// list returns sagas, newest first. The states of sagas that are not over depend on their steps, so a filter by state shortens pages.
func (sr *sagaRoutes) list(q *Request, in *sagasQuery) (*wire.SagaPage, error) {
	query, bad := sr.flightQuery(q, in)
	if bad != nil {
		return nil, bad
	}
	end, err := sr.limits.StartScan(cmp.Or(query.Namespace, wire.AllNamespaces))
	if err != nil {
		return nil, err
	}
	defer end()
	page, err := sr.flights.List(query)
	if err != nil {
		return nil, err
	}
	out := &wire.SagaPage{Sagas: []wire.Saga{}}
	for _, f := range page.Flights {
		v := &saga.View{Saga: f}
		if !f.State.Terminal() {
			_, seen, err := sr.sagas.Flights(f)
			switch {
			case err == nil:
				v = seen
			case !errors.Is(err, saga.ErrNoDefinition):
				return nil, about(f.Key, err)
			}
		}
		if state := saga.StateOf(v); len(in.States) == 0 || slices.Contains(in.States, state) {
			out.Sagas = append(out.Sagas, *sagaHead(f, state))
		}
	}
	if page.More {
		out.Next = sr.sealCursor(q.Request, encodeCursor(page.Next, 0))
		q.linkNext(out.Next)
	}
	return out, nil
}

// flightQuery returns the query for the flights of the sagas. It selects more sagas than their states do.
func (sr *sagaRoutes) flightQuery(q *Request, in *sagasQuery) (query flight.Query, bad *wire.Invalid) {
	query = flight.Query{Limit: in.Limit.or(defaultPage), Sagas: true, Name: in.Name}
	for _, state := range in.States {
		switch state {
		case wire.SagaDone:
			query.States = append(query.States, flight.StateSucceeded)
		case wire.SagaUndone:
			query.States = append(query.States, flight.StateFailed)
		case wire.SagaCancelled:
			query.States = append(query.States, flight.StateCancelled)
		case wire.SagaRunning, wire.SagaCommitted, wire.SagaUndoing, wire.SagaInDoubt:
			query.States = append(query.States, flight.StateReady, flight.StateRunning, flight.StateWaiting)
		default:
			return query, wire.BadParameter("state", "unknown state %.50q; allowed: %s", state, strings.Join(wire.SagaStates(), ", "))
		}
	}
	if in.Cursor != nil {
		if query.After, _, bad = decodeCursor(sr.unsealCursor(q.Request, *in.Cursor)); bad != nil {
			return query, bad
		}
	}
	ns, bad := namespace(q.Request)
	if bad == nil {
		query.Namespace, bad = wire.ParseListNamespace(ns, "")
	}
	return query, bad
}
