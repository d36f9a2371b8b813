package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// net/http ends the context of a request as soon as the caller has closed its half of the connection, although it reads the answer. A
// request that has arrived does not fail for that reason, and leaves no proposal without a known result.
func TestHalfClosedConnections(t *testing.T) {
	fake := httpapitest.New(t)
	server := httpapi.New(fake.Config())
	ended, end := context.WithCancel(t.Context())
	end()
	send := func(method, path, body string, header ...string) reply {
		t.Helper()
		r := httptest.NewRequestWithContext(ended, method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		require.Less(t, w.Code, http.StatusBadRequest, "%s %s: %s", method, path, w.Body)
		return reply{status: w.Code, header: w.Header(), body: w.Body.Bytes()}
	}
	session := decodeBody[wire.SessionAnswer](t, send("POST", "/v1/sessions", `{}`))
	send("POST", "/v1/sessions/"+session.Session+"/renew", `{}`)
	a := decodeBody[wire.OpenAnswer](t, send("POST", "/v1/flights:open", `{"action":"charge","id":"1","nonce":"n1","callback":true,"session":"`+session.Session+`"}`))
	require.Equal(t, "proceed", a.Decision)
	send("POST", "/v1/flights:abandon", `{"action":"charge","id":"1","nonce":"n1","not_after":`+strconv.FormatInt(int64(fake.Ledger.Header().Now)+10_000, 10)+`}`)
	send("POST", "/v1/sessions/"+session.Session+"/close", `{}`)
	send("POST", "/v1/flights:submit", `{"action":"job","id":"1","input":{}}`)
	send("POST", "/v1/flights:submit", `{"action":"job","id":"2","input":{}}`, "Content-Type", "application/x-ndjson")
	send("POST", "/v1/flights:import", `{"key":"default/charge/2","outcome":"succeeded"}`, "Content-Type", "application/x-ndjson")
	f, err := fake.Ledger.Flight(flight.MustKey("default/job/1").FlightID())
	require.NoError(t, err)
	send("POST", "/v1/flights/"+f.ID.String()+"/cancel", `{"reason":"r"}`, "If-Match", `"`+f.Version.String()+`"`)
	send("PUT", "/v1/actions/refund", `{"recovery":"hold","reason":"r"}`)
	send("POST", "/v1/queues/refund/pause", `{"reason":"r"}`)
	send("DELETE", "/v1/actions/refund", `{"reason":"r"}`)
}
