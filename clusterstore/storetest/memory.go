package storetest

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
)

// Open starts a real single-voter ledger on an in-memory file system. The test closes it.
func Open(t testing.TB) *clusterstore.Store {
	t.Helper()
	s, err := clusterstore.Open(context.Background(), clusterstore.Config{Dir: "ledger", FS: vfs.NewMem(),
		Memory: clusterstore.Memory{BlockCache: 8 << 20, MemTable: 4 << 20, Flights: 4096}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}
