package lease

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reservation deletes its claim if the claim may be in etcd, and only then.
func TestReservationKnowsWhatToDelete(t *testing.T) {
	newReservation := func(kept bool) *reservation {
		g := &grant{kept: kept}
		g.ctx, g.cancel = context.WithCancelCause(t.Context())
		g.needed, g.unneed = context.WithCancel(t.Context())
		t.Cleanup(g.unneed)
		return &reservation{grant: g}
	}
	r := newReservation(true)
	require.False(t, r.needsDelete(), "nothing was sent")
	require.NoError(t, r.startWrite())
	require.True(t, r.needsDelete(), "in flight")
	r.notWritten()
	require.False(t, r.needsDelete(), "rejected by etcd")
	require.NoError(t, r.startWrite())
	r.answerLost()
	require.NoError(t, r.startWrite())
	r.notWritten()
	require.True(t, r.needsDelete(), "the first request may still be performed")

	r.grant.unneed()
	require.False(t, r.needsDelete(), "its etcd lease is revoked")
	remote := newReservation(false)
	require.NoError(t, remote.startWrite())
	remote.grant.unneed()
	require.True(t, remote.needsDelete(), "its session may be renewed through another node")
	remote.grant.gone = true
	require.False(t, remote.needsDelete())

	lost := newReservation(true)
	lost.grant.cancel(errExpired)
	require.ErrorIs(t, lost.startWrite(), ErrLost)
	require.False(t, lost.needsDelete())
}
