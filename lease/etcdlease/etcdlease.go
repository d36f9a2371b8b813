package etcdlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
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

const (
	// maxBatch leaves 8 comparisons of a transaction for those that a batch shares.
	maxBatch = maxCompares - 8
	// inProcessBatch is the batch size for an embedded etcd, which has no limit: about 256 callers share one write.
	inProcessBatch = 250
)

// maxPrefix limits the length of keys, which are written with every claim.
const maxPrefix = 128

// MaxRoot is the greatest length of a Root. The id of a deployment has 36 bytes.
const MaxRoot = 64

// New returns the lease service on an etcd. It does not wait for etcd: CheckServer and Ready do. So a node can start
// and return receipts while its etcd is unavailable.
func New(cfg Config) (*lease.Lessor, error) {
	if cfg.Client == nil {
		return nil, &flight.InvalidError{Field: "etcd", Detail: "a client is required"}
	}
	if cfg.Server == nil && cfg.Client.ActiveConnection() == nil {
		return nil, &flight.InvalidError{Field: "etcd.server", Detail: "required for a client without a connection"}
	}
	prefix := cmp.Or(cfg.Prefix, DefaultRoot.Prefix(cfg.Deployment))
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
// half-open connections; etcd closes the connection of a client that pings more often than every 5 s. A member without a
// leader rejects each request at once, and does nothing; by default it would wait.
func Dial(cfg clientv3.Config) (*clientv3.Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, &flight.InvalidError{Field: "etcd.endpoints", Detail: "at least one is required"}
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	ka := keepalive.ClientParameters{Time: 6 * time.Second, Timeout: 3 * time.Second}
	cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout, cfg.PermitWithoutStream = ka.Time, ka.Timeout, ka.PermitWithoutStream
	cfg.DialOptions = append(cfg.DialOptions,
		grpc.WithConnectParams(grpc.ConnectParams{ // by default, the pause before the next attempt grows to two minutes
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}, MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(clientv3.WithRequireLeader(ctx), method, req, reply, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(clientv3.WithRequireLeader(ctx), desc, conn, method, opts...)
		}),
	)
	return clientv3.New(cfg)
}

// ErrOldServer is returned for an etcd version that flightd does not support.
var ErrOldServer = errors.New("etcdlease: this etcd version has known bugs in leases, watches or access control")

// ErrUnreadable is returned when a value in etcd is damaged or of a newer version.
var ErrUnreadable = errors.New("etcdlease: unreadable value in etcd")

// Endpoint is what a member of an etcd says of itself.
type Endpoint struct {
	URL    string                   // as the client names it; "": the embedded server
	Status *clientv3.StatusResponse // nil: it does not answer
	Err    error                    // ErrOldServer, or why it does not answer
}

// Endpoints asks every endpoint of the client for its status, at the same time, until ctx ends.
func Endpoints(ctx context.Context, client *clientv3.Client) []Endpoint {
	urls := client.Endpoints()
	if len(urls) == 0 {
		urls = []string{""} // a client of an embedded server
	}
	all := make([]Endpoint, len(urls))
	var asked sync.WaitGroup
	for i, url := range urls {
		asked.Go(func() {
			status, err := statusOf(ctx, client, url)
			switch {
			case err != nil:
				err = fmt.Errorf("%w: etcd at %q: %w", lease.ErrUnavailable, url, err)
			case !supportedVersion(status.Version):
				err = fmt.Errorf("%w: %q runs %s, want 3.6.14 or later, or 3.7.1 or later", ErrOldServer, url, status.Version)
			}
			all[i] = Endpoint{URL: url, Status: status, Err: err}
		})
	}
	asked.Wait()
	return all
}

// statusOf asks one endpoint, once: the client's own method repeats the request until ctx ends, and then hides the cause.
func statusOf(ctx context.Context, client *clientv3.Client, url string) (*clientv3.StatusResponse, error) {
	if url == "" {
		return client.Status(ctx, url)
	}
	conn, err := client.Dial(url)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	status, err := pb.NewMaintenanceClient(conn).Status(ctx, new(pb.StatusRequest))
	return (*clientv3.StatusResponse)(status), clientv3.ContextError(ctx, err)
}

// CheckServer checks the version of the endpoints that answer. Errors: ErrOldServer; lease.ErrUnavailable when none answers
// before ctx ends.
func CheckServer(ctx context.Context, client *clientv3.Client) error {
	var errs []error
	answered := false
	for _, e := range Endpoints(ctx, client) {
		if errors.Is(e.Err, ErrOldServer) {
			return e.Err
		}
		answered = answered || e.Err == nil
		errs = append(errs, e.Err)
	}
	if answered {
		return nil
	}
	return errors.Join(errs...)
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
