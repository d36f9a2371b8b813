package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// revoke deletes a token.
func (g *guardedServer) revoke(namespace, name string) {
	id := auth.TokenID(namespace, name)
	g.fake.Apply(g.t, &flight.DeleteDocument{ID: id, Expect: g.documentVersion(id)})
}

// lateBody is a body that calls begin when the server asks for it, after the request was authenticated.
type lateBody struct {
	io.Reader
	begin func()
}

func (b *lateBody) Read(p []byte) (int, error) {
	b.begin()
	return b.Reader.Read(p)
}

// doLate sends a request whose body begins to arrive after begin.
func (s *tokenServer) doLate(method, path, body string, begin func(), header ...string) reply {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, &lateBody{strings.NewReader(body), sync.OnceFunc(begin)})
	require.NoError(s.t, err)
	req.ContentLength = int64(len(body))
	req.Header.Set("Authorization", "Bearer "+s.secret)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return reply{status: resp.StatusCode, header: resp.Header, body: data}
}

// A token that is revoked while the body of a request is on its way changes nothing. Only evidence is still taken.
func TestRevoked_WhileTheBodyArrives(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	owner := g.as("billing", "owner", auth.AllVerbs)
	a := owner.proceed(`{"action":"charge","id":"1","nonce":"n","not_after":` + notAfter(g) + `}`)
	doubt := decodeBody[wire.Flight](t, owner.report(owner.proceed(`{"action":"charge","id":"2"}`), "unknown"))
	tag, ndjson := []string{"If-Match", `"` + doubt.Version + `"`}, []string{"Content-Type", "application/x-ndjson"}
	for _, c := range []struct {
		method, path, body string
		header             []string
	}{
		{"POST", "/v1/tokens", `{"name":"back","namespace":"billing","verbs":["admin"],"reason":"r"}`, nil},
		{"DELETE", "/v1/tokens/billing/owner", `{"reason":"r"}`, nil},
		{"PUT", "/v1/namespaces/billing", `{"max_open":5,"reason":"r"}`, nil},
		{"POST", "/v1/flights:open", `{"action":"charge","id":"3"}`, []string{"Flightd-Namespace", "billing"}},
		{"POST", "/v1/flights:abandon", `{"action":"charge","id":"1","nonce":"n","not_after":` + notAfter(g) + `}`, []string{"Flightd-Namespace", "billing"}},
		{"POST", "/v1/flights:import", `{"key":"billing/charge/4","outcome":"succeeded"}`, ndjson},
		{"POST", "/v1/flights/" + doubt.ID + "/resolve", `{"result":"fail","reason":"r"}`, tag},
		{"POST", "/v1/flights/" + doubt.ID + "/free", `{"reason":"r"}`, tag},
		{"POST", "/v1/sessions", `{}`, nil},
	} {
		late := g.as("*", "late", auth.AllVerbs)
		var before string
		r := late.doLate(c.method, c.path, c.body, func() {
			g.revoke("*", "late")
			before = g.fake.Snapshot()
		}, c.header...)
		require.Equal(t, http.StatusUnauthorized, r.status, "%s %s: %s", c.method, c.path, r.body)
		require.NotEmpty(t, before)
		require.Equal(t, before, g.fake.Snapshot(), "%s %s", c.method, c.path)
		require.NotContains(t, string(r.body), "fl_", "%s %s", c.method, c.path)
	}

	late := g.as("billing", "late", auth.AllVerbs)
	r := late.doLate("POST", "/v1/flights/"+a.FlightID+"/report", `{"fencing_token":"`+a.FencingToken+`","outcome":"succeeded"}`, func() { g.revoke("billing", "late") })
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	require.Equal(t, "succeeded", r.header.Get("Flightd-State"))
}

func notAfter(g *guardedServer) string {
	return strconv.FormatInt(int64(g.fake.Ledger.Now().Add(30*time.Second)), 10)
}

// The finding of a verification is recorded although its sender was revoked meanwhile; the open that follows is not
// served.
func TestRevoked_WhileAVerificationArrives(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	const open = `{"action":"charge","id":"1","recovery":"verify","settle_ms":1}`
	owner, late := g.as("billing", "owner", auth.AllVerbs), g.as("billing", "late", auth.AllVerbs)
	owner.report(owner.proceed(open), "unknown")
	g.fake.Ledger.Advance(time.Hour)
	v := decodeBody[wire.OpenAnswer](t, late.do("POST", "/v1/flights:open", open))
	require.NotEmpty(t, v.Verification)
	r := late.doLate("POST", "/v1/flights/"+v.FlightID+"/verification", `{"verification":"`+v.Verification+`","result":"not_happened"}`, func() { g.revoke("billing", "late") })
	requireProblem(t, r, http.StatusUnauthorized, wire.Unauthenticated)
	f := decodeBody[wire.Flight](t, owner.do("GET", "/v1/flights/"+v.FlightID, ""))
	require.Equal(t, "ready", f.State, "%+v", f)
}

// An open whose token is revoked before its turn comes opens nothing.
func TestRevoked_WhileAnOpenWaits(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	late := g.as("billing", "late", auth.AllVerbs)
	g.fake.SetFaults(func(f *httpapitest.Faults) {
		f.Before = func(context.Context, string) error { g.revoke("billing", "late"); return nil }
	})
	p := requireProblem(t, late.do("POST", "/v1/flights:open", `{"action":"charge","id":"1","wait_ms":1000}`), http.StatusUnauthorized, wire.Unauthenticated)
	require.Empty(t, p.Key)
	require.Empty(t, p.FlightID)
	f, err := g.fake.Ledger.Flight(flight.MustKey("billing/charge/1").FlightID())
	require.NoError(t, err)
	require.Nil(t, f)
}

// hookLedger calls waits once, at the start of a wait, which ends with its error. It counts the reads of flights.
type hookLedger struct {
	httpapi.Ledger
	httpapi.Feed
	waits atomic.Pointer[func() error]
	feed  atomic.Bool // waits is called at a wait for the feed, not for a flight
	reads atomic.Int64
}

func (l *hookLedger) Flight(id flight.ID) (*flight.Flight, error) {
	l.reads.Add(1)
	return l.Ledger.Flight(id)
}

func (l *hookLedger) hook(feed bool) error {
	if l.feed.Load() != feed {
		return nil
	}
	if waits := l.waits.Swap(nil); waits != nil {
		return (*waits)()
	}
	return nil
}

func (l *hookLedger) Wait(ctx context.Context, id flight.ID, known flight.Version) (*flight.Flight, error) {
	if err := l.hook(false); err != nil {
		return nil, err
	}
	return l.Ledger.Wait(ctx, id, known)
}

func (l *hookLedger) Await(ctx context.Context, after flight.Version) error {
	if err := l.hook(true); err != nil {
		return err
	}
	return l.Feed.Await(ctx, after)
}

func (l *hookLedger) install(c *httpapi.Config) {
	l.Ledger, l.Feed = c.Ledger, c.Feed
	c.Ledger, c.Feed = l, l
}

// A read that waits delivers nothing after its token was revoked: neither the change that it waited for, nor that there
// was none.
func TestRevoked_WhileAReadWaits(t *testing.T) {
	ledger := &hookLedger{}
	g := newGuardedServer(t, auth.NodeLimits{}, ledger.install)
	owner := g.as("billing", "owner", auth.AllVerbs)
	for i, path := range []string{"/v1/flights/{id}", "/v1/flights/{id}/events?after={end}", "/v1/events?after={end}"} {
		for _, changes := range []bool{true, false} {
			a := owner.proceed(fmt.Sprintf(`{"action":"charge","id":"%d-%t"}`, i, changes))
			late := g.as("billing", "late", auth.Read)
			end := decodeBody[wire.EventPage](t, owner.do("GET", "/v1/events?last=1", "")).Next
			waits := func() error {
				g.revoke("billing", "late")
				if !changes {
					return errors.New("the wait is over")
				}
				owner.report(a, "succeeded")
				return nil
			}
			ledger.feed.Store(strings.HasPrefix(path, "/v1/events"))
			ledger.waits.Store(&waits)
			r := late.do("GET", strings.NewReplacer("{id}", a.FlightID, "{end}", end).Replace(path), "", "If-None-Match", "*", "Prefer", "wait=1")
			require.Nil(t, ledger.waits.Load(), "it has waited: %s", r.body)
			requireProblem(t, r, http.StatusUnauthorized, wire.Unauthenticated)
			require.Empty(t, r.header.Get("Flightd-State"), path)
		}
	}
}

// A stream shows the events of documents only while the token has the verb admin.
func TestStream_LosesTheEventsOfDocuments(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	admin, owner := g.as("billing", "admin", auth.Read|auth.Admin), g.as("billing", "owner", auth.AllVerbs)
	s := g.stream("/v1/events", "Authorization", "Bearer "+admin.secret)
	g.fake.Issue(t, "billing", "seen", auth.Read, 0)
	owner.proceed(`{"action":"charge","id":"1"}`)
	texts := func(id string) string {
		var all strings.Builder
		for !strings.Contains(all.String(), "billing/charge/"+id) {
			all.WriteString(s.next().data)
		}
		return all.String()
	}
	require.Contains(t, texts("1"), "billing/token/seen")
	cfg := g.fake.Config()
	token, err := auth.DecodeToken(cfg.Documents.Document(auth.TokenID("billing", "admin")).Body)
	require.NoError(t, err)
	token.Verbs = auth.Read
	g.fake.PutDocument(t, auth.TokenID("billing", "admin"), token.Encode())
	owner.proceed(`{"action":"charge","id":"2"}`)
	require.NotContains(t, texts("2"), "document")
}

// A problem of a token of one namespace reads no flight whose key the request does not name: the time of the read would
// tell whether the flight exists.
func TestProblems_ReadNoFlightForATokenOfOneNamespace(t *testing.T) {
	ledger := &hookLedger{}
	g := newGuardedServer(t, auth.NodeLimits{}, ledger.install, func(c *httpapi.Config) {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	a := g.as("shipping", "owner", auth.AllVerbs).proceed(`{"action":"charge","id":"1"}`)
	spy := g.as("billing", "spy", auth.AllVerbs)
	path := "/v1/flights/" + a.FlightID
	ledger.reads.Store(0)
	for _, r := range []reply{
		spy.do("GET", path+"?x=1", ""),
		spy.do("GET", path, "", "If-None-Match", "x"),
		spy.do("GET", path+"/events?x=1", ""),
		spy.do("POST", path+"/cancel", `{"reason":"r"}`),
		spy.do("POST", path+"/report", `{"fencing_token":"x","outcome":"none"}`),
		spy.do("POST", path+"/report", `{`),
		spy.do("GET", path, "", "Flightd-Deployment", "other"),
	} {
		require.GreaterOrEqual(t, r.status, 400)
		require.Less(t, r.status, 500)
	}
	require.Zero(t, ledger.reads.Load())
}

// A late report without its key is logged: the fencing token proves that the sender held the attempt.
func TestReport_WithoutKeyForATombstone(t *testing.T) {
	log := &safeBuffer{}
	g := newGuardedServer(t, auth.NodeLimits{}, func(c *httpapi.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	web := g.as("billing", "web", auth.Submit)
	a := web.proceed(`{"action":"charge","id":"1","retention":"1s"}`)
	other := web.proceed(`{"action":"charge","id":"2"}`)
	require.Equal(t, http.StatusOK, web.report(a, "succeeded").status)
	g.fake.Ledger.Advance(10 * time.Second)
	path := "/v1/flights/" + a.FlightID + "/report"
	requireProblem(t, web.do("POST", path, `{"fencing_token":"`+other.FencingToken+`","outcome":"refused"}`), http.StatusNotFound, wire.NotFound)
	require.NotContains(t, log.take(), "report after the end of retention")
	p := requireProblem(t, web.do("POST", path, `{"fencing_token":"`+a.FencingToken+`","outcome":"refused","external_id":"ch_2"}`), http.StatusBadRequest, wire.KeyRequired)
	require.Equal(t, "/key", p.Errors[0].Pointer)
	require.Contains(t, log.take(), "external_id=ch_2")
	p = requireProblem(t, web.report(a, "refused"), http.StatusConflict, wire.Fenced)
	require.Equal(t, "succeeded", p.Outcome)
}

// A secret that a person or a program writes into a text is not stored.
func TestSecrets_AreNotStoredInTexts(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	web, canary := g.as("billing", "web", auth.AllVerbs), auth.NewSecret("billing")
	post := func(status int, path, body string, header ...string) reply {
		r := web.do("POST", path, body, header...)
		require.Equal(t, status, r.status, "%s", r.body)
		return r
	}
	a := decodeBody[wire.OpenAnswer](t, post(201, "/v1/flights:open", `{"action":"charge","id":"1","owner":"host `+canary+`"}`))
	flightPath := "/v1/flights/" + a.FlightID
	r := post(200, flightPath+"/report", `{"fencing_token":"`+a.FencingToken+`","outcome":"unknown","error":"got `+canary+`"}`)
	post(200, flightPath+"/resolve", `{"result":"fail","reason":"saw `+canary+`","actor":"ada `+canary+`"}`, "If-Match", r.header.Get("ETag"))
	post(201, "/v1/flights:open", `{"action":"charge","id":"2","nonce":"n","not_after":`+notAfter(g)+`}`)
	post(200, "/v1/flights:abandon", `{"action":"charge","id":"2","nonce":"n","reason":"lost `+canary+`","not_after":`+notAfter(g)+`}`)
	var shown bytes.Buffer
	for _, path := range []string{flightPath, flightPath + "/events", "/v1/audit", "/v1/events?last=1000", "/v1/flights/" + flight.MustKey("billing/charge/2").FlightID().String() + "/events"} {
		shown.Write(web.do("GET", path, "").body)
	}
	require.NotContains(t, shown.String(), canary[:20])
	for _, text := range []string{"got fltd_(hidden)", "saw fltd_(hidden)", "ada fltd_(hidden)", "lost fltd_(hidden)"} {
		require.Contains(t, shown.String(), text)
	}
}

// A page of the audit log may end before it is full, because a request reads a bounded part of the log.
func TestAudit_NextAfterAPartWithoutMatches(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	admin := g.as("billing", "admin", auth.Admin)
	for range 150 {
		g.fake.Issue(t, "shipping", "busy", auth.Read, 0)
	}
	page := decodeBody[wire.AuditPage](t, admin.do("GET", "/v1/audit", ""))
	require.Empty(t, page.Entries)
	require.NotEmpty(t, page.Next)
	page = decodeBody[wire.AuditPage](t, admin.do("GET", "/v1/audit?before="+page.Next, ""))
	require.NotEmpty(t, page.Entries)
	require.Empty(t, page.Next)
}
