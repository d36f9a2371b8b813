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
	// maxStreams bounds the open streams of a node. Events.MaxStreams can lower it.
	maxStreams = 1024
)

// stream is an open response of server-sent events. The append methods fill buf, flush writes it. The first error is
// kept.
type stream struct {
	w    http.ResponseWriter
	r    *http.Request
	ctrl *http.ResponseController
	buf  []byte
	err  error
}

// openStream starts a stream, or returns the error to answer with if too many are open. The caller must call closeStream.
func (er *eventRoutes) openStream(w http.ResponseWriter, r *http.Request) (*stream, error) {
	if er.openStreams.Add(1) > er.maxStreams {
		er.openStreams.Add(-1)
		p := newProblem(wire.RateLimited)
		p.Detail = "this node has too many open event streams"
		return nil, problemError{problem: p}
	}
	s := &stream{w: w, r: r, ctrl: http.NewResponseController(w)}
	_ = s.ctrl.SetReadDeadline(time.Time{}) // the read deadline of the server is for ordinary requests
	h := w.Header()
	h.Set("Content-Type", wire.TypeEvents)
	h.Set("X-Accel-Buffering", "no") // otherwise a proxy may buffer events
	w.WriteHeader(http.StatusOK)
	s.buf = append(s.buf, "retry: "+reconnectMS+"\n\n"...)
	return s, nil
}

// closeStream ends a stream. The server still writes the end of the response, which must not block on a reader that
// does not read, either; it sets a new deadline for the next request.
func (er *eventRoutes) closeStream(s *stream) {
	_ = s.ctrl.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	er.openStreams.Add(-1)
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

// errAnswerMemory ends a stream if there is no memory for its next part. The reader reconnects with the id of its last event.
var errAnswerMemory = errors.New("this node has no memory for the answer")

// flush writes buf. The memory of buf is counted until then. If the reader does not read within streamWriteTimeout, the write
// fails and the stream ends.
func (s *stream) flush() error {
	if s.err != nil || len(s.buf) == 0 {
		return s.err
	}
	release, ok := holdAnswer(s.w, s.r, len(s.buf))
	if !ok {
		s.err = errAnswerMemory
		return s.err
	}
	defer release()
	_ = s.ctrl.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	if _, s.err = s.w.Write(s.buf); s.err == nil {
		s.err = s.ctrl.Flush()
	}
	if s.buf = s.buf[:0]; cap(s.buf) > maxPooledBuffer {
		s.buf = nil
	}
	return s.err
}

// streamFeed streams the events of all flights, from the query's position or from now on. It returns when the reader
// disconnects, the node stops or the feed fails.
func (er *eventRoutes) streamFeed(w http.ResponseWriter, r *http.Request, q *eventQuery) error {
	end, err := er.limits.StartStream(cmp.Or(q.namespace, wire.AllNamespaces))
	if err != nil {
		return err
	}
	defer end()
	if err := er.recheckReader(r, q); err != nil {
		return err
	}
	page, err := er.firstFeedPage(r.Context(), q)
	var compacted *flight.CompactedError
	if err != nil && !(q.resumed && er.follower == nil && errors.As(err, &compacted)) {
		return feedError(err)
	}
	s, err := er.openStream(w, r)
	if err != nil {
		return err
	}
	defer er.closeStream(s)
	after := q.startPosition()
	if compacted != nil { // the reader was disconnected for longer than the log is kept
		after, page = s.appendGap(after, compacted)
	} else {
		after = s.appendPage(page, q, after)
	}
	s.appendHeartbeat(after.String()) // a reader that disconnects before the first event resumes here
	lastWrite := time.Now()
	for r.Context().Err() == nil && er.stillAllowed(r) && s.flush() == nil {
		if !page.More {
			q.since = 0 // since limits only past events; it is by this machine's clock, so it must not filter new ones
			if err := er.waitForEvents(r, s, after); err != nil {
				return nil
			}
		}
		page, err = er.feed.Read(after, streamBatch)
		if er.recheckReader(r, q) != nil {
			return nil
		}
		switch {
		case er.follower == nil && errors.As(err, &compacted): // the log was truncated before the reader had read it
			after, page = s.appendGap(after, compacted)
		case err != nil:
			return nil // the reader reconnects, and gets the error as a problem, or the events from a node whose log goes back further
		default:
			after = s.appendPage(page, q, after)
		}
		if len(s.buf) == 0 && time.Since(lastWrite) >= er.heartbeat { // many old events, none of which matched
			s.appendHeartbeat(after.String())
		}
		if len(s.buf) > 0 {
			lastWrite = time.Now()
		}
	}
	return nil
}

// appendGap tells the reader that events after its position were deleted. It returns the position to continue after.
func (s *stream) appendGap(after flight.Version, compacted *flight.CompactedError) (flight.Version, flight.FeedPage) {
	s.appendMessage(wire.MessageGap, compacted.First.String(), wire.Gap{After: after.String(), Until: compacted.First.String()})
	return compacted.First, flight.FeedPage{More: true}
}

func (er *eventRoutes) firstFeedPage(ctx context.Context, q *eventQuery) (flight.FeedPage, error) {
	if q.after != nil {
		return er.readFeed(ctx, *q.after, streamBatch)
	}
	return er.feed.Last(q.last, q.matches, q.stopBefore())
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
func (er *eventRoutes) waitForEvents(r *http.Request, s *stream, after flight.Version) error {
	ctx := r.Context()
	for {
		beat, cancel := context.WithTimeout(ctx, er.heartbeat)
		err := er.feed.Await(beat, after)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if !er.stillAllowed(r) {
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
func (er *eventRoutes) streamFlight(w http.ResponseWriter, r *http.Request, f *flight.Flight, after flight.Version) error {
	if f.State == flight.StateExpired {
		p := noReceiptProblem(f)
		p.Title, p.Detail = "The history is no longer stored", "the flight's retention has ended, and its history was deleted"
		setFlightHeaders(w.Header(), f)
		return problemError{problem: p}
	}
	end, err := er.limits.StartStream(f.Key.Namespace())
	if err != nil {
		return about(f.Key, err)
	}
	defer end()
	s, err := er.openStream(w, r)
	if err != nil {
		return err
	}
	defer er.closeStream(s)
	er.followFlight(r, s, f, after)
	return nil
}

// followFlight writes a flight's events until the reader disconnects, its token ends, the flight expires or the node
// stops.
func (er *eventRoutes) followFlight(r *http.Request, s *stream, f *flight.Flight, after flight.Version) {
	ctx := r.Context()
	lastWrite, duplicatesSent := time.Now(), uint64(0)
	for read := (flight.Version{}); ; {
		more := false
		if f.Version != read {
			var err error
			if after, more, err = er.appendHistory(s, f, after); err != nil {
				return
			}
			if !more {
				read = f.Version
			}
		}
		duplicatesSent = er.appendDuplicates(s, f, duplicatesSent)
		if len(s.buf) == 0 && time.Since(lastWrite) >= er.heartbeat {
			s.appendHeartbeat("")
		}
		if len(s.buf) > 0 {
			lastWrite = time.Now()
		}
		if !er.stillAllowed(r) || s.flush() != nil || f.State == flight.StateExpired {
			return
		}
		if more && ctx.Err() == nil {
			continue
		}
		pause, cancel := context.WithTimeout(ctx, min(duplicatesInterval, er.heartbeat))
		next, err := er.ledger.Wait(pause, f.ID, f.Version)
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

// appendHistory appends a flight's events after a position and returns the position of the last one. It ends between two commands
// when buf has more than maxHistoryText bytes, and then more is true.
func (er *eventRoutes) appendHistory(s *stream, f *flight.Flight, after flight.Version) (last flight.Version, more bool, err error) {
	history, err := er.flights.History(f.ID)
	if err != nil {
		return after, false, err
	}
	for i := range history {
		e := &history[i]
		if !e.Version.After(after) {
			continue
		}
		if len(s.buf) > maxHistoryText && history[i-1].Version != e.Version {
			return history[i-1].Version, true, nil
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
	return after, false, nil
}

// appendDuplicates appends the statistics of duplicates if their count has changed. It returns the count that the
// reader has.
func (er *eventRoutes) appendDuplicates(s *stream, f *flight.Flight, sent uint64) uint64 {
	stats, err := er.duplicates.DuplicateStats(f.ID)
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
