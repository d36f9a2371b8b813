package httpapi

import (
	"net/http"
	"slices"

	"github.com/flightd/flightd/httpapi/openapi"
	"github.com/flightd/flightd/internal/wire"
)

func word(schemaType string) openapi.Schema { return openapi.Schema{Type: schemaType} }

func filters() []openapi.Parameter {
	limit := word("integer")
	from, to := int64(1), int64(maxPage)
	limit.Minimum, limit.Maximum, limit.Default = &from, &to, defaultPage
	return []openapi.Parameter{
		{Name: "key", Schema: word("string"), About: "the full key: the answer is that one flight, and no other filter may stand beside it"},
		{Name: "state", Schema: word("string"), About: "states, separated by commas"},
		{Name: "action", Schema: word("string"), About: "the name part of the key"},
		{Name: "key_prefix", Schema: word("string"), About: "how the full key begins"},
		{Name: "since", Schema: word("string"), About: "created then or later: a moment, or how long ago it is: `1h`, `30d`, `2026-01-31T12:00:00Z`"},
		{Name: "limit", Schema: limit, About: "flights on a page"},
		{Name: "cursor", Schema: word("string"), About: "go on behind an earlier page: its `next`, as it was"},
	}
}

var (
	conditional = []string{"If-None-Match", wire.HeaderPrefer}
	unchanged   = openapi.Answer{Status: http.StatusNotModified, About: "the flight still has that version", Headers: ofFlight,
		Maybe: []string{wire.HeaderExpires, wire.HeaderApplied}}
)

func lookOperations() []openapi.Operation {
	one := aFlight("the flight")
	one.Maybe = append([]string{wire.HeaderApplied}, ofEnd...)
	list := openapi.Answer{Status: http.StatusOK, About: "a page; with `key`, the one flight", Content: []openapi.Content{{Type: wire.TypeJSON, Of: wire.FlightPage{}, Or: []any{wire.Flight{}}}},
		Maybe: append([]string{"Link", wire.HeaderApplied, wire.HeaderExpires}, ofFlight...)}
	receipt := openapi.Answer{Status: http.StatusOK, About: "the bytes that are kept of the receipt's body, with their own content type",
		Headers: append([]string{wire.HeaderReceiptOutcome, wire.HeaderReceiptDigest, wire.HeaderReceiptSize, wire.HeaderExpires,
			"X-Content-Type-Options", "Content-Security-Policy"}, ofFlight...),
		Maybe: []string{wire.HeaderExternalID, wire.HeaderDigest}, Content: []openapi.Content{text("*/*")}}
	input := openapi.Answer{Status: http.StatusOK, About: "the bytes of the input, with their own content type",
		Headers: append([]string{wire.HeaderReceiptDigest, wire.HeaderReceiptSize, wire.HeaderDigest, "X-Content-Type-Options", "Content-Security-Policy"}, ofFlight...),
		Maybe:   ofEnd, Content: []openapi.Content{text("*/*")}}
	return []openapi.Operation{{
		Pattern: "GET /v1/flights", ID: "listFlights", Tag: tagFlights, Summary: "List flights, newest first, or find one by its key",
		About:      "A page may be short, or empty, and not be the last: `next` says whether there is more. Receipts come without their bodies.",
		Parameters: append([]string{wire.HeaderNamespace}, conditional...), Query: filters(),
		Answers:  []openapi.Answer{list, unchanged},
		Problems: codes(anyRead, wire.KeyInvalid, wire.NotFound),
	}, {
		Pattern: "GET /v1/flights/{id}", ID: "getFlight", Tag: tagFlights, Summary: "Look at one flight",
		About:      "With If-None-Match and `Prefer: wait=N` it is a long poll: it answers as soon as the flight has another version.",
		Parameters: conditional, Answers: []openapi.Answer{one, unchanged}, Problems: codes(anyRead, wire.NotFound),
	}, {
		Pattern: "GET /v1/flights/{id}/input", ID: "getInput", Tag: tagFlights, Summary: "The exact bytes of the input",
		About:   "As the first caller of the key submitted it: what every attempt sends.",
		Answers: []openapi.Answer{input}, Problems: codes(anyRead, wire.NotFound, wire.Expired),
	}, {
		Pattern: "GET /v1/flights/{id}/receipt", ID: "getReceipt", Tag: tagFlights, Summary: "The exact bytes of the receipt",
		About:   "Flightd-Digest is over the whole body, Digest over these bytes.",
		Answers: []openapi.Answer{receipt}, Problems: codes(anyRead, wire.NotFound, wire.Expired, wire.FlightFailed),
	}, {
		Pattern: "GET /v1/flights/{id}/events", ID: "getHistory", Tag: tagFlights, Summary: "The history of a flight",
		About:      "As a stream of server-sent events, where Accept asks for one, it goes on with what happens to the flight from now on.",
		Parameters: streamed, Query: []openapi.Parameter{behind()},
		Answers: []openapi.Answer{{Status: http.StatusOK, About: "every line, oldest first", Maybe: slices.Concat([]string{wire.HeaderApplied, "X-Accel-Buffering"}, ofEnd, ofFlight),
			Content: []openapi.Content{{Type: wire.TypeJSON, Of: wire.History{}}, asStream()}}},
		Problems: codes(anyRead, wire.NotFound, wire.Expired, wire.RateLimited),
	}, {
		Pattern: "GET /v1/events", ID: "listEvents", Tag: tagFlights, Summary: "What happens to flights, as it happens",
		About: "Each event has an id, its place in the ledger's log: go on behind it with `after`, or as a stream with Last-Event-ID, also after a restart, and nothing is missing. " +
			"A place that the log no longer reaches is answered with `expired`; a stream that goes on by Last-Event-ID has a message `gap` there. With `Prefer: wait=N` a page that would be empty waits.",
		Parameters: append([]string{wire.HeaderNamespace}, streamed...), Query: append([]openapi.Parameter{behind()}, eventFilters()...),
		Answers: []openapi.Answer{{Status: http.StatusOK, About: "a page, or a stream", Maybe: []string{"Link", wire.HeaderApplied, "X-Accel-Buffering"},
			Content: []openapi.Content{{Type: wire.TypeJSON, Of: wire.EventPage{}}, asStream()}}},
		Problems: codes(anyRead, wire.KeyInvalid, wire.NotFound, wire.Expired, wire.RateLimited),
	}}
}

// streamed are the headers of a request whose answer may be a stream.
var streamed = []string{wire.HeaderLastEvent, wire.HeaderPrefer}

// asStream is the answer as server-sent events. A message without a name is an event; `gap` and `duplicates` have names.
func asStream() openapi.Content {
	return openapi.Content{Type: wire.TypeEvents, Of: wire.Event{}, Or: []any{wire.Gap{}, wire.Duplicates{}}}
}

func behind() openapi.Parameter {
	place := word("string")
	place.Pattern = `^[0-9]+\.[0-9]+$`
	return openapi.Parameter{Name: "after", Schema: place, About: "only what happened behind this place: the id of an event, or `next` of an earlier page"}
}

func eventFilters() []openapi.Parameter {
	count := func(from int64, usual any) openapi.Schema {
		s, most := word("integer"), int64(maxEvents)
		s.Minimum, s.Maximum, s.Default = &from, &most, usual
		return s
	}
	return []openapi.Parameter{
		{Name: "last", Schema: count(0, nil), About: "of a stream that begins nowhere in particular: with how many events of the past it begins; what one command did stays together"},
		{Name: "limit", Schema: count(1, defaultEvents), About: "events on a page; what one command did stays together"},
		{Name: "since", Schema: word("string"), About: "what happened then or later: a moment, or how long ago it is; of a stream only how far back it begins"},
		{Name: "action", Schema: word("string"), About: "the name part of the key"},
		{Name: "key_prefix", Schema: word("string"), About: "how the full key begins"},
		{Name: "kind", Schema: word("string"), About: "kinds of events, separated by commas"},
	}
}

// decide describes a verb of an operator.
func decide(verb, id, summary, about string, request any, example string) openapi.Operation {
	return openapi.Operation{
		Pattern: "POST /v1/flights/{id}/" + verb, ID: id, Tag: tagOperator, Summary: summary, About: about,
		Parameters: []string{"If-Match", wire.HeaderActor}, Request: request, Example: example,
		Answers:  []openapi.Answer{aFlight("the flight as it stands now")},
		Problems: codes(anyBody, wire.NotFound, wire.KeyRequired, wire.KeyInvalid, wire.PreconditionFailed, wire.PreconditionRequired),
	}
}

func operatorOperations() []openapi.Operation {
	const why = `{"reason":"the order was withdrawn","as":"maria"}`
	return []openapi.Operation{
		decide("resolve", "resolveFlight", "Settle a doubt",
			`Look at the provider first. The same decision sent again gets the same answer, another one is refused.`,
			wire.ResolveRequest{}, `{"result":"happened","external_id":"ch_1","body":{"id":"ch_1"},"reason":"found in the provider's log","as":"maria"}`),
		decide("cancel", "cancelFlight", "Want a flight cancelled",
			"A flight that is not running is cancelled at once. One that is running is marked: its caller reads that with its next renewal, and what it reports stands.",
			wire.OperatorRequest{}, why),
		decide("retry", "retryFlight", "Let a flight run again that ended without a receipt",
			"It starts the next generation of the key.", wire.OperatorRequest{}, why),
		decide("free", "freeKey", "Let the effect run again",
			"The receipt goes into the past, and the key is as if it had never been used. A tombstone does not know its key: name it.", wire.OperatorRequest{}, why),
		decide("redact", "redactFlight", "Erase what a finished flight holds",
			"The bytes of its input and receipt are erased; key, outcome, digests and history stay, and the effect is not run again.", wire.OperatorRequest{}, why),
		{
			Pattern: "POST /v1/flights:import", ID: "importReceipts", Tag: tagOperator, Summary: "Bring receipts of effects that happened before",
			About: "One object a line, at most 2,000 lines and 4 MiB. A line that cannot be what it should be refuses the whole request; a key that is known is left alone and counted. " +
				"The same request, sent again, changes nothing more.",
			Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.ImportLine{}, Lines: wire.TypeNDJSON,
			Query:    []openapi.Parameter{{Name: "dry_run", Schema: openapi.Schema{Type: "string", Enum: []string{"true", "false"}}, About: "say what would be done, and do nothing"}},
			Example:  `{"key":"default/charge/order-41","outcome":"succeeded","external_id":"ch_0","body":{"id":"ch_0"},"finished_at":"2026-01-31T12:00:00Z"}`,
			Answers:  []openapi.Answer{{Status: http.StatusOK, About: "what became of the lines", Content: asJSON(wire.ImportAnswer{})}},
			Problems: codes(anyBody, wire.KeyRequired, wire.KeyInvalid),
		},
	}
}

func serverOperations() []openapi.Operation {
	page := []openapi.Content{text(typeMarkdown), text(typeHTML), {Type: wire.TypeJSON, Of: wire.ProblemPage{}}}
	readiness := asJSON(wire.Ready{})
	return []openapi.Operation{{
		Pattern: "GET /livez", ID: "live", Tag: tagServer, Summary: "The process answers",
		Answers: []openapi.Answer{{Status: http.StatusOK, About: "it lives", Content: []openapi.Content{text(typePlain)}}}, Problems: anyRoute,
	}, {
		Pattern: "GET /readyz", ID: "ready", Tag: tagServer, Summary: "The node can do its share",
		Query: []openapi.Parameter{{Name: "verbose", Schema: word("string"), About: "show what was looked at, also when all is well"}},
		Answers: []openapi.Answer{{Status: http.StatusOK, About: "it can", Content: readiness},
			{Status: http.StatusServiceUnavailable, About: "it cannot, or is starting", Headers: []string{wire.HeaderRetryAfter}, Content: readiness}},
		Problems: codes(anyRoute, wire.NoLeader),
	}, {
		Pattern: "GET /version", ID: "version", Tag: tagServer, Summary: "What answers here",
		Answers: []openapi.Answer{{Status: http.StatusOK, About: "the program", Content: asJSON(wire.Version{})}}, Problems: anyRoute,
	}, {
		Pattern: "GET " + documentPath, ID: "openapi", Tag: tagServer, Summary: "This document",
		Answers:  []openapi.Answer{{Status: http.StatusOK, About: "OpenAPI 3.1", Content: asJSON(struct{}{})}},
		Problems: codes(ownRoute, wire.Internal),
	}, {
		Pattern: "GET " + problemPath + "{code}", ID: "problemPage", Tag: tagServer, Summary: "What a problem's code means",
		About:    "The `type` of every problem leads here. Accept chooses between Markdown, HTML and JSON.",
		Answers:  []openapi.Answer{{Status: http.StatusOK, About: "the page", Headers: []string{"Vary"}, Maybe: []string{"Content-Security-Policy"}, Content: page}},
		Problems: codes(ownRoute, wire.NotFound),
	}}
}
