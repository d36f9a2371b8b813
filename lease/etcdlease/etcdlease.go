package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/keepalive"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Config says which etcd, and for whom.
type Config struct {
	Client     *clientv3.Client // over the network or in this process; the caller closes it, after the service
	Server     Transactor       // the server that Client reaches, if it is in this process; else nil
	Prefix     string           // of all keys, ending in "/"; "": DefaultPrefix
	Deployment string
	Node       string
	Guard      lease.Guard
	Events     lease.Events
	Tuning     Tuning
}

// Tuning is for measurements and tests; the zero Tuning is right.
type Tuning struct {
	Lanes         int
	BatchSize     int
	CommitTimeout time.Duration
	Maintain      time.Duration
	Pool          int
	Now           func() lease.Instant
}

// DefaultPrefix is where a deployment keeps its keys.
func DefaultPrefix(deployment string) string { return "flightd/" + deployment + "/" }

const (
	// maxBatch leaves room in a transaction for the comparisons that a batch shares.
	maxBatch = maxCompares - 8
	// inProcessBatch is the size of a batch where etcd sets no limit: all of 256 callers fit into one write.
	inProcessBatch = 250
)

// maxPrefix keeps keys short; they are written with every claim.
const maxPrefix = 128

// New opens the lease service over an etcd. It does not talk to etcd yet: CheckServer and Service.Ready do, so that a
// node whose etcd is away can start and answer receipts.
func New(cfg Config) (*lease.Lessor, error) {
	if cfg.Client == nil {
		return nil, &flight.InvalidError{Field: "etcd", Detail: "a client is required"}
	}
	if cfg.Server == nil && cfg.Client.ActiveConnection() == nil {
		return nil, &flight.InvalidError{Field: "etcd.server", Detail: "a client without a connection comes with its server"}
	}
	prefix := cfg.Prefix
	if prefix == "" {
		prefix = DefaultPrefix(cfg.Deployment)
	}
	if len(prefix) > maxPrefix || !strings.HasSuffix(prefix, "/") {
		return nil, &flight.InvalidError{Field: "etcd.prefix", Detail: fmt.Sprintf("at most %d bytes, the last one a /", maxPrefix)}
	}
	t := cfg.Tuning
	switch {
	case cfg.Server != nil && t.BatchSize == 0:
		t.BatchSize = inProcessBatch
	case cfg.Server == nil && t.BatchSize > maxBatch:
		return nil, &flight.InvalidError{Field: "etcd.batch", Detail: fmt.Sprintf("over the network at most %d comparisons", maxBatch)}
	}
	return lease.New(lease.Config{
		Store: newStore(cfg.Client, cfg.Server, prefix), Guard: cfg.Guard,
		Deployment: cfg.Deployment, Node: cfg.Node, Events: cfg.Events, Now: t.Now,
		Lanes: t.Lanes, BatchSize: t.BatchSize, CommitTimeout: t.CommitTimeout, Maintain: t.Maintain, Pool: t.Pool,
	})
}

// Dial opens a client for an etcd that runs elsewhere. It returns at once: whether anybody answers, CheckServer tells.
// The keepalive notices connections that are half open; etcd closes those of clients that ping more often than 5 s.
func Dial(cfg clientv3.Config) (*clientv3.Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, &flight.InvalidError{Field: "etcd.endpoints", Detail: "at least one is required"}
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	ka := keepalive.ClientParameters{Time: 6 * time.Second, Timeout: 3 * time.Second}
	cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout, cfg.PermitWithoutStream = ka.Time, ka.Timeout, ka.PermitWithoutStream
	return clientv3.New(cfg)
}

// ErrOldServer says that an etcd server must be upgraded before it may guard anything.
var ErrOldServer = errors.New("etcdlease: this etcd server has known holes in leases, watches or access control")

// ErrUnreadable says that etcd holds a value that is damaged, or of a newer version.
var ErrUnreadable = errors.New("etcdlease: a value in etcd cannot be read")

// CheckServer asks every endpoint of the client for its version. Errors: ErrOldServer, and lease.ErrUnavailable where
// one does not answer before ctx ends.
func CheckServer(ctx context.Context, client *clientv3.Client) error {
	endpoints := client.Endpoints()
	if len(endpoints) == 0 {
		endpoints = []string{""} // a client in the server's own process
	}
	for _, e := range endpoints {
		status, err := client.Status(ctx, e)
		if err != nil {
			return fmt.Errorf("%w: etcd at %q: %w", lease.ErrUnavailable, e, err)
		}
		if !goodVersion(status.Version) {
			return fmt.Errorf("%w: %q runs %s; needed is 3.6.14 or later, or 3.7.1 or later", ErrOldServer, e, status.Version)
		}
	}
	return nil
}

// goodVersion accepts 3.6 from 3.6.14 on, and everything from 3.7.1 on: these no longer answer a renewal of a revoked
// lease with success, and check the operations of nested transactions.
func goodVersion(v string) bool {
	var major, minor, patch int
	v, pre, _ := strings.Cut(v, "-")
	if _, err := fmt.Sscanf(v, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return false
	}
	switch {
	case major != 3:
		return major > 3
	case minor < 6:
		return false
	case minor == 6:
		return patch > 14 || patch == 14 && pre == ""
	case minor == 7:
		return patch > 1 || patch == 1 && pre == ""
	}
	return true
}
