package deadline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A context has at least the whole time-out left, and at most a quarter more. Requests that start together share one
// timer.
func TestShared_ContextsEndAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = 200 * time.Millisecond
		h := New(context.Background(), d)
		defer h.Close()
		first := h.Context()
		require.True(t, first == h.Context(), "shared")
		for range 20 {
			asked, ctx := time.Now(), h.Context()
			end, ok := ctx.Deadline()
			require.True(t, ok)
			require.GreaterOrEqual(t, end.Sub(asked), d)
			require.LessOrEqual(t, end.Sub(asked), d+d/4)
			time.Sleep(d / 7)
		}
		require.False(t, first == h.Context(), "a new context") // == because require would read the fields while the timer writes them
		<-first.Done()
		last := h.Context()
		h.Close()
		require.Error(t, last.Err())
	})
}

func TestShared_ContextsEndWithTheParent(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	h := New(parent, time.Hour)
	defer h.Close()
	before := h.Context()
	require.NoError(t, before.Err())
	cancel()
	<-before.Done()
	<-h.Context().Done()
}
