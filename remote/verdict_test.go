package remote_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/remote"
)

// openedForVerification returns a first attempt of unknown outcome, and an open under another session that was answered
// verify.
func sentToLook(t *testing.T, fd *flightdtest.Flightd) (a remote.OpenAnswer, req remote.OpenRequest, looks remote.OpenAnswer) {
	t.Helper()
	p := flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}
	a = proceed(t, fd, openOf("1", `{}`, p, 1))
	report(t, fd, a, flight.Unknown, "")
	req = openOf("1", `{}`, p, 2)
	req.Session, req.Wait = sessionOf(t, fd, time.Minute), time.Minute
	return a, req, look(t, fd, req)
}

// openForVerification opens and requires the answer verify.
func look(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) remote.OpenAnswer {
	t.Helper()
	a, err := fd.Remote().Open(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, flight.Look, a.Decision)
	require.NotEmpty(t, a.Probe)
	require.Positive(t, a.Trust)
	return a
}

// verificationOf returns the request with the finding; the open that follows has the given nonce.
func verdictOf(looks remote.OpenAnswer, result flight.Verb, nonce byte) remote.VerdictRequest {
	v := remote.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: result}
	v.Open.Nonce, v.Open.Session, v.Open.Wait = flight.Nonce{nonce}, looks.Session, time.Minute
	return v
}

func TestLookAndVerdict(t *testing.T) {
	for _, ofSession := range []bool{true, false} {
		for _, restart := range []bool{true, false} {
			t.Run(fmt.Sprintf("session=%v restart=%v", ofSession, restart), func(t *testing.T) {
				bubble(t, func(t *testing.T, fd *flightdtest.Flightd) { lookAndVerdict(t, fd, ofSession, restart) })
			})
		}
	}
}

func lookAndVerdict(t *testing.T, fd *flightdtest.Flightd, ofSession, restart bool) {
	p := flight.Policy{Recovery: flight.Verify, AttemptTimeout: 5 * time.Second}
	a := proceed(t, fd, openOf("1", `{"x":1}`, p, 1))
	report(t, fd, a, flight.Unknown, "")
	req := openOf("1", `{"x":1}`, p, 2)
	req.TTL, req.Wait = time.Minute, 5*time.Second
	if ofSession {
		req.Session = sessionOf(t, fd, time.Minute)
	}
	began := time.Now()
	_, err := fd.Remote().Open(t.Context(), req)
	require.False(t, requireAs[*effect.Busy](t, err).Proposed, "the settle delay is not over")
	req.Wait = time.Minute
	looks := look(t, fd, req)
	require.GreaterOrEqual(t, time.Since(began), 20*time.Second)
	require.Equal(t, a.IdempotencyKey, looks.IdempotencyKey)
	require.Equal(t, flight.Unknown, looks.Previous.Outcome)
	require.Equal(t, `{"x":1}`, string(looks.Input.Data))
	require.Zero(t, claimsOf(t, fd), "a look-up needs no claim")
	if restart {
		fd.Leases.Freeze()
		fd = fd.Restart(t, flightdtest.Options{})
	}
	again := look(t, fd, req)
	require.Equal(t, looks.Probe, again.Probe, "its answer was lost")
	require.Equal(t, looks.Session, again.Session)

	_, err = fd.Remote().Verdict(t.Context(), verdictOf(looks, flight.NoVerb, 2))
	require.Equal(t, "nonce", requireAs[*flight.InvalidError](t, err).Field)
	unsure := verdictOf(looks, flight.NoVerb, 3)
	more, err := fd.Remote().Verdict(t.Context(), unsure)
	require.NoError(t, err)
	require.Equal(t, flight.Look, more.Decision)
	require.NotEqual(t, looks.Probe, more.Probe)
	_, err = fd.Remote().Verdict(t.Context(), unsure)
	requireAs[*effect.Fenced](t, err) // an old verification token

	sure := verdictOf(more, flight.DidNotHappen, 4)
	last, err := fd.Remote().Verdict(t.Context(), sure)
	require.NoError(t, err)
	require.Equal(t, flight.Proceed, last.Decision)
	require.Equal(t, `{"x":1}`, string(last.Input.Data))
	require.EqualValues(t, 2, last.Flight.AttemptNumber())
	require.Equal(t, looks.Session, last.Session)
	repeated, err := fd.Remote().Verdict(t.Context(), sure)
	require.NoError(t, err, "its answer was lost")
	require.Equal(t, last.FencingToken, repeated.FencingToken)
	require.Equal(t, flight.StateSucceeded, report(t, fd, last, flight.Succeeded, "ch_1").State)
	over, err := fd.Remote().Verdict(t.Context(), sure)
	require.NoError(t, err)
	require.Equal(t, flight.Replay, over.Decision)
	released(t)
	require.Equal(t, ofSession, contains(fd.Leases.World.Sessions(), looks.Session), "a session for one open has ended")
}

// A one-shot session of a look-up ends with its finding, unless the next attempt is opened under it.
func TestTheSessionOfALookUpAlone(t *testing.T) {
	for _, result := range []flight.Verb{flight.Happened, flight.DidNotHappen} {
		t.Run(result.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				req := openOf("1", `{}`, flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}, 1)
				report(t, fd, proceed(t, fd, req), flight.Unknown, "")
				req.Nonce, req.Wait = flight.Nonce{2}, time.Minute
				looks := look(t, fd, req)
				verdict := remote.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: result, ExternalID: "ch_1", Body: flight.NewBlob("", []byte("found"), 100)}
				after, err := fd.Remote().Verdict(t.Context(), verdict)
				require.NoError(t, err)
				released(t)
				require.NotContains(t, fd.Leases.World.Sessions(), looks.Session)
				if result == flight.DidNotHappen {
					require.Equal(t, flight.Proceed, after.Decision)
					require.Contains(t, fd.Leases.World.Sessions(), after.Session)
					return
				}
				require.Equal(t, flight.Replay, after.Decision)
				require.Equal(t, "ch_1", after.Flight.Receipt.ExternalID)
				require.Zero(t, claimsOf(t, fd))
			})
		})
	}
}

// A caller that abandons its verification lets the next caller verify.
func TestALookUpThatIsAbandoned(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, looks := sentToLook(t, fd)
		other := req
		other.Session, other.Nonce, other.Wait = "", flight.Nonce{3}, 0
		_, err := fd.Remote().Open(t.Context(), other)
		requireAs[*effect.Busy](t, err)
		require.NoError(t, fd.Remote().Abandon(t.Context(), abandonOf(fd, req)))
		require.NoError(t, fd.Remote().CloseSession(t.Context(), req.Session))
		_, err = fd.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		next := look(t, fd, other)
		_, err = fd.Remote().Verdict(t.Context(), verdictOf(looks, flight.DidNotHappen, 4))
		requireAs[*effect.Fenced](t, err)
		require.NoError(t, fd.Remote().Abandon(t.Context(), abandonOf(fd, other)))
		released(t)
		require.NotContains(t, fd.Leases.World.Sessions(), next.Session, "the session was created for the look-up alone")
	})
}

// The session of a verification ends: another caller is answered verify. Until then the first caller's finding counts.
func TestALookUpWhoseSessionEnds(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
			_, req, looks := sentToLook(t, fd)
			fd.Leases.World.Expire(req.Session)
			asleep(t, 3*time.Second)
			_, err := fd.Remote().Open(t.Context(), req)
			requireAs[*effect.LeaseLost](t, err)
			verdict := verdictOf(looks, flight.Happened, 4)
			if late {
				other := req
				other.Session, other.Nonce = "", flight.Nonce{3}
				look(t, fd, other)
				_, err = fd.Remote().Verdict(t.Context(), verdict)
				requireAs[*effect.Fenced](t, err)
				return
			}
			over, err := fd.Remote().Verdict(t.Context(), verdict)
			require.NoError(t, err)
			require.Equal(t, flight.Replay, over.Decision)
		})
	}
}

// A fencing token or a verification token is rejected for another flight, and in place of the other kind; nothing
// changes.
func TestTokensOfAnotherFlight(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}
		a, b := proceed(t, fd, openOf("1", `{}`, p, 1)), proceed(t, fd, openOf("2", `{}`, p, 1))
		report(t, fd, b, flight.Unknown, "")
		req := openOf("2", `{}`, p, 2)
		req.Wait = time.Minute
		looks := look(t, fd, req)
		before := [...]flight.Flight{*fd.Flight(a.Flight.Key), *fd.Flight(b.Flight.Key)}

		report := func(id flight.ID, token string, o flight.Outcome) error {
			_, err := fd.Remote().Report(t.Context(), remote.ReportRequest{ID: id, FencingToken: token, Outcome: o})
			return err
		}
		verdict := func(id flight.ID, probe string, v flight.Verb) error {
			_, err := fd.Remote().Verdict(t.Context(), remote.VerdictRequest{ID: id, Probe: probe, Result: v})
			return err
		}
		for field, err := range map[string][]error{
			"fencing_token": {
				report(a.Flight.ID, b.FencingToken, flight.Succeeded), report(b.Flight.ID, a.FencingToken, flight.Succeeded),
				report(b.Flight.ID, looks.Probe, flight.Succeeded), report(a.Flight.ID, "", flight.Succeeded), report(a.Flight.ID, "x.y", flight.Succeeded),
			},
			"outcome": {report(a.Flight.ID, a.FencingToken, flight.NoOutcome), report(a.Flight.ID, a.FencingToken, 9)},
			"verification": {
				verdict(a.Flight.ID, looks.Probe, flight.Happened), verdict(b.Flight.ID, b.FencingToken, flight.Happened), verdict(b.Flight.ID, "", flight.Happened),
			},
			"result": {verdict(b.Flight.ID, looks.Probe, flight.Fail)},
		} {
			for i, err := range err {
				require.Equal(t, field, requireAs[*flight.InvalidError](t, err).Field, "%d: %v", i, err)
			}
		}
		require.Equal(t, before[0], *fd.Flight(a.Flight.Key))
		require.Equal(t, before[1], *fd.Flight(b.Flight.Key))
	})
}

// A caller that has found the effect at the provider is never answered proceed, even if the flight was decided
// otherwise: by a late report not_done of the attempt, or by a person who freed the key.
func TestVerdict_HappenedNeverActs(t *testing.T) {
	for name, decide := range map[string]func(t *testing.T, fd *flightdtest.Flightd, a remote.OpenAnswer){
		"not done after all": func(t *testing.T, fd *flightdtest.Flightd, a remote.OpenAnswer) {
			require.Equal(t, flight.Queued, report(t, fd, a, flight.NotDone, "").State)
		},
		"freed": func(t *testing.T, fd *flightdtest.Flightd, a remote.OpenAnswer) {
			report(t, fd, a, flight.Succeeded, "ch_1")
			free(t, fd, a.Flight.Key)
		},
	} {
		for _, ofSession := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
					a, _, looks := sentToLook(t, fd)
					decide(t, fd, a)
					verdict := verdictOf(looks, flight.Happened, 3)
					if !ofSession {
						verdict.Open.Session = ""
					}
					answer, err := fd.Remote().Verdict(t.Context(), verdict)
					require.Error(t, err, "%v after the finding happened", answer.Decision)
					requireAs[*effect.Fenced](t, err)
				})
			})
		}
	}
}

func free(t *testing.T, fd *flightdtest.Flightd, key flight.Key) {
	t.Helper()
	_, err := fd.Ledger.Propose(t.Context(), &flight.Free{Key: key, Generation: 1, Who: "test"})
	require.NoError(t, err)
	require.Equal(t, flight.Absent, fd.Flight(key).State)
}

// A caller that found nothing opens nothing if the key was freed meanwhile: its finding is about the earlier
// generation.
func TestVerdict_OpensNoFreedKey(t *testing.T) {
	for _, said := range []flight.Verb{flight.DidNotHappen, flight.NoVerb} {
		t.Run(said.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				a, req, looks := sentToLook(t, fd)
				report(t, fd, a, flight.Succeeded, "ch_1")
				free(t, fd, req.Key)
				answer, err := fd.Remote().Verdict(t.Context(), verdictOf(looks, said, 3))
				require.Error(t, err, "%v, with the input %q", answer.Decision, answer.Input.Data)
				requireAs[*effect.Fenced](t, err)
				require.Equal(t, flight.Absent, fd.Flight(req.Key).State)
			})
		})
	}
}

// A repeated finding does not change the attempt that the first one opened, and a late finding does not change a
// running attempt.
func TestVerdict_RepeatedAndLate(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a, _, looks := sentToLook(t, fd)
		verdict := verdictOf(looks, flight.DidNotHappen, 3)
		first, err := fd.Remote().Verdict(t.Context(), verdict)
		require.NoError(t, err)
		for range 2 {
			again, err := fd.Remote().Verdict(t.Context(), verdict)
			require.NoError(t, err)
			require.Equal(t, first.FencingToken, again.FencingToken)
			require.Equal(t, 1, claimsOf(t, fd))
		}
		report(t, fd, first, flight.NotDone, "")
		acts := proceed(t, fd, openOf("1", `{}`, a.Flight.Policy, 5)) // one shot
		verdict.Open.Nonce, verdict.Open.Wait = flight.Nonce{6}, 0
		_, err = fd.Remote().Verdict(t.Context(), verdict)
		requireAs[*effect.Busy](t, err)
		released(t)
		require.Contains(t, fd.Leases.World.Sessions(), acts.Session)
		require.NotNil(t, fd.Flight(keyOf("1")).OpenAttempt())
	})
}

// A node that does not know the flight yet rejects a finding as unavailable.
func TestVerdict_AtANodeThatKnowsNothing(t *testing.T) {
	twoNodes(t, func(t *testing.T, a *access, here, there *flightdtest.Flightd) {
		a.stopReading()
		_, _, looks := sentToLook(t, there)
		_, err := here.Remote().Verdict(t.Context(), verdictOf(looks, flight.Happened, 3))
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		a.readOn()
		over, err := here.Remote().Verdict(t.Context(), verdictOf(looks, flight.Happened, 3))
		require.NoError(t, err)
		require.Equal(t, flight.Replay, over.Decision)
	})
}

// A node with stale reads continues from the ledger's reply to the finding, not from its own view of an ended
// verification.
func TestVerdict_AtANodeThatLagsBehind(t *testing.T) {
	twoNodes(t, func(t *testing.T, a *access, here, there *flightdtest.Flightd) {
		_, _, looks := sentToLook(t, there)
		a.stopReading()
		verdict := verdictOf(looks, flight.DidNotHappen, 3)
		verdict.Open.Wait = 0
		acts, err := here.Remote().Verdict(t.Context(), verdict)
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, acts.Decision)
		report(t, here, acts, flight.Succeeded, "ch_1")
		require.Zero(t, claimsOf(t, there))
	})
}

// A caller that waits for the next verification counts its trust from when it sent its finding, as after an open.
func TestVerdict_TrustOfCallersThatWaited(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, _, looks := sentToLook(t, fd)
		for i := range 5 {
			sent := time.Now()
			more, err := fd.Remote().Verdict(t.Context(), verdictOf(looks, flight.NoVerb, byte(3+i)))
			require.NoError(t, err)
			require.Equal(t, flight.Look, more.Decision)
			left := time.Until(sent.Add(more.Trust))
			require.LessOrEqual(t, left, 48*time.Second, "never longer than the session's own trust")
			require.Greater(t, left, 28*time.Second, "after %v: a session with less trust is renewed", time.Since(sent))
			looks = more
		}
	})
}

// A caller without a session waits for the settle delay without one, and then gets a fresh session.
func TestLook_WaitsForTheSettleDelayWithoutASession(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.Verify, SettleDelay: 40 * time.Second}
		a := proceed(t, fd, openOf("1", `{}`, p, 1))
		report(t, fd, a, flight.Unknown, "")
		req := openOf("1", `{}`, p, 2)
		req.Wait = 55 * time.Second
		began := time.Now()
		looks := look(t, fd, req)
		require.GreaterOrEqual(t, time.Since(began), 40*time.Second)
		over, err := fd.Remote().Verdict(t.Context(), verdictOf(looks, flight.Happened, 3))
		require.NoError(t, err)
		require.Equal(t, flight.Replay, over.Decision)
		require.Zero(t, claimsOf(t, fd))
	})
}

// The ledger's clock was ahead, so its settle delay is over at once; this node waits by its own clock. The session of
// the verification lives meanwhile.
func TestHazard25_TheSettleDelayByThisNodesClock(t *testing.T) {
	twoNodes(t, func(t *testing.T, a *access, here, there *flightdtest.Flightd) {
		a.stopReading() // this node learns of the verification from the reply to its own Open
		p := flight.Policy{Recovery: flight.Verify, SettleDelay: 40 * time.Second}
		first := proceed(t, there, openOf("1", `{}`, p, 1))
		report(t, there, first, flight.Unknown, "")
		there.Ledger.Advance(time.Minute)
		for i, at := range []*flightdtest.Flightd{there, here} {
			req := openOf("1", `{}`, p, byte(2+i))
			req.Wait = 55 * time.Second
			began := time.Now()
			looks := look(t, at, req)
			require.GreaterOrEqual(t, time.Since(began), 39*time.Second)
			require.NoError(t, at.Remote().Abandon(t.Context(), abandonOf(at, req)))
			require.NotEmpty(t, looks.Session)
			synctest.Wait()
		}
	})
}

// A caller that waits for another caller's verification is answered with the state verifying.
func TestLook_WaitsForALooker(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, _ := sentToLook(t, fd)
		defer keepRenewed(t, fd, req.Session)()
		other := req
		other.Session, other.Nonce, other.Wait = "", flight.Nonce{3}, 20*time.Second
		began := time.Now()
		_, err := fd.Remote().Open(t.Context(), other)
		require.False(t, requireAs[*effect.Busy](t, err).Proposed)
		require.Equal(t, other.Wait, time.Since(began))
	})
}
