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
	// streamPatience is how long a reader may leave what was written to it unread; then it is cut off. It comes back
	// with the id of the last event that it saw, and has lost nothing but time.
	streamPatience = 20 * time.Second
	// reconnectMS is after how many milliseconds a reader whose stream ended should come back.
	reconnectMS = "1000"
	// streamChunk is about how many events are read at once.
	streamChunk = 256
	// mostStreams is how many streams may be open at once.
	mostStreams = 1000
)

// stream is one answer that does not end: server-sent events. Its methods keep the first error.
type stream struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
	buf  []byte
	err  error
}

// openStream begins an answer that does not end; nil when there are too many. The caller closes it.
func (a *api) openStream(w http.ResponseWriter, r *http.Request) *stream {
	if a.tails.Add(1) > mostStreams {
		a.tails.Add(-1)
		p := newProblem(wire.RateLimited)
		p.Detail = "too many streams are open at this node"
		a.answer(w, r, p, nil)
		return nil
	}
	s := &stream{w: w, ctrl: http.NewResponseController(w)}
	_ = s.ctrl.SetReadDeadline(time.Time{}) // a server's bound for requests is none for this answer
	h := w.Header()
	h.Set("Content-Type", wire.TypeEvents)
	h.Set("X-Accel-Buffering", "no") // or a proxy may keep what happens now for later
	w.WriteHeader(http.StatusOK)
	s.buf = append(s.buf, "retry: "+reconnectMS+"\n\n"...)
	return s
}

func (a *api) closeStream(s *stream) {
	_ = s.ctrl.SetWriteDeadline(time.Time{})
	a.tails.Add(-1)
}

// message adds one message. With an id the reader may come back behind it.
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

// beat says that the stream is alive, and how far it is: a message of an id without data is none, but moves the place
// behind which the reader comes back, also when nothing that happened was for it.
func (s *stream) beat(id string) {
	s.buf = append(s.buf, ": still here\n"...)
	s.id(id)
	s.buf = append(s.buf, '\n')
}

// flush writes what was added. A reader that does not take it is cut off; nobody else waits for it.
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

// streamFeed tells of all flights, from the place on that the query names, else from now on.
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
	if cut != nil { // the reader was away for longer than the log is long
		after, page = s.gap(after, cut)
	} else {
		after = s.tell(page, q, after)
	}
	s.beat(after.String()) // whoever is cut off before the first event comes back to here
	told := time.Now()
	for r.Context().Err() == nil && s.flush() == nil {
		if !page.More {
			q.since = 0 // it said how much of the past is wanted, by another clock than the events have; now is always wanted
			if err := a.rest(r.Context(), s, after); err != nil {
				return
			}
		}
		page, err = a.cfg.Feed.Read(after, streamChunk)
		switch {
		case errors.As(err, &cut): // the reader was slower than the log is long
			after, page = s.gap(after, cut)
		case err != nil:
			return // the reader comes back, and is told what is wrong
		default:
			after = s.tell(page, q, after)
		}
		if len(s.buf) == 0 && time.Since(told) >= a.heartbeat() { // a long past with nothing in it for this reader
			s.beat(after.String())
		}
		if len(s.buf) > 0 {
			told = time.Now()
		}
	}
}

// gap adds that the events behind a place are gone, and gives the place behind which there are some.
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

// tell adds the events of a page that are wanted, and gives the place behind the page. Of the events of one command
// only the last one carries the id: a reader that is cut off between them gets them all again.
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

// rest waits until there may be more behind a place, and says meanwhile that the stream is alive. It returns an error
// when the stream is over.
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

// tallyPause is how often the stream of one flight looks whether its duplicates have become more.
const tallyPause = time.Second

// streamFlight tells what happened to one flight behind a place, and what happens from now on. Its place in the stream
// is good for ever: the history is read from the flight itself.
func (a *api) streamFlight(w http.ResponseWriter, r *http.Request, f *flight.Flight, after flight.Version) {
	if f.State == flight.Expired {
		p := noReceipt(f)
		p.Title, p.Detail = "The history is no longer kept", "the flight's retention is over, and its history ended with it"
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

// followFlight tells of a flight until its reader has gone, or its history has.
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

// tellFlight adds what happened to a flight behind a place, and gives the place behind that.
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
	if f.State == flight.Expired && f.Version.Later(after) { // it took its history along
		after = f.Version
		s.message("", after.String(), flightEvent(f, &Event{Version: after, Event: flight.Event{Kind: flight.EventExpired,
			Generation: f.Generation, At: flight.Time(time.Now().UnixMilli())}}))
	}
	return after, nil
}

// tellDuplicates adds the duplicates of a flight where there are others than were told.
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
