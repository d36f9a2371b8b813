package httpapi_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func TestResolve(t *testing.T) {
	d := newTestServer(t)
	a, etag := d.openInDoubt("1")
	path := "/v1/flights/" + a.FlightID + "/resolve"
	before := d.fake.Snapshot()
	requireProblem(t, d.post(path, `{"result":"happened","reason":"seen","external_id":"ch_1"}`), http.StatusPreconditionRequired, wire.PreconditionRequired)
	p := requireProblem(t, d.post(path, `{"result":"happened","reason":"seen","external_id":"ch_1"}`, "If-Match", `"1.1"`), http.StatusPreconditionFailed, wire.PreconditionFailed)
	require.Equal(t, `"`+p.Version+`"`, etag)
	require.Equal(t, before, d.fake.Snapshot())

	const body = `{"result":"happened","reason":"seen at the provider","actor":"eve","external_id":"ch_1","body":{"id":"ch_1"}}`
	r := d.post(path, body, "If-Match", etag)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	f := decodeBody[wire.Flight](t, r)
	require.Equal(t, "succeeded", f.State)
	require.Equal(t, "person", f.Receipt.From)
	require.Equal(t, "eve", f.Resolution.Actor)
	require.Equal(t, "happened", f.Resolution.Result)
	require.Equal(t, "seen at the provider", f.Resolution.Reason)
	require.Equal(t, string(r.body), string(d.post(path, body, "If-Match", etag).body), "a repeat gets the same answer")
	for _, other := range []string{`{"result":"fail","reason":"no"}`, `{"result":"happened","reason":"no","external_id":"ch_2","body":{"id":"ch_1"}}`,
		`{"result":"happened","reason":"no","external_id":"ch_1","body":{"id":"ch_2"}}`, `{"result":"happened","reason":"no","no_receipt":true}`} {
		p = requireProblem(t, d.post(path, other, "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed)
		require.Equal(t, "the doubt was already resolved differently: happened, by eve (seen at the provider)", p.Detail)
	}
	again := d.post(path, `{"result":"happened","reason":"me too","external_id":"ch_1","body":{"id":"ch_1"}}`, "If-Match", etag)
	require.Equal(t, "eve", decodeBody[wire.Flight](t, again).Resolution.Actor, "the same decision by another person: the first one is kept")
}

// A resolution without a receipt must say so: every later caller gets an error instead of a result.
func TestResolve_NeedsAReceiptOrTheWordThatThereIsNone(t *testing.T) {
	d := newTestServer(t)
	a, etag := d.openInDoubt("1")
	path := "/v1/flights/" + a.FlightID + "/resolve"
	before := d.fake.Snapshot()
	for body, pointer := range map[string]string{
		`{"result":"happened","reason":"seen"}`:                                              "/no_receipt",
		`{"result":"happened","reason":"seen","no_receipt":false}`:                           "/no_receipt",
		`{"result":"happened","reason":"seen","content_type":"text/plain","body_base64":""}`: "/no_receipt",
		`{"result":"happened","reason":"seen","no_receipt":true,"external_id":"ch_1"}`:       "/no_receipt",
		`{"result":"happened","reason":"seen","no_receipt":true,"body":{"id":"ch_1"}}`:       "/no_receipt",
		`{"result":"not_happened","reason":"not there","no_receipt":true}`:                   "/no_receipt",
		`{"result":"fail","reason":"not there","no_receipt":true}`:                           "/no_receipt",
	} {
		p := requireProblem(t, d.post(path, body, "If-Match", etag), http.StatusBadRequest, wire.InputInvalid)
		require.Equal(t, pointer, p.Errors[0].Pointer, body)
	}
	require.Equal(t, before, d.fake.Snapshot())
	for id, words := range map[string]string{"2": `"no_receipt":true`, "3": `"external_id":"ch_3"`} {
		a, etag = d.openInDoubt(id)
		r := d.post("/v1/flights/"+a.FlightID+"/resolve", `{"result":"happened","reason":"seen",`+words+`}`, "If-Match", etag)
		f := decodeBody[wire.Flight](t, r)
		require.Equal(t, "succeeded", f.State, "%s", r.body)
		require.True(t, f.Receipt.Truncated, "callers are told that the result is not stored")
		require.Zero(t, f.Receipt.Size)
	}
}

func TestCancelRetryFree(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	r := d.report(a, `"outcome":"not_done"`)
	etag := r.header.Get("ETag")
	path := "/v1/flights/" + a.FlightID
	p := requireProblem(t, d.post(path+"/retry", `{"reason":"x"}`, "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed)
	require.NotContains(t, p.Hint, "ETag", "the ETag was current: reading the flight again would not help")
	require.Contains(t, requireProblem(t, d.post(path+"/retry", `{"reason":"x"}`, "If-Match", `"1.0"`), http.StatusPreconditionFailed,
		wire.PreconditionFailed).Hint, "send its new ETag")

	cancelled := d.post(path+"/cancel", `{"reason":"not wanted"}`, "If-Match", etag)
	require.Equal(t, http.StatusOK, cancelled.status, "%s", cancelled.body)
	f := decodeBody[wire.Flight](t, cancelled)
	require.Equal(t, "cancelled", f.State)
	require.Equal(t, "unknown", f.CancelRequested.Actor)
	require.Equal(t, cancelled.body, d.post(path+"/cancel", `{"reason":"not wanted"}`, "If-Match", etag).body, "a repeat whose answer was lost")

	etag = cancelled.header.Get("ETag")
	retried := d.post(path+"/retry", `{"reason":"wanted after all","actor":"eve"}`, "If-Match", etag)
	require.Equal(t, http.StatusOK, retried.status, "%s", retried.body)
	f = decodeBody[wire.Flight](t, retried)
	require.Equal(t, "ready", f.State)
	require.EqualValues(t, 2, f.Generation)
	require.Equal(t, "eve", f.PreviousGenerations[0].Actor)
	require.Equal(t, retried.body, d.post(path+"/retry", `{"reason":"wanted after all","actor":"eve"}`, "If-Match", etag).body)
	requireProblem(t, d.post(path+"/free", `{"reason":"wanted after all","actor":"eve"}`, "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed)

	b := d.proceed(`{"action":"charge","id":"1"}`)
	require.EqualValues(t, 2, b.Attempt, "attempt numbers continue")
	require.NotEqual(t, a.IdempotencyKey, b.IdempotencyKey)
	done := d.report(b, `"outcome":"succeeded"`)
	freed := d.post(path+"/free", `{"reason":"again"}`, "If-Match", done.header.Get("ETag"))
	require.Equal(t, http.StatusOK, freed.status, "%s", freed.body)
	p = requireProblem(t, d.get(path), http.StatusNotFound, wire.NotFound)
	require.Equal(t, []string{"default/charge/1", "absent", freed.header.Get("ETag")}, []string{p.Key, p.State, `"` + p.Version + `"`})
	require.Regexp(t, `^the key was freed on \S+ by unknown: again; its state was succeeded, and the next open may act$`, p.Detail)
	require.Contains(t, p.Hint, path+"/events")
	require.Equal(t, http.StatusOK, d.get(path+"/events").status, "as the hint says")
	require.EqualValues(t, 3, d.proceed(`{"action":"charge","id":"1"}`).Attempt)
}

// A decision must name a version. Without this rule a free that is delivered again, after the key ran a second time,
// would let it run a third time.
func TestDecisionsNameAVersion(t *testing.T) {
	d := newTestServer(t)
	land := func() string {
		a := d.proceed(`{"action":"charge","id":"1"}`)
		require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
		return "/v1/flights/" + a.FlightID
	}
	path := land()
	before := d.fake.Snapshot()
	for verb, body := range map[string]string{"resolve": `{"result":"fail","reason":"x"}`, "cancel": `{"reason":"x"}`, "retry": `{"reason":"x"}`,
		"free": `{"reason":"x"}`, "redact": `{"reason":"x"}`} {
		for _, tag := range []string{"*", `"*"`, `W/"1.0"`, `"1.0", "2.0"`} {
			p := requireProblem(t, d.post(path+"/"+verb, body, "If-Match", tag), http.StatusBadRequest, wire.InputInvalid)
			require.Equal(t, "If-Match", p.Errors[0].Header)
			require.Contains(t, p.Hint, "GET the flight first")
		}
		requireProblem(t, d.post(path+"/"+verb, body), http.StatusPreconditionRequired, wire.PreconditionRequired)
		etag := d.get(path).header.Get("ETag")
		p := requireProblem(t, d.post(path+"/"+verb, strings.Replace(body, "x", " ", 1), "If-Match", etag), http.StatusBadRequest, wire.InputInvalid)
		require.Equal(t, "/reason", p.Errors[0].Pointer, "each decision requires a reason")
	}
	require.Equal(t, before, d.fake.Snapshot())
}

// A tombstone does not store its key, so the request to free it must name the key.
func TestFreeATombstone(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1","retention":"1s"}`)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded","body":1`).status)
	d.fake.Ledger.Advance(3 * time.Second)

	p := requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"1"}`), http.StatusGone, wire.Expired)
	require.Equal(t, "succeeded", p.Outcome)
	require.NotEmpty(t, p.Digest)
	r := d.get("/v1/flights/" + a.FlightID)
	require.JSONEq(t, `{"id":"`+a.FlightID+`","state":"expired","version":"`+strings.Trim(r.header.Get("ETag"), `"`)+`","generation":1,"fingerprint":"`+
		decodeBody[wire.Flight](t, r).Fingerprint+`","receipt":{"outcome":"succeeded","digest":"`+p.Digest+`"}}`, string(r.body), "fields that a tombstone does not store are absent")
	requireProblem(t, d.get("/v1/flights/"+a.FlightID+"/receipt"), http.StatusGone, wire.Expired)

	path := "/v1/flights/" + a.FlightID + "/free"
	etag := r.header.Get("ETag")
	requireProblem(t, d.post(path, `{"reason":"x"}`, "If-Match", etag), http.StatusBadRequest, wire.KeyRequired)
	requireProblem(t, d.post(path, `{"reason":"x","key":"default/charge/2"}`, "If-Match", etag), http.StatusBadRequest, wire.InputInvalid)
	requireProblem(t, d.post(path, `{"reason":"x","key":"default"}`, "If-Match", etag), http.StatusBadRequest, wire.KeyInvalid)
	require.Equal(t, http.StatusOK, d.post(path, `{"reason":"x","key":"default/charge/1"}`, "If-Match", etag).status)
	d.proceed(`{"action":"charge","id":"1"}`)
}

// TestDecision_SameWordsOnLaterVersion: the same person frees a key twice, for the same reason. The second decision is
// about a later generation. If its version is outdated, it must be rejected, and not be answered like a repeat of the
// first.
func TestDecision_SameWordsOnLaterVersion(t *testing.T) {
	d := newTestServer(t)
	land := func() (path, etag string) {
		a := d.proceed(`{"action":"charge","id":"1"}`)
		r := d.report(a, `"outcome":"succeeded","external_id":"ch_1"`)
		require.Equal(t, http.StatusOK, r.status)
		return "/v1/flights/" + a.FlightID, r.header.Get("ETag")
	}
	free := func(path, etag string) reply {
		return d.post(path+"/free", `{"reason":"again","actor":"ann"}`, "If-Match", etag)
	}
	path, first := land()
	freed := free(path, first)
	require.Equal(t, http.StatusOK, freed.status, "%s", freed.body)
	require.Equal(t, string(freed.body), string(free(path, first).body), "a repeat")

	_, second := land()
	require.Equal(t, http.StatusOK, d.post(path+"/redact", `{"reason":"asked for"}`, "If-Match", second).status)
	requireProblem(t, free(path, second), http.StatusPreconditionFailed, wire.PreconditionFailed)
	require.Equal(t, "succeeded", decodeBody[wire.Flight](t, d.get(path)).State)
}

// TestProblemsNameTheFlightOfThePath: each problem of a request about a flight names the flight and its state, also if
// its record is a tombstone, which does not store the key.
func TestProblemsNameTheFlightOfThePath(t *testing.T) {
	j, log := withLog(slog.LevelDebug)
	d := newTestServer(t, log)
	a := d.proceed(`{"action":"charge","id":"1","retention":"1s"}`)
	path := "/v1/flights/" + a.FlightID
	about := func(r reply, status int, code wire.Code, state string) wire.Problem {
		t.Helper()
		p := requireProblem(t, r, status, code)
		require.Equal(t, []string{a.FlightID, a.FlightID}, []string{p.FlightID, r.header.Get("Flightd-Flight-Id")})
		require.Equal(t, []string{state, state}, []string{p.State, r.header.Get("Flightd-State")})
		return p
	}
	about(d.post(path+"/report", `{}`), http.StatusBadRequest, wire.InputInvalid, "running")
	about(d.post(path+"/cancel", `{}`), http.StatusPreconditionRequired, wire.PreconditionRequired, "running")
	p := about(d.get(path+"/receipt"), http.StatusNotFound, wire.NotFound, "running")
	require.NotContains(t, p.Hint, "check the path", "the path is correct")
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded","external_id":"ch_1"`).status)
	d.fake.Ledger.Advance(3 * time.Second)

	p = about(d.report(a, `"outcome":"succeeded","external_id":"ch_2"`), http.StatusConflict, wire.Fenced, "expired")
	require.Equal(t, "succeeded", p.Outcome)
	require.Contains(t, p.Detail, "is stored only in the server's log", "a tombstone stores no evidence")
	logged := j.lines(t)
	require.Contains(t, fmt.Sprint(logged), "external_id:ch_2", "the report is stored only there")
	about(d.post(path+"/free", `{"reason":"x"}`, "If-Match", d.get(path).header.Get("ETag")), http.StatusBadRequest, wire.KeyRequired, "expired")
	j.lines(t)
	about(d.get(path+"/events", "Accept", "text/event-stream"), http.StatusGone, wire.Expired, "expired")
	about(d.get(path+"/events?after=999999.0"), http.StatusGone, wire.Expired, "expired")
	require.Len(t, j.lines(t), 2, "every problem is in the log")

	r := d.get("/v1/flights/" + flight.MustKey("a/b/c").FlightID().String() + "/events?colour=red")
	requireProblem(t, r, http.StatusBadRequest, wire.InputInvalid)
	require.Equal(t, "absent", r.header.Get("Flightd-State"))
	require.Empty(t, d.post("/v1/sessions/ses_1/renew", `[]`).header.Get("Flightd-Flight-Id"))
}

// A name in a header can have any bytes; only valid UTF-8 is accepted.
func TestActorMustBeText(t *testing.T) {
	d := newTestServer(t)
	a, etag := d.openInDoubt("1")
	path := "/v1/flights/" + a.FlightID + "/resolve"
	before := d.fake.Snapshot()
	p := requireProblem(t, d.post(path, `{"result":"not_happened","reason":"x"}`, "If-Match", etag, "Flightd-Actor", "Jos\xe9"), http.StatusBadRequest, wire.InputInvalid)
	require.Equal(t, "Flightd-Actor", p.Errors[0].Header)
	p = requireProblem(t, d.post("/v1/flights:import", `{"key":"default/charge/2","outcome":"succeeded"}`,
		"Content-Type", "application/x-ndjson", "Flightd-Actor", "Jos\xe9"), http.StatusBadRequest, wire.InputInvalid)
	require.Equal(t, "Flightd-Actor", p.Errors[0].Header)
	require.Equal(t, before, d.fake.Snapshot())
	r := d.post(path, `{"result":"not_happened","reason":"x"}`, "If-Match", etag, "Flightd-Actor", "José")
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	require.Equal(t, "José", decodeBody[wire.Flight](t, r).Resolution.Actor)
}

// A name that is truncated when it is stored does not prevent a decision from being recognised as a repeat.
func TestLongNameIsRepeated(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	etag := d.report(a, `"outcome":"not_done"`).header.Get("ETag")
	ask := func() reply {
		return d.post("/v1/flights/"+a.FlightID+"/cancel", `{"reason":"x"}`, "If-Match", etag, "Flightd-Actor", strings.Repeat("n", flight.MaxText+1))
	}
	first := ask()
	require.Equal(t, http.StatusOK, first.status, "%s", first.body)
	require.Equal(t, string(first.body), string(ask().body))
}
