package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

const (
	defaultHeartbeat = 15 * time.Second
	// streamWriteTimeout is how long a write may block on a reader that does not read; then the stream ends. The reader
	// reconnects with the id of its last event and misses nothing.
	streamPatience = 20 * time.Second
	// reconnectMS tells readers how many milliseconds to wait before they reconnect.
	reconnectMS = "1000"
	// streamBatch is about how many events are read from the feed at once.
	streamChunk = 256
	// maxStreams limits the open streams of a node.
	mostStreams = 1000
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
	if a.tails.Add(1) > mostStreams {
		a.tails.Add(-1)
		p := newProblem(wire.RateLimited)
		p.Detail = "this node has too many open event streams"
		a.answer(w, r, p, nil)
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

func (a *api) closeStream(s *stream) {
	_ = s.ctrl.SetWriteDeadline(time.Time{})
	a.tails.Add(-1)
}

// appendMessage appends one message. A reader can resume after a message with an id.
func (s *stream) message(name, id string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return
	}
	if name != "" {
		s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	}
	s.id(id)
	s.buf = append(append(append(s.buf, "data: "...), data...), "\n\n"...)
}

func (s *stream) id(id string) {
	if id != "" {
		s.buf = append(append(append(s.buf, "id: "...), id...), '\n')
	}
}

// appendHeartbeat appends a comment and the stream's position. An id without data is not delivered as a message, but
// the reader resumes after it, even if no event matched its filter.
func (s *stream) beat(id string) {
	s.buf = append(s.buf, ": still here\n"...)
	s.id(id)
	s.buf = append(s.buf, '\n')
}

// flush writes buf. If the reader does not read within streamWriteTimeout, the write fails and the stream ends.
func (s *stream) flush() error {
	if s.err != nil || len(s.buf) == 0 {
		return s.err
	}
	_ = s.ctrl.SetWriteDeadline(time.Now().Add(streamPatience))
	if _, s.err = s.w.Write(s.buf); s.err == nil {
		s.err = s.ctrl.Flush()
	}
	if s.buf = s.buf[:0]; cap(s.buf) > keepBuffer {
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
	page, err := a.firstPage(r.Context(), q)
	var cut *CutError
	if err != nil && !(q.resumed && errors.As(err, &cut)) {
		a.failFeed(w, r, err)
		return
	}
	s := a.openStream(w, r)
	if s == nil {
		return
	}
	defer a.closeStream(s)
	after := q.start()
	if cut != nil { // the reader was disconnected for longer than the log is kept
		after, page = s.gap(after, cut)
	} else {
		after = s.tell(page, q, after)
	}
	s.beat(after.String()) // a reader that disconnects before the first event resumes here
	told := time.Now()
	for r.Context().Err() == nil && s.flush() == nil {
		if !page.More {
			q.since = 0 // since limits only past events; it is by this machine's clock, so it must not filter new ones
			if err := a.rest(r.Context(), s, after); err != nil {
				return
			}
		}
		page, err = a.cfg.Feed.Read(after, streamChunk)
		switch {
		case errors.As(err, &cut): // the log was truncated before the reader had read it
			after, page = s.gap(after, cut)
		case err != nil:
			return // the reader reconnects and gets the error as a problem
		default:
			after = s.tell(page, q, after)
		}
		if len(s.buf) == 0 && time.Since(told) >= a.heartbeat() { // many old events, none of which matched
			s.beat(after.String())
		}
		if len(s.buf) > 0 {
			told = time.Now()
		}
	}
}

// appendGap tells the reader that events after its position were deleted. It returns the position to continue after.
func (s *stream) gap(after flight.Version, cut *CutError) (flight.Version, FeedPage) {
	s.message(wire.MessageGap, cut.First.String(), wire.Gap{After: after.String(), Until: cut.First.String()})
	return cut.First, FeedPage{More: true}
}

func (a *api) firstPage(ctx context.Context, q *eventQuery) (FeedPage, error) {
	if q.after != nil {
		return a.readFeed(ctx, *q.after, streamChunk)
	}
	return a.cfg.Feed.Last(q.last, q.fits, q.enough())
}

// appendPage appends the matching events of a page and returns the position after the page. Of the events of one
// command only the last carries an id, so a reader that disconnects between them receives all of them again.
func (s *stream) tell(page FeedPage, q *eventQuery, after flight.Version) flight.Version {
	var wanted []FeedEvent
	for i := range page.Events {
		if q.fits(&page.Events[i]) {
			wanted = append(wanted, page.Events[i])
		}
	}
	for i := range wanted {
		e := feedEvent(&wanted[i])
		id := e.ID
		if i+1 < len(wanted) && wanted[i+1].Version == wanted[i].Version {
			id = ""
		}
		s.message("", id, e)
	}
	if page.Next.Later(after) {
		return page.Next
	}
	return after
}

// waitForEvents waits until there may be events after a position, and writes heartbeats meanwhile. It returns an error
// when the reader has disconnected or the ledger is closed.
func (a *api) rest(ctx context.Context, s *stream, after flight.Version) error {
	for {
		beat, cancel := context.WithTimeout(ctx, a.heartbeat())
		err := a.cfg.Feed.Await(beat, after)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		s.beat(after.String())
		if err := s.flush(); err != nil {
			return err
		}
	}
}

// duplicatesInterval is how often the stream of one flight checks for new duplicates.
const tallyPause = time.Second

// streamFlight streams the events of one flight after a position. The position never expires while the flight is
// stored: events are read from the flight's history, not from the feed.
func (a *api) streamFlight(w http.ResponseWriter, r *http.Request, f *flight.Flight, after flight.Version) {
	if f.State == flight.Expired {
		p := noReceipt(f)
		p.Title, p.Detail = "The history is no longer stored", "the flight's retention has ended, and its history was deleted"
		describe(w.Header(), f)
		a.answer(w, r, p, nil)
		return
	}
	s := a.openStream(w, r)
	if s == nil {
		return
	}
	defer a.closeStream(s)
	a.followFlight(r.Context(), s, f, after)
}

// followFlight writes a flight's events until the reader disconnects, the flight expires or the node stops.
func (a *api) followFlight(ctx context.Context, s *stream, f *flight.Flight, after flight.Version) {
	told, counted := time.Now(), uint64(0)
	for read := (flight.Version{}); ; {
		if f.Version != read {
			var err error
			if after, err = a.tellFlight(s, f, after); err != nil {
				return
			}
			read = f.Version
		}
		counted = a.tellDuplicates(s, f, counted)
		if len(s.buf) == 0 && time.Since(told) >= a.heartbeat() {
			s.beat("")
		}
		if len(s.buf) > 0 {
			told = time.Now()
		}
		if s.flush() != nil || f.State == flight.Expired {
			return
		}
		pause, cancel := context.WithTimeout(ctx, min(tallyPause, a.heartbeat()))
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
func (a *api) tellFlight(s *stream, f *flight.Flight, after flight.Version) (flight.Version, error) {
	history, err := a.cfg.Ledger.History(f.ID)
	if err != nil {
		return after, err
	}
	for i := range history {
		e := &history[i]
		if !e.Version.Later(after) {
			continue
		}
		id := e.Version.String()
		if i+1 < len(history) && history[i+1].Version == e.Version {
			id = ""
		}
		s.message("", id, flightEvent(f, e))
	}
	if n := len(history); n > 0 && history[n-1].Version.Later(after) {
		after = history[n-1].Version
	}
	if f.State == flight.Expired && f.Version.Later(after) { // the history was deleted with the flight
		after = f.Version
		s.message("", after.String(), flightEvent(f, &Event{Version: after, Event: flight.Event{Kind: flight.EventExpired,
			Generation: f.Generation, At: flight.Time(time.Now().UnixMilli())}}))
	}
	return after, nil
}

// appendDuplicates appends the statistics of duplicates if their count has changed. It returns the count that the
// reader has.
func (a *api) tellDuplicates(s *stream, f *flight.Flight, counted uint64) uint64 {
	tally, err := a.cfg.Tallies.Tally(f.ID)
	if err != nil || tally.Count == counted || tally.Count == 0 {
		return counted
	}
	s.message(wire.MessageDuplicates, "", wire.DuplicatesOf(&tally))
	return tally.Count
}

func flightEvent(f *flight.Flight, e *Event) wire.Event {
	shown := wire.EventOf(e.Version, &e.Event)
	shown.FlightID, shown.Key = f.ID.String(), f.Key.String()
	return shown
}
