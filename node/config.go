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

// Config is what a node needs to know. A zero field means its default.
type Config struct {
	// Data is the directory that holds everything; ./flightd-data. One process at a time has it.
	Data string
	// Listen is where the API is served: a loopback address and port, since everybody who reaches it may do
	// everything; 127.0.0.1:7420. Port 0 takes a free one.
	Listen string
	// ListenMetrics is where metrics and health are served apart from the API, too: a loopback address and port; "":
	// nowhere. The API's address has them in any case.
	ListenMetrics string
	// Alone says that this process is this node and nothing else: what libraries keep for a whole process is the node's.
	Alone bool
	// RaiseLeaseEpoch says, for the log, why this start may go on with an etcd that knows less than the ledger; "": it is
	// refused. It changes nothing where etcd has kept its past.
	RaiseLeaseEpoch string
	// Who decides such things, for the log.
	Who string
	// StopWithin is how long a stop lets running effects and requests finish; 10 s. Effects that take longer are of
	// unknown outcome, unless their callers report late.
	StopWithin time.Duration
	// Version is the program's own, shown by the API.
	Version string
	// Logger gets warnings and errors; nil: nothing is logged.
	Logger *slog.Logger
	// Crash is where this process dies on request; nil: nowhere.
	Crash *crashpoint.Set
	// Ready is told once that the node answers; nil: nobody is.
	Ready func(Ready)
	// Kill ends the process at once and does not return: ledger or etcd cannot go on, mostly because the system refuses a write,
	// and nothing may be answered any more. It is called once. nil: clusterstore.Kill.
	Kill func(why error)

	tuning tuning
}

// tuning is for tests and measurements.
type tuning struct {
	expireEvery  time.Duration // 10 s
	witnessEvery time.Duration // 10 s
	etcdQuota    int64         // bytes; etcdQuota
	compactor    etcdlease.CompactorSettings
	minFree      uint64 // bytes of disk; 0: the ledger's own bound
}

// Ready says where a node answers.
type Ready struct {
	URL        string // of the API
	Metrics    string // of the metrics' own address; "": there is none
	Data       string // absolute path of the data directory
	Deployment string
	Took       time.Duration // since Run was called
	// Executor runs effects in this process, for programs that embed a node.
	Executor effect.Doer
}

// Dev is the configuration of `flightd dev`: everything in one process, nothing to set up. Empty arguments mean the
// defaults.
func Dev(data, listen string) Config { return Config{Data: data, Listen: listen} }

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Data, "flightd-data")
	setDefault(&c.Listen, "127.0.0.1:7420")
	setDefault(&c.StopWithin, 10*time.Second)
	setDefault(&c.tuning.expireEvery, 10*time.Second)
	setDefault(&c.tuning.witnessEvery, 10*time.Second)
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
	c.Kill = once(c.Kill)
	if c.ListenMetrics != "" {
		if err := checkLoopback("listen_metrics", c.ListenMetrics); err != nil {
			return c, err
		}
	}
	return c, checkLoopback("listen", c.Listen)
}

// once lets the first of several parts that die of the same disk say why; the others end with it.
func once(kill func(error)) func(error) {
	var death sync.Once
	return func(why error) { death.Do(func() { kill(why) }) }
}

// checkLoopback refuses every address that another machine could reach: this node asks nobody for credentials.
func checkLoopback(field, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return &flight.InvalidError{Field: field, Detail: fmt.Sprintf("%q is no host:port", address)}
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return &flight.InvalidError{Field: field, Detail: fmt.Sprintf("%q is no port", port)}
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &flight.InvalidError{Field: field, Detail: fmt.Sprintf("%q is not a loopback address: this node asks nobody who they are, so it serves this machine only", host)}
	}
	return nil
}

// listen takes an address that was checked. What localhost leads to is only known then.
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
	return nil, &flight.InvalidError{Field: field, Detail: fmt.Sprintf("it leads to %s, which other machines may reach: this node serves this machine only; say 127.0.0.1", l.Addr())}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
