package remote_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/remote"
)

func TestAbandon(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		for name, ofSession := range map[string]bool{"session": true, "one-shot": false} {
			req := openOf(name, `{}`, flight.Policy{}, 1)
			req.NotAfter = fd.Ledger.Now().Add(30 * time.Second)
			if ofSession {
				req.Session = session(t, fd)
			}
			a := proceed(t, fd, req)
			word := remote.AbandonRequest{Key: req.Key, Nonce: req.Nonce, NotAfter: req.NotAfter}
			for range 2 {
				require.NoError(t, fd.Remote().Abandon(t.Context(), word))
				require.Equal(t, flight.StateReady, fd.Flight(req.Key).State)
				require.Zero(t, claimsOf(t, fd))
			}
			require.Equal(t, ofSession, slices.Contains(fd.Leases.Etcd.Sessions(), a.Session))
			_, err := fd.Remote().Open(t.Context(), req)
			requireAs[*effect.Fenced](t, err)
			_, err = fd.Remote().Report(t.Context(), reportOf(a, flight.OutcomeSucceeded, "ch_1"))
			require.NoError(t, err, "a report of the newest attempt counts even after its abandon")

			// The open arrives after its abandon.
			late := openOf(name+"-late", `{}`, flight.Policy{}, 1)
			late.NotAfter = req.NotAfter
			require.NoError(t, fd.Remote().Abandon(t.Context(), remote.AbandonRequest{Key: late.Key, Nonce: late.Nonce, NotAfter: late.NotAfter}))
			_, err = fd.Remote().Open(t.Context(), late)
			requireAs[*effect.Fenced](t, err)
		}
	})
}

func TestAbandonsThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		good := abandonOf(fd, req)
		for field, spoil := range map[string]func(*remote.AbandonRequest){
			"id":        func(r *remote.AbandonRequest) { r.Key = flight.Key{} },
			"nonce":     func(r *remote.AbandonRequest) { r.Nonce = flight.Nonce{} },
			"not_after": func(r *remote.AbandonRequest) { r.NotAfter = 0 },
		} {
			bad := good
			spoil(&bad)
			require.Equal(t, field, requireAs[*flight.InvalidError](t, fd.Remote().Abandon(t.Context(), bad)).Field)
		}
		far := good
		far.NotAfter = fd.Ledger.Now().Add(24 * time.Hour)
		requireAs[*effect.OpenExpired](t, fd.Remote().Abandon(t.Context(), far))
		for i := range flight.MaxUsedNonces {
			abandon := good
			abandon.Nonce = flight.Nonce{9, byte(i)}
			require.NoError(t, fd.Remote().Abandon(t.Context(), abandon))
		}
		good.Nonce = flight.Nonce{2}
		requireAs[*effect.TooMany](t, fd.Remote().Abandon(t.Context(), good))
		_, err := fd.Remote().Open(t.Context(), openOf("1", `{}`, flight.Policy{}, 3))
		requireAs[*effect.TooMany](t, err)
		sleep(t, time.Minute)
		proceed(t, fd, req)

		waits := openOf("2", `{}`, flight.Policy{}, 1)
		a := proceed(t, fd, waits)
		reply, err := fd.Ledger.Propose(t.Context(), &flight.Suspend{Key: waits.Key, Generation: 1, Token: a.Flight.Newest().Token(), Wake: flight.Wake{Callback: true}})
		require.NoError(t, err)
		require.Equal(t, flight.StateWaiting, reply.Flight.State, "%v", reply.Decision)
		requireAs[*effect.Fenced](t, fd.Remote().Abandon(t.Context(), abandonOf(fd, waits))) // the attempt waits for its callback: its effect has started

		fd.Ledger.Cut()
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, fd.Remote().Abandon(t.Context(), good)).Code)
	})
}
