package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor/executortest"
)

// The real ledger passes the same suite as the fake of package flightdtest, so proofs with the fake hold for the
// ledger.
func TestStoreConformsToLedger(t *testing.T) {
	t.Parallel()
	executortest.Run(t, func(t *testing.T) executortest.Store {
		store, err := clusterstore.Open(t.Context(), clusterstore.Config{Dir: t.TempDir()})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			require.NoError(t, store.Close(ctx))
		})
		return store
	})
}
