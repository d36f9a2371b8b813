package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/wire"
)

// EventQuery says which events are wanted. A zero field asks for nothing in particular.
type EventQuery struct {
	After     string        // the id of an event, or EventPage.Next: go on behind it
	Last      int           // without After: begin with so many of the events that there are already
	Since     time.Duration // of these only those of this time
	Action    string        // only of keys with this name
	KeyPrefix string        // only of full keys that start so
	Kinds     []string      // only these
	// AllNamespaces asks for the events of all of them; else they are of the client's.
	AllNamespaces bool
	// Lost is told each time that the stream broke; it is taken up again where it was. nil: nobody is told.
	Lost func(why error)
}

func (q *EventQuery) path(count string, after string) string {
	return withQuery("/v1/events", "after", after, count, strconv.Itoa(q.Last), "since", q.Since.String(), "action", q.Action,
		"key_prefix", q.KeyPrefix, "kind", strings.Join(q.Kinds, ","))
}

// EventPage reads events that there are already: those behind After, else the last ones. With Last about as many, else
// 100 of them: what one command did stays together. Next of the page is the After of the next one. Where there is nothing
// behind After it waits, up to the time given. *Error with the code expired: the ledger's log no longer reaches back to After.
func (c *Client) EventPage(ctx context.Context, q EventQuery, wait time.Duration) (*EventPage, error) {
	seconds := min(int(wait/time.Second), wire.MaxWaitMS/1000)
	r := request{method: http.MethodGet, path: q.path("limit", q.After), timeout: wait + defaultTry, everywhere: q.AllNamespaces}
	if seconds > 0 {
		r.prefer = "wait=" + strconv.Itoa(seconds)
	}
	return decode[EventPage](c.ask(ctx, r))
}

// Events gives events of all flights as they happen, until ctx ends. A stream that breaks is taken up again, at this
// server or another one, behind the last event that came; an event may come twice by that, and none is left out in
// silence: where the ledger's log no longer reaches back there is an event of kind gap. An error is the last thing that
// comes: ctx's, or *Error for what no server will ever answer, such as the code expired for an After that is too old.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		t := &tail{client: c, query: &q, place: q.After, yield: yield}
		for pause := firstPause; ; pause = min(2*pause, longPause) {
			server := c.best.Load()
			came := t.came
			err := t.follow(ctx, c.servers[server])
			switch p := problemOf(err); {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() != nil:
				yield(Event{}, context.Cause(ctx))
				return
			case p != nil && p.Status < 500 && p.Status != http.StatusTooManyRequests:
				yield(Event{}, err)
				return
			}
			if t.came > came {
				pause = firstPause
			}
			if q.Lost != nil {
				q.Lost(err)
			}
			c.best.CompareAndSwap(server, (server+1)%uint32(len(c.servers)))
			clock.Sleep(ctx, pause)
		}
	}
}

// errEnough says that nobody wants more.
var errEnough = errors.New("client: enough")

// silence is how long a stream may say nothing, not even that it is alive, before it is taken for dead.
const silence = 45 * time.Second

// tail is one reader of events, over as many connections as it takes.
type tail struct {
	client *Client
	query  *EventQuery
	place  string // behind which to go on
	came   int    // messages so far
	yield  func(Event, error) bool
}

// follow reads one stream until it breaks; it always returns an error.
func (t *tail) follow(ctx context.Context, server string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := request{method: http.MethodGet, path: t.query.path("last", ""), everywhere: t.query.AllNamespaces}
	resumes := t.place != t.query.After
	if !resumes {
		r.path = t.query.path("last", t.place)
	}
	req, err := t.client.httpRequest(ctx, server, &r)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", wire.TypeEvents)
	if resumes { // a server tells of a gap then; for a place that its reader never was at it is an error
		req.Header.Set(wire.HeaderLastEvent, t.place)
	}
	watchdog := time.AfterFunc(silence, func() { cancel(errors.New("the stream fell silent")) })
	defer watchdog.Stop()
	answer, err := t.client.http.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), wire.TypeEvents) {
		body, err := readBody(answer)
		return errors.Join(err, refusal(&response{status: answer.StatusCode, header: answer.Header, body: body}, r.key))
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, longestLine)
	var m message
	for lines.Scan() {
		watchdog.Reset(silence)
		if line := lines.Text(); line != "" {
			m.line(line)
			continue
		}
		if err := t.take(m); err != nil {
			return err
		}
		m = message{}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// longestLine is far above any event: its texts are bounded by the ledger.
const longestLine = 1 << 20

// message is one of a stream: fields, each on a line.
type message struct{ name, id, data string }

func (m *message) line(line string) {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "event":
		m.name = value
	case "id":
		m.id = value
	case "data":
		m.data += value
	}
}

// take hands one message on, and remembers the place behind it.
func (t *tail) take(m message) error {
	if m.data != "" {
		e, err := m.event()
		if err != nil {
			return err
		}
		t.came++
		if e.Kind != "" && !t.yield(e, nil) {
			return errEnough
		}
	}
	if m.id != "" {
		t.place = m.id
	}
	return nil
}

// event reads what a message says; one of a name that is not known is none.
func (m *message) event() (e Event, err error) {
	switch m.name {
	case "":
		err = json.Unmarshal([]byte(m.data), &e)
	case wire.MessageGap:
		var g wire.Gap
		err = json.Unmarshal([]byte(m.data), &g)
		e = Event{ID: g.Until, Kind: wire.MessageGap, Note: fmt.Sprintf("what happened between %s and %s is no longer in the feed", g.After, g.Until)}
	}
	if err != nil {
		err = fmt.Errorf("client: the stream cannot be read: %w", err)
	}
	return e, err
}
