package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// unread is the connection of a caller that does not read until it is let go.
type unread struct {
	*httptest.ResponseRecorder
	once   sync.Once
	writes chan struct{} // closed when the answer is written
	read   chan struct{} // closed when the caller reads
}

func newUnread(read chan struct{}) *unread {
	return &unread{ResponseRecorder: httptest.NewRecorder(), writes: make(chan struct{}), read: read}
}

func (u *unread) Write(p []byte) (int, error) {
	u.once.Do(func() { close(u.writes) })
	<-u.read
	return u.ResponseRecorder.Write(p)
}

// Large answers that their callers do not read use a quarter of the memory for answers. Further large answers of the namespace are
// rejected; small answers and those of another namespace are not.
func TestAnswers_NotRead(t *testing.T) {
	cfg := httpapitest.New(t).Config()
	cfg.SetBodyMemory(8*len(docs.OpenAPI) + 1)
	handler := httpapi.New(cfg)
	request := func(path, namespace string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Flightd-Namespace", namespace)
		return r
	}
	get := func(path, namespace string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request(path, namespace))
		return w
	}
	read := make(chan struct{})
	var slow sync.WaitGroup
	for range 2 {
		u := newUnread(read)
		slow.Go(func() { handler.ServeHTTP(u, request("/openapi.json", "noisy")) })
		<-u.writes
	}
	w := get("/openapi.json", "noisy")
	require.Equal(t, http.StatusTooManyRequests, w.Code, "the namespace has a quarter")
	require.Contains(t, w.Body.String(), `"code":"rate_limited"`)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, get("/version", "noisy").Code, "a small answer")
	w = get("/openapi.json", "quiet")
	require.Equal(t, http.StatusOK, w.Code, "another namespace")
	require.Len(t, w.Body.Bytes(), len(docs.OpenAPI))
	close(read)
	slow.Wait()
	require.Equal(t, http.StatusOK, get("/openapi.json", "noisy").Code, "the memory is free again")
}

// sendLines sends one request with a line for each number.
func sendLines(handler http.Handler, w http.ResponseWriter, path, namespace, line string, numbers int) {
	var body strings.Builder
	for n := range numbers {
		body.WriteString(strings.ReplaceAll(line, "#", fmt.Sprint(n)) + "\n")
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body.String()))
	r.Header.Set("Content-Type", wire.TypeNDJSON)
	r.Header.Set("Flightd-Namespace", namespace)
	handler.ServeHTTP(w, r)
}

// The answers in lines that callers do not read are counted before the work begins: a request that finds no memory changes nothing.
func TestAnswers_LinesNotRead(t *testing.T) {
	for path, line := range map[string]string{
		"/v1/flights:submit": `{"action":"charge","id":"%s-#","input":{}}`,
		"/v1/flights:batch":  `{"open":{"action":"charge","id":"%s-#"}}`,
	} {
		world := httpapitest.New(t)
		cfg := world.Config()
		cfg.SetBodyMemory(4 * 300 << 10)
		handler := httpapi.New(cfg)
		const many = 250
		send := func(namespace, id string, lines int) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			sendLines(handler, w, path, namespace, fmt.Sprintf(line, id), lines)
			return w
		}
		read := make(chan struct{})
		u := newUnread(read)
		var slow sync.WaitGroup
		for range 2 {
			slow.Go(func() { sendLines(handler, u, path, "noisy", fmt.Sprintf(line, "slow"), many) })
			<-u.writes
			if path == "/v1/flights:batch" {
				break // one fills the quarter
			}
			u = newUnread(read)
		}
		w := send("noisy", "more", many)
		require.Equal(t, http.StatusTooManyRequests, w.Code, "%s: the namespace has a quarter", path)
		require.Contains(t, w.Body.String(), `"code":"rate_limited"`)
		require.Nil(t, world.Flight(flight.MustKey("noisy/charge/more-0")), "nothing was changed")
		require.Equal(t, http.StatusOK, send("noisy", "few", 10).Code, "few lines")
		require.Equal(t, http.StatusOK, send("quiet", "more", many).Code, "another namespace")
		close(read)
		slow.Wait()
		w = send("noisy", "more", many)
		require.Equal(t, http.StatusOK, w.Code, "the memory is free again")
		require.Equal(t, many, strings.Count(w.Body.String(), "\n"))
		require.NotNil(t, world.Flight(flight.MustKey("noisy/charge/more-0")))
	}
}

// The receipts in a batch that its caller does not read use a quarter of the memory. Further lines are answered rate_limited.
func TestAnswers_ReceiptsInBatchNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := httpapitest.New(t).Config()
		cfg.SetBodyMemory(4 * 256 << 10)
		handler := httpapi.New(cfg)
		statuses := func(w *httptest.ResponseRecorder) (n map[int]int) {
			require.Equal(t, http.StatusOK, w.Code)
			n = map[int]int{}
			for text := range bytes.Lines(w.Body.Bytes()) {
				a, err := wire.DecodeBatchAnswer(text)
				require.NoError(t, err)
				n[a.Status]++
				if a.Status != http.StatusOK {
					require.Contains(t, string(a.Body), `"code":"rate_limited"`)
				}
			}
			return n
		}
		const many, path, open = 20, "/v1/flights:batch", `{"open":{"action":"charge","id":"#"}}`
		opened := httptest.NewRecorder()
		sendLines(handler, opened, path, "default", open, many)
		for text := range bytes.Lines(opened.Body.Bytes()) {
			require.Less(t, len(text), 1<<10, "an answer without a receipt is within the memory that is counted for each line")
			var line struct{ Body wire.OpenAnswer }
			require.NoError(t, json.Unmarshal(text, &line))
			w := httptest.NewRecorder()
			sendLines(handler, w, path, "default", fmt.Sprintf(`{"report":{"fencing_token":%q,"outcome":"succeeded","body":%q},"flight_id":%q}`,
				line.Body.FencingToken, strings.Repeat("x", 60_000), line.Body.FlightID), 1)
			require.Equal(t, map[int]int{http.StatusOK: 1}, statuses(w))
		}
		u := newUnread(make(chan struct{}))
		readNow := sync.OnceFunc(func() { close(u.read) })
		defer readNow()
		var slow sync.WaitGroup
		slow.Go(func() { sendLines(handler, u, path, "default", open, many) })
		synctest.Wait() // all lines are served
		w := httptest.NewRecorder()
		sendLines(handler, w, path, "default", open, 1)
		require.Equal(t, map[int]int{http.StatusOK: 1}, statuses(w), "the first 64 KiB of a batch do not count")
		readNow()
		slow.Wait()
		n := statuses(u.ResponseRecorder)
		require.Equal(t, many, n[http.StatusOK]+n[http.StatusTooManyRequests])
		require.LessOrEqual(t, n[http.StatusOK], 1+256<<10/60_000)
		require.GreaterOrEqual(t, n[http.StatusOK], 4)
		w = httptest.NewRecorder()
		sendLines(handler, w, path, "default", open, 4)
		require.Equal(t, map[int]int{http.StatusOK: 4}, statuses(w), "the memory is free again")
	})
}

// longHistory is a ledger in which every flight has a history of 3 MB.
type longHistory struct{ httpapi.Ledger }

const longHistoryEvents = 3000

func (l longHistory) History(flight.ID) (history []flight.HistoryEvent, err error) {
	for n := range longHistoryEvents { // two for each command
		history = append(history, flight.HistoryEvent{Version: flight.Version{Index: uint64(n/2) + 1}, Event: flight.Event{Kind: flight.EventFreed, Note: fmt.Sprint(n, strings.Repeat("<", 170))}})
	}
	return history, nil
}

// partsRecorder records the length of the longest write.
type partsRecorder struct {
	*httptest.ResponseRecorder
	longest int
}

func (r *partsRecorder) Write(p []byte) (int, error) {
	r.longest = max(r.longest, len(p))
	return r.ResponseRecorder.Write(p)
}

// A long history is streamed in parts, between which no event is lost. A part that is not read is counted, and another stream that
// finds no memory for its part ends.
func TestAnswers_StreamInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := httpapitest.New(t)
		cfg := world.Config()
		cfg.Ledger = longHistory{cfg.Ledger}
		cfg.SetBodyMemory(4 * 300 << 10)
		handler := httpapi.New(cfg)
		key := flight.MustKey("default/charge/1")
		world.Apply(t, &flight.Submit{Key: key})
		stream := func(w http.ResponseWriter) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/flights/"+key.FlightID().String()+"/events", nil)
			r.Header.Set("Accept", "text/event-stream")
			handler.ServeHTTP(w, r)
		}
		u := newUnread(make(chan struct{}))
		readNow := sync.OnceFunc(func() { close(u.read) })
		defer readNow()
		var slow sync.WaitGroup
		slow.Go(func() { stream(u) })
		synctest.Wait()
		refused := httptest.NewRecorder()
		stream(refused)
		require.Empty(t, refused.Body.String())
		readNow()
		slow.Wait()
		w := &partsRecorder{ResponseRecorder: httptest.NewRecorder()}
		stream(w)
		require.Less(t, w.longest, 260<<10)
		var events, ids int
		for text := range strings.Lines(w.Body.String()) {
			if id, ok := strings.CutPrefix(text, "id: "); ok {
				ids++
				require.Equal(t, flight.Version{Index: uint64(ids)}.String(), strings.TrimSpace(id))
			}
			if data, ok := strings.CutPrefix(text, "data: "); ok {
				var e wire.Event
				require.NoError(t, json.Unmarshal([]byte(data), &e))
				require.Equal(t, fmt.Sprint(events)+"<", strings.TrimRight(e.Note, "<")+"<")
				events++
			}
		}
		require.Equal(t, longHistoryEvents, events)
		require.Equal(t, longHistoryEvents/2, ids)
	})
}
