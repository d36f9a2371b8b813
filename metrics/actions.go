package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/flight"
)

// OtherAction is the value of the label action for all names beyond the first Config.Actions.
const OtherAction = "_other"

// action is the series of one name.
type action struct {
	calls   [results]prometheus.Counter
	effects [outcomes]prometheus.Counter
}

// outcomes is one more than the greatest outcome.
const outcomes = int(flight.Unknown) + 1

// actions finds the series of a name. Names are callers' to choose: a caller that puts ids into them must not fill the
// memory of this process, nor of the Prometheus that scrapes it.
type actions struct {
	make  func(name string) *action
	most  int
	other *action

	known atomic.Pointer[map[string]*action] // never written to: replaced
	mu    sync.Mutex                         // held while it is
}

func newActions(most int, make func(string) *action) *actions {
	a := &actions{make: make, most: most, other: make(OtherAction)}
	a.known.Store(&map[string]*action{OtherAction: a.other})
	return a
}

// of gives the series of a name; those of OtherAction once there are too many names.
func (a *actions) of(name string) *action {
	known := *a.known.Load()
	if one := known[name]; one != nil {
		return one
	}
	if len(known) > a.most { // one of them is OtherAction
		return a.other
	}
	return a.meet(name)
}

// meet makes the series of a name that was not seen before.
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
	name = strings.Clone(name) // it is a part of a key, which must not stay in memory for it
	one := a.make(name)
	more := maps.Clone(known)
	more[name] = one
	a.known.Store(&more)
	return one
}
