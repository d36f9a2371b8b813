package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestBodiesAreKeptWithinTheirBound(t *testing.T) {
	b := newBodies(bodyShards * 2 * (longestBody + bodyCost)) // room for one long body in each generation of a shard
	f := func(n byte, index uint64) *flight.Flight {
		return &flight.Flight{ID: flight.ID{0, n}, Version: flight.Version{Index: index}}
	}
	long := func(n byte) []byte { return append(make([]byte, longestBody-1), n) }
	b.put(f(1, 1), long(1))
	got, found := b.get(f(1, 1))
	require.True(t, found)
	require.Equal(t, long(1), got)
	clear(got) // a reader's bytes are its own
	got, _ = b.get(f(1, 1))
	require.Equal(t, long(1), got)
	_, found = b.get(f(1, 2))
	require.False(t, found, "the flight has changed")

	b.put(f(2, 1), long(2))
	_, found = b.get(f(1, 1)) // of the old generation, and young again
	require.True(t, found)
	b.put(f(3, 1), long(3))
	_, found = b.get(f(2, 1))
	require.False(t, found, "nobody asked for it")
	for range 100 {
		b.put(f(1, 1), long(1))
	}
	s := &b.shards[0]
	require.LessOrEqual(t, len(s.young)+len(s.old), 2)

	b.put(f(4, 1), make([]byte, longestBody+1))
	_, found = b.get(f(4, 1))
	require.False(t, found, "too long")
	none := newBodies(-1)
	none.put(f(1, 1), nil)
	_, found = none.get(f(1, 1))
	require.False(t, found)
}
