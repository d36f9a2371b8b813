package effect

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// A provider that has acted may answer a POST with 301, 302 or 303. The page it redirects to says nothing about the
// effect.
func TestRedirectOfAnUnsafeRequest(t *testing.T) {
	mux := http.NewServeMux()
	for _, status := range []string{"301", "302", "303", "307", "308"} {
		mux.HandleFunc("/"+status+"/", func(w http.ResponseWriter, r *http.Request) {
			code := map[string]int{"301": 301, "302": 302, "303": 303, "307": 307, "308": 308}[status]
			http.Redirect(w, r, "/"+strings.SplitN(r.URL.Path, "/", 3)[2], code)
		})
	}
	for path, code := range map[string]int{"/ok": 200, "/created": 201, "/denied": 401, "/gone": 404, "/refused": 402, "/busy": 429, "/broken": 500} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, row := range []struct {
		method, path string
		want         flight.Outcome
	}{
		{"POST", "/303/gone", flight.OutcomeUnknown},
		{"POST", "/302/denied", flight.OutcomeUnknown},
		{"POST", "/301/busy", flight.OutcomeUnknown},
		{"POST", "/303/refused", flight.OutcomeUnknown},
		{"POST", "/303/ok", flight.OutcomeUnknown},
		{"PUT", "/302/ok", flight.OutcomeUnknown},
		{"DELETE", "/301/gone", flight.OutcomeUnknown},
		{"POST", "/307/created", flight.OutcomeSucceeded}, // the method was repeated: it is the provider's answer to it
		{"POST", "/308/307/created", flight.OutcomeSucceeded},
		{"POST", "/307/303/ok", flight.OutcomeUnknown},
		{"POST", "/307/busy", flight.OutcomeUnknown},
		{"POST", "/308/refused", flight.OutcomeUnknown},
		{"GET", "/303/gone", flight.OutcomeNotDone},
		{"GET", "/302/refused", flight.OutcomeRefused},
		{"GET", "/307/ok", flight.OutcomeSucceeded},
		{"POST", "/gone", flight.OutcomeNotDone},
	} {
		for _, through := range []string{"Transport", "Sending"} {
			t.Run(row.method+" "+row.path+" by "+through, func(t *testing.T) {
				at, client := attempt(nil), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				if through == "Transport" {
					client.Transport = at.Transport(nil)
				} else {
					require.NoError(t, at.Sending())
				}
				req, err := http.NewRequest(row.method, server.URL+row.path, strings.NewReader("x"))
				require.NoError(t, err)
				_, err = FromHTTP(client.Do(req))
				require.Equal(t, row.want, Classify(err, at), "%v", err)
			})
		}
	}

	at := attempt(nil)
	_, err := FromHTTP((&http.Client{Transport: at.Transport(nil)}).Post(server.URL+"/303/gone", "", nil))
	require.Equal(t, flight.OutcomeNotDone, Classify(NotDone(err), at), "a handler that knows its provider may still say so")
}

// After a request with unknown outcome, another one might act a second time. It is rejected.
func TestSecondSendAfterAnUnknownOutcome(t *testing.T) {
	var acted atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			acted.Add(1)
		}
		switch r.URL.Path {
		case "/hangs-up":
			panic(http.ErrAbortHandler)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("the beginning"))
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect)
		case "/moved-away":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		case "/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()

	for name, row := range map[string]struct {
		method, path string
		recovery     flight.Recovery
		refused      bool
	}{
		"it broke":                     {"POST", "/broken", flight.RecoveryHold, true},
		"it broke, verify":             {"POST", "/broken", flight.RecoveryVerify, true},
		"it broke, resend":             {"POST", "/broken", flight.RecoveryResend, false},
		"it hung up":                   {"POST", "/hangs-up", flight.RecoveryHold, true},
		"it was redirected":            {"POST", "/moved", flight.RecoveryHold, true},
		"its answer was cut off":       {"POST", "/cut", flight.RecoveryHold, true},
		"it was not done":              {"POST", "/busy", flight.RecoveryHold, false},
		"it was done":                  {"POST", "/ok", flight.RecoveryHold, false},
		"it could not change anything": {"GET", "/broken", flight.RecoveryHold, false},
	} {
		for _, through := range []string{"Transport", "Sending"} {
			t.Run(name+", then "+through, func(t *testing.T) {
				acted.Store(0)
				at := NewAttempt(Spec{Key: flight.MustKey("ns/charge/1"), Recovery: row.recovery})
				client := &http.Client{Transport: at.Transport(nil), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
				do := func(method, path string) error {
					req, err := http.NewRequest(method, server.URL+path, strings.NewReader("x"))
					require.NoError(t, err)
					_, err = FromHTTP(client.Do(req))
					return err
				}
				_ = do(row.method, row.path)
				require.NoError(t, do("GET", "/ok"), "to look is always allowed")
				acted.Store(0)
				err := at.Sending()
				if through == "Transport" {
					err = do("POST", "/ok")
					require.Equal(t, !row.refused, acted.Load() == 1)
				}
				require.Equal(t, row.refused, err != nil, "%v", err)
				if row.refused {
					require.ErrorContains(t, err, "unknown outcome")
					require.Equal(t, flight.OutcomeUnknown, Classify(NotDone(err), at))
				}
			})
		}
	}

	at := attempt(nil)
	client := &http.Client{Transport: at.Transport(nil)}
	_, err := FromHTTP(client.Post(server.URL+"/moved", "", nil))
	require.NoError(t, err, "a redirect that repeats the request is the same send")
	_, err = FromHTTP(client.Post(server.URL+"/ok", "", nil))
	require.NoError(t, err, "and its outcome is known")

	_, err = FromHTTP(client.Post(server.URL+"/moved-away", "", nil))
	require.Error(t, err)
	_, err = FromHTTP(client.Post(server.URL+"/ok", "", nil))
	require.ErrorContains(t, err, "unknown outcome", "what was redirected may have been done, though nobody is there")
}

// After a redirect to another host, no request has the idempotency key or the fencing token. One that could act there
// is not sent.
func TestRedirectToAnotherHost(t *testing.T) {
	var arrived []http.Header
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived = append(arrived, r.Header) }))
	defer other.Close()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/twice":
			http.Redirect(w, r, "/away", http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect)
		case "/ok":
			arrived = append(arrived, r.Header)
		}
	}))
	defer provider.Close()
	for _, row := range []struct {
		method, path string
		arrives      bool
		keyed        bool
		want         flight.Outcome
	}{
		{"POST", "/here", true, true, flight.OutcomeSucceeded},
		{"GET", "/here", true, true, flight.OutcomeSucceeded},
		{"GET", "/away", true, false, flight.OutcomeSucceeded},
		{"GET", "/twice", true, false, flight.OutcomeSucceeded},
		{"POST", "/away", false, false, flight.OutcomeUnknown},
		{"POST", "/twice", false, false, flight.OutcomeUnknown},
	} {
		t.Run(row.method+" "+row.path, func(t *testing.T) {
			arrived = nil
			at := NewAttempt(Spec{Key: flight.MustKey("ns/charge/1"), IdempotencyKey: "the-key", FencingToken: "the-token"})
			req, err := http.NewRequest(row.method, provider.URL+row.path, strings.NewReader("x"))
			require.NoError(t, err)
			_, err = FromHTTP((&http.Client{Transport: at.Transport(nil)}).Do(req))
			if row.want == flight.OutcomeSucceeded {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "to another host")
				require.Equal(t, row.want, Classify(err, at))
			}
			require.Equal(t, row.arrives, len(arrived) == 1)
			if row.arrives {
				require.Equal(t, row.keyed, arrived[0].Get(HeaderIdempotencyKey) == "the-key")
				require.Equal(t, row.keyed, arrived[0].Get(HeaderFencingToken) == "the-token")
			}
		})
	}
}
