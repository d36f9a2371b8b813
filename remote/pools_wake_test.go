package remote

import (
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// noJobs are Jobs of which only wake is used.
type noJobs struct{ Jobs }

func (noJobs) OnReady(func(namespace, action string))         {}
func (noJobs) OnEnded(func(namespace, action string))         {}
func (noJobs) Ready(string, string, bool) iter.Seq[flight.ID] { return func(func(flight.ID) bool) {} }

// A claim that takes other jobs than the one it was woken for lets that one wake the next claim.
func TestPools_WokenButServed_WakesTheNext(t *testing.T) {
	p := NewPools(nil, noJobs{})
	req := &ClaimRequest{Namespace: "billing", Actions: []string{"charge", "mail"}}
	first, second := p.wait(req), p.wait(req)
	p.wake("billing", "mail")
	require.Empty(t, second.ready)
	p.leave(first)
	require.Len(t, second.ready, 1)
	p.leave(second)
	require.Empty(t, p.waiting)
}

// Claims, and jobs that could not be opened, are known for their life, and then forgotten without a search.
func TestPools_Recent_Forgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPools(nil, noJobs{})
		first := p.claim(&ClaimRequest{Session: "s", Nonce: "first"})
		time.Sleep(flight.MaxOpenLife - time.Nanosecond)
		require.Same(t, first, p.claim(&ClaimRequest{Session: "s", Nonce: "first"}))
		for i := range 10_000 {
			p.claim(&ClaimRequest{Session: "s", Nonce: fmt.Sprint(i)})
			p.giveBack(flight.ID{byte(i), byte(i >> 8)}, true)
			time.Sleep(100 * time.Millisecond)
		}
		require.NotSame(t, first, p.claim(&ClaimRequest{Session: "s", Nonce: "first"}))
		require.LessOrEqual(t, len(p.claims.now)+len(p.claims.old), int(2*flight.MaxOpenLife/(100*time.Millisecond))+2)
		require.LessOrEqual(t, len(p.failed.now)+len(p.failed.old), 22)
		_, failed := p.failed.get(flight.ID{9999 & 0xff, 9999 >> 8})
		require.True(t, failed)
		require.Empty(t, p.taken)
	})
}
