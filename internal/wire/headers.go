package wire

// Names of headers, in the canonical form of package net/http.
const (
	HeaderNamespace      = "Flightd-Namespace"
	HeaderActor          = "Flightd-As"
	HeaderState          = "Flightd-State"
	HeaderDeployment     = "Flightd-Deployment"  // of a request: the only one that may answer it
	HeaderLedgerTime     = "Flightd-Ledger-Time" // milliseconds since 1970, of the moment at which the answer was sent
	HeaderFlightID       = "Flight-Id"
	HeaderReplayed       = "Idempotent-Replayed"
	HeaderExpires        = "Idempotency-Expires"
	HeaderRequestID      = "X-Request-Id"
	HeaderRetryAfter     = "Retry-After"
	HeaderStripeRetry    = "Stripe-Should-Retry"
	HeaderShouldRetry    = "X-Should-Retry"
	HeaderPrefer         = "Prefer"
	HeaderApplied        = "Preference-Applied"
	HeaderDigest         = "Digest"
	HeaderReceiptDigest  = "Flightd-Digest"
	HeaderReceiptSize    = "Flightd-Size"
	HeaderExternalID     = "Flightd-External-Id"
	HeaderReceiptOutcome = "Flightd-Outcome"
	HeaderLastEvent      = "Last-Event-Id"
)

// Content types.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
	TypeEvents  = "text/event-stream"
)

// The names of messages in a stream of events. Events themselves have none.
const (
	MessageGap        = "gap"
	MessageDuplicates = "duplicates"
)

// Bounds of requests; see API.md 4a for those of inputs and receipts.
const (
	DefaultWaitMS = 20_000
	MaxWaitMS     = 55_000
	// MaxOpenBody leaves room for the other fields beside an input of the greatest length.
	MaxOpenBody = 256<<10 + 64<<10
	// MaxReportBody is far above what is kept of a receipt: a long one is shortened and not refused.
	MaxReportBody = 16 << 20
	// MaxSmallBody is enough for everything else.
	MaxSmallBody = 64 << 10
)

// DefaultNamespace is that of callers who name none.
const DefaultNamespace = "default"

// AllNamespaces stands in HeaderNamespace for all of them, where something is listed.
const AllNamespaces = "*"
