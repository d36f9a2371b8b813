package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// stateLimit bounds each wait for a state. It is generous: a busy machine must not fail a test.
const stateLimit = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a server over a fake flightd, with faults for its requests, and a log.
type fixture struct {
	t            *testing.T
	fake         *httpapitest.Fake
	nodeSessions []flight.SessionID // of the node itself
	server       *httptest.Server
	net          *client.PipeNet // that the server listens on; nil: TCP
	spool        string

	reached chan struct{}

	mu           sync.Mutex
	api          http.Handler
	fault        func(r *http.Request) fault
	cannedAnswer []byte   // what canned answers
	seen         []string // paths, in order
	log          bytes.Buffer
}

// fault is the fault of one request.
type fault int

const (
	none     fault = iota
	cutAfter       // it is carried out, and the connection cut before the answer
	cutBefore
	cutLate   // as cutAfter, but the client must hang up; carried tells that it is carried out
	slow      // it is carried out only when the client has hung up; carried tells that it came, and that it is carried out
	busy      // answered busy by a node that has not proposed the open
	busyAfter // it is carried out, and that is the answer all the same
	refused   // with a retryable 503
	shutOut   // with flightd's own 403
	overQuota // with a 429
	canned    // answered with g.cannedAnswer
)

// newWorld makes a flightd in memory without a pool of sessions made in advance.
func newWorld(t *testing.T) *httpapitest.Fake {
	ledger := flightdtest.NewLedger()
	leases := leasetest.Open(t, leasetest.NewEtcd(), leasetest.NewLedger(), leasetest.Options{Ledger: ledger, Tune: func(c *lease.Config) { c.Pool = -1 }})
	return httpapitest.Open(t, flightdtest.Options{Ledger: ledger, Leases: leases})
}

func newFixture(t *testing.T) *fixture { return openFixture(t, nil) }

// newBubbleFixture is a fixture for a testing/synctest bubble: its network is in memory.
func newBubbleFixture(t *testing.T) *fixture { return openFixture(t, client.NewPipeNet()) }

func openFixture(t *testing.T, network *client.PipeNet) *fixture {
	g := &fixture{t: t, fake: newWorld(t), net: network, spool: t.TempDir(), reached: make(chan struct{}, 1)}
	g.api, g.nodeSessions = httpapi.New(g.fake.Config()), g.fake.Leases.Etcd.Sessions()
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, api := g.next(r)
		w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		switch f {
		case cutAfter:
			api.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case cutLate:
			api.ServeHTTP(httptest.NewRecorder(), r)
			g.reached <- struct{}{}
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case slow:
			body, _ := io.ReadAll(r.Body) // so that the server sees the client go
			g.reached <- struct{}{}
			<-r.Context().Done()
			late := r.WithContext(context.WithoutCancel(r.Context()))
			late.Body = io.NopCloser(bytes.NewReader(body))
			api.ServeHTTP(httptest.NewRecorder(), late)
			g.reached <- struct{}{}
		case canned:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(g.cannedAnswer)
		case cutBefore:
			panic(http.ErrAbortHandler)
		case busy, busyAfter:
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if f == busyAfter {
				api.ServeHTTP(httptest.NewRecorder(), r)
			}
			open, _ := wire.Decode[wire.OpenRequest](body)
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"code":"idempotency_in_flight","retryable":true,"retry_after_ms":1,"proposed":false,"nonce":"` + open.Nonce + `","flight_id":"` + key.FlightID().String() + `"}`))
		case refused:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"no_leader","retryable":true,"retry_after_ms":1}`))
		case shutOut:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"code":"forbidden","retryable":false,"hint":"ask an administrator"}`))
		case overQuota:
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"code":"quota_exceeded","retryable":true}`))
		default:
			api.ServeHTTP(w, r)
		}
	}))
	if network != nil {
		require.NoError(t, g.server.Listener.Close())
		g.server.Listener = network
	}
	g.server.Start()
	t.Cleanup(g.server.Close)
	return g
}

func (fi *fixture) next(r *http.Request) (fault, http.Handler) {
	fi.mu.Lock()
	defer fi.mu.Unlock()
	fi.seen = append(fi.seen, r.URL.Path)
	if fi.fault == nil {
		return none, fi.api
	}
	f := fi.fault(r)
	return f, fi.api
}

// handler is the server of a deployment.
func (fi *fixture) handler(deployment string) http.Handler {
	cfg := fi.fake.Config()
	cfg.About.Version.Deployment = deployment
	return httpapi.New(cfg)
}

// setDeployment lets another deployment answer from now on.
func (fi *fixture) setDeployment(deployment string) {
	api := fi.handler(deployment)
	fi.mu.Lock()
	defer fi.mu.Unlock()
	fi.api = api
}

// setFault sets the faults of later requests.
func (fi *fixture) setFault(f func(r *http.Request) fault) {
	fi.mu.Lock()
	defer fi.mu.Unlock()
	fi.fault = f
}

// faultOnce injects a fault into the first request whose path has this suffix.
func (fi *fixture) faultOnce(suffix string, f fault) {
	done := false
	fi.setFault(func(r *http.Request) fault {
		if done || !hasSuffix(r, suffix) {
			return none
		}
		done = true
		return f
	})
}

func hasSuffix(r *http.Request, suffix string) bool {
	return len(r.URL.Path) >= len(suffix) && r.URL.Path[len(r.URL.Path)-len(suffix):] == suffix
}

// count returns the number of requests whose path has this suffix.
func (fi *fixture) count(suffix string) (n int) {
	fi.mu.Lock()
	defer fi.mu.Unlock()
	for _, path := range fi.seen {
		if len(path) >= len(suffix) && path[len(path)-len(suffix):] == suffix {
			n++
		}
	}
	return n
}

// Write collects the log.
func (fi *fixture) Write(b []byte) (int, error) {
	fi.mu.Lock()
	defer fi.mu.Unlock()
	return fi.log.Write(b)
}

func (fi *fixture) logged() string {
	fi.mu.Lock()
	defer fi.mu.Unlock()
	return fi.log.String()
}

func (fi *fixture) connect(opts ...client.Option) *client.Client {
	fi.t.Helper()
	return fi.connectTo(fi.server.URL, opts...)
}

func (fi *fixture) connectTo(address string, opts ...client.Option) *client.Client {
	fi.t.Helper()
	all := append([]client.Option{client.WithSpool(fi.spool), client.WithLogger(slog.New(slog.NewTextHandler(fi, nil)))}, opts...)
	if fi.net != nil {
		all = append(all, client.WithPipeNet(fi.net))
	}
	c, err := client.Connect(fi.t.Context(), address, all...)
	require.NoError(fi.t, err)
	fi.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// useSession performs a first effect, so that the client keeps a session from then on.
func (fi *fixture) useSession(c *client.Client) {
	fi.t.Helper()
	for _, id := range []string{"first", "second"} {
		warmUp := call(`1`)
		warmUp.Key = flight.MustKey("default/warm/" + id)
		_, err := c.Do(fi.t.Context(), warmUp, succeedingHandler(`1`))
		require.NoError(fi.t, err)
	}
}

// flight returns the flight of a key in the ledger.
func (fi *fixture) flight(key flight.Key) *flight.Flight {
	return fi.fake.Flight(key)
}

// sessions are those of callers that live in etcd.
func (fi *fixture) sessions() []flight.SessionID {
	return slices.DeleteFunc(fi.fake.Leases.Etcd.Sessions(), func(id flight.SessionID) bool { return slices.Contains(fi.nodeSessions, id) })
}

// waitForNoSessions waits until no session of a caller is left: nodes end those of single attempts in the background.
func (fi *fixture) waitForNoSessions() {
	fi.t.Helper()
	require.Eventually(fi.t, func() bool { return len(fi.sessions()) == 0 }, stateLimit, time.Millisecond, "no session is left")
}

// expireSessions ends all sessions, as if they had not been renewed.
func (fi *fixture) expireSessions() {
	fi.t.Helper()
	for _, id := range fi.sessions() {
		fi.fake.ExpireSession(fi.t, id)
	}
}

// waitForFlight waits until the flight of the key is as wanted.
func (fi *fixture) waitForFlight(key flight.Key, wanted func(*flight.Flight) bool) *flight.Flight {
	fi.t.Helper()
	var seen flight.Version
	for {
		f, err := fi.fake.Ledger.Wait(fi.t.Context(), key.FlightID(), seen)
		require.NoError(fi.t, err)
		if wanted(f) {
			return f
		}
		seen = f.Version
	}
}

var key = flight.MustKey("default/charge/order-42")

// call is a call for the key with an input.
func call(input string, policy ...flight.Policy) effect.Call {
	fp, err := flight.FingerprintJSON([]byte(input), nil)
	if err != nil {
		panic(err)
	}
	c := effect.Call{Key: key, Submission: flight.Submission{Fingerprint: fp, Input: flight.NewBlob("application/json", []byte(input), flight.MaxInput)}}
	if len(policy) > 0 {
		c.Submission.Policy = policy[0]
	}
	return c
}

// succeedingHandler is a handler that succeeds.
func succeedingHandler(body string) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{ExternalID: "ch_1", ContentType: "application/json", Body: []byte(body)}, nil
	}
}

func unreachableHandler(t *testing.T) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		t.Error("the handler must not run")
		return effect.Answer{}, errors.New("must not run")
	}
}
