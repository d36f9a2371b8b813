package node

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/lease/etcdlease"
)

// Config configures a node. The zero value of a field means the default that its comment ends with.
type Config struct {
	// Data is the data directory, which one process at a time can lock. Default: ./flightd-data.
	Data string
	// Listen is the address of the API. It must be a loopback address, because the API does not authenticate its
	// callers. Port 0 means a free port. Default: 127.0.0.1:7420.
	Listen string
	// ListenMetrics is a second loopback address for metrics and health only. The API's address serves them, too.
	// Default: none.
	ListenMetrics string
	// DedicatedProcess says that the process only runs this node, so that the metrics of process-wide libraries are
	// the node's. Default: false.
	DedicatedProcess bool
	// RaiseLeaseEpoch is the operator's reason to start with an etcd that knows less than the ledger; it is stored in
	// the ledger. The start then raises the lease epoch. It has no effect on an etcd that is up to date. Default: such
	// a start fails.
	RaiseLeaseEpoch string
	// Actor is the operator who gave the reason.
	Actor string
	// StopTimeout bounds the wait for running effects and requests at a stop. An effect that takes longer has an
	// unknown outcome until its caller reports. Default: 10 s.
	StopTimeout time.Duration
	// Version is the version of the program, shown by the API.
	Version string
	// Logger gets warnings and errors. Default: none.
	Logger *slog.Logger
	// Crash has the points at which a test lets the process die. Default: none.
	Crash *crashpoint.Set
	// Ready is called once, when the node accepts requests. Default: none.
	Ready func(Ready)
	// Kill ends the process at once and does not return. It is called at most once, when ledger or etcd cannot
	// continue, mostly because a write failed: no caller may get an answer after that. Default: clusterstore.Kill.
	Kill func(why error)

	tuning tuning
}

// tuning has the settings that only tests and measurements change.
type tuning struct {
	expireEvery time.Duration // 10 s
	indexEvery  time.Duration // 10 s
	etcdQuota   int64         // bytes; etcdQuota
	compactor   etcdlease.CompactorSettings
	minFree     uint64 // bytes of disk; 0: the ledger's own bound
}

// Ready describes a node that accepts requests.
type Ready struct {
	URL        string // of the API
	Metrics    string // URL of Config.ListenMetrics; "": none
	Data       string // absolute path of the data directory
	Deployment string
	Took       time.Duration // duration of the start
	// Executor runs effects in this process, for programs that embed a node.
	Executor effect.Doer
}

// Dev returns the configuration of `flightd dev`. Empty arguments mean the defaults.
func Dev(data, listen string) Config { return Config{Data: data, Listen: listen} }

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Data, "flightd-data")
	setDefault(&c.Listen, "127.0.0.1:7420")
	setDefault(&c.StopTimeout, 10*time.Second)
	setDefault(&c.tuning.expireEvery, 10*time.Second)
	setDefault(&c.tuning.indexEvery, 10*time.Second)
	setDefault(&c.tuning.etcdQuota, etcdQuota)
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Ready == nil {
		c.Ready = func(Ready) {}
	}
	if c.Kill == nil {
		c.Kill = clusterstore.Kill
	}
	c.Kill = killOnce(c.Kill)
	if c.ListenMetrics != "" {
		if err := checkLoopback("listen_metrics", c.ListenMetrics); err != nil {
			return c, err
		}
	}
	return c, checkLoopback("listen", c.Listen)
}

// killOnce returns a kill that ignores later calls: when a disk fails, several parts call it at the same time.
func killOnce(kill func(error)) func(error) {
	var first sync.Once
	return func(why error) { first.Do(func() { kill(why) }) }
}

// checkLoopback returns *flight.InvalidError for an address that other machines can reach: the API does not
// authenticate its callers.
func checkLoopback(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return &flight.InvalidError{Field: field, Detail: fmt.Sprintf("%q is not host:port", address)}
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return &flight.InvalidError{Field: field, Detail: fmt.Sprintf("%q is not a port", port)}
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &flight.InvalidError{Field: field, Detail: fmt.Sprintf("%q is not a loopback address: the API does not authenticate its callers", host)}
	}
	return nil
}

// listen listens on an address that passed checkLoopback. A host name is resolved only here, so the result is checked,
// too.
func listen(field, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return onlyLoopback(field, l)
}

func onlyLoopback(field string, l net.Listener) (net.Listener, error) {
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return l, nil
	}
	_ = l.Close()
	return nil, &flight.InvalidError{Field: field, Detail: fmt.Sprintf("it resolves to %s, which is not a loopback address; use 127.0.0.1", l.Addr())}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
