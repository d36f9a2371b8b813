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

// flightIDs reads what a person calls an existing flight: an id, a full key, NAME/ID or ID. It gives the flights that
// may be meant, the likeliest first.
func (a *app) flightIDs(s string) ([]flight.ID, error) {
	if strings.HasPrefix(s, "fl_") {
		if id, err := flight.ParseID(s); err == nil {
			return []flight.ID{id}, nil
		}
	}
	var ids []flight.ID
	add := func(k flight.Key, err error) {
		if err == nil {
			ids = append(ids, k.FlightID())
		}
	}
	add(flight.ParseKey(s))
	add(flight.ParseKey(a.namespace + "/" + s))
	add(flight.ParseKey(a.namespace + "/" + execName + "/" + s))
	if len(ids) == 0 {
		return nil, &coded{code: exitUsage, err: fmt.Errorf("%q is neither a key nor the id of a flight", s)}
	}
	return ids, nil
}
