package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// reportTimeout limits a report. A report is not canceled with its request: once the outcome has arrived, it is stored
// even if the caller disconnects.
const reportTimeout = 30 * time.Second

// report stores the outcome of an attempt.
func (cr *callRoutes) report(q *Request, in *reportOf) (*wire.Flight, error) {
	req, bad := reportRequest(q, in)
	if bad != nil {
		return nil, bad
	}
	if req.Key.IsZero() {
		if err := cr.lateReport(q, &req); err != nil {
			return nil, err
		}
		if err := cr.mayReport(q.Request, req.ID); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.Context()), reportTimeout)
	defer cancel()
	f, err := cr.remote.Report(ctx, req)
	switch {
	case errors.As(err, new(*effect.Fenced)) && f != nil && f.State == flight.StateExpired:
		return nil, cr.expiredReport(q, &req, f)
	case err != nil:
		if q.key.IsZero() {
			q.key = cr.keyOf(q.Request, req.ID)
		}
		return nil, err
	}
	if rec := f.Receipt; rec == nil || rec.Body.Digest != req.Body.Digest || rec.Body.StoredSize != len(req.Body.Data) {
		return cr.answer(q, f)
	}
	shown := wire.FlightOf(f, req.Body.Data, true) // the stored body equals this report's, so it need not be read from the ledger
	shown.Source = effect.SourceExecuted.String()
	q.describe(f)
	return shown, nil
}

// expiredReport rejects a report for a flight whose retention has ended. A tombstone stores no evidence, so the
// report is only logged. The answer has the stored outcome, for the caller to compare.
func (cr *callRoutes) expiredReport(q *Request, req *remote.ReportRequest, f *flight.Flight) error {
	p := newKeyProblem(wire.Fenced, req.Key, defaultRetryAfter)
	p.FlightID, p.State, p.Outcome = f.ID.String(), f.State.String(), f.FinalState.String()
	if f.Receipt != nil && !f.Receipt.Body.Digest.IsZero() {
		p.Digest = f.Receipt.Body.Digest.String()
	}
	p.Detail = "the flight ended as " + p.Outcome + " and its retention is over: this report changed nothing and is stored only in the server's log"
	p.Hint = "do not act and do not report again; if your outcome differs from the stored one, check the provider for a second effect"
	cr.logExpiredReport(q.header, req, f)
	return problemError{problem: p}
}

func (cr *callRoutes) logExpiredReport(answer http.Header, req *remote.ReportRequest, f *flight.Flight) {
	cr.log.Warn("httpapi: report after the end of retention, not stored", "flight_id", f.ID.String(), "ended", f.FinalState.String(),
		"outcome", req.Outcome.String(), "external_id", req.ExternalID, "digest", req.Body.Digest.String(), "error", req.Error, "request_id", answer.Get(wire.HeaderRequestID))
}

// lateReport rejects a report without a key for a tombstone, if the token belongs to one namespace: the sender sees a
// tombstone only by its key.
func (cr *callRoutes) lateReport(q *Request, req *remote.ReportRequest) error {
	if boundCaller(q.Request) == nil {
		return nil
	}
	f := cr.provedTombstone(req.ID, req.FencingToken)
	if f == nil {
		return nil
	}
	cr.logExpiredReport(q.header, req, f)
	return tombstoneNeedsKey()
}

func reportRequest(q *Request, in *reportOf) (req remote.ReportRequest, bad *wire.Invalid) {
	if req.ID, req.FencingToken = in.Flight, in.FencingToken; req.FencingToken == "" {
		return req, wire.BadField("/fencing_token", "missing; send the fencing_token from the answer to the open")
	}
	if in.Key != "" {
		if req.Key, bad = namedKey(q.Request, in.Key, req.ID); bad != nil {
			return req, bad
		}
	}
	if req.Outcome, bad = wire.ParseOutcome(in.Outcome); bad != nil {
		return req, bad
	}
	if req.Body, bad = in.Blob(); bad != nil {
		return req, bad
	}
	q.key = req.Key
	req.ExternalID, req.Error, req.RetryAfter = in.ExternalID, auth.Redact(in.Error), time.Duration(min(max(in.RetryAfterMS, 0), effect.MaxPause.Milliseconds()))*time.Millisecond
	return req, nil
}

// mayReport rejects a report to a flight of another namespace that it names by the id only, as if there were no such flight.
func (cr *callRoutes) mayReport(r *http.Request, id flight.ID) error {
	if boundCaller(r) == nil {
		return nil
	}
	f, err := cr.flightOf(r, id, flight.Key{})
	if err == nil && f == nil {
		err = &effect.Missing{ID: id}
	}
	return err
}
