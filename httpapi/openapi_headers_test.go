package httpapi_test

import (
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
)

// header is the documentation of a header.
type header struct {
	Description string  `json:"description"`
	Required    bool    `json:"required,omitempty"` // request: rejected without it; answer: always present
	Schema      *Schema `json:"schema"`
	example     string
}

const etagPattern = `^"[0-9]+\.[0-9]+"$`

func stringSchema(pattern string) *Schema { return &Schema{Type: "string", Pattern: pattern} }
func enumSchema(enum ...string) *Schema   { return &Schema{Type: "string", Enum: enum} }
func integerSchema(from, to int64) *Schema {
	return &Schema{Type: "integer", Minimum: &from, Maximum: &to}
}
func secondsHeader(about string) header {
	return header{Description: about, Schema: integerSchema(0, 1<<31)}
}
func constantHeader(about, value string) header {
	return header{Description: about, Schema: enumSchema(value)}
}

// requestHeaders documents all request headers.
func requestHeaders() map[string]header {
	return mergeMaps(
		generalRequestHeaders(),
		conditionalRequestHeaders(),
	)
}

// answerHeaders documents all response headers.
func answerHeaders() map[string]header {
	return mergeMaps(
		flightHeaders(),
		receiptHeaders(),
	)
}

func generalRequestHeaders() map[string]header {
	return map[string]header{
		wire.HeaderNamespace: {Description: "the namespace part of the key, or the namespace to list; absent: `default`. In lists and events `*` selects all namespaces. A token of one namespace has that namespace instead: you need no header, and another value is `forbidden`", Schema: &Schema{Type: "string",
			Pattern: `^(\*|[A-Za-z0-9._-]+)$`, MaxLength: 255}},
		effect.HeaderIdempotencyKey: {Description: "optional; if you send it, it must be the id or the full key of the flight, bare or quoted, else the request is rejected", Schema: stringSchema("")},
		wire.HeaderIndex:            {Description: "with Flightd-Deployment: the greatest position that an answer of this deployment has told you. A ledger that does not reach it has lost entries, and answers `ledger_behind`", Schema: stringSchema(indexPattern), example: "1-8123"},
		wire.HeaderDeployment:       {Description: "your deployment, from `GET /version`; a server of another deployment answers `wrong_deployment`. Send it with every request: if the address ever leads to another deployment, the effect must not happen again there", Schema: stringSchema("")},
		wire.HeaderActor:            {Description: "the person who decides, like the field `actor`; with an open or a submission whose policy demands an approval: who asks for it", Schema: stringSchema("")},
		"Traceparent":               {Description: "the trace of the request (W3C Trace Context); included in problems and in the log", Schema: stringSchema("")},
		wire.HeaderRequestID:        {Description: "the id of the request in the server's log: at most 64 letters, digits, `.`, `_` and `-`; absent: the server generates one", Schema: stringSchema("")},
	}
}

func conditionalRequestHeaders() map[string]header {
	return map[string]header{
		"If-Match":           {Description: "the ETag of the flight that the decision was made on: a decision about a flight is `precondition_required` without it; of the document of an action, optional. `*` is rejected", Schema: stringSchema(etagPattern), example: `"8123.4"`},
		"If-None-Match":      {Description: "the ETag of the version that you have: the flight is returned only in another version. You can send a list of ETags; `*` matches every version; an unknown ETag matches none", Schema: stringSchema(`^[\s,]*(\*|(W/)?"[^"]*")(\s*,[\s,]*(\*|(W/)?"[^"]*"))*[\s,]*$`), example: `"8123.4"`},
		wire.HeaderLastEvent: {Description: "the id of the last event that you received in a stream; the stream continues after it", Schema: stringSchema(versionPattern), example: "8123.4"},
		wire.HeaderPrefer: {Description: "`wait=N` (RFC 7240): wait up to N seconds, at most 55, for another version (with If-None-Match) or for an event; Preference-Applied has the number of seconds", Schema: stringSchema(""),
			example: "wait=20"},
	}
}

func flightHeaders() map[string]header {
	return map[string]header{
		wire.HeaderRequestID:          {Description: "the id of the request in the server's log", Schema: stringSchema("")},
		wire.HeaderLedgerTime:         {Description: "the ledger's time when the answer was sent, in milliseconds since 1970; absent while the node starts, and in an answer that a node which does not lead gives from its own ledger", Schema: integerSchema(0, wire.MaxLedgerTime)},
		wire.HeaderIndex:              {Description: "the position of the ledger when the answer was sent; absent while the node starts. Positions are compared by the number before the `-`, then by the one after it", Schema: stringSchema(indexPattern), example: "1-8123"},
		wire.HeaderAge:                secondsHeader("how old the answer is: the node does not lead, and has not heard of the leader for so many seconds; absent below one"),
		"Cache-Control":               constantHeader("caches must not store the answer", "no-store"),
		wire.HeaderFlightID:           {Description: "the id of the flight", Schema: stringSchema(flightIDPattern)},
		wire.HeaderState:              {Description: "the state of the flight", Schema: enumSchema(stateNames()...)},
		"ETag":                        {Description: "the version of the flight, for If-Match and If-None-Match", Schema: stringSchema(etagPattern)},
		wire.HeaderReplayed:           {Description: "`true`: the outcome, or the decision, was read from the ledger; `false`: it is new", Schema: enumSchema("true", "false")},
		wire.HeaderIdempotencyExpires: {Description: "when the retention of the receipt ends, as an HTTP date", Schema: stringSchema("")},
		wire.HeaderRetryAfter:         secondsHeader("repeat the request after this many seconds"),
		wire.HeaderStripeRetry:        constantHeader("tells clients with automatic retries not to retry", "false"),
		wire.HeaderShouldRetry:        constantHeader("tells clients with automatic retries not to retry", "false"),
		wire.HeaderPreferenceApplied:  {Description: "the preference that was applied", Schema: stringSchema(`^wait=[0-9]+$`)},
		"Link":                        {Description: "the next page, with `rel=\"next\"`", Schema: stringSchema("")},
		"X-Accel-Buffering":           constantHeader("tells proxies not to buffer a stream", "no"),
		wire.HeaderAuthenticate:       constantHeader("the scheme of credentials that the server takes", "Bearer"),
		"Vary":                        {Description: "the answer depends on this request header", Schema: stringSchema("")},
	}
}

func receiptHeaders() map[string]header {
	return map[string]header{
		wire.HeaderReceiptOutcome: {Description: "`succeeded` or `refused`", Schema: enumSchema("succeeded", "refused")},
		wire.HeaderReceiptDigest:  {Description: "the digest of the whole body, even if only its beginning is stored", Schema: stringSchema(digestPattern)},
		wire.HeaderReceiptSize:    {Description: "the full length of the body in bytes, even if it was truncated", Schema: integerSchema(0, 1<<31)},
		wire.HeaderExternalID:     {Description: "the id that the provider gave to the effect, percent-encoded", Schema: stringSchema("")},
		wire.HeaderDigest:         {Description: "the digest of the bytes of this answer, if they are the whole body", Schema: stringSchema(`^sha-256=`)},
		"X-Content-Type-Options":  constantHeader("browsers must not guess another content type: the bytes are not from this server", "nosniff"),
		"Content-Security-Policy": {Description: "browsers must not run scripts in the body", Schema: stringSchema("")},
	}
}

// pathDocs documents each name in a path; the key includes the segment before it.
func pathDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"flights/{id}":    {about: "the id of a flight", pattern: flightIDPattern},
		"queues/{action}": {about: "the kind of effect, such as `charge`"},
		"sessions/{id}":   {about: "the id of a session"},

		"callbacks/{token}": {about: "the callback token: the end of the `callback_url`"},
		"problems/{code}":   {about: "a problem code"},

		"tokens/{namespace}": {about: "the namespace of the token; `*`: all"},
		"{namespace}/{name}": {about: "the name of the token"},
		"nodes/{name}":       {about: "the name of a node"},
		"actions/{name}":     {about: "an action"},
		"notify/{name}":      {about: "a target of notifications"},
		"sagas/{name}":       {about: "the name of a saga"},
		"versions/{version}": {about: "the number of a version, from 1", pattern: `^[1-9][0-9]*$`},
		"namespaces/{name}":  {about: "a namespace; `*`: those without limits of their own"},
	}
}

// commonRequestHeaders are the headers that every request may have; flightHeaderNames those of answers about a flight.
func commonRequestHeaders() []string {
	return []string{wire.HeaderRequestID, "Traceparent", wire.HeaderDeployment, wire.HeaderIndex}
}
func flightHeaderNames() []string { return []string{wire.HeaderFlightID, wire.HeaderState, "ETag"} }

// commonResponseHeaders are the headers that all answers have, always or sometimes. A starting node answers 503 and
// does not know the ledger's time yet. A node that does not lead gives answers of three kinds by itself.
func commonResponseHeaders(status int) (always, sometimes []string) {
	always = []string{wire.HeaderRequestID, "Cache-Control"}
	switch status {
	case http.StatusServiceUnavailable:
		return always, []string{wire.HeaderLedgerTime, wire.HeaderIndex}
	case http.StatusOK, http.StatusNotModified, http.StatusFailedDependency:
		return append(always, wire.HeaderIndex), []string{wire.HeaderLedgerTime, wire.HeaderAge}
	}
	return append(always, wire.HeaderLedgerTime, wire.HeaderIndex), nil
}
