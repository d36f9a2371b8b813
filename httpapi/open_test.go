package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

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
