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
			held += len(c.shards[i].byID)
		}
		return held
	}
	require.Equal(t, 4096, count(10))
	require.Equal(t, 2048, count(usualWeight))
}

// What is asked for again and again stays, however much passes through.
func TestCacheKeepsWhatIsAskedFor(t *testing.T) {
	c := newCache(4096)
	var hot []flight.ID
	for i := range 1000 {
		hot = append(hot, testKey(i).FlightID())
		c.put(hot[i], generation(1))
	}
	const passing = 20 * 4096
	missed := 0
	for i := range passing {
		c.put(testKey(1000+i).FlightID(), generation(1))
		id := hot[i%len(hot)]
		if r, writes := c.get(id); r == nil {
			missed++
			c.fill(id, generation(1), writes)
		}
	}
	t.Logf("missed %d times in %d", missed, passing)
	require.Less(t, missed, passing/100)
}
