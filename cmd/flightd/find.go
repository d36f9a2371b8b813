package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// findFlight reads the flight named by word. It adds the key to a tombstone if the word has it. If no candidate exists and the
// word is an id alone, it looks for flights with this id under other names, and unless exact is set, takes the only one. It
// returns *exitError if there is no such flight.
func (a *app) findFlight(ctx context.Context, c *client.Client, word string, exact bool) (*client.Flight, error) {
	candidates, err := a.candidates(word)
	if err != nil {
		return nil, err
	}
	for _, candidate := range candidates {
		f, err := c.Flight(ctx, candidate.id)
		if freedErr := asFreedKey(err); freedErr != nil {
			return nil, &exitError{code: exitFailed, err: freedErr, hint: "run flightd why " + freedErr.key + " to see its history"}
		}
		var missing *effect.Missing
		if errors.As(err, &missing) {
			continue
		}
		if err == nil && f.Key == "" {
			f.Key = candidate.key
		}
		return f, err
	}
	same, err := a.sameID(ctx, c, word)
	switch {
	case err != nil || len(same) == 0: // the word alone names no flight, which is the answer
		return nil, a.notFound(word)
	case len(same) == 1 && !exact:
		a.say("%s is read as %s, the only flight found with this id", word, same[0].Key)
		return same[0], nil
	}
	keys := make([]string, len(same))
	for i, f := range same {
		keys[i] = f.Key
	}
	return nil, &exitError{code: exitFailed, err: fmt.Errorf("%s: no flight for %s/%s in namespace %s", wire.NotFound, defaultName, word, a.namespace),
		hint: didYouMean(strings.Join(keys, " or "))}
}

// maxNames bounds the names under which sameID looks for an id.
const maxNames = 50

// sameID returns the flights of the namespace that have this id, whatever their name. A flight is stored under the hash of its
// full key, so it is looked for under the names of the flights in doubt and of the newest flights.
func (a *app) sameID(ctx context.Context, c *client.Client, word string) (same []*client.Flight, err error) {
	if strings.Contains(word, "/") {
		return nil, nil
	}
	names := []string{defaultName} // a candidate of findFlight already
	for _, q := range []client.Query{{States: []string{flight.StateInDoubt.String()}, Limit: maxPage}, {Limit: maxPage}} {
		page, err := c.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, f := range page.Flights {
			key, err := flight.ParseStoredKey(f.Key)
			if err != nil || slices.Contains(names, key.Name()) || len(names) > maxNames {
				continue
			}
			names = append(names, key.Name())
			other, err := flight.ParseStoredKey(a.namespace + "/" + key.Name() + "/" + word)
			if err != nil {
				return nil, err
			}
			found, err := c.Flight(ctx, other.FlightID())
			var missing *effect.Missing
			switch {
			case err == nil:
				found.Key = other.String() // a tombstone has none
				same = append(same, found)
			case !errors.As(err, &missing) && asFreedKey(err) == nil:
				return nil, err
			}
		}
	}
	return same, nil
}

// freedError reports that a key has no flight now because its flight was freed.
type freedError struct {
	id           string
	key, version string
	detail       string
}

func (f *freedError) Error() string { return "not_found: " + f.key + ": " + f.detail }

// flight returns the remaining facts as a flight in state absent.
func (f *freedError) flight() *client.Flight {
	return &client.Flight{ID: f.id, Key: f.key, State: flight.StateAbsent.String(), Version: f.version}
}

// asFreedKey returns nil if err has another cause. The server's problem names the key only if the key was used before.
func asFreedKey(err error) *freedError {
	var apiErr *client.Error
	if !errors.As(err, &apiErr) || apiErr.Problem.Code != wire.NotFound || apiErr.Problem.Key == "" {
		return nil
	}
	p := &apiErr.Problem
	return &freedError{id: p.FlightID, key: p.Key, version: p.Version, detail: p.Detail}
}

// notFound reports that word names no flight; the hint names the commands that list them.
func (a *app) notFound(word string) error {
	hint := fmt.Sprintf("run flightd flights ls to list the keys of namespace %s, or flightd flights ls -A for all", a.namespace)
	if !strings.Contains(word, "/") && !strings.HasPrefix(word, "fl_") {
		hint = fmt.Sprintf("%s without a name is read as %s/%s, a key of flightd exec; add the name of other keys, as in charge/%s; %s", word, defaultName, word, word, hint)
	}
	return &exitError{code: exitFailed, hint: hint,
		err: fmt.Errorf("%s: no flight for %s in namespace %s", wire.NotFound, word, a.namespace)}
}
