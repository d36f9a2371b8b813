package httpapi_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

func TestInputBytes(t *testing.T) {
	d := newTestServer(t)
	const input = `{"amount": 1999,  "to":"é"}`
	a := d.proceed(`{"action":"charge","id":"1","input":` + input + `,"retention":"1s"}`)
	path := "/v1/flights/" + a.FlightID
	r := d.get(path + "/input")
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	require.Equal(t, input, string(r.body), "byte for byte")
	sum := sha256.Sum256([]byte(input))
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Flightd-Flight-Id": a.FlightID, "Flightd-State": "running", "ETag": d.get(path).header.Get("ETag"),
		"Flightd-Digest": flight.Digest(sum).String(), "Flightd-Size": "28", "Digest": "sha-256=" + base64.StdEncoding.EncodeToString(sum[:]),
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox", "Flightd-Outcome": "",
	} {
		require.Equal(t, want, r.header.Get(name), name)
	}
	require.Equal(t, "28", d.send(http.MethodHead, path+"/input", "").header.Get("Content-Length"))

	other := flight.MustKey("default/charge/2")
	d.fake.Apply(t, &flight.Submit{Key: other, Submission: flight.Submission{Fingerprint: flight.Fingerprint{1}, Input: flight.NewBlob("text/html", []byte("<b>\x00"), flight.MaxInput)}})
	r = d.get("/v1/flights/" + other.FlightID().String() + "/input")
	require.Equal(t, []string{"<b>\x00", "text/html"}, []string{string(r.body), r.header.Get("Content-Type")})

	done := d.report(a, `"outcome":"succeeded"`)
	require.Equal(t, input, string(d.get(path+"/input").body), "also after the flight has ended")
	require.Equal(t, http.StatusOK, d.post(path+"/redact", `{"reason":"asked for"}`, "If-Match", done.header.Get("ETag")).status)
	p := requireProblem(t, d.get(path+"/input"), http.StatusGone, wire.Expired)
	require.Regexp(t, `^the input was erased on \S+; the outcome and the history are kept$`, p.Detail)
	require.Equal(t, []string{a.FlightID, "succeeded"}, []string{p.FlightID, p.State})
	d.fake.Ledger.Advance(5 * time.Second)
	require.Equal(t, http.StatusGone, d.post("/v1/flights:open", `{"action":"charge","id":"1","input":`+input+`}`).status)
	p = requireProblem(t, d.get(path+"/input"), http.StatusGone, wire.Expired)
	require.Equal(t, []string{a.FlightID, "expired"}, []string{p.FlightID, p.State})
}

func TestNoInput(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1","fingerprint":"none"}`)
	p := requireProblem(t, d.get("/v1/flights/"+a.FlightID+"/input"), http.StatusNotFound, wire.NotFound)
	require.Equal(t, "the flight was opened without an input", p.Detail)
	require.Equal(t, a.FlightID, p.FlightID)
	never := flight.MustKey("default/charge/2").FlightID().String()
	require.Equal(t, never, requireProblem(t, d.get("/v1/flights/"+never+"/input"), http.StatusNotFound, wire.NotFound).FlightID)
	requireProblem(t, d.get("/v1/flights/fl_x/input"), http.StatusNotFound, wire.NotFound)
	requireProblem(t, d.get("/v1/flights/"+a.FlightID+"/input?as=text"), http.StatusBadRequest, wire.InputInvalid)
}

// noInputs is a ledger that erases a flight's input after the flight was read and before its bytes are.
type noInputs struct {
	httpapi.Ledger
	erase func()
}

func (n noInputs) Input(*flight.Flight) ([]byte, error) {
	n.erase()
	return nil, errors.New("no such body")
}

func TestInput_ErasedDuringRead(t *testing.T) {
	var d *testServer
	erase := func() {
		d.fake.Apply(t, &flight.Redact{Key: flight.MustKey("default/charge/1"), Generation: 1, Actor: "eve", Reason: "asked for"})
	}
	d = newTestServer(t, func(c *httpapi.Config) { c.Ledger = noInputs{c.Ledger, erase} })
	a := d.proceed(`{"action":"charge","id":"1","input":1}`)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	p := requireProblem(t, d.get("/v1/flights/"+a.FlightID+"/input"), http.StatusGone, wire.Expired)
	require.Contains(t, p.Detail, "erased")
}
