package clusterstore

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		found   diskState
		restore bool
		damaged string
	}{
		"new":                              {found: diskState{}},
		"begun, all of it lost":            {found: diskState{Started: true}, damaged: "had entries"},
		"bootstrapped":                     {found: diskState{First: 1, Last: 1, HasTerm: true}},
		"goes on":                          {found: diskState{Applied: 9, AppliedTerm: 2, TermAtApplied: 2, First: 1, Last: 12, HasTerm: true}},
		"state lost, log whole":            {found: diskState{First: 1, Last: 12, HasTerm: true}},
		"state lost, snapshot there":       {found: diskState{Snapshot: 8, First: 5, Last: 12, HasTerm: true}, restore: true},
		"state behind the snapshot":        {found: diskState{Applied: 5, Snapshot: 8, First: 5, Last: 12, HasTerm: true}, restore: true},
		"state ahead of the snapshot":      {found: diskState{Applied: 9, Snapshot: 8, First: 9, Last: 12, HasTerm: true}},
		"snapshot installed, log empty":    {found: diskState{Snapshot: 8, HasTerm: true}, restore: true},
		"state and snapshot, log empty":    {found: diskState{Applied: 8, Snapshot: 8, HasTerm: true}},
		"state lost, log cut in front":     {found: diskState{First: 5, Last: 12, HasTerm: true}, damaged: "entries 1 to 4"},
		"snapshot lost, state behind":      {found: diskState{Applied: 3, First: 5, Last: 12, HasTerm: true}, damaged: "entries 4 to 4"},
		"log database lost":                {found: diskState{Applied: 9}, damaged: "forgotten its votes"},
		"log database lost, snapshot":      {found: diskState{Snapshot: 9}, damaged: "forgotten its votes"},
		"log cut behind what was applied":  {found: diskState{Applied: 9, First: 1, Last: 8, HasTerm: true}, damaged: "ends at entry 8"},
		"log emptied behind what was used": {found: diskState{Applied: 9, Snapshot: 8, HasTerm: true}, damaged: "ends at entry 0"},
		"log of another history":           {found: diskState{Applied: 9, AppliedTerm: 3, TermAtApplied: 2, First: 1, Last: 12, HasTerm: true}, damaged: "different histories"},
	} {
		t.Run(name, func(t *testing.T) {
			restore, err := planRecovery(c.found)
			if c.damaged != "" {
				require.ErrorIs(t, err, ErrDamaged)
				require.ErrorContains(t, err, c.damaged)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.restore, restore)
		})
	}
}

// classifyRaftError treats only these errors as definite. The test uses raft's own list, so new errors are ambiguous.
func TestHazard28_OnlyThreeErrorsAreADefiniteNo(t *testing.T) {
	require.NoError(t, classifyRaftError(nil))
	require.ErrorIs(t, classifyRaftError(raft.ErrNotLeader), ErrNotLeader)
	require.ErrorIs(t, classifyRaftError(raft.ErrEnqueueTimeout), ErrUnavailable)
	require.ErrorIs(t, classifyRaftError(raft.ErrLeadershipTransferInProgress), ErrUnavailable)
	for _, err := range []error{raft.ErrLeadershipLost, raft.ErrRaftShutdown, raft.ErrAbortedByRestore, io.ErrUnexpectedEOF, errors.New("new in raft")} {
		require.ErrorIs(t, classifyRaftError(err), effect.ErrAmbiguous)
		require.ErrorIs(t, classifyRaftError(err), err)
	}
}

func sampleEntry(t testing.TB) []byte {
	b := appendHeader(nil, stamp{now: 1234, wall: 1235})
	for _, c := range []flight.Command{&flight.Tick{}, &flight.Retry{Key: testKey(1), Generation: 2}, &flight.SealKey{Key: testKey(2)}} {
		data, err := flight.Encode(c)
		require.NoError(t, err)
		b = appendCommand(b, data)
	}
	return b
}

func TestEntry(t *testing.T) {
	b := sampleEntry(t)
	require.Equal(t, []byte{1, 0, 0, 0, 0, 0, 0, 4, 210, 0, 0, 0, 0, 0, 0, 4, 211}, b[:entryFixed])
	at, commands, err := decodeEntry(b, flight.MaxLevel)
	require.NoError(t, err)
	require.Equal(t, stamp{now: 1234, wall: 1235}, at)
	require.Equal(t, []flight.Command{&flight.Tick{}, &flight.Retry{Key: testKey(1), Generation: 2}, &flight.SealKey{Key: testKey(2)}}, commands)
	whole := 0
	for cut := range len(b) {
		if _, _, err := decodeEntry(b[:cut], flight.MaxLevel); err == nil {
			whole++ // between two commands
		}
	}
	require.Equal(t, 3, whole)
	_, _, err = decodeEntry([]byte{entryVersion + 1}, flight.MaxLevel)
	require.ErrorIs(t, err, ErrNewer)
	newer := appendCommand(appendHeader(nil, stamp{now: 1}), []byte{flight.CodecVersion + 1, 1})
	_, _, err = decodeEntry(newer, flight.MaxLevel)
	require.ErrorIs(t, err, ErrNewer)
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(sampleEntry(f))
	f.Add(appendHeader(nil, stamp{now: 1}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		at, commands, err := decodeEntry(b, flight.MaxLevel)
		if err != nil {
			return
		}
		again := appendHeader(nil, at)
		for _, c := range commands {
			data, err := flight.Encode(c)
			require.NoError(t, err)
			again = appendCommand(again, data)
		}
		then, twice, err := decodeEntry(again, flight.MaxLevel)
		require.NoError(t, err)
		require.Equal(t, at, then)
		require.Equal(t, commands, twice)
	})
}

func sampleStream(t *testing.T) []byte {
	var b bytes.Buffer
	w, err := newRowWriter(&b, streamHeader{Cluster: "c", Applied: 7})
	require.NoError(t, err)
	require.NoError(t, w.row([]byte("a"), []byte("one")))
	require.NoError(t, w.row([]byte("b"), nil))
	require.NoError(t, w.end())
	return b.Bytes()
}

func readStream(b []byte) (map[string]string, streamHeader, error) {
	r, head, err := newRowReader(bytes.NewReader(b))
	rows := make(map[string]string)
	for err == nil {
		var key, value []byte
		if key, value, err = r.next(); err == nil {
			rows[string(key)] = string(value)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return rows, head, err
}

// A stream that is truncated or changed anywhere is rejected.
func TestStreamOfRows(t *testing.T) {
	b := sampleStream(t)
	rows, head, err := readStream(b)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "one", "b": ""}, rows)
	require.Equal(t, uint64(7), head.Applied)
	for i := range b {
		_, _, err := readStream(b[:i])
		require.Error(t, err, "cut at %d", i)
		changed := bytes.Clone(b)
		changed[i] ^= 0x20
		_, _, err = readStream(changed)
		require.Error(t, err, "changed at %d", i)
	}
	newer := bytes.Replace(b, []byte(`"format":1`), []byte(`"format":2`), 1)
	_, _, err = readStream(newer)
	require.ErrorIs(t, err, ErrNewer)
}

// generation returns a record that is identified by its generation.
func generation(n uint32) *record { return &record{flight: &flight.Flight{Generation: n}} }

func TestCacheIsBoundedAndNeverStale(t *testing.T) {
	c := newCache(1000)
	ids := make([]flight.ID, 5000)
	for i := range ids {
		ids[i] = testKey(i).FlightID()
		c.put(ids[i], generation(uint32(i)))
	}
	held := 0
	for i := range c.shards {
		held += len(c.shards[i].byID)
	}
	require.LessOrEqual(t, held, 1000)
	f, _ := c.get(ids[4999])
	require.Equal(t, uint32(4999), f.flight.Generation)

	id := testKey(90_000).FlightID()
	_, writes := c.get(id)
	c.put(id, generation(2))
	for i := range 5000 { // until it is evicted again
		c.put(testKey(100_000+i).FlightID(), generation(0))
	}
	c.fill(id, generation(1), writes)
	f, _ = c.get(id)
	require.Nil(t, f, "a record read before a write is not cached after it")
}
