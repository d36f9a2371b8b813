package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
		route{pattern: "PUT /v1/sagas/{name}/versions/{version}", serve: sr.define, access: with(auth.Work | auth.Operate | auth.Define)},
		route{pattern: "GET /v1/sagas/{name}/versions/{version}", serve: sr.definition, access: with(auth.Read)},
		route{pattern: "DELETE /v1/sagas/{name}/versions/{version}", serve: sr.deleteDefinition, access: with(auth.Operate)},
		route{pattern: "GET /v1/sagas/{name}/versions", serve: sr.versions, access: with(auth.Read)},
		route{pattern: "POST /v1/sagas:start", serve: sr.start, access: with(auth.Submit)},
		route{pattern: "GET /v1/sagas", serve: sr.list, access: with(auth.Read), query: true},
		route{pattern: "GET /v1/flights/{id}/saga", serve: sr.show, access: with(auth.Read)},
		route{pattern: "POST /v1/flights/{id}/undo-late", serve: sr.undoLate, access: with(auth.Operate)},
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
	req, bad := wire.Decode[wire.StartSagaRequest](body)
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
		if id == "" {
			return noDefinition(ns, req.Saga)
		}
		doc := sr.store.documents.Document(flight.DefinitionID(ns, id))
		if doc == nil {
			return noDefinition(ns, req.Saga)
		}
		if def, err := saga.Parse(doc.Body); err != nil {
			return about(key, err)
		} else if err := def.CheckInput(submission.Input.Data); err != nil {
			return about(key, wire.BadField("/input", "%v", err))
		} else if err := def.CheckRetention(cmp.Or(submission.Policy.Retention, flight.DefaultRetention)); err != nil {
			return about(key, wire.BadField("/retention", "%v", err))
		}
		err := sr.limits.AllowWork(ns)
		if err == nil {
			err = sr.limits.AllowFlights(key, 1)
		}
		if err != nil {
			return about(key, err)
		}
		submission.Policy.Saga, submission.Policy.Definition = true, id
		if bad := setRequester(r, &submission, ""); bad != nil {
			return about(key, bad)
		}
	}
	reply, err := sr.store.operator.Propose(r.Context(), &flight.Submit{Key: key, Submission: submission})
	switch {
	case err != nil:
		return about(key, err)
	case reply.Decision == flight.DecisionReconciling:
		return about(key, &effect.Unavailable{Code: string(wire.Reconciling)})
	case reply.Decision == flight.DecisionNotFound: // the definition was deleted meanwhile
		return noDefinition(ns, submission.Policy.Definition)
	case reply.Decision == flight.DecisionConflict:
		return about(key, &effect.Conflict{Key: key})
	case reply.Decision == flight.DecisionExpired:
		return about(key, &effect.Expired{Key: key})
	case reply.Flight == nil || !mayBeSaga(reply.Flight):
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
	return writeJSON(w, r, status, &out)
}

// find returns the saga in the path.
func (sr *sagaRoutes) find(r *http.Request) (*flight.Flight, error) {
	id, bad := flightID(r)
	if bad != nil {
		return nil, bad
	}
	f, err := sr.findFlight(r, id, flight.Key{})
	switch {
	case err != nil:
		return nil, err
	case f.State == flight.StateExpired:
		return nil, &effect.Expired{Key: f.Key, Outcome: f.FinalState}
	case !mayBeSaga(f):
		return nil, about(f.Key, &wire.Invalid{Code: wire.NotFound, Hint: "read the flight itself: GET /v1/flights/" + f.ID.String(), FieldError: wire.FieldError{Detail: "the flight is no saga"}})
	}
	return f, nil
}

// mayBeSaga reports whether a flight is or was a saga. An imported receipt may be one of a saga, because flightd namespace copy also copies
// sagas that have ended, and these must not run again.
func mayBeSaga(f *flight.Flight) bool {
	return f.Policy.Saga || f.Receipt != nil && f.Receipt.Source == flight.SourceImport
}

// show serves GET /v1/flights/{id}/saga. With Prefer: wait=N it waits until the saga is over, or waits for a person.
func (sr *sagaRoutes) show(w http.ResponseWriter, r *http.Request) error {
	f, err := sr.find(r)
	if err != nil {
		return err
	}
	if f, err = sr.waitForEnd(w, r, f); err != nil {
		return about(f.Key, err)
	}
	if f.State == flight.StateExpired {
		return &effect.Expired{Key: f.Key, Outcome: f.FinalState}
	}
	out, err := sr.sagaOf(r, f)
	if err != nil {
		return about(f.Key, err)
	}
	setFlightHeaders(w.Header(), f)
	return writeJSON(w, r, http.StatusOK, out)
}

// doubtInterval is how often a wait for the end of a saga looks for a step in doubt, which does not change the flight of the saga.
const doubtInterval = time.Second

// waitForEnd waits as long as Prefer asks until a saga is over, or waits for a person. It returns the newest version that it has read.
func (sr *sagaRoutes) waitForEnd(w http.ResponseWriter, r *http.Request, f *flight.Flight) (*flight.Flight, error) {
	wait := preferredWait(r)
	if wait == 0 || f.State.Terminal() {
		return f, nil
	}
	end, ok := startWait(sr.limits, r, f.Key)
	if !ok {
		return f, nil
	}
	defer end()
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	w.Header().Set(wire.HeaderPreferenceApplied, "wait="+strconv.Itoa(int(wait/time.Second)))
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
		if bad := sr.recheck(r); bad != nil {
			return f, bad
		}
	}
	return f, context.Cause(r.Context())
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
			_, seen, err := sr.sagas.Flights(f)
			switch {
			case err == nil:
				v = seen
			case !errors.Is(err, saga.ErrNoDefinition):
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
		setNextPage(w, r, params)
	}
	return writeJSON(w, r, http.StatusOK, &out)
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
