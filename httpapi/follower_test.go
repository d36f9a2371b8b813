package httpapi_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// A follower that lags behind shows final receipts alone, as the leader has shown them, and with the versions that they had. One that
// is up to date shows all of them. Keys are freed, redacted, retried and cancelled
// meanwhile.
func TestFollower_ShowsFinalReceiptsAlone(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	fake := httpapitest.New(t)
	late := fake.Ledger.Follower()
	server := httptest.NewServer(httpapi.New(fake.Config()))
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	leader := &testServer{t: t, fake: fake, url: server.URL}
	follower := httpapi.New(fake.FollowerConfig(late))

	open := func(key, input int) string {
		return fmt.Sprintf(`{"action":"pay","id":"k%d","input":{"n":%d},"nonce":"%016x"}`, key, input, random.Uint64())
	}
	shown, answered, dropped := make(map[string]string), 0, 0 // by path and ETag: the answers of the leader
	for step := range 600 {
		key := random.IntN(5)
		id := flight.MustKey(fmt.Sprintf("default/pay/k%d", key)).FlightID().String()
		path := "/v1/flights/" + id
		etag := leader.get(path).header.Get("ETag")
		decide := func(verb string) { leader.post(path+"/"+verb, `{"reason":"r","actor":"ada"}`, "If-Match", etag) }
		switch random.IntN(10) {
		case 0, 1, 2, 8:
			r := leader.post("/v1/flights:open", open(key, 1))
			if r.status == http.StatusCreated {
				outcome := [...]string{"succeeded", "refused", "not_done", "unknown"}[random.IntN(4)]
				body := fmt.Sprintf(`,"body":{"step":%d}`, step)
				if outcome == "not_done" || outcome == "unknown" {
					body = `,"error":"e"`
				}
				require.Equal(t, http.StatusOK, leader.report(decodeBody[wire.OpenAnswer](t, r), `"outcome":"`+outcome+`"`+body).status)
			}
		case 3:
			decide("free")
		case 4:
			decide("redact")
		case 5:
			decide("retry")
		case 6:
			decide("cancel")
		case 9:
			leader.post(path+"/resolve", `{"result":"not_happened","reason":"r","actor":"ada"}`, "If-Match", etag)
		case 7:
			late.Lag([...]int{0, 0, 1, 3, 9}[random.IntN(5)])
		}
		for k := range 5 {
			path := "/v1/flights/" + flight.MustKey(fmt.Sprintf("default/pay/k%d", k)).FlightID().String()
			for _, p := range []string{path, path + "/receipt"} {
				if r := leader.get(p); r.status == http.StatusOK {
					shown[p+r.header.Get("ETag")] = string(r.body)
				}
			}
		}

		// The follower is asked the same, and its view is compared.
		view, err := late.Flight(flight.MustKey(fmt.Sprintf("default/pay/k%d", key)).FlightID())
		require.NoError(t, err)
		final := view != nil && view.Receipt != nil && view.Redacted == nil && (view.State == flight.StateSucceeded || view.State == flight.StateFailed)
		ask := func(method, path, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			follower.ServeHTTP(w, r)
			require.Empty(t, w.Header()["Flightd-Ledger-Time"])
			if w.Code == http.StatusOK || w.Code == http.StatusFailedDependency {
				answered++
				require.True(t, final, "step %d: %s %s: %s", step, method, path, w.Body)
			} else {
				dropped++
			}
			return w
		}
		for _, p := range []string{path, path + "/receipt"} {
			if w := ask(http.MethodGet, p, ""); w.Code == http.StatusOK {
				require.Equal(t, shown[p+w.Header().Get("ETag")], w.Body.String(), "step %d: %s", step, p)
				require.Equal(t, `"`+view.Version.String()+`"`, w.Header().Get("ETag"))
			} else {
				now, err := fake.Ledger.Flight(flight.MustKey(fmt.Sprintf("default/pay/k%d", key)).FlightID())
				require.NoError(t, err)
				require.False(t, final && now.Version == view.Version, "step %d: %d %s", step, w.Code, w.Body)
			}
		}
		require.NotContains(t, []int{http.StatusOK, http.StatusFailedDependency}, ask(http.MethodPost, "/v1/flights:open", open(key, 2)).Code, "another input")
		w := ask(http.MethodPost, "/v1/flights:open", open(key, 1))
		switch {
		case w.Code == http.StatusOK:
			require.Contains(t, w.Body.String(), `"decision":"replay"`)
			require.Equal(t, flight.StateSucceeded, view.State)
		case w.Code == http.StatusFailedDependency:
			require.Equal(t, flight.OutcomeRefused, view.Receipt.Outcome)
		}
	}
	require.Greater(t, answered, 100)
	require.Greater(t, dropped, 100)
}
