package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// TestForeignETags: RFC 9110 allows any list of ETags. An ETag that is not a flight version matches nothing, and *
// matches every version. Invalid syntax is rejected.
func TestForeignETags(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	path := "/v1/flights/" + a.FlightID
	etag := d.get(path).header.Get("ETag")
	for _, none := range []string{`"abc"`, `W/"abc"`, `"33a64df5"`, `""`, `"1.7"`, `"abc", W/"def"`, `"a,b"`, `"a\"`, `"01.0"`} {
		require.Equal(t, http.StatusOK, d.get(path, "If-None-Match", none, "Prefer", "wait=50").status, none)
	}
	for _, header := range []string{etag, "W/" + etag, `"abc", ` + etag, `"a,b",W/` + etag + ` , "c"`, `"a\", ` + etag, "*", ", " + etag + ",,"} {
		require.Equal(t, http.StatusNotModified, d.get(path, "If-None-Match", header).status, header)
	}
	for _, bad := range []string{"x", strings.Trim(etag, `"`), `"abc`, `abc"`, `"a" "b"`, `w/"abc"`, "W/*", "'a'", `"a"b`} {
		p := requireProblem(t, d.get(path, "If-None-Match", bad), http.StatusBadRequest, wire.InputInvalid)
		require.Equal(t, "If-None-Match", p.Errors[0].Header, bad)
	}
	requireProblem(t, d.get("/v1/flights/"+flight.MustKey("a/b/c").FlightID().String(), "If-None-Match", "*"), http.StatusNotFound, wire.NotFound)
}

// TestPrefer: RFC 7240 requires that invalid preferences are ignored, and that the first of several counts.
func TestPrefer(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	for prefer, applied := range map[string]string{
		"wait=7": "wait=7", `wait="7"`: "wait=7", "Wait = 7": "wait=7", "respond-async, wait=7": "wait=7", "wait=7, wait=8": "wait=7",
		"wait=7; foo=bar": "wait=7", "respond-async; wait=9, wait=7": "wait=7", `foo="a, wait=9", wait=7`: "wait=7",
		`foo="\", wait=9", wait=7`: "wait=7", "wait=56": "wait=55", "wait=99999999999999999999": "wait=55", "wait=0": "",
		"wait": "", "wait=": "", "wait=x": "", "wait=-1": "", "wait=+7": "", "wait=1.5": "", "waiting=7": "", `"wait=7`: "",
	} {
		r := d.get("/v1/events", "Prefer", prefer)
		require.Equal(t, http.StatusOK, r.status, prefer)
		require.Equal(t, applied, r.header.Get("Preference-Applied"), prefer)
		require.Equal(t, http.StatusOK, d.get("/v1/flights/"+a.FlightID, "Prefer", prefer).status, prefer)
	}
}

func TestList(t *testing.T) {
	d := newTestServer(t)
	for _, id := range []string{"1", "2", "3"} {
		d.proceed(`{"action":"charge","id":"` + id + `"}`)
	}
	a := d.proceed(`{"action":"mail","id":"1"}`)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded","body":"a body"`).status)

	page := decodeBody[wire.FlightPage](t, d.get("/v1/flights"))
	require.Len(t, page.Flights, 4)
	require.Empty(t, page.Next)
	part := decodeBody[wire.FlightPage](t, d.get("/v1/flights?contains=ail/"))
	require.Len(t, part.Flights, 1)
	paid := d.proceed(`{"action":"pay","id":"external"}`)
	require.Equal(t, http.StatusOK, d.report(paid, `"outcome":"succeeded","external_id":"ch_17"`).status)
	for query, n := range map[string]int{"external_id=ch_17": 1, "external_id=ch_1": 0, "external_id=external": 0, "external_id=ch_17&action=mail": 0, "external_id=ch_17&state=running": 0} {
		require.Len(t, decodeBody[wire.FlightPage](t, d.get("/v1/flights?"+query)).Flights, n, query)
	}
	mail := decodeBody[wire.FlightPage](t, d.get("/v1/flights?action=mail&state=succeeded,failed&since=1h&key_prefix=default/ma"))
	require.Len(t, mail.Flights, 1)
	require.Nil(t, mail.Flights[0].Receipt.Body, "lists carry no bodies")
	require.Equal(t, 8, mail.Flights[0].Receipt.Size)
	require.Empty(t, decodeBody[wire.FlightPage](t, d.get("/v1/flights?since=2999-01-01T00:00:00Z")).Flights)
	require.Empty(t, decodeBody[wire.FlightPage](t, d.get("/v1/flights", "Flightd-Namespace", "other")).Flights)

	var seen []string
	path := "/v1/flights?limit=2&state=running"
	for path != "" {
		r := d.get(path)
		require.Equal(t, http.StatusOK, r.status)
		for _, f := range decodeBody[wire.FlightPage](t, r).Flights {
			seen = append(seen, f.Key)
		}
		link := r.header.Get("Link")
		path, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
		require.True(t, link == "" || strings.HasSuffix(link, `; rel="next"`))
	}
	require.Equal(t, []string{"default/charge/1", "default/charge/2", "default/charge/3"}, seen)

	for _, q := range []string{"state=asleep", "limit=0", "limit=501", "limit=x", "since=yesterday", "cursor=!!", "cursor=YQ", "colour=red", "%zz", "limit=2&limit=3",
		"action=charge&action=mail", "key=default/charge/1&key=default/mail/1"} {
		p := requireProblem(t, d.get("/v1/flights?"+q), http.StatusBadRequest, wire.InputInvalid)
		require.NotEmpty(t, p.Errors[0].Parameter, q)
	}
}

func TestHealth(t *testing.T) {
	d := newTestServer(t)
	require.Equal(t, http.StatusOK, d.get("/livez").status)
	r := d.get("/readyz")
	require.Equal(t, http.StatusOK, r.status)
	require.JSONEq(t, `{"ready":true}`, string(r.body))
	require.Contains(t, string(d.get("/readyz?verbose").body), `"world"`)
	d.fake.SetFaults(func(l *httpapitest.Faults) { l.NotReady = "on purpose" })
	r = d.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Contains(t, string(r.body), "on purpose", "a failed check is shown without ?verbose, too")
	v := decodeBody[wire.Version](t, d.get("/version"))
	require.Equal(t, "v1", v.API)
	require.Equal(t, d.fake.Ledger.Header().Deployment, v.Deployment)
	require.InDelta(t, int64(d.fake.Ledger.Now()), v.LedgerTime, 60_000)
	for _, c := range wire.Classes() {
		r := d.get("/problems/" + string(c.Code))
		require.Equal(t, http.StatusOK, r.status)
		require.Contains(t, string(r.body), c.Hint)
	}
	requireProblem(t, d.get("/problems/none"), http.StatusNotFound, wire.NotFound)
}

// TestHazard45_Paths: ServeMux would redirect these paths to other keys. No request may be answered with a redirect.
func TestHazard45_Paths(t *testing.T) {
	d := newTestServer(t)
	for _, path := range []string{"/v1//flights", "/v1/flights/", "/v1/flights/../flights", "/v1/./flights", "/v1/flights/%2e%2e/x",
		"/v1/flights/fl_aaaa//receipt", "//v1/flights"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			requireProblem(t, d.send(method, path, "{}"), http.StatusNotFound, wire.NotFound)
		}
	}
	requireProblem(t, d.get("/nowhere"), http.StatusNotFound, wire.NotFound)
	r := d.get("/v1/flights:open")
	requireProblem(t, r, http.StatusMethodNotAllowed, wire.MethodNotAllowed)
	require.Equal(t, "POST", r.header.Get("Allow"))
	r = d.send(http.MethodDelete, "/v1/flights", "")
	requireProblem(t, r, http.StatusMethodNotAllowed, wire.MethodNotAllowed)
	require.Equal(t, "GET, HEAD", r.header.Get("Allow"))
	requireProblem(t, d.get("/v1/flights/notanid"), http.StatusNotFound, wire.NotFound)
}

// TestFlight_HeldUntilAfterEpochRaise: after etcd has lost the claim of an attempt, held_until is the time before which
// no caller may act.
func TestFlight_HeldUntilAfterEpochRaise(t *testing.T) {
	d := newTestServer(t)
	a, over := d.proceed(`{"action":"charge","id":"1"}`), d.proceed(`{"action":"charge","id":"2"}`)
	require.Equal(t, http.StatusOK, d.report(over, `"outcome":"succeeded"`).status)
	held := func(id string) time.Time {
		var f wire.Flight
		require.NoError(t, json.Unmarshal(d.get("/v1/flights/"+id).body, &f))
		return f.HeldUntil.Time
	}
	require.Zero(t, held(a.FlightID))
	d.fake.Apply(d.t, &flight.RaiseEpoch{From: 1, Hold: time.Minute})
	require.Equal(t, d.fake.Ledger.Header().EpochHold.AsTime(), held(a.FlightID))
	require.Zero(t, held(over.FlightID), "a finished flight is not held")
	d.fake.Ledger.Advance(time.Minute)
	require.Zero(t, held(a.FlightID))
}

// TestListsAreOfOneNamespace: a request without a namespace is for "default", and "*" selects all namespaces, in lists,
// pages of events and streams.
func TestListsAreOfOneNamespace(t *testing.T) {
	d := newTestServer(t)
	d.proceed(`{"action":"charge","id":"1"}`)
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:open", `{"action":"charge","id":"2"}`, "Flightd-Namespace", "billing").status)
	const here, there = "default/charge/1", "billing/charge/2"
	for namespace, want := range map[string][]string{"": {here}, "default": {here}, "billing": {there}, "other": nil, "*": {there, here}} {
		var header []string
		if namespace != "" {
			header = []string{"Flightd-Namespace", namespace}
		}
		var listed, paged, streamed []string
		for _, f := range decodeBody[wire.FlightPage](t, d.get("/v1/flights", header...)).Flights {
			listed = append(listed, f.Key)
		}
		for _, e := range decodeBody[wire.EventPage](t, d.get("/v1/events?kind=opened", header...)).Events {
			paged = append(paged, e.Key)
		}
		s := d.stream("/v1/events?kind=opened&last=10", header...)
		for range want {
			streamed = append(streamed, s.data().event(t).Key)
		}
		require.ElementsMatch(t, want, listed, "the list of %q", namespace)
		require.ElementsMatch(t, want, paged, "events of %q", namespace)
		require.ElementsMatch(t, want, streamed, "the stream of %q", namespace)
	}

	for _, path := range []string{"/v1/flights", "/v1/events"} {
		p := requireProblem(t, d.get(path, "Flightd-Namespace", "a/b"), http.StatusBadRequest, wire.KeyInvalid)
		require.Equal(t, "Flightd-Namespace", p.Errors[0].Header)
		for _, prefix := range []string{"d", "default", "default/ch"} {
			require.NotContains(t, string(d.get(path+"?key_prefix="+prefix).body), "code", prefix)
		}
		for _, prefix := range []string{"b", "billing/charge", "default2/", "charge/"} { // an empty page would look as if there were no flights
			p := requireProblem(t, d.get(path+"?key_prefix="+prefix), http.StatusBadRequest, wire.InputInvalid)
			require.Equal(t, "key_prefix", p.Errors[0].Parameter)
			require.Equal(t, http.StatusOK, d.get(path+"?key_prefix="+prefix, "Flightd-Namespace", "*").status)
		}
	}
	p := requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"3"}`, "Flightd-Namespace", "*"), http.StatusBadRequest, wire.KeyInvalid)
	require.Equal(t, "Flightd-Namespace", p.Errors[0].Header, "an effect belongs to one namespace")
}

// waitHookLedger is a ledger that calls happens when a caller starts to wait.
type waitHookLedger struct {
	httpapi.Ledger
	happens func()
}

func (l *waitHookLedger) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	l.happens()
	return l.Ledger.Wait(ctx, id, seen)
}

// A long poll of a flight that is freed meanwhile gets the same answer as a request after the free.
func TestLongPollOfAFlightThatIsFreed(t *testing.T) {
	var ledger waitHookLedger
	d := newTestServer(t, func(cfg *httpapi.Config) {
		ledger.Ledger = cfg.Ledger
		cfg.Ledger = &ledger
	})
	a := d.proceed(`{"action":"charge","id":"1"}`)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	ledger.happens = func() {
		require.Equal(t, flight.DecisionAccepted, d.fake.Apply(d.t, &flight.FreeKey{Key: flight.MustKey("default/charge/1"), Generation: 1, Actor: "eve"}).Decision)
	}
	path := "/v1/flights/" + a.FlightID
	for _, r := range []reply{d.get(path, "If-None-Match", "*", "Prefer", "wait=50"), d.get(path)} {
		p := requireProblem(t, r, http.StatusNotFound, wire.NotFound)
		require.Equal(t, a.FlightID, p.FlightID)
		require.Equal(t, "absent", r.header.Get("Flightd-State"))
	}
}
