package main

import (
	"fmt"
	"strings"

	"github.com/flightd/flightd/flight"
)

// execName is the name part of keys of which only the id is given.
const execName = "exec"

// newKey reads the key of a flight that may be started: ID, or NAME/ID. A full key is refused and not taken for an id
// with slashes: it would name another intent, and so run the effect a second time.
func (a *app) newKey(s string) (flight.Key, error) {
	if strings.HasPrefix(s, a.namespace+"/") && strings.Count(s, "/") > 1 {
		return flight.Key{}, usage("--key %s begins with the namespace; write NAME/ID, here %s", s, strings.TrimPrefix(s, a.namespace+"/"))
	}
	name, id, ok := strings.Cut(s, "/")
	if !ok {
		name, id = execName, s
	}
	key, err := flight.NewKey(a.namespace, name, id)
	if err != nil {
		return key, usage("--key %s: %v", s, err)
	}
	return key, nil
}

// meant is a flight that a person may mean, with its key where that was said.
type meant struct {
	id  flight.ID
	key string
}

// meant reads what a person calls an existing flight: an id, a full key, NAME/ID or ID. It gives the flights that may be
// meant, the likeliest first.
func (a *app) meant(s string) ([]meant, error) {
	if strings.HasPrefix(s, "fl_") {
		if id, err := flight.ParseID(s); err == nil {
			return []meant{{id: id}}, nil
		}
	}
	var all []meant
	add := func(k flight.Key, err error) {
		if err == nil {
			all = append(all, meant{id: k.FlightID(), key: k.String()})
		}
	}
	add(flight.ParseKey(s))
	add(flight.ParseKey(a.namespace + "/" + s))
	add(flight.ParseKey(a.namespace + "/" + execName + "/" + s))
	if len(all) == 0 {
		return nil, &coded{code: exitUsage, err: fmt.Errorf("%q is neither a key nor the id of a flight", s)}
	}
	return all, nil
}
