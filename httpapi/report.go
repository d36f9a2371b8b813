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
func (a *api) report(w http.ResponseWriter, r *http.Request) {
	req, bad := reportRequest(w, r)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	if req.Key.IsZero() && (a.answeredLate(w, r, &req) || !a.mayReport(w, r, req.ID)) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reportTimeout)
	defer cancel()
	f, err := a.cfg.Remote.Report(ctx, req)
	var fenced *effect.Fenced
	switch {
	case errors.As(err, &fenced) && f != nil && f.State == flight.StateExpired:
		a.writeExpiredReport(w, r, &req, f)
		return
	case err != nil && req.Key.IsZero():
		a.writeError(w, r, a.keyOf(r, req.ID), err)
		return
	case err != nil:
		a.writeError(w, r, req.Key, err)
		return
	}
	if rec := f.Receipt; rec == nil || rec.Body.Digest != req.Body.Digest || rec.Body.StoredSize != len(req.Body.Data) {
		a.writeFlight(w, r, f)
		return
	}
	shown := wire.FlightOf(f, req.Body.Data, true) // the stored body equals this report's, so it need not be read from the ledger
	shown.Source = effect.SourceExecuted.String()
	setFlightHeaders(w.Header(), f)
	writeResponse(w, r, http.StatusOK, typeJSON, shown.AppendJSON)
}

// writeExpiredReport answers a report for a flight whose retention has ended. A tombstone stores no evidence, so the
// report is only logged. The answer has the stored outcome, for the caller to compare.
func (a *api) writeExpiredReport(w http.ResponseWriter, r *http.Request, req *remote.ReportRequest, f *flight.Flight) {
	p := newKeyProblem(wire.Fenced, req.Key, defaultRetryAfter)
	p.FlightID, p.State, p.Outcome = f.ID.String(), f.State.String(), f.FinalState.String()
	if f.Receipt != nil && !f.Receipt.Body.Digest.IsZero() {
		p.Digest = f.Receipt.Body.Digest.String()
	}
	p.Detail = "the flight ended as " + p.Outcome + " and its retention is over: this report changed nothing and is stored only in the server's log"
	p.Hint = "do not act and do not report again; if your outcome differs from the stored one, check the provider for a second effect"
	a.logExpiredReport(w, req, f)
	a.writeAndLogProblem(w, r, p, nil)
}

func (a *api) logExpiredReport(w http.ResponseWriter, req *remote.ReportRequest, f *flight.Flight) {
	a.log.Warn("httpapi: report after the end of retention, not stored", "flight_id", f.ID.String(), "ended", f.FinalState.String(),
		"outcome", req.Outcome.String(), "external_id", req.ExternalID, "digest", req.Body.Digest.String(), "error", req.Error, "request_id", w.Header().Get(wire.HeaderRequestID))
}

// answeredLate answers a report without a key for a tombstone, if the token belongs to one namespace: the sender sees a
// tombstone only by its key. answeredLate returns false for all other reports.
func (a *api) answeredLate(w http.ResponseWriter, r *http.Request, req *remote.ReportRequest) bool {
	if boundCaller(r) == nil {
		return false
	}
	f := a.provedTombstone(req.ID, req.FencingToken)
	if f == nil {
		return false
	}
	a.logExpiredReport(w, req, f)
	a.writeInvalid(w, r, tombstoneNeedsKey())
	return true
}

func reportRequest(w http.ResponseWriter, r *http.Request) (req remote.ReportRequest, bad *wire.Invalid) {
	if req.ID, bad = flightID(r); bad != nil {
		return req, bad
	}
	body, bad := readBody(w, r, wire.MaxReportBody) // a report is taken by its fencing token, also if its sender's token was revoked meanwhile
	if bad != nil {
		return req, bad
	}
	report, bad := wire.DecodeReport(body)
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
	req.ExternalID, req.Error = report.ExternalID, auth.Redact(report.Error)
	return req, nil
}

// mayReport reports whether the sender may report to a flight that it names by the id only. If not, mayReport has
// answered the request as if there were no such flight.
func (a *api) mayReport(w http.ResponseWriter, r *http.Request, id flight.ID) bool {
	if boundCaller(r) == nil {
		return true
	}
	f, err := a.flightOf(r, id, flight.Key{})
	if err == nil && f == nil {
		err = &effect.Missing{ID: id}
	}
	if err != nil {
		a.writeError(w, r, flight.Key{}, err)
	}
	return err == nil
}

// keyOf returns the key of a flight; the zero key if this node does not know it.
func (a *api) keyOf(r *http.Request, id flight.ID) flight.Key {
	if f, err := a.flightOf(r, id, flight.Key{}); err == nil && f != nil {
		return f.Key
	}
	return flight.Key{}
}
