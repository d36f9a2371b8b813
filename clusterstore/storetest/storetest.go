// Package storetest changes the files of a ledger for the tests of other packages.
package storetest

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

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
