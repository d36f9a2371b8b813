package horizon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever asks gets at least the whole distance, and at most a quarter more; those who ask together share one timer.
func TestContextsEndBehindTheHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = 200 * time.Millisecond
		h := New(d)
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
		require.False(t, first == h.Context(), "a new one") // compared deeply it would be read while its timer writes
		<-first.Done()
		last := h.Context()
		h.Close()
		require.Error(t, last.Err())
	})
}
