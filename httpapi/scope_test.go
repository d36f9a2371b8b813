package httpapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// spelling is one way to ask for something of another namespace. {id} is the id of the target, {key} its key, {escaped}
// the key with every byte percent-encoded, {order} the id part of the key.
type spelling struct {
	name, method, path, body string
	header                   []string
}

// spellings are the ways in which a caller of billing asks for a flight of shipping by its id or its key.
func spellings(fence, verify string) []spelling {
	const events = "text/event-stream"
	tag := []string{"If-Match", `"1.0"`}
	reason := func(more string) string { return `{"reason":"because"` + more + `}` }
	return []spelling{
		{"get", "GET", "/v1/flights/{id}", "", nil},
		{"head", "HEAD", "/v1/flights/{id}", "", nil},
		{"get any version", "GET", "/v1/flights/{id}", "", []string{"If-None-Match", "*"}},
		{"get the version", "GET", "/v1/flights/{id}", "", []string{"If-None-Match", `"2.0", "3.0", "4.0"`}},
		{"wait for a change", "GET", "/v1/flights/{id}", "", []string{"If-None-Match", "*", "Prefer", "wait=1"}},
		{"input", "GET", "/v1/flights/{id}/input", "", nil},
		{"receipt", "GET", "/v1/flights/{id}/receipt", "", nil},
		{"head of the receipt", "HEAD", "/v1/flights/{id}/receipt", "", nil},
		{"events", "GET", "/v1/flights/{id}/events", "", nil},
		{"events after", "GET", "/v1/flights/{id}/events?after=1.0", "", []string{"Prefer", "wait=1"}},
		{"stream of events", "GET", "/v1/flights/{id}/events", "", []string{"Accept", events}},
		{"resumed stream", "GET", "/v1/flights/{id}/events", "", []string{"Accept", events, "Last-Event-ID", "1.0"}},
		{"own namespace in the header", "GET", "/v1/flights/{id}", "", []string{"Flightd-Namespace", "billing"}},
		{"other namespace in the header", "GET", "/v1/flights/{id}", "", []string{"Flightd-Namespace", "shipping"}},
		{"all namespaces in the header", "GET", "/v1/flights/{id}", "", []string{"Flightd-Namespace", "*"}},
		{"two namespaces", "GET", "/v1/flights/{id}", "", []string{"+Flightd-Namespace", "billing", "+Flightd-Namespace", "shipping"}},
		{"a list of namespaces", "GET", "/v1/flights/{id}", "", []string{"Flightd-Namespace", "billing,shipping"}},
		{"another case", "GET", "/v1/flights?key={key}", "", []string{"Flightd-Namespace", "SHIPPING"}},
		{"escaped id", "GET", "/v1/flights/%66l_{id}", "", nil},
		{"id with a byte", "GET", "/v1/flights/{id}%00", "", nil},
		{"id with a slash", "GET", "/v1/flights/{id}%2F", "", nil},
		{"path with dots", "GET", "/v1/flights/./{id}", "", nil},
		{"path with an empty segment", "GET", "/v1//flights/{id}", "", nil},
		{"key", "GET", "/v1/flights?key={key}", "", nil},
		{"head of the key", "HEAD", "/v1/flights?key={key}", "", nil},
		{"escaped key", "GET", "/v1/flights?key={escaped}", "", nil},
		{"key and any version", "GET", "/v1/flights?key={key}", "", []string{"If-None-Match", "*"}},
		{"key in the own namespace", "GET", "/v1/flights?key=billing%2F{key}", "", nil},
		{"key in upper case", "GET", "/v1/flights?key=SHIPPING/charge/{order}", "", nil},
		{"key twice", "GET", "/v1/flights?key=billing/charge/1&key={key}", "", nil},
		{"key prefix", "GET", "/v1/flights?key_prefix={key}", "", nil},
		{"short key prefix", "GET", "/v1/flights?key_prefix=sh", "", nil},
		{"list of all namespaces", "GET", "/v1/flights", "", []string{"Flightd-Namespace", "*"}},
		{"list of the other namespace", "GET", "/v1/flights?action=charge", "", []string{"Flightd-Namespace", "shipping"}},
		{"events of all namespaces", "GET", "/v1/events", "", []string{"Flightd-Namespace", "*"}},
		{"events with a key prefix", "GET", "/v1/events?key_prefix={key}", "", nil},
		{"stream of all namespaces", "GET", "/v1/events?last=100", "", []string{"Flightd-Namespace", "*", "Accept", events}},
		{"report", "POST", "/v1/flights/{id}/report", `{"fencing_token":"` + fence + `","outcome":"succeeded"}`, nil},
		{"report with the key", "POST", "/v1/flights/{id}/report", `{"fencing_token":"` + fence + `","key":"{key}","outcome":"succeeded"}`, nil},
		{"report with a forged token", "POST", "/v1/flights/{id}/report", `{"fencing_token":"x","outcome":"succeeded"}`, nil},
		{"verification", "POST", "/v1/flights/{id}/verification", `{"verification":"` + verify + `","result":"happened"}`, nil},
		{"resolve", "POST", "/v1/flights/{id}/resolve", reason(`,"result":"fail"`), tag},
		{"approve", "POST", "/v1/flights/{id}/approve", reason(""), tag},
		{"reject", "POST", "/v1/flights/{id}/reject", reason(""), tag},
		{"approvals with a key prefix", "GET", "/v1/approvals?key_prefix={key}", "", nil},
		{"approvals of all namespaces", "GET", "/v1/approvals", "", []string{"Flightd-Namespace", "*"}},
		{"cancel", "POST", "/v1/flights/{id}/cancel", reason(""), tag},
		{"cancel with the key", "POST", "/v1/flights/{id}/cancel", reason(`,"key":"{key}"`), tag},
		{"retry", "POST", "/v1/flights/{id}/retry", reason(""), tag},
		{"free with the key", "POST", "/v1/flights/{id}/free", reason(`,"key":"{key}"`), tag},
		{"redact", "POST", "/v1/flights/{id}/redact", reason(""), tag},
		{"open", "POST", "/v1/flights:open", `{"action":"charge","id":"{order}"}`, []string{"Flightd-Namespace", "shipping"}},
		{"open with the action as a path", "POST", "/v1/flights:open", `{"action":"../shipping/charge","id":"{order}"}`, nil},
		{"abandon", "POST", "/v1/flights:abandon", `{"action":"charge","id":"{order}","nonce":"n","not_after":1}`, []string{"Flightd-Namespace", "shipping"}},
		{"import", "POST", "/v1/flights:import", `{"key":"{key}","outcome":"succeeded"}`, []string{"Content-Type", "application/x-ndjson"}},
		{"import with the header", "POST", "/v1/flights:import", `{"key":"{key}","outcome":"succeeded"}`, []string{"Content-Type", "application/x-ndjson", "Flightd-Namespace", "shipping"}},
		{"dry import", "POST", "/v1/flights:import?dry_run=true", `{"key":"{key}","outcome":"succeeded"}`, []string{"Content-Type", "application/x-ndjson"}},
		{"token", "DELETE", "/v1/tokens/shipping/{order}", reason(""), nil},
		{"new token", "POST", "/v1/tokens", `{"name":"{order}","namespace":"shipping","rotate":true,"reason":"r"}`, nil},
		{"limits", "GET", "/v1/namespaces/shipping", "", nil},
	}
}

// anyFlightID matches the id of the flight that the request names by a key.
var anyFlightID = regexp.MustCompile(`fl_[a-z2-7]{26}`)

// A token of one namespace is refused everything of another one, and cannot tell whether a key exists there: the same
// bytes and the same headers, whatever the state of the flight.
func TestNamespaces_CannotSeeEachOther(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	owner, spy := g.as("shipping", "owner", auth.AllVerbs), g.as("billing", "spy", auth.AllVerbs)
	spy.proceed(`{"action":"charge","id":"1"}`)
	existing := map[string]string{}
	open := func(state, more string) wire.OpenAnswer {
		existing[state] = "order-" + state
		return owner.proceed(`{"action":"charge","id":"order-` + state + `"` + more + `}`)
	}
	running := open("running", "")
	owner.report(open("succeeded", ""), "succeeded")
	owner.report(open("refused", ""), "refused")
	owner.report(open("doubt", ""), "unknown")
	f := decodeBody[wire.Flight](t, owner.report(open("freed", ""), "succeeded"))
	require.Equal(t, http.StatusOK, owner.do("POST", "/v1/flights/"+f.ID+"/free", `{"reason":"again"}`, "If-Match", `"`+f.Version+`"`).status)
	require.Equal(t, http.StatusOK, owner.report(open("expired", `,"retention":"1s"`), "succeeded").status)
	owner.report(open("verify", `,"recovery":"verify","settle_ms":1`), "unknown")
	g.fake.Ledger.Advance(10 * time.Second)
	tombstone := owner.do("GET", "/v1/flights?key=shipping/charge/order-expired", "")
	require.Equal(t, "expired", tombstone.header.Get("Flightd-State"), "its owner finds a tombstone by its key")
	require.Equal(t, http.StatusNotFound, owner.do("GET", "/v1/flights/"+flight.MustKey("shipping/charge/order-expired").FlightID().String(), "").status, "and not by its id")
	looked := owner.do("POST", "/v1/flights:open", `{"action":"charge","id":"order-verify","recovery":"verify","settle_ms":1}`)
	verification := decodeBody[wire.OpenAnswer](t, looked).Verification
	require.NotEmpty(t, verification)
	g.fake.Issue(t, "shipping", "order-running", auth.Read, 0)
	before := g.fake.Snapshot()

	ask := func(s spelling, order string) string {
		key := flight.MustKey("shipping/charge/" + order)
		id := key.FlightID().String()
		var escaped strings.Builder
		for _, c := range []byte(key.String()) {
			fmt.Fprintf(&escaped, "%%%02X", c)
		}
		fill := strings.NewReplacer("%66l_{id}", "%66"+id[1:], "{id}", id, "{key}", key.String(), "{escaped}", escaped.String(), "{order}", order)
		var header []string
		for _, h := range s.header {
			header = append(header, fill.Replace(h))
		}
		started := time.Now()
		r := spy.do(s.method, fill.Replace(s.path), fill.Replace(s.body), header...)
		require.GreaterOrEqual(t, r.status, 400, "%s %s: %s", s.name, order, r.body)
		require.Less(t, r.status, 500, "%s %s: %s", s.name, order, r.body)
		require.Empty(t, r.header.Get("Flightd-State"), "%s %s", s.name, order)
		require.Empty(t, r.header.Get("ETag"), "%s %s", s.name, order)
		if r.status == http.StatusNotFound && bytes.Contains(r.body, []byte("the namespace of the token has no such flight")) {
			require.GreaterOrEqual(t, time.Since(started), 5*time.Millisecond, "%s %s", s.name, order)
		}
		text := withoutRequestID(r)
		for _, own := range []string{escaped.String(), key.String(), id, order} { // what the request named itself
			text = strings.ReplaceAll(text, own, "TARGET")
		}
		return anyFlightID.ReplaceAllString(text, "TARGET")
	}
	all := spellings(running.FencingToken, verification)
	require.GreaterOrEqual(t, len(all), 40)
	for _, s := range all {
		missing := ask(s, "order-missing")
		for state, order := range existing {
			require.Equal(t, missing, ask(s, order), "%s of a flight that is %s", s.name, state)
		}
	}
	require.Equal(t, before, g.fake.Snapshot())

	for _, path := range []string{"/v1/flights", "/v1/flights?state=running,in_doubt,succeeded,failed", "/v1/events?last=1000", "/v1/events?after=0.0&limit=1000", "/v1/audit"} {
		r := spy.do("GET", path, "")
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		require.NotContains(t, string(r.body), "shipping", path)
	}
}

// The cursor of a page does not show which flight of another namespace the page ended at, and only its own namespace can
// use it.
func TestCursor_BelongsToTheNamespace(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	owner, spy, all := g.as("shipping", "owner", auth.AllVerbs), g.as("billing", "spy", auth.AllVerbs), g.as("*", "all", auth.AllVerbs)
	for id := range 3 {
		owner.proceed(fmt.Sprintf(`{"action":"charge","id":"%d"}`, id))
		spy.proceed(fmt.Sprintf(`{"action":"charge","id":"%d"}`, id))
	}
	page := decodeBody[wire.FlightPage](t, owner.do("GET", "/v1/flights?limit=2", ""))
	raw, err := base64.RawURLEncoding.DecodeString(page.Next)
	require.NoError(t, err)
	last := flight.MustKey(page.Flights[1].Key).FlightID()
	require.NotContains(t, string(raw), string(last[:]))
	rest := decodeBody[wire.FlightPage](t, owner.do("GET", "/v1/flights?limit=2&cursor="+page.Next, ""))
	require.Len(t, rest.Flights, 1)
	plain := decodeBody[wire.FlightPage](t, all.do("GET", "/v1/flights?limit=2", "", "Flightd-Namespace", "*")).Next
	for _, cursor := range []string{page.Next, plain, "", "AAAA", page.Next + "A"} {
		requireProblem(t, spy.do("GET", "/v1/flights?limit=2&cursor="+cursor, ""), http.StatusBadRequest, wire.InputInvalid)
	}
}

// Events of documents are for administrators, of their own namespace.
func TestEvents_OfDocumentsNeedAdmin(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	reader, admin := g.as("billing", "reader", auth.Read), g.as("billing", "admin", auth.Read|auth.Admin)
	g.as("shipping", "other", auth.Read)
	require.NotContains(t, string(reader.do("GET", "/v1/events?last=100", "").body), "document")
	shown := string(admin.do("GET", "/v1/events?last=100", "").body)
	require.Contains(t, shown, `"document":"billing/token/reader"`)
	require.NotContains(t, shown, "shipping")
}

// A stream ends when its token is revoked: no event is written after that.
func TestStream_EndsWithItsToken(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{}, func(c *httpapi.Config) { c.Events.Heartbeat = 20 * time.Millisecond })
	owner := g.as("billing", "owner", auth.AllVerbs)
	a := owner.proceed(`{"action":"charge","id":"1"}`)
	for _, path := range []string{"/v1/events", "/v1/flights/" + a.FlightID + "/events"} {
		reader := g.as("billing", "reader", auth.Read)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+reader.secret)
		req.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		g.fake.Apply(t, &flight.DeleteDocument{ID: auth.TokenID("billing", "reader"), Expect: g.documentVersion(auth.TokenID("billing", "reader"))})
		_, err = io.Copy(io.Discard, resp.Body) // returns when the server ends the stream
		require.NoError(t, err, "%s", path)
		resp.Body.Close()
		cancel()
	}
}

// documentVersion returns the version of a document.
func (g *guardedServer) documentVersion(id flight.DocumentID) flight.Version {
	cfg := g.fake.Config()
	return cfg.Documents.Document(id).Version
}

// safeBuffer is a buffer for the log of a server.
type safeBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// take returns the text and removes it.
func (b *safeBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.String()
	b.Reset()
	return text
}

// A secret is in no log line and in no error, wherever a request has it: in the right header, in another one, in the URL,
// or in the body.
func TestSecrets_AreNeverShown(t *testing.T) {
	log := &safeBuffer{}
	g := newGuardedServer(t, auth.NodeLimits{}, func(c *httpapi.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	web := g.as("billing", "web", auth.AllVerbs)
	canary := auth.NewSecret("billing")
	opened := web.proceed(`{"action":"charge","id":"1"}`)
	redacted := false
	check := func(where string, r reply) {
		t.Helper()
		lines := log.take()
		redacted = redacted || strings.Contains(lines, "fltd_(hidden)")
		for _, secret := range []string{web.secret, canary} {
			for _, part := range []string{secret, secret[:20], secret[len(secret)-16:]} {
				require.NotContains(t, lines, part, where)
				require.NotContains(t, string(r.body), part, where)
				require.NotContains(t, fmt.Sprint(r.header), part, where)
			}
		}
	}
	headers := []string{"X-Request-Id", "Traceparent", "Flightd-Namespace", "Flightd-Actor", "Flightd-Deployment", "If-Match", "If-None-Match", "Idempotency-Key",
		"Prefer", "Accept", "Last-Event-ID", "Cookie", "Content-Type", "Proxy-Authorization", "X-" + canary, "User-Agent", "Referer", "Authorization", "+Authorization"}
	for _, header := range headers {
		for _, value := range []string{canary, "Bearer " + canary, `"` + canary + `"`, "Basic " + canary, canary[:30]} {
			for _, target := range []string{"GET /v1/flights", "POST /v1/flights:open", "GET /v1/flights/" + opened.FlightID, "GET /problems/internal", "GET /nowhere", "POST /v1/sessions"} {
				method, path, _ := strings.Cut(target, " ")
				check(header+" "+target, web.do(method, path, `{"action":`, header, value))
				check(header+" "+target, g.send(method, path, `{"action":`, header, value))
			}
		}
	}
	for _, path := range []string{"/v1/flights?key=" + canary, "/v1/flights?" + canary + "=1", "/v1/flights?cursor=" + canary, "/v1/flights/" + canary, "/" + canary,
		"/v1/flights?key=billing/charge/" + url.QueryEscape("fltd%5F"+canary[5:]), "/v1/events?after=" + canary, "/problems/" + canary, "/v1/tokens/billing/" + canary, "/readyz?verbose=" + canary} {
		check(path, web.do("GET", path, ""))
		check(path, g.send("GET", path, ""))
		check(path, web.do("DELETE", path, `{"reason":"r"}`))
	}
	for _, body := range []string{`"%s"`, `{"%s":1}`, `{"action":"%s %[1]s","id":"1"}`, `{"action":"charge","id":"%s 1"}`, `{"action":"charge","id":"1","recovery":"%s"}`,
		`{"action":"charge","id":"1","wait_ms":0,"session":"%s"}`, `{"action":"charge","id":"1","fingerprint":"%s"}`, `{"action":"charge","id":"1","retention":"%s"}`,
		`{"action":"charge","id":"1","wait_ms":0,"input":"%s"}`, `{"action":"charge","id":"1","input":{"%s":1,"%[1]s":2}}`, `{"fencing_token":"%s","outcome":"succeeded"}`,
		`{"fencing_token":"x","key":"%s","outcome":"succeeded"}`, `{"fencing_token":"x","key":"billing/charge/%s","outcome":"succeeded"}`, `{"fencing_token":"x","outcome":"%s"}`,
		`{"verification":"%s","result":"happened"}`, `{"result":"%s","reason":"r"}`, `{"key":"%s","reason":"r"}`, `{"name":"%s/","reason":"r"}`,
		`{"name":"x","verbs":["%s"],"reason":"r"}`, `{"name":"x","namespace":"%s","reason":"r"}`, `%s`} {
		text := fmt.Sprintf(body, canary)
		for _, path := range []string{"/v1/flights:open", "/v1/flights:abandon", "/v1/flights/" + opened.FlightID + "/report", "/v1/flights/" + opened.FlightID + "/verification",
			"/v1/flights/" + opened.FlightID + "/resolve", "/v1/flights/" + opened.FlightID + "/cancel", "/v1/sessions", "/v1/tokens"} {
			check(path+" "+body, web.do("POST", path, text, "If-Match", `"1.0"`))
		}
		check("import "+body, web.do("POST", "/v1/flights:import", text, "Content-Type", "application/x-ndjson"))
	}
	require.True(t, redacted, "the test has found the log")
}
