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
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/wire"
)

// Limits of a run.
const (
	runPatience   = 2 * time.Minute  // for the whole run
	deathPatience = 15 * time.Second // until the caller or flightd has reached its crash point
	mostReturns   = 10               // callers after the first one
)

// runner executes one run.
type play struct {
	run    Run
	house  *house // nil without flightd
	books  books
	binary string
	dir    string // directory of this run
	crm    string
	facts  Facts
}

// execute executes the run and returns the facts. An error of the run is in Facts.Error.
func (p *play) perform(ctx context.Context) Facts {
	ctx, cancel := context.WithTimeoutCause(ctx, runPatience, errors.New("the run took too long"))
	defer cancel()
	err := p.stage(ctx)
	if err == nil {
		err = p.mishap(ctx)
	}
	if err == nil {
		err = p.comeBack(ctx)
	}
	if e := p.gather(ctx); err == nil {
		err = e
	}
	if err != nil {
		p.facts.Trouble = err.Error()
	}
	return p.facts
}

// prepare creates the directory, configures the CRM and starts flightd if the run kills it.
func (p *play) stage(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	err := p.books.set(ctx, p.run.ID(), Setting{
		Honour: p.run.Recovery == flight.Resend.String(), LookUp: p.run.Recovery == flight.Verify.String(), Fault: p.run.Fault,
	})
	switch {
	case err != nil || !p.run.flightdDies():
		return err
	case p.run.flightdsOwn():
		return p.house.start(ctx, p.run.Point)
	}
	return p.house.start(ctx, "")
}

// callerOptions are the crash point and the pause point of a caller process.
type callerOptions struct {
	crash, pause crashpoint.Point
}

func (p *play) caller(o callerOptions) (*voice, error) {
	args := []string{"drill", "caller", "--crm", p.crm, "--id", p.run.ID(), "--recovery", p.run.Recovery, "--spool", filepath.Join(p.dir, "reports")}
	if p.house != nil {
		args = append(args, "--server", p.house.url())
	}
	if o.pause != "" {
		args = append(args, "--pause-at", string(o.pause))
	}
	if o.crash == crashpoint.DuringOpen {
		args = append(args, "--watch-open")
	}
	proc, err := start(p.binary, "caller", p.log(), o.crash, args...)
	return &voice{process: proc}, err
}

func (p *play) log() string { return filepath.Join(p.dir, "callers.log") }

// runFirstCaller runs the caller during which the caller, flightd or both are killed. In a run with only a CRM fault it
// does nothing: retryUntilDone starts the first caller there.
func (p *play) mishap(ctx context.Context) error {
	var act func(context.Context, *voice) error
	var o callerOptions
	switch {
	case p.run.Victim == Nobody:
		return nil
	case p.run.Victim == Caller:
		o.crash, act = p.run.Point, p.callerDies
	case p.run.flightdsOwn():
		act = p.flightdDies
	default:
		o.pause, act = p.run.Point, p.killedAtPause
	}
	v, err := p.caller(o)
	if err != nil {
		return err
	}
	defer v.kill()
	err = act(ctx, v)
	p.note(v)
	if end, cause := v.end(); err == nil && end == endedBadly {
		err = fmt.Errorf("the first caller failed: %s", cause)
	}
	return err
}

// awaitCallerCrash waits until the caller has killed itself at its point.
func (p *play) callerDies(ctx context.Context, v *voice) error {
	if err := v.hearAll(ctx); err != nil {
		return err
	}
	if !v.wasKilled() {
		end, cause := v.end()
		return fmt.Errorf("the caller did not reach %s: %s %s", p.run.Point, end, cause)
	}
	return nil
}

// awaitServerCrash waits until flightd has killed itself at its point, kills the caller if both are victims, and
// restarts flightd. A surviving caller must finish after the restart.
func (p *play) flightdDies(ctx context.Context, v *voice) error {
	patience, cancel := context.WithTimeout(ctx, deathPatience)
	defer cancel()
	if err := p.house.died(patience); err != nil {
		return err
	}
	if p.run.Victim == Both {
		if err := v.killAndHear(ctx); err != nil {
			return err
		}
	}
	if err := p.house.start(ctx, ""); err != nil {
		return err
	}
	return v.hearAll(ctx)
}

// killAtPause waits until the caller pauses at its point, kills flightd or both, and restarts flightd.
func (p *play) killedAtPause(ctx context.Context, v *voice) error {
	patience, cancel := context.WithTimeout(ctx, deathPatience)
	defer cancel()
	there, err := v.hear(patience, func(l line) bool { return l.Point == p.run.Point })
	switch {
	case err != nil:
		return err
	case !there:
		end, cause := v.end()
		return fmt.Errorf("the caller did not reach %s: %s %s", p.run.Point, end, cause)
	}
	if p.run.Victim == Both {
		v.signal()
	}
	p.house.kill()
	if p.run.Victim == Flightd {
		if err := v.resume(); err != nil {
			return err
		}
	}
	if err := p.house.start(ctx, ""); err != nil {
		return err
	}
	return v.hearAll(ctx)
}

// retryUntilDone starts callers with the same key, one after the other, until one gets the receipt. A flight in doubt
// under hold is resolved between two callers.
func (p *play) comeBack(ctx context.Context) error {
	var end, cause string
	for range mostReturns {
		v, err := p.caller(callerOptions{})
		if err != nil {
			return err
		}
		err = v.hearAll(ctx)
		v.kill()
		p.note(v)
		if err != nil {
			return err
		}
		switch end, cause = v.end(); {
		case end == endedWell:
			return nil
		case end == endedInDoubt && p.run.Recovery == flight.Hold.String():
			if err := p.settle(ctx); err != nil {
				return err
			}
		case end != endedAgain:
			return fmt.Errorf("a retry ended as %q: %s", end, cause)
		}
	}
	return fmt.Errorf("no success after %d retries: %s", mostReturns, cause)
}

// addFacts adds the results and failed attempts of a caller to the facts.
func (p *play) note(v *voice) {
	p.facts.Results = append(p.facts.Results, v.results()...)
	p.facts.Failed = append(p.facts.Failed, v.failed()...)
}

// withClient calls do with a client of flightd and the run's flight.
func (p *play) withFlightd(ctx context.Context, do func(*client.Client, flight.ID) error) error {
	c, err := client.Connect(ctx, p.house.url(), client.WithNamespace(namespace), client.WithoutSpool(), client.WithActor("drill"),
		client.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }() // the client has no attempt and no spool
	key, err := c.Key(action, p.run.ID())
	if err != nil {
		return err
	}
	return do(c, key.FlightID())
}

// resolve resolves a flight in doubt by the CRM's records, as a person would.
func (p *play) settle(ctx context.Context) error {
	return p.withFlightd(ctx, func(c *client.Client, id flight.ID) error {
		f, err := c.Flight(ctx, id)
		if err != nil || f.State != flight.InDoubt.String() {
			return err // a late report may have ended the doubt
		}
		count, err := p.books.count(ctx, p.run.ID())
		if err != nil {
			return err
		}
		word := client.ResolveRequest{Result: wire.ResultNotHappened, Reason: "the CRM has no ticket"}
		if len(count.Tickets) > 0 {
			t := count.Tickets[0]
			body, err := json.Marshal(t)
			if err != nil {
				return err
			}
			word = client.ResolveRequest{Result: wire.ResultHappened, Reason: "the CRM has " + t.ID,
				Body: wire.BodyOf(t.ID, wire.TypeJSON, body)}
		}
		_, err = c.Resolve(ctx, id, f.Version, word)
		if client.CodeOf(err) == wire.PreconditionFailed {
			return nil // the flight changed meanwhile; the next caller sees its state
		}
		return err
	})
}

// collectFacts reads the CRM's records and flightd's flight into the facts.
func (p *play) gather(ctx context.Context) error {
	count, err := p.books.count(ctx, p.run.ID())
	if err != nil {
		return err
	}
	p.facts.Requests = count.Requests
	for _, t := range count.Tickets {
		p.facts.Tickets = append(p.facts.Tickets, t.ID)
	}
	if p.house == nil || p.house.proc == nil {
		return nil
	}
	return p.withFlightd(ctx, func(c *client.Client, id flight.ID) error { return p.gatherFlight(ctx, c, id) })
}

// collectFlight reads the flight, its history and its receipts into the facts.
func (p *play) gatherFlight(ctx context.Context, c *client.Client, id flight.ID) error {
	f, err := c.Flight(ctx, id)
	if err != nil {
		return err
	}
	p.facts.State, p.facts.Overlap = f.State, f.Overlap
	history, err := c.History(ctx, id)
	if err != nil {
		return err
	}
	p.facts.History = history.Events
	for _, past := range f.Past {
		if past.Digest != "" {
			p.facts.Receipts = append(p.facts.Receipts, Outcome{ExternalID: past.ExternalID, Digest: past.Digest})
		}
	}
	if f.Receipt == nil {
		return nil
	}
	bytes, err := c.Receipt(ctx, id)
	if err != nil {
		return err
	}
	p.facts.Receipts = append(p.facts.Receipts, Outcome{
		ExternalID: f.Receipt.ExternalID, Digest: bytes.Digest, Attempt: f.Receipt.Attempt, Body: string(bytes.Data),
	})
	return nil
}
