package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/crashpoint"
)

// Limits of a run.
const (
	runTimeout   = 2 * time.Minute  // for the whole run
	crashTimeout = 15 * time.Second // until the caller or flightd has reached its crash point
	maxRetries   = 10               // callers after the first one
)

// runner executes one run.
type runner struct {
	run       Run
	server    *server // nil without flightd
	crmClient crmClient
	binary    string
	dir       string // directory of this run
	crmURL    string
	facts     Facts
}

// execute executes the run and returns the facts. An error of the run is in Facts.Error.
func (r *runner) execute(ctx context.Context) Facts {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, errors.New("the run took too long"))
	defer cancel()
	err := r.prepare(ctx)
	if err == nil {
		err = r.runFirstCaller(ctx)
	}
	if err == nil {
		err = r.retryUntilDone(ctx)
	}
	if e := r.collectFacts(ctx); err == nil {
		err = e
	}
	if err != nil {
		r.facts.Error = err.Error()
	}
	return r.facts
}

// prepare creates the directory, configures the CRM and starts flightd if the run kills it.
func (r *runner) prepare(ctx context.Context) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	err := r.crmClient.set(ctx, r.run.ID(), Setting{
		Honour: r.run.Recovery == flight.RecoveryResend.String(), LookUp: r.run.Recovery == flight.RecoveryVerify.String(), Fault: r.run.Fault,
	})
	switch {
	case err != nil || !r.run.killsFlightd():
		return err
	case r.run.flightdCrashes():
		return r.server.start(ctx, r.run.Point)
	}
	return r.server.start(ctx, "")
}

// callerOptions are the crash point and the pause point of a caller process.
type callerOptions struct {
	crash, pause crashpoint.Point
}

func (r *runner) startCaller(o callerOptions) (*callerProcess, error) {
	args := []string{"drill", "caller", "--crm", r.crmURL, "--id", r.run.ID(), "--recovery", r.run.Recovery, "--spool", filepath.Join(r.dir, "reports")}
	if r.server != nil {
		args = append(args, "--server", r.server.url())
	}
	if o.pause != "" {
		args = append(args, "--pause-at", string(o.pause))
	}
	if o.crash == crashpoint.DuringOpen {
		args = append(args, "--watch-open")
	}
	proc, err := startProcess(r.binary, "caller", r.logPath(), o.crash, args...)
	return &callerProcess{process: proc}, err
}

func (r *runner) logPath() string { return filepath.Join(r.dir, "callers.log") }

// runFirstCaller runs the caller during which the caller, flightd or both are killed. In a run with only a CRM fault it
// does nothing: retryUntilDone starts the first caller there.
func (r *runner) runFirstCaller(ctx context.Context) error {
	var act func(context.Context, *callerProcess) error
	var o callerOptions
	switch {
	case r.run.Victim == VictimNone:
		return nil
	case r.run.Victim == VictimCaller:
		o.crash, act = r.run.Point, r.awaitCallerCrash
	case r.run.flightdCrashes():
		act = r.awaitServerCrash
	default:
		o.pause, act = r.run.Point, r.killAtPause
	}
	v, err := r.startCaller(o)
	if err != nil {
		return err
	}
	defer v.kill()
	err = act(ctx, v)
	r.addFacts(v)
	if end, cause := v.end(); err == nil && end == endFailed {
		err = fmt.Errorf("the first caller failed: %s", cause)
	}
	return err
}

// awaitCallerCrash waits until the caller has killed itself at its point.
func (r *runner) awaitCallerCrash(ctx context.Context, v *callerProcess) error {
	if err := v.readAll(ctx); err != nil {
		return err
	}
	if !v.wasKilled() {
		end, cause := v.end()
		return fmt.Errorf("the caller did not reach %s: %s %s", r.run.Point, end, cause)
	}
	return nil
}

// awaitServerCrash waits until flightd has killed itself at its point, kills the caller if both are victims, and
// restarts flightd. A surviving caller must finish after the restart.
func (r *runner) awaitServerCrash(ctx context.Context, v *callerProcess) error {
	waitCtx, cancel := context.WithTimeout(ctx, crashTimeout)
	defer cancel()
	if err := r.server.waitKilled(waitCtx); err != nil {
		return err
	}
	if r.run.Victim == VictimBoth {
		if err := v.killAndRead(ctx); err != nil {
			return err
		}
	}
	if err := r.server.start(ctx, ""); err != nil {
		return err
	}
	return v.readAll(ctx)
}

// killAtPause waits until the caller pauses at its point, kills flightd or both, and restarts flightd.
func (r *runner) killAtPause(ctx context.Context, v *callerProcess) error {
	waitCtx, cancel := context.WithTimeout(ctx, crashTimeout)
	defer cancel()
	reached, err := v.readUntil(waitCtx, func(l message) bool { return l.Point == r.run.Point })
	switch {
	case err != nil:
		return err
	case !reached:
		end, cause := v.end()
		return fmt.Errorf("the caller did not reach %s: %s %s", r.run.Point, end, cause)
	}
	if r.run.Victim == VictimBoth {
		v.sendKill()
	}
	r.server.kill()
	if r.run.Victim == VictimFlightd {
		if err := v.resume(); err != nil {
			return err
		}
	}
	if err := r.server.start(ctx, ""); err != nil {
		return err
	}
	return v.readAll(ctx)
}

// retryUntilDone starts callers with the same key, one after the other, until one gets the receipt. A flight in doubt
// under hold is resolved between two callers.
func (r *runner) retryUntilDone(ctx context.Context) error {
	var end, cause string
	for range maxRetries {
		v, err := r.startCaller(callerOptions{})
		if err != nil {
			return err
		}
		err = v.readAll(ctx)
		v.kill()
		r.addFacts(v)
		if err != nil {
			return err
		}
		switch end, cause = v.end(); {
		case end == endSucceeded:
			return nil
		case end == endInDoubt && r.run.Recovery == flight.RecoveryHold.String():
			if err := r.resolve(ctx); err != nil {
				return err
			}
		case end != endRetry:
			return fmt.Errorf("a retry ended as %q: %s", end, cause)
		}
	}
	return fmt.Errorf("no success after %d retries: %s", maxRetries, cause)
}

// addFacts adds the results and failed attempts of a caller to the facts.
func (r *runner) addFacts(v *callerProcess) {
	r.facts.Results = append(r.facts.Results, v.results()...)
	r.facts.Failed = append(r.facts.Failed, v.failed()...)
}

// withClient calls do with a client of flightd and the run's flight.
func (r *runner) withClient(ctx context.Context, do func(*client.Client, flight.ID) error) error {
	c, err := client.Connect(ctx, r.server.url(), client.WithNamespace(namespace), client.WithoutSpool(), client.WithActor("drill"),
		client.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }() // the client has no attempt and no spool
	key, err := c.Key(action, r.run.ID())
	if err != nil {
		return err
	}
	return do(c, key.FlightID())
}

// resolve resolves a flight in doubt by the CRM's records, as a person would.
func (r *runner) resolve(ctx context.Context) error {
	return r.withClient(ctx, func(c *client.Client, id flight.ID) error {
		f, err := c.Flight(ctx, id)
		if err != nil || f.State != flight.StateInDoubt.String() {
			return err // a late report may have ended the doubt
		}
		count, err := r.crmClient.count(ctx, r.run.ID())
		if err != nil {
			return err
		}
		resolution := client.ResolveRequest{Result: wire.ResultNotHappened, Reason: "the CRM has no ticket"}
		if len(count.Tickets) > 0 {
			t := count.Tickets[0]
			body, err := json.Marshal(t)
			if err != nil {
				return err
			}
			resolution = client.ResolveRequest{Result: wire.ResultHappened, Reason: "the CRM has " + t.ID,
				Body: wire.BodyOf(t.ID, wire.TypeJSON, body)}
		}
		_, err = c.Resolve(ctx, id, f.Version, resolution)
		if client.CodeOf(err) == wire.PreconditionFailed {
			return nil // the flight changed meanwhile; the next caller sees its state
		}
		return err
	})
}

// collectFacts reads the CRM's records and flightd's flight into the facts.
func (r *runner) collectFacts(ctx context.Context) error {
	count, err := r.crmClient.count(ctx, r.run.ID())
	if err != nil {
		return err
	}
	r.facts.Requests = count.Requests
	for _, t := range count.Tickets {
		r.facts.Tickets = append(r.facts.Tickets, t.ID)
	}
	if r.server == nil || r.server.proc == nil {
		return nil
	}
	return r.withClient(ctx, func(c *client.Client, id flight.ID) error { return r.collectFlight(ctx, c, id) })
}

// collectFlight reads the flight, its history and its receipts into the facts.
func (r *runner) collectFlight(ctx context.Context, c *client.Client, id flight.ID) error {
	f, err := c.Flight(ctx, id)
	if err != nil {
		return err
	}
	r.facts.State, r.facts.Overlap = f.State, f.Overlap
	history, err := c.History(ctx, id)
	if err != nil {
		return err
	}
	r.facts.History = history.Events
	for _, past := range f.PreviousGenerations {
		if past.Digest != "" {
			r.facts.Receipts = append(r.facts.Receipts, Outcome{ExternalID: past.ExternalID, Digest: past.Digest})
		}
	}
	if f.Receipt == nil {
		return nil
	}
	bytes, err := c.Receipt(ctx, id)
	if err != nil {
		return err
	}
	r.facts.Receipts = append(r.facts.Receipts, Outcome{
		ExternalID: f.Receipt.ExternalID, Digest: bytes.Digest, Attempt: f.Receipt.Attempt, Body: string(bytes.Data),
	})
	return nil
}
