package executor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// Two renewals in a row that do not list an attempt abandon it; a single one may have been overtaken by the open.
func TestDeskRenewAbandonsWhatItsCallerDoesNotHold(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		renew := func(nonces ...flight.Nonce) executor.SessionAnswer {
			t.Helper()
			asleep(t, time.Second)
			a, err := fd.Desk().Renew(t.Context(), s, executor.Renewal{Nonces: nonces})
			require.NoError(t, err)
			require.Positive(t, a.Trust)
			synctest.Wait()
			return a
		}
		open := func(id string, nonce byte) executor.OpenAnswer {
			t.Helper()
			req := openOf(id, `{}`, flight.Policy{}, nonce)
			req.Session = s
			return proceed(t, fd, req)
		}
		open("1", 1)
		renew(flight.Nonce{}) // the first one may have been sent before the open
		require.Equal(t, flight.Running, fd.Flight(keyOf("1")).State)
		open("2", 2)
		a, err := fd.Desk().Renew(t.Context(), s, executor.Renewal{})
		require.NoError(t, err)
		require.Empty(t, a.CancelRequested)
		require.Equal(t, flight.Running, fd.Flight(keyOf("1")).State, "a renewal that lists nothing says nothing")
		renew(flight.Nonce{2})
		require.Equal(t, flight.Queued, fd.Flight(keyOf("1")).State)
		require.Equal(t, flight.Running, fd.Flight(keyOf("2")).State)
		require.False(t, fd.Flight(keyOf("1")).Tainted())
		open("1", 3) // free at once
		fd.Cancel(t, keyOf("1"), "enough")
		require.Equal(t, []flight.ID{keyOf("1").FlightID()}, renew(flight.Nonce{2}, flight.Nonce{3}).CancelRequested)
	})
}

// Renewals may arrive out of order. One that was sent before the open, and comes behind the next one, takes nothing away from a
// caller that acts.
func TestDeskRenewThatIsLateAbandonsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, fd)
		proceed(t, fd, req)
		state := func(nonces ...flight.Nonce) flight.State {
			t.Helper()
			asleep(t, time.Second)
			_, err := fd.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: nonces})
			require.NoError(t, err)
			synctest.Wait()
			return fd.Flight(req.Key).State
		}
		none := []flight.Nonce{}
		for range 3 {
			require.Equal(t, flight.Running, state(req.Nonce))
			require.Equal(t, flight.Running, state(none...), "its caller acts")
		}
		require.Equal(t, flight.Queued, state(none...), "its caller has stopped to list it")
	})
}

// A renewal that says what its caller had seen takes nothing away that was opened since, however late and often it comes; what
// its caller knew of and does not list is free at once.
func TestDeskRenewSaysWhatItsCallerHasSeen(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, fd)
		renew := func(seen flight.Version, nonces ...flight.Nonce) executor.SessionAnswer {
			t.Helper()
			asleep(t, time.Second)
			a, err := fd.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: nonces, Seen: seen})
			require.NoError(t, err)
			synctest.Wait()
			return a
		}
		none := []flight.Nonce{}
		proceed(t, fd, openOf("before", `{}`, flight.Policy{}, 9)) // so that there is something to have seen
		early := renew(flight.Version{}, none...).Version
		proceed(t, fd, req)
		for range 4 {
			renew(early, none...)
			require.Equal(t, flight.Running, fd.Flight(req.Key).State, "its caller acts")
		}
		late := renew(early, req.Nonce).Version
		require.True(t, late.Later(early))
		renew(late, none...)
		require.Equal(t, flight.Queued, fd.Flight(req.Key).State, "its caller has stopped to list it")
	})
}

// spooling is a node whose reports wait on its disk.
type spooling struct {
	*flightdtest.Ledger
	kept []*flight.Report
}

func (l *spooling) Report(_ context.Context, r *flight.Report) (flight.Reply, error) {
	l.kept = append(l.kept, r)
	return flight.Reply{}, executor.ErrPending
}

// A caller that has reported may believe that it holds nothing any more. Its report waits on the node's disk: the effect is not
// given back as one of which nothing was sent.
func TestDeskRenewLeavesAloneWhatIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(spooling)
		fd := flightdtest.Open(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			l.Ledger = cfg.Ledger.(*flightdtest.Ledger)
			cfg.Ledger = l
		}})
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, fd)
		a := proceed(t, fd, req)
		_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
		require.Equal(t, "report_pending", requireAs[*effect.Unavailable](t, err).Code)
		for range 4 {
			asleep(t, 5*time.Second)
			_, err := fd.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{}})
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, flight.Running, fd.Flight(req.Key).State, "it happened")
		}
		_, err = fd.Ledger.Report(t.Context(), l.kept[0])
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, fd.Flight(req.Key).State)
	})
}

// A caller that was sent to look, and has gone, keeps nobody else from looking, though its session lives on.
func TestDeskRenewLetsGoOfLookUpsNobodyMakes(t *testing.T) {
	for name, listed := range map[string]bool{"gone": false, "at it": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				_, req, looks := sentToLook(t, fd)
				for range 2 {
					asleep(t, 5*time.Second)
					list := []flight.Nonce{}
					if listed {
						list = append(list, req.Nonce)
					}
					_, err := fd.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: list})
					require.NoError(t, err)
				}
				other := req
				other.Session, other.Nonce, other.Wait = session(t, fd), flight.Nonce{3}, time.Second
				answer, err := fd.Desk().Open(t.Context(), other)
				if listed {
					requireAs[*effect.Busy](t, err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, flight.Look, answer.Decision)
				_, err = fd.Desk().Verdict(t.Context(), executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.DidNotHappen, Open: req})
				requireAs[*effect.Fenced](t, err)
			})
		})
	}
}

// What was opened without a nonce of the caller's cannot be listed: a renewal that lists what the caller knows of does not
// take it away from under it, at this process or at the next one.
func TestDeskRenewLeavesAloneWhatCannotBeListed(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, looks := sentToLook(t, fd)
		verdict := executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.DidNotHappen}
		verdict.Open.Session = req.Session
		acts, err := fd.Desk().Verdict(t.Context(), verdict)
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, acts.Decision)
		other := fd.Restart(t, flightdtest.Options{})
		for i := range 6 {
			asleep(t, 5*time.Second)
			desk := []*executor.Desk{fd.Desk(), other.Desk()}[i/3]
			_, err := desk.Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{req.Nonce}})
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, flight.Running, fd.Flight(req.Key).State, "its caller acts")
		}
	})
}

func TestDeskSessionsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		synctest.Wait() // the sweeper watches
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Resend}, 1)
		req.Session = s
		a := proceed(t, fd, req)
		require.NoError(t, fd.Desk().CloseSession(t.Context(), s))
		asleep(t, time.Second)
		require.Equal(t, flight.Queued, fd.Flight(req.Key).State, "noticed at once")
		_, err := fd.Desk().Renew(t.Context(), s, executor.Renewal{})
		requireAs[*effect.LeaseLost](t, err)
		f, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)

		req.Key, req.Session = keyOf("2"), session(t, fd)
		proceed(t, fd, req)
		asleep(t, 20*time.Second) // never renewed
		_, err = fd.Desk().Open(t.Context(), req)
		require.Error(t, err)
		_, err = fd.Desk().Renew(t.Context(), req.Session, executor.Renewal{})
		requireAs[*effect.LeaseLost](t, err)
		require.NoError(t, fd.Desk().CloseSession(t.Context(), req.Session))
	})
}

// Trust is computed from the node's own last renewal, and little of it is renewed first.
func TestDeskTrust(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		asleep(t, 11*time.Second)
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = s
		require.Equal(t, 12*time.Second, proceed(t, fd, req).Trust)
		asleep(t, 8*time.Second)
		fd.Leases.Slow(time.Second)
		again := proceed(t, fd, req)
		require.LessOrEqual(t, again.Trust, 12*time.Second)
		require.Greater(t, again.Trust, 10*time.Second)
	})
}

// A caller that was kept waiting counts its trust from when it sent the request: the time that it waited is not lost
// to it, or every long wait would end in a right that is over.
func TestDeskTrustOfThoseWhoWaited(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		first := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		const held = 10 * time.Second
		go func() {
			time.Sleep(held) // virtual
			_, _ = fd.Desk().Report(context.Background(), reportOf(first, flight.NotDone, ""))
		}()
		second := openOf("1", `{}`, flight.Policy{}, 2)
		second.Wait = 30 * time.Second
		sent := time.Now()
		a := proceed(t, fd, second)
		require.GreaterOrEqual(t, time.Since(sent), held)
		left := time.Until(sent.Add(a.Trust))
		require.LessOrEqual(t, left, 12*time.Second, "never longer than the session's own trust")
		require.Greater(t, left, 6*time.Second, "less than half of it would have been renewed")
	})
}

// flightd restarts in the middle of everything: the token reports, the session is found again, what it holds too, and
// the old process's claim is removed with the report.
func TestDeskRestart(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = s
		a := proceed(t, fd, req)
		unwanted := openOf("2", `{}`, flight.Policy{}, 2)
		unwanted.Session = s
		proceed(t, fd, unwanted)
		fd.Leases.Freeze()
		next := fd.Restart(t, flightdtest.Options{})
		for range 3 {
			asleep(t, 5*time.Second)
			answer, err := next.Desk().Renew(t.Context(), s, executor.Renewal{Nonces: []flight.Nonce{req.Nonce}})
			require.NoError(t, err)
			require.InDelta(t, 5*time.Second, answer.RenewEvery, float64(time.Second))
		}
		synctest.Wait()
		require.Equal(t, flight.Queued, next.Flight(unwanted.Key).State, "nobody holds it")
		f, err := next.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		released(t)
		claims, err := next.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Empty(t, claims, "no claim of the old process is left")
		unwanted.Nonce = flight.Nonce{3}
		proceed(t, next, unwanted)
	})
}

func TestDeskWithEtcdAway(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		s := session(t, fd)
		synctest.Wait()
		fd.Leases.Partition(leasetest.CutRequests)
		for range 20 { // also when the pool is empty
			_, err := fd.Desk().Open(t.Context(), openOf("2", `{}`, flight.Policy{}, 2))
			require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code)
		}
		_, err := fd.Desk().NewSession(t.Context(), 0, "x")
		require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code)
		_, err = fd.Desk().Renew(t.Context(), s, executor.Renewal{})
		require.Error(t, err)
		_, err = fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
		require.NoError(t, err, "a report needs only the fence")
		again, err := fd.Desk().Open(t.Context(), openOf("1", `{}`, flight.Policy{}, 3))
		require.NoError(t, err)
		require.Equal(t, flight.Replay, again.Decision)
	})
}

// A caller that brought no session has none to lose: when the one that was made for its open runs out while the claim
// is on its way, etcd is away, and the caller may ask again.
func TestDeskLosesASessionOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		short := func(id string) executor.OpenRequest {
			req := openOf(id, `{}`, flight.Policy{}, 1)
			req.TTL, req.Wait = 6*time.Second, time.Minute
			return req
		}
		proceed(t, fd, short("1")) // from now on sessions are granted ahead
		synctest.Wait()
		fd.Leases.Freeze()
		const callers = 8 // the later ones' claims wait behind the first one's, for longer than their sessions live
		answers := make(chan error, callers)
		for i := range callers {
			go func() {
				_, err := fd.Desk().Open(t.Context(), short(fmt.Sprintf("late-%d", i)))
				answers <- err
			}()
			asleep(t, 100*time.Millisecond)
		}
		for range callers {
			require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, <-answers).Code)
		}
		fd.Leases.Thaw()
		proceed(t, fd, short("late-0"))
	})
}

func TestDeskWithTheLedgerAway(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		fd.Ledger.Cut()
		_, err := fd.Desk().Open(t.Context(), openOf("2", `{}`, flight.Policy{}, 1))
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = fd.Desk().Report(ctx, reportOf(a, flight.Succeeded, "ch_1"))
		require.Equal(t, "report_pending", requireAs[*effect.Unavailable](t, err).Code)
		fd.Ledger.Heal()
		f, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)

		b := openOf("3", `{}`, flight.Policy{}, 1)
		fd.Ledger.Stall()
		_, err = fd.Desk().Open(t.Context(), b)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		fd.Ledger.Heal()
		asleep(t, 5*time.Second)
		b.Nonce = flight.Nonce{2}
		proceed(t, fd, b)
		require.False(t, fd.Flight(b.Key).Tainted())
	})
}

// What the desk remembers of guests that never come back does not grow.
func TestDeskForgetsGuests(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		for i := range 50 {
			proceed(t, fd, openOf(fmt.Sprint(i), `{}`, flight.Policy{}, 1))
			session(t, fd)
		}
		require.Positive(t, fd.Desk().Guests())
		asleep(t, time.Minute)
		require.Zero(t, fd.Desk().Guests())
	})
}
