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
type action struct {
	calls   [results]prometheus.Counter
	effects [outcomes]prometheus.Counter
}

// outcomeCount is the largest outcome plus one.
const outcomes = int(flight.Unknown) + 1

// actions maps names to series. Callers choose the names, so the number of series is limited: a caller that puts ids
// into names must exhaust neither the memory of this process nor that of Prometheus.
type actions struct {
	make  func(name string) *action
	most  int
	other *action

	known atomic.Pointer[map[string]*action] // an immutable map, replaced under mu
	mu    sync.Mutex                         // serialises replacements of known
}

func newActions(most int, make func(string) *action) *actions {
	a := &actions{make: make, most: most, other: make(OtherAction)}
	a.known.Store(&map[string]*action{OtherAction: a.other})
	return a
}

// series returns the series of a name; if there are too many names, those of OtherAction.
func (a *actions) of(name string) *action {
	known := *a.known.Load()
	if one := known[name]; one != nil {
		return one
	}
	if len(known) > a.most { // one entry is OtherAction
		return a.other
	}
	return a.meet(name)
}

// register creates the series of a new name.
func (a *actions) meet(name string) *action {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := *a.known.Load()
	if one := known[name]; one != nil {
		return one
	}
	if len(known) > a.most {
		return a.other
	}
	name = strings.Clone(name) // a substring of a key would keep the whole key in memory
	one := a.make(name)
	more := maps.Clone(known)
	more[name] = one
	a.known.Store(&more)
	return one
}
