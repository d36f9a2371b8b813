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
	fake *Fake
}

var (
	_ httpapi.Ledger           = ledger{}
	_ httpapi.Operator         = ledger{}
	_ httpapi.Feed             = ledger{}
	_ httpapi.DuplicateCounter = ledger{}
)

func (l ledger) History(id flight.ID) ([]flight.HistoryEvent, error) {
	l.fake.usedKeys()
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	return slices.Clone(l.fake.history[id]), nil
}

func (l ledger) List(q flight.Query) (flight.Page, error) {
	var fit []*flight.Flight
	for _, key := range l.fake.usedKeys() {
		f, err := l.Flight(key.FlightID())
		if err != nil {
			return flight.Page{}, err
		}
		if f.Key.IsZero() || f.State == flight.StateAbsent || !q.Matches(f) ||
			!strings.HasPrefix(key.String(), q.Prefix) || !strings.Contains(key.String(), q.Contains) || q.Name != "" && key.Name() != q.Name ||
			q.Namespace != "" && key.Namespace() != q.Namespace || f.CreatedAt < q.Since {
			continue
		}
		fit = append(fit, f)
	}
	slices.SortFunc(fit, func(a, b *flight.Flight) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	from := slices.IndexFunc(fit, func(f *flight.Flight) bool { return f.ID == q.After.ID }) + 1
	page := flight.Page{Flights: fit[from:]}
	if len(page.Flights) > q.Limit {
		page.Flights, page.More = page.Flights[:q.Limit], true
		last := page.Flights[q.Limit-1]
		page.Next = flight.Cursor{Created: last.CreatedAt, ID: last.ID}
	}
	return page, nil
}

func (l ledger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if err := l.fake.beforeCall(ctx, "Propose"); err != nil {
		return flight.Reply{}, err
	}
	return recorder{l.Ledger, l.fake}.Propose(ctx, c)
}

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
const maxFeedPage = 3

func (l ledger) Read(after flight.Version, limit int) (flight.FeedPage, error) {
	next := l.Header().Version // before the events up to it are recorded
	l.fake.usedKeys()
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	switch {
	case l.fake.faults.CompactedAt.After(after):
		return flight.FeedPage{}, &flight.CompactedError{First: l.fake.faults.CompactedAt}
	case after.After(next):
		return flight.FeedPage{}, &flight.FuturePositionError{Position: after}
	}
	page := flight.FeedPage{Next: next}
	for _, e := range l.fake.feed {
		if !e.Version.After(after) || e.Version.After(next) {
			continue
		}
		if n := len(page.Events); n >= min(limit, maxFeedPage) && page.Events[n-1].Version != e.Version {
			page.Next, page.More = page.Events[n-1].Version, true
			break
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

func (l ledger) Last(n int, match, stop func(*flight.FeedEvent) bool) (flight.FeedPage, error) {
	next := l.Header().Version // before the events up to it are recorded
	l.fake.usedKeys()
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	var fit []flight.FeedEvent
	for _, e := range slices.Backward(l.fake.feed) {
		if len(fit) >= n && (n == 0 || fit[0].Version != e.Version) || stop != nil && stop(&e) {
			break
		}
		if match(&e) {
			fit = append([]flight.FeedEvent{e}, fit...)
		}
	}
	return flight.FeedPage{Events: fit, Next: next}, nil
}

func (l ledger) Await(ctx context.Context, after flight.Version) error {
	for {
		l.fake.mu.Lock()
		changed := l.fake.changed
		l.fake.mu.Unlock()
		if l.Header().Version.After(after) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l ledger) CountDuplicate(key flight.Key, who string) {
	now := l.Now()
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	sum := l.fake.duplicates[key.FlightID()]
	l.fake.duplicates[key.FlightID()] = sum.Add(flight.DuplicateStats{Count: 1, First: now, Last: now, Callers: []flight.Caller{{Actor: who, At: now}}})
}

func (l ledger) DuplicateStats(id flight.ID) (flight.DuplicateStats, error) {
	return l.fake.DuplicateStats(id), nil
}
