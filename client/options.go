package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Option is an option of Connect, which rejects invalid values.
type Option func(*options)

type options struct {
	namespace  string
	deployment string
	actor      string
	owner      string
	spool      spoolOptions
	times      timeOptions
	logger     *slog.Logger
	token      tokenSource // never nil after newOptions
	tokenFile  string
	tls        tlsOptions
	transportOptions
}

// transportOptions say how requests travel.
type transportOptions struct {
	noBatches bool
	handler   http.Handler                                                         // nil: requests go to the servers
	dial      func(ctx context.Context, network, address string) (net.Conn, error) // nil: over TCP; tests set it
}

type spoolOptions struct {
	dir  string
	none bool
}

type timeOptions struct {
	sessionTTL time.Duration // 0: the server's
	report     time.Duration
	retry      time.Duration
	hungAfter  time.Duration
}

type tlsOptions struct {
	plainHTTP bool // tokens may go over http://
	config    *tls.Config
	caFile    string
	cert, key string // files
}

// WithNamespace sets the namespace of keys without one. The default is the namespace of the token, if it has one, else
// "default".
func WithNamespace(ns string) Option { return func(o *options) { o.namespace = ns } }

// WithDeployment sets the only deployment that the client talks to. Connect returns an *Error with the code wrong_deployment
// if the servers belong to another one, whose ledger does not contain the effects of this one. The default is
// FLIGHTD_DEPLOYMENT, else the deployment of the first server that answers.
func WithDeployment(id string) Option { return func(o *options) { o.deployment = id } }

// WithActor sets the name under which operators' decisions are recorded, and that asks for approvals. Without it the server records
// unknown, or the address.
func WithActor(actor string) Option { return func(o *options) { o.actor = actor } }

// WithOwner sets the owner that attempts show to people. The default is host:pid.
func WithOwner(owner string) Option { return func(o *options) { o.owner = owner } }

// WithSessionTTL sets how long attempts stay held after this process has died: whole seconds from 2 s to 10 min. The
// default is the server's.
func WithSessionTTL(d time.Duration) Option { return func(o *options) { o.times.sessionTTL = d } }

// WithSpool sets the directory for reports that no server has stored yet. The default is flightd/reports in
// $XDG_STATE_HOME, or in ~/.local/state.
func WithSpool(dir string) Option { return func(o *options) { o.spool.dir = dir } }

// WithoutSpool stores no reports on disk: an outcome that cannot be reported is lost with the process.
func WithoutSpool() Option { return func(o *options) { o.spool.none = true } }

// WithReportTimeout sets how long a call waits for its outcome to be recorded before it returns *Unrecorded. The
// default is 10 s. The client goes on sending the report.
func WithReportTimeout(d time.Duration) Option { return func(o *options) { o.times.report = d } }

// WithRetryTimeout sets how long a request is repeated while no server answers, or all are unavailable. The default is
// 10 s. The end of the context comes first. For reports, WithReportTimeout applies.
func WithRetryTimeout(d time.Duration) Option { return func(o *options) { o.times.retry = d } }

// WithoutBatches sends each request by itself. By default, opens, reports and abandons that come while others are on their way to a
// server are sent in one request: see POST /v1/flights:batch.
func WithoutBatches() Option { return func(o *options) { o.noBatches = true } }

// WithLogger sets the logger for reports that are not recorded yet, and for unreadable spool files. The default is
// slog.Default.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithTraceparent returns a context with a W3C traceparent. Every request of its calls carries the header, to flightd
// and, through Attempt.Transport, to the provider. A malformed header is ignored.
func WithTraceparent(ctx context.Context, header string) context.Context {
	return effect.WithTraceparent(ctx, header)
}

func newOptions(opts []Option) (options, error) {
	o := options{
		times:  timeOptions{report: 10 * time.Second, retry: 10 * time.Second, hungAfter: flight.PauseBound},
		logger: slog.Default(),
	}
	for _, opt := range opts {
		opt(&o)
	}
	if o.handler != nil {
		o.token = func() string { return "" }
	} else if err := o.resolveToken(); err != nil {
		return o, err
	} else {
		o.deployment = cmp.Or(o.deployment, os.Getenv(envDeployment))
	}
	o.namespace = cmp.Or(o.namespace, wire.TokenNamespace(o.token()), wire.DefaultNamespace)
	if _, err := flight.NewKey(o.namespace, "name", "id"); err != nil {
		return o, err
	}
	if _, bad := wire.TTL(o.times.sessionTTL.Milliseconds()); bad != nil {
		return o, &flight.InvalidError{Field: "ttl", Detail: bad.Detail}
	}
	if o.times.report <= 0 || o.times.retry <= 0 || o.logger == nil {
		return o, &flight.InvalidError{Field: "options", Detail: "the report timeout and the retry timeout must be positive, and the logger not nil"}
	}
	if o.owner == "" {
		host, _ := os.Hostname()
		o.owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if o.spool.dir == "" && !o.spool.none {
		dir, err := DefaultSpoolDir()
		if err != nil {
			return o, err
		}
		o.spool.dir = dir
	}
	var err error
	if o.spool.dir != "" { // the process may change its directory later
		o.spool.dir, err = filepath.Abs(o.spool.dir)
	}
	return o, err
}

// DefaultSpoolDir returns the default directory of WithSpool.
func DefaultSpoolDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the default spool: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "flightd", "reports"), nil
}

// parseAddresses parses a comma-separated list of servers. The scheme http:// is optional.
func parseAddresses(list string) ([]string, error) {
	var servers []string
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if !strings.Contains(part, "://") {
			part = "http://" + part
		}
		u, err := url.Parse(part)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
			return nil, &flight.InvalidError{Field: "address", Detail: fmt.Sprintf("%q is not a server address such as http://127.0.0.1:7420", withoutUser(part))}
		}
		servers = append(servers, strings.TrimRight(part, "/"))
	}
	if len(servers) == 0 {
		return nil, &flight.InvalidError{Field: "address", Detail: "no server is named"}
	}
	return servers, nil
}

// withoutUser returns an address without the user and password in it.
func withoutUser(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}
