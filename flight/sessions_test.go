package flight_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// heldFlight is a flight whose open attempt a session holds.
func heldFlight(n int, session flight.SessionID) *flight.Flight {
	id := flight.MustKey(fmt.Sprintf("test/charge/order-%d", n)).FlightID()
	return &flight.Flight{ID: id, State: flight.StateRunning, Attempts: []flight.Attempt{{Number: 1, Session: flight.Session{ID: session, Epoch: 1}}}}
}

// mostlyOpen returns a random flight of a key, usually with an open attempt.
func mostlyOpen(random *rand.Rand, n int) *flight.Flight {
	session := flight.SessionID(fmt.Sprint("session-", random.IntN(4)))
	f := heldFlight(n, session)
	switch random.IntN(6) {
	case 0:
		return nil
	case 1:
		f.State = flight.StateWaiting // it waits for its callback
	case 2:
		f.State, f.Attempts[0].ClosedAt = flight.StateSucceeded, 1
	case 3:
		f.Attempts[0].ClosedAt = 1
		f.Verification = &flight.Verification{Number: 1, Session: flight.Session{ID: session, Epoch: 1}}
	}
	return f
}

// heldBySessions returns the contents of the index.
func heldBySessions(s *flight.Sessions) map[flight.Session][]flight.ID {
	held := make(map[flight.Session][]flight.ID)
	for session := range s.Holders() {
		held[session], _ = s.HeldFlights(session.ID, flight.ID{}, s.HeldCount())
	}
	return held
}

// The incrementally updated index equals an index that is rebuilt from the flights.
func TestSessions_FollowFlights(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	flights := make([]*flight.Flight, 50)
	index := flight.NewSessions()
	for range 2000 {
		n := random.IntN(len(flights))
		next := mostlyOpen(random, n)
		index.Update(flights[n], next)
		flights[n] = next
		if random.IntN(20) > 0 {
			continue
		}
		rebuilt, count := flight.NewSessions(), 0
		for _, f := range flights {
			rebuilt.Update(nil, f)
			if f.Holder() != nil {
				count++
			}
		}
		require.Equal(t, heldBySessions(rebuilt), heldBySessions(index))
		require.Equal(t, count, index.HeldCount())
	}
}

// HeldFlights returns the flights of a session in pages, in the order of their ids. All pages together are the complete list.
func TestSessions_HeldFlightsPages(t *testing.T) {
	index := flight.NewSessions()
	var want []flight.ID
	for n := range 500 {
		f := heldFlight(n, "session-many")
		index.Update(nil, f)
		want = append(want, f.ID)
	}
	index.Update(nil, heldFlight(1000, "session-other"))
	slices.SortFunc(want, func(a, b flight.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, limit := range []int{1, 3, 100, 256, 499, 500, 501, 10_000} {
		var got []flight.ID
		for after := (flight.ID{}); ; {
			page, all := index.HeldFlights("session-many", after, limit)
			require.Equal(t, 500, all)
			require.LessOrEqual(t, len(page), limit)
			if len(page) == 0 {
				break
			}
			got, after = append(got, page...), page[len(page)-1]
		}
		require.Equal(t, want, got, "%d at once", limit)
	}
	none, all := index.HeldFlights("session-many", flight.ID{}, 0)
	require.Empty(t, none)
	require.Equal(t, 500, all)
	none, all = index.HeldFlights("session-unknown", flight.ID{}, 10)
	require.Empty(t, none)
	require.Zero(t, all)
}

// A session is closed only in its own ledger, and only if it holds no flight.
func TestCloseSession_Admit(t *testing.T) {
	h := testHeader
	c := &flight.CloseSession{Session: "a", StoreEpoch: 1}
	require.Equal(t, flight.DecisionAccepted, c.Admit(&h, 0))
	require.Equal(t, flight.DecisionBusy, c.Admit(&h, 1))
	h.StoreEpoch++
	require.Equal(t, flight.DecisionFenced, c.Admit(&h, 0))
}

// An ended session is remembered until every Open that names it has expired, counted from the last proof.
func TestSessions_RememberEnded(t *testing.T) {
	const life = flight.Time(flight.MaxOpenLife / time.Millisecond)
	index := flight.NewSessions()
	require.False(t, index.HasEnded("a", 0))
	index.MarkEnded("a", 100)
	index.MarkEnded("b", 100)
	index.MarkEnded("c", 200)
	index.MarkEnded("a", 300)
	want := []flight.EndedSession{{ID: "b", Until: 100 + life}, {ID: "c", Until: 200 + life}, {ID: "a", Until: 300 + life}}
	require.Equal(t, want, index.EndedSessions())

	again := flight.NewSessions()
	for _, e := range index.EndedSessions() {
		again.RestoreEnded(e)
	}
	for name, s := range map[string]*flight.Sessions{"as it came": index, "restored": again} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, s.ForgetExpired(100+life), "an Open may still be valid at this time")
			require.True(t, s.HasEnded("b", 100+life))
			require.False(t, s.HasEnded("b", 101+life))
			require.Equal(t, want[:1], s.ForgetExpired(101+life))
			require.True(t, s.HasEnded("a", 101+life), "its end was proved again")
			require.Equal(t, want[1:], s.EndedSessions())
			require.Equal(t, want[1:], s.ForgetExpired(1000+life))
			require.Empty(t, s.EndedSessions())
			require.Equal(t, flight.EndedSession{ID: "b", Until: 2000 + life}, s.MarkEnded("b", 2000), "it can be remembered again")
			require.True(t, s.HasEnded("b", 2000))
		})
	}
}

// An abandon creates a record for a key that was never opened. The record is deleted when its nonces have expired, unless it
// holds anything else.
func TestExpire_DeletesRecordOfUsedNonces(t *testing.T) {
	key := flight.MustKey("test/charge/order-1")
	header := flight.Header{LeaseEpoch: 1, StoreEpoch: 1, Now: 1000, Version: flight.Version{Index: 1}}
	abandon := &flight.Abandon{Key: key, Nonce: flight.Nonce{1}, NotAfter: 5000, StoreEpoch: 1}
	abandoned, reply := flight.Apply(flight.View{Header: header}, abandon)
	require.True(t, reply.Changed)
	require.Equal(t, flight.Time(5001), abandoned.Flight.DeletableAt())
	expire := &flight.Expire{Key: key, Generation: 1}
	early := abandoned
	early.Header.Now = 5000
	_, reply = flight.Apply(early, expire)
	require.False(t, reply.Changed, "an Open with this nonce may still be valid")

	late := abandoned
	late.Header.Now = 5001
	after, reply := flight.Apply(late, expire)
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
	require.True(t, reply.Changed)
	require.True(t, reply.Deleted)
	require.Nil(t, reply.Flight)
	require.Nil(t, after.Flight)
	_, reply = flight.Apply(after, expire)
	require.Equal(t, flight.DecisionNotFound, reply.Decision, "a repeat")

	for name, holds := range map[string]func(*flight.Flight){
		"a fence":             func(f *flight.Flight) { f.Fence.Number = 1 },
		"evidence":            func(f *flight.Flight) { f.Evidence = []flight.Evidence{{Generation: 1}} },
		"an overlap":          func(f *flight.Flight) { f.Overlap = true },
		"an end":              func(f *flight.Flight) { f.State = flight.StateCancelled },
		"an earlier one":      func(f *flight.Flight) { f.PreviousGenerations = []flight.PreviousGeneration{{Generation: 1}} },
		"another generation":  func(f *flight.Flight) { f.Generation = 2 },
		"a younger one, also": func(f *flight.Flight) { f.UsedNonces = append(f.UsedNonces, flight.UsedNonce{Until: 9000}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := *abandoned.Flight
			f.UsedNonces = slices.Clone(f.UsedNonces)
			holds(&f)
			_, reply := flight.Apply(flight.View{Header: late.Header, Flight: &f}, &flight.Expire{Key: key, Generation: f.Generation})
			require.False(t, reply.Deleted)
		})
	}
}
