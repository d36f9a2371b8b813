package client

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// Option sets up a Client. Values that cannot be are refused by Connect.
type Option func(*options)

type options struct {
	namespace  string
	actor      string
	owner      string
	spool      string
	noSpool    bool
	ttl        time.Duration
	reportWait time.Duration
	patience   time.Duration
	hungAfter  time.Duration
	logger     *slog.Logger
}

// WithNamespace names the namespace of keys that name none; the default is "default".
func WithNamespace(ns string) Option { return func(o *options) { o.namespace = ns } }

// WithActor says who takes operators' decisions; the default is nobody, whom the server calls unknown.
func WithActor(who string) Option { return func(o *options) { o.actor = who } }

// WithOwner says in attempts who holds them, for people; the default is host:pid.
func WithOwner(owner string) Option { return func(o *options) { o.owner = owner } }

// WithTTL says how long attempts outlive this process: whole seconds from 2 s to 10 min; the default is the server's.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithSpool names the directory that keeps reports which no server has taken yet; the default is flightd/reports in
// $XDG_STATE_HOME, or in ~/.local/state.
func WithSpool(dir string) Option { return func(o *options) { o.spool = dir } }

// WithoutSpool keeps no reports on disk: an outcome that cannot be reported is lost with the process.
func WithoutSpool() Option { return func(o *options) { o.noSpool = true } }

// WithReportWait says how long a caller waits for its outcome to be recorded before it gets *Unrecorded; the default
// is 10 s. The report is tried on afterwards.
func WithReportWait(d time.Duration) Option { return func(o *options) { o.reportWait = d } }

// WithPatience says for how long a request is tried again while servers do not answer, or answer that they cannot now;
// the default is 10 s, the context's end comes first. Reports are tried by WithReportWait.
func WithPatience(d time.Duration) Option { return func(o *options) { o.patience = d } }

// WithLogger takes what a person should know: reports that wait, and spool files that cannot be read. The default is
// slog.Default.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithTraceparent gives a context whose calls belong to the trace of that W3C traceparent: it goes out with every
// request for them, to flightd and through Attempt.Transport to the provider. One that is not well-formed is ignored.
func WithTraceparent(ctx context.Context, header string) context.Context {
	return effect.WithTraceparent(ctx, header)
}

func newOptions(opts []Option) (options, error) {
	o := options{
		namespace: wire.DefaultNamespace, reportWait: 10 * time.Second, patience: 10 * time.Second,
		hungAfter: flight.PauseBound, logger: slog.Default(),
	}
	for _, opt := range opts {
		opt(&o)
	}
	if _, err := flight.NewKey(o.namespace, "name", "id"); err != nil {
		return o, err
	}
	if _, bad := wire.TTL(o.ttl.Milliseconds()); bad != nil {
		return o, &flight.InvalidError{Field: "ttl", Detail: bad.Detail}
	}
	if o.reportWait <= 0 || o.patience <= 0 || o.logger == nil {
		return o, &flight.InvalidError{Field: "options", Detail: "report wait and patience must be more than nothing, and the logger not nil"}
	}
	if o.owner == "" {
		host, _ := os.Hostname()
		o.owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if o.spool == "" && !o.noSpool {
		dir, err := DefaultSpool()
		if err != nil {
			return o, err
		}
		o.spool = dir
	}
	var err error
	if o.spool != "" { // also where the process moves to another directory
		o.spool, err = filepath.Abs(o.spool)
	}
	return o, err
}

// DefaultSpool is the directory for reports of a Client that was given none.
func DefaultSpool() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no place for reports that wait: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "flightd", "reports"), nil
}

// parseAddresses reads a comma-separated list of servers; http:// may be left out.
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
			return nil, &flight.InvalidError{Field: "address", Detail: fmt.Sprintf("%q is no address of a server like http://127.0.0.1:7420", part)}
		}
		servers = append(servers, strings.TrimRight(part, "/"))
	}
	if len(servers) == 0 {
		return nil, &flight.InvalidError{Field: "address", Detail: "no server is named"}
	}
	return servers, nil
}
