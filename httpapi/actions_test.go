package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// A document counts for the jobs of its namespace alone, and who may do what with it follows from the verbs.
func TestActions_NamespacesAndVerbs(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	const policy = `{"recovery":"resend","reason":"r"}`
	definer, worker, submitter := g.as("billing", "definer", auth.Define), g.as("billing", "worker", auth.Work), g.as("billing", "web", auth.Submit|auth.Read)
	stranger := g.as("shipping", "definer", auth.AllVerbs)
	require.Equal(t, http.StatusOK, stranger.do("PUT", "/v1/actions/mail", policy).status)
	requireProblem(t, worker.do("GET", "/v1/actions/mail", ""), http.StatusNotFound, wire.NotFound)
	requireProblem(t, stranger.do("GET", "/v1/actions/mail", "", "Flightd-Namespace", "billing"), http.StatusForbidden, wire.Forbidden)
	requireProblem(t, worker.do("PUT", "/v1/actions/mail", policy), http.StatusForbidden, wire.Forbidden)
	requireProblem(t, definer.do("DELETE", "/v1/actions/mail", `{"reason":"r"}`), http.StatusForbidden, wire.Forbidden)
	declare := func(s *tokenServer, body string) wire.ActionAnswer {
		r := s.do("POST", "/v1/actions/mail/declare", body)
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		return decodeBody[wire.ActionAnswer](t, r)
	}
	require.Equal(t, wire.ActionAnswer{Status: wire.ActionUndeclared}, declare(worker, policy))
	require.Equal(t, wire.ActionCreated, declare(definer, policy).Status)
	require.Equal(t, wire.ActionUnchanged, declare(worker, policy).Status)
	require.Equal(t, wire.ActionDifferent, declare(submitter, `{"recovery":"hold"}`).Status)
	require.Equal(t, wire.ActionDifferent, declare(definer, `{"recovery":"hold"}`).Status, "a declaration changes nothing")
	require.Equal(t, "resend", decodeBody[wire.Action](t, worker.do("GET", "/v1/actions/mail", "")).Recovery)
	require.Contains(t, string(submitter.do("POST", "/v1/flights:submit", `{"action":"mail","id":"1"}`).body), `"recovery":"resend"`)

	operator := g.as("*", "operator", auth.Operate|auth.Admin)
	require.Equal(t, http.StatusCreated, operator.do("POST", "/v1/tokens", `{"name":"d","namespace":"billing","verbs":["define"],"reason":"r"}`).status, "operate allows all that define does")
	admin := g.as("*", "admin", auth.Admin)
	requireProblem(t, admin.do("POST", "/v1/tokens", `{"name":"e","namespace":"billing","verbs":["define"],"reason":"r"}`), http.StatusForbidden, wire.Forbidden)
}

// Each line gets the policy of its action, and one whose input names no lane is rejected alone. A flight that exists keeps its lane.
func TestActions_Lines(t *testing.T) {
	d := newTestServer(t)
	handler := httpapi.New(d.fake.Config())
	submit := func(lines ...string) []string {
		r := httptest.NewRequest(http.MethodPost, "/v1/flights:submit", strings.NewReader(strings.Join(lines, "\n")))
		r.Header.Set("Content-Type", wire.TypeNDJSON)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		return strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	}
	job := func(action, id, input string) string {
		return fmt.Sprintf(`{"action":%q,"id":%q,"input":%s}`, action, id, input)
	}
	require.Contains(t, submit(job("charge", "0", `{}`))[0], `"status":"queued"`)
	require.Equal(t, http.StatusOK, d.send("PUT", "/v1/actions/charge", `{"recovery":"resend","retry":{"attempts":3},"lane":{"by":"/customer","limit":2},"reason":"r"}`).status)
	got := submit(job("charge", "0", `{}`), job("charge", "1", `{"customer":"c7"}`), job("charge", "2", `{"customer":[]}`), job("mail", "3", `{}`))
	for i, status := range []string{"duplicate", "queued", "input_invalid", "queued"} {
		require.Contains(t, got[i], `"status":"`+status+`"`)
	}
	require.Contains(t, got[2], `"pointer":"/input/customer"`)
	for id, want := range map[string]struct {
		recovery flight.Recovery
		attempts int
		lane     string
	}{"charge/0": {flight.RecoveryHold, 8, ""}, "charge/1": {flight.RecoveryResend, 3, "c7"}, "mail/3": {flight.RecoveryHold, 8, ""}} {
		f, err := d.fake.Ledger.Flight(flight.MustKey("default/" + id).FlightID())
		require.NoError(t, err)
		require.Equal(t, want.recovery, f.Policy.Recovery, id)
		require.Equal(t, want.attempts, f.Policy.Retry.Attempts, id)
		require.Equal(t, want.lane, f.Place.Queue.Lane, id)
	}
	f, err := d.fake.Ledger.Flight(flight.MustKey("default/charge/2").FlightID())
	require.NoError(t, err)
	require.Nil(t, f, "nothing was submitted")
}

// A document that this build cannot read fails the submissions that would need it: hold, or no lane, is not what it says.
func TestActions_UnreadableDocument(t *testing.T) {
	d := newTestServer(t)
	d.fake.PutDocument(t, flight.DocumentID{Namespace: "default", Kind: flight.KindAction, Name: "charge"}, []byte(`{"recovery":"resend","newer":true}`))
	requireProblem(t, d.post("/v1/flights:submit", `{"action":"charge","id":"1"}`), http.StatusInternalServerError, wire.Internal)
	requireProblem(t, d.post("/v1/actions/charge/declare", `{"recovery":"resend"}`), http.StatusInternalServerError, wire.Internal)
	mended := d.send("PUT", "/v1/actions/charge", `{"recovery":"resend","reason":"mend it"}`)
	require.Equal(t, http.StatusOK, mended.status)
	require.Contains(t, string(mended.body), "cannot be read: /newer: unknown field", "what is lost is named")
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:submit", `{"action":"charge","id":"1"}`).status)
}
