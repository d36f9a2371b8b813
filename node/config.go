package node

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/cert"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/lease/etcdlease"
)

// Config configures a node. The zero value of a field means the default that its comment ends with.
type Config struct {
	// Data is the data directory, which one process at a time can lock. It has a ledger, made by Init; Run makes one only
	// if NoCredentials is set and Deployment is not. Default: ./flightd-data.
	Data string
	// Cluster is the directory that `flightd cluster found` made for this node: the names and addresses of all nodes, and this
	// node's certificate. Default: a lone node.
	Cluster string
	// Deployment is the only deployment whose ledger this node serves. Default: any.
	Deployment string
	// Etcd is an etcd of the operator's own. Default: a member in this process.
	Etcd ExternalEtcd
	// Listen has the addresses of the API and of the metrics.
	Listen Listen
	// NoCredentials lets every program that reaches Listen.Address act without a token, so that must be a loopback address.
	// Requests that a web page can send are rejected. Default: requests need a token.
	NoCredentials bool
	// FirstToken says where the token "admin" goes. It is required unless NoCredentials is set.
	FirstToken FirstToken
	// Operator has what an operator orders for this start. Default: nothing.
	Operator Operator
	// Process describes the process that runs the node.
	Process Process
	// Logger gets warnings and errors. Default: none.
	Logger *slog.Logger
	// Ready is called once, when the node accepts requests. Default: none.
	Ready func(Ready)

	tuning tuning
}

// Listen has the addresses of a node, and those that it may reach.
type Listen struct {
	// Address is the address of the API. Port 0 means a free port. Another address than a loopback address needs TLS,
	// or AllowPlainHTTP. Default: 127.0.0.1:7420.
	Address string
	// Metrics is a second address, for metrics and health only, over plain HTTP and without a token. It must be
	// a loopback address if Config.NoCredentials is set. Default: none.
	Metrics string
	// TLS has the files of the API's certificate. Default: plain HTTP.
	TLS TLSFiles
	// AllowPlainHTTP lets Address be any address without TLS, for a proxy in front that ends TLS. Tokens then travel in
	// clear text between the proxy and this node. Default: such a start fails.
	AllowPlainHTTP bool
	// PublicURL is the URL of the API as providers reach it, for callbacks: absolute, and the same at every node of a cluster.
	// Default: with Config.NoCredentials the URL of Address, else no attempt waits for a callback.
	PublicURL string
	// NotifyPrivate lets notifications go to addresses of private networks and of this machine. Default: only to public ones, and with
	// Config.NoCredentials to this machine.
	NotifyPrivate bool
}

// FirstToken says where a start puts the token "admin" that it creates or replaces.
type FirstToken struct {
	// File is the file to which the token is written, with mode 0600. A file beside it, with .deployment
	// at the end of its name, names the deployment that uses the token; a new ledger of another one rejects the token.
	// Default: Print is called.
	File string
	// Print is called with the token, before Config.Ready.
	Print func(secret string)
}

// Operator has what an operator orders for one start, with the reasons, which are stored in the ledger.
type Operator struct {
	// Actor is the operator who gave the reasons.
	Actor string
	// NewAdminToken is the reason to replace the token "admin" of all namespaces, because it was lost. Default: the token is kept.
	NewAdminToken string
	// RaiseLeaseEpoch is the reason to start with an etcd that knows less than the ledger. The start then raises the lease
	// epoch. It has no effect on an etcd that is up to date. Default: such a start fails. A node of a cluster takes no reason:
	// it starts with such an etcd, and its leader raises the epoch on request.
	RaiseLeaseEpoch string
}

// Process describes the process that runs a node.
type Process struct {
	// Version is the version of the program, shown by the API.
	Version string
	// Dedicated says that the process only runs this node, so that the metrics of process-wide libraries are
	// the node's. Default: false.
	Dedicated bool
	// Neighbours is the number of other nodes that share this machine's processors, memory and disk. Default: none.
	Neighbours int
	// Traces exports spans as the OTEL_* variables of the environment say. At most one node of a process may set it. Default: no spans.
	Traces bool
	// StopTimeout bounds the wait for running effects and requests at a stop. An effect that takes longer has an
	// unknown outcome until its caller reports. Default: 10 s.
	StopTimeout time.Duration
	// WallOffset is added to the wall clock, for tests of clocks that are wrong. Default: 0.
	WallOffset time.Duration
	// Crash has the points at which a test lets the process die. Default: none.
	Crash *crashpoint.Set
	// Kill ends the process at once and does not return. It is called at most once, when ledger or etcd cannot
	// continue, mostly because a write failed: no caller may get an answer after that. Default: clusterstore.Kill.
	Kill func(why error)
}

// tuning has the settings that only tests and measurements change.
type tuning struct {
	expireEvery time.Duration // 10 s
	recordEvery time.Duration // 250 ms
	// directoryEvery bounds how long a node answers after its directory was deleted.
	directoryEvery time.Duration // 250 ms
	etcdQuota      int64         // bytes; etcdQuota
	compactor      etcdlease.CompactorSettings
	minFree        uint64        // bytes of disk; 0: the ledger's own bound
	verifyEvery    time.Duration // 0: the ledger's own
	connections    int           // of the API; maxConnections
}

// TLSFiles are the paths of PEM files. They are read again when they change.
type TLSFiles = cert.Files

// Ready describes a node that accepts requests.
type Ready struct {
	URL        string // of the API
	Metrics    string // URL of Config.Listen.Metrics; "": none
	Data       string // absolute path of the data directory
	Deployment string
	Ledger     wire.LedgerInfo // what the ledger held when the node was ready
	Took       time.Duration   // duration of the start
	// Executor runs effects in this process, for programs that embed a node. In a cluster it acts through whichever node leads.
	Executor effect.Doer
	// Alive returns nil if the API's handler answers and the ledger applied a proposal. It is for the watchdog of a
	// supervisor, and costs one entry of the log.
	Alive func(context.Context) error
}

// Dev returns the configuration of `flightd dev`. Empty arguments mean the defaults.
func Dev(data, listen string) Config {
	return Config{Data: data, Listen: Listen{Address: listen}, NoCredentials: true}
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Data, "flightd-data")
	setDefault(&c.Listen.Address, "127.0.0.1:7420")
	c.Listen.PublicURL = strings.TrimSuffix(c.Listen.PublicURL, "/")
	setDefault(&c.Process.StopTimeout, 10*time.Second)
	setDefault(&c.tuning.expireEvery, 10*time.Second)
	setDefault(&c.tuning.recordEvery, 250*time.Millisecond)
	setDefault(&c.tuning.directoryEvery, 250*time.Millisecond)
	setDefault(&c.tuning.etcdQuota, etcdQuota)
	setDefault(&c.tuning.connections, maxConnections(descriptors()))
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if !c.NoCredentials && c.FirstToken.File == "" && c.FirstToken.Print == nil {
		return c, &flight.InvalidError{Field: "first_token_file", Detail: "missing: the first token would be lost"}
	}
	if c.Ready == nil {
		c.Ready = func(Ready) {}
	}
	if c.Process.Kill == nil {
		c.Process.Kill = clusterstore.Kill
	}
	c.Process.Kill = killOnce(c.Process.Kill)
	return c, c.check()
}

// killOnce returns a kill that ignores later calls: when a disk fails, several parts call it at the same time.
func killOnce(kill func(error)) func(error) {
	var first sync.Once
	return func(why error) { first.Do(func() { kill(why) }) }
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
