package peer_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightd/flightd/clusterstore/peer"
)

// TestMain fails if a test leaves a goroutine: each test closes its ports.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is three founded nodes on the loopback address, whose ports are open.
type cluster struct {
	founding  [3]*peer.Founding
	listeners [3]net.Listener
	instances [3]string
	ports     [3]*peer.Port
	logs      logLines
}

// logLines keeps the lines of all ports, and hands each one to a test that waits.
type logLines struct {
	mu    sync.Mutex
	text  strings.Builder
	lines chan struct{}
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	select {
	case l.lines <- struct{}{}:
	default:
	}
	return len(b), nil
}

// await returns after a line with these words was logged.
func (l *logLines) await(t *testing.T, words ...string) {
	t.Helper()
	for {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		for line := range strings.Lines(text) {
			if containsAll(line, words) {
				return
			}
		}
		select {
		case <-l.lines:
		case <-time.After(time.Minute):
			require.Fail(t, "no such line", "%q in %s", words, text)
		}
	}
}

func containsAll(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

func admitAll(peer.Identity) error { return nil }

// founded founds a cluster, whose ports are not open yet.
func founded(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.logs.lines = make(chan struct{}, 1)
	var nodes []peer.Node
	for i := range c.listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		c.listeners[i], c.instances[i] = l, uuid.NewString()
		nodes = append(nodes, peer.Node{Name: string(rune('a' + i)), Address: l.Addr().String(), Etcd: fmt.Sprintf("127.0.0.1:%d", i+1)})
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, peer.Found(dir, nodes, peer.FoundOptions{}))
	for i, n := range nodes {
		var err error
		c.founding[i], err = peer.Load(filepath.Join(dir, n.Name))
		require.NoError(t, err)
	}
	return c
}

// open opens the port of node i; change may change its configuration.
func (c *cluster) open(t *testing.T, i int, change func(*peer.Config)) *peer.Port {
	t.Helper()
	cfg := peer.Config{
		Founding: c.founding[i], Instance: c.instances[i], Listener: c.listeners[i], Admit: admitAll, RefusalPause: -time.Hour,
		Logger: slog.New(slog.NewTextHandler(&c.logs, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	p, err := peer.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	c.ports[i] = p
	return p
}

// opened founds a cluster and opens its ports.
func opened(t *testing.T) *cluster {
	t.Helper()
	c := founded(t)
	for i := range c.ports {
		c.open(t, i, nil)
	}
	return c
}

// get sends a request and returns the status and the body.
func get(t *testing.T, from *peer.Port, to, path string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://node"+path, nil)
	require.NoError(t, err)
	answer, err := from.Client(to).RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, 2, answer.ProtoMajor)
	return answer.StatusCode, string(text), nil
}

// sayCaller answers with the identity of the caller.
func sayCaller(w http.ResponseWriter, r *http.Request) {
	id, found := peer.From(r.Context())
	_, _ = fmt.Fprintf(w, "%v %s %s", found, id.Node, id.Instance)
}

func TestPort_RequestsCarryTheIdentityOfTheirNode(t *testing.T) {
	c := opened(t)
	status, body, err := get(t, c.ports[0], "b", "/")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "node b is starting")
	c.ports[1].SetHandler(http.HandlerFunc(sayCaller))
	for _, from := range []int{0, 2, 0} {
		status, body, err := get(t, c.ports[from], "b", "/")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, fmt.Sprintf("true %c %s", 'a'+from, c.instances[from]), body)
	}
	for _, node := range []string{"a", "x"} {
		_, _, err = get(t, c.ports[0], node, "/")
		require.ErrorContains(t, err, "founding.json names no such other node")
	}
}

// TestPort_RequestsShareAConnection: 2,000 requests that wait at once, from the first one on, use one connection.
func TestPort_RequestsShareAConnection(t *testing.T) {
	const requests = 2000
	c := founded(t)
	var connections atomic.Int32
	here, release := make(chan string, requests), make(chan struct{})
	c.open(t, 0, func(cfg *peer.Config) {
		cfg.Admit = func(peer.Identity) error { connections.Add(1); return nil }
		cfg.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			here <- r.RemoteAddr
			<-release
			_, _ = io.Copy(w, r.Body)
		})
	})
	b := c.open(t, 1, nil)
	var wait sync.WaitGroup
	failures := make(chan error, requests)
	for i := range requests {
		wait.Go(func() {
			want := fmt.Sprint(i)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a/", strings.NewReader(want))
			if err == nil {
				var answer *http.Response
				if answer, err = b.Client("a").RoundTrip(r); err == nil {
					defer answer.Body.Close()
					var got []byte
					if got, err = io.ReadAll(answer.Body); err == nil && string(got) != want {
						err = fmt.Errorf("want %s, got %q", want, got)
					}
				}
			}
			failures <- err
		})
	}
	from := <-here
	for range requests - 1 {
		require.Equal(t, from, <-here)
	}
	close(release)
	wait.Wait()
	for range requests {
		require.NoError(t, <-failures)
	}
	require.EqualValues(t, 1, connections.Load())
}

// answerRaft answers the requests of raft until the test ends.
func answerRaft(t *testing.T, transport raft.Transport, term uint64) {
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case rpc := <-transport.Consumer():
				switch r := rpc.Command.(type) {
				case *raft.AppendEntriesRequest:
					rpc.Respond(&raft.AppendEntriesResponse{Term: term, LastLog: r.PrevLogEntry + uint64(len(r.Entries)), Success: true}, nil)
				case *raft.RequestVoteRequest:
					rpc.Respond(&raft.RequestVoteResponse{Term: term, Granted: true}, nil)
				}
			case <-done:
				return
			}
		}
	})
	t.Cleanup(func() { close(done); wait.Wait() })
}

func TestPort_RaftReachesNodesByName(t *testing.T) {
	c := opened(t)
	var all []raft.Transport
	for i, p := range c.ports {
		p.RaftTransport(hclog.NewNullLogger()) // the next one ends it
		all = append(all, p.RaftTransport(hclog.NewNullLogger()))
		answerRaft(t, all[i], uint64(10+i))
	}
	require.Equal(t, raft.ServerAddress("a"), all[0].LocalAddr())
	for i, name := range []string{"a", "b", "c"} {
		if i == 0 {
			continue
		}
		var appended raft.AppendEntriesResponse
		entries := []*raft.Log{{Index: 6, Term: 3, Type: raft.LogCommand, Data: make([]byte, 1<<20)}}
		require.NoError(t, all[0].AppendEntries(raft.ServerID(name), raft.ServerAddress(name), &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 5, Entries: entries}, &appended))
		require.Equal(t, raft.AppendEntriesResponse{Term: uint64(10 + i), LastLog: 6, Success: true}, appended)
		var vote raft.RequestVoteResponse
		require.NoError(t, all[0].RequestVote(raft.ServerID(name), raft.ServerAddress(name), &raft.RequestVoteRequest{Term: 3}, &vote))
		require.True(t, vote.Granted)
		pipeline, err := all[0].AppendEntriesPipeline(raft.ServerID(name), raft.ServerAddress(name))
		require.NoError(t, err)
		future, err := pipeline.AppendEntries(&raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7}, new(raft.AppendEntriesResponse))
		require.NoError(t, err)
		require.Same(t, future, <-pipeline.Consumer())
		require.NoError(t, future.Error())
		require.EqualValues(t, 7, future.Response().LastLog)
		require.NoError(t, pipeline.Close())
	}
	require.NoError(t, all[0].(raft.WithClose).Close())
	err := all[1].RequestVote("a", "a", &raft.RequestVoteRequest{}, new(raft.RequestVoteResponse))
	require.ErrorContains(t, err, "node a refused the connection: its ledger has not started")
}

// hello is what the other end of a connection would send.
type hello map[string]string

// rawDial connects to node 0 with the certificate of a founding and sends this hello; it returns the answer.
func (c *cluster) rawDial(t *testing.T, f *peer.Founding, proto string, h hello) (answer hello, err error) {
	t.Helper()
	cfg := f.TLS()
	cfg.NextProtos, cfg.InsecureSkipVerify = []string{proto}, true
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // also for another CA than is asked for
		return &f.TLS().Certificates[0], nil
	}
	conn, err := tls.Dial("tcp", c.founding[0].Self.Address, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	body, err := json.Marshal(h)
	require.NoError(t, err)
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...))
	require.NoError(t, err)
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	return answer, json.NewDecoder(io.LimitReader(conn, int64(binary.BigEndian.Uint16(length[:])))).Decode(&answer)
}

// TestPort_RefusesAWrongHello and says why, in the answer and in the log.
func TestPort_RefusesAWrongHello(t *testing.T) {
	c, stranger := founded(t), founded(t)
	c.open(t, 0, nil)
	right := hello{"cluster": c.founding[1].ClusterID, "node": "b", "instance": c.instances[1], "to": "a"}
	for _, test := range []struct {
		name, field, value, code, want string
	}{
		{"another cluster", "cluster", stranger.founding[1].ClusterID, "wrong_cluster", "is of cluster"},
		{"another target", "to", "c", "wrong_node", `for node \"c\", and this address is that of node a`},
		{"itself", "node", "a", "wrong_node", "two processes use the directory"},
		{"another node's certificate", "node", "c", "wrong_certificate", "the hello is that of node c, and the certificate is that of b."},
		{"no name", "node", "*", "invalid_hello", "is not the name of a node"},
		{"a long name", "node", strings.Repeat("x", 3900), "invalid_hello", "xxxxxxxx"},
		{"no instance", "instance", "", "invalid_hello", "node b names no instance"},
		{"raft before its transport", "proto", "flightd-raft", "starting", "its ledger has not started"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wrong, proto := hello{}, "h2"
			for k, v := range right {
				wrong[k] = v
			}
			if test.field == "proto" {
				proto = test.value
			} else {
				wrong[test.field] = test.value
			}
			answer, err := c.rawDial(t, c.founding[1], proto, wrong)
			require.NoError(t, err)
			require.Equal(t, "a", answer["node"])
			require.Equal(t, test.code, answer["code"])
			require.Contains(t, answer["error"], strings.ReplaceAll(test.want, `\"`, `"`))
			c.logs.await(t, "connection refused", test.want)
		})
	}
	answer, err := c.rawDial(t, c.founding[1], "h2", right)
	require.NoError(t, err)
	require.Equal(t, hello{"cluster": c.founding[0].ClusterID, "node": "a", "instance": c.instances[0], "to": "b"}, answer)
}

func TestPort_RefusesOtherCertificates(t *testing.T) {
	c, stranger := founded(t), founded(t)
	c.open(t, 0, nil)
	_, err := c.rawDial(t, stranger.founding[1], "h2", hello{"cluster": c.founding[1].ClusterID, "node": "b", "instance": c.instances[1], "to": "a"})
	require.Error(t, err)
	c.logs.await(t, "connection refused", "TLS handshake", "unknown authority")

	other := *stranger.founding[1] // it dials the node of this cluster
	other.Nodes = c.founding[0].Nodes
	p, err := peer.Open(peer.Config{Founding: &other, Instance: c.instances[1], Listener: stranger.listeners[1], Admit: admitAll})
	require.NoError(t, err)
	defer p.Close()
	_, _, err = get(t, p, "a", "/")
	require.ErrorContains(t, err, "connect to node a at "+c.founding[0].Self.Address)
	require.ErrorContains(t, err, "check that one run of flightd cluster found made the directories of both nodes")
	var dial *peer.DialError
	require.ErrorAs(t, err, &dial)
}

// TestPort_RefusalReachesTheDialler, and a dialler refuses as well.
func TestPort_RefusalReachesTheDialler(t *testing.T) {
	c := opened(t)
	only := func(node int) func(peer.Identity) error {
		return func(id peer.Identity) error {
			if id.Node == c.founding[node].Self.Name && id.Instance != c.instances[node] {
				return fmt.Errorf("node %s was a member and has lost its disk: replace it", id.Node)
			}
			return nil
		}
	}
	known := c.instances[1]
	c.instances[1] = uuid.NewString()
	c.ports[0].SetAdmit(only(1))
	_, _, err := get(t, c.ports[1], "a", "/")
	var refused *peer.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, &peer.RefusedError{By: "a", Reason: "node b was a member and has lost its disk: replace it", Code: peer.CodeNotAdmitted}, refused)
	raftOfB := c.ports[1].RaftTransport(hclog.NewNullLogger())
	c.ports[0].RaftTransport(hclog.NewNullLogger())
	require.ErrorAs(t, raftOfB.RequestVote("a", "a", &raft.RequestVoteRequest{}, new(raft.RequestVoteResponse)), &refused)

	_, _, err = get(t, c.ports[0], "b", "/")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "a", refused.By, "the dialler asks, too")
	c.instances[1] = known
	status, _, err := get(t, c.ports[0], "b", "/")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
}

func TestPort_SetAdmitEndsConnections(t *testing.T) {
	c := opened(t)
	here := make(chan struct{}, 2)
	c.ports[1].SetHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		here <- struct{}{}
		<-r.Context().Done()
	}))
	failed := make(chan error, 2)
	var wait sync.WaitGroup
	for _, i := range []int{0, 2} {
		wait.Go(func() {
			_, _, err := get(t, c.ports[i], "b", "/")
			failed <- err
		})
		<-here
	}
	c.ports[1].SetAdmit(func(id peer.Identity) error {
		if id.Node == "a" {
			return errors.New("node a was replaced")
		}
		return nil
	})
	require.Error(t, <-failed)
	_, _, err := get(t, c.ports[0], "b", "/")
	require.ErrorContains(t, err, "node a was replaced")
	require.Empty(t, failed, "the connection of node c goes on")
	require.NoError(t, c.ports[1].Close())
	require.Error(t, <-failed)
	wait.Wait()
}

// TestPort_SilentAndForeignClients do not delay the nodes, and end.
func TestPort_SilentAndForeignClients(t *testing.T) {
	c := founded(t)
	c.open(t, 0, func(cfg *peer.Config) { cfg.HelloTimeout = 3 * time.Second })
	b := c.open(t, 1, nil)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", c.founding[0].Self.Address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var silent []net.Conn
	for range 32 {
		silent = append(silent, dial())
	}
	cfg := c.founding[1].TLS()
	cfg.NextProtos, cfg.InsecureSkipVerify = []string{"h2"}, true
	quiet := tls.Client(dial(), cfg)
	require.NoError(t, quiet.Handshake())
	silent = append(silent, quiet)
	garbage := dial()
	_, err := garbage.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	require.NoError(t, err)
	c.logs.await(t, "connection refused", garbage.LocalAddr().String(), "does not look like a TLS handshake")

	status, _, err := get(t, b, "a", "/")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	for _, conn := range silent {
		_, err := io.Copy(io.Discard, conn) // until the port ends it
		require.NoError(t, err)
		c.logs.await(t, "connection refused", conn.LocalAddr().String(), "timeout")
	}
	cfg.NextProtos = []string{"http/1.1"}
	old, err := tls.Dial("tcp", c.founding[0].Self.Address, cfg)
	require.NoError(t, err)
	defer old.Close()
	_, err = old.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	c.logs.await(t, "connection refused", "the other end offers neither flightd-raft nor h2")
}

// TestPort_TooManySilentClients are refused above the bound, and the nodes connect when they have ended.
func TestPort_TooManySilentClients(t *testing.T) {
	c := founded(t)
	c.open(t, 0, func(cfg *peer.Config) { cfg.HelloTimeout = time.Minute })
	for range 65 {
		conn, err := net.Dial("tcp", c.founding[0].Self.Address)
		require.NoError(t, err)
		defer conn.Close()
	}
	c.logs.await(t, "connection refused", "64 connections have not sent their hello")
}

// TestPort_RefusalsAreLoggedOnceASecond: a stranger who connects again and again fills no disk.
func TestPort_RefusalsAreLoggedOnceASecond(t *testing.T) {
	c := founded(t)
	a := c.open(t, 0, func(cfg *peer.Config) { cfg.RefusalPause = time.Hour })
	for range 20 {
		conn, err := net.Dial("tcp", c.founding[0].Self.Address)
		require.NoError(t, err)
		_, _ = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		_, _ = io.ReadAll(conn)
		require.NoError(t, conn.Close())
	}
	c.logs.await(t, "connection refused", "127.0.0.1")
	require.NoError(t, a.Close()) // after all lines
	require.Equal(t, 1, strings.Count(c.logs.text.String(), "connection refused"), "%s", &c.logs.text)
}

// TestPort_NoticesADeadNode: nothing comes back from a node whose machine has stopped, and a request ends all the same.
func TestPort_NoticesADeadNode(t *testing.T) {
	c := founded(t)
	direct := c.listeners[0].Addr().String()
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		in, err := relay.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", direct)
		if err != nil {
			return
		}
		defer out.Close()
		var both sync.WaitGroup
		forward := func(to, from net.Conn) { // not the end of a connection either
			buffer := make([]byte, 64<<10)
			for {
				n, err := from.Read(buffer)
				if err != nil {
					return
				}
				select {
				case <-dead:
				default:
					_, _ = to.Write(buffer[:n])
				}
			}
		}
		both.Go(func() { forward(in, out) })
		both.Go(func() { forward(out, in) })
		both.Wait()
	})
	t.Cleanup(func() { _ = relay.Close(); wait.Wait() })

	ended := make(chan error, 1)
	c.open(t, 0, func(cfg *peer.Config) {
		cfg.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(dead)
			<-r.Context().Done()
			ended <- r.Context().Err()
		})
	})
	behind := *c.founding[1]
	behind.Nodes = append([]peer.Node(nil), behind.Nodes...)
	behind.Nodes[0].Address = relay.Addr().String()
	b := c.open(t, 1, func(cfg *peer.Config) { cfg.Founding = &behind })
	start := time.Now()
	_, _, err = get(t, b, "a", "/")
	require.Error(t, err)
	require.Less(t, time.Since(start), time.Minute) // two seconds on a machine that is not busy
	require.ErrorIs(t, <-ended, context.Canceled, "the dead node's side notices, too")
}

// TestPort_CloseEndsEverything while requests, raft's calls and dials are under way. TestMain checks the goroutines.
func TestPort_CloseEndsEverything(t *testing.T) {
	c := opened(t)
	for _, p := range c.ports {
		p.RaftTransport(hclog.NewNullLogger())
	}
	here := make(chan struct{}, 1)
	var handlerEnded, closedBefore atomic.Bool
	closed := make(chan struct{})
	c.ports[0].SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		here <- struct{}{}
		<-r.Context().Done()
		select { // Close is still waiting for this handler
		case <-closed:
			closedBefore.Store(true)
		case <-time.After(50 * time.Millisecond):
		}
		handlerEnded.Store(true)
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a/", nil)
	require.NoError(t, err)
	answer, err := c.ports[1].Client("a").RoundTrip(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	<-here
	raftOfC := c.ports[2].RaftTransport(hclog.NewNullLogger())
	voted := make(chan error, 1)
	go func() {
		voted <- raftOfC.RequestVote("a", "a", &raft.RequestVoteRequest{}, new(raft.RequestVoteResponse))
	}()
	require.NoError(t, c.ports[0].Close())
	close(closed)
	require.True(t, handlerEnded.Load(), "Close waits for the handlers")
	require.False(t, closedBefore.Load())
	_, err = io.ReadAll(answer.Body)
	require.Error(t, err)
	require.Error(t, <-voted)

	_, _, err = get(t, c.ports[1], "a", "/")
	var dial *peer.DialError
	require.ErrorAs(t, err, &dial)
	_, _, err = get(t, c.ports[0], "b", "/")
	require.ErrorIs(t, err, peer.ErrClosed)
	require.NoError(t, c.ports[0].Close(), "again")
	require.Error(t, c.ports[0].RaftTransport(hclog.NewNullLogger()).RequestVote("b", "b", &raft.RequestVoteRequest{}, new(raft.RequestVoteResponse)))
}
