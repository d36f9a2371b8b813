package gate

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestClose_WaitsForUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		require.True(t, g.Enter())
		require.True(t, g.Enter())
		closed := make(chan bool, 1)
		go func() { closed <- g.Close() }()
		synctest.Wait()
		require.False(t, g.Enter(), "the gate is closing")
		g.Leave()
		synctest.Wait()
		require.Empty(t, closed, "one user is left")
		g.Leave()
		require.True(t, <-closed)
		require.False(t, g.Close())
	})
}
