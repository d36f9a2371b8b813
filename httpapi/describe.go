package httpapi

import (
	"net/http"
	"slices"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/openapi"
	"github.com/flightd/flightd/internal/wire"
)

// operations describes every route, in the order in which the document shows them. A route that is registered and not
// described here, or described and not registered, fails a test.
func operations() []openapi.Operation {
	return slices.Concat(
		callerOperations(),
		sessionOperations(),
		lookOperations(),
		operatorOperations(),
		serverOperations(),
	)
}

// The chapters of the document.
const (
	tagCaller   = "caller-run"
	tagSessions = "sessions"
	tagFlights  = "flights"
	tagOperator = "operator"
	tagServer   = "server"
)

func chapters() []openapi.Tag {
	return []openapi.Tag{
		{Name: tagCaller, About: "The caller performs the effect itself: it opens, acts only when told `proceed`, and reports."},
		{Name: tagSessions, About: "The right to act lives as long as its session is renewed."},
		{Name: tagFlights, About: "What happened: flights, receipts and histories."},
		{Name: tagOperator, About: "What people decide. Each needs If-Match with the ETag that the decision was made on, and a reason."},
		{Name: tagServer, About: "Health, version, and this document."},
	}
}

// Codes that come together.
var (
	anyRoute = []wire.Code{wire.Forbidden}
	anyRead  = append([]wire.Code{wire.Internal, wire.NoLeader, wire.Draining}, anyRoute...)
	anyBody  = append([]wire.Code{wire.InputInvalid, wire.PayloadTooLarge}, anyRead...)
)

func codes(common []wire.Code, more ...wire.Code) []wire.Code {
	return append(slices.Clone(common), more...)
}

func asJSON(v any) []openapi.Content { return []openapi.Content{{Type: wire.TypeJSON, Of: v}} }

func text(kind string) openapi.Content { return openapi.Content{Type: kind} }

var (
	ofFlight = []string{wire.HeaderFlightID, wire.HeaderState, "ETag"}
	ofEnd    = []string{wire.HeaderExpires}
)

// aFlight is the answer that is a flight.
func aFlight(about string) openapi.Answer {
	return openapi.Answer{Status: http.StatusOK, About: about, Headers: ofFlight, Maybe: ofEnd, Content: asJSON(wire.Flight{})}
}

// openAnswers are those to an open and to a verdict.
func openAnswers() []openapi.Answer {
	of := []string{wire.HeaderFlightID, wire.HeaderState, wire.HeaderReplayed}
	return []openapi.Answer{
		{Status: http.StatusCreated, About: "`proceed`: act, within the trust, and report", Headers: of, Content: asJSON(wire.OpenAnswer{})},
		{Status: http.StatusOK, About: "`replay`: it happened already; or `verify`: ask the provider first", Headers: of,
			Maybe: []string{"ETag", wire.HeaderExpires}, Content: asJSON(wire.OpenAnswer{})},
	}
}

func callerOperations() []openapi.Operation {
	return []openapi.Operation{{
		Pattern: "POST /v1/flights:open", ID: "openFlight", Tag: tagCaller, Summary: "Ask for the right to act",
		About: "Namespace, action and id are the key, and name one business intent. Whoever may act is told `proceed`, and nobody else is until the attempt is over; " +
			"whoever comes later waits for it up to `wait_ms`, and gets its receipt. Trust is counted from the moment the request was sent: when `trust_ms` are over, the effect must not be started.",
		Parameters: []string{wire.HeaderNamespace, effect.HeaderIdempotencyKey}, Request: wire.OpenRequest{},
		Example: `{"action":"charge","id":"order-42","input":{"amount":1999,"currency":"EUR"},"nonce":"7b1f0c9a52d94e0f","owner":"web-1:4711","recovery":"hold","wait_ms":20000}`,
		Answers: openAnswers(),
		Problems: codes(anyBody, wire.KeyRequired, wire.KeyInvalid, wire.InFlight, wire.InDoubt, wire.ApprovalPending, wire.Fenced,
			wire.LeaseLost, wire.Expired, wire.Conflict, wire.FlightFailed, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/flights/{id}/report", ID: "reportFlight", Tag: tagCaller, Summary: "Say how the attempt ended",
		About:    "A report may be sent again until it is answered. One that comes after a newer attempt was opened, or after the flight has ended, is kept as evidence and overwrites nothing.",
		Request:  wire.ReportRequest{},
		Example:  `{"fencing_token":"…","outcome":"succeeded","external_id":"ch_1","body":{"id":"ch_1","paid":true}}`,
		Answers:  []openapi.Answer{aFlight("it is in the ledger")},
		Problems: codes(anyBody, wire.NotFound, wire.Fenced, wire.ReportPending, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/flights/{id}/verdict", ID: "bringVerdict", Tag: tagCaller, Summary: "Say what the provider knows of the effect",
		About:   "The answer to `verify`. It is answered like an open: with the receipt when the effect happened, with leave to act when it did not.",
		Request: wire.VerdictRequest{},
		Example: `{"probe":"…","result":"happened","external_id":"ch_1","body":{"id":"ch_1"}}`,
		Answers: openAnswers(),
		Problems: codes(anyBody, wire.NotFound, wire.InFlight, wire.InDoubt, wire.ApprovalPending, wire.Fenced, wire.LeaseLost,
			wire.Expired, wire.Conflict, wire.FlightFailed, wire.LeaseUnavailable),
	}}
}

func sessionOperations() []openapi.Operation {
	alive := func(status int, about string) []openapi.Answer {
		return []openapi.Answer{{Status: status, About: about, Content: asJSON(wire.SessionAnswer{})}}
	}
	return []openapi.Operation{{
		Pattern: "POST /v1/sessions", ID: "openSession", Tag: tagSessions, Summary: "Make a session",
		About:   "One session serves any number of flights. Renew it every `renew_every_ms`, and close it in the end.",
		Request: wire.SessionRequest{}, Example: `{"ttl_ms":15000,"owner":"web-1:4711"}`,
		Answers: alive(http.StatusCreated, "it lives"), Problems: codes(anyBody, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/sessions/{id}/renew", ID: "renewSession", Tag: tagSessions, Summary: "Keep a session alive",
		About:   "Trust is counted anew from the moment the request was sent.",
		Request: wire.RenewRequest{}, Example: `{"nonces":["7b1f0c9a52d94e0f"],"seen":"106.0"}`,
		Answers: alive(http.StatusOK, "it lives on"), Problems: codes(anyBody, wire.LeaseLost, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/sessions/{id}/close", ID: "closeSession", Tag: tagSessions, Summary: "End a session",
		About:    "Attempts that are still open under it are lost. The body is empty, or `{}`. Closing a session that is gone is no error.",
		Answers:  []openapi.Answer{{Status: http.StatusOK, About: "it is over", Content: asJSON(struct{}{})}},
		Problems: codes(anyBody, wire.LeaseUnavailable),
	}}
}
