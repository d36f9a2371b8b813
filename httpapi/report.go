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

// report serves POST /v1/flights/{id}/report.
func (cr *callRoutes) report(w http.ResponseWriter, r *http.Request) error {
	req, bad := reportRequest(w, r)
	if bad != nil {
		return bad
	}
	if req.Key.IsZero() {
		if err := cr.lateReport(w, r, &req); err != nil {
			return err
		}
		if err := cr.mayReport(r, req.ID); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reportTimeout)
	defer cancel()
	f, err := cr.remote.Report(ctx, req)
	switch {
	case errors.As(err, new(*effect.Fenced)) && f != nil && f.State == flight.StateExpired:
		return cr.expiredReport(w, &req, f)
	case err != nil && req.Key.IsZero():
		return about(cr.keyOf(r, req.ID), err)
	case err != nil:
		return about(req.Key, err)
	}
	if rec := f.Receipt; rec == nil || rec.Body.Digest != req.Body.Digest || rec.Body.StoredSize != len(req.Body.Data) {
		return cr.writeFlight(w, r, f)
	}
	shown := wire.FlightOf(f, req.Body.Data, true) // the stored body equals this report's, so it need not be read from the ledger
	shown.Source = effect.SourceExecuted.String()
	setFlightHeaders(w.Header(), f)
	return writeJSON(w, r, http.StatusOK, shown)
}

// expiredReport rejects a report for a flight whose retention has ended. A tombstone stores no evidence, so the
// report is only logged. The answer has the stored outcome, for the caller to compare.
func (cr *callRoutes) expiredReport(w http.ResponseWriter, req *remote.ReportRequest, f *flight.Flight) error {
	p := newKeyProblem(wire.Fenced, req.Key, defaultRetryAfter)
	p.FlightID, p.State, p.Outcome = f.ID.String(), f.State.String(), f.FinalState.String()
	if f.Receipt != nil && !f.Receipt.Body.Digest.IsZero() {
		p.Digest = f.Receipt.Body.Digest.String()
	}
	p.Detail = "the flight ended as " + p.Outcome + " and its retention is over: this report changed nothing and is stored only in the server's log"
	p.Hint = "do not act and do not report again; if your outcome differs from the stored one, check the provider for a second effect"
	cr.logExpiredReport(w, req, f)
	return problemError{problem: p}
}

func (cr *callRoutes) logExpiredReport(w http.ResponseWriter, req *remote.ReportRequest, f *flight.Flight) {
	cr.log.Warn("httpapi: report after the end of retention, not stored", "flight_id", f.ID.String(), "ended", f.FinalState.String(),
		"outcome", req.Outcome.String(), "external_id", req.ExternalID, "digest", req.Body.Digest.String(), "error", req.Error, "request_id", w.Header().Get(wire.HeaderRequestID))
}

// lateReport rejects a report without a key for a tombstone, if the token belongs to one namespace: the sender sees a
// tombstone only by its key.
func (cr *callRoutes) lateReport(w http.ResponseWriter, r *http.Request, req *remote.ReportRequest) error {
	if boundCaller(r) == nil {
		return nil
	}
	f := cr.provedTombstone(req.ID, req.FencingToken)
	if f == nil {
		return nil
	}
	cr.logExpiredReport(w, req, f)
	return tombstoneNeedsKey()
}

func reportRequest(w http.ResponseWriter, r *http.Request) (req remote.ReportRequest, bad *wire.Invalid) {
	if req.ID, bad = flightID(r); bad != nil {
		return req, bad
	}
	report, bad := receive(readBody, w, r, wire.MaxReportBody, wire.Decode[wire.ReportRequest]) // taken by its fencing token, also if its sender's token was revoked meanwhile
	if bad != nil {
		return req, bad
	}
	if req.FencingToken = report.FencingToken; req.FencingToken == "" {
		return req, wire.BadField("/fencing_token", "missing; send the fencing_token from the answer to the open")
	}
	if report.Key != "" {
		if req.Key, bad = namedKey(r, report.Key, req.ID); bad != nil {
			return req, bad
		}
	}
	if req.Outcome, bad = wire.ParseOutcome(report.Outcome); bad != nil {
		return req, bad
	}
	if req.Body, bad = report.Blob(); bad != nil {
		return req, bad
	}
	req.ExternalID, req.Error, req.RetryAfter = report.ExternalID, auth.Redact(report.Error), time.Duration(min(max(report.RetryAfterMS, 0), effect.MaxPause.Milliseconds()))*time.Millisecond
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
