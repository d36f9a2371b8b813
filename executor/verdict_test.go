package executor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// Whoever has seen the effect at the provider is not told to act, whatever was decided meanwhile by other words: not where
// the attempt itself said late that it had done nothing, and not where a person gave the key away.
func TestVerdict_WhoHasSeenTheEffectDoesNotAct(t *testing.T) {
	for name, decide := range map[string]func(t *testing.T, fd *flightdtest.Flightd, a executor.OpenAnswer){
		"not done after all": func(t *testing.T, fd *flightdtest.Flightd, a executor.OpenAnswer) {
			_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.NotDone, ""))
			require.NoError(t, err)
			require.Equal(t, flight.Queued, fd.Flight(a.Flight.Key).State)
		},
		"freed": func(t *testing.T, fd *flightdtest.Flightd, a executor.OpenAnswer) {
			_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
			require.NoError(t, err)
			_, err = fd.Ledger.Propose(t.Context(), &flight.Free{Key: a.Flight.Key, Generation: 1, Who: "test"})
			require.NoError(t, err)
			require.Equal(t, flight.Absent, fd.Flight(a.Flight.Key).State)
		},
	} {
		for _, ofSession := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
					a, req, looks := sentToLook(t, fd)
					decide(t, fd, a)
					verdict := executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.Happened, ExternalID: "ch_1"}
					verdict.Open.Nonce = flight.Nonce{3}
					if ofSession {
						verdict.Open.Session = req.Session
					}
					answer, err := fd.Desk().Verdict(t.Context(), verdict)
					require.Error(t, err, "%v after it happened", answer.Decision)
					requireAs[*effect.Fenced](t, err)
				})
			})
		}
	}
}

// Nor does whoever has not seen it, where the key was freed meanwhile: its verdict is about what was before, and says nothing of
// what the next caller wants.
func TestVerdict_OpensNoFreedKey(t *testing.T) {
	for _, said := range []flight.Verb{flight.DidNotHappen, flight.NoVerb} {
		t.Run(said.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				a, req, looks := sentToLook(t, fd)
				_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
				require.NoError(t, err)
				_, err = fd.Ledger.Propose(t.Context(), &flight.Free{Key: req.Key, Generation: 1, Who: "test"})
				require.NoError(t, err)
				answer, err := fd.Desk().Verdict(t.Context(), executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: said, Open: req})
				require.Error(t, err, "%v, with the input %q", answer.Decision, answer.Input.Data)
				requireAs[*effect.Fenced](t, err)
				require.Equal(t, flight.Absent, fd.Flight(req.Key).State)
			})
		})
	}
}

// A caller that was kept waiting for the next look counts its trust from when it sent its verdict, as after an open.
func TestVerdict_TrustOfThoseWhoWaited(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, looks := sentToLook(t, fd)
		verdict := executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.NoVerb, Open: req}
		for range 5 {
			sent := time.Now()
			more, err := fd.Desk().Verdict(t.Context(), verdict)
			require.NoError(t, err)
			require.Equal(t, flight.Look, more.Decision)
			left := time.Until(sent.Add(more.Trust))
			require.LessOrEqual(t, left, 48*time.Second, "never longer than the session's own trust")
			require.Greater(t, left, 28*time.Second, "after %v: less would have been renewed", time.Since(sent))
			verdict.Probe = more.Probe
		}
	})
}

// A caller that brought no session has none to lose, however long it waits for the moment to look: the one that was made
// for its open lives as long as it waits.
func TestLook_ASessionOfItsOwnOutlivesTheSettleDelay(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.Verify, SettleDelay: 40 * time.Second}
		a := proceed(t, fd, openOf("1", `{}`, p, 1))
		_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
		require.NoError(t, err)
		req := openOf("1", `{}`, p, 2)
		req.Wait = 55 * time.Second
		looks, err := fd.Desk().Open(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, flight.Look, looks.Decision)
		require.Positive(t, looks.Trust)
		over, err := fd.Desk().Verdict(t.Context(), executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.Happened, ExternalID: "ch_1"})
		require.NoError(t, err)
		require.Equal(t, flight.Replay, over.Decision)
		require.Zero(t, claimsOf(t, fd))
	})
}

// Whoever waits while somebody else looks, for longer than a session lives that nobody renews, is told just that.
func TestLook_WhoWaitsForALookerIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, _ := sentToLook(t, fd)
		other := req
		other.Session, other.Nonce, other.Wait = "", flight.Nonce{3}, 50*time.Second
		began := time.Now()
		_, err := fd.Desk().Open(t.Context(), other)
		requireAs[*effect.Busy](t, err)
		require.Equal(t, other.Wait, time.Since(began))
	})
}
