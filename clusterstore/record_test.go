package clusterstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestRecordComesBackAsItWas(t *testing.T) {
	r := &record{flight: &flight.Flight{ID: testKey(1).FlightID(), Key: testKey(1), Generation: 2, State: flight.StateSucceeded}}
	r.putBody(inlineBody{1, BodyReceipt, []byte("one")})
	r.putBody(inlineBody{2, BodyInput, []byte{0}})
	r.putBody(inlineBody{2, BodyReceipt, make([]byte, maxInlineBody)})
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
	require.Equal(t, r, read, "a decoded record retains no input bytes")
}

// A reader may hold a record while the fsm creates its successor.
func TestRecordIsNotChangedByTheNextOne(t *testing.T) {
	first := &record{flight: new(flight.Flight)}
	first.putBody(inlineBody{1, BodyInput, []byte("in")})
	first.putBody(inlineBody{1, BodyReceipt, []byte("out")})
	first.putBody(inlineBody{2, BodyInput, []byte("in")})
	require.Greater(t, cap(first.bodies), len(first.bodies), "the test needs spare capacity")
	before := append([]inlineBody(nil), first.bodies...)

	second := first.withFlight(new(flight.Flight))
	second.putBody(inlineBody{2, BodyReceipt, []byte("more")})
	third := first.withFlight(new(flight.Flight))
	third.putBody(inlineBody{3, BodyInput, []byte("other")})

	require.Equal(t, before, first.bodies)
	_, found := second.body(3, BodyInput)
	require.False(t, found)
	require.True(t, second.removeBody(1, BodyInput))
	require.False(t, second.removeBody(1, BodyInput))
	require.Len(t, second.bodies, 3)
	require.Equal(t, before, first.bodies)
	require.Nil(t, flightOf(nil))
	_, found = (*record)(nil).body(1, BodyInput)
	require.False(t, found)
}

// A cache holds fewer records when they are heavy.
func TestCacheWeighsRecords(t *testing.T) {
	count := func(size int) (held int) {
		c := newCache(4096)
		for i := range 20_000 {
			r := generation(1)
			r.putBody(inlineBody{1, BodyReceipt, make([]byte, size)})
			c.put(testKey(i).FlightID(), r)
		}
		for i := range c.shards {
			held += len(c.shards[i].byID)
		}
		return held
	}
	const main = 4096 - 4096/probationShare
	require.Equal(t, main, count(10))
	require.Equal(t, main/2, count(recordOverhead))
}

// Records that are read repeatedly stay cached, however many others pass through.
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

// A scan evicts no records in use and does not stay cached.
func TestCacheIsNotFilledByWhatIsReadOnce(t *testing.T) {
	const places = 4096
	c := newCache(places)
	read := func(n int) (hit bool) {
		id := testKey(n).FlightID()
		r, writes := c.get(id)
		if r == nil {
			c.fill(id, generation(uint32(n)), writes)
		}
		return r != nil
	}
	for i := range places / 2 { // written and never read
		c.put(testKey(i).FlightID(), generation(uint32(i)))
	}
	const hot, rounds = 100, 400
	missed := 0
	for round := range rounds {
		for i := range hot {
			if !read(10_000+i) && round > 20 {
				missed++
			}
		}
		for i := range 1000 { // a scan
			read(100_000 + 1000*round + i)
		}
	}
	require.Less(t, missed, hot*rounds/100)
	written, held := 0, 0
	for i := range places / 2 {
		if r, _ := c.get(testKey(i).FlightID()); r != nil {
			written++
		}
	}
	for i := range c.shards {
		held += len(c.shards[i].byID)
	}
	require.Equal(t, places/2, written)
	require.Less(t, held, places/2+hot+places/probationShare+hot, "only the last records of a scan stay cached")
}

// A write replaces a record, and remove removes it, in ring and probation.
func TestCacheIsRightInBothPlaces(t *testing.T) {
	c := newCache(4096)
	once, again, never := testKey(1).FlightID(), testKey(2).FlightID(), testKey(3).FlightID()
	_, writes := c.get(once)
	c.fill(once, generation(1), writes)
	c.put(again, generation(1))
	for _, id := range []flight.ID{once, again} {
		for i, write := range []func(flight.ID, *record){c.refresh, c.put, c.refresh} {
			write(id, generation(uint32(10+i)))
			r, _ := c.get(id)
			require.Equal(t, uint32(10+i), r.flight.Generation)
		}
		c.remove(id)
		r, _ := c.get(id)
		require.Nil(t, r)
	}
	_, writes = c.get(never)
	c.refresh(never, generation(2))
	r, _ := c.get(never)
	require.Nil(t, r, "a count caches no record")
	c.fill(never, generation(1), writes)
	r, _ = c.get(never)
	require.Nil(t, r, "a record read before a count is not cached after it")
}
