package clusterstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestRecordComesBackAsItWas(t *testing.T) {
	r := &record{flight: &flight.Flight{ID: testKey(1).FlightID(), Key: testKey(1), Generation: 2, State: flight.StateSucceeded}}
	r.set(shortBody{1, Receipt, []byte("one")})
	r.set(shortBody{2, Input, []byte{0}})
	r.set(shortBody{2, Receipt, make([]byte, longestShort)})
	b, err := appendRecord(nil, r)
	require.NoError(t, err)
	read, err := decodeRecord(b)
	require.NoError(t, err)
	require.Equal(t, r, read)
	for i := range b {
		_, err := decodeRecord(b[:i])
		require.Error(t, err, "cut at %d", i)
	}
	clear(b)
	require.Equal(t, r, read, "it keeps nothing of what it was read from")
}

// A reader may hold a record while the machine makes the next one.
func TestRecordIsNotChangedByTheNextOne(t *testing.T) {
	first := &record{flight: new(flight.Flight)}
	first.set(shortBody{1, Input, []byte("in")})
	first.set(shortBody{1, Receipt, []byte("out")})
	first.set(shortBody{2, Input, []byte("in")})
	require.Greater(t, cap(first.bodies), len(first.bodies), "else there is nothing to write over")
	before := append([]shortBody(nil), first.bodies...)

	second := first.next(new(flight.Flight))
	second.set(shortBody{2, Receipt, []byte("more")})
	third := first.next(new(flight.Flight))
	third.set(shortBody{3, Input, []byte("other")})

	require.Equal(t, before, first.bodies)
	_, found := second.body(3, Input)
	require.False(t, found)
	require.True(t, second.drop(1, Input))
	require.False(t, second.drop(1, Input))
	require.Len(t, second.bodies, 3)
	require.Equal(t, before, first.bodies)
	require.Nil(t, flightOf(nil))
	_, found = (*record)(nil).body(1, Input)
	require.False(t, found)
}

// A cache holds fewer records where they are heavy.
func TestCacheWeighsRecords(t *testing.T) {
	count := func(size int) (held int) {
		c := newCache(4096)
		for i := range 20_000 {
			r := generation(1)
			r.set(shortBody{1, Receipt, make([]byte, size)})
			c.put(testKey(i).FlightID(), r)
		}
		for i := range c.shards {
			held += len(c.shards[i].young) + len(c.shards[i].old)
		}
		return held
	}
	require.Greater(t, count(10), 2048)
	require.LessOrEqual(t, count(10), 4096)
	require.LessOrEqual(t, count(usualWeight), 2048+cacheShards)
}
