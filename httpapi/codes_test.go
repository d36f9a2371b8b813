package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// Each code of the table is reached over HTTP and has its status and headers.
func TestEveryCode(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Callers.LoopbackOnly = true })
	failWith := func(err error) {
		d.fake.SetFaults(func(l *httpapitest.Faults) {
			l.Before = func(context.Context, string) error { return err }
		})
	}
	unavailable := func(code string) reply {
		failWith(&effect.Unavailable{Code: code, Cause: errors.New("on purpose")})
		defer failWith(nil)
		return d.post("/v1/flights:open", `{"action":"a","id":"1"}`)
	}
	doubt, etag := d.openInDoubt("doubt")
	running := d.proceed(`{"action":"charge","id":"running","input":{"amount":1,"actor":"me"}}`)
	over := d.proceed(`{"action":"charge","id":"over"}`)
	require.Equal(t, http.StatusOK, d.report(over, `"outcome":"refused"`).status)
	approve := flight.MustKey("default/charge/approve")
	d.fake.Apply(d.t, &flight.Submit{Key: approve, Submission: flight.Submission{Fingerprint: flight.FingerprintBytes(nil), Policy: flight.Policy{Approval: true}}})
	gone := d.proceed(`{"action":"charge","id":"gone","retention":"1s"}`)
	require.Equal(t, http.StatusOK, d.report(gone, `"outcome":"succeeded"`).status)
	d.fake.Ledger.Advance(5 * time.Second)

	guarded := newGuardedServer(t, auth.NodeLimits{})
	web := guarded.as("billing", "web", auth.AllVerbs)
	web.proceed(`{"action":"charge","id":"1"}`)
	limitedOpen := func(limits auth.Limits, id string) reply {
		guarded.fake.PutDocument(t, auth.LimitsID("billing"), limits.Encode())
		web.do("POST", "/v1/flights:open", `{"action":"charge","id":"`+id+`","wait_ms":0}`)
		return web.do("POST", "/v1/flights:open", `{"action":"charge","id":"`+id+`","wait_ms":0}`)
	}
	cases := map[wire.Code]func() reply{
		wire.Unauthenticated:   func() reply { return guarded.get("/v1/flights") },
		wire.RateLimited:       func() reply { return limitedOpen(auth.Limits{OpensPerSecond: 1, Burst: 1}, "2") },
		wire.QuotaExceeded:     func() reply { return limitedOpen(auth.Limits{MaxFlights: 1}, "3") },
		wire.KeyRequired:       func() reply { return d.post("/v1/flights:open", `{"action":"charge"}`) },
		wire.KeyInvalid:        func() reply { return d.post("/v1/flights:open", `{"action":"charge","id":"a b"}`) },
		wire.InputInvalid:      func() reply { return d.post("/v1/flights:open", `{`) },
		wire.Forbidden:         func() reply { return d.post("/v1/flights:open", `{}`, "Origin", "http://evil.example") },
		wire.NotFound:          func() reply { return d.get("/v1/flights/" + flight.MustKey("a/b/c").FlightID().String()) },
		wire.MethodNotAllowed:  func() reply { return d.get("/v1/sessions") },
		wire.RequestIncomplete: func() reply { return d.postPart("/v1/flights:open", `{"action":`) },
		wire.InFlight: func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"running","input":{"actor":"me","amount":1},"wait_ms":0}`)
		},
		wire.InDoubt:         func() reply { return d.post("/v1/flights:open", `{"action":"charge","id":"doubt"}`) },
		wire.Fenced:          func() reply { return d.report(over, `"outcome":"succeeded"`) },
		wire.ApprovalPending: func() reply { return d.post("/v1/flights:open", `{"action":"charge","id":"approve"}`) },
		wire.LeaseLost:       func() reply { return d.post("/v1/sessions/nobody/renew", `{}`) },
		wire.OpenExpired: func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"late","nonce":"n","not_after":1}`)
		},
		wire.SessionInUse: func() reply {
			s, path := d.newSession()
			d.proceed(`{"action":"charge","id":"held","session":"` + s.Session + `"}`)
			return d.post(path+"/close", `{}`)
		},
		wire.TooManyOpen: func() reply {
			for n := range flight.MaxUsedNonces {
				require.Equal(t, http.StatusOK, d.abandon("many", strconv.Itoa(n)).status)
			}
			return d.post("/v1/flights:open", `{"action":"charge","id":"many"}`)
		},
		wire.Expired: func() reply { return d.post("/v1/flights:open", `{"action":"charge","id":"gone"}`) },
		wire.PreconditionFailed: func() reply {
			return d.post("/v1/flights/"+doubt.FlightID+"/resolve", `{"result":"fail","reason":"x"}`, "If-Match", `"1.0"`)
		},
		wire.PayloadTooLarge: func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"1","input":"`+strings.Repeat("x", 256<<10)+`"}`)
		},
		wire.UnsupportedMediaType: func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"1"}`, "Content-Type", "text/plain")
		},
		wire.WrongDeployment: func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"1"}`, "Flightd-Deployment", "another")
		},
		wire.Conflict: func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"running","input":{"amount":2,"actor":"me"},"wait_ms":0}`)
		},
		wire.FlightFailed:         func() reply { return d.post("/v1/flights:open", `{"action":"charge","id":"over"}`) },
		wire.PreconditionRequired: func() reply { return d.post("/v1/flights/"+doubt.FlightID+"/cancel", `{"reason":"x"}`) },
		wire.Internal: func() reply {
			failWith(errors.New("a secret of the inside"))
			defer failWith(nil)
			r := d.post("/v1/flights:open", `{"action":"a","id":"1"}`)
			require.NotContains(t, string(r.body), "secret of the inside")
			return r
		},
		wire.NoLeader:         func() reply { return unavailable("no_leader") },
		wire.LeaseUnavailable: func() reply { return unavailable("lease_unavailable") },
		wire.ReportPending: func() reply {
			failWith(&effect.Unavailable{Code: "report_pending", Cause: errors.New("on purpose")})
			defer failWith(nil)
			return d.report(running, `"outcome":"succeeded"`)
		},
		wire.Draining:     func() reply { return unavailable("draining") },
		wire.LedgerBehind: func() reply { return unavailable("ledger_behind") },
		wire.LeaderLost:   func() reply { return unavailable("leader_lost") },
		wire.Reconciling:  func() reply { return unavailable("reconciling") },
		wire.CallbacksOff: func() reply { return unavailable("callbacks_off") },
		wire.PastPivot: func() reply {
			trip := flight.MustKey("default/trip/pivot")
			of := flight.Submission{Fingerprint: flight.FingerprintBytes(nil), Policy: flight.Policy{Saga: true, Definition: "trip@1"}}
			d.fake.PutDocument(d.t, flight.DefinitionID("default", "trip@1"), []byte("{}"))
			d.fake.Apply(d.t, &flight.Submit{Key: trip, Submission: of})
			open := d.fake.Apply(d.t, &flight.Open{Key: trip, Submission: of, Nonce: flight.Nonce{1}, NotAfter: d.fake.Ledger.Now().Add(30 * time.Second), StoreEpoch: d.fake.Ledger.Header().StoreEpoch})
			d.fake.Apply(d.t, &flight.PassPivot{Key: trip, Generation: 1, Token: open.Token})
			path := "/v1/flights/" + trip.FlightID().String()
			return d.post(path+"/cancel", `{"reason":"x"}`, "If-Match", d.get(path).header.Get("Etag"))
		},
		wire.CallbackEarly: func() reply {
			a := d.proceed(`{"action":"charge","id":"early","callback":true}`)
			return d.callback(a, "", `{"outcome":"not_done"}`)
		},
	}
	for _, class := range wire.Classes() {
		t.Run(string(class.Code), func(t *testing.T) {
			reach, ok := cases[class.Code]
			require.True(t, ok, "each code is reached")
			r := reach()
			p := requireProblem(t, r, class.Status, class.Code)
			require.Equal(t, class.Retryable, p.Retryable)
			if class.Status == http.StatusConflict || class.Status == http.StatusServiceUnavailable || class.Status == http.StatusTooManyRequests {
				require.NotEmpty(t, r.header.Get("Retry-After"))
				require.Positive(t, p.RetryAfterMS)
			}
			if class.Status == http.StatusConflict && !class.Retryable {
				require.Equal(t, "false", r.header.Get("X-Should-Retry"))
				require.Equal(t, "false", r.header.Get("Stripe-Should-Retry"))
			}
			if p.FlightID != "" {
				require.NotEmpty(t, r.header.Get("Flightd-State"))
				require.Equal(t, p.FlightID, r.header.Get("Flightd-Flight-Id"))
			}
		})
	}

	p := decodeBody[wire.Problem](t, cases[wire.InDoubt]())
	require.Equal(t, `"`+p.Version+`"`, etag, "for If-Match")
	require.Equal(t, "default/charge/doubt", p.Key)
	p = decodeBody[wire.Problem](t, cases[wire.Conflict]())
	require.Equal(t, []wire.FieldError{{Pointer: "/input/amount", Detail: "differs from the first input"}}, p.Errors)
	require.Equal(t, running.FlightID, p.FlightID)
	require.Equal(t, "running", p.State, "422 wins over 409, also while the first is running")
}

// A request that is interrupted because the node stops is answered with draining.
func TestStopEndsWaits(t *testing.T) {
	d := newTestServer(t)
	d.proceed(`{"action":"charge","id":"1"}`)
	d.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(context.Context, string) error { return effect.ErrClosed }
	})
	requireProblem(t, d.post("/v1/flights:open", `{"action":"charge","id":"1"}`), http.StatusServiceUnavailable, wire.Draining)
}

func TestRequestID(t *testing.T) {
	d := newTestServer(t)
	require.Equal(t, "mine-1", d.get("/livez", "X-Request-Id", "mine-1").header.Get("X-Request-Id"))
	for _, bad := range []string{"a b", strings.Repeat("x", 65), "<script>"} {
		require.True(t, strings.HasPrefix(d.get("/livez", "X-Request-Id", bad).header.Get("X-Request-Id"), "req_"))
	}
	require.NotEqual(t, d.get("/livez").header.Get("X-Request-Id"), d.get("/livez").header.Get("X-Request-Id"))
}
