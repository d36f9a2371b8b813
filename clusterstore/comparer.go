package clusterstore

import "github.com/cockroachdb/pebble/v2"

// rowComparer orders rows by their bytes, and tells Pebble that the rows of one flight stand under one name. Filters
// then hold a flight once and not once for each of its rows: those of ten million flights take 12 MiB, and stay in
// memory. Whether a key was ever used, which every new flight asks, is answered there.
func rowComparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "flightd.rows.v1"
	c.Split = splitRow
	return &c
}

// splitRow is the length of the name of a row: of the rows of flights the id alone, of all others the whole key.
func splitRow(key []byte) int {
	if len(key) > ownKind && key[0] == flightRows {
		return ownKind
	}
	return len(key)
}
