package remote_test

import (
	"fmt"
	"slices"
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
func openedForVerification(t *testing.T, fd *flightdtest.Flightd) (a remote.OpenAnswer, req remote.OpenRequest, looks remote.OpenAnswer) {
	t.Helper()
	p := flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Second}
	a = proceed(t, fd, openOf("1", `{}`, p, 1))
	report(t, fd, a, flight.OutcomeUnknown, "")
	req = openOf("1", `{}`, p, 2)
	req.Session, req.Wait = sessionOf(t, fd, time.Minute), time.Minute
	return a, req, openForVerification(t, fd, req)
}

// openForVerification opens and requires the answer verify.
func openForVerification(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) remote.OpenAnswer {
	t.Helper()
	a, err := fd.Remote().Open(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, flight.DecisionVerify, a.Decision)
	require.NotEmpty(t, a.Verification)
	require.Positive(t, a.Trust)
	return a
}

// verificationOf returns the request with the finding; the open that follows has the given nonce.
func verificationOf(looks remote.OpenAnswer, result flight.Finding, nonce byte) remote.VerificationRequest {
	v := remote.VerificationRequest{ID: looks.Flight.ID, Verification: looks.Verification, Result: result}
	v.Open.Nonce, v.Open.Session, v.Open.Wait = flight.Nonce{nonce}, looks.Session, time.Minute
	return v
}

func TestLookUpAndVerify(t *testing.T) {
	for _, ofSession := range []bool{true, false} {
		for _, restart := range []bool{true, false} {
			t.Run(fmt.Sprintf("session=%v restart=%v", ofSession, restart), func(t *testing.T) {
				bubble(t, func(t *testing.T, fd *flightdtest.Flightd) { lookUpAndVerify(t, fd, ofSession, restart) })
			})
		}
	}
}

func lookUpAndVerify(t *testing.T, fd *flightdtest.Flightd, ofSession, restart bool) {
	p := flight.Policy{Recovery: flight.RecoveryVerify, AttemptTimeout: 5 * time.Second}
	a := proceed(t, fd, openOf("1", `{"x":1}`, p, 1))
	report(t, fd, a, flight.OutcomeUnknown, "")
	req := openOf("1", `{"x":1}`, p, 2)
	req.TTL, req.Wait = time.Minute, 5*time.Second
	if ofSession {
		req.Session = sessionOf(t, fd, time.Minute)
	}
	began := time.Now()
	_, err := fd.Remote().Open(t.Context(), req)
	require.False(t, requireAs[*effect.Busy](t, err).Proposed, "the settle delay is not over")
	req.Wait = time.Minute
	looks := openForVerification(t, fd, req)
	require.GreaterOrEqual(t, time.Since(began), 20*time.Second)
	require.Equal(t, a.IdempotencyKey, looks.IdempotencyKey)
	require.Equal(t, flight.OutcomeUnknown, looks.Previous.Outcome)
	require.Equal(t, `{"x":1}`, string(looks.Input.Data))
	require.Zero(t, claimsOf(t, fd), "a look-up needs no claim")
	if restart {
		fd.Leases.Freeze()
		fd = fd.Restart(t, flightdtest.Options{})
	}
	again := openForVerification(t, fd, req)
	require.Equal(t, looks.Verification, again.Verification, "its answer was lost")
	require.Equal(t, looks.Session, again.Session)

	_, err = fd.Remote().Verify(t.Context(), verificationOf(looks, flight.FindingNone, 2))
	require.Equal(t, "nonce", requireAs[*flight.InvalidError](t, err).Field)
	unsure := verificationOf(looks, flight.FindingNone, 3)
	more, err := fd.Remote().Verify(t.Context(), unsure)
	require.NoError(t, err)
	require.Equal(t, flight.DecisionVerify, more.Decision)
	require.NotEqual(t, looks.Verification, more.Verification)
	_, err = fd.Remote().Verify(t.Context(), unsure)
	requireAs[*effect.Fenced](t, err) // an old verification token

	sure := verificationOf(more, flight.FindingNotHappened, 4)
	last, err := fd.Remote().Verify(t.Context(), sure)
	require.NoError(t, err)
	require.Equal(t, flight.DecisionProceed, last.Decision)
	require.Equal(t, `{"x":1}`, string(last.Input.Data))
	require.EqualValues(t, 2, last.Flight.AttemptNumber())
	require.Equal(t, looks.Session, last.Session)
	repeated, err := fd.Remote().Verify(t.Context(), sure)
	require.NoError(t, err, "its answer was lost")
	require.Equal(t, last.FencingToken, repeated.FencingToken)
	require.Equal(t, flight.StateSucceeded, report(t, fd, last, flight.OutcomeSucceeded, "ch_1").State)
	over, err := fd.Remote().Verify(t.Context(), sure)
	require.NoError(t, err)
	require.Equal(t, flight.DecisionReplay, over.Decision)
	waitForReleases(t)
	require.Equal(t, ofSession, slices.Contains(fd.Leases.Etcd.Sessions(), looks.Session), "a session for one open has ended")
}

// A one-shot session of a look-up ends with its finding, unless the next attempt is opened under it.
func TestTheSessionOfALookUpAlone(t *testing.T) {
	for _, result := range []flight.Finding{flight.FindingHappened, flight.FindingNotHappened} {
		t.Run(result.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				req := openOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Second}, 1)
				report(t, fd, proceed(t, fd, req), flight.OutcomeUnknown, "")
				req.Nonce, req.Wait = flight.Nonce{2}, time.Minute
				looks := openForVerification(t, fd, req)
				verification := remote.VerificationRequest{ID: looks.Flight.ID, Verification: looks.Verification, Result: result, ExternalID: "ch_1", Body: flight.NewBlob("", []byte("found"), 100)}
				after, err := fd.Remote().Verify(t.Context(), verification)
				require.NoError(t, err)
				waitForReleases(t)
				require.NotContains(t, fd.Leases.Etcd.Sessions(), looks.Session)
				if result == flight.FindingNotHappened {
					require.Equal(t, flight.DecisionProceed, after.Decision)
					require.Contains(t, fd.Leases.Etcd.Sessions(), after.Session)
					return
				}
				require.Equal(t, flight.DecisionReplay, after.Decision)
				require.Equal(t, "ch_1", after.Flight.Receipt.ExternalID)
				require.Zero(t, claimsOf(t, fd))
			})
		})
	}
}

// A caller that abandons its verification lets the next caller verify.
func TestALookUpThatIsAbandoned(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, looks := openedForVerification(t, fd)
		other := req
		other.Session, other.Nonce, other.Wait = "", flight.Nonce{3}, 0
		_, err := fd.Remote().Open(t.Context(), other)
		requireAs[*effect.Busy](t, err)
		require.NoError(t, fd.Remote().Abandon(t.Context(), abandonOf(fd, req)))
		require.NoError(t, fd.Remote().CloseSession(t.Context(), req.Session))
		_, err = fd.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		next := openForVerification(t, fd, other)
		_, err = fd.Remote().Verify(t.Context(), verificationOf(looks, flight.FindingNotHappened, 4))
		requireAs[*effect.Fenced](t, err)
		require.NoError(t, fd.Remote().Abandon(t.Context(), abandonOf(fd, other)))
		waitForReleases(t)
		require.NotContains(t, fd.Leases.Etcd.Sessions(), next.Session, "the session was created for the look-up alone")
	})
}

// The session of a verification ends: another caller is answered verify. Until then the first caller's finding counts.
func TestALookUpWhoseSessionEnds(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
			_, req, looks := openedForVerification(t, fd)
			fd.Leases.Etcd.Expire(req.Session)
			sleep(t, 3*time.Second)
			_, err := fd.Remote().Open(t.Context(), req)
			requireAs[*effect.LeaseLost](t, err)
			verification := verificationOf(looks, flight.FindingHappened, 4)
			if late {
				other := req
				other.Session, other.Nonce = "", flight.Nonce{3}
				openForVerification(t, fd, other)
				_, err = fd.Remote().Verify(t.Context(), verification)
				requireAs[*effect.Fenced](t, err)
				return
			}
			over, err := fd.Remote().Verify(t.Context(), verification)
			require.NoError(t, err)
			require.Equal(t, flight.DecisionReplay, over.Decision)
		})
	}
}

// A fencing token or a verification token is rejected for another flight, and in place of the other kind; nothing
// changes.
func TestTokensOfAnotherFlight(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Second}
		a, b := proceed(t, fd, openOf("1", `{}`, p, 1)), proceed(t, fd, openOf("2", `{}`, p, 1))
		report(t, fd, b, flight.OutcomeUnknown, "")
		req := openOf("2", `{}`, p, 2)
		req.Wait = time.Minute
		looks := openForVerification(t, fd, req)
		before := [...]flight.Flight{*fd.Flight(a.Flight.Key), *fd.Flight(b.Flight.Key)}

		report := func(id flight.ID, token string, o flight.Outcome) error {
			_, err := fd.Remote().Report(t.Context(), remote.ReportRequest{ID: id, FencingToken: token, Outcome: o})
			return err
		}
		verification := func(id flight.ID, probe string, v flight.Finding) error {
			_, err := fd.Remote().Verify(t.Context(), remote.VerificationRequest{ID: id, Verification: probe, Result: v})
			return err
		}
		for field, err := range map[string][]error{
			"fencing_token": {
				report(a.Flight.ID, b.FencingToken, flight.OutcomeSucceeded), report(b.Flight.ID, a.FencingToken, flight.OutcomeSucceeded),
				report(b.Flight.ID, looks.Verification, flight.OutcomeSucceeded), report(a.Flight.ID, "", flight.OutcomeSucceeded), report(a.Flight.ID, "x.y", flight.OutcomeSucceeded),
			},
			"outcome": {report(a.Flight.ID, a.FencingToken, flight.OutcomeNone), report(a.Flight.ID, a.FencingToken, 9)},
			"verification": {
				verification(a.Flight.ID, looks.Verification, flight.FindingHappened), verification(b.Flight.ID, b.FencingToken, flight.FindingHappened), verification(b.Flight.ID, "", flight.FindingHappened),
			},
			"result": {verification(b.Flight.ID, looks.Verification, flight.FindingFail)},
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
func TestVerify_HappenedNeverActs(t *testing.T) {
	for name, decide := range map[string]func(t *testing.T, fd *flightdtest.Flightd, a remote.OpenAnswer){
		"not done after all": func(t *testing.T, fd *flightdtest.Flightd, a remote.OpenAnswer) {
			require.Equal(t, flight.StateReady, report(t, fd, a, flight.OutcomeNotDone, "").State)
		},
		"freed": func(t *testing.T, fd *flightdtest.Flightd, a remote.OpenAnswer) {
			report(t, fd, a, flight.OutcomeSucceeded, "ch_1")
			freeKey(t, fd, a.Flight.Key)
		},
	} {
		for _, ofSession := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
					a, _, looks := openedForVerification(t, fd)
					decide(t, fd, a)
					verification := verificationOf(looks, flight.FindingHappened, 3)
					if !ofSession {
						verification.Open.Session = ""
					}
					answer, err := fd.Remote().Verify(t.Context(), verification)
					require.Error(t, err, "%v after the finding happened", answer.Decision)
					requireAs[*effect.Fenced](t, err)
				})
			})
		}
	}
}

func freeKey(t *testing.T, fd *flightdtest.Flightd, key flight.Key) {
	t.Helper()
	_, err := fd.Ledger.Propose(t.Context(), &flight.FreeKey{Key: key, Generation: 1, Actor: "test"})
	require.NoError(t, err)
	require.Equal(t, flight.StateAbsent, fd.Flight(key).State)
}

// A caller that found nothing opens nothing if the key was freed meanwhile: its finding is about the earlier
// generation.
func TestVerify_FreedKeyIsNotOpened(t *testing.T) {
	for _, said := range []flight.Finding{flight.FindingNotHappened, flight.FindingNone} {
		t.Run(said.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				a, req, looks := openedForVerification(t, fd)
				report(t, fd, a, flight.OutcomeSucceeded, "ch_1")
				freeKey(t, fd, req.Key)
				answer, err := fd.Remote().Verify(t.Context(), verificationOf(looks, said, 3))
				require.Error(t, err, "%v, with the input %q", answer.Decision, answer.Input.Data)
				requireAs[*effect.Fenced](t, err)
				require.Equal(t, flight.StateAbsent, fd.Flight(req.Key).State)
			})
		})
	}
}

// A late finding does not change a running attempt.
func TestVerify_Late(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a, _, looks := openedForVerification(t, fd)
		verification := verificationOf(looks, flight.FindingNotHappened, 3)
		first, err := fd.Remote().Verify(t.Context(), verification)
		require.NoError(t, err)
		report(t, fd, first, flight.OutcomeNotDone, "")
		acts := proceed(t, fd, openOf("1", `{}`, a.Flight.Policy, 5)) // one shot
		verification.Open.Nonce, verification.Open.Wait = flight.Nonce{6}, 0
		_, err = fd.Remote().Verify(t.Context(), verification)
		requireAs[*effect.Busy](t, err)
		waitForReleases(t)
		require.Contains(t, fd.Leases.Etcd.Sessions(), acts.Session)
		require.NotNil(t, fd.Flight(keyOf("1")).OpenAttempt())
	})
}

// A node that does not know the flight yet rejects a finding as unavailable.
func TestVerify_UnknownFlight(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		a.stopReading()
		_, _, looks := openedForVerification(t, there)
		_, err := here.Remote().Verify(t.Context(), verificationOf(looks, flight.FindingHappened, 3))
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		a.resumeReading()
		over, err := here.Remote().Verify(t.Context(), verificationOf(looks, flight.FindingHappened, 3))
		require.NoError(t, err)
		require.Equal(t, flight.DecisionReplay, over.Decision)
	})
}

// A node with stale reads continues from the ledger's reply to the finding, not from its own view of an ended
// verification.
func TestVerify_StaleNode(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		_, _, looks := openedForVerification(t, there)
		a.stopReading()
		verification := verificationOf(looks, flight.FindingNotHappened, 3)
		verification.Open.Wait = 0
		acts, err := here.Remote().Verify(t.Context(), verification)
		require.NoError(t, err)
		require.Equal(t, flight.DecisionProceed, acts.Decision)
		report(t, here, acts, flight.OutcomeSucceeded, "ch_1")
		require.Zero(t, claimsOf(t, there))
	})
}

// A caller without a session waits for the settle delay without one, and then gets a fresh session.
func TestDecisionVerify_WaitsForTheSettleDelayWithoutASession(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: 40 * time.Second}
		a := proceed(t, fd, openOf("1", `{}`, p, 1))
		report(t, fd, a, flight.OutcomeUnknown, "")
		req := openOf("1", `{}`, p, 2)
		req.Wait = 55 * time.Second
		began := time.Now()
		looks := openForVerification(t, fd, req)
		require.GreaterOrEqual(t, time.Since(began), 40*time.Second)
		over, err := fd.Remote().Verify(t.Context(), verificationOf(looks, flight.FindingHappened, 3))
		require.NoError(t, err)
		require.Equal(t, flight.DecisionReplay, over.Decision)
		require.Zero(t, claimsOf(t, fd))
	})
}

// The ledger's clock was ahead, so its settle delay is over at once; this node waits by its own clock. The session of
// the verification lives meanwhile.
func TestHazard25_TheSettleDelayByThisNodesClock(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		a.stopReading() // this node learns of the verification from the reply to its own Open
		p := flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: 40 * time.Second}
		first := proceed(t, there, openOf("1", `{}`, p, 1))
		report(t, there, first, flight.OutcomeUnknown, "")
		there.Ledger.Advance(time.Minute)
		for i, at := range []*flightdtest.Flightd{there, here} {
			req := openOf("1", `{}`, p, byte(2+i))
			req.Wait = 55 * time.Second
			began := time.Now()
			looks := openForVerification(t, at, req)
			require.GreaterOrEqual(t, time.Since(began), 39*time.Second)
			require.NoError(t, at.Remote().Abandon(t.Context(), abandonOf(at, req)))
			require.NotEmpty(t, looks.Session)
			synctest.Wait()
		}
	})
}
