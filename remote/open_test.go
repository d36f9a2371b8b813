package remote_test

import (
	"context"
	"errors"
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

func TestOpenActReport(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{"amount":42}`, flight.Policy{}, 1)
		a := proceed(t, fd, req)
		require.Len(t, a.IdempotencyKey, 64)
		require.Equal(t, `{"amount":42}`, string(a.Input.Data))
		require.Equal(t, 5*time.Second, a.RenewEvery)
		require.False(t, a.PolicyDiffers)
		require.Nil(t, a.Previous)
		require.Equal(t, 1, claimsOf(t, fd))
		require.True(t, a.Flight.OpenAttempt().Session.OneShot)
		require.Equal(t, flight.StateSucceeded, report(t, fd, a, flight.OutcomeSucceeded, "ch_1").State)
		require.Zero(t, claimsOf(t, fd))
		require.NotContains(t, fd.Leases.Etcd.Sessions(), a.Session, "a session for one open ends with its report")

		req.Nonce, req.Submission.Policy.Recovery = flight.Nonce{2}, flight.RecoveryResend
		again, err := fd.Remote().Open(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, flight.DecisionReplay, again.Decision)
		require.Equal(t, "ch_1", again.Flight.Receipt.ExternalID)
		require.True(t, again.PolicyDiffers)
		require.False(t, again.Joined)

		_, err = fd.Remote().Open(t.Context(), openOf("1", `{"amount":43}`, flight.Policy{}, 3))
		require.Equal(t, []string{"/amount"}, requireAs[*effect.Conflict](t, err).Fields)
		require.Equal(t, flight.StateSucceeded, report(t, fd, a, flight.OutcomeSucceeded, "ch_1").State, "the same report twice")
		_, err = fd.Remote().Report(t.Context(), reportOf(a, flight.OutcomeSucceeded, "ch_2"))
		requireAs[*effect.Fenced](t, err)
		require.True(t, fd.Flight(req.Key).Overlap)
	})
}

func TestOneProceedsOthersReplay(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		const callers = 100
		opens := 0
		fd.Ledger.Before(func(c flight.Command) {
			if _, is := c.(*flight.Open); is {
				opens++
				time.Sleep(10 * time.Millisecond) // virtual time: the other openers arrive
			}
		})
		answers := make(chan remote.OpenAnswer, callers)
		for i := range callers {
			go func() {
				req := openOf("1", `{}`, flight.Policy{}, byte(i+1))
				req.Wait = time.Minute
				a, err := fd.Remote().Open(t.Context(), req)
				require.NoError(t, err)
				answers <- a
			}()
		}
		first := <-answers
		require.Equal(t, flight.DecisionProceed, first.Decision)
		synctest.Wait()
		require.Empty(t, answers)
		report(t, fd, first, flight.OutcomeSucceeded, "ch_1")
		for range callers - 1 {
			a := <-answers
			require.Equal(t, flight.DecisionReplay, a.Decision)
			require.True(t, a.Joined)
			require.Equal(t, "ch_1", a.Flight.Receipt.ExternalID)
		}
		require.EqualValues(t, 1, fd.Flight(keyOf("1")).AttemptCount)
		require.Equal(t, 1, opens, "the openers of one node propose once")
		synctest.Wait()
		require.Less(t, len(fd.Leases.Etcd.Sessions()), 20, "only the sessions of this process and of the pool are left")
	})
}

// A caller that finds another holder's open attempt needs no session, and sends no request to etcd or the ledger.
func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		proceed(t, fd, openOf("1", `{"a":1}`, flight.Policy{}, 1))
		synctest.Wait() // the pool is full
		fd.Ledger.Before(func(c flight.Command) {
			require.NotContains(t, []string{"*flight.Open", "*flight.Withdraw"}, fmt.Sprintf("%T", c))
		})
		sessions := len(fd.Leases.Etcd.Sessions())
		for _, wait := range []time.Duration{0, 5 * time.Second} {
			req := openOf("1", `{"a":1}`, flight.Policy{}, 2)
			req.Wait = wait
			began := time.Now()
			_, err := fd.Remote().Open(t.Context(), req)
			busy := requireAs[*effect.Busy](t, err)
			require.Equal(t, flight.StateRunning, busy.State)
			require.False(t, busy.Proposed, "no Open of this call can arrive later")
			require.Equal(t, wait, time.Since(began))
		}
		require.Len(t, fd.Leases.Etcd.Sessions(), sessions)
		req := openOf("1", `{"a":2}`, flight.Policy{}, 3)
		req.Wait = time.Minute
		began := time.Now()
		_, err := fd.Remote().Open(t.Context(), req)
		requireAs[*effect.Conflict](t, err)
		require.Zero(t, time.Since(began), "a conflict is answered at once, also while another holder acts")
	})
}

// Two openers with different inputs open at the same time.
func TestHazard30_ConflictWhileTheFirstOpens(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		ends := make(chan error, 2)
		for i := range 2 {
			go func() {
				req := openOf("1", fmt.Sprintf(`{"a":%d}`, i), flight.Policy{}, byte(i+1))
				req.Wait = time.Minute
				_, err := fd.Remote().Open(t.Context(), req)
				ends <- err
			}()
		}
		began := time.Now()
		requireAs[*effect.Conflict](t, errors.Join(<-ends, <-ends))
		require.Less(t, time.Since(began), time.Second)
	})
}

// A worker hangs while its session is renewed. Its key is free for every caller when the attempt's time-out, a tenth
// and a pause are over by the ledger's clock, even without a sweeper.
func TestHazard16_AHungWorkersKeyIsFreeAfterItsTimeOut(t *testing.T) {
	for _, recovery := range recoveries {
		t.Run(recovery.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fd := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
				p := flight.Policy{Recovery: recovery, AttemptTimeout: 20 * time.Second, SettleDelay: time.Second}
				hung := openOf("1", `{}`, p, 1)
				hung.Session = session(t, fd)
				a := proceed(t, fd, hung)
				defer keepRenewed(t, fd, hung.Session)()
				began := time.Now()
				next := openOf("1", `{}`, p, 2)
				next.Wait = time.Minute
				answer, err := fd.Remote().Open(t.Context(), next)
				require.GreaterOrEqual(t, time.Since(began), 37*time.Second)
				require.Less(t, time.Since(began), 40*time.Second)
				switch recovery {
				case flight.RecoveryHold:
					require.True(t, requireAs[*effect.InDoubt](t, err).Proposed)
				case flight.RecoveryResend:
					require.NoError(t, err)
					require.Equal(t, flight.DecisionProceed, answer.Decision)
					require.Equal(t, a.IdempotencyKey, answer.IdempotencyKey)
				case flight.RecoveryVerify:
					require.NoError(t, err)
					require.Equal(t, flight.DecisionVerify, answer.Decision)
				}
				require.True(t, fd.Flight(next.Key).Tainted(), "the outcome is unknown, never not_done")
			})
		})
	}
}

// A claim of another session does not make an opener wait: the ledger has decided, and the claim is replaced.
func TestAForeignClaimIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		other := fd.Leases.ClaimFromOtherNode(t, keyOf("1"), "somebody")
		began := time.Now()
		a := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		require.Less(t, time.Since(began), time.Second)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Len(t, claims, 1)
		require.Equal(t, a.Session, claims[0].Session)
		other.Release() // deletes only the claim of its own session
		require.Equal(t, 1, claimsOf(t, fd))
		report(t, fd, a, flight.OutcomeSucceeded, "ch_1")
		require.Zero(t, claimsOf(t, fd))
	})
}

// A claim that is lost during its effect harms nothing: the ledger still rejects other openers.
func TestLostClaimDoesNotEndTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, fd)
		a := proceed(t, fd, req)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.NoError(t, fd.Leases.RemoveClaims(t.Context(), claims))
		_, err = fd.Remote().Open(t.Context(), openOf("1", `{}`, flight.Policy{}, 2))
		requireAs[*effect.Busy](t, err)
		again := proceed(t, fd, req)
		require.Equal(t, a.FencingToken, again.FencingToken)
		require.Equal(t, 1, claimsOf(t, fd), "a repeat claims again")
	})
}

func TestOpenExpired(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		for i, notAfter := range []flight.Time{fd.Ledger.Now() - 1, fd.Ledger.Now().Add(2 * time.Minute)} {
			req := openOf(fmt.Sprint(i), `{}`, flight.Policy{}, 1)
			req.NotAfter = notAfter
			_, err := fd.Remote().Open(t.Context(), req)
			require.InDelta(t, float64(fd.Ledger.Now()), float64(requireAs[*effect.OpenExpired](t, err).LedgerTime), 100)
			require.Zero(t, claimsOf(t, fd))
		}
		// While another holder's attempt is open nothing is proposed, so not_after is not checked.
		proceed(t, fd, openOf("3", `{}`, flight.Policy{}, 1))
		req := openOf("3", `{}`, flight.Policy{}, 2)
		req.NotAfter = 1
		_, err := fd.Remote().Open(t.Context(), req)
		requireAs[*effect.Busy](t, err)
	})
}

// A repeat finds its open attempt after not_after. A caller that waits longer than OpenLife still opens in the end.
func TestNotAfter_DoesNotRejectRepeats(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session, req.NotAfter = session(t, fd), fd.Ledger.Now().Add(5*time.Second)
		a := proceed(t, fd, req)
		next := openOf("1", `{}`, flight.Policy{}, 2)
		next.Wait = time.Minute
		opened := make(chan remote.OpenAnswer, 1)
		go func() { opened <- proceed(t, fd, next) }()
		renew(t, fd, req.Session, 40*time.Second)
		require.Equal(t, a.FencingToken, proceed(t, fd, req).FencingToken)
		report(t, fd, a, flight.OutcomeNotDone, "")
		require.EqualValues(t, 2, (<-opened).Flight.AttemptNumber(), "a not_after that the node sets counts from its proposal")
	})
}

// Opens without a report are bounded, per session and in all.
func TestTooManyOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.Open(t, flightdtest.Options{ConfigureRemote: func(cfg *remote.Config) { cfg.MaxOpenPerSession, cfg.MaxOpen = 2, 4 }})
		first, second := session(t, fd), session(t, fd)
		open := func(id string, s flight.SessionID) (remote.OpenAnswer, error) {
			req := openOf(id, `{}`, flight.Policy{}, 1)
			req.Session = s
			return fd.Remote().Open(t.Context(), req)
		}
		a, err := open("1", first)
		require.NoError(t, err)
		_, err = open("2", first)
		require.NoError(t, err)
		_, err = open("3", first)
		requireAs[*effect.TooMany](t, err)
		require.Nil(t, fd.Flight(keyOf("3")))
		_, err = open("1", first)
		require.NoError(t, err, "an open attempt may be repeated")
		for _, s := range []flight.SessionID{second, ""} {
			_, err = open("4"+string(s), s)
			require.NoError(t, err)
		}
		_, err = open("5", second)
		requireAs[*effect.TooMany](t, err)
		_, err = open("5", "")
		requireAs[*effect.TooMany](t, err)
		report(t, fd, a, flight.OutcomeSucceeded, "ch_1")
		_, err = open("3", first)
		require.NoError(t, err)
		waitForReleases(t)
		require.LessOrEqual(t, len(fd.Leases.Etcd.Sessions()), 1+2+1+8, "the node's session, two of callers, one one-shot, and the pool")
	})
}

func TestBadOpens(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		good := openOf("1", `{}`, flight.Policy{}, 1)
		for field, spoil := range map[string]func(*remote.OpenRequest){
			"id":     func(r *remote.OpenRequest) { r.Key = flight.Key{} },
			"nonce":  func(r *remote.OpenRequest) { r.Nonce = flight.Nonce{} },
			"input":  func(r *remote.OpenRequest) { r.Submission.Input.Size = flight.MaxInput + 1 },
			"ttl_ms": func(r *remote.OpenRequest) { r.TTL = 1500 * time.Millisecond },
		} {
			req := good
			spoil(&req)
			_, err := fd.Remote().Open(t.Context(), req)
			require.Equal(t, field, requireAs[*flight.InvalidError](t, err).Field)
		}
		req := good
		req.Session = "ses_unknown"
		_, err := fd.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		_, err = fd.Remote().Renew(t.Context(), "ses_unknown", remote.RenewRequest{})
		requireAs[*effect.LeaseLost](t, err)
		require.NoError(t, fd.Remote().CloseSession(t.Context(), "ses_unknown"))
		require.Nil(t, fd.Flight(good.Key))
	})
}

// Close answers waiting opens, waits for an open that has proposed, rejects new opens, and still replays receipts.
func TestHazard35_CloseDrains(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		over := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		report(t, fd, over, flight.OutcomeSucceeded, "ch_1")
		proceed(t, fd, openOf("2", `{}`, flight.Policy{}, 1))
		synctest.Wait()
		type answered struct {
			a   remote.OpenAnswer
			err error
		}
		waits, underWay, closed := make(chan error, 1), make(chan answered, 1), make(chan error, 1)
		go func() {
			req := openOf("2", `{}`, flight.Policy{}, 2)
			req.Wait = time.Minute
			_, err := fd.Remote().Open(t.Context(), req)
			waits <- err
		}()
		fd.Leases.SlowAnswers(2 * time.Second)
		go func() {
			a, err := fd.Remote().Open(t.Context(), openOf("3", `{}`, flight.Policy{}, 1))
			underWay <- answered{a, err}
		}()
		sleep(t, time.Second)
		go func() { closed <- fd.Remote().Close(t.Context()) }()
		require.Equal(t, "draining", requireAs[*effect.Unavailable](t, <-waits).Code)
		_, err := fd.Remote().Open(t.Context(), openOf("4", `{}`, flight.Policy{}, 1))
		require.Equal(t, "draining", requireAs[*effect.Unavailable](t, err).Code)
		_, err = fd.Remote().NewSession(t.Context(), 0, "x")
		require.Equal(t, "draining", requireAs[*effect.Unavailable](t, err).Code)
		require.Empty(t, closed)
		got := <-underWay
		require.NoError(t, got.err)
		require.Equal(t, flight.DecisionProceed, got.a.Decision)
		require.NoError(t, <-closed)
		again, err := fd.Remote().Open(t.Context(), openOf("1", `{}`, flight.Policy{}, 2))
		require.NoError(t, err)
		require.Equal(t, flight.DecisionReplay, again.Decision)
		require.Equal(t, flight.StateSucceeded, report(t, fd, got.a, flight.OutcomeSucceeded, "ch_1").State)
	})
}

// limits are the limits of a namespace in a test.
type limits struct {
	err   error
	waits int // how many opens may wait
}

func (l *limits) AllowWork(string) error { return nil }

func (l *limits) AllowAttempt(_ flight.Key, newKey bool) error {
	if newKey {
		return l.err
	}
	return nil
}

func (l *limits) StartWait(string, bool) (end func(), ok bool) {
	if l.waits == 0 {
		return nil, false
	}
	l.waits--
	return func() { l.waits++ }, true
}

// A limit of the namespace rejects only an open that would open an attempt. Replays and repeats are answered.
func TestOpen_LimitsOfTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limits{waits: 1}
		fd := flightdtest.Open(t, flightdtest.Options{ConfigureRemote: func(cfg *remote.Config) { cfg.Limits = l }})
		done, running := openOf("done", `{}`, flight.Policy{}, 1), openOf("running", `{}`, flight.Policy{}, 2)
		report(t, fd, proceed(t, fd, done), flight.OutcomeSucceeded, "ch_1")
		proceed(t, fd, running)
		l.err = &effect.QuotaExceeded{Key: keyOf("new"), Limit: "no more flights"}
		_, err := fd.Remote().Open(t.Context(), openOf("new", `{}`, flight.Policy{}, 3))
		require.ErrorIs(t, err, l.err)
		f, err := fd.Ledger.Flight(keyOf("new").FlightID())
		require.NoError(t, err)
		require.Nil(t, f, "nothing was opened")
		a, err := fd.Remote().Open(t.Context(), openOf("done", `{}`, flight.Policy{}, 4))
		require.NoError(t, err)
		require.Equal(t, flight.DecisionReplay, a.Decision)
		proceed(t, fd, running)

		wait := openOf("running", `{}`, flight.Policy{}, 5)
		wait.Wait = 3 * time.Second
		started := time.Now()
		_, err = fd.Remote().Open(t.Context(), wait)
		requireAs[*effect.Busy](t, err)
		require.GreaterOrEqual(t, time.Since(started), wait.Wait)
		require.Equal(t, 1, l.waits, "the place is free again")
		l.waits, started = 0, time.Now()
		_, err = fd.Remote().Open(t.Context(), wait)
		requireAs[*effect.Busy](t, err)
		require.Less(t, time.Since(started), time.Second, "there is no place to wait")
	})
}

// An open that the ledger has not answered ends with the term: it is not proposed again in a later one.
func TestOpen_EndsWithTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term, end := context.WithCancel(t.Context())
		var cfg remote.Config
		fd := flightdtest.Open(t, flightdtest.Options{ConfigureRemote: func(own *remote.Config) { cfg = *own }})
		s, err := remote.New(term, cfg)
		require.NoError(t, err)
		defer s.Close(t.Context())
		fd.Ledger.Stall()
		time.AfterFunc(time.Second, end)
		began := time.Now()
		_, err = s.Open(t.Context(), openOf("1", `{}`, flight.Policy{}, 1))
		requireAs[*effect.Unavailable](t, err)
		require.Equal(t, time.Second, time.Since(began))
		fd.Ledger.Heal()
	})
}
