package httpapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// guardedServer is a server that needs credentials.
type guardedServer struct{ *testServer }

func newGuardedServer(t *testing.T, node auth.NodeLimits, change ...func(*httpapi.Config)) *guardedServer {
	t.Helper()
	world := httpapitest.New(t)
	cfg := world.Config()
	for _, c := range change {
		c(&cfg)
	}
	world.UseCredentials(&cfg, node)
	return &guardedServer{serve(t, world, cfg)}
}

// as returns the server as a caller with a new token sees it.
func (g *guardedServer) as(namespace, name string, verbs auth.Verbs) *tokenServer {
	g.t.Helper()
	return &tokenServer{g.testServer, g.fake.Issue(g.t, namespace, name, verbs, 0)}
}

// tokenServer sends requests with a token.
type tokenServer struct {
	*testServer
	secret string
}

func (s *tokenServer) do(method, path, body string, header ...string) reply {
	s.t.Helper()
	return s.send(method, path, body, append([]string{"Authorization", "Bearer " + s.secret}, header...)...)
}

func (s *tokenServer) proceed(body string, header ...string) wire.OpenAnswer {
	s.t.Helper()
	r := s.do(http.MethodPost, "/v1/flights:open", body, header...)
	require.Equal(s.t, http.StatusCreated, r.status, "%s", r.body)
	return decodeBody[wire.OpenAnswer](s.t, r)
}

func (s *tokenServer) report(a wire.OpenAnswer, outcome string) reply {
	s.t.Helper()
	return s.do(http.MethodPost, "/v1/flights/"+a.FlightID+"/report", `{"fencing_token":"`+a.FencingToken+`","key":"`+a.Key+`","outcome":"`+outcome+`"}`)
}

// holdOpens makes the next open send to held and wait for hold to be closed; other calls are not held.
func (g *guardedServer) holdOpens(held chan<- struct{}, hold <-chan struct{}) {
	g.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(_ context.Context, method string) error {
			if method == "Open" {
				g.fake.SetFaults(func(l *httpapitest.Faults) { l.Before = nil })
				close(held)
				<-hold
			}
			return nil
		}
	})
}

// somePath replaces the names in a pattern.
func somePath(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("flights/{id}", "flights/"+flight.MustKey("billing/charge/1").FlightID().String(), "{id}", "x", "{code}", "forbidden", "{token}", "x",
		"{namespace}", "billing", "{name}", "x", "{action}", "x").Replace(path)
}

// Each route needs a token with one of its verbs, except the public ones.
func TestEveryRouteChecksTheToken(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	routes := httpapi.Routes()
	public := []string{"GET /livez", "GET /readyz", "GET /openapi.json", "GET /problems/{code}", "POST /v1/callbacks/{token}"}
	for pattern, need := range routes {
		t.Run(pattern, func(t *testing.T) {
			method, path := somePath(pattern)
			r := g.send(method, path, "{}")
			if need.Public {
				require.Contains(t, public, pattern)
				require.NotEqual(t, http.StatusUnauthorized, r.status)
				return
			}
			p := requireProblem(t, r, http.StatusUnauthorized, wire.Unauthenticated)
			require.Equal(t, "Bearer", r.header.Get("WWW-Authenticate"))
			require.Empty(t, r.header.Get("Flightd-State"))
			require.Empty(t, p.FlightID)
			for _, namespace := range []string{"billing", "*"} {
				for _, verb := range []auth.Verbs{auth.Submit, auth.Work, auth.Read, auth.Operate, auth.Admin, auth.Define} {
					r := g.as(namespace, "one", verb).do(method, path, "{}")
					if need.Verbs == 0 || need.Verbs.HasAny(verb) {
						require.NotEqual(t, http.StatusUnauthorized, r.status, "%s", verb)
						if r.status == http.StatusForbidden { // by the rule that only a token of all namespaces sets limits, and replaces nodes
							require.Equal(t, "billing", namespace)
							require.True(t, strings.Contains(pattern, "/v1/namespaces/") || strings.Contains(pattern, "/v1/cluster/"), pattern)
						}
						continue
					}
					p := requireProblem(t, r, http.StatusForbidden, wire.Forbidden)
					require.Contains(t, p.Detail, "this request needs "+strings.Join(need.Verbs.Names(), " or "))
					require.Empty(t, r.header.Get("Flightd-State"))
				}
			}
		})
	}
}

// GET /readyz?verbose describes the node, so it needs a token; GET /readyz shows no error texts.
func TestReadyz_HidesTheNode(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	requireProblem(t, g.get("/readyz?verbose"), http.StatusUnauthorized, wire.Unauthenticated)
	requireProblem(t, g.as("*", "reader", auth.Read).do("GET", "/readyz?verbose", ""), http.StatusForbidden, wire.Forbidden)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.NotReady = "disk /var/lib/flightd is full" })
	r := g.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.NotContains(t, string(r.body), "/var/lib")
	require.Contains(t, string(g.as("*", "operator", auth.Operate).do("GET", "/readyz?verbose", "").body), "/var/lib")
}

// The metrics of all namespaces are not served to callers with tokens.
func TestMetrics_OnlyWithoutCredentials(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{}, func(c *httpapi.Config) {
		c.About.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	})
	require.Equal(t, http.StatusNotFound, g.get("/metrics").status)
}

// 5,000 forged and malformed credentials are rejected, and change nothing. Unknown and revoked tokens get the same text.
func TestForgedCredentials(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	admin := g.as("*", "admin", auth.AllVerbs)
	session := decodeBody[wire.SessionAnswer](t, admin.do("POST", "/v1/sessions", `{"ttl_ms":600000}`, "Flightd-Namespace", "billing")).Session // outlives the test
	opened := admin.proceed(`{"action":"charge","id":"1","session":"`+session+`"}`, "Flightd-Namespace", "billing")
	revoked := g.as("billing", "old", auth.AllVerbs)
	require.Equal(t, http.StatusOK, admin.do("DELETE", "/v1/tokens/billing/old", `{"reason":"test"}`).status)
	expired := g.fake.Issue(t, "billing", "short", auth.AllVerbs, time.Minute)
	valid := g.as("billing", "ci", auth.AllVerbs).secret
	g.fake.Ledger.Advance(2 * time.Minute)
	before := g.fake.Snapshot()

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	letters := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	mutate := []func(s string) []string{
		func(s string) []string { return []string{"Bearer " + s[:random.IntN(len(s))]} },
		func(s string) []string {
			b := []byte(s)
			at := 5 + random.IntN(43)
			b[at] = letters[(strings.IndexByte(letters, b[at])+1+random.IntN(63))%64]
			return []string{"Bearer " + string(b)}
		},
		func(s string) []string { return []string{"Bearer " + s + string(letters[random.IntN(64)])} },
		func(s string) []string {
			return []string{"Basic " + base64.StdEncoding.EncodeToString([]byte("token:"+s))}
		},
		func(s string) []string { return []string{"Token " + s} },
		func(s string) []string { return []string{s} },
		func(s string) []string { return []string{"Bearer " + s, "Bearer " + s} },
		func(s string) []string { return []string{"Bearer " + s, ""} },
		func(s string) []string { return []string{"Bearer " + strings.ToUpper(s)} },
		func(s string) []string { return []string{"Bearer " + s + ", Bearer " + s} },
		func(s string) []string { return []string{"Bearer  " + s} },
		func(s string) []string { return []string{"Bearer\t" + s} },
		func(s string) []string { return []string{"Bearer \"" + s + "\""} },
		func(s string) []string { return []string{"Bearer " + s + "="} },
		func(string) []string { return []string{"Bearer " + auth.NewSecret("billing")} },
		func(string) []string { return []string{"Bearer " + revoked.secret} },
		func(string) []string { return []string{"Bearer " + expired} },
		func(string) []string { return []string{"Bearer"} },
		func(string) []string { return []string{""} },
		func(string) []string { return nil },
		func(s string) []string { return []string{"Bearer " + strings.Repeat(s, 2+random.IntN(40))} },
		func(s string) []string { return []string{"Bearer " + strings.Replace(s, "_", "%5F", 1)} },
		func(s string) []string { return []string{"Bearer " + s[:10] + "\u00e9" + s[10:]} },
	}
	var protected []string
	for pattern, need := range httpapi.Routes() {
		if !need.Public {
			protected = append(protected, pattern)
		}
	}
	texts := map[string]bool{}
	for i := range 5000 {
		method, path := somePath(protected[random.IntN(len(protected))])
		var header []string
		for _, value := range mutate[i%len(mutate)](valid) {
			header = append(header, "+Authorization", value)
		}
		if random.IntN(2) == 0 {
			header = append(header, "Flightd-Namespace", "billing")
		}
		r := g.send(method, path, `{"fencing_token":"`+opened.FencingToken+`","outcome":"succeeded"}`, header...)
		require.Equal(t, http.StatusUnauthorized, r.status, "seed %d, request %d: %q", seed, i, header)
		if method == http.MethodHead {
			continue
		}
		p := decodeBody[wire.Problem](t, r)
		texts[p.Detail] = true
		require.NotContains(t, string(r.body), valid[:20], "seed %d, request %d", seed, i)
	}
	require.Len(t, texts, 4, "missing, malformed, expired, and one text for unknown and revoked: %v", texts)
	require.Equal(t, before, g.fake.Snapshot())
}

// A revoked token is rejected from the next request on; a rotated one as its request says.
func TestTokens_AreRevokedAtOnce(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	admin := g.as("*", "admin", auth.AllVerbs)
	made := decodeBody[wire.NewToken](t, admin.do("POST", "/v1/tokens", `{"name":"web","namespace":"billing","reason":"new"}`))
	require.Equal(t, []string{"submit", "read"}, made.Verbs)
	web := &tokenServer{g.testServer, made.Token}
	whoami := func(s *tokenServer) int { return s.do("GET", "/v1/whoami", "").status }
	me := decodeBody[wire.WhoAmI](t, web.do("GET", "/v1/whoami", ""))
	require.Equal(t, wire.WhoAmI{Name: "web", Namespace: "billing", Verbs: []string{"submit", "read"}}, me)

	rotated := decodeBody[wire.NewToken](t, admin.do("POST", "/v1/tokens", `{"name":"web","namespace":"billing","rotate":true,"keep_old_ms":60000,"reason":"quarter"}`))
	second := &tokenServer{g.testServer, rotated.Token}
	require.Equal(t, http.StatusOK, whoami(web))
	g.fake.Ledger.Advance(2 * time.Minute)
	require.Equal(t, http.StatusUnauthorized, whoami(web))
	require.Equal(t, http.StatusOK, whoami(second))

	require.Equal(t, http.StatusOK, admin.do("DELETE", "/v1/tokens/billing/web", `{"reason":"over"}`).status)
	require.Equal(t, http.StatusUnauthorized, whoami(second))
	list := string(admin.do("GET", "/v1/tokens", "").body)
	require.NotContains(t, list, "web")
	require.NotContains(t, list, "fltd_")
}

// Nobody can give away more than the own token has, in verbs or in namespaces.
func TestTokens_CannotGrantMoreThanTheirOwn(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	g.as("billing", "operator", auth.Operate|auth.Read)
	g.as("*", "everything", auth.AllVerbs)
	admin := g.as("billing", "admin", auth.Admin|auth.Submit|auth.Read)
	before := g.fake.Snapshot()
	for _, body := range []string{
		`{"name":"x","verbs":["operate"],"reason":"r"}`,
		`{"name":"x","verbs":["submit","work"],"reason":"r"}`,
		`{"name":"x","namespace":"shipping","reason":"r"}`,
		`{"name":"x","namespace":"*","reason":"r"}`,
		`{"name":"everything","namespace":"*","rotate":true,"reason":"r"}`,
		`{"name":"operator","rotate":true,"reason":"r"}`, // the secret of a token that may operate
	} {
		requireProblem(t, admin.do("POST", "/v1/tokens", body), http.StatusForbidden, wire.Forbidden)
	}
	for _, path := range []string{"/v1/tokens/%2A/everything", "/v1/tokens/*/everything", "/v1/tokens/shipping/none"} {
		requireProblem(t, admin.do("DELETE", path, `{"reason":"r"}`), http.StatusForbidden, wire.Forbidden)
	}
	requireProblem(t, admin.do("PUT", "/v1/namespaces/billing", `{"max_open":1000000,"reason":"r"}`), http.StatusForbidden, wire.Forbidden)
	requireProblem(t, admin.do("DELETE", "/v1/namespaces/billing", `{"reason":"r"}`), http.StatusForbidden, wire.Forbidden)
	requireProblem(t, admin.do("GET", "/v1/namespaces/shipping", ""), http.StatusForbidden, wire.Forbidden)
	require.Equal(t, before, g.fake.Snapshot())

	var listed []string
	for _, token := range decodeBody[wire.TokenList](t, admin.do("GET", "/v1/tokens", "")).Tokens {
		listed = append(listed, token.Namespace+"/"+token.Name)
	}
	require.Equal(t, []string{"billing/admin", "billing/operator"}, listed)
	made := decodeBody[wire.NewToken](t, admin.do("POST", "/v1/tokens", `{"name":"x","reason":"r"}`))
	require.Equal(t, "billing", made.Namespace)
	for _, e := range decodeBody[wire.AuditPage](t, admin.do("GET", "/v1/audit", "")).Entries {
		require.Equal(t, "billing", e.Namespace)
	}
}

// The ledger records the name of the token with the actor, and a caller cannot choose it.
func TestActor_NamesTheToken(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	all := g.as("billing", "ci", auth.AllVerbs)
	cancel := func(id, extra string) string {
		f := decodeBody[wire.Flight](t, all.report(all.proceed(`{"action":"charge","id":"`+id+`"}`), "not_done"))
		r := all.do("POST", "/v1/flights/"+f.ID+"/cancel", `{"reason":"r"`+extra+`}`, "If-Match", `"`+f.Version+`"`)
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		entries := decodeBody[wire.AuditPage](t, all.do("GET", "/v1/audit?verb=cancel&limit=1", "")).Entries
		require.Equal(t, "billing/charge/"+id, entries[0].Subject)
		return entries[0].Actor
	}
	require.Equal(t, "token billing/ci", cancel("1", ""))
	require.Equal(t, "ada (token billing/ci)", cancel("2", `,"actor":"ada"`))
	long := cancel("3", `,"actor":"`+strings.Repeat("a", 1024)+`"`)
	require.True(t, strings.HasSuffix(long, "a (token billing/ci)"))
	require.Len(t, long, flight.MaxText)

	admin := g.as("*", "admin", auth.AllVerbs)
	require.Equal(t, http.StatusOK, admin.do("DELETE", "/v1/tokens/billing/ci", `{"reason":"r","actor":"eve"}`).status)
	entries := decodeBody[wire.AuditPage](t, admin.do("GET", "/v1/audit?limit=1", "")).Entries
	require.Equal(t, "eve (token */admin)", entries[0].Actor)
}

// A session belongs to the namespace and the name of a token: a new secret of the name continues it, nobody else can.
// A report needs the namespace only.
func TestSessions_BelongToTheToken(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	web, sibling := g.as("billing", "web", auth.Submit), g.as("billing", "other", auth.Submit|auth.Work)
	foreign, all := g.as("shipping", "web", auth.Submit), g.as("*", "web", auth.Submit)
	s := decodeBody[wire.SessionAnswer](t, web.do("POST", "/v1/sessions", `{}`))
	inner, _, sealed := strings.Cut(s.Session, "~")
	require.True(t, sealed)
	a := web.proceed(`{"action":"charge","id":"1","session":"` + s.Session + `"}`)
	require.Equal(t, s.Session, a.Session)

	unknown := sibling.do("POST", "/v1/sessions/nobody/renew", `{}`)
	requireProblem(t, unknown, http.StatusGone, wire.LeaseLost)
	for name, as := range map[string]*tokenServer{"another name": sibling, "another namespace": foreign, "all namespaces": all} {
		for _, id := range []string{s.Session, inner, inner + "~", inner + "~AAAAAAAAAAAAAAAAAAAAAA", "~", "~" + inner} {
			for _, verb := range []string{"renew", "close"} {
				r := as.do("POST", "/v1/sessions/"+id+"/"+verb, `{}`)
				require.Equal(t, withoutRequestID(unknown), withoutRequestID(r), "%s: %s %s", name, verb, id)
			}
		}
	}
	other := sibling.do("POST", "/v1/flights:open", `{"action":"charge","id":"2","session":"`+s.Session+`"}`)
	requireProblem(t, other, http.StatusGone, wire.LeaseLost)
	require.Equal(t, withoutRequestID(other), withoutRequestID(sibling.do("POST", "/v1/flights:open", `{"action":"charge","id":"2","session":"nobody"}`)))

	next := g.as("billing", "web", auth.Submit) // a new secret
	require.Equal(t, http.StatusUnauthorized, web.do("POST", "/v1/sessions/"+s.Session+"/renew", `{}`).status)
	renewed := decodeBody[wire.SessionAnswer](t, next.do("POST", "/v1/sessions/"+s.Session+"/renew", `{"open_digest":"e3b0c44298fc1c149afbf4c8996fb924"}`))
	require.Equal(t, s.Session, renewed.Session)
	require.Len(t, renewed.Open, 1)
	requireProblem(t, foreign.report(a, "succeeded"), http.StatusForbidden, wire.Forbidden)
	require.Equal(t, http.StatusOK, sibling.report(a, "succeeded").status, "a report from any token of the namespace")
	require.Equal(t, http.StatusOK, next.do("POST", "/v1/sessions/"+s.Session+"/close", `{}`).status)
	require.Equal(t, http.StatusOK, next.do("POST", "/v1/sessions/"+s.Session+"/close", `{}`).status, "as without credentials")
}

// withoutRequestID returns an answer without the parts that differ between any two requests.
// The ledger may append an entry between two requests, so neither its time nor its position is compared.
func withoutRequestID(r reply) string {
	h := r.header.Clone()
	for _, name := range []string{"Date", "X-Request-Id", "Flightd-Ledger-Time", "Flightd-Index", "Content-Length"} {
		h.Del(name)
	}
	body := map[string]any{}
	if json.Unmarshal(r.body, &body) == nil {
		delete(body, "request_id")
		delete(body, "session") // the one that the request named
	}
	return fmt.Sprintf("%d %v %v", r.status, h, body)
}

// The limits reject new work. Reports, verifications, abandons, renewals and replays pass them all.
func TestLimits_ShedNewWorkFirst(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{MaxOpens: 1})
	web := g.as("billing", "web", auth.AllVerbs)
	s := decodeBody[wire.SessionAnswer](t, web.do("POST", "/v1/sessions", `{}`))
	done := web.proceed(`{"action":"charge","id":"done"}`)
	require.Equal(t, http.StatusOK, web.report(done, "succeeded").status)
	running := web.proceed(`{"action":"charge","id":"running","session":"` + s.Session + `"}`)
	look := web.proceed(`{"action":"charge","id":"look","recovery":"verify","settle_ms":1}`)
	require.Equal(t, http.StatusOK, web.report(look, "unknown").status)
	g.fake.Ledger.Advance(time.Hour)
	verify := web.do("POST", "/v1/flights:open", `{"action":"charge","id":"look","recovery":"verify","settle_ms":1}`)
	require.Equal(t, http.StatusOK, verify.status, "%s", verify.body)
	toVerify := decodeBody[wire.OpenAnswer](t, verify)

	hold, held := make(chan struct{}), make(chan struct{})
	g.holdOpens(held, hold)
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	finished := make(chan reply, 1)
	go func() { finished <- web.do("POST", "/v1/flights:open", `{"action":"charge","id":"slow"}`) }()
	<-held // one open is in progress: the bound of the node is reached
	r := web.do("POST", "/v1/flights:open", `{"action":"charge","id":"shed"}`)
	p := requireProblem(t, r, http.StatusTooManyRequests, wire.RateLimited)
	require.Equal(t, "1", r.header.Get("Retry-After"))
	require.Contains(t, p.Detail, "too many opens in progress")
	require.Equal(t, http.StatusOK, web.do("POST", "/v1/sessions/"+s.Session+"/renew", `{}`).status)
	require.Equal(t, http.StatusOK, web.report(running, "succeeded").status)
	r = web.do("POST", "/v1/flights/"+toVerify.FlightID+"/verification", `{"verification":"`+toVerify.Verification+`","result":"happened"}`)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	r = web.do("POST", "/v1/flights:abandon", fmt.Sprintf(`{"action":"charge","id":"never","nonce":"n","not_after":%d}`, g.fake.Ledger.Now().Add(time.Minute)))
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	release()
	require.Equal(t, http.StatusCreated, (<-finished).status)

	g.fake.PutDocument(t, auth.LimitsID("billing"), auth.Limits{MaxOpen: 1, MaxFlights: 4}.Encode())
	p = requireProblem(t, web.do("POST", "/v1/flights:open", `{"action":"charge","id":"more"}`), http.StatusTooManyRequests, wire.TooManyOpen)
	require.Contains(t, p.Detail, "namespace billing may have 1 open attempts")
	require.Equal(t, http.StatusOK, web.do("POST", "/v1/flights:open", `{"action":"charge","id":"done"}`).status, "a replay")
	g.fake.PutDocument(t, auth.LimitsID("billing"), auth.Limits{MaxFlights: 4}.Encode())
	requireProblem(t, web.do("POST", "/v1/flights:open", `{"action":"charge","id":"more"}`), http.StatusTooManyRequests, wire.QuotaExceeded)
	r = web.do("POST", "/v1/flights:import", `{"key":"billing/charge/old","outcome":"succeeded"}`, "Content-Type", "application/x-ndjson")
	requireProblem(t, r, http.StatusTooManyRequests, wire.QuotaExceeded)
	g.fake.PutDocument(t, auth.LimitsID("billing"), auth.Limits{OpensPerSecond: 1, Burst: 1}.Encode())
	web.do("POST", "/v1/flights:open", `{"action":"charge","id":"done"}`)
	r = web.do("POST", "/v1/flights:open", `{"action":"charge","id":"done"}`)
	p = requireProblem(t, r, http.StatusTooManyRequests, wire.RateLimited)
	require.Positive(t, p.RetryAfterMS)
	shipping := g.as("shipping", "web", auth.AllVerbs)
	shipping.proceed(`{"action":"charge","id":"1"}`)
}

// Requests that read many rows are bounded for each namespace. A read of one flight and a report are not among them.
func TestLimits_ScansAtOnce(t *testing.T) {
	world := httpapitest.New(t)
	cfg := world.Config()
	world.UseCredentials(&cfg, auth.NodeLimits{})
	g := &guardedServer{serve(t, world, cfg)}
	web := g.as("billing", "web", auth.AllVerbs)
	a := web.proceed(`{"action":"charge","id":"1"}`)
	for range 2 {
		end, err := cfg.Callers.Limits.StartScan("billing")
		require.NoError(t, err)
		defer end()
	}
	for _, path := range []string{"/v1/flights", "/v1/events", "/v1/events?after=1.0", "/v1/audit"} {
		r := web.do("GET", path, "")
		requireProblem(t, r, http.StatusTooManyRequests, wire.RateLimited)
		require.Equal(t, http.StatusOK, g.as("shipping", "web", auth.AllVerbs).do("GET", path, "").status, path)
	}
	require.Equal(t, http.StatusOK, web.do("GET", "/v1/flights?key=billing/charge/1", "").status)
	require.Equal(t, http.StatusOK, web.report(a, "succeeded").status)
}
