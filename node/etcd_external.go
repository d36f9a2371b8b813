package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/lease/etcdlease"
)

// ExternalEtcd names an etcd of the operator's own, in which a node keeps its leases and the record of its ledger. The node
// neither compacts nor defragments it. All nodes of a cluster name the same etcd and the same prefix.
type ExternalEtcd struct {
	// Endpoints are the URLs of the members, as in https://10.0.0.1:2379. Default: a member in this process.
	Endpoints []string
	// Cert and Key are PEM files of the client certificate, read again for each connection. Default: none.
	Cert, Key string
	// CA is the PEM file of the CAs of the members. Default: the system's.
	CA string
	// Prefix is the prefix of all keys, ending in "/". Several deployments may share it. Default: etcdlease.DefaultRoot.
	Prefix etcdlease.Root
	// AllowPlainHTTP lets an endpoint of another machine be http://. Everybody on the way can then end sessions and change the
	// record of the ledger. Default: such a start fails.
	AllowPlainHTTP bool
}

func (e *ExternalEtcd) enabled() bool { return len(e.Endpoints) > 0 }

// check checks the settings against each other, without reading a file. The error is *flight.InvalidError.
func (e *ExternalEtcd) check() error {
	invalid := func(setting, detail string, values ...any) error {
		return &flight.InvalidError{Field: setting, Detail: fmt.Sprintf(detail, values...)}
	}
	switch p := string(e.Prefix); {
	case !e.enabled() && (e.Cert != "" || e.Key != "" || e.CA != "" || p != ""):
		return invalid("etcd", "missing: the other settings of an etcd of your own need the URLs of its members")
	case (e.Cert == "") != (e.Key == ""):
		return invalid("etcd_cert", "etcd_cert and etcd_key are set together")
	case p != "" && (!strings.HasSuffix(p, "/") || len(p) > etcdlease.MaxRoot || strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c > '~' })):
		return invalid("etcd_prefix", "%q: want at most %d printable ASCII characters without spaces, ending in /", p, etcdlease.MaxRoot)
	}
	for _, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.User != nil || u.Port() == "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path+u.RawQuery+u.Fragment != "" {
			return invalid("etcd", "want https://HOST:PORT for each member, without a user") // the value may have a password
		}
		ip := net.ParseIP(u.Hostname())
		loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
		switch {
		case u.Scheme == "https" != e.usesTLS():
			return invalid("etcd", "either all endpoints begin with https://, or none")
		case u.Scheme == "http" && (e.Cert != "" || e.CA != ""):
			return invalid("etcd", "%s does not use the certificates of etcd_cert and etcd_ca; want https://", endpoint)
		case u.Scheme == "http" && !loopback && !e.AllowPlainHTTP:
			return invalid("etcd", "%s is another machine, and everybody on the way could end sessions; use https://, or set etcd_allow_plain_http", endpoint)
		}
	}
	return nil
}

func (e *ExternalEtcd) usesTLS() bool {
	return e.enabled() && strings.HasPrefix(e.Endpoints[0], "https://")
}

// sayEvery is the pause between two log lines about an etcd that does not answer.
const sayEvery = 10 * time.Second

// connectEtcd connects to the etcd of Config.Etcd and returns when it answers. It waits for an etcd that does not answer, as
// long as ctx does: the hosts may start in any order. Errors: *EtcdError for a version that is not supported or when ctx ends,
// *flight.InvalidError for certificate files.
func (c *Config) connectEtcd(ctx context.Context) (*etcd, error) {
	cfg := &c.Etcd
	dial := clientv3.Config{Endpoints: cfg.Endpoints}
	if cfg.usesTLS() {
		var err error
		if dial.TLS, err = (transport.TLSInfo{CertFile: cfg.Cert, KeyFile: cfg.Key, TrustedCAFile: cfg.CA}).ClientConfig(); err != nil {
			return nil, &flight.InvalidError{Field: "etcd_cert", Detail: err.Error()}
		}
	}
	client, err := etcdlease.Dial(dial)
	if err != nil {
		return nil, err
	}
	e := &etcd{client: client, root: cfg.Prefix}
	for said := time.Now().Add(-sayEvery); ; {
		asked, cancel := context.WithTimeout(ctx, readyTimeout)
		err := etcdlease.CheckServer(asked, client)
		cancel()
		if err == nil {
			asked, cancel := context.WithTimeout(ctx, 2*readyTimeout)
			err = e.answers(asked)
			cancel()
		}
		if err == nil {
			return e, nil
		}
		if errors.Is(err, etcdlease.ErrOldServer) || ctx.Err() != nil {
			e.close()
			return nil, c.etcdError(err)
		}
		if time.Since(said) >= sayEvery {
			c.Logger.Warn("etcd does not answer; the start waits for it", "endpoints", cfg.Endpoints, "error", err)
			said = time.Now()
		}
		clock.Sleep(ctx, 200*time.Millisecond)
	}
}

// etcdError is an error of this node's etcd that a person must repair.
func (c *Config) etcdError(cause error) error {
	if c.Etcd.enabled() {
		return &EtcdError{Endpoints: c.Etcd.Endpoints, Cause: cause}
	}
	return &EtcdError{Dir: c.etcdDir(), Cause: cause}
}
