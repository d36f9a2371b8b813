package executor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

func openOf(id, input string, p flight.Policy, nonce byte) executor.OpenRequest {
	call := callOf(id, input, p)
	return executor.OpenRequest{Key: call.Key, Submission: call.Submission, Nonce: flight.Nonce{nonce}, Owner: "caller"}
}

func reportOf(a executor.OpenAnswer, o flight.Outcome, id string) executor.ReportRequest {
	return executor.ReportRequest{ID: a.Flight.ID, FencingToken: a.FencingToken, Outcome: o, ExternalID: id,
		Body: flight.NewBlob("", []byte(id), flight.MaxReceiptBody)}
}

func session(t *testing.T, fd *flightdtest.Flightd) flight.SessionID {
	t.Helper()
	s, err := fd.Desk().NewSession(t.Context(), 0, "caller")
	require.NoError(t, err)
	require.Positive(t, s.Trust)
	require.Equal(t, 5*time.Second, s.RenewEvery)
	return s.Session
}

func TestDeskOpenActReport(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{"amount":42}`, flight.Policy{}, 1)
		a := proceed(t, fd, req)
		require.Len(t, a.IdempotencyKey, 64)
		require.Equal(t, `{"amount":42}`, string(a.Input.Data))
		require.Equal(t, 5*time.Second, a.RenewEvery)
		require.False(t, a.PolicyDiffers)
		require.Nil(t, a.Previous)
		f, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		synctest.Wait()
		require.NotContains(t, fd.Leases.World.Sessions(), a.Session, "a session for one flight ends with its report")

		req.Nonce, req.Submission.Policy.Recovery = flight.Nonce{2}, flight.Resend
		again, err := fd.Desk().Open(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, flight.Replay, again.Decision)
		require.Equal(t, "ch_1", again.Flight.Receipt.ExternalID)
		require.True(t, again.PolicyDiffers)
		require.False(t, again.Joined)

		_, err = fd.Desk().Open(t.Context(), openOf("1", `{"amount":43}`, flight.Policy{}, 3))
		require.Equal(t, []string{"/amount"}, requireAs[*effect.Conflict](t, err).Fields)
		f, err = fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
		require.NoError(t, err, "the same report twice")
		require.Equal(t, flight.StateSucceeded, f.State)
		_, err = fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_2"))
		requireAs[*effect.Fenced](t, err)
		require.True(t, fd.Flight(req.Key).Overlap)
	})
}

// A lost answer to an open costs nothing: the same session and nonce get the same answer.
func TestHazard10_DeskRepeats(t *testing.T) {
	for name, ofSession := range map[string]bool{"session": true, "one shot": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				req := openOf("1", `{}`, flight.Policy{}, 1)
				if ofSession {
					req.Session = session(t, fd)
				}
				fd.Ledger.LoseAnswers(2)
				a := proceed(t, fd, req)
				b := proceed(t, fd, req)
				require.Equal(t, a.FencingToken, b.FencingToken)
				require.Equal(t, a.Session, b.Session)
				require.EqualValues(t, 1, b.Flight.AttemptCount)
				c := proceed(t, fd.Restart(t, flightdtest.Options{}), req)
				require.Equal(t, a.FencingToken, c.FencingToken)
				_, err := fd.Desk().Report(t.Context(), reportOf(c, flight.NotDone, ""))
				require.NoError(t, err)
				_, err = fd.Desk().Open(t.Context(), req)
				requireAs[*effect.Fenced](t, err) // that nonce has had its attempt
				req.Nonce = flight.Nonce{2}
				d := proceed(t, fd, req)
				require.EqualValues(t, 1, d.Previous.Number)
				require.Equal(t, flight.NotDone, d.Previous.Outcome)
			})
		})
	}
}

// The connection is cut while the open is under way: the attempt that it opens is there when the caller comes back.
func TestHazard08_DeskCallerGoesInMidOpen(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		for i, point := range []string{"after-claim", "after-open"} {
			ctx, cut := context.WithCancel(t.Context())
			other := fd.Restart(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
				cfg.Crash = func(p string) {
					if p == point {
						cut()
					}
				}
			}})
			req := openOf(fmt.Sprint(i), `{}`, flight.Policy{}, 1)
			_, _ = other.Desk().Open(ctx, req)
			asleep(t, 100*time.Millisecond)
			a := proceed(t, other, req)
			require.EqualValues(t, 1, a.Flight.AttemptCount)
			asleep(t, 10*time.Second)
			require.Equal(t, flight.Running, fd.Flight(req.Key).State, "its claim stands")
			_, err := other.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
			require.NoError(t, err)
		}
	})
}

// A caller without a nonce of its own cannot come back: what was opened for one that has gone is given up, and leaves neither a
// doubt nor a key that waits for the end of its session.
func TestDeskCallerGoesThatCannotComeBack(t *testing.T) {
	for name, ofSession := range map[string]bool{"session": true, "one shot": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				ctx, cut := context.WithCancel(t.Context())
				other := fd.Restart(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
					cfg.Crash = func(p string) {
						if p == "after-open" {
							cut()
						}
					}
				}})
				req := openOf("1", `{}`, flight.Policy{}, 1)
				req.Nonce = executor.UnnamedNonce()
				if ofSession {
					req.Session = session(t, other)
				}
				answer, err := other.Desk().Open(ctx, req)
				require.ErrorIs(t, err, context.Canceled, "%v", answer.Decision)
				released(t)
				require.Equal(t, flight.Queued, fd.Flight(req.Key).State)
				require.Zero(t, claimsOf(t, fd))
				asleep(t, time.Minute)
				require.False(t, fd.Flight(req.Key).Tainted())
				proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 2))
			})
		})
	}
}

func TestDeskOneProceedsOthersReplay(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		answers := make(chan executor.OpenAnswer, 100)
		for i := range 100 {
			go func() {
				req := openOf("1", `{}`, flight.Policy{}, byte(i+1))
				req.Wait = time.Minute
				a, err := fd.Desk().Open(t.Context(), req)
				require.NoError(t, err)
				answers <- a
			}()
		}
		first := <-answers
		require.Equal(t, flight.Proceed, first.Decision)
		synctest.Wait()
		require.Empty(t, answers)
		_, err := fd.Desk().Report(t.Context(), reportOf(first, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		for range 99 {
			a := <-answers
			require.Equal(t, flight.Replay, a.Decision)
			require.Equal(t, "ch_1", a.Flight.Receipt.ExternalID)
		}
		require.EqualValues(t, 1, fd.Flight(keyOf("1")).AttemptCount)
		synctest.Wait()
		require.Less(t, len(fd.Leases.World.Sessions()), 20, "sessions: this process, the pool; none left over")
	})
}

func TestDeskBusy(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		proceed(t, fd, openOf("1", `{"a":1}`, flight.Policy{}, 1))
		for _, wait := range []time.Duration{0, 5 * time.Second} {
			req := openOf("1", `{"a":1}`, flight.Policy{}, 2)
			req.Wait = wait
			began := time.Now()
			_, err := fd.Desk().Open(t.Context(), req)
			busy := requireAs[*effect.Busy](t, err)
			require.Equal(t, flight.Running, busy.State)
			require.Equal(t, wait, time.Since(began))
		}
		req := openOf("1", `{"a":2}`, flight.Policy{}, 3)
		req.Wait = time.Minute
		began := time.Now()
		_, err := fd.Desk().Open(t.Context(), req)
		requireAs[*effect.Conflict](t, err)
		require.Zero(t, time.Since(began), "a mistake is told at once, whoever runs")
	})
}

// Two openers with different inputs come at the same time.
func TestHazard30_DeskConflictWhileTheFirstOpens(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		ends := make(chan error, 2)
		for i := range 2 {
			go func() {
				req := openOf("1", fmt.Sprintf(`{"a":%d}`, i), flight.Policy{}, byte(i+1))
				req.Wait = time.Minute
				_, err := fd.Desk().Open(t.Context(), req)
				ends <- err
			}()
		}
		began := time.Now()
		requireAs[*effect.Conflict](t, errors.Join(<-ends, <-ends))
		require.Less(t, time.Since(began), time.Second)
	})
}

func TestDeskLookAndVerdict(t *testing.T) {
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
	_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
	require.NoError(t, err)

	req := openOf("1", `{"x":1}`, p, 2)
	req.TTL = time.Minute
	req.Wait = 5 * time.Second
	if ofSession {
		req.Session = sessionOf(t, fd, time.Minute)
	}
	began := time.Now()
	_, err = fd.Desk().Open(t.Context(), req)
	requireAs[*effect.Busy](t, err) // the settle delay is not over
	req.Wait = time.Minute
	looks, err := fd.Desk().Open(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, flight.Look, looks.Decision)
	require.GreaterOrEqual(t, time.Since(began), 20*time.Second)
	require.NotEmpty(t, looks.Probe)
	require.Equal(t, a.IdempotencyKey, looks.IdempotencyKey)
	require.Equal(t, flight.Unknown, looks.Previous.Outcome)
	require.Equal(t, `{"x":1}`, string(looks.Input.Data))

	if ofSession {
		again, err := fd.Desk().Open(t.Context(), req)
		require.NoError(t, err, "its answer was lost: the same session is told again")
		require.Equal(t, looks.Probe, again.Probe)
	}
	if restart {
		fd.Leases.Freeze()
		fd = fd.Restart(t, flightdtest.Options{})
	}
	verdict := executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.NoVerb, Open: req}
	verdict.Open.Wait = time.Minute
	verdict.Open.Session = looks.Session
	more, err := fd.Desk().Verdict(t.Context(), verdict)
	require.NoError(t, err)
	require.Equal(t, flight.Look, more.Decision)
	require.NotEqual(t, looks.Probe, more.Probe)

	_, err = fd.Desk().Verdict(t.Context(), verdict)
	requireAs[*effect.Fenced](t, err) // an old probe
	verdict.Probe, verdict.Result = more.Probe, flight.DidNotHappen
	verdict.Open.Nonce = flight.Nonce{3}
	last, err := fd.Desk().Verdict(t.Context(), verdict)
	require.NoError(t, err)
	require.Equal(t, flight.Proceed, last.Decision)
	require.Equal(t, `{"x":1}`, string(last.Input.Data))
	require.EqualValues(t, 2, last.Flight.AttemptNumber())
	require.Equal(t, looks.Session, last.Session)
	again, err := fd.Desk().Verdict(t.Context(), verdict)
	require.NoError(t, err, "its answer was lost")
	require.Equal(t, last.FencingToken, again.FencingToken)
	f, err := fd.Desk().Report(t.Context(), reportOf(last, flight.Succeeded, "ch_1"))
	require.NoError(t, err)
	require.Equal(t, flight.StateSucceeded, f.State)
	over, err := fd.Desk().Verdict(t.Context(), verdict)
	require.NoError(t, err)
	require.Equal(t, flight.Replay, over.Decision)
}

func sessionOf(t *testing.T, fd *flightdtest.Flightd, ttl time.Duration) flight.SessionID {
	t.Helper()
	s, err := fd.Desk().NewSession(t.Context(), ttl, "caller")
	require.NoError(t, err)
	return s.Session
}

func TestDeskVerdictHappened(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}, 1)
		a := proceed(t, fd, req)
		_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
		require.NoError(t, err)
		req.Nonce, req.Wait = flight.Nonce{2}, time.Minute
		looks, err := fd.Desk().Open(t.Context(), req)
		require.NoError(t, err)
		over, err := fd.Desk().Verdict(t.Context(), executor.VerdictRequest{
			ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.Happened, ExternalID: "ch_1", Body: flight.NewBlob("", []byte("found"), 100)})
		require.NoError(t, err)
		require.Equal(t, flight.Replay, over.Decision)
		require.Equal(t, "ch_1", over.Flight.Receipt.ExternalID)
		synctest.Wait()
		require.NotContains(t, fd.Leases.World.Sessions(), looks.Session)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Empty(t, claims)
	})
}

// A ledger that was put back from before an attempt does not know its flight. Whoever brings the outcome is not told that it is
// kept: it is kept nowhere but there.
func TestDeskReportToALedgerFromBefore(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		proceeding := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		before := flightdtest.New(t)
		_, err := before.Desk().Report(t.Context(), reportOf(proceeding, flight.Succeeded, "ch_1"))
		require.Equal(t, proceeding.Flight.ID, requireAs[*effect.Missing](t, err).ID)
	})
}

// Tokens and probes are worth nothing for another flight, nor one for the other; nothing changes by them.
func TestDeskTokensOfAnotherFlight(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}
		a, b := proceed(t, fd, openOf("1", `{}`, p, 1)), proceed(t, fd, openOf("2", `{}`, p, 1))
		_, err := fd.Desk().Report(t.Context(), reportOf(b, flight.Unknown, ""))
		require.NoError(t, err)
		req := openOf("2", `{}`, p, 2)
		req.Wait = time.Minute
		looks, err := fd.Desk().Open(t.Context(), req)
		require.NoError(t, err)
		before := [...]flight.Flight{*fd.Flight(a.Flight.Key), *fd.Flight(b.Flight.Key)}

		report := func(id flight.ID, token string, o flight.Outcome) error {
			_, err := fd.Desk().Report(t.Context(), executor.ReportRequest{ID: id, FencingToken: token, Outcome: o})
			return err
		}
		verdict := func(id flight.ID, probe string, v flight.Verb) error {
			_, err := fd.Desk().Verdict(t.Context(), executor.VerdictRequest{ID: id, Probe: probe, Result: v})
			return err
		}
		for field, err := range map[string][]error{
			"fencing_token": {
				report(a.Flight.ID, b.FencingToken, flight.Succeeded), report(b.Flight.ID, a.FencingToken, flight.Succeeded),
				report(b.Flight.ID, looks.Probe, flight.Succeeded), report(a.Flight.ID, "", flight.Succeeded), report(a.Flight.ID, "x.y", flight.Succeeded),
			},
			"outcome": {report(a.Flight.ID, a.FencingToken, flight.NoOutcome), report(a.Flight.ID, a.FencingToken, 9)},
			"probe": {
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

func TestDeskBadOpens(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		good := openOf("1", `{}`, flight.Policy{}, 1)
		bad := map[string]func(*executor.OpenRequest){
			"id":     func(r *executor.OpenRequest) { r.Key = flight.Key{} },
			"nonce":  func(r *executor.OpenRequest) { r.Nonce = flight.Nonce{} },
			"input":  func(r *executor.OpenRequest) { r.Submission.Input.Size = flight.MaxInput + 1 },
			"ttl_ms": func(r *executor.OpenRequest) { r.TTL = 1500 * time.Millisecond },
			"owner":  func(r *executor.OpenRequest) { r.Owner = string(make([]byte, 1000)) },
		}
		for field, spoil := range bad {
			req := good
			spoil(&req)
			_, err := fd.Desk().Open(t.Context(), req)
			require.Equal(t, field, requireAs[*flight.InvalidError](t, err).Field)
		}
		req := good
		req.Session = "ses_unknown"
		_, err := fd.Desk().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		_, err = fd.Desk().Renew(t.Context(), "ses_unknown", executor.Renewal{})
		requireAs[*effect.LeaseLost](t, err)
		require.NoError(t, fd.Desk().CloseSession(t.Context(), "ses_unknown"))
		require.Nil(t, fd.Flight(good.Key))
	})
}
