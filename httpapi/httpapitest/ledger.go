package httpapitest

import (
	"context"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi"
)

// ledger implements the ports of the HTTP API on the fake's ledger.
type ledger struct {
	*flightdtest.Ledger
	w *World
}

var (
	_ httpapi.Ledger   = ledger{}
	_ httpapi.Operator = ledger{}
	_ httpapi.Feed     = ledger{}
	_ httpapi.Tallies  = ledger{}
)

// History implements httpapi.Ledger.
func (l ledger) History(id flight.ID) ([]httpapi.Event, error) {
	l.w.known()
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return slices.Clone(l.w.history[id]), nil
}

// List implements httpapi.Ledger.
func (l ledger) List(q httpapi.Query) (httpapi.Page, error) {
	var fit []*flight.Flight
	for _, key := range l.w.known() {
		f, err := l.Flight(key.FlightID())
		if err != nil {
			return httpapi.Page{}, err
		}
		if f.Key.IsZero() || f.State == flight.Absent || len(q.States) > 0 && !slices.Contains(q.States, f.State) ||
			!strings.HasPrefix(key.String(), q.Prefix) || q.Name != "" && key.Name() != q.Name ||
			q.Namespace != "" && key.Namespace() != q.Namespace || f.CreatedAt < q.Since {
			continue
		}
		fit = append(fit, f)
	}
	slices.SortFunc(fit, func(a, b *flight.Flight) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	from := slices.IndexFunc(fit, func(f *flight.Flight) bool { return f.ID == q.After.ID }) + 1
	page := httpapi.Page{Flights: fit[from:]}
	if len(page.Flights) > q.Limit {
		page.Flights, page.More = page.Flights[:q.Limit], true
		last := page.Flights[q.Limit-1]
		page.Next = httpapi.Cursor{Created: last.CreatedAt, ID: last.ID}
	}
	return page, nil
}

// Propose implements httpapi.Operator.
func (l ledger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if err := l.w.before(ctx, "Propose"); err != nil {
		return flight.Reply{}, err
	}
	return recorder{l.Ledger, l.w}.Propose(ctx, c)
}

// ProposeAll implements httpapi.Operator.
func (l ledger) ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error) {
	replies := make([]flight.Reply, len(all))
	for i, c := range all {
		var err error
		if replies[i], err = l.Propose(ctx, c); err != nil {
			return replies, err
		}
	}
	return replies, nil
}

// maxFeedPage keeps pages of the feed small, so that tests read several.
const smallPage = 3

// Read implements httpapi.Feed.
func (l ledger) Read(after flight.Version, limit int) (httpapi.FeedPage, error) {
	l.w.known()
	next := l.Header().Version
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	switch {
	case l.w.levers.Cut.Later(after):
		return httpapi.FeedPage{}, &httpapi.CutError{First: l.w.levers.Cut}
	case after.Later(next):
		return httpapi.FeedPage{}, &httpapi.AheadError{Place: after}
	}
	page := httpapi.FeedPage{Next: next}
	for _, e := range l.w.feed {
		if !e.Version.Later(after) || e.Version.Later(next) {
			continue
		}
		if n := len(page.Events); n >= min(limit, smallPage) && page.Events[n-1].Version != e.Version {
			page.Next, page.More = page.Events[n-1].Version, true
			break
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

// Last implements httpapi.Feed.
func (l ledger) Last(n int, match, stop func(*httpapi.FeedEvent) bool) (httpapi.FeedPage, error) {
	l.w.known()
	next := l.Header().Version
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	var fit []httpapi.FeedEvent
	for _, e := range slices.Backward(l.w.feed) {
		if len(fit) >= n && (n == 0 || fit[0].Version != e.Version) || stop != nil && stop(&e) {
			break
		}
		if match(&e) {
			fit = append([]httpapi.FeedEvent{e}, fit...)
		}
	}
	return httpapi.FeedPage{Events: fit, Next: next}, nil
}

// Await implements httpapi.Feed.
func (l ledger) Await(ctx context.Context, after flight.Version) error {
	for {
		l.w.mu.Lock()
		changed := l.w.changed
		l.w.mu.Unlock()
		if l.Header().Version.Later(after) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Duplicate implements httpapi.Tallies.
func (l ledger) Duplicate(key flight.Key, who string) {
	now := l.Now()
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	sum := l.w.tallies[key.FlightID()]
	l.w.tallies[key.FlightID()] = sum.Plus(flight.Tally{Count: 1, First: now, Last: now, Callers: []flight.Caller{{Who: who, At: now}}})
}

// DuplicateStats implements httpapi.Tallies.
func (l ledger) Tally(id flight.ID) (flight.Tally, error) { return l.w.Tally(id), nil }
