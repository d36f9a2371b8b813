package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

const openOrder = `{"action":"charge","id":"1"}`

// Requests that a foreign web page could send are rejected and change nothing.
func TestLoopbackOnly(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Callers.LoopbackOnly = true })
	before := d.fake.Snapshot()
	for _, header := range [][]string{
		{"Host", "evil.example"}, {"Host", "127.0.0.1.evil.example"}, {"Host", "192.168.0.1:7420"},
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://localhost:3000"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
	} {
		r := d.post("/v1/flights:open", openOrder, header...)
		p := requireProblem(t, r, http.StatusForbidden, wire.Forbidden)
		require.Equal(t, header[0], p.Errors[0].Header)
	}
	requireProblem(t, d.get("/v1/flights", "Host", "evil.example"), http.StatusForbidden, wire.Forbidden)
	requireProblem(t, d.send(http.MethodOptions, "/v1/flights:open", "", "Origin", "https://evil.example"), http.StatusForbidden, wire.Forbidden)
	r := d.send(http.MethodOptions, "/v1/flights:open", "") // OPTIONS changes nothing and needs no content type
	requireProblem(t, r, http.StatusMethodNotAllowed, wire.MethodNotAllowed)
	require.Equal(t, "POST", r.header.Get("Allow"))
	require.Equal(t, before, d.fake.Snapshot())
	host := strings.TrimPrefix(d.url, "http://")
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:open", openOrder, "Origin", d.url, "Sec-Fetch-Site", "same-origin").status)
	for _, h := range []string{"localhost", "LOCALHOST:7420", "[::1]:7420", "127.9.9.9", host} {
		require.Equal(t, http.StatusOK, d.get("/v1/flights", "Host", h).status, h)
	}
}

// Browsers send forms, text/plain and bodies without a type cross-origin without a CORS preflight. All of them are
// rejected, also by a browser that sends neither Origin nor Sec-Fetch-Site.
func TestLoopbackOnly_ContentType(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Callers.LoopbackOnly = true })
	before := d.fake.Snapshot()
	for _, contentType := range []string{"", "text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		for path, body := range map[string]string{"/v1/flights:open": openOrder, "/v1/sessions": `{}`, "/v1/sessions/ses_1/close": ``,
			"/v1/flights:import": `{"key":"default/charge/2","outcome":"succeeded"}`} {
			p := requireProblem(t, d.post(path, body, "Content-Type", contentType), http.StatusUnsupportedMediaType, wire.UnsupportedMediaType)
			require.Equal(t, "Content-Type", p.Errors[0].Header)
			require.Contains(t, p.Hint, "application/json")
			for _, header := range [][2]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
				p = requireProblem(t, d.post(path, body, "Content-Type", contentType, header[0], header[1]), http.StatusForbidden, wire.Forbidden)
				require.Equal(t, header[0], p.Errors[0].Header, "a foreign page stays forbidden, whatever the type")
			}
		}
	}
	require.Equal(t, before, d.fake.Snapshot())
	p := requireProblem(t, d.post("/v1/flights:open", openOrder, "Content-Type", ""), http.StatusUnsupportedMediaType, wire.UnsupportedMediaType)
	require.Equal(t, "Content-Type: missing", p.Detail)
}

// A callback comes through a tunnel: from a foreign host and of any type. Nothing else does.
func TestLoopbackOnly_Callback(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Callers.LoopbackOnly = true })
	tunnel := []string{"Host", "abc.tunnel.example", "Content-Type", "application/x-www-form-urlencoded"}
	a := d.proceed(render + `}`)
	r := d.callback(a, "?outcome=succeeded", "status=done", tunnel...)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	require.Equal(t, "application/x-www-form-urlencoded", decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID)).Receipt.ContentType)
	requireProblem(t, d.post("/v1/callbacks/fltd_cb_x", "{}", tunnel...), http.StatusNotFound, wire.NotFound)
	requireProblem(t, d.post("/v1/flights/"+a.FlightID+"/report", "{}", tunnel...), http.StatusForbidden, wire.Forbidden)
}
