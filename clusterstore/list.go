package clusterstore

import (
	"slices"

	"github.com/flightd/flightd/flight"
)

// Limits of a page.
const (
	defaultPageLimit = 50
	maxPageLimit     = 500
	maxScanned       = 10_000
)

// List reads a page of flights from this node. It omits tombstones, freed keys and keys that were never submitted.
func (r *reader) List(q flight.Query) (flight.Page, error) {
	if q.Limit <= 0 {
		q.Limit = defaultPageLimit
	}
	q.Limit = min(q.Limit, maxPageLimit)
	r.fsm.flush()
	if liveOnly(&q) {
		return r.listLive(q)
	}
	return r.listAll(q)
}

// liveOnly reports whether the index of live flights, which is small, holds every flight that can match.
func liveOnly(q *flight.Query) bool {
	return len(q.States) > 0 && !slices.ContainsFunc(q.States, func(s flight.State) bool {
		return s == flight.StateAbsent || s.Terminal()
	})
}

// listAll scans the list index, newest first. The index holds the keys, so only flights with a matching key are read.
func (r *reader) listAll(q flight.Query) (flight.Page, error) {
	from := kindKey(listRow)
	if !q.After.IsZero() {
		from = append(orderedKey(nil, listRow, ^uint64(q.After.Created), q.After.ID), 0)
	}
	to := kindKey(listRow + 1)
	if q.Since > 0 {
		to = orderedKey(nil, listRow, ^uint64(q.Since-1), flight.ID{})
	}
	var page flight.Page
	for examined := 0; examined < maxScanned; {
		places, n, last, err := r.matchingKeys(&q, from, to)
		if err != nil {
			return flight.Page{}, err
		}
		examined += n
		if done, err := r.fillPage(&page, &q, places); done || err != nil {
			return page, err
		}
		if n < listChunk {
			page.More = false
			return page, nil
		}
		at, id, err := splitOrderedKey(last)
		if err != nil {
			return flight.Page{}, err
		}
		page.Next, page.More = flight.Cursor{Created: flight.Time(^at), ID: id}, true
		from = append(last, 0)
	}
	return page, nil
}

// listChunk is how many index rows are read before their flights: it limits how long one iterator stays open.
const listChunk = 512

// matchingKeys reads up to listChunk rows of the list index and returns those with a matching key.
func (r *reader) matchingKeys(q *flight.Query, from, to []byte) (fit []flight.Cursor, n int, last []byte, err error) {
	err = r.fsm.state.scan(from, to, func(key, value []byte) (bool, error) {
		at, id, err := splitOrderedKey(key)
		if err != nil {
			return false, err
		}
		n++
		last = append(last[:0], key...)
		if q.MatchesKey(string(value)) {
			fit = append(fit, flight.Cursor{Created: flight.Time(^at), ID: id})
		}
		return n < listChunk, nil
	})
	return fit, n, last, err
}

// fillPage reads flights into the page until it is full.
func (r *reader) fillPage(page *flight.Page, q *flight.Query, places []flight.Cursor) (full bool, err error) {
	for _, at := range places {
		if len(page.Flights) == q.Limit {
			page.More = true
			return true, nil
		}
		f, err := r.Flight(at.ID)
		if err != nil {
			return false, err
		}
		page.Next = at
		if f != nil && listKey(nil, f) != nil && q.Matches(f) {
			page.Flights = append(page.Flights, f)
		}
	}
	return false, nil
}

// listLive scans the index of live flights, newest first, until the page is full. Flights that were created at the same time are in the
// other order there, so all of them are read.
func (r *reader) listLive(q flight.Query) (flight.Page, error) {
	from, to := orderedKey(nil, liveRow, uint64(max(q.Since, 0)), flight.ID{}), kindKey(liveRow+1)
	if !q.After.IsZero() {
		to = orderedKey(nil, liveRow, uint64(q.After.Created)+1, flight.ID{})
	}
	var fit []*flight.Flight
	for full := false; !full; {
		var places []flight.Cursor
		err := r.fsm.state.scanBack(from, to, func(key, _ []byte) (bool, error) {
			at, id, err := splitOrderedKey(key)
			places = append(places, flight.Cursor{Created: flight.Time(at), ID: id})
			return len(places) < livePage, err
		})
		if err != nil {
			return flight.Page{}, err
		}
		if full = len(places) < livePage; !full {
			last := places[len(places)-1]
			to = orderedKey(nil, liveRow, uint64(last.Created), last.ID)
		}
		for _, at := range places {
			if n := len(fit); n > q.Limit && at.Created < fit[n-1].CreatedAt {
				full = true
				break
			}
			f, err := r.Flight(at.ID)
			if err != nil {
				return flight.Page{}, err
			}
			if f != nil && q.Matches(f) && q.MatchesKey(f.Key.String()) && q.After.Precedes(f) {
				fit = append(fit, f)
			}
		}
	}
	slices.SortFunc(fit, flight.NewestFirst)
	page := flight.Page{Flights: fit, More: len(fit) > q.Limit}
	if page.More {
		page.Flights = fit[:q.Limit:q.Limit]
	}
	if n := len(page.Flights); n > 0 {
		page.Next = flight.Cursor{Created: page.Flights[n-1].CreatedAt, ID: page.Flights[n-1].ID}
	}
	return page, nil
}
