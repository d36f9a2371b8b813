package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

// newOwnEtcd describes an etcd of n members with TLS, and the settings of a node that uses it.
func newOwnEtcd(t *testing.T, n int) (*etcdtest.Processes, ExternalEtcd) {
	t.Helper()
	certs := filepath.Join(t.TempDir(), "certs")
	var names []peer.Node
	for _, name := range []string{"e1", "e2", "e3"} {
		names = append(names, peer.Node{Name: name, Address: proctest.Address(t)})
	}
	require.NoError(t, peer.Found(certs, names, peer.FoundOptions{})) // certificates of one CA, for servers and clients
	file := func(of, name string) string { return filepath.Join(certs, of, name) }
	var members []etcdtest.Member
	for _, node := range names[:n] {
		members = append(members, etcdtest.Member{Name: node.Name, Cert: file(node.Name, "node.crt"), Key: file(node.Name, "node.key"), CA: file(node.Name, "ca.crt")})
	}
	p := etcdtest.NewProcesses(t, members...)
	return p, ExternalEtcd{Endpoints: etcdtest.URLs(p.Members), Cert: file("e1", "node.crt"), Key: file("e1", "node.key"), CA: file("e1", "ca.crt"), Prefix: "team/flightd/"}
}

// A lone node keeps everything of etcd's in the operator's: nothing is in its directory, and all keys are under the prefix. Other
// deployments share prefix and etcd. Another prefix does not have the claims of this ledger, and is refused.
func TestExternalEtcd_LoneNode(t *testing.T) {
	t.Parallel()
	p, own := newOwnEtcd(t, 1)
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Etcd = own
	starting, err := newNode(cfg)
	require.NoError(t, err)
	started := make(chan error, 1)
	go func() { started <- starting.start(t.Context()) }() // before its etcd
	ended := func() error {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		return starting.parts.wait(canceled)
	}
	p.Start()
	require.NoError(t, <-started)
	url := starting.server.url()
	a := openAttempt(t, url, "one")
	about := monitor{starting}.about(t.Context())
	require.Len(t, about.Etcd.Endpoints, 1)
	require.Equal(t, own.Endpoints[0], about.Etcd.Endpoints[0].URL)
	require.NotEmpty(t, about.Etcd.Endpoints[0].Version)
	require.Empty(t, about.Etcd.Problem)
	require.Positive(t, about.Etcd.Quota)
	keys, err := starting.etcd.client.Get(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.NotEmpty(t, keys.Kvs)
	for _, kv := range keys.Kvs {
		require.True(t, strings.HasPrefix(string(kv.Key), "team/flightd/"+starting.store.Header().Deployment+"/"), "%s", kv.Key)
	}
	require.NoDirExists(t, filepath.Join(cfg.Data, "etcd"))

	other := cfg
	other.Data = t.TempDir()
	sharing := openConfig(t, other)
	openAttempt(t, sharing.server.url(), "one")

	require.NoError(t, ended())
	in := openConfig(t, cfg)
	status, body := report(t, in.server.url(), a)
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, in.stopNode())

	wrong := cfg
	wrong.Etcd.Prefix = "elsewhere/"
	require.ErrorIs(t, startError(t, wrong), lease.ErrRegressed)

	// A ledger that was rolled back is lost, as with an embedded etcd.
	require.NoError(t, sharing.stopNode())
	older := filepath.Join(t.TempDir(), "older")
	copyTree(t, filepath.Join(cfg.Data, "ledger"), older)
	in = openConfig(t, cfg)
	openAttempt(t, in.server.url(), "two")
	require.NoError(t, in.record.Write(t.Context()))
	require.NoError(t, in.stopNode())
	copyTree(t, older, filepath.Join(cfg.Data, "ledger"))
	require.NoError(t, writePlace(cfg.Data))
	var lost *LedgerLostError
	require.ErrorAs(t, startError(t, cfg), &lost)
	require.NotZero(t, lost.Recorded.Index)

	// A person accepts it: the keys of the lost ledger are deleted, those of the other deployment stay.
	require.NoError(t, AcceptRestore(cfg.Data, Acceptance{Reason: "a test", Actor: "test"}))
	in = openConfig(t, cfg)
	require.True(t, in.store.Header().Reconciling)
	names, err := in.etcd.root.Deployments(t.Context(), in.etcd.client)
	require.NoError(t, err)
	require.Len(t, names, 2)
	require.NoError(t, in.stopNode())
	sharing = openConfig(t, other)
	openAttempt(t, sharing.server.url(), "two")
}

// While etcd is away, a node answers receipts, says what is wrong, and starts nothing; when etcd is back, the node goes on by
// itself, and sessions that were renewed in time live.
func TestExternalEtcd_StoppedAndStartedAgain(t *testing.T) {
	long(t)
	t.Parallel()
	p, own := newOwnEtcd(t, 1)
	p.Start()
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Etcd, cfg.Process.StopTimeout = own, time.Second
	in := openConfig(t, cfg)
	url := in.server.url()
	a := openAttempt(t, url, "running")
	done := openAttempt(t, url, "done")
	status, body := report(t, url, done)
	require.Equal(t, http.StatusOK, status, body)
	p.Process(0).Kill()
	require.Eventually(t, func() bool { return !monitor{in.node}.readiness(t.Context()).Ready }, waitLimit, 50*time.Millisecond)
	status, body, err := post(url+"/v1/flights:open", `{"action":"pay","id":"new","input":{"n":1},"nonce":"`+nonce("new")+`","ttl_ms":15000,"wait_ms":0}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	status, body, err = post(url+"/v1/flights:open", `{"action":"pay","id":"done","input":{"n":1},"nonce":"`+nonce("again")+`","ttl_ms":15000,"wait_ms":0}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	p.Start(0)
	back := time.Now()
	require.Eventually(t, func() bool { return monitor{in.node}.readiness(t.Context()).Ready }, waitLimit, 50*time.Millisecond)
	t.Logf("ready %v after etcd", time.Since(back).Round(time.Millisecond))
	status, body = report(t, url, a)
	require.Equal(t, http.StatusOK, status, body)
	openAttempt(t, url, "after")
	p.Process(0).Kill()
	require.NoError(t, in.stopNode(), "a stop needs no etcd")
}

// Three nodes on three members: any node and any member may die. A second cluster with nodes of the same names shares the etcd.
func TestExternalEtcd_Cluster(t *testing.T) {
	t.Parallel()
	p, own := newOwnEtcd(t, 3)
	p.Start()
	c := newTestCluster(t, func(cfg *Config) { cfg.Etcd = own })
	for i := range c.nodes {
		c.pay(i, i*2, i*2+2)
	}
	for i := range c.nodes {
		require.NoDirExists(t, filepath.Join(c.configs[i].Data, "etcd"))
	}
	p.Process(1).Kill()
	killed := time.Now()
	payEventually(t, c, 0, "member")
	t.Logf("paid %v after a member of etcd was killed", time.Since(killed).Round(time.Millisecond))
	about := monitor{c.nodes[0].node}.about(t.Context())
	require.NotEmpty(t, about.Etcd.Endpoints[1].Error, "%+v", about.Etcd)
	require.Empty(t, about.Etcd.Endpoints[0].Error, "%+v", about.Etcd)
	require.Empty(t, about.Etcd.Problem)
	lead := c.leader()
	c.stop(lead)
	payEventually(t, c, (lead+1)%3, "node")
	c.start(lead) // while a member of etcd is away
	c.ready(lead)
	p.Start(1)
	payEventually(t, c, lead, "all")

	second := newTestCluster(t, func(cfg *Config) { cfg.Etcd = own })
	second.pay(1, 0, 1)
	payEventually(t, c, 0, "beside-another-cluster")

	// A node with the wrong prefix does not use what it finds there. If it leads, it hands over.
	c.stop(0)
	c.configs[0].Etcd.Prefix = "elsewhere/"
	c.start(0)
	select {
	case <-c.started[0]: // it is not ready
	case <-time.After(waitLimit):
		require.Fail(t, "the node does not start")
	}
	require.Eventually(t, func() bool {
		if lead := c.leader(); lead != 0 {
			_ = c.nodes[lead].store.TransferLeadership(t.Context(), c.nodes[0].cluster.instance)
		}
		return c.nodes[0].act.Load() != nil
	}, waitLimit, 50*time.Millisecond, "node a does not lead")
	payEventually(t, c, 1, "another-leads")
	require.Nil(t, c.nodes[0].act.Load())
}

// payEventually opens and reports a flight at a node, which may have to wait for a leader of the ledger or of etcd.
func payEventually(t *testing.T, c *testCluster, i int, id string) {
	t.Helper()
	url := c.nodes[i].server.url()
	require.Eventually(t, func() bool {
		status, body, err := post(url+"/v1/flights:open", `{"action":"pay","id":"`+id+`","input":{"n":1},"nonce":"`+nonce(id)+`","ttl_ms":15000,"wait_ms":0}`)
		require.NoError(t, err)
		if status != http.StatusCreated {
			t.Log(status, body)
		}
		return status == http.StatusCreated
	}, waitLimit, 100*time.Millisecond)
}

// oldEtcd is the server of an etcd that flightd does not support.
type oldEtcd struct {
	pb.UnimplementedMaintenanceServer
}

func (oldEtcd) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: "3.5.21"}, nil
}

// A start does not wait for an etcd whose version is not supported.
func TestExternalEtcd_OldVersionIsRejected(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, oldEtcd{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		<-served
	}()
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Etcd.Endpoints = []string{"http://" + l.Addr().String()}
	err = startError(t, cfg)
	require.ErrorIs(t, err, etcdlease.ErrOldServer)
	var etcd *EtcdError
	require.ErrorAs(t, err, &etcd)
	require.Contains(t, err.Error(), "3.5.21")
}

// A start without the client certificate that etcd demands waits, says why, and ends when it is stopped.
func TestExternalEtcd_StrangersWait(t *testing.T) {
	t.Parallel()
	p, own := newOwnEtcd(t, 1)
	p.Start()
	for name, change := range map[string]func(*ExternalEtcd){
		"no client certificate": func(e *ExternalEtcd) { e.Cert, e.Key = "", "" },
		"another CA":            func(e *ExternalEtcd) { e.CA = "" },
	} {
		var said syncBuffer
		cfg := Dev(t.TempDir(), "127.0.0.1:0")
		cfg.Etcd, cfg.Logger = own, slog.New(slog.NewTextHandler(&said, nil))
		change(&cfg.Etcd)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, cfg) }()
		require.Eventually(t, func() bool { return strings.Contains(said.String(), "the start waits for it") }, waitLimit, 10*time.Millisecond, name)
		if name == "another CA" { // etcd closes the connection of a client without a certificate
			require.Contains(t, said.String(), "x509")
		}
		stop()
		require.NoError(t, <-ended, name)
	}
}

func TestExternalEtcd_Settings(t *testing.T) {
	for name, test := range map[string]struct {
		etcd  ExternalEtcd
		field string // that is wrong; "": none
	}{
		"TLS":                      {ExternalEtcd{Endpoints: []string{"https://10.0.0.1:2379", "https://etcd.example:2379"}, Cert: "c", Key: "k", CA: "a", Prefix: "team/"}, ""},
		"loopback":                 {ExternalEtcd{Endpoints: []string{"http://127.0.0.1:2379", "http://localhost:2379", "http://[::1]:2379"}}, ""},
		"no address":               {ExternalEtcd{CA: "a"}, "etcd"},
		"plain HTTP":               {ExternalEtcd{Endpoints: []string{"http://10.0.0.1:2379"}}, "etcd"},
		"plain HTTP, allowed":      {ExternalEtcd{Endpoints: []string{"http://10.0.0.1:2379"}, AllowPlainHTTP: true}, ""},
		"both":                     {ExternalEtcd{Endpoints: []string{"https://10.0.0.1:2379", "http://127.0.0.1:2379"}}, "etcd"},
		"certificate, plain HTTP":  {ExternalEtcd{Endpoints: []string{"http://127.0.0.1:2379"}, Cert: "c", Key: "k"}, "etcd"},
		"no key":                   {ExternalEtcd{Endpoints: []string{"https://10.0.0.1:2379"}, Cert: "c"}, "etcd_cert"},
		"a password":               {ExternalEtcd{Endpoints: []string{"https://root:secret@10.0.0.1:2379"}}, "etcd"},
		"no port":                  {ExternalEtcd{Endpoints: []string{"https://10.0.0.1"}}, "etcd"},
		"a path":                   {ExternalEtcd{Endpoints: []string{"https://10.0.0.1:2379/v3"}}, "etcd"},
		"prefix without its slash": {ExternalEtcd{Endpoints: []string{"https://10.0.0.1:2379"}, Prefix: "team"}, "etcd_prefix"},
		"long prefix":              {ExternalEtcd{Endpoints: []string{"https://10.0.0.1:2379"}, Prefix: etcdlease.Root(strings.Repeat("x", etcdlease.MaxRoot)) + "/"}, "etcd_prefix"},
	} {
		err := test.etcd.check()
		if test.field == "" {
			require.NoError(t, err, name)
			continue
		}
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, test.field, invalid.Field, name)
		require.NotContains(t, err.Error(), "secret", name)
	}
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Etcd = ExternalEtcd{Endpoints: []string{"https://127.0.0.1:1"}, Cert: "nowhere.crt", Key: "nowhere.key"}
	var invalid *flight.InvalidError
	require.ErrorAs(t, startError(t, cfg), &invalid)
	_, err := os.Stat(filepath.Join(cfg.Data, "etcd"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
