package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// A rejected request gets a code, the invalid place and a hint, and changes nothing.
func TestBadInput(t *testing.T) {
	d := newTestServer(t)
	open := d.proceed(`{"action":"charge","id":"running"}`)
	other := d.proceed(`{"action":"charge","id":"other"}`)
	queued := d.proceed(`{"action":"charge","id":"queued"}`)
	require.Equal(t, http.StatusOK, d.report(queued, `"outcome":"not_done"`).status)
	_, etag := d.openInDoubt("doubt")
	doubt := "/v1/flights/" + d.flightID("charge/doubt")
	report := "/v1/flights/" + open.FlightID + "/report"
	verification := "/v1/flights/" + open.FlightID + "/verification"
	token := `"fencing_token":"` + open.FencingToken + `"`
	long := strings.Repeat("x", 256)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	const opens, abandons = "/v1/flights:open", "/v1/flights:abandon"

	type header []string
	cases := []struct {
		name   string
		path   string
		body   string
		code   wire.Code
		at     string // a JSON pointer, or the name of a header
		header header
	}{
		{"no key", opens, `{}`, wire.KeyRequired, "/action", nil},
		{"empty action", opens, `{"action":"","id":"1"}`, wire.KeyRequired, "/action", nil},
		{"empty id", opens, `{"action":"a","id":""}`, wire.KeyRequired, "/id", nil},
		{"null id", opens, `{"action":"a","id":null}`, wire.KeyRequired, "/id", nil},
		{"very long id", opens, `{"action":"a","id":"` + strings.Repeat(long, 10) + `"}`, wire.InputInvalid, "/id", nil},
		{"space in id", opens, `{"action":"a","id":"a b"}`, wire.KeyInvalid, "/id", nil},
		{"control in id", opens, `{"action":"a","id":"a\u0000b"}`, wire.KeyInvalid, "/id", nil},
		{"letters beyond ASCII", opens, `{"action":"a","id":"ä"}`, wire.KeyInvalid, "/id", nil},
		{"step in id", opens, `{"action":"a","id":"a#b"}`, wire.KeyInvalid, "/id", nil},
		{"dots in id", opens, `{"action":"a","id":"a/../b"}`, wire.KeyInvalid, "/id", nil},
		{"empty segment", opens, `{"action":"a","id":"a//b"}`, wire.KeyInvalid, "/id", nil},
		{"slash in action", opens, `{"action":"a/b","id":"1"}`, wire.KeyInvalid, "/action", nil},
		{"second spelling", opens, `{"action":"a","id":"%41"}`, wire.KeyInvalid, "/id", nil},
		{"bad namespace", opens, `{"action":"a","id":"1"}`, wire.KeyInvalid, "Flightd-Namespace", header{"Flightd-Namespace", "a/b"}},
		{"long namespace", opens, `{"action":"a","id":"1"}`, wire.KeyInvalid, "Flightd-Namespace", header{"Flightd-Namespace", long}},

		{"no body", opens, ``, wire.InputInvalid, "", nil},
		{"no object", opens, `[]`, wire.InputInvalid, "", nil},
		{"cut off", opens, `{"action":"a","id":"1"`, wire.InputInvalid, "", nil},
		{"trailing data", opens, `{"action":"a","id":"1"} {}`, wire.InputInvalid, "", nil},
		{"not JSON", opens, `action=a`, wire.InputInvalid, "", nil},
		{"unknown field", opens, `{"action":"a","id":"1","colour":"red"}`, wire.InputInvalid, "/colour", nil},
		{"unknown field that is null", opens, `{"action":"a","id":"1","a/b~c":null}`, wire.InputInvalid, "/a~1b~0c", nil},
		{"field twice", opens, `{"action":"a","id":"1","id":"2"}`, wire.InputInvalid, "/id", nil},
		{"other case", opens, `{"Action":"a","id":"1"}`, wire.InputInvalid, "/Action", nil},
		{"fraction", opens, `{"action":"a","id":"1","wait_ms":1.5}`, wire.InputInvalid, "/wait_ms", nil},
		{"exponent", opens, `{"action":"a","id":"1","wait_ms":1e3}`, wire.InputInvalid, "/wait_ms", nil},
		{"short ttl", opens, `{"action":"a","id":"1","ttl_ms":1000}`, wire.InputInvalid, "/ttl_ms", nil},
		{"broken ttl", opens, `{"action":"a","id":"1","ttl_ms":2500}`, wire.InputInvalid, "/ttl_ms", nil},
		{"retention", opens, `{"action":"a","id":"1","retention":"for ever"}`, wire.InputInvalid, "/retention", nil},
		{"no retention", opens, `{"action":"a","id":"1","retention":"0s"}`, wire.InputInvalid, "/retention", nil},
		{"long retention", opens, `{"action":"a","id":"1","retention":"4000d"}`, wire.InputInvalid, "/retention", nil},
		{"zero fingerprint", opens, `{"action":"a","id":"1","fingerprint":"sha256:` + strings.Repeat("0", 64) + `"}`, wire.InputInvalid, "/fingerprint", nil},
		{"not_after without a nonce", opens, `{"action":"a","id":"1","not_after":1}`, wire.InputInvalid, "/not_after", nil},
		{"abandon of nothing", abandons, `{}`, wire.KeyRequired, "/action", nil},
		{"abandon without a nonce", abandons, `{"action":"a","id":"1","not_after":1}`, wire.InputInvalid, "/nonce", nil},
		{"abandon without not_after", abandons, `{"action":"a","id":"1","nonce":"n"}`, wire.InputInvalid, "/not_after", nil},
		{"abandon in no namespace", abandons, `{"action":"a","id":"1","nonce":"n","not_after":1}`, wire.KeyInvalid, "Flightd-Namespace", header{"Flightd-Namespace", "a/b"}},
		{"lone surrogate", opens, `{"action":"a","id":"1","owner":"\ud800"}`, wire.InputInvalid, "/owner", nil},
		{"not UTF-8", opens, "{\"action\":\"a\",\"id\":\"1\",\"owner\":\"\xff\"}", wire.InputInvalid, "/owner", nil},
		{"deep input", opens, `{"action":"a","id":"1","input":` + deep + `}`, wire.InputInvalid, "/input", nil},
		{"name twice in input", opens, `{"action":"a","id":"1","input":{"a":1,"a":2}}`, wire.InputInvalid, "/input", nil},
		{"integer beyond a double", opens, `{"action":"a","id":"1","input":{"order":9007199254740993}}`, wire.InputInvalid, "/input", nil},
		{"large body", opens, `{"action":"a","id":"1","input":"` + strings.Repeat("x", 400<<10) + `"}`, wire.PayloadTooLarge, "", nil},
		{"large input", opens, `{"action":"a","id":"1","input":"` + strings.Repeat("x", 256<<10) + `"}`, wire.PayloadTooLarge, "/input", nil},
		{"charset", opens, `{"action":"a","id":"1"}`, wire.UnsupportedMediaType, "Content-Type", header{"Content-Type", "application/json; charset=utf-16"}},
		{"content type", opens, `{"action":"a","id":"1"}`, wire.UnsupportedMediaType, "Content-Type", header{"Content-Type", "text/plain"}},

		{"no token", report, `{"outcome":"succeeded"}`, wire.InputInvalid, "/fencing_token", nil},
		{"not a token", report, `{"fencing_token":"x","outcome":"succeeded"}`, wire.InputInvalid, "/fencing_token", nil},
		{"token of another flight", report, `{"fencing_token":"` + other.FencingToken + `","outcome":"succeeded"}`, wire.InputInvalid, "/fencing_token", nil},
		{"forged token", report, `{"fencing_token":"` + forge(open.FencingToken) + `","outcome":"succeeded"}`, wire.InputInvalid, "/fencing_token", nil},
		{"key of another flight", report, `{` + token + `,"key":"default/charge/other","outcome":"succeeded"}`, wire.InputInvalid, "/key", nil},
		{"not a key", report, `{` + token + `,"key":"other","outcome":"succeeded"}`, wire.KeyInvalid, "/key", nil},
		{"no outcome", report, `{` + token + `}`, wire.InputInvalid, "/outcome", nil},
		{"two bodies", report, `{` + token + `,"outcome":"succeeded","body":1,"body_base64":"eA=="}`, wire.InputInvalid, "/body_base64", nil},
		{"JSON that is text", report, `{` + token + `,"outcome":"succeeded","body":1,"content_type":"text/plain"}`, wire.InputInvalid, "/content_type", nil},
		{"header in content type", report, `{` + token + `,"outcome":"succeeded","body_base64":"eA==","content_type":"a\r\nb"}`, wire.InputInvalid, "/content_type", nil},
		{"size without truncation", report, `{` + token + `,"outcome":"succeeded","body_base64":"eA==","size":9}`, wire.InputInvalid, "/truncated", nil},
		{"truncated without size", report, `{` + token + `,"outcome":"succeeded","body_base64":"eA==","truncated":true}`, wire.InputInvalid, "/size", nil},
		{"truncated without digest", report, `{` + token + `,"outcome":"succeeded","body_base64":"eA==","truncated":true,"size":9}`, wire.InputInvalid, "/digest", nil},
		{"large report", report, `{` + token + `,"outcome":"succeeded","body":"` + strings.Repeat("x", 17<<20) + `"}`, wire.PayloadTooLarge, "", nil},
		{"no such flight", "/v1/flights/fl_zzz/report", `{` + token + `,"outcome":"succeeded"}`, wire.NotFound, "", nil},

		{"no verification", verification, `{"result":"happened"}`, wire.InputInvalid, "/verification", nil},
		{"not a verification", verification, `{"verification":"x","result":"happened"}`, wire.InputInvalid, "/verification", nil},
		{"effect that did not happen", verification, `{"verification":"x","result":"not_happened","external_id":"ch_1"}`, wire.InputInvalid, "/result", nil},
		{"effect that nobody knows of", verification, `{"verification":"x","result":"unknown","body":{"id":"ch_1"}}`, wire.InputInvalid, "/result", nil},
		{"not_after of a verification without a nonce", verification, `{"verification":"x","result":"not_happened","not_after":1}`, wire.InputInvalid, "/not_after", nil},
		{"null as what did not happen", verification, `{"verification":"x","result":"not_happened","body":null}`, wire.InputInvalid, "/result", nil},

		{"session ttl", "/v1/sessions", `{"ttl_ms":1}`, wire.InputInvalid, "/ttl_ms", nil},

		{"malformed If-Match", doubt + "/resolve", `{"result":"fail","reason":"x"}`, wire.InputInvalid, "If-Match", header{"If-Match", "8123.4"}},
		{"approval without If-Match", doubt + "/approve", "{}", wire.PreconditionRequired, "If-Match", nil},
		{"expiry of an approval", "/v1/flights:open", `{"action":"charge","id":"bad","approval":{"expires_ms":-1}}`, wire.InputInvalid, "/approval/expires_ms", nil},
		{"an approval that expires in two years", "/v1/flights:submit", `{"action":"charge","id":"bad","approval":{"expires_ms":63072000000}}`, wire.InputInvalid, "/approval/expires_ms", nil},
		{"an approval that is a word", "/v1/flights:submit", `{"action":"charge","id":"bad","approval":true}`, wire.InputInvalid, "/approval", nil},
		{"receipt of nothing", doubt + "/resolve", `{"result":"fail","reason":"x","body":1}`, wire.InputInvalid, "/result", header{"If-Match", etag}},
	}
	before := d.fake.Snapshot()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			class, _ := c.code.Class()
			r := d.post(c.path, c.body, c.header...)
			p := requireProblem(t, r, class.Status, c.code)
			require.Equal(t, before, d.fake.Snapshot(), "nothing has changed")
			if c.code == wire.NotFound {
				return
			}
			require.Len(t, p.Errors, 1)
			require.NotEmpty(t, p.Errors[0].Detail)
			require.Equal(t, c.at, p.Errors[0].Pointer+p.Errors[0].Header)
		})
	}

	// A late report with a valid token is stored as evidence and changes nothing else.
	r := d.report(queued, `"outcome":"succeeded","external_id":"late"`)
	require.Equal(t, http.StatusOK, r.status, "still the newest attempt: invariant I8")
	r = d.report(queued, `"outcome":"succeeded","external_id":"other"`)
	requireProblem(t, r, http.StatusConflict, wire.Fenced)

	p := requireProblem(t, d.get("/v1/flights/"+open.FlightID, "If-None-Match", "x"), http.StatusBadRequest, wire.InputInvalid)
	require.Equal(t, "If-None-Match", p.Errors[0].Header)
}

func (ts *testServer) flightID(key string) string {
	ts.t.Helper()
	var f wire.Flight
	require.NoError(ts.t, json.Unmarshal(ts.get("/v1/flights?key=default/"+key).body, &f))
	return f.ID
}

// forge returns the token with another attempt number.
func forge(token string) string {
	b := []byte(token)
	b[31] ^= 1
	return string(b)
}
