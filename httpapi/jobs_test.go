package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/saga"
)

// A bad submission, or a bad claim, gets a code and the invalid place. As a line it changes nothing for the others.
func TestJobs_BadInput(t *testing.T) {
	d := newTestServer(t)
	session := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{}`)).Session
	const submits, claims = "/v1/flights:submit", "/v1/flights:claim"
	job := func(fields string) string { return `{"action":"charge","id":"bad",` + fields + `}` }
	claim := func(fields string) string {
		return fmt.Sprintf(`{"session":%q,"nonce":"n","not_after":%d,"wait_ms":0,%s}`, session, time.Now().Add(10*time.Second).UnixMilli(), fields)
	}
	for _, c := range []struct{ path, body, at string }{
		{submits, job(`"priority":9223372036854775808`), "/priority"},
		{submits, job(`"lane_limit":2`), "/lane_limit"},
		{submits, job(`"lane":"a\u0000b"`), "/lane"},
		{submits, job("\"lane\":\"a\xffb\""), ""},
		{submits, job(`"run_at":"10000-01-01T00:00:00Z"`), "/run_at"},
		{submits, job(`"run_at":"1969-12-31T23:59:59Z"`), "/run_at"},
		{submits, job(`"retry":{"attempts":0}`), "/retry/attempts"},
		{submits, job(`"retry":{}`), "/retry/attempts"},
		{submits, job(`"retry":{"attempts":2,"first_ms":9223372036854775807}`), "/retry/first_ms"},
		{claims, claim(`"actions":[],"slots":1`), "/actions"},
		{claims, strings.Replace(claim(`"actions":["charge"],"slots":1`), `"n"`, `"`+strings.Repeat("n", 226)+`"`, 1), "/nonce"},
		{claims, claim(`"actions":["a/b"],"slots":1`), "/actions/0"},
		{claims, claim(`"actions":["charge","charge"],"slots":1`), "/actions/1"},
		{claims, claim(`"actions":["charge"],"without_look_up":["refund"],"slots":1`), "/without_look_up/0"},
		{claims, claim(`"actions":["charge"],"slots":0`), "/slots"},
	} {
		r := d.post(c.path, c.body)
		require.Contains(t, []int{400, 422}, r.status, "%s: %s", c.body, r.body)
		p := decodeBody[wire.Problem](t, r)
		if c.at != "" {
			require.NotEmpty(t, p.Errors, "%s: %s", c.body, r.body)
			require.Equal(t, c.at, p.Errors[0].Pointer, "%s: %s", c.body, r.body)
		}
	}
	require.Equal(t, http.StatusCreated, d.post(submits, `{"action":"charge","id":"year-9999","run_at":"9999-12-31T23:59:59Z"}`).status)
	require.Equal(t, http.StatusCreated, d.post(submits, `{"action":"charge","id":"past","run_at":"1970-01-01T00:00:00Z"}`).status)
	handler := httpapi.New(d.fake.Config())
	sendLines := func(body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, submits, strings.NewReader(body))
		r.Header.Set("Content-Type", wire.TypeNDJSON)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	r := sendLines("{\"action\":\"charge\",\"id\":\"1\"}\n\n{\"action\":\"charge\",\"id\":\"\xff\"}\n" + job(`"priority":1001`) + "\n{\"action\":\"charge\",\"id\":\"2\"}\r\n\n")
	require.Equal(t, http.StatusOK, r.Code)
	header := d.fake.Ledger.Header()
	require.Equal(t, fmt.Sprintf("%d-%d", header.StoreEpoch, header.Version.Index), r.Header().Get(wire.HeaderIndex), "a caller reads what it has submitted")
	got := strings.Split(strings.TrimSpace(r.Body.String()), "\n")
	require.Len(t, got, 5)
	for i, status := range []string{"queued", "input_invalid", "input_invalid", "input_invalid", "queued"} {
		require.Contains(t, got[i], fmt.Sprintf(`"line":%d,`, i+1))
		require.Contains(t, got[i], `"status":"`+status+`"`)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, sendLines(strings.Repeat("{}\n", wire.MaxSubmitLines+1)).Code)
	answer := decodeBody[wire.ClaimAnswer](t, d.post(claims, claim(`"actions":["charge"],"slots":1000`)))
	require.Len(t, answer.Jobs, 3)
}

// stepInputs are sagas whose steps have an input only while err is nil.
type stepInputs struct{ err error }

func (stepInputs) Flights(*flight.Flight) (*saga.Definition, *saga.View, error) { panic("not called") }
func (stepInputs) View(*flight.Flight) (*saga.Definition, *saga.View, error)    { panic("not called") }
func (si *stepInputs) StepInput(*flight.Flight) ([]byte, error)                 { return []byte("{}"), si.err }

// submitStep starts a saga whose driver has submitted the step hotel, with a policy, and returns the key of the step.
func submitStep(t *testing.T, d *testServer, p flight.Policy) flight.Key {
	t.Helper()
	trip := flight.MustKey("default/trip/1")
	hotel, err := trip.Step("hotel")
	require.NoError(t, err)
	of := flight.Submission{Fingerprint: flight.FingerprintBytes(nil), Policy: flight.Policy{Saga: true, Definition: "trip@1"}}
	d.fake.PutDocument(t, flight.DefinitionID("default", "trip@1"), []byte("{}"))
	d.fake.Apply(t, &flight.Submit{Key: trip, Submission: of})
	open := d.fake.Apply(t, &flight.Open{Key: trip, Submission: of, Nonce: flight.Nonce{1}, NotAfter: d.fake.Ledger.Now().Add(30 * time.Second), StoreEpoch: d.fake.Ledger.Header().StoreEpoch})
	d.fake.Apply(t, &flight.Submit{Key: hotel, Queue: &flight.Queue{Action: "hotel.book"}, Submission: flight.Submission{Fingerprint: of.Fingerprint, Driver: open.Token, Policy: p}})
	return hotel
}

// A step whose input cannot be made is not handed out: a worker would perform it without an input.
func TestJobs_StepWithoutInput(t *testing.T) {
	for _, failed := range []error{nil, errors.New("there is no such field")} {
		d := newTestServer(t, func(c *httpapi.Config) { c.Work.Sagas = &stepInputs{failed} })
		hotel := submitStep(t, d, flight.Policy{})
		session := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{}`)).Session
		answer := decodeBody[wire.ClaimAnswer](t, d.post("/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":"n","actions":["hotel.book"],"slots":1,"wait_ms":0}`, session)))
		require.Len(t, answer.Jobs, map[bool]int{true: 1, false: 0}[failed == nil])
		if failed == nil {
			require.Equal(t, "hotel.book", answer.Jobs[0].Action)
		}
		require.EqualValues(t, 1, decodeBody[wire.Flight](t, d.get("/v1/flights/"+hotel.FlightID().String())).Attempts)
	}
}

// A step that is to be looked up, and whose input cannot be made, is in doubt after some look-ups without a finding.
func TestJobs_StepWithoutInputIsLookedUpInVain(t *testing.T) {
	inputs := new(stepInputs)
	d := newTestServer(t, func(c *httpapi.Config) { c.Work.Sagas = inputs })
	hotel := submitStep(t, d, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond, VerifyAttempts: 2})
	claim := func(nonce string) []wire.Job {
		session := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{}`)).Session
		return decodeBody[wire.ClaimAnswer](t, d.post("/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":%q,"actions":["hotel.book"],"slots":1,"wait_ms":0}`, session, nonce))).Jobs
	}
	jobs := claim("first")
	require.Len(t, jobs, 1)
	d.post("/v1/flights/"+hotel.FlightID().String()+"/report", fmt.Sprintf(`{"fencing_token":%q,"outcome":"unknown"}`, jobs[0].FencingToken))
	require.True(t, d.fake.Flight(hotel).Verifying())
	inputs.err = &saga.InputError{Err: errors.New("there is no such field")}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	require.Eventually(t, func() bool {
		n++
		d.fake.Ledger.Advance(time.Minute)
		d.fake.Pools().Run(over) // once
		return len(claim(fmt.Sprint(n))) == 0 && d.fake.Flight(hotel).State == flight.StateInDoubt
	}, 20*time.Second, 20*time.Millisecond, "it is looked up for ever")
}

// The answer to a claim of many large jobs is one that a client reads. The next claim gets the rest.
func TestJobs_LargeClaimIsCut(t *testing.T) {
	handler := httpapi.New(httpapitest.New(t).Config())
	send := func(path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Less(t, w.Code, 300, "%.300s", w.Body)
		return w
	}
	const many = 20
	for n := range many {
		send("/v1/flights:submit", fmt.Sprintf(`{"action":"charge","id":"%d","input":%q}`, n, strings.Repeat("x", flight.MaxInput-2)))
	}
	var session wire.SessionAnswer
	require.NoError(t, json.Unmarshal(send("/v1/sessions", `{}`).Body.Bytes(), &session))
	handed := 0
	for claim := range 2 {
		w := send("/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":"n-%d","actions":["charge"],"slots":1000,"wait_ms":0}`, session.Session, claim))
		require.Less(t, w.Body.Len(), 5<<20)
		var answer wire.ClaimAnswer
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		require.NotEmpty(t, answer.Jobs)
		handed += len(answer.Jobs)
	}
	require.Equal(t, many, handed)
}

// No report is rejected for the pause that the provider asked for, and no pause is longer than a day.
func TestReport_Pause(t *testing.T) {
	d := newTestServer(t)
	session := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{}`)).Session
	for id, c := range map[string]struct {
		pause string
		want  time.Duration
	}{"years": {"99999999000", 24 * time.Hour}, "9999": {"251636500000000", 24 * time.Hour}, "minute": {"60000", time.Minute}, "negative": {"-9", 0}} {
		require.Equal(t, http.StatusCreated, d.post("/v1/flights:submit", `{"action":"job","id":"`+id+`","input":{}}`).status)
		claim := d.post("/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":%q,"not_after":%d,"wait_ms":1000,"actions":["job"],"slots":1}`, session, id, int64(d.fake.Ledger.Now())+10_000))
		job := decodeBody[wire.ClaimAnswer](t, claim).Jobs[0]
		r := d.post("/v1/flights/"+job.FlightID+"/report", `{"fencing_token":"`+job.FencingToken+`","outcome":"not_done","retry_after_ms":`+c.pause+`}`)
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		f, err := d.fake.Ledger.Flight(flight.MustKey("default/job/" + id).FlightID())
		require.NoError(t, err)
		require.Equal(t, flight.StateScheduled, f.State)
		require.InDelta(t, max(c.want, time.Second).Seconds(), f.NotBefore.AsTime().Sub(d.fake.Ledger.Now().AsTime()).Seconds(), 2)
	}
}

// The limits of a namespace bound its submissions and claims. They hold back no step of a saga that is under way.
func TestLimits_Jobs(t *testing.T) {
	world := httpapitest.New(t)
	cfg := world.Config()
	cfg.Work.Sagas = &stepInputs{}
	world.UseCredentials(&cfg, auth.NodeLimits{})
	g, handler := &guardedServer{serve(t, world, cfg)}, httpapi.New(cfg)
	submitStep(t, g.testServer, flight.Policy{})
	web := g.as("default", "web", auth.AllVerbs)
	session := decodeBody[wire.SessionAnswer](t, web.do("POST", "/v1/sessions", `{}`)).Session
	claim := func(nonce, action string) reply {
		return web.do("POST", "/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":%q,"not_after":%d,"actions":[%q],"slots":5,"wait_ms":10000}`,
			session, nonce, int64(g.fake.Ledger.Now())+10_000, action))
	}
	submit := func(ids ...string) (statuses []string) {
		var lines strings.Builder
		for _, id := range ids {
			fmt.Fprintf(&lines, "{\"action\":\"charge\",\"id\":%q,\"input\":{}}\n", id)
		}
		r, w := httptest.NewRequest(http.MethodPost, "/v1/flights:submit", strings.NewReader(lines.String())), httptest.NewRecorder()
		r.Header.Set("Content-Type", wire.TypeNDJSON)
		r.Header.Set("Authorization", "Bearer "+web.secret)
		handler.ServeHTTP(w, r)
		for line := range strings.Lines(w.Body.String()) {
			var l wire.SubmitLine
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			statuses = append(statuses, l.Status)
		}
		return statuses
	}
	limit := func(l auth.Limits) { g.fake.PutDocument(t, auth.LimitsID("default"), l.Encode()) }
	limit(auth.Limits{MaxFlights: 4}) // the saga and its step are two
	require.Equal(t, []string{"queued", "queued", "quota_exceeded"}, submit("1", "2", "3"), "the lines of a request are counted together")
	limit(auth.Limits{OpensPerSecond: 1, Burst: 2})
	require.Equal(t, []string{"queued", "queued", "rate_limited"}, submit("4", "5", "6"))
	requireProblem(t, web.do("POST", "/v1/flights:submit", `{"action":"charge","id":"7","input":{}}`), http.StatusTooManyRequests, wire.RateLimited)
	requireProblem(t, claim("n1", "charge"), http.StatusTooManyRequests, wire.RateLimited)
	limit(auth.Limits{OpensPerSecond: 1, Burst: 3})
	require.Len(t, decodeBody[wire.ClaimAnswer](t, claim("n2", "charge")).Jobs, 3, "the first ones")

	limit(auth.Limits{OpensPerSecond: 1, Burst: 1, MaxOpen: 1, MaxFlights: 1})
	require.Len(t, decodeBody[wire.ClaimAnswer](t, claim("n3", "hotel.book")).Jobs, 1, "a step")
}
