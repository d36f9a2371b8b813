package driver_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/saga"
	"github.com/flightd/flightd/saga/driver"
)

// ledger has the flights of one saga with 32 steps, all of which have succeeded. It counts what is read.
type ledger struct {
	driver.Ledger
	flights       map[flight.ID]*flight.Flight
	header        flight.Header
	definition    *flight.Document
	reads, bodies int
}

func (l *ledger) Document(flight.DocumentID) *flight.Document { return l.definition }
func (l *ledger) Input(*flight.Flight) ([]byte, error)        { l.bodies++; return []byte(`{}`), nil }
func (l *ledger) ReceiptBody(f *flight.Flight) ([]byte, error) {
	l.bodies++
	return make([]byte, f.Receipt.Body.StoredSize), nil
}
func (l *ledger) Flight(id flight.ID) (f *flight.Flight, err error) {
	l.reads++
	return l.flights[id], nil
}

func (l *ledger) Now() flight.Time { return 1 }

func (l *ledger) Header() flight.Header { return l.header }

// jobs has no due sagas. It counts the calls that wake the driver and those that look for due sagas.
type jobs struct {
	driver.Jobs
	told, looks int
}

func (j *jobs) OnSagaDue(func()) { j.told++ }

func (j *jobs) DueSagas() iter.Seq[flight.ID] {
	j.looks++
	return func(func(flight.ID) bool) {}
}

// The driver that was made last is woken, also if the Run of the one before begins only now.
func TestRun_BeginsLate(t *testing.T) {
	j := &jobs{}
	before := driver.New(driver.Config{Ledger: &ledger{}, Jobs: j})
	driver.New(driver.Config{Ledger: &ledger{}, Jobs: j})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	before.Run(over)
	require.Equal(t, 2, j.told)
	require.Equal(t, 1, j.looks)
}

// A ledger that is reconciling opens no saga, however often it is asked.
func TestRun_WaitsForTheEndOfARestore(t *testing.T) {
	j := &jobs{}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	driver.New(driver.Config{Ledger: &ledger{header: flight.Header{Reconciling: true}}, Jobs: j}).Run(over)
	require.Zero(t, j.looks)
}

func newLedger(t testing.TB) (*ledger, *flight.Flight) {
	t.Helper()
	def := saga.Definition{Saga: "trip", Version: 1}
	trip := flight.MustKey("default/trip/1")
	l := &ledger{flights: make(map[flight.ID]*flight.Flight)}
	for n := range 32 {
		def.Steps = append(def.Steps, saga.Step{Name: fmt.Sprint("step-", n), NoUndo: true})
		key, err := trip.Step(fmt.Sprint("step-", n))
		require.NoError(t, err)
		l.flights[key.FlightID()] = &flight.Flight{ID: key.FlightID(), Key: key, State: flight.StateSucceeded,
			Receipt: &flight.Receipt{Outcome: flight.OutcomeSucceeded, Body: flight.Blob{Size: flight.MaxReceiptBody, StoredSize: flight.MaxReceiptBody}}}
	}
	l.definition = &flight.Document{Body: def.JSON()}
	return l, &flight.Flight{ID: trip.FlightID(), Key: trip, State: flight.StateWaiting, Policy: flight.Policy{Saga: true, Definition: "trip@1"}}
}

// A list of sagas, and a wait for one, read the flights of its steps, and no body of any.
func TestFlights_ReadsNoBodies(t *testing.T) {
	l, f := newLedger(t)
	def, v, err := driver.New(driver.Config{Ledger: l, Jobs: &jobs{}}).Flights(f)
	require.NoError(t, err)
	require.Len(t, def.Steps, 32)
	require.Len(t, v.Steps, 32)
	require.Equal(t, 32, l.reads)
	require.Zero(t, l.bodies)
}

// In a restored ledger an undo may have run although the saga goes forward, and its step may be unknown.
func TestFlights_ReadsUndosAfterARestore(t *testing.T) {
	l, f := newLedger(t)
	undo, err := f.Key.Step("hotel.undo")
	require.NoError(t, err)
	l.definition = &flight.Document{Body: (&saga.Definition{Saga: "trip", Version: 1, Steps: []saga.Step{{Name: "hotel", Undo: &saga.Undo{}}}}).JSON()}
	l.flights[undo.FlightID()] = &flight.Flight{Key: undo, State: flight.StateSucceeded}
	for restoredFrom, found := range map[uint32]bool{0: false, 1: true} {
		l.header.RestoredFrom = restoredFrom
		_, v, err := driver.New(driver.Config{Ledger: l, Jobs: &jobs{}}).Flights(f)
		require.NoError(t, err)
		require.Equal(t, found, v.Undos[0] != nil)
	}
}
