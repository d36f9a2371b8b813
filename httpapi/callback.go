package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// callbackRoutes serve callers that hand an attempt over to its callback, and the providers that call back.
type callbackRoutes struct {
	*callRoutes
	callbacks Callbacks
}

// suspension hands an attempt over.
type suspension struct {
	flightPath
	wire.SuspendRequest
}

func (cr *callbackRoutes) routes() []declaration {
	return []declaration{
		Endpoint[suspension, wire.Flight]{Pattern: "POST /v1/flights/{id}/suspend",
			Access: with(auth.Submit | auth.Work), Body: wire.MaxSmallBody, Serve: cr.suspend},
		route{pattern: "POST /v1/callbacks/{token}", serve: cr.callback, access: anyone, query: true},
	}
}

// suspend hands an attempt over to its callback.
func (cr *callbackRoutes) suspend(q *Request, in *suspension) (*wire.Flight, error) {
	req, bad := cr.suspendRequest(q, in)
	switch {
	case bad != nil:
		return nil, bad
	case cr.publicURL == "":
		return nil, remote.NoCallbacksError()
	}
	if req.Key.IsZero() {
		if err := cr.mayReport(q.Request, req.ID); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.Context()), reportTimeout)
	defer cancel()
	f, err := cr.callbacks.Suspend(ctx, req)
	if err != nil {
		if q.key.IsZero() {
			q.key = cr.keyOf(q.Request, req.ID)
		}
		return nil, err
	}
	return cr.answer(q, f)
}

func (cr *callbackRoutes) suspendRequest(q *Request, in *suspension) (req remote.SuspendRequest, bad *wire.Invalid) {
	if req.ID, req.FencingToken = in.Flight, in.FencingToken; req.FencingToken == "" {
		return req, wire.BadField("/fencing_token", "missing; send the fencing_token from the answer to the open")
	}
	if in.Key != "" {
		if req.Key, bad = namedKey(q.Request, in.Key, req.ID); bad != nil {
			return req, bad
		}
	}
	q.key = req.Key
	req.Until, bad = in.Until(cr.ledger.Now())
	return req, bad
}

// callback serves POST /v1/callbacks/{token}. The answer says nothing about the flight: its reader is a provider.
func (cr *callbackRoutes) callback(w http.ResponseWriter, r *http.Request) error {
	header := cr.ledger.Header()
	token, ok := flight.UnsealCallback(r.PathValue("token"), header.Secret)
	if !ok { // before the body is read: it may be long, and its sender is nobody that flightd knows
		return noCallback()
	}
	switch f, err := cr.flightOf(r, token.ID, flight.Key{}); {
	case err == nil && f == nil && header.Reconciling: // the restore has lost the attempt: its key may be opened or imported yet
		return &effect.Unavailable{Code: string(wire.Reconciling), Cause: errors.New("the callback was not taken; send it again")}
	case err == nil && f == nil:
		return noCallback()
	case err == nil && f.Key.IsZero() && (r.ContentLength < 0 || r.ContentLength > bodyPace): // a tombstone stores no evidence
		return &effect.Fenced{}
	}
	req, bad := callbackRequest(w, r)
	if bad != nil {
		return bad
	}
	req.Token = token
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reportTimeout)
	defer cancel()
	f, err := cr.callbacks.Callback(ctx, req)
	var unavailable *effect.Unavailable
	switch {
	case errors.As(err, new(*effect.Missing)):
		return noCallback()
	case errors.As(err, new(*effect.Fenced)):
		if f != nil && f.State == flight.StateExpired {
			cr.logExpiredReport(w.Header(), &remote.ReportRequest{Outcome: req.Outcome, ExternalID: req.ExternalID, Body: req.Body, Error: req.Error}, f)
		}
		return &effect.Fenced{}
	case errors.As(err, &unavailable):
		return &effect.Unavailable{Code: unavailable.Code, Cause: errors.New("the callback was not taken; send it again")}
	case err != nil:
		return err
	}
	return writeJSON(w, r, http.StatusOK, &wire.CallbackAnswer{Outcome: req.Outcome.String()})
}

// noCallback is the same for every token that is not, or no longer, the callback token of an attempt.
func noCallback() error {
	return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "no attempt has this callback URL"},
		Hint: "call the URL that flightd gave for the job, unchanged"}
}

// callbackRequest reads a callback. With the parameter outcome the body is the provider's own, of any type, and becomes the
// receipt. Without it the body says the outcome. No outcome is guessed: a notice of failure must not become a success.
func callbackRequest(w http.ResponseWriter, r *http.Request) (req remote.CallbackRequest, bad *wire.Invalid) {
	parameters, bad := queryParameters(r)
	if bad != nil {
		return req, bad
	}
	for name, values := range parameters {
		switch {
		case name != "outcome" && name != "external_id":
			return req, wire.BadParameter(name, "unknown parameter; allowed: outcome, external_id")
		case len(values) > 1:
			return req, wire.BadParameter(name, "duplicate parameter")
		}
	}
	var c wire.CallbackRequest
	if len(parameters) > 0 {
		c.Outcome = parameters.Get("outcome")
		if c.Body, bad = hashBody(w, r, wire.MaxReportBody); bad != nil {
			return req, bad
		}
		c.ExternalID, c.ContentType = parameters.Get("external_id"), r.Header.Get("Content-Type")
		if r.Header.Get("Content-Encoding") != "" { // the bytes are stored as they came, and are not what their type promises
			c.ContentType = "application/octet-stream"
		}
	} else {
		if answer, ok := w.(*answerWriter); ok {
			answer.share.part = answer.share.memory.callbacks
		}
		if c, bad = receive(readBody, w, r, wire.MaxReportBody, wire.Decode[wire.CallbackRequest]); bad != nil {
			bad.Hint = "send {\"outcome\":\"succeeded\",\"body\":…}, or any body with ?outcome=succeeded in the URL"
			return req, bad
		}
	}
	if req.Outcome, bad = wire.ParseOutcome(c.Outcome); bad != nil {
		return req, bad
	}
	if req.Body, bad = c.Blob(); bad != nil {
		return req, bad
	}
	req.ExternalID, req.Error = c.ExternalID, auth.Redact(c.Error)
	return req, nil
}
