package openapitest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
)

func newChecker(t *testing.T) *Checker {
	t.Helper()
	c, err := New(docs.OpenAPI)
	require.NoError(t, err)
	return c
}

const digest = "49ec49fe2ad166ef0b18ff7d94291ca8"

// good returns an exchange that conforms to the document.
func good() *Exchange {
	return &Exchange{
		Method: "POST", URL: &url.URL{Path: "/v1/sessions/s/renew"},
		RequestHeader: http.Header{"Content-Type": {"application/json"}}, RequestBody: []byte(`{"open_digest":"` + digest + `"}`),
		Status: 200, Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"}, "Cache-Control": {"no-store"},
			"Flightd-Ledger-Time": {"1769860830000"}, "Flightd-Index": {"1-7"}},
		Body: []byte(`{"session":"s","trust_ms":1,"renew_every_ms":2,"open_digest":"` + digest + `"}`),
	}
}

// Each difference from the document is an error.
func TestCheckerSeesWhatIsWrong(t *testing.T) {
	c := newChecker(t)
	require.NoError(t, c.Check(good()))
	problem := func(body string) func(*Exchange) {
		return func(x *Exchange) {
			x.Status, x.Body = 410, []byte(body)
			x.Header.Set("Content-Type", "application/problem+json")
		}
	}
	for name, c2 := range map[string]struct {
		spoil func(*Exchange)
		says  string
	}{
		"a field that is not there": {func(x *Exchange) { x.Body = []byte(`{"session":"s","trust_ms":1,"open_digest":"` + digest + `"}`) }, "renew_every_ms"},
		"a field that is not known": {func(x *Exchange) {
			x.Body = []byte(`{"session":"s","trust_ms":1,"renew_every_ms":2,"open_digest":"` + digest + `","new":3}`)
		}, "new"},
		"a field of another type": {func(x *Exchange) {
			x.Body = []byte(`{"session":"s","trust_ms":"1","renew_every_ms":2,"open_digest":"` + digest + `"}`)
		}, "trust_ms"},
		"no JSON":                       {func(x *Exchange) { x.Body = []byte(`{`) }, "EOF"},
		"a header that is not known":    {func(x *Exchange) { x.Header.Set("X-New", "1") }, "X-New"},
		"a header that is not there":    {func(x *Exchange) { x.Header.Del("Cache-Control") }, "Cache-Control"},
		"a header with another value":   {func(x *Exchange) { x.Header.Set("Cache-Control", "public") }, "Cache-Control"},
		"a status that is not known":    {func(x *Exchange) { x.Status = 202 }, "202"},
		"another content type":          {func(x *Exchange) { x.Header.Set("Content-Type", "text/plain") }, "text/plain"},
		"a request with unknown field":  {func(x *Exchange) { x.RequestBody = []byte(`{"new":1}`) }, "new"},
		"a parameter that is not known": {func(x *Exchange) { x.URL.RawQuery = "a=1" }, "[1]"},
		"another code":                  {problem(`{"type":"/problems/expired","title":"t","status":410,"code":"expired","retryable":false}`), "lease_lost"},
		"a code of another shape":       {problem(`{"code":"lease_lost"}`), "type"},
		"a path that is not known":      {func(x *Exchange) { x.URL.Path = "/v1/new" }, "/v1/new"},
	} {
		x := good()
		c2.spoil(x)
		err := c.Check(x)
		require.Error(t, err, name)
		require.ErrorContains(t, err, c2.says, name)
	}
	require.NotContains(t, c.Unseen(), "renewSession 200")
	require.Contains(t, c.Unseen(), "getReceipt 200")
}

// A script binds placeholders, sends them and compares answers.
func TestScript(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Seen", r.URL.Path+" "+r.Header.Get("Ask"))
		w.WriteHeader(201)
		_, _ = w.Write([]byte(`{"id":"x-7","n":12345678901,"list":[{"a":null},true]}`))
	}))
	defer server.Close()
	run := func(text string) error {
		scripts, err := Parse(text)
		if err != nil {
			return err
		}
		return scripts[0].Run(context.Background(), server.Client(), server.URL, nil)
	}
	const ask = "### t\n> GET /a\n< 201\n"
	require.NoError(t, run(ask+`{"id":"x-<n>","n":12345678901,"list":[{"a":null},true]}`+"\n> POST /b/<n>\n> Ask: <n>!\n{}\n// and\n< 201\n< Seen: /b/7 7!\n"+`{"id":"<>","...":"..."}`))
	for name, text := range map[string]string{
		"status": "### t\n> GET /a\n< 200\n", "header": ask + "< Seen: /b", "more": ask + `{"id":"<x>"}`, "less": ask + `{"new":1,"...":"..."}`,
		"value": ask + `{"id":"y","...":"..."}`, "number": ask + `{"n":1,"...":"..."}`, "list": ask + `{"list":[{"a":null}],"...":"..."}`,
		"inside": ask + `{"list":[{"a":1},true],"...":"..."}`, "learned": ask + `{"id":"<n>","n":"<n>","...":"..."}`, "type": ask + `{"n":"12345678901","...":"..."}`,
		"before": "> GET /a", "no request": "### t\n< 200", "no status": "### t\n> GET /a\n< ok", "no header": "### t\n> GET /a\n> x", "no path": "### t\n> GET",
	} {
		require.Error(t, run(text), name)
	}
}

// A stream is read up to the last line of the script.
func TestScriptOfAStream(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("retry: 1\n\nid: 8.1\ndata: {\"a\":1}\n\nid: 8.2\ndata: {\"a\":2}\n\n"))
		if r.URL.Path == "/open" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	for text, good := range map[string]bool{
		"> GET /open\n< 200\nid: <id>\ndata: {\"a\":2}": true,
		"> GET /a\n< 200\ndata: {\"a\":2}\nid: <id>":    false,
		"> GET /a\n< 200\ndata: {\"a\":3}":              false,
	} {
		scripts, err := Parse("### t\n" + text)
		require.NoError(t, err)
		err = scripts[0].Run(t.Context(), server.Client(), server.URL, nil)
		require.Equal(t, good, err == nil, "%s: %v", text, err)
	}
}

// Each message of a stream is checked separately.
func TestMessages(t *testing.T) {
	var got []string
	for m := range streamMessages([]byte("retry: 1\n\nevent: gap\nid: 8.1\ndata: {}\n\n: still here\n\ndata: []\n\ndata: cut o")) {
		got = append(got, string(m))
	}
	require.Equal(t, []string{"{}\n", "[]\n"}, got)
}
