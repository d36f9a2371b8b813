package clusterstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestKeyFilter_NoFalseNegatives(t *testing.T) {
	const flights = 3 * firstSegmentKeys // several segments
	r := newKeyFilter(0)
	for i := range flights {
		if i%2 == 0 {
			r.add(testKey(i).FlightID())
		} else {
			r.addUnshared(testKey(i).FlightID())
		}
	}
	for i := range flights {
		require.True(t, r.mayContain(testKey(i).FlightID()), "flight %d", i)
	}
	require.Greater(t, len(*r.segments.Load()), 1)
}

// A full segment stays within the false positive rate that the comment of keyFilter states.
func TestKeyFilter_FalsePositiveRate(t *testing.T) {
	const flights = 4 * firstSegmentKeys
	r := newKeyFilter(flights*4/5 + 1) // the filter adds a quarter
	for i := range flights {
		r.add(testKey(i).FlightID())
	}
	wrong := 0
	for i := range flights {
		if r.mayContain(testKey(flights + i).FlightID()) {
			wrong++
		}
	}
	t.Logf("wrong %d times in %d", wrong, flights)
	require.Less(t, wrong, flights/100)
	require.Positive(t, wrong, "else this measures nothing")
}

func TestKeyFilter_ReadWhileGrowing(t *testing.T) {
	r := newKeyFilter(0)
	var group sync.WaitGroup
	entered := make(chan flight.ID, 64)
	group.Go(func() {
		defer close(entered)
		for i := range 2 * firstSegmentKeys {
			id := testKey(i).FlightID()
			r.add(id)
			entered <- id
		}
	})
	for id := range entered {
		require.True(t, r.mayContain(id))
	}
	group.Wait()
}

// A flight missing in the key filter would be treated as unused, and its effect would happen again. Open rejects such
// a state.
func TestOpen_RejectsIncompleteKeyFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		cfg := memConfig(fs)
		s := openStore(t, cfg)
		for i := range 5 {
			openAndReport(t, s, i)
		}
		require.NoError(t, s.Close(context.Background()))

		db, err := pebble.Open(fs.PathJoin(cfg.Dir, s.state.name), stateOptions(&pebble.Options{FS: fs}))
		require.NoError(t, err)
		require.NoError(t, db.DeleteRange(kindKey(filterRow), kindKey(filterRow+1), pebble.Sync))
		require.NoError(t, db.Close())

		_, err = Open(context.Background(), cfg)
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, "key filter")
	})
}
