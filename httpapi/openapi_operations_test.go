package httpapi_test

import (
	"net/http"
	"slices"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
)

// operations describes every route, in the order of the document. A test compares it with the registered routes.
func operations() []Operation {
	return slices.Concat(
		callerOperations(),
		callbackOperations(),
		jobOperations(),
		queueOperations(),
		actionOperations(),
		notifyOperations(),
		sagaOperations(),
		sessionOperations(),
		flightOperations(),
		operatorOperations(),
		approvalOperations(),
		adminOperations(),
		restoreOperations(),
		clusterOperations(),
		serverOperations(),
	)
}

// The tags of the document.
const (
	tagCaller   = "caller-run"
	tagJobs     = "jobs"
	tagSagas    = "sagas"
	tagSessions = "sessions"
	tagFlights  = "flights"
	tagOperator = "operator"
	tagAdmin    = "administration"
	tagServer   = "server"
)

func tags() []Tag {
	return []Tag{
		{Name: tagCaller, About: "You perform the effect yourself: you open the flight, act only if the answer is `proceed`, and report the outcome."},
		{Name: tagJobs, About: "Workers perform the effect: you submit jobs, and workers claim those of their actions."},
		{Name: tagSagas, About: "Steps that happen together, or are undone: you define and start sagas, and workers perform their steps and undos as jobs."},
		{Name: tagSessions, About: "Each attempt belongs to a session. A session lives as long as you renew it. After it has ended, other callers may act on its keys. " +
			"If you open a flight only now and then, you need no session of your own: an open without one creates a session that ends with the report."},
		{Name: tagFlights, About: "Read flights, inputs, receipts and events."},
		{Name: tagOperator, About: "Decisions of people. Each needs a reason, and If-Match with the ETag of the flight that the decision was made on."},
		{Name: tagAdmin, About: "Tokens, the limits of namespaces, and the audit log. Each change needs a reason, which the audit log keeps."},
		{Name: tagServer, About: "Health, version and this document."},
	}
}

// Codes that many operations share.
var (
	routeCodes           = []wire.Code{wire.Forbidden}
	deploymentRouteCodes = append([]wire.Code{wire.InputInvalid, wire.WrongDeployment}, routeCodes...)
	readCodes            = append([]wire.Code{wire.Internal, wire.NoLeader, wire.LeaderLost, wire.LedgerBehind, wire.Draining}, deploymentRouteCodes...)
	bodyCodes            = append([]wire.Code{wire.PayloadTooLarge, wire.UnsupportedMediaType, wire.RequestIncomplete}, readCodes...)
)

func codes(common []wire.Code, more ...wire.Code) []wire.Code {
	return append(slices.Clone(common), more...)
}

func jsonContent(v any) []Content { return []Content{{Type: wire.TypeJSON, Value: v}} }

func textContent(kind string) Content { return Content{Type: kind} }

var (
	flightAnswerHeaders = []string{wire.HeaderFlightID, wire.HeaderState, "ETag"}
	expiryHeaders       = []string{wire.HeaderIdempotencyExpires}
)

// flightAnswer is the answer 200 with a flight.
func flightAnswer(about string) Answer {
	return Answer{Status: http.StatusOK, About: about, Headers: flightAnswerHeaders, Optional: expiryHeaders, Content: jsonContent(wire.Flight{})}
}

// openAnswers are the answers to an open and to a verification.
func openAnswers() []Answer {
	of := []string{wire.HeaderFlightID, wire.HeaderState, wire.HeaderReplayed}
	return []Answer{
		{Status: http.StatusCreated, About: "`proceed`: start the effect within `trust_ms`, then report", Headers: of, Content: jsonContent(wire.OpenAnswer{})},
		{Status: http.StatusOK, About: "`replay`: the effect has happened already; or `verify`: look it up at the provider first", Headers: of,
			Optional: []string{"ETag", wire.HeaderIdempotencyExpires}, Content: jsonContent(wire.OpenAnswer{})},
	}
}

func callerOperations() []Operation {
	return []Operation{{
		Pattern: "POST /v1/flights:open", ID: "openFlight", Tag: tagCaller, Summary: "Ask for permission to start the effect",
		About: "Namespace, action and id form the key, which identifies one business intent. At most one caller at a time is answered `proceed`; no other caller is until that attempt has ended. " +
			"Later callers wait for the attempt up to `wait_ms` and get its receipt.\n\n" +
			"Draw a new `nonce` for each open, and set `not_after`. Key and nonce identify the open: if its answer is lost, send the same request again, to any node, with the same nonce and the same `not_after`. " +
			"While the attempt is open, every repeat gets the same answer. After the attempt has ended, its nonce opens no other attempt.\n\n" +
			"Renew the `session` in the answer, which may differ from the one you sent. Count `trust_ms` from the moment when you sent the request; when it has passed, do not start the effect. " +
			"The same holds for `resend_ms`, if the answer has it: an earlier attempt may have acted, and the provider may forget the idempotency key.\n\n" +
			"If you give up, make sure that no attempt stays open under your nonce. The answer is final, and you need do nothing, if it is `replay`, `idempotency_conflict`, `flight_failed`, `expired` or `open_expired`, " +
			"or if it is `in_doubt` with `proposed` true, and it names your `nonce`. " +
			"After `in_doubt` or `idempotency_in_flight` with `proposed` false, to the only request with this nonce, nothing is open, but a copy that the network made may open an attempt until `not_after`: " +
			"set `not_after` to the wait and 2 s, and send one abandon when it has passed, at most one per key and second. " +
			"After a timeout, a broken connection or any other answer, repeat the open until its answer is final, or send an abandon until it is answered 200. A request that is rejected with 400 has opened nothing.",
		Parameters: []string{wire.HeaderNamespace, effect.HeaderIdempotencyKey, wire.HeaderActor}, Request: wire.OpenRequest{},
		Example: `{"action":"charge","id":"order-42","input":{"amount":1999,"currency":"EUR"},"nonce":"7b1f0c9a52d94e0f","not_after":1769860830000,"owner":"web-1:4711","recovery":"hold","wait_ms":20000}`,
		Answers: openAnswers(),
		Problems: codes(bodyCodes, wire.KeyRequired, wire.KeyInvalid, wire.InFlight, wire.InDoubt, wire.ApprovalPending, wire.Fenced, wire.OpenExpired,
			wire.LeaseLost, wire.Expired, wire.Conflict, wire.FlightFailed, wire.TooManyOpen, wire.LeaseUnavailable, wire.Reconciling, wire.RateLimited, wire.QuotaExceeded, wire.CallbacksOff),
	}, {
		Pattern: "POST /v1/flights:abandon", ID: "abandonOpen", Tag: tagCaller, Summary: "Give up an open",
		About: "Send an abandon only if you have started no effect under this nonce and never will. If the effect may have started, report `unknown` instead.\n\n" +
			"If the nonce has opened an attempt, the attempt ends, and the next caller may act. If it has not, an open with this nonce that arrives later is rejected. " +
			"Repeat the request, to any node, until it is answered 200 with your nonce.",
		Parameters: []string{wire.HeaderNamespace}, Request: wire.AbandonRequest{},
		Example:  `{"action":"charge","id":"order-42","nonce":"7b1f0c9a52d94e0f","not_after":1769860830000,"reason":"the caller was cancelled"}`,
		Answers:  []Answer{{Status: http.StatusOK, About: "no attempt is open under the nonce, and none will be opened", Content: jsonContent(wire.AbandonAnswer{})}},
		Problems: codes(bodyCodes, wire.KeyRequired, wire.KeyInvalid, wire.Fenced, wire.OpenExpired, wire.TooManyOpen),
	}, {
		Pattern: "POST /v1/flights:batch", ID: "batchFlights", Tag: tagCaller, Summary: "Send many opens, reports and abandons in one request",
		About: "Send one object per line, at most 1,000 lines and 4 MiB. Each line is answered as its own route would answer it, with a line of its own, in the order of completion, as soon as it is done. " +
			"A line that is invalid or rejected changes nothing for the others. A line waits for no other caller: an open that would have to is answered `idempotency_in_flight` at once; send it again alone, with the same nonce, to wait.\n\n" +
			"Token, deployment, index and trace of the request apply to every line; limits count each line. Count `trust_ms` and `resend_ms` from the moment when you sent the batch. " +
			"If the batch is answered with another status than 200 below 500, no line was carried out. If the answer breaks off, or has no line for one of yours, treat that line as a request without an answer: repeat it with the same nonce.",
		Parameters: []string{wire.HeaderNamespace}, Request: wire.BatchLine{}, LinesType: wire.TypeNDJSON,
		Example: `{"open":{"action":"charge","id":"order-42","nonce":"7b1f0c9a52d94e0f","not_after":1769860830000}}`,
		Answers: []Answer{{Status: http.StatusOK, About: "the answers to the lines", Headers: []string{"X-Accel-Buffering"},
			Content: []Content{{Type: wire.TypeNDJSON, Value: wire.BatchAnswer{}}}}},
		Problems: codes(bodyCodes, wire.RateLimited),
	}, {
		Pattern: "POST /v1/flights/{id}/report", ID: "reportFlight", Tag: tagCaller, Summary: "Report the outcome of an attempt",
		About: "Repeat the report, to any node, until it is answered. Send `key`: without it, a node that does not know the flight yet answers `not_found`. " +
			"A report that arrives after a newer attempt was opened, or after the flight has ended, is answered `fenced`: it is stored as evidence and changes nothing else.\n\n" +
			"A rejection is final only if the problem names this flight and its code is `idempotency_key_invalid`, `input_invalid`, `not_found` or `payload_too_large`. `fenced` is final, too: the report was received. After any other answer, send the report again; after `idempotency_key_required`, with `key`.",
		Request:  wire.ReportRequest{},
		Example:  `{"fencing_token":"…","key":"default/charge/order-42","outcome":"succeeded","external_id":"ch_1","body":{"id":"ch_1","paid":true}}`,
		Answers:  []Answer{flightAnswer("the ledger has stored the report")},
		Problems: codes(bodyCodes, wire.KeyRequired, wire.KeyInvalid, wire.NotFound, wire.Fenced, wire.ReportPending, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/flights/{id}/verification", ID: "reportVerification", Tag: tagCaller, Summary: "Report the result of a look-up at the provider",
		About: "Send this after the answer `verify`, when you have looked up the effect at the provider. It is answered like an open: with the receipt if the effect happened, with permission to act if it did not. " +
			"Draw a new `nonce`: the nonce of the open that was answered `verify` opens no attempt.",
		Request: wire.VerificationRequest{},
		Example: `{"verification":"…","result":"happened","external_id":"ch_1","body":{"id":"ch_1"}}`,
		Answers: openAnswers(),
		Problems: codes(bodyCodes, wire.NotFound, wire.InFlight, wire.InDoubt, wire.ApprovalPending, wire.Fenced, wire.OpenExpired, wire.LeaseLost,
			wire.Expired, wire.Conflict, wire.FlightFailed, wire.TooManyOpen, wire.LeaseUnavailable, wire.Reconciling, wire.QuotaExceeded),
	}}
}

func callbackOperations() []Operation {
	return []Operation{{
		Pattern: "POST /v1/flights/{id}/suspend", ID: "suspendFlight", Tag: tagCaller, Summary: "Hand an attempt over to its callback",
		About: "Open with `callback`, give the `callback_url` of the answer to the provider when you start the effect, then send this, and start nothing more. From then on your session does not hold the attempt: " +
			"the callback, a report of your own, or the deadline ends it. At the deadline its outcome is unknown, and its recovery decides. Repeat the request, to any node, until it is answered. " +
			"If the callback came first, the answer is the flight that it ended.",
		Request: wire.SuspendRequest{}, Example: `{"fencing_token":"…","key":"default/render/film-7","deadline_ms":7200000}`,
		Answers:  []Answer{flightAnswer("the attempt waits for its callback, or its callback was reported")},
		Problems: codes(bodyCodes, wire.KeyRequired, wire.KeyInvalid, wire.NotFound, wire.Fenced, wire.LeaseUnavailable, wire.CallbacksOff),
	}, {
		Pattern: "POST /v1/callbacks/{token}", ID: "reportCallback", Tag: tagCaller, Summary: "Report the outcome of an attempt, for its provider",
		About: "The URL is the right to report one attempt, so no other token is needed or read; keep it secret. With `outcome` in the query, the body is your own, of any content type, and becomes the receipt. Without it, the body says the outcome.\n\n" +
			"A repeat of the same callback gets the same answer. Another one, or one that is too late, is answered `fenced`: it is stored as evidence and changes nothing else. " +
			"Before the attempt was suspended, only `succeeded` is taken; after `callback_early` call again. After any answer from 500, too.",
		Query: []Parameter{
			{Name: "outcome", Schema: Schema{Type: "string", Enum: []string{"succeeded", "refused", "not_done", "unknown"}}, About: "the outcome; the whole body is the receipt"},
			{Name: "external_id", Schema: typedSchema("string"), About: "with `outcome`: the id that the provider gave to the effect"},
		},
		AnyBody: "With `outcome` in the query: the receipt, of any content type.",
		Request: wire.CallbackRequest{}, Example: `{"outcome":"succeeded","external_id":"job_7","body":{"video":"https://farm.example/7.mp4"}}`,
		Answers:  []Answer{{Status: http.StatusOK, About: "the outcome is recorded", Content: jsonContent(wire.CallbackAnswer{})}},
		Problems: codes(bodyCodes, wire.NotFound, wire.Fenced, wire.CallbackEarly, wire.ReportPending, wire.LeaseUnavailable, wire.Reconciling),
	}}
}

func sessionOperations() []Operation {
	alive := func(status int, about string) []Answer {
		return []Answer{{Status: status, About: about, Content: jsonContent(wire.SessionAnswer{})}}
	}
	return []Operation{{
		Pattern: "POST /v1/sessions", ID: "openSession", Tag: tagSessions, Summary: "Create a session",
		About:   "One session serves any number of flights. Renew it every `renew_every_ms`, and close it when you are done. Create one session per process: a forked child must not use its parent's session.",
		Request: wire.SessionRequest{}, Example: `{"ttl_ms":15000,"owner":"web-1:4711","nonce":"7b1f0c9a52d94e0f"}`,
		Answers: alive(http.StatusCreated, "the session"), Problems: codes(bodyCodes, wire.LeaseUnavailable, wire.RateLimited),
	}, {
		Pattern: "POST /v1/sessions/{id}/renew", ID: "renewSession", Tag: tagSessions, Summary: "Renew a session",
		About: "Send a renewal every `renew_every_ms`, to any node. Count `trust_ms` anew from the moment when you sent the request. If no renewal is answered in time, start no effect under this session.\n\n" +
			"The answer describes the attempts that are open under the session: `open_digest` always, and the list `open` if you sent another digest. A renewal does not change these attempts. " +
			"For each listed attempt: do nothing if you are waiting for its answer, are performing its effect, or still have its report to send. Abandon it if you gave up its nonce before its effect started. " +
			"In every other case (you started the effect, its report was lost, or you do not know the nonce) send its report again, or report `unknown`.\n\n" +
			"A list has at most 256 attempts. If `more` is true, renew again with the same digest and the last `flight_id` as `after`. Ignore an answer whose `session` is not the one that you renewed.",
		Request: wire.RenewRequest{}, Example: `{"open_digest":"49ec49fe2ad166ef0b18ff7d94291ca8"}`,
		Answers: alive(http.StatusOK, "the renewed session"), Problems: codes(bodyCodes, wire.LeaseLost, wire.LeaseUnavailable),
	}, {
		Pattern: "POST /v1/sessions/{id}/close", ID: "closeSession", Tag: tagSessions, Summary: "Close a session",
		About: "Send an empty body, or `{}`. Closing a session that has already ended succeeds; one that belongs to another token is answered `lease_lost`. A session with open attempts is not closed: report or abandon them first. " +
			"A session that is not renewed expires, and its open attempts count as lost.",
		Answers:  []Answer{{Status: http.StatusOK, About: "the session is closed", Content: jsonContent(struct{}{})}},
		Problems: codes(bodyCodes, wire.SessionInUse, wire.LeaseLost, wire.LeaseUnavailable),
	}}
}
