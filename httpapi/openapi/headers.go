package openapi

import (
	"net/http"
	"slices"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/internal/wire"
)

// header is what the document says of a header.
type header struct {
	Description string  `json:"description"`
	Required    bool    `json:"required,omitempty"` // of a request: it is refused without; of an answer: it is always there
	Schema      *Schema `json:"schema"`
	example     string
}

const etagPattern = `^"[0-9]+\.[0-9]+"$`

func text(pattern string) *Schema     { return &Schema{Type: "string", Pattern: pattern} }
func oneOf(enum ...string) *Schema    { return &Schema{Type: "string", Enum: enum} }
func number(from, to int64) *Schema   { return &Schema{Type: "integer", Minimum: &from, Maximum: &to} }
func seconds(about string) header     { return header{Description: about, Schema: number(0, 1<<31)} }
func flag(about, value string) header { return header{Description: about, Schema: oneOf(value)} }

// requestHeaders are those that a request may have.
func requestHeaders() map[string]header {
	return joined(
		callerHeaders(),
		conditionHeaders(),
	)
}

// answerHeaders are those that an answer may have.
func answerHeaders() map[string]header {
	return joined(
		flightHeaders(),
		receiptHeaders(),
	)
}

func callerHeaders() map[string]header {
	return map[string]header{
		wire.HeaderNamespace: {Description: "the namespace part of the key, and of what is listed; `default` where it is not there. In lists and events `*` is all of them", Schema: &Schema{Type: "string",
			Pattern: `^(\*|[A-Za-z0-9._-]+)$`, MaxLength: 255}},
		effect.HeaderIdempotencyKey: {Description: "need not be sent; it must be the id or the full key of the flight then, bare or quoted, or the request is refused", Schema: text("")},
		wire.HeaderDeployment:       {Description: "the deployment that the caller belongs to, as `/version` names it: one of another deployment answers `wrong_deployment`. Send it with every request, so that an address that leads elsewhere does not let an effect happen again", Schema: text("")},
		wire.HeaderActor:            {Description: "who decides; the field `as` says the same", Schema: text("")},
		"Traceparent":               {Description: "the trace that the request belongs to, as of W3C Trace Context; it stands in problems and in the log", Schema: text("")},
		wire.HeaderRequestID:        {Description: "names the request in the server's log: letters, digits, `.`, `_` and `-`, at most 64; one is made up where there is none", Schema: text("")},
	}
}

func conditionHeaders() map[string]header {
	return map[string]header{
		"If-Match":           {Description: "the ETag of the flight that the decision was made on; `*` is refused", Schema: text(etagPattern), Required: true},
		"If-None-Match":      {Description: "the ETag of the flight as it was seen: answer only when it has another version. Several are a list, `*` is any version, and what is no ETag of ours matches none", Schema: text(`^[\s,]*(\*|(W/)?"[^"]*")(\s*,[\s,]*(\*|(W/)?"[^"]*"))*[\s,]*$`), example: `"8123.4"`},
		wire.HeaderLastEvent: {Description: "the id of the last event that was seen of a stream: it goes on behind it", Schema: text(versionPattern), example: "8123.4"},
		wire.HeaderPrefer: {Description: "`wait=N` (RFC 7240): with If-None-Match, wait up to N seconds, at most 55, for another version; Preference-Applied says how many", Schema: text(""),
			example: "wait=20"},
	}
}

func flightHeaders() map[string]header {
	return map[string]header{
		wire.HeaderRequestID:   {Description: "names the request in the server's log", Schema: text("")},
		wire.HeaderLedgerTime:  {Description: "the ledger's time when the answer was sent, in milliseconds since 1970; not there while the node starts", Schema: number(0, wire.MaxLedgerTime)},
		"Cache-Control":        flag("nothing is to be kept by a cache", "no-store"),
		wire.HeaderFlightID:    {Description: "the id of the flight", Schema: text(flightIDPattern)},
		wire.HeaderState:       {Description: "where the flight stands", Schema: oneOf(states()...)},
		"ETag":                 {Description: "the version of the flight, for If-Match and If-None-Match", Schema: text(etagPattern)},
		wire.HeaderReplayed:    {Description: "`true`: the outcome was in the ledger; `false`: it came about now", Schema: oneOf("true", "false")},
		wire.HeaderExpires:     {Description: "when the retention of the receipt is over, as an HTTP date", Schema: text("")},
		wire.HeaderRetryAfter:  seconds("in how many seconds it is worth asking again"),
		wire.HeaderStripeRetry: flag("tells clients that retry by themselves not to", "false"),
		wire.HeaderShouldRetry: flag("tells clients that retry by themselves not to", "false"),
		wire.HeaderApplied:     {Description: "the preference that was followed", Schema: text(`^wait=[0-9]+$`)},
		"Link":                 {Description: "the next page, with `rel=\"next\"`", Schema: text("")},
		"X-Accel-Buffering":    flag("of a stream: proxies are not to keep it back", "no"),
		"Vary":                 {Description: "the answer depends on this header of the request", Schema: text("")},
	}
}

func receiptHeaders() map[string]header {
	return map[string]header{
		wire.HeaderReceiptOutcome: {Description: "`succeeded` or `refused`", Schema: oneOf("succeeded", "refused")},
		wire.HeaderReceiptDigest:  {Description: "over the whole body, also where only its beginning is kept", Schema: text(digestPattern)},
		wire.HeaderReceiptSize:    {Description: "the full length of the body in bytes, also where it was shortened", Schema: number(0, 1<<31)},
		wire.HeaderExternalID:     {Description: "the id of what the effect made at the provider, percent-encoded", Schema: text("")},
		wire.HeaderDigest:         {Description: "over the bytes of this answer, where they are the whole body", Schema: text(`^sha-256=`)},
		"X-Content-Type-Options":  flag("the bytes are the provider's: no browser may take them for something else", "nosniff"),
		"Content-Security-Policy": {Description: "no browser may run what is in the body", Schema: text("")},
	}
}

// pathWords says what each name in a path is, with the segment before it.
func pathWords() map[string]words {
	return map[string]words{
		"flights/{id}":    {about: "the id of a flight", pattern: flightIDPattern},
		"sessions/{id}":   {about: "the id of a session"},
		"problems/{code}": {about: "a code"},
	}
}

// everyRequest are headers that any request may have, and aboutFlights those of answers about a flight.
func everyRequest() []string {
	return []string{wire.HeaderRequestID, "Traceparent", wire.HeaderDeployment}
}
func aboutFlights() []string { return []string{wire.HeaderFlightID, wire.HeaderState, "ETag"} }

// everyAnswer are headers that all answers have. A node that starts answers 503 and knows no ledger time yet.
func everyAnswer(status int) (always, sometimes []string) {
	always, sometimes = []string{wire.HeaderRequestID, "Cache-Control"}, []string{wire.HeaderLedgerTime}
	if status != http.StatusServiceUnavailable {
		always, sometimes = append(always, sometimes...), nil
	}
	return always, sometimes
}

// isEverywhere reports whether all answers have the header.
func isEverywhere(name string) bool {
	always, _ := everyAnswer(http.StatusOK)
	return slices.Contains(always, name)
}
