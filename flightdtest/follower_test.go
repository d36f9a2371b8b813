package flightdtest_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// openUnder is an Open of key n under a session.
func openUnder(l *flightdtest.Ledger, n int, session flight.SessionID) *flight.Open {
	header := l.Header()
	return &flight.Open{Key: flight.MustKey(fmt.Sprint("billing/charge/order-", n)), Nonce: flight.Nonce{byte(n), byte(n >> 8), 1},
		Session: flight.Session{ID: session, Revision: 1, Epoch: header.LeaseEpoch}, NotAfter: l.Now().Add(time.Second), StoreEpoch: header.StoreEpoch}
}

func mustPropose(t *testing.T, l *flightdtest.Ledger, c flight.Command) flight.Reply {
	t.Helper()
	reply, err := l.Propose(t.Context(), c)
	require.NoError(t, err)
	return reply
}

// A follower that is not late takes the same exam as the store.
func TestFollowerConformance(t *testing.T) {
	executortest.Run(t, func(*testing.T) executortest.Store { return flightdtest.NewLedger().Follower() })
}

// A late follower reads the ledger as it was some commands ago. Its proposals are answered by the ledger as it is now.
func TestFollowerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := flightdtest.NewLedger()
		late := l.Follower()
		late.Lag(2)
		open := openUnder(l, 1, "session-a")
		opened := mustPropose(t, l, open)
		id := opened.Flight.ID
		woken := make(chan flight.State, 1)
		go func() {
			f, err := late.Wait(t.Context(), id, flight.Version{})
			require.NoError(t, err)
			woken <- f.State
		}()
		require.Equal(t, flight.DecisionAccepted, mustPropose(t, l, &flight.RaiseEpoch{From: 1}).Decision)
		synctest.Wait()
		require.Empty(t, woken)
		f, err := late.Flight(id)
		require.NoError(t, err)
		require.Nil(t, f)
		require.Zero(t, late.HeldCount())
		require.EqualValues(t, 1, late.Epoch())

		again, err := late.Propose(t.Context(), open)
		require.NoError(t, err)
		require.Equal(t, opened.Token, again.Token, "the ledger answers")
		require.Equal(t, flight.StateRunning, <-woken, "the third command is the one that lets it see the first")
		held, all := late.HeldBy("session-a", flight.ID{}, 10)
		require.Equal(t, []flight.ID{id}, held)
		require.Equal(t, 1, all)
		require.EqualValues(t, 1, late.Epoch())
		mustPropose(t, l, &flight.Tick{})
		require.EqualValues(t, 2, late.Epoch())

		late.Lag(math.MaxInt)
		report := &flight.Report{Key: open.Key, Generation: 1, Token: opened.Token, Outcome: flight.OutcomeSucceeded}
		mustPropose(t, l, report)
		for range 100 {
			mustPropose(t, l, &flight.Tick{})
		}
		f, err = late.Flight(id)
		require.NoError(t, err)
		require.Equal(t, flight.StateRunning, f.State, "it stays where it is")
		require.Len(t, late.Holders(), 1)
		late.Lag(0)
		f, err = late.Flight(id)
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Empty(t, late.Holders())
		require.Equal(t, l.Header(), late.Header())
	})
}

// A node whose view is late does nothing a second time: the ledger decides.
func TestLaggingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.New(t)
		late := fd.Ledger.Follower()
		other := fd.Restart(t, flightdtest.Options{Follower: late})
		late.Lag(math.MaxInt)
		_, err := ticket(t, fd, "1")
		require.NoError(t, err)
		key := flight.MustKey("support/create-ticket/1")
		f, err := late.Flight(key.FlightID())
		require.NoError(t, err)
		require.Nil(t, f)
		result, err := other.Do(t.Context(), effect.Call{Key: key}, mustNotRun(t))
		require.NoError(t, err)
		require.Equal(t, effect.SourceReplayed, result.Source)
		require.Equal(t, "T-1", result.Answer.ExternalID)
	})
}

// A record that holds nothing but used nonces goes when these have expired.
func TestUsedNoncesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := flightdtest.NewLedger()
		late := l.Follower()
		open := openUnder(l, 1, "session-a")
		mustPropose(t, l, &flight.Abandon{Key: open.Key, Nonce: open.Nonce, NotAfter: open.NotAfter, StoreEpoch: 1})
		require.Equal(t, flight.DecisionFenced, mustPropose(t, l, open).Decision)
		time.Sleep(2 * time.Second)
		for _, s := range []executortest.Store{l, late} {
			f, err := s.Flight(open.Key.FlightID())
			require.NoError(t, err)
			require.Nil(t, f)
		}
		require.Equal(t, flight.DecisionProceed, mustPropose(t, l, openUnder(l, 1, "session-a")).Decision)
	})
}
