// Package etcdtest starts etcd servers inside tests.
package etcdtest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/flightd/flightd/lease/etcdlease"
)

// Server is one etcd member in this process, on unix sockets, with its data in a directory of the test.
type Server struct {
	Dir    string // data directory; a copy of it, while the server is stopped, is a backup
	socket string
	tune   func(*embed.Config)
	etcd   *embed.Etcd
}

// Start starts a server, which is stopped when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, nil)
}

// StartWith is Start with a changed configuration.
func StartWith(t testing.TB, tune func(*embed.Config)) *Server {
	t.Helper()
	s := &Server{Dir: filepath.Join(t.TempDir(), "etcd"), socket: socketDir(t), tune: tune}
	s.Restart(t)
	t.Cleanup(s.Stop)
	return s
}

// socketDir returns a directory with a short path: the paths of unix sockets are limited to about 100 bytes.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Restart starts the server on its existing data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = s.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(s.socket, "p")}}
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: s.Socket()}}
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = cfg.ListenPeerUrls, cfg.ListenClientUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 50, 500 // for short leases: the minimum TTL is 1.5 election timeouts
	if s.tune != nil {
		s.tune(cfg)
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-e.Server.StopNotify():
		t.Fatal("etcd stopped before it was ready")
	case <-time.After(30 * time.Second):
		t.Fatal("etcd is not ready after 30 s")
	}
	s.etcd = e
}

// Stop stops the server; clients should be closed first.
func (s *Server) Stop() {
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}

// Socket returns the path of the unix socket for clients.
func (s *Server) Socket() string { return filepath.Join(s.socket, "c") }

// InProcess returns a client that calls the server without a network. It is closed when the test ends.
func (s *Server) InProcess(t testing.TB) *clientv3.Client {
	t.Helper()
	c := v3client.New(s.etcd.Server)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Embedded returns the server for etcdlease.Config.Server, to be used with an InProcess client.
func (s *Server) Embedded() etcdlease.EmbeddedServer { return s.etcd.Server }

// Member returns the server for etcdlease.Compactor.
func (s *Server) Member() etcdlease.Member { return s.etcd.Server }

// Dial returns a client over the socket. It is closed when the test ends.
func (s *Server) Dial(t testing.TB) *clientv3.Client { return DialSocket(t, s.Socket()) }

// DialSocket returns a client over any unix socket, such as that of a proxy. It is closed when the test ends.
func DialSocket(t testing.TB, socket string) *clientv3.Client {
	t.Helper()
	c, err := etcdlease.Dial(clientv3.Config{Endpoints: []string{"unix://" + socket}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
