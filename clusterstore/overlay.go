package clusterstore

import (
	"bytes"
	"sync"

	"github.com/flightd/flightd/flight"
)

// overlay is the part of a memBatch that readers see.
type overlay struct {
	mu   sync.RWMutex // guards byID; the fsm is the only writer
	byID map[flight.ID]overlayFlight
}

// overlayFlight is a flight that differs from the stored one, with its rows.
type overlayFlight struct {
	now        *record
	rows       []row
	tombstoned bool // its stored history is deleted
}

func (o *overlay) find(id flight.ID) (overlayFlight, bool) {
	if o == nil {
		return overlayFlight{}, false
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	r, ok := o.byID[id]
	return r, ok
}

// overlayView holds the changes that are newer than the state: the active memBatch and the one being flushed.
type overlayView struct {
	active, flushing *overlay
}

// find returns a flight that is newer than the state.
func (v *overlayView) find(id flight.ID) (overlayFlight, bool) {
	if r, ok := v.active.find(id); ok {
		return r, true
	}
	return v.flushing.find(id)
}

// tombstoned reports whether a flight's stored history counts as deleted.
func (v *overlayView) tombstoned(id flight.ID) bool {
	now, _ := v.active.find(id)
	writing, _ := v.flushing.find(id)
	return now.tombstoned || writing.tombstoned
}

// row returns a row that is newer than the state. A found row without a value is deleted.
func (v *overlayView) row(id flight.ID, key []byte) (value []byte, found bool) {
	for _, own := range []*overlay{v.active, v.flushing} {
		r, _ := own.find(id)
		for i := len(r.rows) - 1; i >= 0; i-- {
			if bytes.Equal(r.rows[i].key, key) {
				return r.rows[i].value, true
			}
		}
	}
	return nil, false
}
