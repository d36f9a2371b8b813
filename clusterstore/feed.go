package clusterstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// The feed is everything that happens, in the order of the log. It is not collected anywhere: whoever wants to know
// what happened behind a place reads the raft log from there on, which says what was touched, and finds the events in
// the histories of the flights, which say what came of it. So the ledger does nothing for readers, knows none of them
// and waits for none; where a reader stands is known to that reader alone, and holds good across restarts, on every
// node, as far back as the log goes.

// FeedEvent is one event of any flight.
type FeedEvent struct {
	Key flight.Key
	HistoryEvent
	Count uint64 // with flight.EventDuplicates: how many
}

// FeedPage is a part of the feed. Next is the place to go on behind; More says that there is more already.
type FeedPage struct {
	Events []FeedEvent
	Next   flight.Version
	More   bool
}

// CutError says that the feed does not reach back to the place that was asked for: the log was cut behind a snapshot.
type CutError struct {
	First flight.Version // behind this place nothing is missing
}

func (e *CutError) Error() string {
	return fmt.Sprintf("clusterstore: the log no longer holds what happened before %s", e.First)
}

// ErrAhead says that a place lies behind everything that this node has applied.
var ErrAhead = errors.New("clusterstore: the ledger has not come that far")

// feedEntries is how many entries of the log are read for one page at most.
const feedEntries = 256

// feedCache is how many entries are kept decoded: those that readers at the end of the log share.
const feedCache = 16

// feed decodes entries of the log for its readers.
type feed struct {
	mu     sync.Mutex
	recent [feedCache]*feedEntry // by index
}

// feedEntry is what one entry of the log did.
type feedEntry struct {
	index  uint64
	last   uint32 // place of the last command in it
	events []FeedEvent
}

// end is the place of the last command in the entry.
func (e *feedEntry) end() flight.Version { return flight.Version{Index: e.index, Pos: e.last} }

// Feed reads what happened behind a place, the zero Version being before everything: all that one entry of the log
// did, and more entries until there are limit events. It may be empty though there is more. Histories that retention
// has ended are missing in it. Errors: *CutError, ErrAhead, ErrClosed, or that of the read.
func (s *Store) Feed(after flight.Version, limit int) (FeedPage, error) {
	applied, _ := s.Applied()
	if after.Index > applied {
		return FeedPage{}, ErrAhead
	}
	if err := s.feedReaches(after); err != nil {
		return FeedPage{}, err
	}
	page, from := FeedPage{Next: after}, max(1, after.Index)
	if after == endOf(after.Index) {
		from++
	}
	for index := from; index <= applied; index++ {
		if index > after.Index+feedEntries || len(page.Events) >= limit {
			page.More = true
			break
		}
		entry, err := s.feedEntry(index)
		if err != nil {
			return FeedPage{}, err
		}
		for _, e := range entry.events {
			if e.Version.Later(after) {
				page.Events = append(page.Events, e)
			}
		}
		if entry.end().Later(page.Next) {
			page.Next = entry.end()
		}
	}
	return page, nil
}

// feedReaches reports whether the log holds everything behind a place.
func (s *Store) feedReaches(after flight.Version) error {
	first, _ := s.log.FirstIndex() // it has no error
	if first == 0 {                // nothing came behind the snapshot that the state is of
		applied, _ := s.Applied()
		first = applied + 1
	}
	if first <= max(1, after.Index) || after == endOf(first-1) {
		return nil
	}
	return &CutError{First: endOf(first - 1)}
}

// endOf is the place behind all of an entry, however much is in it.
func endOf(index uint64) flight.Version { return flight.Version{Index: index, Pos: math.MaxUint32} }

// FeedEnd is the place behind everything that was applied here.
func (s *Store) FeedEnd() (flight.Version, error) {
	applied, _ := s.Applied()
	entry, err := s.feedEntry(applied)
	var cut *CutError
	if errors.As(err, &cut) { // the state is a snapshot's, and nothing came since
		return endOf(applied), nil
	}
	if err != nil {
		return flight.Version{}, err
	}
	return entry.end(), nil
}

// feedBack is how many entries are read for the last events, and feedBackEvents how many events of them, at most.
const (
	feedBack       = 10_000
	feedBackEvents = 100_000
)

// FeedLast gives the last n events that fit, in their order, as far as they are among the last entries of the log, and
// the place behind them; it gives more of them where it would begin in the middle of what one command did. It looks no
// further back than until enough says so; nil: never.
func (s *Store) FeedLast(n int, fits, enough func(*FeedEvent) bool) (FeedPage, error) {
	end, err := s.FeedEnd()
	if err != nil {
		return FeedPage{}, err
	}
	var back []FeedEvent // newest first
	looked := 0
	for index, done := end.Index, false; !done && index+feedBack > end.Index && s.feedReaches(flight.Version{Index: index}) == nil; index-- {
		entry, err := s.feedEntry(index)
		var cut *CutError
		if index == 0 || errors.As(err, &cut) {
			break
		}
		if err != nil {
			return FeedPage{}, err
		}
		for i := len(entry.events) - 1; i >= 0 && !done; i-- {
			e := &entry.events[i]
			whole := len(back) == 0 || back[len(back)-1].Version != e.Version
			done = len(back) >= n && whole || enough != nil && enough(e)
			if !done && fits(e) {
				back = append(back, *e)
			}
		}
		looked += len(entry.events)
		done = done || len(back) >= n || looked >= feedBackEvents
	}
	page := FeedPage{Next: end, Events: make([]FeedEvent, len(back))}
	for i := range back {
		page.Events[len(back)-1-i] = back[i]
	}
	return page, nil
}

// FeedWait returns when something was applied behind a place that Feed gave as Next without More. Errors: ErrClosed, or
// that of ctx.
func (s *Store) FeedWait(ctx context.Context, after flight.Version) error {
	return s.reach(ctx, after.Index+1)
}

// feedEntry gives what an entry did that was applied here. *CutError when the log no longer has it.
func (s *Store) feedEntry(index uint64) (*feedEntry, error) {
	if e := s.feed.find(index); e != nil {
		return e, nil
	}
	var log raft.Log
	err := s.log.GetLog(index, &log)
	if errors.Is(err, raft.ErrLogNotFound) { // cut since, or a hole that a restore left
		return nil, &CutError{First: endOf(index)}
	}
	if err != nil {
		return nil, err
	}
	e, err := s.readEntry(&log)
	if err == nil {
		s.feed.keep(e)
	}
	return e, err
}

func (f *feed) find(index uint64) *feedEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.recent[index%feedCache]; e != nil && e.index == index {
		return e
	}
	return nil
}

// keep remembers an entry, unless a newer one has its place: readers of the past do not disturb those at the end.
func (f *feed) keep(e *feedEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.recent[e.index%feedCache]; old == nil || old.index < e.index {
		f.recent[e.index%feedCache] = e
	}
}

// readEntry finds out what the commands of an entry did.
func (s *Store) readEntry(log *raft.Log) (*feedEntry, error) {
	e := &feedEntry{index: log.Index}
	if log.Type != raft.LogCommand {
		return e, nil
	}
	stamped, rest, err := cutHead(log.Data)
	if err != nil {
		return nil, err
	}
	for pos := uint32(0); len(rest) >= commandPrefix; pos++ {
		n := uint64(binary.BigEndian.Uint32(rest))
		rest = rest[commandPrefix:]
		if n > uint64(len(rest)) {
			return nil, errEntry
		}
		e.last = pos
		at := flight.Version{Index: log.Index, Pos: pos}
		events, err := s.eventsOf(rest[:n:n], at, stamped.now)
		if err != nil {
			return nil, fmt.Errorf("clusterstore: the feed at %s: %w", at, err)
		}
		e.events = append(e.events, events...)
		rest = rest[n:]
	}
	return e, nil
}

// eventsOf gives what one command brought about.
func (s *Store) eventsOf(command []byte, at flight.Version, stamp flight.Time) ([]FeedEvent, error) {
	key, err := flight.Target(command)
	if err != nil {
		return nil, err
	}
	if key.IsZero() {
		return s.keylessEvents(command, at)
	}
	events, err := s.historyAt(key.FlightID(), at)
	if err != nil {
		return nil, err
	}
	if events == nil {
		return s.unwritten(command, key, at, stamp)
	}
	return feedOf(key, events, at), nil
}

func feedOf(key flight.Key, events []flight.Event, at flight.Version) []FeedEvent {
	feed := make([]FeedEvent, len(events))
	for i, e := range events {
		feed[i] = FeedEvent{Key: key, HistoryEvent: HistoryEvent{Version: at, Event: e}}
	}
	return feed
}

// keylessEvents gives what a command without a key brought about. Of these only an Ended does so, to many flights: flight by
// flight, in the order in which it was applied to them.
func (s *Store) keylessEvents(command []byte, at flight.Version) (feed []FeedEvent, err error) {
	c, err := flight.Decode(command)
	if _, ended := c.(*flight.Ended); err != nil || !ended {
		return nil, err
	}
	ids, err := s.touchedBy(at)
	for _, id := range ids {
		var f *flight.Flight
		if f, err = s.machine.peek(id); err != nil {
			break
		}
		var events []flight.Event
		if events, err = s.historyAt(id, at); err != nil {
			break
		}
		if len(events) > 0 { // a tombstone has none
			feed = append(feed, feedOf(f.Key, events, at)...)
		}
	}
	return feed, err
}

// historyAt reads the events that one command left in the history of a flight; nil when it left none.
func (s *Store) historyAt(id flight.ID, at flight.Version) (events []flight.Event, err error) {
	key, newer := historyKey(nil, id, at), s.machine.view.Load()
	if value, found := newer.row(id, key); found {
		return decodeEvents(value)
	}
	if newer.buried(id) {
		return nil, nil
	}
	_, err = s.state.get(key, func(b []byte) error {
		events, err = decodeEvents(b)
		return err
	})
	return events, err
}

// unwritten gives the events that stand in no history: the end of a retention takes the history along.
func (s *Store) unwritten(command []byte, key flight.Key, at flight.Version, stamp flight.Time) ([]FeedEvent, error) {
	c, err := flight.Decode(command)
	if err != nil {
		return nil, err
	}
	f, err := s.Flight(key.FlightID())
	if err != nil || f == nil {
		return nil, err
	}
	if count, ok := c.(*flight.Count); ok && f.Duplicates != nil && len(count.Tally.Callers) > 0 {
		e := flight.Event{Kind: flight.EventDuplicates, At: count.Tally.Last, Who: count.Tally.Callers[len(count.Tally.Callers)-1].Who}
		return []FeedEvent{{Key: key, HistoryEvent: HistoryEvent{Version: at, Event: e}, Count: count.Tally.Count}}, nil
	}
	if _, ends := c.(*flight.Expire); !ends {
		return nil, nil // it changed nothing, or its history is gone since
	}
	if f.State != flight.Expired || f.Version != at {
		return nil, nil
	}
	e := flight.Event{Kind: flight.EventExpired, Generation: f.Generation, At: stamp}
	return []FeedEvent{{Key: key, HistoryEvent: HistoryEvent{Version: at, Event: e}}}, nil
}
