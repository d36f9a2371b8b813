package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// memoryTest is a server with memory for 4 * 64 KiB of bodies, or another multiple.
type memoryTest struct {
	*pipeServer
	report string // the path of a report
}

func newMemoryTest(t *testing.T, paces ...int) *memoryTest {
	s := newPipeServer(t, func(c *httpapi.Config) { c.SetBodyMemory(append(paces, 4)[0] * 64 << 10) })
	t.Cleanup(func() { time.Sleep(time.Second) }) // the server waits before it closes the connection of a rejected body
	return &memoryTest{s, "/v1/flights/" + flight.MustKey("a/b/c").FlightID().String() + "/report"}
}

// begin sends a request without the end of its body. The server has read its beginning when begin returns.
func (m *memoryTest) begin(path, contentType string, arrived int) net.Conn {
	c := m.dial()
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", path, contentType, 320<<10)
	require.NoError(m.t, err)
	if arrived > 0 {
		_, err = io.WriteString(c, strings.Repeat(" ", arrived))
		require.NoError(m.t, err)
	}
	synctest.Wait()
	return c
}

// callback opens a flight for a callback and returns the path of its URL.
func (m *memoryTest) callback(t *testing.T) (path string) {
	opened, _ := m.exchange("/v1/flights:open", "application/json", render+`,"nonce":"n"}`, 1<<20)
	a := decodeBody[wire.OpenAnswer](t, opened)
	path, ok := strings.CutPrefix(a.CallbackURL, "http://flightd.test")
	require.True(t, ok, "%s", opened.body)
	return path
}

func (m *memoryTest) flight(t *testing.T) *flight.Flight {
	f, err := m.fake.Ledger.Flight(flight.MustKey("default/render/film-7").FlightID())
	require.NoError(t, err)
	return f
}

func (m *memoryTest) answer(c net.Conn) *http.Response {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(m.t, err)
	return resp
}

// TestBody_NewWorkIsShedFirst: opens and imports beyond their half of the memory are rejected at once, and reports are
// not. Small bodies need no memory.
func TestBody_NewWorkIsShedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryTest(t)
		imports := m.begin("/v1/flights:import", "application/x-ndjson", 3*64<<10-1) // all of the half
		start := time.Now()
		for path, contentType := range map[string]string{"/v1/flights:open": "application/json", "/v1/flights:import": "application/x-ndjson"} {
			resp := m.answer(m.begin(path, contentType, 64<<10))
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode, path)
			require.Equal(t, "1", resp.Header.Get("Retry-After"))
			answer, _ := m.exchange(path, contentType, "{}", 2)
			require.Equal(t, http.StatusBadRequest, answer.status, "%s", answer.body)
		}
		answer, _ := m.exchange(m.report, "application/json", strings.Repeat(" ", 3*64<<10-1), 1<<20)
		require.Equal(t, http.StatusBadRequest, answer.status, "the other half is for reports: %s", answer.body)
		require.Less(t, time.Since(start), 5*time.Second)
		require.NoError(t, imports.Close())
		synctest.Wait()
		answer, _ = m.exchange("/v1/flights:open", "application/json", strings.Repeat(" ", 3*64<<10-1), 1<<20)
		require.Equal(t, http.StatusBadRequest, answer.status, "the memory was given back: %s", answer.body)
	})
}

// TestBody_ReportsWaitForMemory: a report waits for memory, one at a time arrives without, and one that finds none in
// 10 s may be repeated.
func TestBody_ReportsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryTest(t)
		holder := m.begin(m.report, "application/json", 5*64<<10-1) // all of it
		large := strings.Repeat(" ", 512<<10)
		answer, _ := m.exchange(m.report, "application/json", large, 1<<20)
		require.Equal(t, http.StatusBadRequest, answer.status, "one needs no memory: %s", answer.body)

		m.begin(m.report, "application/json", 64<<10) // it is that one now
		start := time.Now()
		resp := m.answer(m.begin(m.report, "application/json", 64<<10))
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "1", resp.Header.Get("Retry-After"))
		require.Equal(t, 10*time.Second, time.Since(start))

		time.AfterFunc(500*time.Millisecond, func() { _ = holder.Close() })
		answer, took := m.exchange(m.report, "application/json", large[:256<<10], 1<<20)
		require.Equal(t, http.StatusBadRequest, answer.status, "%s", answer.body)
		require.InDelta(t, 0.5, took.Seconds(), 0.2)
	})
}

// TestBody_CallbacksTakeAnEighth: the bearer of one callback URL holds many long bodies open. Reports of others find memory at once, and a
// body of the provider's own needs none.
func TestBody_CallbacksTakeAnEighth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryTest(t, 16)
		url := m.callback(t)
		for range 41 {
			m.begin(url, "application/json", 5*64<<10-1)
		}
		answer, took := m.exchange(m.report, "application/json", strings.Repeat(" ", 512<<10), 1<<20)
		require.Equal(t, http.StatusBadRequest, answer.status, "the body has arrived: %s", answer.body)
		require.Less(t, took, 250*time.Millisecond)
		answer, _ = m.exchange("/v1/flights:open", "application/json", strings.Repeat(" ", 3*64<<10-1), 1<<20)
		require.Equal(t, http.StatusBadRequest, answer.status, "%s", answer.body)

		answer, _ = m.exchange(url, "application/json", strings.Repeat(" ", 320<<10), 1<<20)
		require.Equal(t, http.StatusServiceUnavailable, answer.status, "the provider calls again: %s", answer.body)
		own := strings.Repeat("x", 320<<10)
		answer, took = m.exchange(url+"?outcome=succeeded", "video/mp4", own, 1<<20)
		require.Equal(t, http.StatusOK, answer.status, "%s", answer.body)
		require.Less(t, took, 250*time.Millisecond)
		f := m.flight(t)
		require.Equal(t, flight.NewBlob("video/mp4", []byte(own), flight.MaxReceiptBody).WithoutData(), f.Receipt.Body.WithoutData(), "the digest is of the whole body")
	})
}

// The long body of a callback is not read if its flight is no longer stored.
func TestBody_CallbackOfATombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryTest(t, 16)
		url := m.callback(t)
		answer, _ := m.exchange(url, "application/json", `{"outcome":"succeeded"}`, 1<<20)
		require.Equal(t, http.StatusOK, answer.status, "%s", answer.body)
		m.fake.Ledger.Advance(60 * 24 * time.Hour)
		_, err := m.fake.Ledger.Propose(t.Context(), &flight.Expire{Key: flight.MustKey("default/render/film-7"), Generation: 1})
		require.NoError(t, err)
		require.Equal(t, flight.StateExpired, m.flight(t).State)
		start := time.Now()
		resp := m.answer(m.begin(url, "application/json", 0))
		require.Equal(t, http.StatusConflict, resp.StatusCode)
		require.Less(t, time.Since(start), 250*time.Millisecond)
	})
}
