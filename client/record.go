package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/wire"
)

// firstReport is how long the first try of a report may take before the report goes to disk.
const firstReport = 2 * time.Second

// Record brings the outcome of an attempt, and keeps the report on disk from the first try that fails until a server
// has taken it. It waits for that as long as WithReportWait says; then the error is *Unrecorded, and the report is
// tried on, by this client and by later ones. *Fenced inside the error: it came too late and is kept as evidence.
func (c *Client) Record(key flight.Key, r ReportRequest) (*Flight, error) {
	f, _, err := c.record(context.Background(), key, r)
	return f, err
}

// record is Record; values are those of the call that it is for. With *Unrecorded it gives the
// report's name in the spool.
func (c *Client) record(values context.Context, key flight.Key, r ReportRequest) (f *Flight, name string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(values), c.opts.reportWait)
	defer cancel()
	r.Key = key.String()
	ask := c.reportRequest(key, r.AppendJSON(nil))
	f, err = c.firstReport(ctx, ask, r.Outcome == flight.NotDone.String())
	if verdictOn(err) == taken {
		return f, "", err
	}
	// If the process dies from here on, the next one that connects reports it.
	name, spoolErr := c.spool.keep(&spooled{Deployment: c.deployment, Key: key.String(), Report: ask.body})
	if spoolErr != nil {
		c.opts.logger.Error("flightd: a report could not be kept on disk", "key", key.String(), "error", spoolErr)
	}
	if verdictOn(err) == later {
		if spoolErr == nil { // only what is on disk may be left to whoever connects next
			var stop func()
			ctx, stop = c.untilKilled(ctx)
			defer stop()
		}
		f, err = c.bring(ctx, ask)
	}
	if verdictOn(err) == taken {
		c.spool.drop(name, key.String())
		return f, "", err
	}
	var where string
	if verdictOn(err) == refused {
		where = c.spool.putAside(name, key.String(), err)
	} else {
		where = c.spool.place(name)
		c.opts.logger.Warn("flightd: an outcome is not recorded yet; "+where, "key", key.String(), "error", err)
		c.spool.release(name)
	}
	outcome, _ := flight.ParseOutcome(r.Outcome)
	result := effect.Result{Key: key, FlightID: key.FlightID(), Outcome: outcome}
	return nil, name, &effect.Unrecorded{Result: result, Cause: errors.Join(err, spoolErr), Where: where}
}

// firstReport tries once. A Close that loses its patience meanwhile ends it, unless it says that nothing was sent: the
// session goes with Close, and unsaid that becomes a doubt. What a handler reports that was ended by such a Close still gets
// its try, too.
func (c *Client) firstReport(ctx context.Context, ask request, notSent bool) (*Flight, error) {
	ask.tries, ask.once, ask.timeout = 1, true, min(firstReport, c.opts.reportWait)
	if c.runner.Life.Err() == nil && !notSent {
		var stop func()
		ctx, stop = c.untilKilled(ctx)
		defer stop()
	}
	return c.bring(ctx, ask)
}

// bring asks a server to take a report.
func (c *Client) bring(ctx context.Context, ask request) (*Flight, error) {
	resp, err := c.ask(ctx, ask)
	return flightOf(ask.key.FlightID(), resp, err)
}

// untilKilled is ctx until Close loses its patience.
func (c *Client) untilKilled(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	off := context.AfterFunc(c.runner.Life, func() { cancel(effect.ErrClosed) })
	return ctx, func() { off(); cancel(nil) }
}

func (c *Client) reportRequest(key flight.Key, body []byte) request {
	return request{
		method: http.MethodPost, path: flightPath(key.FlightID(), "/report"), body: body, key: key,
		has: flightAnswer(key), timeout: reportTry, patience: c.opts.reportWait,
	}
}

// taking is what a server made of a report.
type taking int

const (
	taken   taking = iota // it is in the ledger, as the outcome or as evidence
	later                 // nobody answered, or not now, or not to whoever this is
	refused               // it can never be taken
)

// verdictOn reads the answer to a report. Only an answer that names this flight, with a code of flightd's own route for reports,
// is final. After any other answer the report is sent again.
func verdictOn(err error) taking {
	p := problemOf(err)
	switch {
	case err == nil:
		return taken
	case p == nil || about(p) == "": // see refusal: one about another flight is none
		return later
	case p.Code == wire.Fenced:
		return taken
	case slices.Contains([]Code{wire.KeyInvalid, wire.InputInvalid, wire.PayloadTooLarge, wire.NotFound}, p.Code):
		return refused
	}
	return later
}

// PutAside reports whether the report of an *Unrecorded is one that no server will ever take: it was put aside, for a
// person to look at.
func PutAside(u *Unrecorded) bool { return verdictOn(u.Cause) == refused }

// AwaitSpool waits until each report that lay in the spool when the client connected was sent once, or ctx ends. A flight that is
// read then shows the outcomes that waited on this machine's disk.
func (c *Client) AwaitSpool(ctx context.Context) {
	select {
	case <-c.drained:
	case <-ctx.Done():
	}
}

// startDrain reports what is in the spool, now and whenever something comes to lie there. Close waits for the first
// round, so that a command that is short still does its share.
func (c *Client) startDrain() {
	c.drained, c.rounds = make(chan struct{}), make(chan struct{})
	if !c.runner.Work.Enter() {
		close(c.rounds)
		return
	}
	first := c.spool.names()
	c.idle.Go(func() {
		defer close(c.rounds)
		func() {
			defer c.runner.Work.Leave()
			defer close(c.drained)
			c.drain(c.runner.Life, first)
		}()
		for pause := drainEvery; clock.Sleep(c.runner.Draining, pause); {
			names := c.spool.names()
			if pause = drainEvery; len(names) > 0 && !c.drain(c.runner.Draining, names) {
				pause = 4 * drainEvery
			}
		}
	})
}

// lastRound brings what is on no disk once more, before it is lost with the client.
func (c *Client) lastRound(ctx context.Context) {
	select {
	case <-c.rounds: // they end where Close begins
		c.drain(ctx, c.spool.inMemory())
	case <-ctx.Done():
	}
}

// drainEvery is how often the spool is looked at.
const drainEvery = 2 * time.Second

// drain reports what the files hold, and answers false when no server takes reports now. One that a server cannot take
// now keeps no other one waiting.
func (c *Client) drain(ctx context.Context, names []string) bool {
	went := true
	for _, name := range names {
		entry, ok := c.spool.claim(name)
		if !ok {
			continue
		}
		if entry.Deployment != c.deployment {
			c.spool.release(name) // of another server: a client that is connected to that one reports it
			continue
		}
		key, err := flight.ParseKey(entry.Key)
		if err != nil {
			c.spool.putAside(name, entry.Key, err)
			continue
		}
		ask := c.reportRequest(key, entry.Report)
		ask.tries = 1
		_, err = c.bring(ctx, ask)
		switch verdictOn(err) {
		case taken:
			c.opts.logger.Info("flightd: an outcome that waited on disk is recorded", "key", entry.Key)
			c.spool.drop(name, entry.Key)
		case refused:
			c.spool.putAside(name, entry.Key, err)
		case later:
			c.spool.release(name)
			if CodeOf(err) == "" {
				return false
			}
			went = false
		}
	}
	return went
}
