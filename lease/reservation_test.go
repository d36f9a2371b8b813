package lease

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reservation deletes its claim if the claim may be in etcd, and only then.
func TestReservationKnowsWhatToDelete(t *testing.T) {
	newReservation := func(kept bool) *reservation {
		g := &grant{local: kept}
		g.trustCtx, g.cancelTrust = context.WithCancelCause(t.Context())
		g.renewCtx, g.stopRenewing = context.WithCancel(t.Context())
		t.Cleanup(g.stopRenewing)
		return &reservation{grant: g}
	}
	r := newReservation(true)
	require.False(t, r.needsDelete(), "nothing was sent")
	require.NoError(t, r.beginWrite())
	require.True(t, r.needsDelete(), "in flight")
	r.markNotWritten()
	require.False(t, r.needsDelete(), "rejected by etcd")
	require.NoError(t, r.beginWrite())
	r.markUnknown()
	require.NoError(t, r.beginWrite())
	r.markNotWritten()
	require.True(t, r.needsDelete(), "the first request may still be performed")

	r.grant.stopRenewing()
	require.False(t, r.needsDelete(), "its etcd lease is revoked")
	remote := newReservation(false)
	require.NoError(t, remote.beginWrite())
	remote.grant.stopRenewing()
	require.True(t, remote.needsDelete(), "its session may be renewed through another node")
	remote.grant.gone = true
	require.False(t, remote.needsDelete())

	lost := newReservation(true)
	lost.grant.cancelTrust(errExpired)
	require.ErrorIs(t, lost.beginWrite(), ErrLost)
	require.False(t, lost.needsDelete())
}
