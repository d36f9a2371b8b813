package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/flight"
)

// OtherAction is the value of the label action for all names after the first Config.Actions.
const OtherAction = "_other"

// actionSeries holds the series of one name.
type actionSeries struct {
	calls   [resultCount]prometheus.Counter
	effects [outcomeCount]prometheus.Counter
}

// outcomeCount is the largest outcome plus one.
const outcomeCount = int(flight.OutcomeUnknown) + 1

// actions maps names to series. Callers choose the names, so the number of series is limited: a caller that puts ids
// into names must exhaust neither the memory of this process nor that of Prometheus.
type actions struct {
	make  func(name string) *actionSeries
	limit int
	other *actionSeries

	known atomic.Pointer[map[string]*actionSeries] // an immutable map, replaced under mu
	mu    sync.Mutex                               // serialises replacements of known
}

func newActions(limit int, make func(string) *actionSeries) *actions {
	a := &actions{make: make, limit: limit, other: make(OtherAction)}
	a.known.Store(&map[string]*actionSeries{OtherAction: a.other})
	return a
}

// series returns the series of a name; if there are too many names, those of OtherAction.
func (a *actions) series(name string) *actionSeries {
	known := *a.known.Load()
	if s := known[name]; s != nil {
		return s
	}
	if len(known) > a.limit { // one entry is OtherAction
		return a.other
	}
	return a.register(name)
}

// register creates the series of a new name.
func (a *actions) register(name string) *actionSeries {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := *a.known.Load()
	if s := known[name]; s != nil {
		return s
	}
	if len(known) > a.limit {
		return a.other
	}
	name = strings.Clone(name) // a substring of a key would keep the whole key in memory
	s := a.make(name)
	more := maps.Clone(known)
	more[name] = s
	a.known.Store(&more)
	return s
}
