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

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
)

// EventQuery selects events. A zero field selects all.
type EventQuery struct {
	After     string        // id of an event, or EventPage.Next: start with the event that follows
	Last      int           // without After: start with this many stored events
	Since     time.Duration // maximum age of these
	Action    string        // name in the key
	KeyPrefix string        // prefix of the full key
	Kinds     []string      // any of these
	// AllNamespaces selects the events of all namespaces, not only of the client's.
	AllNamespaces bool
	// OnDisconnect is called each time the stream breaks, before it is resumed. It may be nil.
	OnDisconnect func(why error)
}

// path returns the path of a request for events. last is the name of the parameter that has Last.
func (q *EventQuery) path(last, after string) string {
	return withQuery("/v1/events", "after", after, last, strconv.Itoa(q.Last), "since", q.Since.String(), "action", q.Action,
		"key_prefix", q.KeyPrefix, "kind", strings.Join(q.Kinds, ","))
}

// EventPage reads stored events: those after After, or else the newest ones. A page has about Last events, by default
// 100; the events of one command are never split. The Next of a page is the After of the next page. Without events
// after After it waits, at most as long as given. An *Error with the code expired means that the ledger's log no longer
// reaches back to After; of several servers, a second one has confirmed it.
func (c *Client) EventPage(ctx context.Context, q EventQuery, wait time.Duration) (*EventPage, error) {
	seconds := min(int(wait/time.Second), wire.MaxWaitMS/1000)
	r := request{method: http.MethodGet, path: q.path("limit", q.After), timeout: wait + defaultTryTimeout, allNamespaces: q.AllNamespaces, expires: true}
	if seconds > 0 {
		r.prefer = "wait=" + strconv.Itoa(seconds)
	}
	return decode[EventPage](c.ask(ctx, r))
}

// Events yields the events of all flights as they happen, until ctx ends. A broken stream is resumed after the last
// event, at the same or another server. An event may be yielded twice. No event is missing without a sign: when the
// ledger's log no longer reaches back, an event of kind gap is yielded. An error ends the sequence: that of ctx, or an
// *Error that no retry can solve, such as the code expired for an After that is too old, as in EventPage.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		er := &eventReader{client: c, query: &q, lastID: q.After, yield: yield}
		order, _ := c.picker.pick(len(c.servers), false)
		doubtedExpiry := false
		pause := minRetryPause
		for try := 0; ; try++ {
			receivedBefore := er.received
			err := er.follow(ctx, c.servers[order[try%len(order)]])
			switch p := problemOf(err); {
			case errors.Is(err, errStopped):
				return
			case ctx.Err() != nil:
				yield(Event{}, context.Cause(ctx))
				return
			case p != nil && p.Code == wire.Expired && !doubtedExpiry && len(order) > 1:
				doubtedExpiry = true // another node's log may reach further back
				continue
			case p != nil && p.Status < 500 && p.Status != http.StatusTooManyRequests:
				yield(Event{}, err)
				return
			}
			if er.received > receivedBefore {
				pause, doubtedExpiry = minRetryPause, false
			}
			if q.OnDisconnect != nil {
				q.OnDisconnect(err)
			}
			clock.Sleep(ctx, pause)
			pause = min(2*pause, maxRetryPause)
		}
	}
}

// errStopped means that the consumer has stopped the iteration.
var errStopped = errors.New("client: the iteration was stopped")

// streamTimeout is how long a stream may be without events and heartbeats before it is resumed.
const streamTimeout = 45 * time.Second

// eventReader reads events over successive streams.
type eventReader struct {
	client   *Client
	query    *EventQuery
	lastID   string // id of the last event; the next stream resumes after it
	received int    // number of events
	yield    func(Event, error) bool
}

// follow reads one stream until it breaks. It always returns an error.
func (er *eventReader) follow(ctx context.Context, server string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := request{method: http.MethodGet, path: er.query.path("last", ""), allNamespaces: er.query.AllNamespaces}
	resumes := er.lastID != er.query.After
	if !resumes {
		r.path = er.query.path("last", er.lastID)
	}
	req, err := er.client.newRequest(ctx, server, &r)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", wire.TypeEvents)
	if resumes { // for this header the server yields a gap; for the parameter after it returns an error
		req.Header.Set(wire.HeaderLastEvent, er.lastID)
	}
	watchdog := time.AfterFunc(streamTimeout, func() { cancel(errors.New("no heartbeat in the stream of events")) })
	defer watchdog.Stop()
	answer, err := er.client.http.RoundTrip(req)
	if err != nil {
		return explainTLS(err, req.URL.Host, false) // a stream only reads
	}
	defer answer.Body.Close()
	if own := isOwn(answer, req); !own || answer.StatusCode != http.StatusOK {
		body, err := readBody(answer)
		return errors.Join(err, r.problemFrom(&response{status: answer.StatusCode, header: answer.Header, own: own, body: body}))
	}
	er.client.ledgerIndex.note(answer.Header)
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxLine)
	var m message
	for lines.Scan() {
		watchdog.Reset(streamTimeout)
		if line := lines.Text(); line != "" {
			m.addField(line)
			continue
		}
		if err := er.deliver(m); err != nil {
			return err
		}
		m = message{}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// maxLine is far above the size of an event: the ledger bounds the texts in it.
const maxLine = 1 << 20

// message is a server-sent event: one field per line.
type message struct{ name, id, data string }

func (m *message) addField(line string) {
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

// deliver yields the event in a message, and stores its id.
func (er *eventReader) deliver(m message) error {
	if m.data != "" {
		e, err := m.event()
		if err != nil {
			return err
		}
		er.received++
		if e.Kind != "" && !er.yield(e, nil) {
			return errStopped
		}
	}
	if m.id != "" {
		er.lastID = m.id
		er.client.ledgerIndex.noteEntry(m.id)
	}
	return nil
}

// event decodes a message. For an unknown message name it returns the zero Event.
func (m *message) event() (e Event, err error) {
	switch m.name {
	case "":
		err = json.Unmarshal([]byte(m.data), &e)
	case wire.MessageGap:
		var g wire.Gap
		err = json.Unmarshal([]byte(m.data), &g)
		e = Event{ID: g.Until, Kind: wire.MessageGap, Note: fmt.Sprintf("events between %s and %s are no longer in the feed", g.After, g.Until)}
	}
	if err != nil {
		err = fmt.Errorf("client: decode an event: %w", err)
	}
	return e, err
}
