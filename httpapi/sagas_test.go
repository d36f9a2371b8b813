package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/saga"
)

// A namespace that is full of definitions says so, and how to delete one. The next one fits then.
func TestSagas_TooManyDefinitions(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Work.Sagas = &stepInputs{} })
	for n := range flight.MaxDocumentsOfNamespace {
		d.fake.Apply(t, &flight.PutDocument{ID: flight.DocumentID{Namespace: "default", Kind: flight.KindSaga, Name: fmt.Sprintf("trip.%d", n+1)},
			Body: fmt.Appendf(nil, `{"saga":"trip","version":%d,"steps":[{"name":"hotel","no_undo":true}]}`, n+1)})
	}
	typed := []string{"Content-Type", "application/json"}
	const next = "/v1/sagas/trip/versions/1001"
	definition := `{"saga":"trip","version":1001,"steps":[{"name":"hotel","no_undo":true}]}`
	r := d.send(http.MethodPut, next, definition)
	p := decodeBody[wire.Problem](t, r)
	require.Equal(t, wire.QuotaExceeded, p.Code)
	require.Contains(t, p.Detail, "1000 documents, of which 1000 are definitions of sagas")
	require.Contains(t, p.Detail, "flightd sagas delete NAME@N")
	require.Equal(t, http.StatusBadRequest, d.send(http.MethodDelete, "/v1/sagas/trip/versions/1", `{}`, typed...).status, "no reason")
	require.Equal(t, http.StatusBadRequest, d.send(http.MethodDelete, "/v1/sagas/trip/versions/01", `{"reason":"a test"}`, typed...).status)
	require.Equal(t, http.StatusNotFound, d.send(http.MethodDelete, "/v1/sagas/trip/versions/1002", `{"reason":"a test"}`, typed...).status)
	require.Equal(t, http.StatusOK, d.send(http.MethodDelete, "/v1/sagas/trip/versions/1", `{"reason":"a test"}`, typed...).status)
	require.Equal(t, http.StatusCreated, d.send(http.MethodPut, next, definition).status)
	missing := decodeBody[wire.Problem](t, d.send(http.MethodPost, "/v1/sagas:start", `{"saga":"trip@1","id":"1"}`, typed...))
	require.Equal(t, wire.NotFound, missing.Code)
	require.Empty(t, missing.FlightID, "commands would say that there is no such flight")
}

// noDefinition are sagas whose definition was deleted.
type noDefinition struct{ stepInputs }

func (noDefinition) Flights(*flight.Flight) (*saga.Definition, *saga.View, error) {
	return nil, nil, saga.ErrNoDefinition
}

// A saga whose definition was deleted is shown, also to those who wait for its end.
func TestSagas_WaitWithoutTheDefinition(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Work.Sagas = &noDefinition{} })
	trip := flight.MustKey("default/trip/1")
	d.fake.PutDocument(t, flight.DefinitionID("default", "trip@1"), []byte("{}"))
	d.fake.Apply(t, &flight.Submit{Key: trip, Submission: flight.Submission{Policy: flight.Policy{Saga: true, Definition: "trip@1"}}})
	for _, wait := range []string{"0", "1"} {
		r := d.send(http.MethodGet, "/v1/flights/"+trip.FlightID().String()+"/saga", "", "Prefer", "wait="+wait)
		require.Equal(t, http.StatusOK, r.status)
		require.Equal(t, wire.SagaRunning, decodeBody[wire.Saga](t, r).State)
	}
}

// noLists is a ledger whose flights cannot be listed.
type noLists struct{ httpapi.Ledger }

func (noLists) List(flight.Query) (flight.Page, error) {
	return flight.Page{}, errors.New("on purpose")
}

// A start and a deletion of its definition at the same time, also at two nodes or of a caller who has left: the ledger's order decides. The
// versions are counted without reading any flight.
func TestSagas_StartAndDeletionAtOnce(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Work.Sagas, c.Ledger = &noDefinition{}, noLists{c.Ledger} })
	const path = "/v1/sagas/trip/versions/1"
	define := func() {
		require.Equal(t, http.StatusCreated, d.send(http.MethodPut, path, `{"saga":"trip","version":1,"steps":[{"name":"hotel","no_undo":true}]}`).status)
	}
	start := func(saga, id string) reply {
		return d.post("/v1/sagas:start", fmt.Sprintf(`{"saga":%q,"id":%q}`, saga, id))
	}
	remove := func() reply {
		return d.send(http.MethodDelete, path, `{"reason":"a test"}`, "Content-Type", "application/json")
	}
	before := func(do func()) { // right before the next command
		d.fake.SetFaults(func(f *httpapitest.Faults) {
			f.Before = func(context.Context, string) error {
				d.fake.SetFaults(func(f *httpapitest.Faults) { f.Before = nil })
				do()
				return nil
			}
		})
	}
	running := func() int {
		return decodeBody[wire.SagaVersions](t, d.get("/v1/sagas/trip/versions")).Versions[0].Running
	}
	define()
	for _, name := range []string{"trip", "trip@1"} {
		before(func() { require.Equal(t, http.StatusOK, remove().status) })
		require.Contains(t, requireProblem(t, start(name, "late"), http.StatusNotFound, wire.NotFound).Detail, "trip@1")
		requireProblem(t, d.get("/v1/flights?key=default/trip/late"), http.StatusNotFound, wire.NotFound)
		define()
	}
	require.Zero(t, running())
	before(func() { require.Equal(t, http.StatusCreated, start("trip", "early").status) })
	p := requireProblem(t, remove(), http.StatusPreconditionFailed, wire.PreconditionFailed)
	require.Equal(t, "trip@1 has sagas that are not over: 1", p.Detail)
	require.Equal(t, 1, running())
	require.Equal(t, http.StatusOK, start("trip", "early").status, "a repeat")

	early := flight.MustKey("default/trip/early")
	d.fake.Apply(t, &flight.Cancel{Key: early, Generation: 1, Actor: "ann"})
	f, err := d.fake.Ledger.Flight(early.FlightID())
	require.NoError(t, err)
	open := d.fake.Apply(t, &flight.Open{Key: early, Submission: flight.Submission{Fingerprint: f.Fingerprint}, Nonce: flight.Nonce{1}, NotAfter: d.fake.Ledger.Now().Add(30 * time.Second), StoreEpoch: d.fake.Ledger.Header().StoreEpoch})
	d.fake.Apply(t, &flight.Report{Key: early, Generation: 1, Token: open.Token, Outcome: flight.OutcomeRefused})
	require.Zero(t, running())
	require.Equal(t, http.StatusOK, remove().status)
	require.Equal(t, http.StatusOK, start("trip@1", "early").status, "a repeat of a start is answered without the definition")
	requireProblem(t, start("trip", "next"), http.StatusNotFound, wire.NotFound)
}

// A worker that serves a saga sends its definition at each start. It needs no verb but work for one that is stored, and define for a new one.
func TestSagas_DefinedByWorkers(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{}, func(c *httpapi.Config) { c.Work.Sagas = &stepInputs{} })
	const path, definition = "/v1/sagas/trip/versions/1", `{"saga":"trip","version":1,"steps":[{"name":"hotel","no_undo":true}]}`
	worker, definer := g.as("billing", "worker", auth.Work), g.as("billing", "definer", auth.Work|auth.Define)
	p := requireProblem(t, worker.do("PUT", path, definition), http.StatusForbidden, wire.Forbidden)
	require.Contains(t, p.Detail, "trip@1 is not defined, and the token lacks the verb define")
	require.Equal(t, http.StatusCreated, definer.do("PUT", path, definition).status)
	require.Equal(t, http.StatusOK, worker.do("PUT", path, definition).status)
	requireProblem(t, worker.do("PUT", path, `{"saga":"trip","version":1,"steps":[{"name":"room","no_undo":true}]}`), http.StatusUnprocessableEntity, wire.Conflict)
	requireProblem(t, definer.do("DELETE", path, `{"reason":"r"}`), http.StatusForbidden, wire.Forbidden)
	requireProblem(t, g.as("billing", "shop", auth.Submit|auth.Read).do("PUT", path, definition), http.StatusForbidden, wire.Forbidden)
}
