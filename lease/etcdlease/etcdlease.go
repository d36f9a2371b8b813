package etcdlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/keepalive"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/lease"
)

// Config configures the lease service on an etcd.
type Config struct {
	Client     *clientv3.Client // of a remote or an embedded etcd; the caller closes it after the service
	Server     EmbeddedServer   // the embedded server of Client; nil for a remote etcd
	Prefix     string           // of all keys, ending in "/"; "": that of the deployment under DefaultRoot
	Deployment string
	Node       string
	Ledger     lease.LedgerState
	Record     *LedgerRecord // is written with each batch of claims and of releases; nil: none
	Events     lease.Events
	Tuning     Tuning
}

// Tuning is for measurements and tests. The zero value selects the defaults.
type Tuning struct {
	Workers       int
	BatchSize     int
	CommitTimeout time.Duration
	MaintainEvery time.Duration
	Pool          int
	Now           func() clock.Instant
}

// Root is the prefix of the keys of all deployments in an etcd, ending in "/". "" is DefaultRoot. It is the one place that
// knows the prefix of a deployment: Config.Prefix and LedgerRecord get it from here.
type Root string

// DefaultRoot is the root where the settings name none.
const DefaultRoot Root = "flightd/"

// Prefix returns the prefix of a deployment's keys.
func (r Root) Prefix(deployment string) string {
	return string(cmp.Or(r, DefaultRoot)) + deployment + "/"
}

// DefaultPrefix returns the prefix of a deployment's keys under DefaultRoot.
func DefaultPrefix(deployment string) string { return DefaultRoot.Prefix(deployment) }

const (
	// maxBatch leaves 8 comparisons of a transaction for those that a batch shares.
	maxBatch = maxCompares - 8
	// inProcessBatch is the batch size for an embedded etcd, which has no limit: about 256 callers share one write.
	inProcessBatch = 250
)

// maxPrefix limits the length of keys, which are written with every claim.
const maxPrefix = 128

// New returns the lease service on an etcd. It does not wait for etcd: CheckServer and Ready do. So a node can start
// and return receipts while its etcd is unavailable.
func New(cfg Config) (*lease.Lessor, error) {
	if cfg.Client == nil {
		return nil, &flight.InvalidError{Field: "etcd", Detail: "a client is required"}
	}
	if cfg.Server == nil && cfg.Client.ActiveConnection() == nil {
		return nil, &flight.InvalidError{Field: "etcd.server", Detail: "required for a client without a connection"}
	}
	prefix := cmp.Or(cfg.Prefix, DefaultPrefix(cfg.Deployment))
	if len(prefix) > maxPrefix || !strings.HasSuffix(prefix, "/") {
		return nil, &flight.InvalidError{Field: "etcd.prefix", Detail: fmt.Sprintf("at most %d bytes, ending in /", maxPrefix)}
	}
	t := cfg.Tuning
	switch {
	case cfg.Server != nil && t.BatchSize == 0:
		t.BatchSize = inProcessBatch
	case cfg.Server == nil && t.BatchSize > maxBatch:
		return nil, &flight.InvalidError{Field: "etcd.batch", Detail: fmt.Sprintf("over the network at most %d comparisons", maxBatch)}
	}
	return lease.New(lease.Config{
		Store: newStore(cfg.Client, cfg.Server, prefix, cfg.Record), Ledger: cfg.Ledger,
		Deployment: cfg.Deployment, Node: cfg.Node, Events: cfg.Events, Now: t.Now,
		Workers: t.Workers, BatchSize: t.BatchSize, CommitTimeout: t.CommitTimeout, MaintainEvery: t.MaintainEvery, Pool: t.Pool,
	})
}

// Dial returns a client for a remote etcd. It does not wait for a connection: CheckServer does. The keepalive detects
// half-open connections; etcd closes the connection of a client that pings more often than every 5 s.
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

// ErrOldServer is returned for an etcd version that flightd does not support.
var ErrOldServer = errors.New("etcdlease: this etcd version has known bugs in leases, watches or access control")

// ErrUnreadable is returned when a value in etcd is damaged or of a newer version.
var ErrUnreadable = errors.New("etcdlease: unreadable value in etcd")

// CheckServer checks the version of every endpoint of the client. Errors: ErrOldServer; lease.ErrUnavailable when an
// endpoint does not answer before ctx ends.
func CheckServer(ctx context.Context, client *clientv3.Client) error {
	endpoints := client.Endpoints()
	if len(endpoints) == 0 {
		endpoints = []string{""} // a client of an embedded server
	}
	for _, e := range endpoints {
		status, err := client.Status(ctx, e)
		if err != nil {
			return fmt.Errorf("%w: etcd at %q: %w", lease.ErrUnavailable, e, err)
		}
		if !supportedVersion(status.Version) {
			return fmt.Errorf("%w: %q runs %s, want 3.6.14 or later, or 3.7.1 or later", ErrOldServer, e, status.Version)
		}
	}
	return nil
}

// supportedVersion accepts 3.6 from 3.6.14, and all versions from 3.7.1. Older ones answer the renewal of a revoked
// lease with success, and do not check the operations in nested transactions.
func supportedVersion(v string) bool {
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
