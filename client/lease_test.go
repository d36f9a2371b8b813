package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/remote"
)

// The end of trust forbids starts. A running effect may finish and report, under hold and resend.
func TestTrust_EndForbidsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBubbleFixture(t)
		g.fake.SetFaults(func(l *httpapitest.Faults) { l.Trust, l.RenewEvery = 10*time.Second, time.Hour })
		c := g.connect()
		result, err := c.Do(t.Context(), call(`1`), func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			require.NoError(t, at.Sending())
			<-at.LeaseLost()
			require.ErrorIs(t, at.Sending(), effect.ErrLeaseLost)
			require.NoError(t, ctx.Err(), "it is not bothered")
			return effect.Answer{Body: []byte("late")}, nil
		})
		require.NoError(t, err)
		require.Equal(t, "late", string(result.Answer.Body))
	})
}

// Under verify the look-up needs a bound: loss of the lease ends the attempt.
func TestLeaseLossEndsVerify(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = 5 * time.Millisecond })
	c := g.connect()
	verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond})
	verify.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		return flight.FindingNotHappened, effect.Answer{}, nil
	}
	ran := 0
	result, err := c.Do(t.Context(), verify, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		if ran++; ran > 1 {
			return effect.Answer{Body: []byte("second")}, nil
		}
		require.NoError(t, at.Sending())
		g.expireSessions()
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), effect.ErrLeaseLost)
		return effect.Answer{}, ctx.Err()
	})
	require.NoError(t, err)
	require.Equal(t, 2, ran)
	require.Equal(t, "second", string(result.Answer.Body))
}

// Renewals list attempts whose reports or answers are on their way: none of them is abandoned.
func TestRenewalsNeverAbandonWhatRuns(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = time.Millisecond })
	c := g.connect()
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			charge := call(`1`)
			charge.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", i))
			result, err := c.Do(t.Context(), charge, succeedingHandler(`1`))
			if err != nil || result.Attempt != 1 {
				t.Errorf("attempt %d, %v", result.Attempt, err)
			}
		})
	}
	wg.Wait()
	require.Positive(t, g.count("/renew"))
	for i := range 300 {
		g.neverAbandoned(flight.MustKey(fmt.Sprintf("default/charge/%d", i)))
	}
}

func (fi *fixture) neverAbandoned(key flight.Key) {
	fi.t.Helper()
	for _, e := range fi.fake.Ledger.History(key) {
		require.NotEqual(fi.t, flight.EventAbandoned, e.Kind)
	}
}

// Close waits for running effects, and rejects new ones.
func TestClose(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	started, finish := make(chan struct{}), make(chan struct{})
	result := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
			close(started)
			<-finish
			return effect.Answer{}, nil
		})
		result <- err
	}()
	<-started
	closed := make(chan error, 1)
	go func() { closed <- c.Close(t.Context()) }()
	other := call(`1`)
	other.Key = flight.MustKey("default/charge/other")
	require.Eventually(t, func() bool {
		_, err := c.Do(t.Context(), other, succeedingHandler(`1`))
		return err == client.ErrClosed
	}, stateLimit, time.Millisecond)
	close(finish)
	require.NoError(t, <-result)
	require.NoError(t, <-closed)
	g.waitForNoSessions()
}

// The session of an effect whose outcome is not recorded yet is renewed until it is, and the attempt stays as it is:
// its report lies in the spool.
func TestUnrecorded_KeepsItsSession(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("client's session=%t", kept), func(t *testing.T) {
			g := newFixture(t)
			renewed := make(chan struct{})
			g.fake.SetFaults(func(l *httpapitest.Faults) {
				l.RenewEvery = time.Millisecond
				l.OnRenewed = func(flight.SessionID, remote.RenewRequest) {
					select {
					case renewed <- struct{}{}:
					default: // no receiver is left
					}
				}
			})
			c := g.connect(client.WithReportTimeout(50 * time.Millisecond))
			if kept {
				g.useSession(c)
			}
			g.setFault(func(r *http.Request) fault {
				if hasSuffix(r, "/report") {
					return refused
				}
				return none
			})
			_, err := c.Do(t.Context(), call(`1`), succeedingHandler(`{"id": 1}`))
			var unrecorded *client.Unrecorded
			require.ErrorAs(t, err, &unrecorded)
			for range 5 {
				receive(t, renewed)
			}
			g.neverAbandoned(key)
			require.Equal(t, flight.StateRunning, g.flight(key).State)
			g.setFault(nil)
			g.connect() // and it reports what is in the spool
			f := g.waitForFlight(key, func(f *flight.Flight) bool { return f.State != flight.StateRunning })
			require.Equal(t, flight.StateSucceeded, f.State)
			require.EqualValues(t, 1, f.AttemptCount)
			g.waitForNoSessions()
		})
	}
}

// The report of an effect can never be taken: its attempt is not given back for that. The session ends, and it is lost.
func TestRejectedOpen_IsNotAbandoned(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = time.Millisecond })
	c := g.connect(client.WithReportTimeout(50*time.Millisecond), client.WithSessionTTL(2*time.Second))
	g.useSession(c)
	g.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(_ context.Context, method string) error {
			if method == "Report" {
				return &flight.InvalidError{Field: "body", Detail: "no server takes it"}
			}
			return nil
		}
	})
	_, err := c.Do(t.Context(), call(`1`), succeedingHandler(`{"id": 1}`))
	var unrecorded *client.Unrecorded
	require.ErrorAs(t, err, &unrecorded)
	f := g.waitForFlight(key, func(f *flight.Flight) bool { return f.State != flight.StateRunning })
	require.Equal(t, flight.StateInDoubt, f.State)
	g.neverAbandoned(key)
}

// When its ctx ends, Close leaves unsent reports to the spool, during the first try of a report and during later ones.
func TestCloseLeavesReportsToTheSpool(t *testing.T) {
	for name, onItsWay := range map[string]int{"the first try": 1, "a later one": 3} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			c := g.connect(client.WithReportTimeout(time.Hour))
			tries, arrived := 0, make(chan struct{})
			g.setFault(func(r *http.Request) fault {
				if !hasSuffix(r, "/report") {
					return none
				}
				if tries++; tries == onItsWay {
					_, _ = io.Copy(io.Discard, r.Body) // so that the server sees the client go
					close(arrived)
					<-r.Context().Done()
				}
				return cutBefore
			})
			result := make(chan error, 1)
			go func() {
				_, err := c.Do(context.Background(), call(`1`), succeedingHandler(`1`))
				result <- err
			}()
			<-arrived
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.Equal(t, context.Canceled, c.Close(ctx), "it does not wait for the time of a report, which is an hour")
			var unrecorded *client.Unrecorded
			require.ErrorAs(t, <-result, &unrecorded)
			require.Equal(t, 1, c.SpooledReports())
		})
	}
}
