package httpapi_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// callback calls an attempt's callback URL; query begins with "?" or is empty.
func (ts *testServer) callback(a wire.OpenAnswer, query, body string, header ...string) reply {
	ts.t.Helper()
	path, ok := strings.CutPrefix(a.CallbackURL, "http://flightd.test")
	require.True(ts.t, ok, "%q", a.CallbackURL)
	return ts.post(path+query, body, header...)
}

func (ts *testServer) suspend(a wire.OpenAnswer, rest string) reply {
	ts.t.Helper()
	return ts.post("/v1/flights/"+a.FlightID+"/suspend", `{"fencing_token":"`+a.FencingToken+`","key":"`+a.Key+`"`+rest+`}`)
}

const render = `{"action":"render","id":"film-7","callback":true`

// The callback is reported once: its repeat gets the same answer, and every other one is stored as evidence and changes nothing.
func TestCallback_CountsOnce(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(render + `}`)
	r := d.suspend(a, `,"deadline_ms":3600000`)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	f := decodeBody[wire.Flight](t, r)
	require.Equal(t, "waiting", f.State)
	require.WithinDuration(t, time.UnixMilli(int64(d.fake.Ledger.Now())).Add(time.Hour), f.CallbackUntil.Time, time.Minute)
	again := d.suspend(a, `,"deadline_ms":60000`)
	require.Equal(t, string(r.body), string(again.body), "the repeat of a suspend")

	const done = `{"outcome":"succeeded","external_id":"job_7","body":{"video":"7.mp4"}}`
	first := d.callback(a, "", done)
	require.Equal(t, http.StatusOK, first.status, "%s", first.body)
	require.JSONEq(t, `{"outcome":"succeeded"}`, string(first.body))
	require.Empty(t, first.header.Get("Flightd-Flight-Id"))
	require.Equal(t, string(first.body), string(d.callback(a, "", done).body))

	for _, other := range []string{`{"outcome":"succeeded","external_id":"job_8"}`, `{"outcome":"refused"}`, `{"outcome":"unknown"}`} {
		p := requireProblem(t, d.callback(a, "", other), http.StatusConflict, wire.Fenced)
		require.Empty(t, p.Key, "a provider is told nothing about the flight")
		require.Empty(t, p.FlightID)
	}
	f = decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID))
	require.Equal(t, "succeeded", f.State)
	require.Equal(t, "job_7", f.Receipt.ExternalID)
	require.JSONEq(t, `{"video":"7.mp4"}`, string(f.Receipt.Body))
	require.Len(t, f.Evidence, 3)
	require.True(t, f.Overlap, "the evidence of another success shows")
	require.Equal(t, string(d.get("/v1/flights/"+a.FlightID).body), string(d.suspend(a, `,"deadline_ms":60000`).body), "a suspend after its callback")
}

// A provider's own body of any type is the receipt, if the URL says the outcome.
func TestCallback_OwnBody(t *testing.T) {
	d := newTestServer(t)
	for id, c := range map[string]struct{ query, body, kind, state, contentType, coding string }{
		"json":  {"?outcome=succeeded&external_id=job_7", `{"outcome":"failed"}`, "application/json", "succeeded", "application/json", ""},
		"form":  {"?outcome=refused", "status=declined", "application/x-www-form-urlencoded", "failed", "application/x-www-form-urlencoded", ""},
		"empty": {"?outcome=succeeded", "", "application/json", "succeeded", "application/json", ""},
		"coded": {"?outcome=succeeded", "\x1f\x8b\x08", "application/json", "succeeded", "application/octet-stream", "gzip"},
	} {
		a := d.proceed(`{"action":"render","id":"` + id + `","callback":true}`)
		require.Equal(t, http.StatusOK, d.suspend(a, `,"deadline_ms":60000`).status)
		r := d.callback(a, c.query, c.body, "Content-Type", c.kind, "Content-Encoding", c.coding)
		require.Equal(t, http.StatusOK, r.status, "%s: %s", id, r.body)
		f := decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID))
		require.Equal(t, c.state, f.State, id)
		require.Equal(t, c.contentType, f.Receipt.ContentType, id)
		require.Equal(t, len(c.body), f.Receipt.Size, id)
	}
}

// Before the suspend only a success is taken: the caller may still act.
func TestCallback_BeforeTheSuspend(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(render + `}`)
	for _, o := range []string{"refused", "not_done", "unknown"} {
		requireProblem(t, d.callback(a, "?outcome="+o, ""), http.StatusConflict, wire.CallbackEarly)
	}
	require.Equal(t, "running", decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID)).State)
	require.Equal(t, http.StatusOK, d.callback(a, "?outcome=succeeded", `{}`).status)
	r := d.suspend(a, `,"deadline_ms":60000`)
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "succeeded", decodeBody[wire.Flight](t, r).State)
}

// Under resend every attempt has the same callback URL, and its callback settles the flight.
func TestCallback_Resend(t *testing.T) {
	d := newTestServer(t)
	const open = render + `,"recovery":"resend","nonce":"`
	first := d.proceed(open + `one"}`)
	require.Equal(t, http.StatusOK, d.suspend(first, `,"deadline_ms":1000`).status)
	d.fake.Ledger.Advance(2 * time.Second)
	second := d.proceed(open + `two"}`)
	require.Equal(t, uint32(2), second.Attempt)
	require.Equal(t, first.CallbackURL, second.CallbackURL)
	requireProblem(t, d.callback(first, "?outcome=not_done", ""), http.StatusConflict, wire.CallbackEarly)
	require.Equal(t, http.StatusOK, d.suspend(second, `,"deadline_ms":60000`).status)
	require.Equal(t, http.StatusOK, d.callback(first, "?outcome=succeeded", `{}`).status)
	require.Equal(t, "succeeded", decodeBody[wire.Flight](t, d.get("/v1/flights/"+first.FlightID)).State)

	held := d.proceed(`{"action":"render","id":"hold","callback":true}`)
	require.NotEqual(t, first.CallbackURL, held.CallbackURL)
}

// Under resend a provider that got no answer repeats its callback after the next attempt was opened. The copy changes nothing, and another
// failure counts.
func TestCallback_ResendRepeated(t *testing.T) {
	d := newTestServer(t)
	state := func(a wire.OpenAnswer) wire.Flight {
		return decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID))
	}
	for _, outcome := range []string{"not_done", "unknown"} {
		open := `{"action":"render","id":"` + outcome + `","callback":true,"recovery":"resend","nonce":"`
		failed := `{"outcome":"` + outcome + `","external_id":"run_1"}`
		first := d.proceed(open + `one"}`)
		require.Equal(t, http.StatusOK, d.suspend(first, `,"deadline_ms":60000`).status)
		require.Equal(t, http.StatusOK, d.callback(first, "", failed).status)
		d.fake.Ledger.Advance(5 * time.Second)
		second := d.proceed(open + `two"}`)
		require.Equal(t, first.CallbackURL, second.CallbackURL)
		before := state(second)
		require.Equal(t, http.StatusOK, d.callback(first, "", failed).status, "%s: a repeat is no early callback", outcome)
		require.Equal(t, before, state(second))
		require.Equal(t, http.StatusOK, d.suspend(second, `,"deadline_ms":60000`).status)
		before = state(second)
		require.Equal(t, http.StatusOK, d.callback(first, "", failed).status)
		require.Equal(t, before, state(second), "%s: the copy of a callback ended the next attempt", outcome)

		require.Equal(t, http.StatusOK, d.callback(second, "", strings.Replace(failed, "run_1", "run_2", 1)).status)
		require.NotEqual(t, "waiting", state(second).State, "%s: the second job's failure counts", outcome)
	}
}

// After its deadline the outcome is unknown. The callback still settles the doubt.
func TestCallback_AfterTheDeadline(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(render + `}`)
	require.Equal(t, http.StatusOK, d.suspend(a, `,"deadline_ms":1000`).status)
	d.fake.Ledger.Advance(2 * time.Second)
	requireProblem(t, d.post("/v1/flights:open", render+`}`), http.StatusConflict, wire.InDoubt)
	require.Equal(t, http.StatusOK, d.callback(a, "?outcome=succeeded", `{}`).status)
	require.Equal(t, "succeeded", decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID)).State)
}

// Nothing but the URL is needed, and every wrong URL gets the same answer. The token is in no log.
func TestCallback_Token(t *testing.T) {
	var log bytes.Buffer
	g := newGuardedServer(t, auth.NodeLimits{}, func(c *httpapi.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	worker := g.as("billing", "worker", auth.Submit|auth.Read)
	a := worker.proceed(`{"action":"render","id":"film-7","callback":true}`)
	suspend := `{"fencing_token":"` + a.FencingToken + `","deadline_ms":60000}`
	requireProblem(t, g.post("/v1/flights/"+a.FlightID+"/suspend", suspend), http.StatusUnauthorized, wire.Unauthenticated)
	requireProblem(t, g.as("other", "worker", auth.Submit).do("POST", "/v1/flights/"+a.FlightID+"/suspend", suspend), http.StatusNotFound, wire.NotFound)
	requireProblem(t, g.as("billing", "reader", auth.Read).do("POST", "/v1/flights/"+a.FlightID+"/suspend", suspend), http.StatusForbidden, wire.Forbidden)
	require.Equal(t, http.StatusOK, worker.do("POST", "/v1/flights/"+a.FlightID+"/suspend", suspend).status)

	_, token, _ := strings.Cut(a.CallbackURL, "/v1/callbacks/")
	unknown := flight.CallbackToken{ID: flight.MustKey("billing/render/unknown").FlightID(), Generation: 1, Token: flight.Token{StoreEpoch: 1, Number: 1}}
	header := g.fake.Ledger.Header()
	wrong := []string{"x", a.FencingToken, worker.secret, flight.CallbackPrefix, token + "A", token[:len(token)-1], unknown.Seal(header.Secret), unknown.Seal([]byte("another secret"))}
	var detail string
	for i, w := range wrong {
		p := requireProblem(t, g.post("/v1/callbacks/"+w, `{"outcome":"succeeded"}`), http.StatusNotFound, wire.NotFound)
		if i == 0 {
			detail = p.Detail
		}
		require.Equal(t, detail, p.Detail)
	}
	for _, body := range []string{``, `[]`, `{}`, `{"outcome":"done"}`, `{"outcome":"succeeded","extra":1}`, `{"status":"failed"}`, `{"outcome":"succeeded","body":{},"body_base64":"YQ=="}`} {
		requireProblem(t, g.callback(a, "", body), http.StatusBadRequest, wire.InputInvalid)
	}
	for _, query := range []string{"?outcome=", "?outcome=done", "?external_id=1", "?outcome=succeeded&outcome=refused", "?other=1"} {
		requireProblem(t, g.callback(a, query, `{}`), http.StatusBadRequest, wire.InputInvalid)
	}
	requireProblem(t, g.callback(a, "?outcome=succeeded", strings.Repeat("x", wire.MaxReportBody+1)), http.StatusRequestEntityTooLarge, wire.PayloadTooLarge)
	requireProblem(t, worker.do("POST", "/v1/flights/"+a.FlightID+"/report", `{"fencing_token":"`+token+`","outcome":"succeeded"}`), http.StatusBadRequest, wire.InputInvalid)
	require.Equal(t, "waiting", decodeBody[wire.Flight](t, worker.do("GET", "/v1/flights/"+a.FlightID, "")).State)

	r := worker.do("POST", "/v1/flights:open", `{"action":"render","id":"film-7","wait_ms":0,"owner":"`+a.CallbackURL+`"}`)
	requireProblem(t, r, http.StatusConflict, wire.InFlight)
	require.NotContains(t, string(r.body), token)
	require.Equal(t, http.StatusOK, g.callback(a, "", `{"outcome":"unknown","error":"POST `+a.CallbackURL+`: EOF"}`).status)
	require.Equal(t, http.StatusOK, g.callback(a, "?outcome=succeeded", `{}`, "Authorization", "Basic a:b").status)
	requireProblem(t, g.callback(a, "?outcome=refused", ""), http.StatusConflict, wire.Fenced)
	shown := string(worker.do("GET", "/v1/flights/"+a.FlightID, "").body) + string(worker.do("GET", "/v1/flights/"+a.FlightID+"/events", "").body)
	require.Contains(t, shown, "fltd_(hidden)")
	require.NotContains(t, shown, token[:len(token)-10])
	require.Contains(t, log.String(), "/v1/callbacks/fltd_(hidden)")
	require.NotContains(t, log.String(), token[:len(token)-10])
}

// A malformed suspend changes nothing.
func TestSuspend_Invalid(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(render + `}`)
	require.Empty(t, d.proceed(`{"action":"render","id":"other"}`).CallbackURL, "a callback URL is given only on request")
	for _, rest := range []string{``, `,"deadline_ms":0`, `,"deadline_ms":-1`, `,"deadline_ms":1,"deadline":1769860830000`, `,"deadline":1`, `,"deadline_ms":40000000000`, `,"until":1`} {
		requireProblem(t, d.suspend(a, rest), http.StatusBadRequest, wire.InputInvalid)
	}
	b := a
	b.FencingToken = strings.Repeat("0", len(a.FencingToken))
	requireProblem(t, d.suspend(b, `,"deadline_ms":1000`), http.StatusBadRequest, wire.InputInvalid)
	require.Equal(t, "running", decodeBody[wire.Flight](t, d.get("/v1/flights/"+a.FlightID)).State)

	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"not_done"`).status)
	c := d.proceed(render + `}`)
	requireProblem(t, d.suspend(a, `,"deadline_ms":1000`), http.StatusConflict, wire.Fenced)
	require.Equal(t, http.StatusOK, d.report(c, `"outcome":"succeeded"`).status)
}

// Without a public URL nothing is opened for a callback, and nothing is suspended.
func TestCallback_NoPublicURL(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Callers.PublicURL = "" })
	p := requireProblem(t, d.post("/v1/flights:open", render+`}`), http.StatusUnprocessableEntity, wire.CallbacksOff)
	require.Contains(t, p.Hint, "public_url")
	require.Zero(t, p.RetryAfterMS)
	id := flight.MustKey("default/render/film-7").FlightID().String()
	requireProblem(t, d.get("/v1/flights/"+id), http.StatusNotFound, wire.NotFound)
	a := d.proceed(`{"action":"render","id":"film-7"}`)
	requireProblem(t, d.suspend(a, `,"deadline_ms":1000`), http.StatusUnprocessableEntity, wire.CallbacksOff)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	require.Equal(t, http.StatusOK, d.post("/v1/flights:open", render+`}`).status, "a replay needs no callback")
}
