package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/internal/runner"
	"github.com/flightd/flightd/internal/strictjson"
)

// firstReportTimeout bounds the first try of a report. After it the report is written to disk.
const firstReportTimeout = 2 * time.Second

// reporter sends the outcomes of attempts until the ledger has them, and keeps them in the spool meanwhile.
type reporter struct {
	server         *requester
	runner         *runner.Runner // its contexts say how far Close is
	spool          *spool
	firstRoundDone chan struct{} // closed when each report that was spooled at Connect has been sent once
	roundsDone     chan struct{} // closed when the spool loop has ended
}

// Record reports the outcome of an attempt. If the first try fails, the report is stored on disk until a server has
// stored it. After WithReportTimeout the error is *Unrecorded; this client, or a later one with the same spool, goes on
// sending the report. An error that wraps *Fenced means that the report came too late and is stored as evidence.
func (c *Client) Record(key flight.Key, r ReportRequest) (*Flight, error) {
	f, _, err := c.recordReport(context.Background(), key, r)
	return f, err
}

// Suspend hands an attempt over to its callback: its caller has started the effect and leaves. An error that wraps *Fenced means
// that the attempt had ended. After an error without an answer the attempt may or may not wait; a repeat is safe.
func (re *requester) Suspend(ctx context.Context, key flight.Key, r SuspendRequest) (*Flight, error) {
	r.Key = key.String()
	return decode[Flight](re.ask(ctx, request{
		method: http.MethodPost, path: flightPath(key.FlightID(), "/suspend"), body: strictjson.Append(nil, &r), key: key,
		timeout: reportTryTimeout, retryTimeout: re.opts.times.report,
	}))
}

// recordReport is Record with the values of the context of the call. With
// *Unrecorded it also returns the report's name in the spool.
func (rep *reporter) recordReport(values context.Context, key flight.Key, r ReportRequest) (f *Flight, name string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(values), rep.server.opts.times.report)
	defer cancel()
	r.Key = key.String()
	ask := rep.server.newReportRequest(key, strictjson.Append(nil, &r))
	f, err = rep.sendFirstReport(ctx, ask, r.Outcome)
	if reportResultOf(err) == reportTaken {
		return f, "", err
	}
	// Before this store, the death of the process loses the report, and the recovery policy decides. After it, the next
	// client with this spool sends the report.
	name, spoolErr := rep.spool.store(&spooledReport{Deployment: rep.server.deployment, Key: key.String(), Report: ask.body})
	if spoolErr != nil {
		rep.server.opts.logger.Error("flightd: a report could not be stored on disk", "key", key.String(), "error", spoolErr)
	}
	if reportResultOf(err) == reportLater {
		if spoolErr == nil { // a report on disk may be left to the next client
			var stop func()
			ctx, stop = rep.untilForcedClose(ctx)
			defer stop()
		}
		f, err = decode[Flight](rep.server.ask(ctx, ask))
	}
	if reportResultOf(err) == reportTaken {
		rep.spool.remove(name, key.String())
		return f, "", err
	}
	var place string
	if reportResultOf(err) == reportRejected {
		place = rep.spool.quarantine(name, key.String(), err)
	} else {
		place = rep.spool.describePlace(name)
		rep.server.opts.logger.Warn("flightd: an outcome is not recorded yet; "+place, "key", key.String(), "error", err)
		rep.spool.release(name)
	}
	outcome, _ := flight.ParseOutcome(r.Outcome)
	result := effect.Result{Key: key, FlightID: key.FlightID(), Outcome: outcome}
	return nil, name, &effect.Unrecorded{Result: result, Cause: errors.Join(err, spoolErr), ReportPlace: place}
}

// sendFirstReport sends a report once. A Close whose ctx ends interrupts it, except for a report of not_done: Close
// also closes the session, and without the report the flight would be in doubt. A report that begins after that moment
// is sent in full, too.
func (rep *reporter) sendFirstReport(ctx context.Context, ask request, outcome string) (*Flight, error) {
	ask.maxTries, ask.noStaleRetry, ask.timeout = 1, true, min(firstReportTimeout, rep.server.opts.times.report)
	if rep.runner.BaseContext.Err() == nil && outcome != flight.OutcomeNotDone.String() {
		var stop func()
		ctx, stop = rep.untilForcedClose(ctx)
		defer stop()
	}
	return decode[Flight](rep.server.ask(ctx, ask))
}

// untilForcedClose returns ctx, which also ends when the ctx of Close ends.
func (rep *reporter) untilForcedClose(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	off := context.AfterFunc(rep.runner.BaseContext, func() { cancel(effect.ErrClosed) })
	return ctx, func() { off(); cancel(nil) }
}

func (re *requester) newReportRequest(key flight.Key, body []byte) request {
	return request{
		method: http.MethodPost, path: flightPath(key.FlightID(), "/report"), line: "report", body: body, key: key,
		timeout: reportTryTimeout, retryTimeout: re.opts.times.report,
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
func reportResultOf(err error) reportResult {
	p := problemOf(err)
	switch {
	case err == nil:
		return reportTaken
	case p == nil || flightIDOf(p) == "":
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
func IsQuarantined(u *Unrecorded) bool { return reportResultOf(u.Cause) == reportRejected }

// WaitForSpool waits until each report that was in the spool at Connect has been sent once, or ctx ends. Flights that
// are read after it include these outcomes.
func (c *Client) WaitForSpool(ctx context.Context) {
	select {
	case <-c.firstRoundDone:
	case <-ctx.Done():
	}
}

// startSpoolLoop sends the reports in the spool, once now and then periodically, on a goroutine that loops
// counts. Close waits for the first round, so that short-lived commands empty the spool, too.
func (rep *reporter) startSpoolLoop(loops *gate.Gate) {
	rep.firstRoundDone, rep.roundsDone = make(chan struct{}), make(chan struct{})
	if !rep.runner.Work.Enter() {
		close(rep.roundsDone)
		return
	}
	first := rep.spool.names()
	loops.Go(func() {
		defer close(rep.roundsDone)
		func() {
			defer rep.runner.Work.Leave()
			defer close(rep.firstRoundDone)
			rep.sendSpooled(rep.runner.BaseContext, first)
		}()
		for pause := spoolInterval; clock.Sleep(rep.runner.DrainContext, pause); {
			names := rep.spool.names()
			if pause = spoolInterval; len(names) > 0 && !rep.sendSpooled(rep.runner.DrainContext, names) {
				pause = 4 * spoolInterval
			}
		}
	})
}

// sendUnspooled sends the reports that are in memory only once more, before Close loses them.
func (rep *reporter) sendUnspooled(ctx context.Context) {
	select {
	case <-rep.roundsDone: // closed soon after Close has begun
		rep.sendSpooled(ctx, rep.spool.unspooledNames())
	case <-ctx.Done():
	}
}

// spoolInterval is the pause between two reads of the spool.
const spoolInterval = 2 * time.Second

// sendSpooled sends each named report once. It returns false when a report has to be sent again. Without an answer of a
// server it stops at once; after any other failure it goes on with the next report.
func (rep *reporter) sendSpooled(ctx context.Context, names []string) bool {
	allDone := true
	for _, name := range names {
		entry, ok := rep.spool.claim(name)
		if !ok {
			continue
		}
		if entry.Deployment != rep.server.deployment {
			rep.spool.release(name) // a client of that deployment sends it
			continue
		}
		key, _ := flight.ParseStoredKey(entry.Key) // claim has read it
		ask := rep.server.newReportRequest(key, entry.Report)
		ask.maxTries = 1
		_, err := rep.server.ask(ctx, ask)
		switch reportResultOf(err) {
		case reportTaken:
			rep.server.opts.logger.Info("flightd: a spooled outcome is recorded", "key", entry.Key)
			rep.spool.remove(name, entry.Key)
		case reportRejected:
			rep.spool.quarantine(name, entry.Key, err)
		case reportLater:
			rep.spool.release(name)
			if CodeOf(err) == "" {
				return false
			}
			allDone = false
		}
	}
	return allDone
}
