package flight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Query selects the flights of a list. A zero field selects all.
type Query struct {
	States    []State
	Namespace string
	Name      string // the action
	Prefix    string // prefix of the full key
	Contains  string // part of the full key
	// ExternalID selects the flights with this external id in their receipt or evidence. It has no index.
	ExternalID string
	Sagas      bool   // only sagas, without their steps
	Since      Time   // created then or later
	After      Cursor // continue after this position
	Limit      int    // maximum flights on a page; 0: the ledger's default
}

// Matches reports whether a flight whose key is selected is selected itself.
func (q *Query) Matches(f *Flight) bool {
	return (q.ExternalID == "" || f.Receipt != nil && f.Receipt.ExternalID == q.ExternalID || slices.ContainsFunc(f.Evidence, func(e Evidence) bool { return e.ExternalID == q.ExternalID })) &&
		(len(q.States) == 0 || slices.Contains(q.States, f.State)) && (!q.Sagas || f.Policy.Saga)
}

// MatchesKey reports whether a flight with this full key is selected.
func (q *Query) MatchesKey(key string) bool {
	if !strings.HasPrefix(key, q.Prefix) || !strings.Contains(key, q.Contains) || q.Sagas && strings.Contains(key, "#") {
		return false
	}
	namespace, rest, _ := strings.Cut(key, "/")
	name, _, _ := strings.Cut(rest, "/")
	return (q.Namespace == "" || namespace == q.Namespace) && (q.Name == "" || name == q.Name)
}

// Cursor is a position in a list, which is sorted by creation, newest first, then by id. It stays valid while flights
// are created and removed. The zero Cursor is the start.
type Cursor struct {
	Created Time
	ID      ID
}

// IsZero reports whether the cursor is the start of the list.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// Precedes reports whether the flight comes after the cursor.
func (c Cursor) Precedes(f *Flight) bool {
	return c.IsZero() || NewestFirst(&Flight{CreatedAt: c.Created, ID: c.ID}, f) < 0
}

// NewestFirst compares two flights by the order of a list.
func NewestFirst(a, b *Flight) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(string(a.ID[:]), string(b.ID[:])))
}

// Page is a part of a list. More: there may be flights after Next, even if the page is short or empty.
type Page struct {
	Flights []*Flight
	Next    Cursor
	More    bool
}

// HistoryEvent is one event of a flight and the version of the command that produced it.
type HistoryEvent struct {
	Version Version
	Event
}

// FeedEvent is one event of any flight, or of a document.
type FeedEvent struct {
	Key Key // zero: the event is about Document
	HistoryEvent
	Count    uint64 // number of duplicates, with EventDuplicates
	Document DocumentID
}

// Namespace is the namespace of the flight or the document.
func (e *FeedEvent) Namespace() string {
	if e.Key.IsZero() {
		return e.Document.Namespace
	}
	return e.Key.Namespace()
}

// FeedPage is a part of the feed, which has the events of all flights in log order. Next is the position to continue
// after. More: there are events after Next already.
type FeedPage struct {
	Events []FeedEvent
	Next   Version
	More   bool
}

// CompactedError reports that the log no longer has the events directly after the requested position.
type CompactedError struct {
	First Version // the feed is complete after this position
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("events before %s are no longer in the feed", e.First)
}

// FuturePositionError reports a position that the ledger of this node has not reached.
type FuturePositionError struct{ Position Version }

func (e *FuturePositionError) Error() string {
	return fmt.Sprintf("the ledger has not reached position %s", e.Position)
}
