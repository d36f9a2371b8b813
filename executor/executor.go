package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/deadline"
	"github.com/flightd/flightd/internal/runner"
	"github.com/flightd/flightd/lease"
)

// Config has the ports and the time-outs of an executor. Ledger, Reader and Leases have no default.
type Config struct {
	Ledger Ledger
	Reader Reader
	Leases lease.Service
	Events Events
	// Owner names this process in claims and attempts, for people; empty: host:pid.
	Owner string
	// TTL is how long the session outlives this process; 0: lease.DefaultTTL. A claim or an Open fails when it is not
	// answered within half of the TTL.
	TTL time.Duration
	// OpenLife is how long after its proposal an Open may still open an attempt; 0: 30 s.
	OpenLife time.Duration
	// ReportWait is how long a caller waits at least for its outcome to be recorded. Later the caller gets
	// *effect.Unrecorded; 0: 10 s.
	ReportWait time.Duration
	// HungAfter is how long after the end of its context a handler may still return. Later its outcome is unknown and
	// its claim is released; 0: 15 s.
	HungAfter time.Duration
	// Checker checks the sessions whose attempts block a call; nil: no checks.
	Checker Checker
	// Traces says that attempts store the sampled trace of their call: this process exports their spans.
	Traces bool
	// Crash is called at the points of no return, by the names of the table in the package comment; nil: no call.
	Crash func(point string)
}

func (c Config) withDefaults() (Config, error) {
	if c.Ledger == nil || c.Reader == nil || c.Leases == nil {
		return c, errors.New("executor: Config needs Ledger, Reader and Leases")
	}
	if c.Owner == "" {
		host, _ := os.Hostname()
		c.Owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	c.TTL = cmp.Or(c.TTL, lease.DefaultTTL)
	c.OpenLife = cmp.Or(c.OpenLife, flight.MaxOpenLife/2)
	c.ReportWait = cmp.Or(c.ReportWait, 10*time.Second)
	c.HungAfter = cmp.Or(c.HungAfter, flight.PauseBound)
	if c.OpenLife > flight.MaxOpenLife {
		return c, fmt.Errorf("executor: OpenLife %v is longer than the ledger allows (%v)", c.OpenLife, flight.MaxOpenLife)
	}
	if c.Crash == nil {
		c.Crash = func(string) {}
	}
	return c, nil
}

// Executor runs each effect once. Its methods may be called concurrently.
type Executor struct {
	cfg             Config
	session         lease.Session
	runner          *runner.Runner
	lookUpDelay     answer.VerifyDelays
	writer          answer.Builder
	requestDeadline *deadline.Shared // bounds requests to etcd and to the ledger
	reportDeadline  *deadline.Shared // bounds reports
}

// New creates an executor and its session. Without a running Sweeper, attempts of dead holders end only when a caller
// meets them.
func New(ctx context.Context, cfg Config) (*Executor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	session, err := cfg.Leases.NewSession(ctx, lease.Spec{TTL: cfg.TTL, Owner: cfg.Owner, AutoRenew: true})
	if err != nil {
		return nil, fmt.Errorf("executor: create session: %w", err)
	}
	ex := &Executor{
		cfg: cfg, session: session, writer: answer.Builder{Reader: cfg.Reader},
		requestDeadline: deadline.New(context.Background(), cfg.TTL/3), reportDeadline: deadline.New(context.Background(), cfg.ReportWait),
	}
	ex.runner = runner.New(transport{ex}, cfg.HungAfter)
	return ex, nil
}

// Do runs h once for the call's key, or returns the receipt of the call that did. Package runner has the steps.
func (ex *Executor) Do(ctx context.Context, call effect.Call, h effect.Handler) (result effect.Result, err error) {
	if called := ex.cfg.Events.Called; called != nil {
		start := time.Now()
		defer func() {
			label := result.Source.String()
			if err != nil {
				label = ErrorResult(err)
			}
			called(call.Key, label, time.Since(start))
		}()
	}
	if call.Callback {
		return effect.Result{}, &flight.InvalidError{Field: "callback", Detail: "an executor in process takes no callbacks; call through a client"}
	}
	if err := runner.CheckCall(&call, h); err != nil {
		return effect.Result{}, err
	}
	// A stored receipt is final. The local read comes first because it costs nothing.
	f, err := ex.cfg.Ledger.Flight(call.Key.FlightID())
	var generation uint32
	switch {
	case err != nil:
		return effect.Result{}, answer.Unavailable(call.Key, err)
	case f == nil:
	case f.State.Terminal() || answer.HasOtherInput(f, &call.Submission):
		a, err := ex.finalAnswer(f, &call, effect.SourceReplayed)
		return a.Result, err
	default:
		generation = f.Generation
	}
	return ex.runner.Do(ctx, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		ex.cfg.Crash(crashpoint.BeforeSend)
		defer ex.cfg.Crash(crashpoint.AfterEffect)
		return h(ctx, at)
	}, generation)
}

// Close waits until running effects have finished and reported, then ends the session. Calls that wait for another
// holder, and new calls, get effect.ErrClosed. When ctx ends, Close cancels the contexts of the running effects with
// that cause and waits at most Config.HungAfter more. If a handler has not returned even then, Close returns an error
// and lets the session expire: to release its claims would let a successor act at the same time.
func (ex *Executor) Close(ctx context.Context) error {
	if err := ex.runner.Close(ctx); err != nil {
		return fmt.Errorf("executor: close: the session is kept until it expires: %w", err)
	}
	ex.runner.CancelBase()
	ex.requestDeadline.Close()
	ex.reportDeadline.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return ex.session.Close(ctx)
}

// closeTimeout bounds the request that ends the session in etcd.
const closeTimeout = 5 * time.Second
