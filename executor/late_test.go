package executor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// A late report of an attempt leaves the claim of whoever looks for it alone, while the look is still wanted.
func TestLate_AReportLeavesTheLookersClaim(t *testing.T) {
	for name, ofSession := range map[string]bool{"session": true, "one shot": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				a, looks, req := looked(t, fd, ofSession)
				_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
				require.NoError(t, err)
				require.Equal(t, 1, claimsOf(t, fd), "that of the looker")
				require.Contains(t, fd.Leases.World.Sessions(), looks.Session)
				_, err = fd.Desk().Open(t.Context(), openOf("1", `{}`, req.Submission.Policy, 9))
				requireAs[*effect.Busy](t, err)
				over, err := fd.Desk().Verdict(t.Context(), executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.Happened, ExternalID: "ch_1"})
				require.NoError(t, err)
				require.Equal(t, flight.Replay, over.Decision)
				require.Zero(t, claimsOf(t, fd))
			})
		})
	}
}

// One that ends the look lets go of the looker's claim, here as well as through another node; what the looker found out
// comes too late and does no harm.
func TestLate_AReportEndsTheLook(t *testing.T) {
	for _, o := range []flight.Outcome{flight.Succeeded, flight.NotDone} {
		for name, ofSession := range map[string]bool{"session": true, "one shot": false} {
			for _, there := range []bool{false, true} {
				t.Run(o.String()+" "+name, func(t *testing.T) {
					bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
						a, looks, req := looked(t, fd, ofSession)
						at := fd
						if there {
							at = fd.Restart(t, flightdtest.Options{})
						}
						_, err := at.Desk().Report(t.Context(), reportOf(a, o, "ch_1"))
						require.NoError(t, err)
						if o == flight.Succeeded || !there { // else the other node cannot know whether something is opened under it yet
							require.Zero(t, claimsOf(t, fd), "there is nothing to look for any more")
						}
						_, err = fd.Desk().Renew(t.Context(), looks.Session, executor.Renewal{}) // as whoever looks does
						if o == flight.NotDone || ofSession {
							require.NoError(t, err)
						}
						require.Zero(t, claimsOf(t, fd))
						verdict := executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.DidNotHappen, Open: req}
						verdict.Open.Session, verdict.Open.Nonce = looks.Session, flight.Nonce{3}
						answer, err := fd.Desk().Verdict(t.Context(), verdict)
						if o == flight.Succeeded {
							require.NoError(t, err)
							require.Equal(t, flight.Replay, answer.Decision)
							return
						}
						require.NoError(t, err)
						require.Equal(t, flight.Proceed, answer.Decision)
					})
				})
			}
		}
	}
}

// Where the node that sent the caller to look is gone, its claim goes once nothing can be opened under it any more.
func TestLate_AReportEndsTheLookOfADeadNode(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a, looks, _ := looked(t, fd, true)
		fd.Leases.Freeze()
		next := fd.Restart(t, flightdtest.Options{})
		_, err := next.Desk().Report(t.Context(), reportOf(a, flight.NotDone, ""))
		require.NoError(t, err)
		for range 8 {
			asleep(t, 4*time.Second)
			_, err := next.Desk().Renew(t.Context(), looks.Session, executor.Renewal{Nonces: []flight.Nonce{}})
			require.NoError(t, err)
		}
		require.Zero(t, claimsOf(t, next))
	})
}

// looked is a first attempt of unknown outcome, and a caller that was sent to look for it.
func looked(t *testing.T, fd *flightdtest.Flightd, ofSession bool) (a, looks executor.OpenAnswer, req executor.OpenRequest) {
	t.Helper()
	if ofSession {
		a, req, looks = sentToLook(t, fd)
		return a, looks, req
	}
	req = openOf("1", `{}`, flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}, 1)
	a = proceed(t, fd, req)
	_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
	require.NoError(t, err)
	req.Nonce, req.Wait = flight.Nonce{2}, time.Minute
	looks, err = fd.Desk().Open(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, flight.Look, looks.Decision)
	return a, looks, req
}

// glanced calls between once before a flight is read next.
type glanced struct {
	*flightdtest.Ledger
	between func()
}

func (l *glanced) Flight(id flight.ID) (*flight.Flight, error) {
	if f := l.between; f != nil {
		l.between = nil
		f()
	}
	return l.Ledger.Flight(id)
}

// A renewal finds the attempt of its session over, which was reported elsewhere, while the same session is sent to look.
func TestLate_ARenewalLeavesTheLookersClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(glanced)
		there := flightdtest.Open(t, flightdtest.Options{})
		here := there.Restart(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) {
			l.Ledger = cfg.Ledger.(*flightdtest.Ledger)
			cfg.Ledger = l
		}})
		p := flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}
		req := openOf("1", `{}`, p, 1)
		req.Session = session(t, here)
		a := proceed(t, here, req)
		for range 4 { // the node loses sight of it
			asleep(t, 5*time.Second)
			_, err := there.Desk().Renew(t.Context(), req.Session, executor.Renewal{})
			require.NoError(t, err)
		}
		_, err := there.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
		require.NoError(t, err)
		asleep(t, 5*time.Second)
		_, err = here.Desk().Open(t.Context(), openOf("1", `{}`, p, 8)) // from here on this node waits for no settle delay
		requireAs[*effect.Busy](t, err)
		asleep(t, 2*time.Second)
		l.between = func() {
			req.Nonce = flight.Nonce{2}
			looks, err := here.Desk().Open(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, flight.Look, looks.Decision)
		}
		_, err = here.Desk().Renew(t.Context(), req.Session, executor.Renewal{})
		require.NoError(t, err)
		require.Nil(t, l.between)
		require.Equal(t, 1, claimsOf(t, there), "that of the looker")
	})
}
