package clusterstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// importFlights imports receipts whose retention ends in a second.
func importFlights(t *testing.T, s *Store, from, to int) {
	t.Helper()
	var all []flight.Command
	for n := from; n < to; n++ {
		all = append(all, &flight.Import{Key: testKey(n), Outcome: flight.OutcomeSucceeded, Body: flight.NewBlob("text/plain", []byte("x"), 10), Retention: time.Second})
	}
	replies, err := s.ProposeAll(context.Background(), all)
	require.NoError(t, err)
	for i := range replies {
		require.Equal(t, flight.DecisionAccepted, replies[i].Decision)
		require.True(t, replies[i].Changed)
	}
}

func TestExpire_ManyChunksBesideNewFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		const many = 5*expiryChunk + 7
		importFlights(t, s, 0, many)
		hot := testKey(many + 1)
		openAndReport(t, s, many+1)
		time.Sleep(2 * time.Second)
		n, err := s.Expire(context.Background(), 0)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = s.Expire(context.Background(), expiryChunk+3)
		require.NoError(t, err)
		require.Equal(t, expiryChunk+3, n, "Expire respects its limit")
		done := make(chan int)
		go func() {
			n, err := s.Expire(context.Background(), NoLimit)
			require.NoError(t, err)
			done <- n
		}()
		for i := range 50 {
			openAndReport(t, s, many+10+i)
		}
		require.Equal(t, many-expiryChunk-3, <-done)
		require.Equal(t, int64(many), s.Counts()[flight.StateExpired])
		require.Equal(t, int64(51), s.Counts()[flight.StateSucceeded])
		requireConsistent(t, s)
		for key := range dump(t, s) {
			if key[0] == flightRows && key[kindOffset] != recordRow {
				id := flight.ID([]byte(key[1:kindOffset]))
				f, err := s.Flight(id)
				require.NoError(t, err)
				require.NotEqual(t, flight.StateExpired, f.State, "a tombstone has only its record")
			}
		}
		f, _ := s.fsm.cache.get(hot.FlightID())
		require.NotNil(t, f, "tombstones are not cached")
		f, _ = s.fsm.cache.get(testKey(3).FlightID())
		require.Nil(t, f)
	})
}

// A flight that is created and expires within one memBatch leaves no rows but its tombstone's.
func TestExpire_WithinOneMemBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		importFlights(t, s, 0, 1)
		time.Sleep(2 * time.Second)
		reply := propose(t, s, &flight.Import{Key: testKey(1), Outcome: flight.OutcomeSucceeded, FinishedAt: s.Now() - 5000, Retention: time.Second,
			Body: flight.NewBlob("text/plain", []byte("x"), 10)})
		require.True(t, reply.Changed)
		reply = propose(t, s, &flight.Expire{Key: testKey(1), Generation: 1})
		require.Equal(t, flight.StateExpired, reply.Flight.State)
		_, err := s.Body(testKey(1).FlightID(), 1, BodyReceipt)
		require.ErrorIs(t, err, ErrNoBody)
		history, err := s.History(testKey(1).FlightID())
		require.NoError(t, err)
		require.Empty(t, history)
		requireConsistent(t, s)
	})
}

func TestProposeAll_AnswersInOrderAndStopsAtInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		first, second := openOf(s, testKey(1), 1), openOf(s, testKey(2), 2)
		replies, err := s.ProposeAll(context.Background(), []flight.Command{first, second, first})
		require.NoError(t, err)
		require.Equal(t, testKey(1), replies[0].Flight.Key)
		require.Equal(t, testKey(2), replies[1].Flight.Key)
		require.Equal(t, replies[0].Token, replies[2].Token, "a repeat gets the first answer")
		huge := &flight.Import{Key: testKey(3), Outcome: flight.OutcomeSucceeded, Body: flight.Blob{Data: make([]byte, maxEntry)}}
		replies, err = s.ProposeAll(context.Background(), []flight.Command{openOf(s, testKey(4), 4), huge, openOf(s, testKey(5), 5)})
		require.ErrorIs(t, err, ErrTooLarge)
		require.Equal(t, []flight.Decision{flight.DecisionProceed, flight.DecisionNone, flight.DecisionNone},
			[]flight.Decision{replies[0].Decision, replies[1].Decision, replies[2].Decision})
	})
}
