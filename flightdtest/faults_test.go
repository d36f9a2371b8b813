package flightdtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

func ticket(t *testing.T, fd *flightdtest.Flightd, id string) (effect.Result, error) {
	t.Helper()
	return fd.Do(t.Context(), effect.Call{Key: flight.MustKey("support/create-ticket/" + id)},
		func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{ExternalID: "T-1"}, nil
		})
}

func TestLevers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.New(t)
		var seen []string
		fd.Ledger.Before(func(c flight.Command) {
			if key := c.Target(); !key.IsZero() { // the sweeper's are about the header
				seen = append(seen, key.BusinessID())
			}
		})
		_, err := ticket(t, fd, "1")
		require.NoError(t, err)
		require.Equal(t, []string{"1", "1"}, seen, "an open and a report")
		fd.Ledger.Before(nil)

		fd.Ledger.Cut()
		_, err = ticket(t, fd, "2")
		var unavailable *effect.Unavailable
		require.ErrorAs(t, err, &unavailable)
		require.Nil(t, fd.Flight(flight.MustKey("support/create-ticket/2")))
		fd.Ledger.Heal()
		fd.Ledger.Heal() // twice is once
		_, err = ticket(t, fd, "2")
		require.NoError(t, err)

		fd.Ledger.Stall()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = fd.Ledger.Propose(ctx, &flight.Submit{Key: flight.MustKey("support/create-ticket/3")})
		require.ErrorIs(t, err, effect.ErrAmbiguous)
		require.Nil(t, fd.Flight(flight.MustKey("support/create-ticket/3")))
		fd.Ledger.Heal()
		require.Equal(t, flight.StateReady, fd.Flight(flight.MustKey("support/create-ticket/3")).State, "it arrived late")

		now := fd.Ledger.Now()
		fd.Ledger.Advance(time.Hour)
		require.Equal(t, now.Add(time.Hour), fd.Ledger.Now())
		require.Len(t, fd.Ledger.History(flight.MustKey("support/create-ticket/1")), 3)
		fd.Cancel(t, flight.MustKey("support/create-ticket/3"), "not needed")
		require.Equal(t, flight.StateCancelled, fd.Flight(flight.MustKey("support/create-ticket/3")).State)
	})
}

// Everything is closed at the end of a test, whatever its state, without leaked goroutines.
func TestHeal_DeliversEverything(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("healthy", func(t *testing.T) {
		_, err := ticket(t, flightdtest.New(t), "1")
		require.NoError(t, err)
	})
	t.Run("frozen and cut off", func(t *testing.T) {
		fd := flightdtest.New(t)
		_, err := ticket(t, fd, "1")
		require.NoError(t, err)
		fd.Leases.Freeze()
		fd.Ledger.Stall()
	})
}

// A fault injected by Before applies to the command that Before was called for.
func TestBefore_CutsTheLedger(t *testing.T) {
	for name, leave := range map[string]func(*flightdtest.Ledger){"cut": (*flightdtest.Ledger).Cut, "stalled": (*flightdtest.Ledger).Stall} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fd := flightdtest.New(t)
				fd.Ledger.Before(func(c flight.Command) {
					if _, is := c.(*flight.Report); is {
						leave(fd.Ledger)
					}
				})
				_, err := ticket(t, fd, "1")
				var unrecorded *effect.Unrecorded
				require.ErrorAs(t, err, &unrecorded)
				require.Equal(t, flight.StateRunning, fd.Flight(flight.MustKey("support/create-ticket/1")).State)
				fd.Ledger.Heal()
				require.Equal(t, flight.StateSucceeded, fd.Flight(flight.MustKey("support/create-ticket/1")).State)

				fd.Ledger.Before(func(flight.Command) { leave(fd.Ledger) })
				_, err = ticket(t, fd, "2")
				var unavailable *effect.Unavailable
				require.ErrorAs(t, err, &unavailable, "the open")
				fd.Ledger.Before(nil)
				fd.Ledger.Heal()
			})
		})
	}
}

// A report is one command, however long the ledger is unreachable: Before is called for it once.
func TestAReportIsOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd, reports := flightdtest.New(t), 0
		fd.Ledger.Before(func(c flight.Command) {
			if _, is := c.(*flight.Report); is {
				reports++
				fd.Ledger.LoseAnswers(2)
				fd.Ledger.Cut()
				time.AfterFunc(time.Second, fd.Ledger.Heal)
			}
		})
		_, err := ticket(t, fd, "1")
		require.NoError(t, err)
		require.Equal(t, 1, reports)
	})
}

// Where the retention of a receipt is over the answer is that of production: expired, and not the receipt.
func TestRetentionsEnd(t *testing.T) {
	for name, pass := range map[string]func(*flightdtest.Flightd, time.Duration){
		"the ledger's time alone": func(fd *flightdtest.Flightd, d time.Duration) { fd.Ledger.Advance(d) },
		"everybody's time":        func(_ *flightdtest.Flightd, d time.Duration) { time.Sleep(d) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fd := flightdtest.New(t)
				call := effect.Call{Key: flight.MustKey("billing/charge/order-42"),
					Submission: flight.Submission{Policy: flight.Policy{Retention: time.Hour}}}
				charge := func(context.Context, *effect.Attempt) (effect.Answer, error) {
					return effect.Answer{ExternalID: "ch_1"}, nil
				}
				_, err := fd.Do(t.Context(), call, charge)
				require.NoError(t, err)
				pass(fd, time.Hour-time.Millisecond)
				result, err := fd.Do(t.Context(), call, charge)
				require.NoError(t, err)
				require.Equal(t, effect.SourceReplayed, result.Source)
				pass(fd, time.Millisecond)
				_, err = fd.Do(t.Context(), call, mustNotRun(t))
				var expired *effect.Expired
				require.ErrorAs(t, err, &expired)
				require.Equal(t, flight.StateSucceeded, expired.Outcome)
				require.Equal(t, flight.StateExpired, fd.Flight(call.Key).State)
			})
		})
	}
}

// A ledger alone is enough to go on with: the leases that it knows of are those of the flightd before.
func TestTheLedgerOutlivesItsFlightd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.New(t)
		_, err := ticket(t, fd, "1")
		require.NoError(t, err)
		require.NoError(t, fd.Close(t.Context()))

		next := flightdtest.Open(t, flightdtest.Options{Ledger: fd.Ledger})
		result, err := ticket(t, next, "1")
		require.NoError(t, err)
		require.Equal(t, effect.SourceReplayed, result.Source)
		_, err = ticket(t, next, "2")
		require.NoError(t, err)
	})
}

// Somebody on another node works with the same ledger, whatever epoch that is in.
func TestHeldElsewhereInALaterEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.New(t)
		_, err := fd.Ledger.Propose(t.Context(), &flight.RaiseEpoch{From: 1})
		require.NoError(t, err)
		_, err = ticket(t, fd, "1")
		require.NoError(t, err)
		foreign := fd.Leases.ClaimFromOtherNode(t, flight.MustKey("support/create-ticket/2"), "somebody")
		require.EqualValues(t, 2, foreign.Session().Epoch)
	})
}
