package httpapi_test

import (
	"net/http"
	"slices"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

func typedSchema(schemaType string) Schema { return Schema{Type: schemaType} }

func listParameters() []Parameter {
	limit := typedSchema("integer")
	from, to := int64(1), int64(httpapi.MaxPage)
	limit.Minimum, limit.Maximum, limit.Default = &from, &to, httpapi.DefaultPage
	return []Parameter{
		{Name: "key", Schema: typedSchema("string"), About: "the full key: the answer is this one flight; not allowed together with other filters"},
		{Name: "state", Schema: typedSchema("string"), About: "only flights in these states, separated by commas"},
		{Name: "action", Schema: typedSchema("string"), About: "only flights with this action"},
		{Name: "key_prefix", Schema: typedSchema("string"), About: "only flights whose full key starts with this prefix"},
		{Name: "contains", Schema: typedSchema("string"), About: "only flights whose full key has this text in it; a page can be short, or empty, without being the last"},
		{Name: "external_id", Schema: typedSchema("string"), About: "only flights with this external id in their receipt or in evidence; a page can be short, or empty, without being the last"},
		{Name: "since", Schema: typedSchema("string"), About: "only flights created at this time or later; a time or a duration before now: `1h`, `30d`, `2026-01-31T12:00:00Z`"},
		{Name: "limit", Schema: limit, About: "the largest number of flights on the page"},
		{Name: "cursor", Schema: typedSchema("string"), About: "continue after an earlier page: its `next`, unchanged"},
	}
}

var (
	conditional = []string{"If-None-Match", wire.HeaderPrefer}
	unchanged   = Answer{Status: http.StatusNotModified, About: "the flight's version has not changed", Headers: flightAnswerHeaders,
		Optional: []string{wire.HeaderIdempotencyExpires, wire.HeaderPreferenceApplied}}
)

func flightOperations() []Operation {
	single := flightAnswer("the flight")
	single.Optional = append([]string{wire.HeaderPreferenceApplied}, expiryHeaders...)
	list := Answer{Status: http.StatusOK, About: "a page of flights; with `key`, one flight", Content: []Content{{Type: wire.TypeJSON, Value: wire.FlightPage{}, Alternatives: []any{wire.Flight{}}}},
		Optional: append([]string{"Link", wire.HeaderPreferenceApplied, wire.HeaderIdempotencyExpires}, flightAnswerHeaders...)}
	receipt := Answer{Status: http.StatusOK, About: "the stored bytes of the receipt's body, with the body's content type",
		Headers: append([]string{wire.HeaderReceiptOutcome, wire.HeaderReceiptDigest, wire.HeaderReceiptSize, wire.HeaderIdempotencyExpires,
			"X-Content-Type-Options", "Content-Security-Policy"}, flightAnswerHeaders...),
		Optional: []string{wire.HeaderExternalID, wire.HeaderDigest}, Content: []Content{textContent("*/*")}}
	input := Answer{Status: http.StatusOK, About: "the bytes of the input, with the input's content type",
		Headers:  append([]string{wire.HeaderReceiptDigest, wire.HeaderReceiptSize, wire.HeaderDigest, "X-Content-Type-Options", "Content-Security-Policy"}, flightAnswerHeaders...),
		Optional: expiryHeaders, Content: []Content{textContent("*/*")}}
	return []Operation{{
		Pattern: "GET /v1/flights", ID: "listFlights", Tag: tagFlights, Summary: "List flights, newest first, or find one by its key",
		About:      "A page can be short or empty without being the last one: there are more flights if `next` is set. Receipts have no bodies here.",
		Parameters: append([]string{wire.HeaderNamespace}, conditional...), Query: listParameters(),
		Answers:  []Answer{list, unchanged},
		Problems: codes(readCodes, wire.KeyInvalid, wire.NotFound, wire.RateLimited),
	}, {
		Pattern: "GET /v1/flights/{id}", ID: "getFlight", Tag: tagFlights, Summary: "Get one flight",
		About:      "With If-None-Match and `Prefer: wait=N` the request is a long poll: it is answered as soon as the flight has another version.",
		Parameters: conditional, Answers: []Answer{single, unchanged}, Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "GET /v1/flights/{id}/input", ID: "getInput", Tag: tagFlights, Summary: "Get the exact bytes of the input",
		About: "The input is stored as the first caller of the key sent it. Every attempt must send these bytes. " +
			"The input of a step of a saga is not stored: it is made of the input of its saga and the receipts before it, as for its worker.",
		Answers: []Answer{input}, Problems: codes(readCodes, wire.NotFound, wire.Expired),
	}, {
		Pattern: "GET /v1/flights/{id}/receipt", ID: "getReceipt", Tag: tagFlights, Summary: "Get the exact bytes of the receipt",
		About:   "Flightd-Digest is the digest of the whole body, Digest the digest of these bytes.",
		Answers: []Answer{receipt}, Problems: codes(readCodes, wire.NotFound, wire.Expired, wire.FlightFailed),
	}, {
		Pattern: "GET /v1/flights/{id}/events", ID: "getHistory", Tag: tagFlights, Summary: "Get the events of a flight",
		About:      "With `Accept: text/event-stream` the answer is a stream of server-sent events. It starts with the stored events and continues with new ones.",
		Parameters: streamHeaders, Query: []Parameter{afterParameter(), limitParameter()},
		Answers: []Answer{{Status: http.StatusOK, About: "a page of the events, oldest first, or a stream", Optional: slices.Concat([]string{"Link", wire.HeaderPreferenceApplied, "X-Accel-Buffering"}, expiryHeaders, flightAnswerHeaders),
			Content: []Content{{Type: wire.TypeJSON, Value: wire.History{}}, streamContent()}}},
		Problems: codes(readCodes, wire.NotFound, wire.Expired, wire.RateLimited),
	}, {
		Pattern: "GET /v1/events", ID: "listEvents", Tag: tagFlights, Summary: "Get the events of all flights",
		About: "The id of an event is its position in the ledger's log. Continue after it with `after`, or in a stream with Last-Event-ID, also after a restart: no event is skipped. " +
			"If the log no longer has the events after a position, the answer is `expired`; a stream that resumes by Last-Event-ID has a message `gap` instead. With `Prefer: wait=N` an empty page waits for an event.\n\n" +
			"Events are in the order of the log, and so in the order of `at`. Duplicates are counted in memory first: the `at` of a `duplicates` event is the time at which their count was logged, " +
			"usually a quarter of a second after the calls. The events of the flight have the exact times, as `first_at` and `last_at`.",
		Parameters: append([]string{wire.HeaderNamespace}, streamHeaders...), Query: append([]Parameter{afterParameter()}, eventParameters()...),
		Answers: []Answer{{Status: http.StatusOK, About: "a page, or a stream", Optional: []string{"Link", wire.HeaderPreferenceApplied, "X-Accel-Buffering"},
			Content: []Content{{Type: wire.TypeJSON, Value: wire.EventPage{}}, streamContent()}}},
		Problems: codes(readCodes, wire.KeyInvalid, wire.NotFound, wire.Expired, wire.RateLimited),
	}}
}

// streamHeaders are the request headers of routes that can stream.
var streamHeaders = []string{wire.HeaderLastEvent, wire.HeaderPrefer}

// streamContent is an answer of server-sent events. Messages named `gap` and `duplicates` differ from events, which
// have no name.
func streamContent() Content {
	return Content{Type: wire.TypeEvents, Value: wire.Event{}, Alternatives: []any{wire.Gap{}, wire.DuplicateStats{}}}
}

func afterParameter() Parameter {
	place := typedSchema("string")
	place.Pattern = `^[0-9]+\.[0-9]+$`
	return Parameter{Name: "after", Schema: place, About: "only events after this position: the id of an event, or the `next` of an earlier page"}
}

// eventCount is a number of events, at least from.
func eventCount(from int64, usual any) Schema {
	s, most := typedSchema("integer"), int64(httpapi.MaxEvents)
	s.Minimum, s.Maximum, s.Default = &from, &most, usual
	return s
}

func limitParameter() Parameter {
	return Parameter{Name: "limit", Schema: eventCount(1, httpapi.DefaultEvents), About: "the number of events on a page; the events of one command are not split"}
}

func eventParameters() []Parameter {
	return []Parameter{
		{Name: "last", Schema: eventCount(0, nil), About: "the number of past events at the start of a stream without a position; the events of one command are not split"},
		limitParameter(),
		{Name: "since", Schema: typedSchema("string"), About: "only events of this time or later; a time or a duration before now; a stream filters only its past events"},
		{Name: "action", Schema: typedSchema("string"), About: "only events of flights with this action"},
		{Name: "key_prefix", Schema: typedSchema("string"), About: "only events of flights whose full key starts with this prefix"},
		{Name: "kind", Schema: typedSchema("string"), About: "only events of these kinds, separated by commas"},
	}
}

// operatorOperation describes the route of an operator's decision.
func operatorOperation(verb, id, summary, about string, request any, example string, more ...wire.Code) Operation {
	return Operation{
		Pattern: "POST /v1/flights/{id}/" + verb, ID: id, Tag: tagOperator, Summary: summary, About: about,
		Parameters: []string{"If-Match", wire.HeaderActor}, Request: request, Example: example,
		Answers:  []Answer{flightAnswer("the flight after the decision")},
		Problems: codes(bodyCodes, append(more, wire.NotFound, wire.KeyRequired, wire.KeyInvalid, wire.PreconditionFailed, wire.PreconditionRequired)...),
	}
}

func operatorOperations() []Operation {
	const why = `{"reason":"the order was withdrawn","actor":"maria"}`
	return []Operation{
		operatorOperation("resolve", "resolveFlight", "Resolve a flight in doubt",
			`Check the provider first. A repeat of the same decision gets the same answer; a different decision is rejected.`,
			wire.ResolveRequest{}, `{"result":"happened","external_id":"ch_1","body":{"id":"ch_1"},"reason":"found in the provider's log","actor":"maria"}`),
		operatorOperation("cancel", "cancelFlight", "Cancel a flight",
			"A flight that is not running is cancelled at once. If it is running, the cancellation is requested: the caller sees the request in its next renewal, and its report decides the outcome. A saga that is cancelled undoes what its steps have done; after its pivot it is answered `past_pivot`.",
			wire.OperatorRequest{}, why, wire.PastPivot),
		operatorOperation("retry", "retryFlight", "Retry a flight that ended without a receipt",
			"The retry starts the next generation of the key.", wire.OperatorRequest{}, why),
		operatorOperation("free", "freeKey", "Free a key, so that its effect can happen again",
			"The receipt becomes part of the history, and the next open of the key may act. A tombstone does not store its key, so send `key`.", wire.OperatorRequest{}, why),
		operatorOperation("redact", "redactFlight", "Erase the input and the receipt of a finished flight",
			"The bytes of the input and of the receipt's body are erased. Key, outcome, digests and history are kept, and the effect does not run again.", wire.OperatorRequest{}, why),
		{
			Pattern: "POST /v1/flights:import", ID: "importReceipts", Tag: tagOperator, Summary: "Import receipts of effects that happened before",
			About: "Send one object per line, at most 2,000 lines and 4 MiB. An invalid line rejects the whole request. A key that is already in use is not changed, only counted. " +
				"Repeating the request is safe.",
			Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.ImportLine{}, LinesType: wire.TypeNDJSON,
			Query:    []Parameter{{Name: "dry_run", Schema: Schema{Type: "string", Enum: []string{"true", "false"}}, About: "`true`: report the result of the import, and change nothing"}},
			Example:  `{"key":"default/charge/order-41","outcome":"succeeded","external_id":"ch_0","body":{"id":"ch_0"},"finished_at":"2026-01-31T12:00:00Z"}`,
			Answers:  []Answer{{Status: http.StatusOK, About: "the result of the import", Content: jsonContent(wire.ImportAnswer{})}},
			Problems: codes(bodyCodes, wire.KeyRequired, wire.KeyInvalid, wire.RateLimited, wire.QuotaExceeded),
		},
	}
}

func serverOperations() []Operation {
	page := []Content{textContent("text/markdown; charset=utf-8"), textContent("text/html; charset=utf-8"), {Type: wire.TypeJSON, Value: wire.ProblemPage{}}}
	readiness := jsonContent(wire.Ready{})
	return []Operation{{
		Pattern: "GET /livez", ID: "live", Tag: tagServer, Summary: "Check that the process is running",
		Answers: []Answer{{Status: http.StatusOK, About: "the process is running", Content: []Content{textContent("text/plain; charset=utf-8")}}}, Problems: routeCodes,
	}, {
		Pattern: "GET /readyz", ID: "ready", Tag: tagServer, Summary: "Check that the node can serve callers",
		Query: []Parameter{{Name: "verbose", Schema: typedSchema("string"), About: "show all checks and a description of the node; this needs a token with the verb `operate` or `admin`"}},
		Answers: []Answer{{Status: http.StatusOK, About: "the node is ready", Content: readiness},
			{Status: http.StatusServiceUnavailable, About: "the node is not ready, or is starting", Headers: []string{wire.HeaderRetryAfter}, Content: readiness}},
		Problems: codes(routeCodes, wire.NoLeader, wire.Unauthenticated),
	}, {
		Pattern: "GET /version", ID: "version", Tag: tagServer, Summary: "Get the version of the server",
		Answers: []Answer{{Status: http.StatusOK, About: "the version", Content: jsonContent(wire.Version{})}}, Problems: routeCodes,
	}, {
		Pattern: "GET /openapi.json", ID: "openapi", Tag: tagServer, Summary: "Get this document",
		Answers:  []Answer{{Status: http.StatusOK, About: "the document, as OpenAPI 3.1", Content: jsonContent(struct{}{})}},
		Problems: codes(deploymentRouteCodes, wire.Internal),
	}, {
		Pattern: "GET /problems/{code}", ID: "problemPage", Tag: tagServer, Summary: "Read about a problem code",
		About:    "The `type` of every problem is the path of its page. Accept selects Markdown, HTML or JSON.",
		Answers:  []Answer{{Status: http.StatusOK, About: "the page of the code", Headers: []string{"Vary"}, Optional: []string{"Content-Security-Policy"}, Content: page}},
		Problems: codes(deploymentRouteCodes, wire.NotFound),
	}}
}
