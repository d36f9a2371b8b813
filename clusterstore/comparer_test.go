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
	keys := [][]byte{kindKey(flightRows), kindKey(flightRows + 1), kindKey(metaRow)}
	for _, k := range []string{"a/b/c", "a/b/d", "a/b/e"} {
		id := flight.MustKey(k).FlightID()
		own := [][]byte{duplicatesKey(nil, id), recordKey(nil, id), historyKey(nil, id, flight.Version{Index: 7}), historyKey(nil, id, flight.Version{Index: 8}), bodyKey(nil, id, 1, BodyInput), bodyKey(nil, id, 2, BodyReceipt)}
		for _, key := range own {
			require.Equal(t, append(kindKey(flightRows), id[:]...), key[:splitRowKey(key)])
		}
		places := [][]byte{orderedKey(nil, liveRow, 1, id), orderedKey(nil, listRow, 1, id), orderedKey(nil, expiryRow, 1, id)}
		for _, key := range places {
			require.Equal(t, len(key), splitRowKey(key), "%q stands for itself", key)
		}
		keys = append(append(keys, own...), places...)
	}
	compare := rowComparer().Compare
	for _, a := range keys {
		for _, b := range keys {
			n, m := splitRowKey(a), splitRowKey(b)
			require.Equal(t, bytes.Compare(a, b), cmp.Or(bytes.Compare(a[:n], b[:m]), bytes.Compare(a[n:], b[m:])), "%q and %q", a, b)
			require.Equal(t, bytes.Compare(a, b), compare(a, b))
		}
	}
}
