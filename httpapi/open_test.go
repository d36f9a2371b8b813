package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// The test takes one flight from its open to its replay, with the documented headers.
func TestOneFlight(t *testing.T) {
	d := newTestServer(t)
	r := d.post("/v1/flights:open", `{"action":"charge","id":"order-42","input":{"amount": 1},"nonce":"n1","owner":"me:1"}`)
	require.Equal(t, http.StatusCreated, r.status)
	a := decodeBody[wire.OpenAnswer](t, r)
	require.Equal(t, flight.MustKey("default/charge/order-42").FlightID().String(), a.FlightID)
	require.EqualValues(t, 1, a.Attempt)
	require.EqualValues(t, 1, a.Generation)
	require.NotEmpty(t, a.FencingToken)
	require.Len(t, a.IdempotencyKey, 64)
	require.Equal(t, `{"amount": 1}`, string(a.Input), "as submitted, byte for byte")
	require.Positive(t, a.TrustMS)
	require.Positive(t, a.RenewEveryMS)
	require.Equal(t, "running", r.header.Get("Flightd-State"))
	require.Equal(t, a.FlightID, r.header.Get("Flightd-Flight-Id"))
	require.Equal(t, "false", r.header.Get("Idempotent-Replayed"))
	require.NotEmpty(t, r.header.Get("X-Request-Id"))

	r = d.report(a, `"outcome":"succeeded","external_id":"ch_1","body":{"id": "ch_1",  "paid":true}`)
	require.Equal(t, http.StatusOK, r.status)
	f := decodeBody[wire.Flight](t, r)
	require.Equal(t, "succeeded", f.State)
	require.Equal(t, "executed", f.Source)
	require.Equal(t, `{"id": "ch_1",  "paid":true}`, string(f.Receipt.Body))
	require.Equal(t, `"`+f.Version+`"`, r.header.Get("ETag"))

	first := d.post("/v1/flights:open", `{"action":"charge","id":"order-42","input":{"amount":1}}`)
	require.Equal(t, http.StatusOK, first.status)
	require.Equal(t, "true", first.header.Get("Idempotent-Replayed"))
	require.Equal(t, "succeeded", first.header.Get("Flightd-State"))
	require.NotEmpty(t, first.header.Get("Idempotency-Expires"))
	replay := decodeBody[wire.OpenAnswer](t, first)
	require.Equal(t, wire.DecisionReplay, replay.Decision)
	require.Equal(t, "replayed", replay.Flight.Source)
	require.Equal(t, `{"id": "ch_1",  "paid":true}`, string(replay.Flight.Receipt.Body))
	second := d.post("/v1/flights:open", `{"id":"order-42","action":"charge","input":{"amount":1.0}}`)
	require.Equal(t, string(first.body), string(second.body), "every duplicate gets the same bytes")
}

// A failed flight is a 424 for every caller.
func TestAFailedFlightIsNoSuccess(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	r := d.report(a, `"outcome":"refused","body":{"declined":true}`)
	require.Equal(t, http.StatusOK, r.status)
	for range 2 {
		r = d.post("/v1/flights:open", `{"action":"charge","id":"1"}`)
		p := requireProblem(t, r, http.StatusFailedDependency, wire.FlightFailed)
		require.False(t, p.Retryable)
		require.Equal(t, wire.DecisionReplay, p.Decision)
		require.Equal(t, `{"declined":true}`, string(p.Flight.Receipt.Body))
		require.Equal(t, "true", r.header.Get("Idempotent-Replayed"))
		require.Equal(t, "failed", r.header.Get("Flightd-State"))
	}
}

// The connection breaks after the commit: the same nonce gets the same answer, and no second attempt is opened.
func TestLostAnswerOfAnOpen(t *testing.T) {
	world := newTestServer(t)
	real := httpapi.New(world.fake.Config())
	var cut atomic.Bool // the first answer was dropped
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/flights:open" && cut.CompareAndSwap(false, true) {
			real.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		real.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	const body = `{"action":"charge","id":"1","nonce":"the same"}`
	_, err := http.Post(server.URL+"/v1/flights:open", "application/json", strings.NewReader(body))
	require.Error(t, err)
	d := &testServer{t: t, fake: world.fake, url: server.URL}
	a := d.proceed(body)
	require.EqualValues(t, 1, a.Attempt)
	again := d.proceed(body)
	again.TrustMS = a.TrustMS // the session was renewed for this answer
	require.Equal(t, a, again)
	require.Equal(t, "idempotency_in_flight", string(decodeBody[wire.Problem](t, d.post("/v1/flights:open", `{"action":"charge","id":"1","nonce":"another","wait_ms":0}`)).Code))
}

// A second caller waits for the result of the first.
func TestJoin(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	joined := make(chan reply, 1)
	go func() { joined <- d.post("/v1/flights:open", `{"action":"charge","id":"1","wait_ms":20000}`) }()
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded","body":1`).status)
	r := <-joined
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, []string{"joined", "replayed"}, decodeBody[wire.OpenAnswer](t, r).Flight.Source)
}

// TestVerify: the caller looks up the effect first. The verification is answered like an open and has its own nonce.
func TestVerify(t *testing.T) {
	d := newTestServer(t)
	const open = `{"action":"charge","id":"1","input":{"a":1},"recovery":"verify","settle_ms":1,"wait_ms":20000}`
	a := d.proceed(open)
	d.fake.ExpireSession(d.t, flight.SessionID(a.Session))
	asked := strings.Replace(open, `"wait_ms"`, d.nonce("look")+`,"wait_ms"`, 1)
	r := d.post("/v1/flights:open", asked)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	look := decodeBody[wire.OpenAnswer](t, r)
	require.Equal(t, wire.DecisionVerify, look.Decision)
	require.NotEmpty(t, look.Verification)
	require.Empty(t, look.FencingToken)
	require.Equal(t, a.IdempotencyKey, look.IdempotencyKey)
	require.Equal(t, `{"a":1}`, string(look.Input))
	require.EqualValues(t, 1, look.Previous.Attempt)
	require.Equal(t, "unknown", look.Previous.Outcome)
	require.Equal(t, look.Verification, decodeBody[wire.OpenAnswer](t, d.post("/v1/flights:open", asked)).Verification, "a repeat gets the same answer")

	path := "/v1/flights/" + a.FlightID + "/verification"
	r = d.post(path, `{"verification":"`+look.Verification+`","result":"not_happened",`+d.nonce("second")+`}`)
	require.Equal(t, http.StatusCreated, r.status, "%s", r.body)
	again := decodeBody[wire.OpenAnswer](t, r)
	require.EqualValues(t, 2, again.Attempt)
	require.Equal(t, "second", again.Nonce)
	d.fake.ExpireSession(d.t, flight.SessionID(again.Session))
	look = decodeBody[wire.OpenAnswer](t, d.post("/v1/flights:open", open))
	r = d.post(path, `{"verification":"`+look.Verification+`","result":"happened","external_id":"ch_9","body":{"found":1}}`)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	f := decodeBody[wire.OpenAnswer](t, r).Flight
	require.Equal(t, "lookup", f.Receipt.From)
	require.Equal(t, "ch_9", f.Receipt.ExternalID)
}

// The first caller's policy applies, and later callers are informed.
func TestPolicyDiffers(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1","recovery":"resend","provider_window_ms":86400000,"retention":"90d"}`)
	require.Nil(t, a.Policy)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"not_done"`).status)
	a = d.proceed(`{"action":"charge","id":"1","recovery":"hold"}`)
	require.True(t, a.PolicyDiffers)
	require.Equal(t, &wire.Policy{Recovery: "resend", ProviderWindowMS: 86400000, Retention: "90d"}, a.Policy)
	require.Equal(t, "not_done", a.Previous.Outcome)
}

// A receipt over the size limit does not fail the attempt: it is truncated, with the digest and length of the whole.
func TestLongReceipt(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	long := `"` + strings.Repeat("x", 100<<10) + `"`
	r := d.report(a, `"outcome":"succeeded","external_id":"ch_1","body":`+long)
	require.Equal(t, http.StatusOK, r.status)
	rec := decodeBody[wire.Flight](t, r).Receipt
	require.True(t, rec.Truncated)
	require.Equal(t, len(long), rec.Size)
	require.Equal(t, "ch_1", rec.ExternalID)
	require.Equal(t, long[:64<<10], string(rec.BodyBase64))
	full := flight.NewBlob("", []byte(long), 0)
	require.Equal(t, full.Digest.String(), rec.Digest)

	// A caller can truncate the body itself, to keep the report small.
	a = d.proceed(`{"action":"charge","id":"2"}`)
	r = d.report(a, `"outcome":"succeeded","body_base64":"eHh4","content_type":"text/plain","truncated":true,"size":1000000,"digest":"`+full.Digest.String()+`"`)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	rec = decodeBody[wire.Flight](t, r).Receipt
	require.Equal(t, 1000000, rec.Size)
	require.Equal(t, "xxx", string(rec.BodyBase64))
	require.Equal(t, full.Digest.String(), rec.Digest)
}

// The hint for an open with a used nonce says how to continue.
func TestOpen_UsedNonceIsFenced(t *testing.T) {
	d := newTestServer(t)
	const open = `{"action":"charge","id":"1","nonce":"n"}`
	require.Equal(t, http.StatusOK, d.report(d.proceed(open), `"outcome":"not_done"`).status)
	p := requireProblem(t, d.post("/v1/flights:open", open), http.StatusConflict, wire.Fenced)
	require.Contains(t, p.Hint, "open again with a new nonce")
	require.NotContains(t, p.Hint, "report")
	require.Equal(t, "default/charge/1", p.Key)
	require.EqualValues(t, 2, d.proceed(`{"action":"charge","id":"1","nonce":"another"}`).Attempt)
}

// TestIdempotencyKeyOfAnOpen: action and id identify the intent. A header with another key is rejected: if it were
// ignored, the caller would rely on a key that has no effect.
func TestIdempotencyKeyOfAnOpen(t *testing.T) {
	d := newTestServer(t)
	const body = `{"action":"charge","id":"order-42","nonce":"n"}`
	for _, same := range []string{`order-42`, `"order-42"`, ` "order-42" `, `default/charge/order-42`, `"default/charge/order-42"`} {
		r := d.post("/v1/flights:open", body, "Idempotency-Key", same)
		require.Equal(t, http.StatusCreated, r.status, "%s: %s", same, r.body)
	}
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:open", `{"action":"charge","id":"a\"b\\c"}`, "Idempotency-Key", `"a\"b\\c"`).status)
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:open", `{"action":"mail","id":"a\"b\\c"}`, "Idempotency-Key", `a"b\c`).status)
	before := d.fake.Snapshot()
	for _, other := range []string{`order-43`, `"order-43"`, `ORDER-42`, `"order-42`, `order-42"`, `"order-42";v=1`, `'order-42'`, `""`, ``, `billing/charge/order-42`,
		`"order\-42"`, `8e03978e-40d5-43dd-bc93-6894a57f9324`} {
		r := d.post("/v1/flights:open", body, "Idempotency-Key", other)
		p := requireProblem(t, r, http.StatusBadRequest, wire.KeyInvalid)
		require.Equal(t, "Idempotency-Key", p.Errors[0].Header, other)
		require.Contains(t, p.Hint, "remove the Idempotency-Key header")
		require.Equal(t, before, d.fake.Snapshot())
	}
}

// A caller cannot open or submit the key of a job that only flightd creates.
func TestOpen_LateUndosAreReserved(t *testing.T) {
	d := newTestServer(t)
	const taken = `"action":"room.cancel","id":"undo-late:room:stay:s-1"`
	for path, body := range map[string]string{
		"/v1/flights:open":   `{` + taken + `}`,
		"/v1/flights:submit": `{` + taken + `,"input":{}}`,
	} {
		p := requireProblem(t, d.post(path, body), http.StatusBadRequest, wire.KeyInvalid)
		require.Contains(t, p.Detail, "only flightd makes", path)
	}
	batch := d.post("/v1/flights:batch", `{"open":{`+taken+`}}`+"\n", "Content-Type", "application/x-ndjson")
	require.Contains(t, string(batch.body), string(wire.KeyInvalid))
	require.Equal(t, http.StatusNotFound, d.get("/v1/flights?key=default/room.cancel/undo-late:room:stay:s-1").status)
}
