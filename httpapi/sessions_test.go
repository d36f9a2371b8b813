package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// newSession creates a session and returns the answer and the session's path.
func (ts *testServer) newSession() (s wire.SessionAnswer, path string) {
	ts.t.Helper()
	r := ts.post("/v1/sessions", `{"ttl_ms":15000,"owner":"me"}`)
	require.Equal(ts.t, http.StatusCreated, r.status, "%s", r.body)
	s = decodeBody[wire.SessionAnswer](ts.t, r)
	return s, "/v1/sessions/" + s.Session
}

func openAttemptOf(a wire.OpenAnswer) wire.OpenAttempt {
	return wire.OpenAttempt{Key: a.Key, FlightID: a.FlightID, Nonce: wire.NonceHex(a.Nonce), Attempt: a.Attempt, FencingToken: a.FencingToken}
}

// TestRenewalListsOpenAttempts: a renewal lists the open attempts of the session, and does not change them.
func TestRenewalListsOpenAttempts(t *testing.T) {
	d := newTestServer(t)
	s, path := d.newSession()
	require.Positive(t, s.TrustMS)
	require.EqualValues(t, 5000, s.RenewEveryMS)
	require.Equal(t, wire.OpenDigest(nil), s.OpenDigest)
	renew := func(body string) wire.SessionAnswer {
		t.Helper()
		r := d.post(path+"/renew", body)
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		renewed := decodeBody[wire.SessionAnswer](t, r)
		require.Equal(t, s.Session, renewed.Session)
		return renewed
	}
	require.Equal(t, wire.OpenDigest(nil), renew(`{}`).OpenDigest)

	a := d.proceed(`{"action":"charge","id":"1","session":"` + s.Session + `",` + d.nonce("n1") + `}`)
	b := d.proceed(`{"action":"charge","id":"2","session":"` + s.Session + `",` + d.nonce("n2") + `}`)
	require.Equal(t, s.Session, a.Session)
	open := []wire.OpenAttempt{openAttemptOf(a), openAttemptOf(b)}
	require.Empty(t, renew(`{}`).Open, "the request has no digest")
	renewed := renew(`{"open_digest":"` + s.OpenDigest + `"}`)
	require.ElementsMatch(t, open, renewed.Open)
	require.False(t, renewed.More)
	require.Equal(t, wire.OpenDigest(open), renewed.OpenDigest, "the digest that a client computes")
	require.Equal(t, renewed.Open, renew(`{"open_digest":"`+wire.OpenDigest(open[:1])+`"}`).Open)
	require.Empty(t, renew(`{"open_digest":"`+renewed.OpenDigest+`"}`).Open, "the digest is right")
	require.Equal(t, renewed.Open[1:], renew(`{"open_digest":"`+s.OpenDigest+`","after":"`+renewed.Open[0].FlightID+`"}`).Open)
	require.Equal(t, "running", d.get("/v1/flights/"+b.FlightID).header.Get("Flightd-State"))

	f := d.get("/v1/flights/" + a.FlightID)
	require.Equal(t, http.StatusOK, d.post("/v1/flights/"+a.FlightID+"/cancel", `{"reason":"no"}`, "If-Match", f.header.Get("ETag")).status)
	require.Equal(t, []string{a.FlightID}, renew(`{"open_digest":"`+renewed.OpenDigest+`"}`).CancelRequested)
}

// TestSessionInUse: a session is not closed until each of its attempts was reported or abandoned.
func TestSessionInUse(t *testing.T) {
	d := newTestServer(t)
	s, path := d.newSession()
	a := d.proceed(`{"action":"charge","id":"1","session":"` + s.Session + `",` + d.nonce("n1") + `}`)
	d.proceed(`{"action":"charge","id":"2","session":"` + s.Session + `",` + d.nonce("n2") + `}`)
	p := requireProblem(t, d.post(path+"/close", ``), http.StatusConflict, wire.SessionInUse)
	require.Equal(t, "the session has 2 open attempts", p.Detail)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded"`).status)
	requireProblem(t, d.post(path+"/close", ``), http.StatusConflict, wire.SessionInUse)
	require.Equal(t, http.StatusOK, d.abandon("2", "n2").status)
	require.Equal(t, http.StatusOK, d.post(path+"/close", ``).status)
	require.Equal(t, http.StatusOK, d.post(path+"/close", `{}`).status, "the session was closed before")
	requireProblem(t, d.post(path+"/renew", `{}`), http.StatusGone, wire.LeaseLost)
	requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"3","session":"`+s.Session+`"}`), http.StatusGone, wire.LeaseLost)
}
