package cli

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

// FindFlight reads the flight named by word, and returns its id, too. It adds the key to a tombstone if the word has it. If no candidate
// exists and the word is an id alone, it looks for flights with this id under other names, and unless exact is set, takes the only one.
// It returns *Error if there is no such flight.
func (a *App) FindFlight(ctx context.Context, c *client.Client, word string, exact bool) (*client.Flight, flight.ID, error) {
	candidates, err := a.candidates(word)
	if err != nil {
		return nil, flight.ID{}, err
	}
	for _, candidate := range candidates {
		f, err := c.Flight(ctx, candidate.ID)
		if freedErr := asFreedKey(err); freedErr != nil {
			return nil, candidate.ID, &Error{Code: ExitFailed, Err: freedErr, Hint: "run flightd why " + freedErr.key + " to see its history"}
		}
		if errors.As(err, new(*effect.Missing)) {
			continue
		}
		if err == nil && f.Key == "" {
			f.Key = candidate.key
		}
		return f, candidate.ID, err
	}
	same, err := a.sameID(ctx, c, word)
	switch {
	case err != nil || len(same) == 0: // the word alone names no flight, which is the answer
		return nil, flight.ID{}, a.notFound(word)
	case len(same) == 1 && !exact:
		a.Say("%s is read as %s, the only flight found with this id", word, same[0].Key)
		id, err := flight.ParseID(same[0].ID)
		return same[0], id, err
	}
	keys := make([]string, len(same))
	for i, f := range same {
		keys[i] = f.Key
	}
	return nil, flight.ID{}, &Error{Code: ExitFailed, Hint: DidYouMean(strings.Join(keys, " or ")),
		Err: fmt.Errorf("%s: no flight for %s/%s in namespace %s", wire.NotFound, DefaultName, word, a.Namespace)}
}

// maxNames bounds the names under which sameID looks for an id.
const maxNames = 50

// sameID returns the flights of the namespace that have this id, whatever their name. A flight is stored under the hash of its
// full key, so it is looked for under the names of the flights in doubt and of the newest flights.
func (a *App) sameID(ctx context.Context, c *client.Client, word string) (same []*client.Flight, err error) {
	if strings.Contains(word, "/") {
		return nil, nil
	}
	names := []string{DefaultName} // a candidate of FindFlight already
	for _, q := range []client.Query{{States: []string{flight.StateInDoubt.String()}, Limit: MaxPage}, {Limit: MaxPage}} {
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
			other, err := flight.ParseStoredKey(a.Namespace + "/" + key.Name() + "/" + word)
			if err != nil {
				return nil, err
			}
			found, err := c.Flight(ctx, other.FlightID())
			switch {
			case err == nil:
				found.Key = other.String() // a tombstone has none
				same = append(same, found)
			case !errors.As(err, new(*effect.Missing)) && asFreedKey(err) == nil:
				return nil, err
			}
		}
	}
	return same, nil
}

// asFreedKey returns nil if err has another cause. The server's problem names the key only if the key was used before.
func asFreedKey(err error) *FreedError {
	var apiErr *client.Error
	if !errors.As(err, &apiErr) || apiErr.Problem.Code != wire.NotFound || apiErr.Problem.Key == "" {
		return nil
	}
	p := &apiErr.Problem
	return &FreedError{id: p.FlightID, key: p.Key, version: p.Version, detail: p.Detail}
}

// notFound reports that word names no flight; the hint names the commands that list them.
func (a *App) notFound(word string) error {
	hint := fmt.Sprintf("run flightd flights ls to list the keys of namespace %s, or flightd flights ls -A for all", a.Namespace)
	if !strings.Contains(word, "/") && !strings.HasPrefix(word, "fl_") {
		hint = fmt.Sprintf("%s without a name is read as %s/%s, a key of flightd exec; add the name of other keys, as in charge/%s; %s", word, DefaultName, word, word, hint)
	}
	return &Error{Code: ExitFailed, Hint: hint,
		Err: fmt.Errorf("%s: no flight for %s in namespace %s", wire.NotFound, word, a.Namespace)}
}

// MaxListed bounds the flights that one check lists.
const MaxListed = 5000

// FreedError reports that a key has no flight now because its flight was freed.
type FreedError struct {
	id           string
	key, version string
	detail       string
}

func (f *FreedError) Error() string { return "not_found: " + f.key + ": " + f.detail }

// Flight returns the remaining facts as a flight in state absent.
func (f *FreedError) Flight() *client.Flight {
	return &client.Flight{ID: f.id, Key: f.key, State: flight.StateAbsent.String(), Version: f.version}
}

// MaxPage is the largest page of the API.
const MaxPage = 500

// ListPages reads pages up to the query's limit. next is the cursor of the next page, and empty after the last one.
func ListPages(ctx context.Context, c *client.Client, q client.Query) (flights []client.Flight, next string, err error) {
	return Pages(q.Limit, MaxPage, q.Cursor, func(cursor string, limit int) ([]client.Flight, string, error) {
		q.Cursor, q.Limit = cursor, limit
		page, err := c.List(ctx, q)
		if err != nil {
			return nil, "", err
		}
		return page.Flights, page.Next, nil
	})
}

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
