package clusterstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// The feed is the sequence of all events, in the order of the log. The ledger stores nothing for it. A reader reads
// the raft log after its position: the entries say which flights were changed, and the histories of those flights
// hold the events. So the ledger knows no reader and waits for none. A position is valid on every node and across
// restarts, as long as the log reaches back to it.

// feedEntries limits the log entries read for one page.
const feedEntries = 256

// feedCache is how many decoded entries are cached for readers at the end of the log.
const feedCache = 16

// Feed reads the feed of this node, and caches decoded entries of the log.
type Feed struct {
	state  *reader
	log    *pebblelog.Store
	mu     sync.Mutex            // guards recent
	recent [feedCache]*feedEntry // by index modulo feedCache
}

// feedEntry holds the events of one log entry.
type feedEntry struct {
	index  uint64
	last   uint32 // position of the last command in the entry
	events []flight.FeedEvent
}

// end returns the version of the last command in the entry.
func (e *feedEntry) end() flight.Version { return flight.Version{Index: e.index, Pos: e.last} }

// Read returns the events after a position; the zero Version is before all. It returns whole log entries until the
// page has limit events, so a page may be longer, or empty although More is set. Events whose history has been
// deleted at the end of the retention are missing. The events before a hole in the log are returned first. Errors:
// *flight.CompactedError, *flight.FuturePositionError, ErrClosed, or an error of the read.
func (fe *Feed) Read(after flight.Version, limit int) (flight.FeedPage, error) {
	applied := fe.state.LastApplied().Index
	if after.Index > applied {
		return flight.FeedPage{}, &flight.FuturePositionError{Position: after}
	}
	if err := fe.checkCompacted(after); err != nil {
		return flight.FeedPage{}, err
	}
	page, from := flight.FeedPage{Next: after}, max(1, after.Index)
	if after == endOfEntry(after.Index) {
		from++
	}
	for index := from; index <= applied; index++ {
		if index > after.Index+feedEntries || len(page.Events) >= limit {
			page.More = true
			break
		}
		entry, err := fe.readEntry(index)
		if errors.As(err, new(*flight.CompactedError)) && page.Next.After(after) {
			page.More = true
			break
		}
		if err != nil {
			return flight.FeedPage{}, err
		}
		for _, e := range entry.events {
			if e.Version.After(after) {
				page.Events = append(page.Events, e)
			}
		}
		if entry.end().After(page.Next) {
			page.Next = entry.end()
		}
	}
	return page, nil
}

// checkCompacted returns a *CompactedError unless the log holds everything after a position.
func (fe *Feed) checkCompacted(after flight.Version) error {
	first, _ := fe.log.FirstIndex() // it never returns an error
	if first == 0 {                 // the log is empty: the state came from a snapshot
		first = fe.state.LastApplied().Index + 1
	}
	if first <= max(1, after.Index) || after == endOfEntry(first-1) {
		return nil
	}
	return &flight.CompactedError{First: endOfEntry(first - 1)}
}

// endOfEntry returns a version after every command of an entry.
func endOfEntry(index uint64) flight.Version {
	return flight.Version{Index: index, Pos: math.MaxUint32}
}

// End returns the position after everything that was applied here.
func (fe *Feed) End() (flight.Version, error) {
	applied := fe.state.LastApplied().Index
	entry, err := fe.readEntry(applied)
	if errors.As(err, new(*flight.CompactedError)) { // the state came from a snapshot, and no entry has followed
		return endOfEntry(applied), nil
	}
	if err != nil {
		return flight.Version{}, err
	}
	return entry.end(), nil
}

// Last reads at most feedLastEntries entries and about feedLastEvents events.
const (
	feedLastEntries = 10_000
	feedLastEvents  = 100_000
)

// Last returns the last n events that match, oldest first, and the position after them. It returns more than n
// rather than a part of the events of one command, and fewer when they are not among the last entries of the log. It
// stops at the first event, going backwards, for which stop returns true; a nil stop never does.
func (fe *Feed) Last(n int, match, stop func(*flight.FeedEvent) bool) (flight.FeedPage, error) {
	end, err := fe.End()
	if err != nil {
		return flight.FeedPage{}, err
	}
	found := []flight.FeedEvent{} // newest first
	scanned := 0
	for index, done := end.Index, false; !done && index+feedLastEntries > end.Index && fe.checkCompacted(flight.Version{Index: index}) == nil; index-- {
		entry, err := fe.readEntry(index)
		if index == 0 || errors.As(err, new(*flight.CompactedError)) {
			break
		}
		if err != nil {
			return flight.FeedPage{}, err
		}
		for i := len(entry.events) - 1; i >= 0 && !done; i-- {
			e := &entry.events[i]
			whole := len(found) == 0 || found[len(found)-1].Version != e.Version // no part of a command is left out
			done = len(found) >= n && whole || stop != nil && stop(e)
			if !done && match(e) {
				found = append(found, *e)
			}
		}
		scanned += len(entry.events)
		done = done || len(found) >= n || scanned >= feedLastEvents
	}
	slices.Reverse(found)
	return flight.FeedPage{Next: end, Events: found}, nil
}

// Await returns when an entry was applied after a position that Read returned as Next without More. Errors:
// ErrClosed, or that of ctx.
func (fe *Feed) Await(ctx context.Context, after flight.Version) error {
	return fe.state.waitApplied(ctx, after.Index+1)
}

// readEntry returns the events of an entry that was applied here; *CompactedError, up to the next entry of the log, when
// the log no longer has it.
func (fe *Feed) readEntry(index uint64) (*feedEntry, error) {
	if e := fe.cached(index); e != nil {
		return e, nil
	}
	var log raft.Log
	err := fe.log.GetLog(index, &log)
	if errors.Is(err, raft.ErrLogNotFound) { // truncated since, or a hole in the log after a restore
		next, err := fe.log.NextIndex(index)
		if err != nil {
			return nil, err
		}
		return nil, &flight.CompactedError{First: endOfEntry(max(index, next-min(next, 1)))}
	}
	if err != nil {
		return nil, err
	}
	e, err := fe.decodeEntry(&log)
	if err == nil {
		fe.put(e)
	}
	return e, err
}

// cached returns an entry that put has cached, or nil.
func (fe *Feed) cached(index uint64) *feedEntry {
	fe.mu.Lock()
	defer fe.mu.Unlock()
	if e := fe.recent[index%feedCache]; e != nil && e.index == index {
		return e
	}
	return nil
}

// put caches an entry unless a newer one has its place, so that readers of old entries do not evict the newest.
func (fe *Feed) put(e *feedEntry) {
	fe.mu.Lock()
	defer fe.mu.Unlock()
	if old := fe.recent[e.index%feedCache]; old == nil || old.index < e.index {
		fe.recent[e.index%feedCache] = e
	}
}

// decodeEntry collects the events of all commands of an entry.
func (fe *Feed) decodeEntry(log *raft.Log) (*feedEntry, error) {
	e := &feedEntry{index: log.Index}
	if log.Type != raft.LogCommand {
		return e, nil
	}
	stamped, rest, err := splitHeader(log.Data)
	if err != nil {
		return nil, err
	}
	for pos := uint32(0); len(rest) >= commandPrefix; pos++ {
		n := uint64(binary.BigEndian.Uint32(rest))
		rest = rest[commandPrefix:]
		if n > uint64(len(rest)) {
			return nil, errTruncatedEntry
		}
		e.last = pos
		at := flight.Version{Index: log.Index, Pos: pos}
		events, err := fe.eventsOf(rest[:n:n], at, stamped.now)
		if err != nil {
			return nil, fmt.Errorf("clusterstore: the feed at %s: %w", at, err)
		}
		e.events = append(e.events, events...)
		rest = rest[n:]
	}
	return e, nil
}

// eventsOf returns the events of one command.
func (fe *Feed) eventsOf(command []byte, at flight.Version, stamp flight.Time) ([]flight.FeedEvent, error) {
	key, err := flight.Target(command)
	if err != nil {
		return nil, err
	}
	if key.IsZero() {
		return fe.keylessEvents(command, at)
	}
	events, err := fe.historyAt(key.FlightID(), at)
	if err != nil {
		return nil, err
	}
	if events == nil {
		return fe.eventsWithoutHistory(command, key, at, stamp)
	}
	return toFeedEvents(key, events, at), nil
}

func toFeedEvents(key flight.Key, events []flight.Event, at flight.Version) []flight.FeedEvent {
	feed := make([]flight.FeedEvent, len(events))
	for i, e := range events {
		feed[i] = flight.FeedEvent{Key: key, HistoryEvent: flight.HistoryEvent{Version: at, Event: e}}
	}
	return feed
}

// keylessEvents returns the events of a command without a key: of an EndSession, or of a command about a document.
func (fe *Feed) keylessEvents(command []byte, at flight.Version) ([]flight.FeedEvent, error) {
	c, err := flight.Decode(command)
	if err != nil {
		return nil, err
	}
	if _, ended := c.(*flight.EndSession); ended {
		return fe.endedEvents(at)
	}
	return fe.documentEvent(c, at)
}

// endedEvents returns the events of an EndSession command, flight by flight in the order of application.
func (fe *Feed) endedEvents(at flight.Version) (feed []flight.FeedEvent, err error) {
	ids, err := fe.flightsEndedAt(at)
	for _, id := range ids {
		var f *flight.Flight
		if f, err = fe.state.fsm.peek(id); err != nil {
			break
		}
		var events []flight.Event
		if events, err = fe.historyAt(id, at); err != nil {
			break
		}
		if len(events) > 0 { // a tombstone has none
			feed = append(feed, toFeedEvents(f.Key, events, at)...)
		}
	}
	return feed, err
}

// historyAt reads the events of one command from a flight's history, or nil if there are none.
func (fe *Feed) historyAt(id flight.ID, at flight.Version) (events []flight.Event, err error) {
	key, unflushed := historyKey(nil, id, at), fe.state.fsm.view.Load()
	if value, found := unflushed.row(id, key); found {
		return decodeEvents(value)
	}
	if unflushed.tombstoned(id) {
		return nil, nil
	}
	_, err = fe.state.fsm.state.get(key, func(b []byte) error {
		events, err = decodeEvents(b)
		return err
	})
	return events, err
}

// eventsWithoutHistory returns events that are stored in no history: duplicate counts, and the end of a retention,
// which deletes the history.
func (fe *Feed) eventsWithoutHistory(command []byte, key flight.Key, at flight.Version, stamp flight.Time) ([]flight.FeedEvent, error) {
	c, err := flight.Decode(command)
	if err != nil {
		return nil, err
	}
	f, err := fe.state.Flight(key.FlightID())
	if err != nil || f == nil {
		return nil, err
	}
	if count, ok := c.(*flight.CountDuplicates); ok && f.Duplicates != nil && len(count.Stats.Callers) > 0 {
		e := flight.Event{Kind: flight.EventDuplicates, At: stamp, Actor: count.Stats.Callers[len(count.Stats.Callers)-1].Actor}
		return []flight.FeedEvent{{Key: key, HistoryEvent: flight.HistoryEvent{Version: at, Event: e}, Count: count.Stats.Count}}, nil
	}
	if _, ends := c.(*flight.Expire); !ends {
		return nil, nil // the command changed nothing, or the history was deleted since
	}
	if f.State != flight.StateExpired || f.Version != at {
		return nil, nil
	}
	e := flight.Event{Kind: flight.EventExpired, Generation: f.Generation, At: stamp}
	return []flight.FeedEvent{{Key: key, HistoryEvent: flight.HistoryEvent{Version: at, Event: e}}}, nil
}

// documentEvent returns the event of a command about a document, or nil if it changed nothing.
func (fe *Feed) documentEvent(c flight.Command, at flight.Version) ([]flight.FeedEvent, error) {
	id, kind, ok := flight.DocumentEvent(c)
	if !ok {
		return nil, nil
	}
	fe.state.fsm.flush()
	key, line := auditKey(nil, at), flight.AuditEntry{}
	found, err := fe.state.fsm.state.get(key, func(b []byte) error { return decodeAudit(key, b, &line) })
	if err != nil || !found {
		return nil, err
	}
	e := flight.Event{Kind: kind, At: line.At, Actor: line.Actor, Note: line.Reason}
	return []flight.FeedEvent{{Document: id, HistoryEvent: flight.HistoryEvent{Version: at, Event: e}}}, nil
}

// flightsEndedAt returns the flights with an event of the EndSession at a version.
func (fe *Feed) flightsEndedAt(at flight.Version) (ids []flight.ID, err error) {
	fe.state.fsm.flush()
	_, err = fe.state.fsm.state.get(touchedKey(nil, at), func(b []byte) error {
		for id := range slices.Chunk(b, len(flight.ID{})) {
			ids = append(ids, flight.ID(id))
		}
		return nil
	})
	return ids, err
}
