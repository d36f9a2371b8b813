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

// A start with a wall clock that is ahead ends the time of no holder: each keeps what was left of its time when the ledger
// stopped.
func TestHazard25_StepEndsNoHolder(t *testing.T) {
	timed := func(r flight.Recovery) flight.Policy {
		return flight.Policy{Recovery: r, AttemptTimeout: time.Minute, SettleDelay: time.Minute}
	}
	wakeUp := func(*Store) flight.Command { return &flight.WakeUp{Key: testKey(1), Generation: 1} }
	openAgain := func(r flight.Recovery) func(s *Store) flight.Command {
		return func(s *Store) flight.Command {
			o := openOf(s, testKey(1), 1)
			o.Nonce, o.Submission.Policy, o.Session = nonce(int(s.Now())), timed(r), sessionOf(s, "second")
			return o
		}
	}
	for name, c := range map[string]struct {
		hold    func(t *testing.T, s *Store)       // gives the key, or a session, to a holder
		end     func(s *Store) flight.Command      // ends its time when that is over
		early   flight.Decision                    // answer to end before
		over    flight.Decision                    // answer to end afterwards
		settled func(f *flight.Flight) (same bool) // the flight is as hold has left it
	}{
		"attempt under hold": {
			hold:  func(t *testing.T, s *Store) { openUnder(t, s, 1, "first", timed(flight.RecoveryHold)) },
			end:   wakeUp,
			early: flight.DecisionBusy, over: flight.DecisionInDoubt,
			settled: func(f *flight.Flight) bool { return f.State == flight.StateRunning && f.AttemptCount == 1 },
		},
		"attempt under resend": {
			hold:  func(t *testing.T, s *Store) { openUnder(t, s, 1, "first", timed(flight.RecoveryResend)) },
			end:   openAgain(flight.RecoveryResend),
			early: flight.DecisionBusy, over: flight.DecisionProceed,
			settled: func(f *flight.Flight) bool { return f.State == flight.StateRunning && f.AttemptCount == 1 },
		},
		"callback": {
			hold: func(t *testing.T, s *Store) {
				opened := openUnder(t, s, 1, "first", timed(flight.RecoveryHold))
				propose(t, s, &flight.Suspend{Key: testKey(1), Generation: 1, Token: opened.Token, Wake: flight.Wake{At: s.Now().Add(time.Minute), Callback: true}})
			},
			end:   wakeUp,
			early: flight.DecisionBusy, over: flight.DecisionInDoubt,
			settled: func(f *flight.Flight) bool { return f.State == flight.StateWaiting },
		},
		"settle delay": {
			hold: func(t *testing.T, s *Store) {
				openUnder(t, s, 1, "first", timed(flight.RecoveryVerify))
				propose(t, s, endedOf(s, "first"))
			},
			end:   openAgain(flight.RecoveryVerify),
			early: flight.DecisionBusy, over: flight.DecisionVerify,
			settled: func(f *flight.Flight) bool { return f.Verification.Nonce == flight.Nonce{} },
		},
		"lease epoch": {
			hold: func(t *testing.T, s *Store) {
				openUnder(t, s, 1, "first", flight.Policy{})
				propose(t, s, &flight.RaiseEpoch{From: 1, Hold: time.Minute})
			},
			end: func(s *Store) flight.Command {
				return &flight.EndSession{Session: flight.Session{ID: "first", Revision: 7, Epoch: 1}, ReadRevision: 9, Epoch: 2, StoreEpoch: 1}
			},
			early: flight.DecisionFenced, over: flight.DecisionAccepted,
			settled: func(f *flight.Flight) bool { return f.State == flight.StateRunning },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &fakeClock{wall: time.UnixMilli(1_700_000_000_000)}
				cfg := memConfig(vfs.NewMem())
				cfg.Clock = l.clock()
				s, err := Open(context.Background(), cfg)
				require.NoError(t, err)
				c.hold(t, s)
				requireHeld := func(when string) {
					t.Helper()
					require.Equal(t, c.early, propose(t, s, c.end(s)).Decision, when)
					f, err := s.Flight(testKey(1).FlightID())
					require.NoError(t, err)
					require.True(t, c.settled(f), when)
				}
				for range 2 { // the second step is beside a flight that was stored before the first one
					require.NoError(t, s.Close(context.Background()))
					l.wall = l.wall.Add(24 * time.Hour)
					s, err = Open(context.Background(), cfg)
					require.NoError(t, err)
					require.Equal(t, flight.Time(l.wall.UnixMilli()), s.Now(), "the clock has stepped")
					requireHeld("after the step")
					l.advance(20 * time.Second)
					requireHeld("a moment later")
				}
				l.advance(time.Minute)
				require.Equal(t, c.over, propose(t, s, c.end(s)).Decision, "its time is over")
				require.NoError(t, s.Close(context.Background()))
			})
		})
	}
}
