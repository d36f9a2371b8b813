package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// testNode is a running node whose parts a test can access.
type testNode struct {
	*node
	stop context.CancelFunc
	done chan error
}

// open starts a node on data, configured by tune. The node is stopped when the test ends, if not before.
func open(t *testing.T, data string, tune func(*tuning)) *testNode {
	t.Helper()
	cfg := Dev(data, "127.0.0.1:0")
	if tune != nil {
		tune(&cfg.tuning)
	}
	return openConfig(t, cfg)
}

func openConfig(t *testing.T, cfg Config) *testNode {
	t.Helper()
	initNew(t, cfg)
	n, err := newNode(cfg)
	require.NoError(t, err)
	err = n.start(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	in := &testNode{node: n, stop: cancel, done: make(chan error, 1)}
	go func() { in.done <- n.parts.wait(ctx) }()
	t.Cleanup(func() {
		cancel()
		err, left := <-in.done
		require.False(t, left && err != nil, "the node ended with %v", err)
	})
	return in
}

// stopNode stops the node and returns its error.
func (n *testNode) stopNode() error {
	n.stop()
	err := <-n.done
	close(n.done)
	return err
}

// post sends one request and reads the response.
func post(url, body string) (status int, answer string, err error) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// openAttempt opens an attempt as a remote caller and returns the answer, which has the token for the report.
func openAttempt(t testing.TB, url, id string) wire.OpenAnswer {
	t.Helper()
	status, body, err := post(url+"/v1/flights:open", `{"action":"pay","id":"`+id+`","input":{"n":1},"nonce":"`+nonce(id)+`","ttl_ms":15000,"wait_ms":0}`)
	var answer wire.OpenAnswer
	require.NoError(t, err, "open: %d %s %v", status, body, err)
	require.Equal(t, http.StatusCreated, status, "open: %d %s %v", status, body, err)
	require.NoError(t, json.Unmarshal([]byte(body), &answer), "open: %d %s %v", status, body, err)
	require.Equal(t, wire.DecisionProceed, answer.Decision, "open: %d %s %v", status, body, err)
	return answer
}

func nonce(seed string) string { return (seed + "0123456789abcdef")[:16] }

func report(t testing.TB, url string, a wire.OpenAnswer) (status int, body string) {
	t.Helper()
	status, body, err := post(url+"/v1/flights/"+a.FlightID+"/report", `{"fencing_token":"`+a.FencingToken+`","outcome":"succeeded","body":{"ok":true}}`)
	require.NoError(t, err)
	return status, body
}

// A stop is quick although a caller waits. The waiting caller is answered "draining". Sessions of remote callers
// survive, and the next process accepts their reports.
func TestHazard35_StopTakesNothingThatCallersStillNeed(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := open(t, data, nil)
	url := in.server.url()
	first := openAttempt(t, url, "order-1")

	entered, answered := make(chan struct{}, 8), make(chan string, 1)
	api := in.act.Load().api()
	in.server.setAPI(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		api.ServeHTTP(w, r)
	}))
	go func() {
		status, body, err := post(url+"/v1/flights:open", `{"action":"pay","id":"order-1","input":{"n":1},"nonce":"`+nonce("other")+`","wait_ms":50000}`)
		if err != nil {
			body = err.Error()
		}
		if status != http.StatusServiceUnavailable {
			body = "not 503: " + body
		}
		answered <- body
	}()
	<-entered
	err := in.stopNode()
	require.NoError(t, err, "the stop ended with %v", err)
	body := <-answered
	require.Contains(t, body, `"draining"`, "the waiting caller got %s", body)

	in = open(t, data, nil)
	held, err := in.act.Load().leases.Claims(t.Context())
	require.NoError(t, err, "the claim of the remote caller: %v, %v", held, err)
	require.Len(t, held, 1, "the claim of the remote caller: %v, %v", held, err)
	status, body := report(t, in.server.url(), first)
	require.Equal(t, http.StatusOK, status, "its report: %d %s", status, body)
	require.Contains(t, body, `"succeeded"`, "its report: %d %s", status, body)
}

// A stop does not wait for the rest of a half-sent request. Its sender is answered "draining".
func TestHazard35_AHalfSentRequestHoldsNoStopUp(t *testing.T) {
	t.Parallel()
	in := open(t, t.TempDir(), nil)
	address := strings.TrimPrefix(in.server.url(), "http://")
	entered := make(chan struct{}, 2)
	api := in.act.Load().api()
	in.server.setAPI(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		api.ServeHTTP(w, r)
	}))
	head := "POST /v1/flights:open HTTP/1.1\r\nHost: " + address + "\r\nContent-Type: application/json\r\n"
	var halves []net.Conn
	for _, half := range []string{head + "Content-Length: 100\r\n\r\n{", head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", head} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, half)
		require.NoError(t, err)
		halves = append(halves, conn)
	}
	<-entered
	<-entered
	err := in.stopNode()
	require.NoError(t, err, "the stop ended with %v", err)
	for _, conn := range halves[:2] {
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, "the half of a request is answered with %d %s (%v)", answer.StatusCode, body, err)
		require.Contains(t, string(body), `"draining"`, "the half of a request is answered with %d %s (%v)", answer.StatusCode, body, err)
	}
}

// A start fails with an etcd that knows less than the ledger, and with a ledger of another deployment than etcd's keys.
func TestHazard37_AnEtcdThatForgotIsNotBelieved(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := open(t, data, nil)
	a := openAttempt(t, in.server.url(), "order-2")
	deployment := in.store.Header().Deployment
	err := in.stopNode()
	require.NoError(t, err)

	away := filepath.Join(t.TempDir(), "etcd")
	err = os.Rename(filepath.Join(data, "etcd"), away)
	require.NoError(t, err)
	err = startError(t, Dev(data, "127.0.0.1:0"))
	require.ErrorIs(t, err, lease.ErrRegressed, "with an empty etcd: %v", err)
	err = errors.Join(os.RemoveAll(filepath.Join(data, "etcd")), os.Rename(away, filepath.Join(data, "etcd")))
	require.NoError(t, err)

	ledgerAway := filepath.Join(t.TempDir(), "ledger")
	err = os.Rename(filepath.Join(data, "ledger"), ledgerAway)
	require.NoError(t, err)
	for range 2 { // the first start has created an empty ledger for the second
		var lost *LedgerLostError
		err := startError(t, Dev(data, "127.0.0.1:0"))
		require.ErrorAs(t, err, &lost, "without the ledger: %v", err)
		require.Equal(t, deployment, lost.EtcdDeployments, "without the ledger: %v", err)
		require.NotEqual(t, deployment, lost.LedgerDeployment, "without the ledger: %v", err)
	}
	err = errors.Join(os.RemoveAll(filepath.Join(data, "ledger")), os.Rename(ledgerAway, filepath.Join(data, "ledger")))
	require.NoError(t, err)
	in = open(t, data, nil)
	require.Equal(t, deployment, in.store.Header().Deployment, "the deployment id has changed")
	other := open(t, t.TempDir(), nil)
	openAttempt(t, other.server.url(), "order-2")
	status, body := report(t, other.server.url(), a)
	require.NotEqual(t, http.StatusOK, status, "a token of another deployment was accepted: %s", body)
	status, body = report(t, in.server.url(), a)
	require.Equal(t, http.StatusOK, status, "report after both were restored: %d %s", status, body)
}

// With a full etcd new flights are rejected with the reason; receipts are returned and reports accepted.
func TestFullEtcdClaimsNothingAndAnswersReceipts(t *testing.T) {
	t.Parallel()
	in := open(t, t.TempDir(), func(u *tuning) {
		u.etcdQuota = 4 << 20
		u.compactor = etcdlease.CompactorSettings{Interval: 20 * time.Millisecond}
	})
	url := in.server.url()
	done, running := openAttempt(t, url, "done"), openAttempt(t, url, "running")
	if status, body := report(t, url, done); status != http.StatusOK {
		t.Fatalf("report: %d %s", status, body)
	}
	filler := string(bytes.Repeat([]byte("x"), 1<<16)) // small, so that etcd stays full: it accepts claims again at 90 %
	var err error
	for i := 0; i < 256 && err == nil; i++ {
		_, err = in.etcd.client.Put(t.Context(), "filler/"+strconv.Itoa(i), filler)
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace, "filling ended with %v", err)
	await(t, "the node is not ready", func() bool { return !monitor{in.node}.readiness(t.Context()).Ready })
	checks := monitor{in.node}.readiness(t.Context()).Checks
	require.Equal(t, "etcd", checks[1].Name, "the checks are %+v", checks)
	require.Contains(t, checks[1].Error, "full", "the checks are %+v", checks)
	status, body, err := post(url+"/v1/flights:open", `{"action":"pay","id":"new","input":{"n":1},"nonce":"`+nonce("new")+`","wait_ms":0}`)
	require.NoError(t, err, "a new flight: %d %s %v", status, body, err)
	require.Equal(t, http.StatusServiceUnavailable, status, "a new flight: %d %s %v", status, body, err)
	require.Contains(t, body, `"lease_unavailable"`, "a new flight: %d %s %v", status, body, err)
	status, body, err = post(url+"/v1/flights:open", `{"action":"pay","id":"done","input":{"n":1},"nonce":"`+nonce("again")+`","wait_ms":0}`)
	require.NoError(t, err, "a replay: %d %s %v", status, body, err)
	require.Equal(t, http.StatusOK, status, "a replay: %d %s %v", status, body, err)
	require.Contains(t, body, `"replay"`, "a replay: %d %s %v", status, body, err)
	if status, body := report(t, url, running); status != http.StatusOK {
		t.Errorf("a report: %d %s", status, body)
	}
}

// A node whose disk is nearly full rejects new flights, so it is not ready.
func TestReadinessReportsFullDisk(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cfg.tuning.minFree = math.MaxInt64
	in := openConfig(t, cfg)
	status, body, err := post(in.server.url()+"/v1/flights:open", `{"action":"pay","id":"new","input":{"n":1},"nonce":"`+nonce("new")+`","wait_ms":0}`)
	require.NoError(t, err, "a new flight: %d %s %v", status, body, err)
	require.Equal(t, http.StatusServiceUnavailable, status, "a new flight: %d %s %v", status, body, err)
	require.Contains(t, body, "disk", "a new flight: %d %s %v", status, body, err)
	r := monitor{in.node}.readiness(t.Context())
	require.False(t, r.Ready, "readiness is %+v", r)
	require.Equal(t, "ledger", r.Checks[0].Name, "readiness is %+v", r)
	require.Contains(t, r.Checks[0].Error, "disk", "readiness is %+v", r)
	n := strings.Count(log.String(), "disk space is low")
	require.Equal(t, 1, n, "the log has the warning %d times:\n%s", n, log.String())
}

// await waits for a condition.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timeout waiting for: %s", what)
		}
	}
}
