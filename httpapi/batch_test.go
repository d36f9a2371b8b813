package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

const ndjson = "application/x-ndjson"

// batch sends lines and returns their answers by line.
func (ts *testServer) batch(lines []string, header ...string) []wire.BatchAnswer {
	ts.t.Helper()
	r := ts.post("/v1/flights:batch", strings.Join(lines, "\n"), append([]string{"Content-Type", ndjson}, header...)...)
	require.Equal(ts.t, http.StatusOK, r.status, "%s", r.body)
	return batchAnswers(ts.t, r, len(lines))
}

func batchAnswers(t *testing.T, r reply, n int) []wire.BatchAnswer {
	t.Helper()
	require.Equal(t, ndjson, r.header.Get("Content-Type"))
	answers := make([]wire.BatchAnswer, n)
	for text := range bytes.Lines(r.body) {
		a, err := wire.DecodeBatchAnswer(text)
		require.NoError(t, err, "%s", text)
		require.Zero(t, answers[a.Line-1].Line, "line %d is answered twice", a.Line)
		answers[a.Line-1] = a
	}
	for i, a := range answers {
		require.Equal(t, i+1, a.Line, "line %d has an answer", i+1)
	}
	return answers
}

// volatile matches what differs between two servers that were asked the same.
var volatile = regexp.MustCompile(`req_[0-9a-z]+-[0-9a-z]+|"(fencing_token|session|version|idempotency_key|created_at|opened_at|closed_at|finished_at|decided_at|deployment|expires_at|ledger_time|trust_ms|at)":("[^"]*"|[0-9]+)|ledger's time is [^"]*`)

// Each line is answered with the status and the body of its own route. Two servers are asked the same: one in a batch of one line,
// the other by the single route.
func TestBatch_AnswersAsTheSingleRoute(t *testing.T) {
	batched, single := newTestServer(t), newTestServer(t)
	order := `"action":"charge","id":"1"`
	id := flight.MustKey("default/charge/1").FlightID().String()
	unknown := flight.MustKey("default/charge/unknown").FlightID().String()
	long := strings.Repeat("x", 70<<10)
	var deep strings.Builder
	deep.WriteString(strings.Repeat("[", flight.MaxJSONDepth) + strings.Repeat("]", flight.MaxJSONDepth))
	fences := map[*testServer]string{}
	for _, ts := range []*testServer{batched, single} {
		ts.report(ts.proceed(`{"action":"charge","id":"lines"}`), "\"outcome\":\"succeeded\",\"body\":{\n\t\"a\":1\r\n}")
	}
	for _, c := range []struct {
		verb, id, body string
		status         int
	}{
		{"open", "", `{` + order + `,"input":{"a": 1},"nonce":"n1"}`, 201},
		{"open", "", `{` + order + `,"input":{"a": 1},"nonce":"n1"}`, 201}, // the same again
		{"open", "", `{` + order + `,"input":{"a":1},"nonce":"n2","wait_ms":0}`, 409},
		{"open", "", `{` + order + `,"input":{"a":2},"nonce":"n3"}`, 422},
		{"open", "", `{"action":"charge","id":"2","nonce":"n","not_after":1}`, 409},
		{"open", "", `{"action":"charge","id":"3","input":` + deep.String() + `}`, 201},
		{"open", "", `{"action":"charge","id":"3","input":[` + deep.String() + `]}`, 400},
		{"open", "", `{"action":"charge"}`, 400},
		{"open", "", `{"id":"1"}`, 400},
		{"open", "", `{` + order + `,"unknown":1}`, 400},
		{"open", "", `{` + order + `,"action":"refund"}`, 400},
		{"open", "", `{` + order + `,"input":{"a":1,"a":2}}`, 400},
		{"open", "", `{` + order + `,"owner":5}`, 400},
		{"open", "", `{` + order + `,"wait_ms":-1}`, 400},
		{"open", "", `{"action":"` + long + `","id":"1"}`, 400},
		{"open", "", `{` + order + `,"session":"no such session","nonce":"n4"}`, 422},
		{"open", "", `{"action":"charge","id":"5","session":"no such session","nonce":"n4"}`, 410},
		{"open", "", `"text"`, 400},
		{"open", "", `[]`, 400},
		{"abandon", "", `{"action":"charge","id":"6","nonce":"n","not_after":{not_after}}`, 200},
		{"abandon", "", `{"action":"charge","id":"6","not_after":1}`, 400},
		{"abandon", "", `{"action":"charge","id":"6","nonce":"` + strings.Repeat("n", 256) + `"}`, 400},
		{"abandon", "", `{"action":"charge","id":"6","nonce":"n","reason":"` + long + `"}`, 413},
		{"report", id, `{"fencing_token":"{fence}","outcome":"wonderful"}`, 400},
		{"report", id, `{"outcome":"succeeded"}`, 400},
		{"report", id, `{"fencing_token":"forged","outcome":"succeeded"}`, 400},
		{"report", unknown, `{"fencing_token":"forged","outcome":"succeeded"}`, 400},
		{"report", "fl_nonsense", `{"fencing_token":"forged","outcome":"succeeded"}`, 404},
		{"report", id, `{"fencing_token":"{fence}","key":"default/charge/2","outcome":"succeeded"}`, 400},
		{"report", id, `{"fencing_token":"{fence}","key":"default/charge/1","outcome":"succeeded","external_id":"ch_1","body":{"a": ["` + long + `"]}}`, 200},
		{"report", id, `{"fencing_token":"{fence}","key":"default/charge/1","outcome":"succeeded","external_id":"ch_1","body":{"a": ["` + long + `"]}}`, 200},
		{"report", id, `{"fencing_token":"{fence}","outcome":"refused"}`, 409},
		{"open", "", `{` + order + `,"input":{"a":1}}`, 200},
		{"open", "", `{"action":"charge","id":"lines","nonce":"n"}`, 200}, // its receipt has line breaks
	} {
		t.Run(fmt.Sprintf("%s %.60s", c.verb, c.body), func(t *testing.T) {
			fill := func(ts *testServer) string {
				notAfter := fmt.Sprint(int64(ts.fake.Ledger.Now()) + 10_000)
				return strings.NewReplacer("{fence}", fences[ts], "{not_after}", notAfter).Replace(c.body)
			}
			line, path := `{"`+c.verb+`":`+fill(batched), "/v1/flights:"+c.verb
			if c.id != "" {
				line, path = line+`,"flight_id":"`+c.id+`"`, "/v1/flights/"+c.id+"/report"
			}
			one := single.post(path, fill(single))
			a := batched.batch([]string{line + "}"})[0]
			require.Equal(t, c.status, one.status, "%s", one.body)
			require.Equal(t, one.status, a.Status, "%s", a.Body)
			require.Equal(t, volatile.ReplaceAllString(string(one.body), "*"), volatile.ReplaceAllString(string(a.Body), "*"))
			require.NotEmpty(t, a.Index)
			if fences[single] == "" {
				fences[single], fences[batched] = decodeBody[wire.OpenAnswer](t, one).FencingToken, decodeBody[wire.OpenAnswer](t, reply{body: a.Body}).FencingToken
			}
		})
	}
}

// A malformed line has a problem of its own, and the other lines are carried out.
func TestBatch_MalformedLines(t *testing.T) {
	world := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(world.Config())) // unwatched: these lines are not as documented
	t.Cleanup(server.Close)
	d := &testServer{t: t, fake: world, url: server.URL}
	bad := map[string]string{
		``:                      "empty",
		`   `:                   "empty",
		`nonsense`:              "the line is not a JSON object",
		`[]`:                    "the line is not a JSON object",
		`{}`:                    "0 requests",
		`{"open":null}`:         "0 requests",
		`{"open":{}`:            "unexpected end",
		`{"open":{}} {}`:        "trailing data",
		`{"open":{},"open":{}}`: "/open: duplicate field",
		`{"verify":{}}`:         "/verify: unknown field",
		`{"open":{"action":"charge","id":"x"},"abandon":{}}`: "2 requests",
		`{"report":{}}`: "/flight_id: missing",
		`{"report":{},"flight_id":"../sessions/x"}`:     "/flight_id: missing or malformed",
		`{"open":{},"flight_id":"fl_1"}`:                "/flight_id: allowed only with report",
		`{"open":{},"namespace":7}`:                     "/namespace: unexpected type",
		`{"open":{"action":"c","id":"\ud800"}}`:         "/open/id: invalid",
		"{\"open\":{\"action\":\"c\",\"id\":\"\xff\"}}": "/open/id: invalid",
	}
	var lines, details []string
	for line, detail := range bad {
		good := fmt.Sprintf(`{"open":{"action":"charge","id":"good-%d"}}`, len(lines))
		lines, details = append(lines, line, good), append(details, detail, "")
	}
	for i, a := range d.batch(lines) {
		if details[i] == "" {
			require.Equal(t, http.StatusCreated, a.Status, "%s", a.Body)
			continue
		}
		var p wire.Problem
		require.NoError(t, json.Unmarshal(a.Body, &p))
		require.Equal(t, http.StatusBadRequest, a.Status, "%s: %s", lines[i], a.Body)
		require.Equal(t, wire.InputInvalid, p.Code, "%s: %s", lines[i], a.Body)
		require.Contains(t, p.Detail, details[i], lines[i])
	}
	require.Nil(t, d.fake.Flight(flight.MustKey("default/charge/x")), "a line with two requests does nothing")
}

// A batch that is too long, or no batch at all, is rejected as a whole, and nothing is opened.
func TestBatch_Bounds(t *testing.T) {
	d := newTestServer(t)
	line := `{"open":{"action":"charge","id":"1"}}`
	kind := []string{"Content-Type", ndjson}
	requireProblem(t, d.post("/v1/flights:batch", ""), http.StatusUnsupportedMediaType, wire.UnsupportedMediaType)
	requireProblem(t, d.post("/v1/flights:batch", "", kind...), http.StatusBadRequest, wire.InputInvalid)
	requireProblem(t, d.post("/v1/flights:batch?dry_run=true", line, kind...), http.StatusBadRequest, wire.InputInvalid)
	tooMany := slices.Repeat([]string{line}, wire.MaxBatchLines+1)
	requireProblem(t, d.post("/v1/flights:batch", strings.Join(tooMany, "\n"), kind...), http.StatusRequestEntityTooLarge, wire.PayloadTooLarge)
	requireProblem(t, d.post("/v1/flights:batch", line+"\n"+strings.Repeat(" ", wire.MaxBatchBody), kind...), http.StatusRequestEntityTooLarge, wire.PayloadTooLarge)
	require.Nil(t, d.fake.Flight(flight.MustKey("default/charge/1")))

	most := make([]string, wire.MaxBatchLines)
	for i := range most {
		most[i] = fmt.Sprintf(`{"open":{"action":"charge","id":"%d"}}`, i)
	}
	for _, a := range d.batch(most) {
		require.Equal(t, http.StatusCreated, a.Status, "%s", a.Body)
	}
}

// The answer to a line is written when it is done, and an open that has to wait for another caller is answered at once.
func TestBatch_StreamsAndIsBusyAtOnce(t *testing.T) {
	d := newTestServer(t)
	held := d.proceed(`{"action":"charge","id":"held"}`)
	hold := make(chan struct{})
	d.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(_ context.Context, method string) error {
			if method == "Report" {
				<-hold
			}
			return nil
		}
	})
	lines := `{"report":{"fencing_token":"` + held.FencingToken + `","outcome":"succeeded"},"flight_id":"` + held.FlightID + `"}
{"open":{"action":"charge","id":"held","nonce":"n","wait_ms":55000}}
{"open":{"action":"charge","id":"free"}}
`
	r, err := http.Post(d.url+"/v1/flights:batch", ndjson, strings.NewReader(lines))
	require.NoError(t, err)
	defer r.Body.Close()
	text, read := bufio.NewReader(r.Body), map[int]wire.BatchAnswer{}
	next := func() {
		line, err := text.ReadBytes('\n')
		require.NoError(t, err)
		a, err := wire.DecodeBatchAnswer(line)
		require.NoError(t, err)
		read[a.Line] = a
	}
	next()
	next()
	require.Equal(t, http.StatusConflict, read[2].Status, "%s", read[2].Body)
	var p wire.Problem
	require.NoError(t, json.Unmarshal(read[2].Body, &p))
	require.Equal(t, wire.InFlight, p.Code)
	require.Equal(t, "n", p.Nonce)
	require.False(t, *p.Proposed)
	require.Equal(t, http.StatusCreated, read[3].Status, "%s", read[3].Body)
	require.Zero(t, d.fake.DuplicateStats(flight.MustKey("default/charge/held").FlightID()).Count, "the caller asks again")
	close(hold)
	next()
	require.Equal(t, http.StatusOK, read[1].Status, "%s", read[1].Body)
	_, err = text.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// Namespaces, verbs and limits count for each line.
func TestBatch_LinesAreAllowedOneByOne(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	g.fake.PutDocument(t, auth.LimitsID("billing"), auth.Limits{OpensPerSecond: 1, Burst: 2}.Encode())
	all, billing := g.as(flight.AllNamespaces, "all", auth.AllVerbs), g.as("billing", "one", auth.Submit)
	statuses := func(s *tokenServer, lines []string, header ...string) (all []int) {
		for _, a := range g.batch(lines, append([]string{"Authorization", "Bearer " + s.secret}, header...)...) {
			all = append(all, a.Status)
		}
		return all
	}
	open := func(id, more string) string { return `{"open":{"action":"charge","id":"` + id + `"}` + more + `}` }
	require.Equal(t, []int{201, 201, 201}, statuses(all, []string{open("1", ""), open("1", `,"namespace":"shipping"`), open("1", `,"namespace":"default"`)}, "Flightd-Namespace", "other"))
	require.NotNil(t, g.fake.Flight(flight.MustKey("other/charge/1")))
	require.NotNil(t, g.fake.Flight(flight.MustKey("shipping/charge/1")))
	require.NotNil(t, g.fake.Flight(flight.MustKey("default/charge/1")))
	require.Equal(t, []int{403, 201, 403}, statuses(billing, []string{open("2", `,"namespace":"shipping"`), open("2", `,"namespace":"billing"`), open("2", `,"namespace":"no such"`)}))
	limited := statuses(billing, []string{open("3", ""), open("4", ""), open("5", ""), open("6", ""), open("7", "")})
	require.Contains(t, limited, 201, "one of the burst of two is left")
	require.Contains(t, limited, 429)
	reader := g.as("billing", "reader", auth.Read)
	requireProblem(t, reader.do("POST", "/v1/flights:batch", open("7", ""), "Content-Type", ndjson), http.StatusForbidden, wire.Forbidden)
	requireProblem(t, g.post("/v1/flights:batch", open("7", ""), "Content-Type", ndjson), http.StatusUnauthorized, wire.Unauthenticated)
}
