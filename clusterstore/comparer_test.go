package clusterstore

import (
	"bytes"
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// Pebble's own check of comparers also requires splits that ignore the first byte, for tables with a synthetic key
// prefix. This package has none.
func TestRowComparer_NamesKeepTheOrderOfRows(t *testing.T) {
	keys := [][]byte{singleRow(flightRows), singleRow(flightRows + 1), singleRow(metaRow)}
	for _, k := range []string{"a/b/c", "a/b/d", "a/b/e"} {
		id := flight.MustKey(k).FlightID()
		own := [][]byte{tallyKey(nil, id), recordKey(nil, id), historyKey(nil, id, flight.Version{Index: 7}), historyKey(nil, id, flight.Version{Index: 8}), bodyKey(nil, id, 1, Input), bodyKey(nil, id, 2, Receipt)}
		for _, key := range own {
			require.Equal(t, append(singleRow(flightRows), id[:]...), key[:splitRow(key)])
		}
		places := [][]byte{placeKey(nil, liveRow, 1, id), placeKey(nil, listRow, 1, id), placeKey(nil, expiryRow, 1, id)}
		for _, key := range places {
			require.Equal(t, len(key), splitRow(key), "%q stands for itself", key)
		}
		keys = append(append(keys, own...), places...)
	}
	compare := rowComparer().Compare
	for _, a := range keys {
		for _, b := range keys {
			n, m := splitRow(a), splitRow(b)
			require.Equal(t, bytes.Compare(a, b), cmp.Or(bytes.Compare(a[:n], b[:m]), bytes.Compare(a[n:], b[m:])), "%q and %q", a, b)
			require.Equal(t, bytes.Compare(a, b), compare(a, b))
		}
	}
}
