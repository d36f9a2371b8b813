package saga

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Which success of a step an undone saga has missed: one that no undo has seen. Its undo gets what the ledger has of it.
func TestUndoLate(t *testing.T) {
	d := trip()
	d.Steps[0].Undo.Input = []byte(`{"id": {"$from": "/steps/hotel/external_id"}, "room": {"$from": "/steps/hotel/body/id"}, "is": {"$from": "/steps/hotel/outcome"}}`)
	late := func(f *flight.Flight, at flight.Time, id string) *flight.Flight {
		f.Evidence = append(f.Evidence, flight.Evidence{Outcome: flight.OutcomeSucceeded, ExternalID: id, At: at})
		return f
	}
	undoneAt := func(at flight.Time, index uint64) *flight.Flight {
		u := endedAt(index + 10)
		u.CreatedAt, u.Place = at, &flight.Place{Since: flight.Version{Index: index}}
		return u
	}
	for _, c := range []struct {
		name       string
		step, undo *flight.Flight
		input      string // "": nothing is late
	}{
		{"it was taken for not done", late(flightIn(flight.StateCancelled), now, "b"), nil, `{"id":"b","is":"succeeded","room":null}`},
		{"the last of several", late(late(flightIn(flight.StateFailed), now, "b"), now, "c"), nil, `{"id":"c","is":"succeeded","room":null}`},
		{"a second effect after the undo of the first", late(endedAt(5), now+1, "b"), undoneAt(now, 7), `{"id":"b","is":"succeeded","room":null}`},
		{"the evidence was there before the undo", late(flightIn(flight.StateCancelled), now-1, "b"), undoneAt(now, 7), ""},
		{"a repeat of the first report", late(endedAt(5), now+1, "x"), undoneAt(now, 7), ""},
		{"the first success after its undo, which did not wait for it", endedAt(9), undoneAt(now, 7), `{"id":"x","is":"succeeded","room":1}`},
		{"it was undone", endedAt(5), undoneAt(now, 7), ""},
		{"it did not happen", flightIn(flight.StateCancelled), nil, ""},
		{"it was never started", nil, nil, ""},
	} {
		v := viewOf(d, flight.PhaseUndoing, map[int]*flight.Flight{0: c.step}, map[int]*flight.Flight{0: c.undo})
		v.Saga.Key, v.Saga.State = flight.MustKey("default/trip/b-1"), flight.StateFailed
		step, _, input, err := UndoLate(d, v, "hotel")
		require.Equal(t, c.input != "", IsLate(d, v, 0), c.name)
		if c.input == "" {
			var bad *wire.Invalid
			require.ErrorAs(t, err, &bad, c.name)
			require.Equal(t, wire.PreconditionFailed, bad.Code)
			continue
		}
		require.NoError(t, err, c.name)
		require.Zero(t, step)
		require.Equal(t, c.input, string(input), c.name)
		v.Saga.State = flight.StateSucceeded
		require.False(t, IsLate(d, v, 0), "nothing of a saga that is done is undone")
	}
}

// The undo of a step that was reported as late gets what the ledger has of the report, if that came before the undo. Each time it gets the same.
func TestResolve_UndoOfALateSuccess(t *testing.T) {
	d := trip()
	d.Steps[0].Undo.Input = []byte(`{"id": {"$from": "/steps/hotel/external_id"}, "room": {"$from": "/steps/hotel/body/id"}, "is": {"$from": "/steps/hotel/outcome"}}`)
	f, u := flightIn(flight.StateCancelled), running()
	f.Unknown, u.CreatedAt = true, now
	for _, c := range []struct {
		id    string
		at    flight.Time
		input string
	}{
		{"", 0, `{"id":null,"is":"unknown","room":null}`},
		{"a", now - 2, `{"id":"a","is":"succeeded","room":null}`},
		{"b", now - 1, `{"id":"b","is":"succeeded","room":null}`},
		{"c", now, `{"id":"b","is":"succeeded","room":null}`},
	} {
		if c.id != "" {
			f.Evidence = append(f.Evidence, flight.Evidence{Outcome: flight.OutcomeSucceeded, ExternalID: c.id, At: c.at})
		}
		v := viewOf(d, flight.PhaseUndoing, map[int]*flight.Flight{0: f}, map[int]*flight.Flight{0: u})
		input, err := Resolve(d, v, 0, true)
		require.NoError(t, err)
		require.Equal(t, c.input, string(input))
		v.Saga.State = flight.StateFailed
		require.Equal(t, c.id == "c", IsLate(d, v, 0))
	}
}
