package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

const (
	defaultHeartbeat = 15 * time.Second
	// streamWriteTimeout is how long a write may block on a reader that does not read; then the stream ends. The reader
	// reconnects with the id of its last event and misses nothing.
	streamWriteTimeout = 20 * time.Second
	// reconnectMS tells readers how many milliseconds to wait before they reconnect.
	reconnectMS = "1000"
	// streamBatch is about how many events are read from the feed at once.
	streamBatch = 256
	// maxStreams bounds the open streams of a node. Config.MaxStreams can lower it.
	maxStreams = 1024
)

// stream is an open response of server-sent events. The append methods fill buf, flush writes it. The first error is
// kept.
type stream struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
	buf  []byte
	err  error
}

// openStream starts a stream. If too many are open, it has answered the request and returns nil. The caller must call
// closeStream.
func (a *api) openStream(w http.ResponseWriter, r *http.Request) *stream {
	limit := int64(maxStreams)
	if own := int64(a.cfg.MaxStreams); own > 0 {
		limit = min(limit, own)
	}
	if a.openStreams.Add(1) > limit {
		a.openStreams.Add(-1)
		p := newProblem(wire.RateLimited)
		p.Detail = "this node has too many open event streams"
		a.writeAndLogProblem(w, r, p, nil)
		return nil
	}
	s := &stream{w: w, ctrl: http.NewResponseController(w)}
	_ = s.ctrl.SetReadDeadline(time.Time{}) // the read deadline of the server is for ordinary requests
	h := w.Header()
	h.Set("Content-Type", wire.TypeEvents)
	h.Set("X-Accel-Buffering", "no") // otherwise a proxy may buffer events
	w.WriteHeader(http.StatusOK)
	s.buf = append(s.buf, "retry: "+reconnectMS+"\n\n"...)
	return s
}

// closeStream ends a stream. The server still writes the end of the response, which must not block on a reader that
// does not read, either; it sets a new deadline for the next request.
func (a *api) closeStream(s *stream) {
	_ = s.ctrl.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	a.openStreams.Add(-1)
}

// appendMessage appends one message. A reader can resume after a message with an id.
func (s *stream) appendMessage(name, id string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return
	}
	if name != "" {
		s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	}
	s.appendID(id)
	s.buf = append(append(append(s.buf, "data: "...), data...), "\n\n"...)
}

func (s *stream) appendID(id string) {
	if id != "" {
		s.buf = append(append(append(s.buf, "id: "...), id...), '\n')
	}
}

// appendHeartbeat appends a comment and the stream's position. An id without data is not delivered as a message, but
// the reader resumes after it, even if no event matched its filter.
func (s *stream) appendHeartbeat(id string) {
	s.buf = append(s.buf, ": still here\n"...)
	s.appendID(id)
	s.buf = append(s.buf, '\n')
}

// flush writes buf. If the reader does not read within streamWriteTimeout, the write fails and the stream ends.
func (s *stream) flush() error {
	if s.err != nil || len(s.buf) == 0 {
		return s.err
	}
	_ = s.ctrl.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	if _, s.err = s.w.Write(s.buf); s.err == nil {
		s.err = s.ctrl.Flush()
	}
	if s.buf = s.buf[:0]; cap(s.buf) > maxPooledBuffer {
		s.buf = nil
	}
	return s.err
}

func (a *api) heartbeat() time.Duration {
	if a.cfg.Heartbeat > 0 {
		return a.cfg.Heartbeat
	}
	return defaultHeartbeat
}

// streamFeed streams the events of all flights, from the query's position or from now on. It returns when the reader
// disconnects, the node stops or the feed fails.
func (a *api) streamFeed(w http.ResponseWriter, r *http.Request, q *eventQuery) {
	end, err := a.limits.StartStream(cmp.Or(q.namespace, wire.AllNamespaces))
	if err != nil {
		a.writeError(w, r, flight.Key{}, err)
		return
	}
	defer end()
	if err := a.recheckReader(r, q); err != nil {
		a.writeError(w, r, flight.Key{}, err)
		return
	}
	page, err := a.firstFeedPage(r.Context(), q)
	var compacted *flight.CompactedError
	if err != nil && !(q.resumed && a.cfg.Follower == nil && errors.As(err, &compacted)) {
		a.writeFeedError(w, r, err)
		return
	}
	s := a.openStream(w, r)
	if s == nil {
		return
	}
	defer a.closeStream(s)
	after := q.startPosition()
	if compacted != nil { // the reader was disconnected for longer than the log is kept
		after, page = s.appendGap(after, compacted)
	} else {
		after = s.appendPage(page, q, after)
	}
	s.appendHeartbeat(after.String()) // a reader that disconnects before the first event resumes here
	lastWrite := time.Now()
	for r.Context().Err() == nil && a.stillAllowed(r) && s.flush() == nil {
		if !page.More {
			q.since = 0 // since limits only past events; it is by this machine's clock, so it must not filter new ones
			if err := a.waitForEvents(r, s, after); err != nil {
				return
			}
		}
		page, err = a.cfg.Feed.Read(after, streamBatch)
		if a.recheckReader(r, q) != nil {
			return
		}
		switch {
		case a.cfg.Follower == nil && errors.As(err, &compacted): // the log was truncated before the reader had read it
			after, page = s.appendGap(after, compacted)
		case err != nil:
			return // the reader reconnects, and gets the error as a problem, or the events from a node whose log goes back further
		default:
			after = s.appendPage(page, q, after)
		}
		if len(s.buf) == 0 && time.Since(lastWrite) >= a.heartbeat() { // many old events, none of which matched
			s.appendHeartbeat(after.String())
		}
		if len(s.buf) > 0 {
			lastWrite = time.Now()
		}
	}
}

// appendGap tells the reader that events after its position were deleted. It returns the position to continue after.
func (s *stream) appendGap(after flight.Version, compacted *flight.CompactedError) (flight.Version, flight.FeedPage) {
	s.appendMessage(wire.MessageGap, compacted.First.String(), wire.Gap{After: after.String(), Until: compacted.First.String()})
	return compacted.First, flight.FeedPage{More: true}
}

func (a *api) firstFeedPage(ctx context.Context, q *eventQuery) (flight.FeedPage, error) {
	if q.after != nil {
		return a.readFeed(ctx, *q.after, streamBatch)
	}
	return a.cfg.Feed.Last(q.last, q.matches, q.stopBefore())
}

// appendPage appends the matching events of a page and returns the position after the page. Of the events of one
// command only the last carries an id, so a reader that disconnects between them receives all of them again.
func (s *stream) appendPage(page flight.FeedPage, q *eventQuery, after flight.Version) flight.Version {
	var wanted []flight.FeedEvent
	for i := range page.Events {
		if q.matches(&page.Events[i]) {
			wanted = append(wanted, page.Events[i])
		}
	}
	for i := range wanted {
		e := wireFeedEvent(&wanted[i])
		id := e.ID
		if i+1 < len(wanted) && wanted[i+1].Version == wanted[i].Version {
			id = ""
		}
		s.appendMessage("", id, e)
	}
	if page.Next.After(after) {
		return page.Next
	}
	return after
}

// waitForEvents waits until there may be events after a position, and writes heartbeats meanwhile. It returns an error
// when the reader has disconnected, its token is no longer valid, or the ledger is closed.
func (a *api) waitForEvents(r *http.Request, s *stream, after flight.Version) error {
	ctx := r.Context()
	for {
		beat, cancel := context.WithTimeout(ctx, a.heartbeat())
		err := a.cfg.Feed.Await(beat, after)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if !a.stillAllowed(r) {
			return auth.ErrUnknown
		}
		s.appendHeartbeat(after.String())
		if err := s.flush(); err != nil {
			return err
		}
	}
}

// duplicatesInterval is how often the stream of one flight checks for new duplicates.
const duplicatesInterval = time.Second

// streamFlight streams the events of one flight after a position. The position never expires while the flight is
// stored: events are read from the flight's history, not from the feed.
func (a *api) streamFlight(w http.ResponseWriter, r *http.Request, f *flight.Flight, after flight.Version) {
	if f.State == flight.StateExpired {
		p := noReceiptProblem(f)
		p.Title, p.Detail = "The history is no longer stored", "the flight's retention has ended, and its history was deleted"
		setFlightHeaders(w.Header(), f)
		a.writeAndLogProblem(w, r, p, nil)
		return
	}
	end, err := a.limits.StartStream(f.Key.Namespace())
	if err != nil {
		a.writeError(w, r, f.Key, err)
		return
	}
	defer end()
	s := a.openStream(w, r)
	if s == nil {
		return
	}
	defer a.closeStream(s)
	a.followFlight(r, s, f, after)
}

// followFlight writes a flight's events until the reader disconnects, its token ends, the flight expires or the node
// stops.
func (a *api) followFlight(r *http.Request, s *stream, f *flight.Flight, after flight.Version) {
	ctx := r.Context()
	lastWrite, duplicatesSent := time.Now(), uint64(0)
	for read := (flight.Version{}); ; {
		if f.Version != read {
			var err error
			if after, err = a.appendHistory(s, f, after); err != nil {
				return
			}
			read = f.Version
		}
		duplicatesSent = a.appendDuplicates(s, f, duplicatesSent)
		if len(s.buf) == 0 && time.Since(lastWrite) >= a.heartbeat() {
			s.appendHeartbeat("")
		}
		if len(s.buf) > 0 {
			lastWrite = time.Now()
		}
		if !a.stillAllowed(r) || s.flush() != nil || f.State == flight.StateExpired {
			return
		}
		pause, cancel := context.WithTimeout(ctx, min(duplicatesInterval, a.heartbeat()))
		next, err := a.cfg.Ledger.Wait(pause, f.ID, f.Version)
		over := pause.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil, err != nil && !over:
			return
		case err == nil && next != nil:
			f = next
		}
	}
}

// appendHistory appends a flight's events after a position and returns the position of the last one.
func (a *api) appendHistory(s *stream, f *flight.Flight, after flight.Version) (flight.Version, error) {
	history, err := a.cfg.Ledger.History(f.ID)
	if err != nil {
		return after, err
	}
	for i := range history {
		e := &history[i]
		if !e.Version.After(after) {
			continue
		}
		id := e.Version.String()
		if i+1 < len(history) && history[i+1].Version == e.Version {
			id = ""
		}
		s.appendMessage("", id, wireFlightEvent(f, e))
	}
	if n := len(history); n > 0 && history[n-1].Version.After(after) {
		after = history[n-1].Version
	}
	if f.State == flight.StateExpired && f.Version.After(after) { // the history was deleted with the flight
		after = f.Version
		s.appendMessage("", after.String(), wireFlightEvent(f, &flight.HistoryEvent{Version: after, Event: flight.Event{Kind: flight.EventExpired,
			Generation: f.Generation, At: flight.Time(time.Now().UnixMilli())}}))
	}
	return after, nil
}

// appendDuplicates appends the statistics of duplicates if their count has changed. It returns the count that the
// reader has.
func (a *api) appendDuplicates(s *stream, f *flight.Flight, sent uint64) uint64 {
	stats, err := a.cfg.Duplicates.DuplicateStats(f.ID)
	if err != nil || stats.Count == sent || stats.Count == 0 {
		return sent
	}
	s.appendMessage(wire.MessageDuplicates, "", wire.DuplicateStatsOf(&stats))
	return stats.Count
}

func wireFlightEvent(f *flight.Flight, e *flight.HistoryEvent) wire.Event {
	shown := wire.EventOf(e.Version, &e.Event)
	shown.FlightID, shown.Key = f.ID.String(), f.Key.String()
	return shown
}
