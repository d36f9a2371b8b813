package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor/executortest"
)

// The real ledger takes the exam that the double of flightdtest takes: what is proved with the one holds for the other.
func TestTheStoreIsALedger(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Store {
		store, err := clusterstore.Open(t.Context(), clusterstore.Config{Dir: t.TempDir()})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			require.NoError(t, store.Close(ctx))
		})
		return ledger{store}
	})
}
