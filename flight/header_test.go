package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestHeader_CommandsWithoutAKey(t *testing.T) {
	v := flight.View{Header: flight.Header{Now: start}}
	do := func(c flight.Command) flight.Decision {
		var reply flight.Reply
		v, reply = flight.Apply(v, c)
		require.False(t, reply.Changed)
		require.Nil(t, v.Flight)
		return reply.Decision
	}
	require.Equal(t, flight.DecisionAccepted, do(&flight.Bootstrap{Deployment: "one", Secret: []byte("s")}))
	require.Equal(t, flight.Header{Deployment: "one", Secret: []byte("s"), LeaseEpoch: 1, StoreEpoch: 1, Now: start}, v.Header)
	require.Equal(t, flight.DecisionAccepted, do(&flight.Bootstrap{Deployment: "two"}))
	require.Equal(t, "one", v.Header.Deployment, "a second bootstrap renames nothing")
	require.Equal(t, flight.DecisionAccepted, do(&flight.Tick{}))
}

func TestHeader_RaiseEpoch(t *testing.T) {
	v := flight.View{Header: testHeader}
	v.Header.GuardCounter = 7
	do := func(c flight.Command) flight.Decision {
		var reply flight.Reply
		v, reply = flight.Apply(v, c)
		return reply.Decision
	}
	require.Equal(t, flight.DecisionFailedPrecondition, do(&flight.RaiseEpoch{From: 2}), "From is not the present epoch")
	require.Equal(t, flight.DecisionAccepted, do(&flight.RaiseEpoch{From: 1, Hold: time.Minute}))
	require.Equal(t, flight.DecisionAccepted, do(&flight.RaiseEpoch{From: 1, Hold: time.Hour}), "a repeat")
	require.Equal(t, uint32(2), v.Header.LeaseEpoch)
	require.Equal(t, start.Add(time.Minute), v.Header.EpochHold)
	require.Zero(t, v.Header.GuardCounter, "the guard key of the new epoch has a counter of its own")
}

// TestHeader_Step: a step moves the ledger's time and the hold of an old lease epoch, and is recorded. A repeat, and a step to a
// time that has passed, change nothing.
func TestHeader_Step(t *testing.T) {
	v := flight.View{Header: testHeader}
	v.Header.EpochHold = start.Add(time.Minute)
	for range 2 {
		v, _ = flight.Apply(v, &flight.Tick{StepTo: start.Add(time.Hour)})
		want := testHeader
		want.Now, want.Steps, want.EpochHold = start.Add(time.Hour), time.Hour, start.Add(time.Hour+time.Minute)
		require.Equal(t, want, v.Header)
	}
	v, _ = flight.Apply(v, &flight.Tick{StepTo: start})
	require.Equal(t, start.Add(time.Hour), v.Header.Now)
}

// TestHeader_RecordGuard: the stored counter only rises, and belongs to the present lease epoch.
func TestHeader_RecordGuard(t *testing.T) {
	v := flight.View{Header: testHeader}
	for _, step := range []struct {
		epoch         uint32
		counter, want uint64
		answer        flight.Decision
	}{{1, 4, 4, flight.DecisionAccepted}, {1, 4, 4, flight.DecisionAccepted}, {1, 3, 4, flight.DecisionAccepted}, {2, 9, 4, flight.DecisionFenced}, {0, 9, 4, flight.DecisionFenced}, {1, 5, 5, flight.DecisionAccepted}} {
		var reply flight.Reply
		v, reply = flight.Apply(v, &flight.RecordGuard{Epoch: step.epoch, Counter: step.counter})
		require.Equal(t, step.answer, reply.Decision)
		require.Equal(t, step.want, v.Header.GuardCounter)
	}
}

// TestTokenOf: after a restore an open attempt reports under a token of the present store epoch.
func TestTokenOf(t *testing.T) {
	h := flight.Header{StoreEpoch: 3}
	a := flight.Attempt{Number: 5, StoreEpoch: 2}
	require.Equal(t, flight.Token{StoreEpoch: 3, Number: 5}, h.TokenOf(&a))
	require.Equal(t, flight.Token{StoreEpoch: 2, Number: 5}, a.Token())
	require.Positive(t, h.TokenOf(&a).Compare(a.Token()))
}
