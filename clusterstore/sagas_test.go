package clusterstore

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// One proposal opens a saga, submits a step and lets the saga sleep. The end of the step makes it due, also after a start of the node, and a
// command of a driver that is over changes nothing.
func TestJobs_DueSagas(t *testing.T) {
	cfg := memConfig(vfs.NewMem())
	s, err := Open(context.Background(), cfg)
	require.NoError(t, err)
	var signals atomic.Int32
	s.Jobs().OnSagaDue(func() { signals.Add(1) })
	key := flight.MustKey("test/trip/order-1")
	step, err := key.Step("hotel")
	require.NoError(t, err)
	due := func(s *Store) []flight.ID { return slices.Collect(s.Jobs().DueSagas()) }

	propose(t, s, &flight.PutDocument{ID: flight.DefinitionID("test", "trip@1"), Body: []byte("{}")})
	propose(t, s, &flight.Submit{Key: key, Submission: flight.Submission{Policy: flight.Policy{Saga: true, Definition: "trip@1"}}})
	require.Equal(t, []flight.ID{key.FlightID()}, due(s))
	token := flight.Token{StoreEpoch: s.Header().StoreEpoch, Number: 1}
	submit := &flight.Submit{Key: step, Submission: flight.Submission{Driver: token}, Queue: &flight.Queue{Action: "trip.hotel"}}
	replies, err := s.Jobs().ProposeAll(t.Context(), []flight.Command{
		&flight.Open{Key: key, Nonce: nonce(1), NotAfter: s.Now().Add(flight.MaxOpenLife), StoreEpoch: token.StoreEpoch}, submit,
		&flight.Suspend{Key: key, Generation: 1, Token: token, Wake: flight.Wake{Live: 1}}})
	require.NoError(t, err)
	require.Equal(t, flight.DecisionProceed, replies[0].Decision)
	require.Equal(t, token, replies[0].Token)
	require.Equal(t, flight.DecisionAccepted, replies[1].Decision)
	require.Empty(t, due(s))
	require.Equal(t, []flight.ID{step.FlightID()}, slices.Collect(s.Jobs().Ready("test", "trip.hotel", true)))
	late := *submit
	late.Key, err = key.Step("car")
	require.NoError(t, err)
	require.Equal(t, flight.DecisionFenced, propose(t, s, &late).Decision)

	opened := propose(t, s, openOf(s, step, 2))
	require.Equal(t, flight.DecisionProceed, opened.Decision)
	require.NoError(t, s.Close(context.Background()))

	s = openStore(t, cfg)
	s.Jobs().OnSagaDue(func() { signals.Add(1) })
	require.Empty(t, due(s))
	before := signals.Load()
	propose(t, s, reportOf(step, opened.Token, "x"))
	require.Equal(t, []flight.ID{key.FlightID()}, due(s))
	require.Equal(t, before+1, signals.Load())
	f, err := s.Flight(step.FlightID())
	require.NoError(t, err)
	require.Equal(t, f.Version, f.Ended)

	id := flight.DefinitionID("test", "trip@1")
	remove := &flight.DeleteDocument{ID: id, Expect: s.Document(id).Version}
	require.Equal(t, 1, s.SagasOf(id))
	require.Equal(t, flight.DecisionFailedPrecondition, propose(t, s, remove).Decision, "also after a start of the node")
	propose(t, s, &flight.Cancel{Key: key, Generation: 1, Actor: "ann"})
	open := &flight.Open{Key: key, Nonce: nonce(3), NotAfter: s.Now().Add(flight.MaxOpenLife), StoreEpoch: token.StoreEpoch}
	propose(t, s, &flight.Report{Key: key, Generation: 1, Token: propose(t, s, open).Token, Outcome: flight.OutcomeRefused})
	require.Zero(t, s.SagasOf(id))
	require.Equal(t, flight.DecisionAccepted, propose(t, s, remove).Decision)
	again := &flight.Submit{Key: flight.MustKey("test/trip/order-2"), Submission: flight.Submission{Policy: flight.Policy{Saga: true, Definition: "trip@1"}}}
	require.Equal(t, flight.DecisionNotFound, propose(t, s, again).Decision)
	again.Key = key
	require.Equal(t, flight.DecisionReplay, propose(t, s, again).Decision, "a repeat of a start is answered without the definition")
}
