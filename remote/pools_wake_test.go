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

// Actions that nobody asks for any more are forgotten.
func TestPools_ManyActions_Forgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPools(nil, noJobs{})
		for i := range 10_000 {
			p.leave(p.wait(&ClaimRequest{Namespace: "billing", Actions: []string{fmt.Sprint(i)}, Session: "s"}))
			time.Sleep(time.Second)
		}
		require.Less(t, len(p.use.actions["billing"])+len(p.oldUse.actions["billing"]), 200)
		require.Equal(t, 1, p.Workers("billing", "9999"))
	})
}
