package cli

import (
	"fmt"
	"strings"

	"github.com/flightd/flightd/flight"
)

// DefaultName is the name of a key that is given as an ID alone.
const DefaultName = "exec"

// NewKey parses the key of a flight that may be started: ID, or NAME/ID. It rejects a key with a second slash, which may
// be a full key: read as an ID with slashes, it would name another intent, and the effect would run a second time. A slash
// of an id is written %2F, so that nobody writes it by mistake.
func (a *App) NewKey(s string) (flight.Key, error) {
	name, id, ok := strings.Cut(s, "/")
	if namespace, rest := name, id; strings.Contains(rest, "/") {
		return flight.Key{}, UsageError("--key %s has %d parts; set the namespace with -n: -n %s --key %s; in an id write %%2F for /", s, strings.Count(s, "/")+1, namespace, rest)
	}
	if !ok {
		name, id = DefaultName, s
	}
	key, err := flight.NewKey(a.Namespace, name, strings.ReplaceAll(id, "%2F", "/"))
	if err != nil {
		return key, UsageError("--key %s: %v", s, err)
	}
	return key, nil
}

// candidate is a flight that a word may name; key is empty if the word is an id.
type candidate struct {
	ID  flight.ID
	key string
}

// candidates parses the name of an existing flight: an id, a full key, NAME/ID or ID. It returns every flight that the
// word may name, in this order.
func (a *App) candidates(s string) ([]candidate, error) {
	if strings.HasPrefix(s, "fl_") {
		if id, err := flight.ParseID(s); err == nil {
			return []candidate{{ID: id}}, nil
		}
	}
	s = strings.ReplaceAll(s, "%2F", "/") // as NewKey takes it
	var all []candidate
	add := func(k flight.Key, err error) {
		if err == nil {
			all = append(all, candidate{ID: k.FlightID(), key: k.String()})
		}
	}
	add(flight.ParseStoredKey(s))
	add(flight.ParseStoredKey(a.Namespace + "/" + s))
	add(flight.ParseStoredKey(a.Namespace + "/" + DefaultName + "/" + s))
	if len(all) == 0 {
		return nil, &Error{Code: ExitUsage, Err: fmt.Errorf("%q is neither a key nor a flight id", s)}
	}
	return all, nil
}
