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
		{Name: tagSessions, About: "An attempt is held by a session. The session lives as long as it is renewed; when it has ended, other callers may act on its keys. " +
			"A caller that opens one flight now and then needs no session of its own: an open without one makes a session that ends with the report."},
		{Name: tagFlights, About: "What happened: flights, receipts and histories."},
		{Name: tagOperator, About: "What people decide. Each needs If-Match with the ETag that the decision was made on, and a reason."},
		{Name: tagServer, About: "Health, version, and this document."},
	}
}

// Codes that come together.
var (
	anyRoute = []wire.Code{wire.Forbidden}
	ownRoute = append([]wire.Code{wire.InputInvalid, wire.WrongDeployment}, anyRoute...)
	anyRead  = append([]wire.Code{wire.Internal, wire.NoLeader, wire.Draining}, ownRoute...)
	anyBody  = append([]wire.Code{wire.PayloadTooLarge, wire.Incomplete}, anyRead...)
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
		{Status: http.StatusCreated, About: "`proceed`: start the effect within the trust, and report", Headers: of, Content: asJSON(wire.OpenAnswer{})},
		{Status: http.StatusOK, About: "`replay`: it happened already; or `verify`: ask the provider first", Headers: of,
			Maybe: []string{"ETag", wire.HeaderExpires}, Content: asJSON(wire.OpenAnswer{})},
	}
}

func callerOperations() []openapi.Operation {
	return []openapi.Operation{{
		Pattern: "POST /v1/flights:open", ID: "openFlight", Tag: tagCaller, Summary: "Ask for permission to start the effect",
		About: "Namespace, action and id are the key, and name one business intent. One caller at a time is answered `proceed`, and no other caller is until that attempt has ended; " +
			"callers that come later wait for it up to `wait_ms`, and get its receipt.\n\n" +
			"Draw a new `nonce` for each open that you want, and set `not_after`. Key and nonce identify the open: if the answer is lost, send the same request again, to any node, with the same nonce and the same `not_after`. " +
			"While the attempt is open, every repeat gets the same answer. A nonce whose attempt has ended opens nothing again.\n\n" +
			"Renew the `session` that the answer names, which may be another one than you sent. Its trust is counted from the moment when the request was sent: when `trust_ms` are over, do not start the effect. " +
			"The same holds for `resend_ms`, where the answer has it: an earlier attempt may have acted, and the provider may forget the idempotency key.\n\n" +
			"If you give up, make sure that nothing is left open under your nonce. The answer is final, and nothing is left to do, if it is `replay`, `idempotency_conflict`, `flight_failed`, `expired` or `open_expired`; " +
			"if it is `in_doubt` with `proposed` true; or if it is `in_doubt` or `idempotency_in_flight` with `proposed` false and you sent only one request with this nonce. " +
			"After a time-out, a broken connection or any other answer, repeat the open until its answer is final, or send an abandon until it is answered 200. A request that is rejected with 400 has opened nothing.",
		Parameters: []string{wire.HeaderNamespace, effect.HeaderIdempotencyKey}, Request: wire.OpenRequest{},
		Example: `{"action":"charge","id":"order-42","input":{"amount":1999,"currency":"EUR"},"nonce":"7b1f0c9a52d94e0f","not_after":1769860830000,"owner":"web-1:4711","recovery":"hold","wait_ms":20000}`,
		Answers: openAnswers(),
		Problems: codes(anyBody, wire.KeyRequired, wire.KeyInvalid, wire.InFlight, wire.InDoubt, wire.ApprovalPending, wire.Fenced, wire.OpenExpired,
			wire.LeaseLost, wire.Expired, wire.Conflict, wire.FlightFailed, wire.TooManyOpen, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/flights:abandon", ID: "abandonOpen", Tag: tagCaller, Summary: "Give an open up",
		About: "Say that nothing was sent under this nonce, and that nothing ever will be. Never abandon an open whose effect may have started: report `unknown` instead.\n\n" +
			"An attempt that the nonce has opened ends, and the next caller may act. Where nothing was opened, the nonce opens nothing if its open arrives later. " +
			"Repeat the request, to any node, until it is answered 200.",
		Parameters: []string{wire.HeaderNamespace}, Request: wire.AbandonRequest{},
		Example:  `{"action":"charge","id":"order-42","nonce":"7b1f0c9a52d94e0f","not_after":1769860830000,"reason":"the caller was cancelled"}`,
		Answers:  []openapi.Answer{{Status: http.StatusOK, About: "nothing is open under the nonce, and nothing will be", Content: asJSON(struct{}{})}},
		Problems: codes(anyBody, wire.KeyRequired, wire.KeyInvalid, wire.Fenced, wire.OpenExpired, wire.TooManyOpen),
	}, {
		Pattern: "POST /v1/flights/{id}/report", ID: "reportFlight", Tag: tagCaller, Summary: "Say how the attempt ended",
		About: "Repeat the report, to any node, until it is answered. Send `key`: without it, a node that does not know the flight yet answers `not_found`. " +
			"A report that comes after a newer attempt was opened, or after the flight has ended, is answered `fenced`; it is kept as evidence and overwrites nothing.\n\n" +
			"A report is refused for good only by a problem that names this flight and has the code `idempotency_key_invalid`, `input_invalid`, `not_found` or `payload_too_large`; and `fenced` has taken it. After any other answer, send it again.",
		Request:  wire.ReportRequest{},
		Example:  `{"fencing_token":"…","key":"default/charge/order-42","outcome":"succeeded","external_id":"ch_1","body":{"id":"ch_1","paid":true}}`,
		Answers:  []openapi.Answer{aFlight("it is in the ledger")},
		Problems: codes(anyBody, wire.KeyInvalid, wire.NotFound, wire.Fenced, wire.ReportPending, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/flights/{id}/verdict", ID: "bringVerdict", Tag: tagCaller, Summary: "Say what the provider knows of the effect",
		About: "The answer to `verify`. It is answered like an open: with the receipt when the effect happened, with permission to act when it did not. " +
			"Draw a new `nonce`: the nonce of the open that was answered `verify` opens nothing.",
		Request: wire.VerdictRequest{},
		Example: `{"probe":"…","result":"happened","external_id":"ch_1","body":{"id":"ch_1"}}`,
		Answers: openAnswers(),
		Problems: codes(anyBody, wire.NotFound, wire.InFlight, wire.InDoubt, wire.ApprovalPending, wire.Fenced, wire.OpenExpired, wire.LeaseLost,
			wire.Expired, wire.Conflict, wire.FlightFailed, wire.TooManyOpen, wire.LeaseUnavailable),
	}}
}

func sessionOperations() []openapi.Operation {
	alive := func(status int, about string) []openapi.Answer {
		return []openapi.Answer{{Status: status, About: about, Content: asJSON(wire.SessionAnswer{})}}
	}
	return []openapi.Operation{{
		Pattern: "POST /v1/sessions", ID: "openSession", Tag: tagSessions, Summary: "Make a session",
		About:   "One session serves any number of flights. Renew it every `renew_every_ms`, and close it when you are done. Make one session per process: a forked child must not use its parent's.",
		Request: wire.SessionRequest{}, Example: `{"ttl_ms":15000,"owner":"web-1:4711"}`,
		Answers: alive(http.StatusCreated, "it lives"), Problems: codes(anyBody, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/sessions/{id}/renew", ID: "renewSession", Tag: tagSessions, Summary: "Keep a session alive",
		About: "Send a renewal every `renew_every_ms`, to any node. Trust is counted anew from the moment when the request was sent. If no renewal is answered in time, start no effect under this session.\n\n" +
			"The answer tells which attempts are open under the session: `open_digest` always, and the list `open` where you sent another digest. A renewal changes none of these attempts. " +
			"For each attempt listed: do nothing if you await its answer, hold it, or still have its report to send. Abandon it if you gave its nonce up before its effect started. " +
			"In every other case (the effect was started, its report is missing here, or you do not know the nonce) send its report again, or report `unknown`.\n\n" +
			"A list has at most 256 attempts. If `more` is true, renew again with the same digest and the last `flight_id` as `after`. Ignore an answer whose `session` is not the one that you renewed.",
		Request: wire.RenewRequest{}, Example: `{"open_digest":"49ec49fe2ad166ef0b18ff7d94291ca8"}`,
		Answers: alive(http.StatusOK, "it lives on"), Problems: codes(anyBody, wire.LeaseLost, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/sessions/{id}/close", ID: "closeSession", Tag: tagSessions, Summary: "End a session",
		About: "The body is empty, or `{}`. Closing a session that is gone is no error. A session with open attempts is not closed: report or abandon them first. " +
			"A session that nobody renews ends by itself, and its open attempts are lost then.",
		Answers:  []openapi.Answer{{Status: http.StatusOK, About: "it is over", Content: asJSON(struct{}{})}},
		Problems: codes(anyBody, wire.SessionInUse, wire.LeaseUnavailable),
	}}
}
