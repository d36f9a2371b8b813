package flight_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flight/flighttest"
)

// TestTarget: Target returns the same key as a full Decode, for every kind of command and keys of every length.
func TestTarget(t *testing.T) {
	for _, c := range flight.NewCommands() {
		n := filler(0)
		n.fill(reflect.ValueOf(c).Elem())
		b, err := flight.Encode(c)
		require.NoError(t, err)
		whole, err := flight.Decode(b)
		require.NoError(t, err)
		key, err := flight.Target(b)
		require.NoError(t, err, "%T", c)
		require.Equal(t, whole.Target(), key, "%T", c)
	}
	for n := 1; n <= 255; n++ {
		key := flight.MustKey(fmt.Sprintf("ns/name/%0*d", n, 7))
		b, err := flight.Encode(&flight.SealKey{Key: key})
		require.NoError(t, err)
		got, err := flight.Target(b)
		require.NoError(t, err)
		require.Equal(t, key, got)
		for cut := range b {
			_, err := flight.Target(b[:cut])
			require.Error(t, err, "%d of %d bytes", cut, len(b))
		}
	}
	_, err := flight.Target([]byte{flight.CodecVersion + 1, 1, 0xa1})
	require.ErrorIs(t, err, flight.ErrNewerCodec)
}

// TestCountDuplicates: a count is added once, changes nothing else, keeps the version, is carried into later generations,
// and is removed with the flight's history.
func TestCountDuplicates(t *testing.T) {
	key := flight.MustKey("test/charge/order-1")
	v := flight.View{Header: flight.Header{Deployment: "d", LeaseEpoch: 1, StoreEpoch: 1, Now: 1000, Version: flight.Version{Index: 1}}}
	var reply flight.Reply
	do := func(c flight.Command) flight.Decision {
		t.Helper()
		before := v
		before.Header.Version.Index++
		v, reply = flight.Apply(before, c)
		require.NoError(t, flighttest.Check(before, c, v, reply))
		again := v
		again.Header.Version.Index++
		after, second := flight.Apply(again, c)
		require.NoError(t, flighttest.CheckRepeat(again, after, c, second))
		return reply.Decision
	}
	count := func(number uint64, n uint64, at flight.Time) *flight.CountDuplicates {
		return &flight.CountDuplicates{Key: key, ID: flight.CountID{Source: 9, Number: number},
			Stats: flight.DuplicateStats{Count: n, First: at, Last: at + 5, Callers: []flight.Caller{{Actor: fmt.Sprint("c", number), At: at}}}}
	}
	require.Equal(t, flight.DecisionNotFound, do(count(1, 1, 10)))
	require.Equal(t, flight.DecisionAccepted, do(&flight.Submit{Key: key, Submission: flight.Submission{Policy: flight.Policy{Retention: 1}}}))
	version := v.Flight.Version
	require.Equal(t, flight.DecisionAccepted, do(count(1, 3, 10)))
	require.True(t, reply.Changed)
	require.Empty(t, reply.Events, "a count adds no event")
	require.Equal(t, flight.DecisionAccepted, do(count(2, 4, 20)))
	require.Equal(t, flight.DecisionAccepted, do(count(2, 4, 20)))
	require.False(t, reply.Changed, "a repeat was counted twice")
	require.Equal(t, version, v.Flight.Version)
	require.Equal(t, uint64(7), v.Flight.Duplicates.Count)
	require.Equal(t, []flight.Caller{{Actor: "c1", At: 10}, {Actor: "c2", At: 20}}, v.Flight.Duplicates.Callers)
	require.Equal(t, flight.Time(10), v.Flight.Duplicates.First)
	require.Equal(t, flight.Time(25), v.Flight.Duplicates.Last)

	require.Equal(t, flight.DecisionAccepted, do(&flight.Cancel{Key: key, Generation: 1}))
	require.Equal(t, flight.DecisionAccepted, do(&flight.Retry{Key: key, Generation: 1}))
	require.Equal(t, uint64(7), v.Flight.Duplicates.Count, "a new generation forgot the duplicates of the key")
	require.Equal(t, flight.DecisionAccepted, do(&flight.Cancel{Key: key, Generation: 2}))
	v.Header.Now += 1000
	require.Equal(t, flight.DecisionAccepted, do(&flight.Expire{Key: key, Generation: 2}))
	require.Nil(t, v.Flight.Duplicates)
	require.Equal(t, flight.DecisionExpired, do(count(3, 1, 30)))
	require.False(t, reply.Changed)
}

// TestDuplicateStats_Add: the sum is the same for duplicates that are counted one by one or in groups.
func TestDuplicateStats_Add(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rapid.IntRange(0, 40).Draw(t, "calls")
		var whole, sum *flight.DuplicateStats
		var piece flight.DuplicateStats
		add := func(to *flight.DuplicateStats, more flight.DuplicateStats) *flight.DuplicateStats {
			s := to.Add(more)
			return &s
		}
		for n := 1; n <= calls; n++ {
			single := flight.DuplicateStats{Count: 1, First: flight.Time(n), Last: flight.Time(n), Callers: []flight.Caller{{Actor: fmt.Sprint(n), At: flight.Time(n)}}}
			whole = add(whole, single)
			piece = piece.Add(single)
			if rapid.Bool().Draw(t, "cut") || n == calls {
				sum, piece = add(sum, piece), flight.DuplicateStats{}
			}
		}
		if calls == 0 {
			return
		}
		require.Equal(t, *whole, *sum)
		require.Equal(t, uint64(calls), sum.Count)
		require.LessOrEqual(t, len(sum.Callers), flight.MaxCallers)
		require.Equal(t, flight.Time(calls), sum.Callers[len(sum.Callers)-1].At)
	})
}
