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

func TestRollNeverDeniesAFlight(t *testing.T) {
	const flights = 3 * smallestSheet // several segments
	r := newRoll(0)
	for i := range flights {
		if i%2 == 0 {
			r.enter(testKey(i).FlightID())
		} else {
			r.copyIn(testKey(i).FlightID())
		}
	}
	for i := range flights {
		require.True(t, r.mayHold(testKey(i).FlightID()), "flight %d", i)
	}
	require.Greater(t, len(*r.sheets.Load()), 1)
}

// A full segment stays within the false positive rate that the comment of keyFilter states.
func TestRollIsSeldomWrong(t *testing.T) {
	const flights = 4 * smallestSheet
	r := newRoll(flights*4/5 + 1) // the filter adds a quarter
	for i := range flights {
		r.enter(testKey(i).FlightID())
	}
	wrong := 0
	for i := range flights {
		if r.mayHold(testKey(flights + i).FlightID()) {
			wrong++
		}
	}
	t.Logf("wrong %d times in %d", wrong, flights)
	require.Less(t, wrong, flights/100)
	require.Positive(t, wrong, "else this measures nothing")
}

func TestRollIsReadWhileItGrows(t *testing.T) {
	r := newRoll(0)
	var group sync.WaitGroup
	entered := make(chan flight.ID, 64)
	group.Go(func() {
		defer close(entered)
		for i := range 2 * smallestSheet {
			id := testKey(i).FlightID()
			r.enter(id)
			entered <- id
		}
	})
	for id := range entered {
		require.True(t, r.mayHold(id))
	}
	group.Wait()
}

// A flight missing in the key filter would be treated as unused, and its effect would happen again. Open rejects such
// a state.
func TestOpenRefusesARollWithAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		cfg := memConfig(fs)
		s := openStore(t, cfg)
		for i := range 5 {
			fly(t, s, i)
		}
		require.NoError(t, s.Close(context.Background()))

		db, err := pebble.Open(fs.PathJoin(cfg.Dir, s.state.name), stateOptions(&pebble.Options{FS: fs}))
		require.NoError(t, err)
		require.NoError(t, db.DeleteRange(singleRow(rollRow), singleRow(rollRow+1), pebble.Sync))
		require.NoError(t, db.Close())

		_, err = Open(context.Background(), cfg)
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, "key filter")
	})
}
