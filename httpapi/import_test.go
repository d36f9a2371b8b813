package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// importLines posts an import.
func (ts *testServer) importLines(query string, lines ...string) reply {
	ts.t.Helper()
	return ts.post("/v1/flights:import"+query, strings.Join(lines, "\n"), "Content-Type", "application/x-ndjson", "Flightd-Actor", "ann")
}

func TestRedact(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1","input":{"card":"4242"}}`)
	path := "/v1/flights/" + a.FlightID
	etag := d.get(path).header.Get("ETag")
	requireProblem(t, d.post(path+"/redact", `{"reason":"asked for"}`), http.StatusPreconditionRequired, wire.PreconditionRequired)
	requireProblem(t, d.post(path+"/redact", `{"reason":"asked for"}`, "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed)
	r := d.report(a, `"outcome":"succeeded","external_id":"ch_1","body":{"name":"Ann"}`)
	before := decodeBody[wire.Flight](t, r)
	etag = r.header.Get("ETag")
	requireProblem(t, d.post(path+"/redact", `{"reason":" "}`, "If-Match", etag), http.StatusBadRequest, wire.InputInvalid)

	r = d.post(path+"/redact", `{"reason":"asked for","actor":"eve"}`, "If-Match", etag)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	f := decodeBody[wire.Flight](t, r)
	require.Equal(t, "eve", f.Redacted.Actor)
	require.Equal(t, "asked for", f.Redacted.Reason)
	require.Equal(t, "ch_1", f.Receipt.ExternalID)
	require.Equal(t, before.Receipt.Digest, f.Receipt.Digest)
	require.Empty(t, f.Receipt.Body)
	require.Equal(t, r.body, d.post(path+"/redact", `{"reason":"asked for","actor":"eve"}`, "If-Match", etag).body, "a repeat whose answer was lost")

	p := requireProblem(t, d.get(path+"/receipt"), http.StatusGone, wire.Expired)
	require.Contains(t, p.Detail, "erased")
	require.Equal(t, before.Receipt.Digest, p.Digest)
	again := d.post("/v1/flights:open", `{"action":"charge","id":"1","input":{"card":"4242"}}`)
	require.Equal(t, http.StatusOK, again.status, "%s", again.body)
	require.Equal(t, wire.DecisionReplay, decodeBody[wire.OpenAnswer](t, again).Decision, "the receipt still guards the key")
	requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"1","input":{"card":"1"}}`), http.StatusUnprocessableEntity, wire.Conflict)
	require.NotContains(t, string(d.get(path).body)+string(d.get(path+"/events").body)+string(again.body), "Ann")
}

func TestImport(t *testing.T) {
	d := newTestServer(t)
	lines := []string{
		`{"key":"default/charge/1","outcome":"succeeded","external_id":"ch_1","body":{"n":1},"finished_at":"2026-01-02T03:04:05Z","retention":"3650d"}`,
		`{"key":"default/charge/2","outcome":"refused","body_base64":"bm8=","content_type":"text/plain","input":{"amount":2}}`,
	}
	before := d.fake.Snapshot()
	dry := decodeBody[wire.ImportAnswer](t, d.importLines("?dry_run=true", lines...))
	require.Equal(t, wire.ImportAnswer{Lines: 2, Imported: 2, DryRun: true}, dry)
	require.Equal(t, before, d.fake.Snapshot(), "a dry run changes nothing")
	require.Equal(t, wire.ImportAnswer{Lines: 2, Imported: 2}, decodeBody[wire.ImportAnswer](t, d.importLines("", lines...)))
	require.Equal(t, wire.ImportAnswer{Lines: 2, Existing: 2}, decodeBody[wire.ImportAnswer](t, d.importLines("", lines...)), "a repeat")

	r := d.post("/v1/flights:open", `{"action":"charge","id":"1","input":{"whatever":true}}`)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	f := decodeBody[wire.OpenAnswer](t, r).Flight
	require.Equal(t, `{"n":1}`, string(f.Receipt.Body))
	require.Equal(t, "import", f.Receipt.From)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), f.FinishedAt.Time)
	requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"2","input":{"amount":3}}`), http.StatusUnprocessableEntity, wire.Conflict)

	open := d.proceed(`{"action":"charge","id":"3"}`)
	a := decodeBody[wire.ImportAnswer](t, d.importLines("", `{"key":"default/charge/4","outcome":"succeeded"}`, `{"key":"default/charge/3","outcome":"succeeded"}`,
		strings.Replace(lines[0], "ch_1", "ch_9", 1), `{"key":"default/charge/4","outcome":"refused"}`))
	require.Equal(t, 1, a.Imported)
	require.Len(t, a.Differing, 3)
	require.Equal(t, wire.ImportDifference{Line: 2, Key: "default/charge/3", FlightID: open.FlightID, State: "running", Detail: "the flight is running"}, a.Differing[0])
	require.Equal(t, 3, a.Differing[1].Line)
	require.Equal(t, "the flight has another receipt: succeeded ch_1", a.Differing[1].Detail)
	require.Equal(t, 4, a.Differing[2].Line, "the same key twice in one request")
}

func TestImport_BadLinesRefuseAllOfThem(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Callers.LoopbackOnly = true })
	good := `{"key":"default/charge/1","outcome":"succeeded"}`
	before := d.fake.Snapshot()
	for line, want := range map[string]struct {
		pointer string
		code    wire.Code
	}{
		`{"outcome":"succeeded"}`:                                                                         {"/2/key", wire.KeyRequired},
		`{"key":"charge/1","outcome":"succeeded"}`:                                                        {"/2/key", wire.KeyInvalid},
		`{"key":"billing/charge/1","outcome":"succeeded"}`:                                                {"/2/key", wire.InputInvalid},
		`{"key":"default/trip/1#hotel","outcome":"succeeded","input":{}}`:                                 {"/2/input", wire.InputInvalid},
		`{"key":"default/trip/1#hotel","outcome":"refused"}`:                                              {"/2/outcome", wire.InputInvalid},
		`{"key":"default/charge/1"}`:                                                                      {"/2/outcome", wire.InputInvalid},
		`{"key":"default/charge/1","outcome":"unknown"}`:                                                  {"/2/outcome", wire.InputInvalid},
		good[:len(good)-1]:                                                                                {"/2", wire.InputInvalid},
		good[:len(good)-1] + `,"finished_at":"yesterday"}`:                                                {"/2/finished_at", wire.InputInvalid},
		good[:len(good)-1] + `,"finished_at":"2999-01-01T00:00:00Z"}`:                                     {"/2/finished_at", wire.InputInvalid},
		good[:len(good)-1] + `,"created_at":"1969-01-01T00:00:00Z"}`:                                      {"/2/created_at", wire.InputInvalid},
		good[:len(good)-1] + `,"created_at":"2025-01-02T00:00:00Z","finished_at":"2025-01-01T00:00:00Z"}`: {"/2/created_at", wire.InputInvalid},
		good[:len(good)-1] + `,"retention":"a while"}`:                                                    {"/2/retention", wire.InputInvalid},
		good[:len(good)-1] + `,"input":{"a":1,"a":2}}`:                                                    {"/2/input", wire.InputInvalid},
		good[:len(good)-1] + `,"fingerprint":"sha256:12"}`:                                                {"/2/fingerprint", wire.InputInvalid},
		good[:len(good)-1] + `,"body":1,"body_base64":"AA"}`:                                              {"/2/body_base64", wire.InputInvalid},
		good[:len(good)-1] + `,"colour":"red"}`:                                                           {"/2/colour", wire.InputInvalid},
		``:                                                                                                {"/2", wire.InputInvalid},
		`[]`:                                                                                              {"/2", wire.InputInvalid},
	} {
		r := d.importLines("", good, line, good)
		p := decodeBody[wire.Problem](t, r)
		require.Equal(t, want.code, p.Code, "%s: %s", line, r.body)
		require.Equal(t, want.pointer, p.Errors[0].Pointer, "%s: %s", line, r.body)
		require.Contains(t, p.Errors[0].Detail, "line 2: ", line)
	}
	requireProblem(t, d.importLines(""), http.StatusBadRequest, wire.InputInvalid)
	requireProblem(t, d.importLines("?dry_run=perhaps", good), http.StatusBadRequest, wire.InputInvalid)
	requireProblem(t, d.importLines("", strings.Repeat(good+"\n", wire.MaxImportLines+1)), http.StatusRequestEntityTooLarge, wire.PayloadTooLarge)
	requireProblem(t, d.importLines("", good+strings.Repeat(" ", wire.MaxImportBody)), http.StatusRequestEntityTooLarge, wire.PayloadTooLarge)
	requireProblem(t, d.post("/v1/flights:import", good), http.StatusUnsupportedMediaType, wire.UnsupportedMediaType)
	requireProblem(t, d.post("/v1/flights:import", good, "Content-Type", "text/plain"), http.StatusUnsupportedMediaType, wire.UnsupportedMediaType)
	require.Equal(t, before, d.fake.Snapshot(), "nothing was changed")
}

// While the ledger is reconciling, a success is imported for a flight that the restored ledger knows, and for the step of a saga; a dry run
// decides as the ledger does.
func TestImport_AfterARestore(t *testing.T) {
	var operator httpapi.Operator
	var ledger httpapi.Ledger
	d := newTestServer(t, func(c *httpapi.Config) { operator, ledger = c.Operator, c.Ledger })
	known, step := `{"key":"default/charge/1","outcome":"succeeded","external_id":"ch_1"}`, `{"key":"default/trip/1#hotel","outcome":"succeeded","external_id":"room_17"}`
	d.proceed(`{"action":"charge","id":"1"}`)
	for _, query := range []string{"?dry_run=true", ""} {
		a := decodeBody[wire.ImportAnswer](t, d.importLines(query, known, step))
		require.Zero(t, a.Imported)
		require.Equal(t, "the flight is running", a.Differing[0].Detail)
		require.Contains(t, a.Differing[1].Detail, "only after a restore")
	}
	_, err := operator.Propose(t.Context(), &flight.Restore{From: ledger.Header().StoreEpoch})
	require.NoError(t, err)
	for _, query := range []string{"?dry_run=true", ""} {
		require.Equal(t, 2, decodeBody[wire.ImportAnswer](t, d.importLines(query, known, step)).Imported, query)
	}
	require.Equal(t, 2, decodeBody[wire.ImportAnswer](t, d.importLines("", known, step)).Existing, "a repeat")
}

// TestInvalidKeyDetailIsTheSameEverywhere: an invalid key gets the same detail in a body, a parameter and an import.
func TestInvalidKeyDetailIsTheSameEverywhere(t *testing.T) {
	d := newTestServer(t)
	_, etag := d.openInDoubt("1")
	id := d.flightID("charge/1")
	for key, want := range map[string]string{"charge/1": "a key reads namespace/name/id", "default/charge/%C3%BC%zz": "id: '%' at byte 7 must be followed by two upper-case hex digits; write a percent sign as %25"} {
		for _, r := range []reply{
			d.importLines("", `{"key":"`+key+`","outcome":"succeeded"}`),
			d.get("/v1/flights?key=" + url.QueryEscape(key)),
			d.post("/v1/flights/"+id+"/free", `{"key":"`+key+`","reason":"x"}`, "If-Match", etag),
		} {
			p := requireProblem(t, r, http.StatusBadRequest, wire.KeyInvalid)
			require.Equal(t, want, strings.TrimPrefix(p.Errors[0].Detail, "line 1: "))
		}
	}
}

// TestFlightFailed_HintOffersRetryOnlyWhenAllowed: the hint does not offer a retry if the flight has a receipt or its
// input is erased.
func TestFlightFailed_HintOffersRetryOnlyWhenAllowed(t *testing.T) {
	d := newTestServer(t)
	a, etag := d.openInDoubt("1")
	hint := func() string {
		return requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"1","wait_ms":0}`), http.StatusFailedDependency, wire.FlightFailed).Hint
	}
	r := d.post("/v1/flights/"+a.FlightID+"/resolve", `{"result":"fail","reason":"gone"}`, "If-Match", etag)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	require.Contains(t, hint(), "flights retry")
	r = d.post("/v1/flights/"+a.FlightID+"/redact", `{"reason":"asked for"}`, "If-Match", r.header.Get("ETag"))
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	require.NotContains(t, hint(), "retry")

	refused := d.proceed(`{"action":"charge","id":"2"}`)
	d.report(refused, `"outcome":"refused"`)
	p := requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"2"}`), http.StatusFailedDependency, wire.FlightFailed)
	require.NotContains(t, p.Hint, "retry")
}
