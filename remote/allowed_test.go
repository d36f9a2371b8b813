package remote_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// A caller that is no longer allowed after a wait gets that answer, and nothing is opened; it does not get the receipt of
// another caller, either.
func TestOpen_AsksAfterAWait(t *testing.T) {
	for _, outcome := range []flight.Outcome{flight.OutcomeNotDone, flight.OutcomeSucceeded} {
		bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
			revoked, allowed := errors.New("revoked"), atomic.Bool{}
			allowed.Store(true)
			first := proceed(t, fd, openOf("1", "{}", flight.Policy{}, 1))
			second := openOf("1", "{}", flight.Policy{}, 2)
			second.Wait = time.Minute
			second.StillAllowed = func() error {
				if allowed.Load() {
					return nil
				}
				return revoked
			}
			answers := make(chan error, 1)
			go func() {
				a, err := fd.Remote().Open(t.Context(), second)
				if err == nil {
					err = errors.New(a.Decision.String())
				}
				answers <- err
			}()
			synctest.Wait() // it waits
			allowed.Store(false)
			report(t, fd, first, outcome, "ch_1")
			require.ErrorIs(t, <-answers, revoked)
			f, err := fd.Ledger.Flight(keyOf("1").FlightID())
			require.NoError(t, err)
			require.Nil(t, f.OpenAttempt())
			allowed.Store(true)
			_, err = fd.Remote().Open(t.Context(), second)
			require.NoError(t, err)
		})
	}
}

// An open that must not open is refused before it proposes, also if it has not waited.
func TestOpen_AsksBeforeItOpens(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		revoked := errors.New("revoked")
		req := openOf("1", "{}", flight.Policy{}, 1)
		req.StillAllowed = func() error { return revoked }
		_, err := fd.Remote().Open(t.Context(), req)
		require.ErrorIs(t, err, revoked)
		f, err := fd.Ledger.Flight(req.Key.FlightID())
		require.NoError(t, err)
		require.Nil(t, f)
		req.StillAllowed = nil
		proceed(t, fd, req)
	})
}
