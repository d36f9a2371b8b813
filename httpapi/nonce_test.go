package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// nonce returns the fields nonce and not_after. The same nonce always has the same not_after.
func (ts *testServer) nonce(nonce string) string {
	if ts.notAfter == nil {
		ts.notAfter = map[string]flight.Time{}
	}
	if ts.notAfter[nonce] == 0 {
		ts.notAfter[nonce] = ts.fake.Ledger.Now().Add(30 * time.Second)
	}
	return fmt.Sprintf(`"nonce":%q,"not_after":%d`, nonce, ts.notAfter[nonce])
}

func (ts *testServer) abandon(id, nonce string) reply {
	ts.t.Helper()
	return ts.post("/v1/flights:abandon", `{"action":"charge","id":"`+id+`",`+ts.nonce(nonce)+`,"reason":"given up"}`)
}

// TestProblemsNameTheNonce: every rejection of an open, a verification or an abandon names the nonce of its request, so that
// no caller takes the answer to another open for its own.
func TestProblemsNameTheNonce(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1","input":1,` + d.nonce("first") + `}`)
	rejected := func(r reply, code wire.Code, nonce string) {
		t.Helper()
		require.Equal(t, nonce, requireProblem(t, r, r.status, code).Nonce)
	}
	open := func(rest string) reply { t.Helper(); return d.post("/v1/flights:open", `{"action":"charge",`+rest+`}`) }
	rejected(open(`"id":"1","wait_ms":0,"input":1,`+d.nonce("busy")), wire.InFlight, "busy")
	rejected(open(`"id":"1","wait_ms":0,"input":2,`+d.nonce("other")), wire.Conflict, "other")
	rejected(open(`"id":"","wait_ms":0,`+d.nonce("nameless")), wire.KeyRequired, "nameless")
	rejected(open(`"id":"2","ttl_ms":1,`+d.nonce("short")), wire.InputInvalid, "short")
	rejected(open(`"id":"2","nonce":"old","not_after":1`), wire.OpenExpired, "old")
	rejected(open(`"id":"2"`+strings.Repeat(" ", wire.MaxOpenBody)), wire.PayloadTooLarge, "")
	rejected(d.post("/v1/flights/"+a.FlightID+"/verification", `{"verification":"v","result":"perhaps",`+d.nonce("look")+`}`), wire.InputInvalid, "look")
	rejected(d.post("/v1/flights:abandon", `{"action":"charge","id":"2","nonce":"far","not_after":9000000000000}`), wire.OpenExpired, "far")
	rejected(d.post("/v1/flights:abandon", `{"action":"charge","id":"2","nonce":"without"}`), wire.InputInvalid, "without")
	d.report(a, `"outcome":"refused"`)
	rejected(open(`"id":"1","input":1,`+d.nonce("late")), wire.FlightFailed, "late")
	rejected(open(`"id":"1","input":1,`+d.nonce("first")), wire.FlightFailed, "first")
}

// TestSessionsNameTheirRequest: a new session names the nonce of its request, and a problem of a renewal or a close its session.
func TestSessionsNameTheirRequest(t *testing.T) {
	d := newTestServer(t)
	made := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{"nonce":"mine"}`))
	require.Equal(t, "mine", made.Nonce)
	d.proceed(`{"action":"charge","id":"1","session":"` + made.Session + `"}`)
	require.Equal(t, made.Session, requireProblem(t, d.post("/v1/sessions/"+made.Session+"/close", `{}`), http.StatusConflict, wire.SessionInUse).Session)
	require.Equal(t, "ses_gone", requireProblem(t, d.post("/v1/sessions/ses_gone/renew", `{}`), http.StatusGone, wire.LeaseLost).Session)
}

// TestProposed: a caller that gives up must know whether its open may still open an attempt.
func TestProposed(t *testing.T) {
	d := newTestServer(t)
	d.proceed(`{"action":"charge","id":"busy"}`)
	d.openInDoubt("doubt")
	ask := func(id string) wire.Problem {
		return decodeBody[wire.Problem](t, d.post("/v1/flights:open", `{"action":"charge","id":"`+id+`","wait_ms":0}`))
	}
	for id, code := range map[string]wire.Code{"busy": wire.InFlight, "doubt": wire.InDoubt} {
		p := ask(id)
		require.Equal(t, code, p.Code)
		require.NotNil(t, p.Proposed, id)
		require.False(t, *p.Proposed, "answered from this node's view: %s", id)
	}
	for _, err := range []error{&effect.Busy{Key: flight.MustKey("default/charge/1"), State: flight.StateRunning, Proposed: true},
		&effect.InDoubt{Key: flight.MustKey("default/charge/1"), Proposed: true}} {
		d.fake.SetFaults(func(l *httpapitest.Faults) { l.Before = func(context.Context, string) error { return err } })
		p := ask("1")
		require.NotNil(t, p.Proposed)
		require.True(t, *p.Proposed)
	}
	d.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(context.Context, string) error { return errors.New("another") }
	})
	require.Nil(t, ask("1").Proposed)
}

// TestOnlyUnnamedOpensAreAbandonedByTheNode: a caller that disconnects can repeat its open only if the open has a
// nonce. The node abandons the others.
func TestOnlyUnnamedOpensAreAbandonedByTheNode(t *testing.T) {
	world := httpapitest.New(t)
	api := httpapi.New(world.Config())
	leave := func(body string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		world.Ledger.Before(func(c flight.Command) {
			if _, ok := c.(*flight.Open); ok {
				cancel()
			}
		})
		defer world.Ledger.Before(nil)
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/flights:open", strings.NewReader(body)))
	}
	leave(`{"action":"charge","id":"named","nonce":"n"}`)
	require.Equal(t, flight.StateRunning, world.Flight(flight.MustKey("default/charge/named")).State)
	leave(`{"action":"charge","id":"unnamed"}`)
	f := world.Flight(flight.MustKey("default/charge/unnamed"))
	for f.State == flight.StateRunning {
		var err error
		f, err = world.Ledger.Wait(t.Context(), f.ID, f.Version)
		require.NoError(t, err)
	}
	require.Equal(t, flight.StateReady, f.State)
	require.Equal(t, flight.StateRunning, world.Flight(flight.MustKey("default/charge/named")).State)
}

// TestReport_UnknownFlightWithKeyIsStored: a ledger that was restored without the attempt stores its report with a key. A
// success is the receipt, and a not_done is evidence.
func TestReport_UnknownFlightWithKeyIsStored(t *testing.T) {
	before, restored := newTestServer(t), newTestServer(t)
	a := before.proceed(`{"action":"charge","id":"1"}`)
	body := `{"fencing_token":"` + a.FencingToken + `","outcome":"not_done","error":"no stock"`
	path := "/v1/flights/" + a.FlightID + "/report"
	requireProblem(t, restored.post(path, body+`}`), http.StatusNotFound, wire.NotFound)
	p := requireProblem(t, restored.post(path, body+`,"key":"default/charge/1"}`), http.StatusConflict, wire.Fenced)
	require.Equal(t, "default/charge/1", p.Key)
	f := restored.fake.Flight(flight.MustKey("default/charge/1"))
	require.Len(t, f.Evidence, 1)
	require.Equal(t, "no stock", f.Evidence[0].Error)
	p = requireProblem(t, restored.get("/v1/flights/"+a.FlightID), http.StatusNotFound, wire.NotFound)
	require.Contains(t, p.Detail, "stored as evidence")
	require.Equal(t, "report_fenced", decodeBody[wire.History](t, restored.get("/v1/flights/"+a.FlightID+"/events")).Events[0].Kind)
	require.EqualValues(t, 2, restored.proceed(`{"action":"charge","id":"1"}`).Attempt, "the number of the lost attempt is not reused")

	restored = newTestServer(t)
	succeeded := restored.post(path, `{"fencing_token":"`+a.FencingToken+`","outcome":"succeeded","external_id":"ch_1","key":"default/charge/1"}`)
	require.Equal(t, "report_after_restore", decodeBody[wire.Flight](t, succeeded).Receipt.From)
}

// TestLedgerTimeIsThatOfTheAnswer: the answer to a caller that waited has the time of the answer, not of the request.
func TestLedgerTimeIsThatOfTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := httpapitest.New(t)
		api := httpapi.New(world.Config())
		ask := func(body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/flights:open", strings.NewReader(body)))
			return w
		}
		require.Equal(t, http.StatusCreated, ask(`{"action":"charge","id":"1"}`).Code)
		w := ask(`{"action":"charge","id":"1","wait_ms":10000}`)
		require.Equal(t, http.StatusConflict, w.Code)
		require.Equal(t, strconv.FormatInt(int64(world.Ledger.Now()), 10), w.Header().Get("Flightd-Ledger-Time"))
	})
}
