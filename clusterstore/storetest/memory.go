package storetest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/clusterstore/pebblelog"
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

// ShortenLog removes the last entries of the log of a ledger that is not open, and returns the index of the last one.
func ShortenLog(t testing.TB, ledger string, entries uint64) (last uint64) {
	t.Helper()
	log, err := pebblelog.Open(filepath.Join(ledger, "log"), pebblelog.Options(&pebble.Options{}))
	require.NoError(t, err)
	last, err = log.LastIndex()
	require.NoError(t, err)
	require.NoError(t, log.DeleteRange(last-entries+1, last))
	require.NoError(t, log.Close())
	return last
}
