package clusterstore

import (
	"cmp"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
)

// Query selects the flights of a list. A zero field selects all.
type Query struct {
	States    []flight.State
	Namespace string
	Name      string      // of the action
	Prefix    string      // of the full key
	Since     flight.Time // created then or later
	After     Cursor      // continue after this position
	Limit     int         // maximum flights on a page; 0: 50; at most 500
}

// Cursor is a position in a list, which is ordered by creation, newest first, then by id. It stays valid while
// flights are created and removed. The zero Cursor is before everything.
type Cursor struct {
	Created flight.Time
	ID      flight.ID
}

// IsZero reports whether the cursor is before everything.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// Page is a part of a list. More: there may be further flights after Next, even when the page is short or empty,
// because one page scans a limited number of rows.
type Page struct {
	Flights []*flight.Flight
	Next    Cursor
	More    bool
}

// Limits of a page.
const (
	defaultPageLimit = 50
	maxPageLimit     = 500
	maxScanned       = 10_000
)

// List reads a page of flights from this node. It omits tombstones, freed keys and keys that were never submitted.
func (s *Store) List(q Query) (Page, error) {
	if q.Limit <= 0 {
		q.Limit = defaultPageLimit
	}
	q.Limit = min(q.Limit, maxPageLimit)
	s.fsm.flush()
	if q.liveOnly() {
		return s.listLive(q)
	}
	return s.listAll(q)
}

// liveOnly reports whether the index of live flights, which is small, holds every flight that can match.
func (q *Query) liveOnly() bool {
	return len(q.States) > 0 && !slices.ContainsFunc(q.States, func(s flight.State) bool {
		return s == flight.StateAbsent || s.Terminal()
	})
}

// listAll scans the list index, newest first. The index holds the keys, so only flights with a matching key are read.
func (s *Store) listAll(q Query) (Page, error) {
	from := kindKey(listRow)
	if !q.After.IsZero() {
		from = append(orderedKey(nil, listRow, ^uint64(q.After.Created), q.After.ID), 0)
	}
	to := kindKey(listRow + 1)
	if q.Since > 0 {
		to = orderedKey(nil, listRow, ^uint64(q.Since-1), flight.ID{})
	}
	var page Page
	for examined := 0; examined < maxScanned; {
		places, n, last, err := s.matchingKeys(&q, from, to)
		if err != nil {
			return Page{}, err
		}
		examined += n
		if done, err := s.fillPage(&page, &q, places); done || err != nil {
			return page, err
		}
		if n < listChunk {
			page.More = false
			return page, nil
		}
		at, id, err := splitOrderedKey(last)
		if err != nil {
			return Page{}, err
		}
		page.Next, page.More = Cursor{Created: flight.Time(^at), ID: id}, true
		from = append(last, 0)
	}
	return page, nil
}

// listChunk is how many index rows are read before their flights: it limits how long one iterator stays open.
const listChunk = 512

// matchingKeys reads up to listChunk rows of the list index and returns those with a matching key.
func (s *Store) matchingKeys(q *Query, from, to []byte) (fit []Cursor, n int, last []byte, err error) {
	err = s.state.scan(from, to, func(key, value []byte) (bool, error) {
		at, id, err := splitOrderedKey(key)
		if err != nil {
			return false, err
		}
		n++
		last = append(last[:0], key...)
		if q.matchesKey(string(value)) {
			fit = append(fit, Cursor{Created: flight.Time(^at), ID: id})
		}
		return n < listChunk, nil
	})
	return fit, n, last, err
}

// fillPage reads flights into the page until it is full.
func (s *Store) fillPage(page *Page, q *Query, places []Cursor) (full bool, err error) {
	for _, at := range places {
		if len(page.Flights) == q.Limit {
			page.More = true
			return true, nil
		}
		f, err := s.Flight(at.ID)
		if err != nil {
			return false, err
		}
		page.Next = at
		if f != nil && listKey(nil, f) != nil && q.matchesState(f.State) {
			page.Flights = append(page.Flights, f)
		}
	}
	return false, nil
}

// listLive reads all live flights and sorts them, newest first.
func (s *Store) listLive(q Query) (Page, error) {
	var fit []*flight.Flight
	var after LiveCursor
	for {
		chunk, next, err := s.Live(after, listChunk)
		if err != nil {
			return Page{}, err
		}
		for _, f := range chunk {
			if q.matchesState(f.State) && f.CreatedAt >= q.Since && q.matchesKey(f.Key.String()) && q.After.precedes(f) {
				fit = append(fit, f)
			}
		}
		if len(chunk) < listChunk {
			break
		}
		after = next
	}
	slices.SortFunc(fit, newestFirst)
	page := Page{Flights: fit, More: len(fit) > q.Limit}
	if page.More {
		page.Flights = fit[:q.Limit:q.Limit]
	}
	if n := len(page.Flights); n > 0 {
		page.Next = Cursor{Created: page.Flights[n-1].CreatedAt, ID: page.Flights[n-1].ID}
	}
	return page, nil
}

func newestFirst(a, b *flight.Flight) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(string(a.ID[:]), string(b.ID[:])))
}

// precedes reports whether the flight comes after the cursor.
func (c Cursor) precedes(f *flight.Flight) bool {
	return c.IsZero() || newestFirst(&flight.Flight{CreatedAt: c.Created, ID: c.ID}, f) < 0
}

func (q *Query) matchesState(s flight.State) bool {
	return len(q.States) == 0 || slices.Contains(q.States, s)
}

func (q *Query) matchesKey(key string) bool {
	if !strings.HasPrefix(key, q.Prefix) {
		return false
	}
	namespace, rest, _ := strings.Cut(key, "/")
	name, _, _ := strings.Cut(rest, "/")
	return (q.Namespace == "" || namespace == q.Namespace) && (q.Name == "" || name == q.Name)
}
