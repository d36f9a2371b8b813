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

// firstReportTimeout bounds the first try of a report. After it the report is written to disk.
const firstReport = 2 * time.Second

// Record reports the outcome of an attempt. If the first try fails, the report is stored on disk until a server has
// stored it. After WithReportTimeout the error is *Unrecorded; this client, or a later one with the same spool, goes on
// sending the report. An error that wraps *Fenced means that the report came too late and is stored as evidence.
func (c *Client) Record(key flight.Key, r ReportRequest) (*Flight, error) {
	f, _, err := c.record(context.Background(), key, r)
	return f, err
}

// recordReport is Record with the values of the call's context. With *Unrecorded it also returns the report's name in
// the spool.
func (c *Client) record(values context.Context, key flight.Key, r ReportRequest) (f *Flight, name string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(values), c.opts.reportWait)
	defer cancel()
	r.Key = key.String()
	ask := c.reportRequest(key, r.AppendJSON(nil))
	f, err = c.firstReport(ctx, ask, r.Outcome == flight.NotDone.String())
	if verdictOn(err) == reportTaken {
		return f, "", err
	}
	// Before this store, the death of the process loses the report, and the recovery policy decides. After it, the next
	// client with this spool sends the report.
	name, spoolErr := c.spool.keep(&spooled{Deployment: c.deployment, Key: key.String(), Report: ask.body})
	if spoolErr != nil {
		c.opts.logger.Error("flightd: a report could not be stored on disk", "key", key.String(), "error", spoolErr)
	}
	if verdictOn(err) == reportLater {
		if spoolErr == nil { // a report on disk may be left to the next client
			var stop func()
			ctx, stop = c.untilKilled(ctx)
			defer stop()
		}
		f, err = c.bring(ctx, ask)
	}
	if verdictOn(err) == reportTaken {
		c.spool.drop(name, key.String())
		return f, "", err
	}
	var where string
	if verdictOn(err) == reportRejected {
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

// sendFirstReport sends a report once. A Close whose ctx ends interrupts it, except for a report of not_done: Close
// also closes the session, and without the report the flight would be in doubt. A report that begins after that moment
// is sent in full, too.
func (c *Client) firstReport(ctx context.Context, ask request, notSent bool) (*Flight, error) {
	ask.tries, ask.once, ask.timeout = 1, true, min(firstReport, c.opts.reportWait)
	if c.runner.Life.Err() == nil && !notSent {
		var stop func()
		ctx, stop = c.untilKilled(ctx)
		defer stop()
	}
	return c.bring(ctx, ask)
}

// sendReport sends a report to a server.
func (c *Client) bring(ctx context.Context, ask request) (*Flight, error) {
	resp, err := c.ask(ctx, ask)
	return flightOf(ask.key.FlightID(), resp, err)
}

// untilForcedClose returns ctx, which also ends when the ctx of Close ends.
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

// reportResult is the result of sending a report.
type reportResult int

const (
	reportTaken    reportResult = iota // the ledger has it, as the outcome or as evidence
	reportLater                        // send it again: no server has answered, or has accepted this caller
	reportRejected                     // no server will ever store it
)

// reportResultOf reads the error of a report. Only an answer that names this flight, with a code that the report route
// returns, is final. After any other answer the report is sent again.
func verdictOn(err error) reportResult {
	p := problemOf(err)
	switch {
	case err == nil:
		return reportTaken
	case p == nil || about(p) == "": // problemFrom rejects answers about other flights
		return reportLater
	case p.Code == wire.Fenced:
		return reportTaken
	case slices.Contains([]Code{wire.KeyInvalid, wire.InputInvalid, wire.PayloadTooLarge, wire.NotFound}, p.Code):
		return reportRejected
	}
	return reportLater
}

// IsQuarantined reports whether the server has rejected the report of an *Unrecorded for good. Its file is kept for a
// person.
func PutAside(u *Unrecorded) bool { return verdictOn(u.Cause) == reportRejected }

// WaitForSpool waits until each report that was in the spool at Connect has been sent once, or ctx ends. Flights that
// are read after it include these outcomes.
func (c *Client) AwaitSpool(ctx context.Context) {
	select {
	case <-c.drained:
	case <-ctx.Done():
	}
}

// startSpoolLoop sends the reports in the spool, once now and then periodically, on a goroutine that Client.loops
// counts. Close waits for the first round, so that short-lived commands empty the spool, too.
func (c *Client) startDrain() {
	c.drained, c.rounds = make(chan struct{}), make(chan struct{})
	if !c.runner.Work.Enter() {
		close(c.rounds)
		return
	}
	first := c.spool.names()
	c.loops.Go(func() {
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

// sendUnspooled sends the reports that are in memory only once more, before Close loses them.
func (c *Client) lastRound(ctx context.Context) {
	select {
	case <-c.rounds: // closed soon after Close has begun
		c.drain(ctx, c.spool.inMemory())
	case <-ctx.Done():
	}
}

// spoolInterval is the pause between two reads of the spool.
const drainEvery = 2 * time.Second

// sendSpooled sends each named report once. It returns false when a report has to be sent again. Without an answer of a
// server it stops at once; after any other failure it goes on with the next report.
func (c *Client) drain(ctx context.Context, names []string) bool {
	went := true
	for _, name := range names {
		entry, ok := c.spool.claim(name)
		if !ok {
			continue
		}
		if entry.Deployment != c.deployment {
			c.spool.release(name) // a client of that deployment sends it
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
		case reportTaken:
			c.opts.logger.Info("flightd: a spooled outcome is recorded", "key", entry.Key)
			c.spool.drop(name, entry.Key)
		case reportRejected:
			c.spool.putAside(name, entry.Key, err)
		case reportLater:
			c.spool.release(name)
			if CodeOf(err) == "" {
				return false
			}
			went = false
		}
	}
	return went
}
