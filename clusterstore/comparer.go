package clusterstore

import "github.com/cockroachdb/pebble/v2"

// rowComparer orders rows by their bytes, and gives Pebble one prefix for all rows of a flight. Bloom filters then
// hold a flight once instead of once per row: the filters of ten million flights take 12 MiB and stay in memory. A
// lookup of a key that was never used ends there.
func rowComparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "flightd.rows.v1"
	c.Split = splitRowKey
	return &c
}

// splitRowKey returns the length of a row's prefix: kind and id for a row of a flight, else the whole key.
func splitRowKey(key []byte) int {
	if len(key) > kindOffset && key[0] == flightRows {
		return kindOffset
	}
	return len(key)
}
