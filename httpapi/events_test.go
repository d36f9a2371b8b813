package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// message is a message of an event stream.
type message struct{ name, id, data, comment string }

func (m message) event(t *testing.T) (e wire.Event) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(m.data), &e), "%+v", m)
	return e
}

// eventStream is an open event stream.
type eventStream struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

func (ts *testServer) stream(path string, header ...string) *eventStream {
	ts.t.Helper()
	ctx, cancel := context.WithTimeout(ts.t.Context(), 20*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ts.url+path, nil)
	require.NoError(ts.t, err)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(ts.t, err)
	require.Equal(ts.t, http.StatusOK, resp.StatusCode)
	require.Equal(ts.t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(ts.t, "no-store", resp.Header.Get("Cache-Control"))
	requireLedgerTime(ts.t, resp.Header)
	s := &eventStream{t: ts.t, lines: bufio.NewScanner(resp.Body), close: func() { cancel(); _ = resp.Body.Close() }}
	ts.t.Cleanup(s.close)
	return s
}

// next reads the next message or comment.
func (s *eventStream) next() (m message) {
	s.t.Helper()
	for s.lines.Scan() && s.lines.Text() != "" {
		field, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch field {
		case "event":
			m.name = value
		case "id":
			m.id = value
		case "data":
			m.data = value
		case "":
			m.comment = value
		}
	}
	require.NoError(s.t, s.lines.Err())
	return m
}

// data reads the next message with data.
func (s *eventStream) data() message {
	s.t.Helper()
	for {
		if m := s.next(); m.data != "" {
			return m
		}
	}
}

// kinds reads n events and returns their kinds.
func (s *eventStream) kinds(n int) (kinds []string) {
	s.t.Helper()
	for range n {
		kinds = append(kinds, s.data().event(s.t).Kind)
	}
	return kinds
}

func TestFeedAsPages(t *testing.T) {
	d := newTestServer(t)
	for _, id := range []string{"1", "2", "3"} {
		a := d.proceed(`{"action":"charge","id":"` + id + `"}`)
		require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	}
	d.openInDoubt("4")
	all := decodeBody[wire.EventPage](t, d.get("/v1/events?after=0.0"))
	require.Len(t, all.Events, 13)
	require.Equal(t, "default/charge/1", all.Events[0].Key)
	require.Equal(t, flight.MustKey("default/charge/1").FlightID().String(), all.Events[0].FlightID)

	var walked []wire.Event
	path := "/v1/events?after=0.0&limit=2&action=charge"
	for {
		r := d.get(path)
		page := decodeBody[wire.EventPage](t, r)
		if len(page.Events) == 0 {
			break
		}
		require.LessOrEqual(t, len(page.Events), 3, "two, and the other events of the same command")
		walked = append(walked, page.Events...)
		path, _, _ = strings.Cut(strings.TrimPrefix(r.header.Get("Link"), "<"), ">")
	}
	require.Equal(t, all.Events, walked)

	last := decodeBody[wire.EventPage](t, d.get("/v1/events?limit=2"))
	require.Equal(t, all.Events[11:], last.Events, "without a position: the last ones")
	require.Equal(t, all.Next, last.Next)
	for limit, want := range map[string]int{"1": 2, "3": 4, "4": 4, "5": 5} { // the events of one command are not split, at the start either
		whole := all.Events[len(all.Events)-want:]
		require.Equal(t, whole, decodeBody[wire.EventPage](t, d.get("/v1/events?limit="+limit)).Events, "limit=%s", limit)
		require.Equal(t, whole[0], d.stream("/v1/events?last="+limit).data().event(t), "last=%s", limit)
	}
	doubts := decodeBody[wire.EventPage](t, d.get("/v1/events?kind=in_doubt,overlap&key_prefix=default/ch&since=1h"))
	require.Len(t, doubts.Events, 1)
	require.Empty(t, decodeBody[wire.EventPage](t, d.get("/v1/events?action=mail")).Events)
	require.Empty(t, decodeBody[wire.EventPage](t, d.get("/v1/events", "Flightd-Namespace", "other")).Events)
	require.Equal(t, all.Events[1:], decodeBody[wire.EventPage](t, d.get("/v1/events?after=9.0", "Last-Event-ID", "0.0")).Events[1:], "the header takes precedence over the parameter")

	link, err := url.Parse(strings.Trim(strings.TrimSuffix(d.get("/v1/events?after=0.0&limit=2&since=1h").header.Get("Link"), `>; rel="next"`), "<"))
	require.NoError(t, err)
	moment, err := time.Parse(time.RFC3339, link.Query().Get("since"))
	require.NoError(t, err, "an hour ago is the same on every page")
	require.WithinDuration(t, time.Now().Add(-time.Hour), moment, time.Minute)

	waiting := make(chan reply, 1)
	go func() { waiting <- d.get("/v1/events?after="+all.Next, "Prefer", "wait=20") }()
	d.proceed(`{"action":"charge","id":"5"}`)
	r := <-waiting
	require.Equal(t, "wait=20", r.header.Get("Preference-Applied"))
	require.NotEmpty(t, decodeBody[wire.EventPage](t, r).Events)

	for _, q := range []string{"after=x", "after=1", "limit=0", "limit=1001", "last=-1", "kind=nothing", "since=soon", "state=running", "%zz", "last=1&last=2"} {
		requireProblem(t, d.get("/v1/events?"+q), http.StatusBadRequest, wire.InputInvalid)
	}
	requireProblem(t, d.get("/v1/events", "Last-Event-ID", "soon"), http.StatusBadRequest, wire.InputInvalid)
	requireProblem(t, d.get("/v1/flights/"+all.Events[0].FlightID+"/events?kind=opened"), http.StatusBadRequest, wire.InputInvalid)
}

// TestFeedByKind: each kind of event can be selected.
func TestFeedByKind(t *testing.T) {
	d := newTestServer(t)
	for k := flight.EventSubmitted; k.String() != "invalid"; k++ {
		r := d.get("/v1/events?kind=" + k.String())
		require.Equal(t, http.StatusOK, r.status, "%s: %s", k, r.body)
	}
	require.Equal(t, http.StatusOK, d.importLines("", `{"key":"default/charge/1","outcome":"succeeded"}`).status)
	imported := decodeBody[wire.EventPage](t, d.get("/v1/events?kind=imported")).Events
	require.Len(t, imported, 1)
	require.Equal(t, "imported", imported[0].Kind)
	p := requireProblem(t, d.get("/v1/events?kind=nothing"), http.StatusBadRequest, wire.InputInvalid)
	require.Contains(t, p.Errors[0].Detail, "duplicates, redacted, imported")
}

// TestEventsByAccept: the answer is a stream only if Accept asks for one.
func TestEventsByAccept(t *testing.T) {
	d := newTestServer(t)
	kind := func(accept string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/events", nil)
		require.NoError(t, err)
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close(), "Close must not wait for the end of a stream")
		return resp.Header.Get("Content-Type")
	}
	for _, accept := range []string{"*/*", "application/json", "text/event-stream;q=0", "text/event-stream; q=0.0",
		"application/json, text/event-stream; charset=utf-8; q=0.000", "text/event-stream-of-another-kind"} {
		require.Equal(t, "application/json", kind(accept), accept)
	}
	for _, accept := range []string{"text/event-stream", "application/json, Text/Event-Stream;q=0.5"} {
		require.Equal(t, "text/event-stream", kind(accept), accept)
	}
}

// TestFeedAsStream: a stream delivers new events, and a reader that resumes with its last id gets the events after it.
func TestFeedAsStream(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	s := d.stream("/v1/events?last=1")
	require.Equal(t, []string{"submitted", "opened"}, s.kinds(2), "the events of one command are not split")
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded","external_id":"T-9"`).status)
	m := s.data()
	e := m.event(t)
	require.Equal(t, "reported", e.Kind)
	require.Equal(t, e.ID, m.id)
	require.Equal(t, "default/charge/1", e.Key)

	d.openInDoubt("2")
	submitted, opened := s.data(), s.data()
	require.Equal(t, []string{"submitted", "opened"}, []string{submitted.event(t).Kind, opened.event(t).Kind})
	require.Equal(t, submitted.event(t).ID, opened.event(t).ID)
	require.Empty(t, submitted.id, "a reader that disconnects between the events of one command receives all of them again")
	require.NotEmpty(t, opened.id)
	s.close()

	for place, want := range map[string][]string{
		m.id:      {"submitted", "opened", "reported", "in_doubt"},
		opened.id: {"reported", "in_doubt"},
		"0.0":     {"submitted", "opened", "reported", "submitted"},
	} {
		require.Equal(t, want, d.stream("/v1/events", "Last-Event-ID", place).kinds(len(want)))
		require.Equal(t, want, d.stream("/v1/events?after="+place).kinds(len(want)))
	}
}

// TestStream_SinceLimitsOnlyTheStart: since is in the time of the machine's clock, events are in ledger time, which may
// be far behind after the machine has slept. So since filters only the past events of a new stream: neither new events
// nor the events after a reader's position.
func TestStream_SinceLimitsOnlyTheStart(t *testing.T) {
	d := newTestServer(t)
	d.proceed(`{"action":"charge","id":"1"}`)
	path := "/v1/events?last=10&since=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) // an hour ahead of the ledger
	live := d.stream(path)
	d.proceed(`{"action":"charge","id":"2"}`)
	require.Equal(t, "default/charge/2", live.data().event(t).Key)
	again := d.stream(path, "Last-Event-ID", "0.0")
	require.Equal(t, "default/charge/1", again.data().event(t).Key, "a reader that resumes misses no event")
}

// TestStreamKeepsItsPlace: a heartbeat is a comment and advances the position of a reader whose filter matches nothing.
func TestStreamKeepsItsPlace(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Events.Heartbeat = 5 * time.Millisecond })
	s := d.stream("/v1/events?kind=overlap")
	first := s.next()
	for first.id == "" {
		first = s.next()
	}
	require.NotEmpty(t, first.comment)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	f := decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID))
	ended, err := flight.ParseVersion(f.Version)
	require.NoError(t, err)
	for m, place := first, (flight.Version{}); ended.After(place); m = s.next() {
		require.Empty(t, m.data)
		if m.id != "" {
			place, err = flight.ParseVersion(m.id)
			require.NoError(t, err)
		}
	}
}

// TestFeed_CompactedPosition: a position that the log no longer has is a problem, and in an open or resumed stream a
// gap.
func TestFeed_CompactedPosition(t *testing.T) {
	d := newTestServer(t)
	d.proceed(`{"action":"charge","id":"1"}`)
	s := d.stream("/v1/events?after=0.0")
	require.Equal(t, []string{"submitted", "opened"}, s.kinds(2))
	d.fake.SetFaults(func(l *httpapitest.Faults) { l.CompactedAt = flight.Version{Index: 100} })
	for _, header := range [][]string{nil, {"Accept", "text/event-stream"}} {
		p := requireProblem(t, d.get("/v1/events?after=0.0", header...), http.StatusGone, wire.Expired)
		require.Contains(t, p.Hint, "without Last-Event-ID")
		require.False(t, p.Retryable)
	}
	m := d.stream("/v1/events?after=7.7", "Last-Event-ID", "2.0").data()
	require.Equal(t, "gap", m.name, "a resumed stream has a gap message")
	require.JSONEq(t, `{"after":"2.0","until":"100.0"}`, m.data)
	d.proceed(`{"action":"charge","id":"2"}`)
	m = s.data()
	require.Equal(t, "gap", m.name)
	require.Equal(t, "100.0", m.id)
	require.Regexp(t, `^{"after":"[0-9]+\.0","until":"100\.0"}$`, m.data)
}

// TestFlightAsStream: the stream of a flight has its history, new events and duplicates, and ends when the flight
// expires.
func TestFlightAsStream(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Events.Heartbeat = 5 * time.Millisecond })
	a := d.proceed(`{"action":"charge","id":"1","retention":"1s"}`)
	path := "/v1/flights/" + a.FlightID + "/events"
	s := d.stream(path)
	require.Equal(t, []string{"submitted", "opened"}, s.kinds(2))
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	reported := s.data()
	require.Equal(t, "reported", reported.event(t).Kind)
	for range 3 {
		require.Equal(t, http.StatusOK, d.post("/v1/flights:open", `{"action":"charge","id":"1","retention":"1s","owner":"host:7"}`).status)
	}
	var dup wire.DuplicateStats
	for dup.Count < 3 {
		m := s.data()
		require.Equal(t, "duplicates", m.name)
		require.Empty(t, m.id)
		require.NoError(t, json.Unmarshal([]byte(m.data), &dup))
	}
	require.Equal(t, uint64(3), dup.Count)
	require.Equal(t, "host:7", dup.Callers[2].Actor)
	h := decodeBody[wire.History](t, d.get(path))
	require.Equal(t, uint64(3), h.Duplicates.Count)
	require.Len(t, h.Events, 3)
	require.Len(t, decodeBody[wire.History](t, d.get(path, "Last-Event-ID", h.Events[1].ID)).Events, 1)
	require.Empty(t, decodeBody[wire.History](t, d.get(path+"?after="+reported.id)).Events)

	d.fake.Ledger.Advance(time.Minute)
	require.Equal(t, flight.StateExpired, d.fake.Flight(flight.MustKey("default/charge/1")).State)
	m := s.data()
	for m.name == "duplicates" {
		m = s.data()
	}
	require.Equal(t, "expired", m.event(t).Kind)
	require.Equal(t, message{}, s.next(), "the stream has ended")
	requireProblem(t, d.get(path, "Accept", "text/event-stream"), http.StatusGone, wire.Expired)
	requireProblem(t, d.get("/v1/flights/"+flight.MustKey("a/b/c").FlightID().String()+"/events", "Accept", "text/event-stream"), http.StatusNotFound, wire.NotFound)
}

// TestDuplicatesAreCounted: only callers that meet another caller's flight count as duplicates.
func TestDuplicatesAreCounted(t *testing.T) {
	d := newTestServer(t)
	count := func(id flight.ID) uint64 { return d.fake.DuplicateStats(id).Count }
	id := flight.MustKey("default/charge/1").FlightID()
	a := d.proceed(`{"action":"charge","id":"1","nonce":"n"}`)
	requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"1","wait_ms":0}`), http.StatusConflict, wire.InFlight)
	require.Equal(t, uint64(1), count(id), "a caller that did not wait")
	requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"1","input":1}`), http.StatusUnprocessableEntity, wire.Conflict)
	require.Equal(t, uint64(1), count(id), "a conflict is no duplicate")
	d.proceed(`{"action":"charge","id":"1","nonce":"n","session":"` + a.Session + `"}`)
	require.Equal(t, uint64(1), count(id), "a repeat of the same open is no duplicate")
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	require.Equal(t, http.StatusOK, d.post("/v1/flights:open", `{"action":"charge","id":"1"}`).status)
	require.Equal(t, uint64(2), count(id), "a caller that got the receipt")
	d.openInDoubt("2")
	requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"2"}`), http.StatusConflict, wire.InDoubt)
	require.Equal(t, uint64(1), count(flight.MustKey("default/charge/2").FlightID()), "a caller that got in_doubt")
	require.Equal(t, "127.0.0.1", d.fake.DuplicateStats(id).Callers[1].Actor, "a caller without an owner is named by its address")
}

// A history is answered in pages. The events of one command are on one page.
func TestFlightEvents_Pages(t *testing.T) {
	d := newTestServer(t)
	key := flight.MustKey("default/charge/pages")
	for range 4 { // generations
		a := d.proceed(`{"action":"charge","id":"pages"}`)
		require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
		f := decodeBody[wire.Flight](t, d.get("/v1/flights/"+key.FlightID().String()))
		require.Equal(t, http.StatusOK, d.post("/v1/flights/"+key.FlightID().String()+"/free", `{"reason":"again"}`, "If-Match", `"`+f.Version+`"`).status)
	}
	path := "/v1/flights/" + key.FlightID().String() + "/events"
	all := decodeBody[wire.History](t, d.get(path))
	require.Empty(t, all.Next)
	require.Greater(t, len(all.Events), 8)
	var walked []wire.Event
	pages := 0
	for next := path + "?limit=1"; next != ""; pages++ {
		r := d.get(next)
		page := decodeBody[wire.History](t, r)
		require.NotEmpty(t, page.Events)
		require.LessOrEqual(t, len(page.Events), 3, "one, and the other events of the same command")
		walked = append(walked, page.Events...)
		link, _, _ := strings.Cut(strings.TrimPrefix(r.header.Get("Link"), "<"), ">")
		require.Equal(t, page.Next == "", link == "")
		next = link
	}
	require.Equal(t, all.Events, walked)
	require.Greater(t, pages, 4)
	require.Equal(t, http.StatusBadRequest, d.get(path+"?limit=1001").status)
}
