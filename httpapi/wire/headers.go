package wire

// Names of headers, in the canonical form of package net/http.
const (
	HeaderNamespace          = "Flightd-Namespace"
	HeaderActor              = "Flightd-Actor"
	HeaderState              = "Flightd-State"
	HeaderDeployment         = "Flightd-Deployment"  // of a request: the only deployment that may answer it
	HeaderLedgerTime         = "Flightd-Ledger-Time" // milliseconds since 1970 at which the answer was sent
	HeaderIndex              = "Flightd-Index"       // EPOCH-INDEX: how new the ledger was; see Index
	HeaderAge                = "Age"                 // RFC 9111: seconds since the answer was certainly true
	HeaderEcho               = "Flightd-Echo"        // of a request: random, and every answer repeats it
	HeaderNode               = "Flightd-Node"        // node of a cluster that took the request
	HeaderLeader             = "Flightd-Leader"      // node that leads the ledger, as that node knows it
	HeaderFlightID           = "Flightd-Flight-Id"
	HeaderReplayed           = "Idempotent-Replayed"
	HeaderIdempotencyExpires = "Idempotency-Expires"
	HeaderRequestID          = "X-Request-Id"
	HeaderRetryAfter         = "Retry-After"
	HeaderStripeRetry        = "Stripe-Should-Retry"
	HeaderShouldRetry        = "X-Should-Retry"
	HeaderPrefer             = "Prefer"
	HeaderPreferenceApplied  = "Preference-Applied"
	HeaderDigest             = "Digest"
	HeaderReceiptDigest      = "Flightd-Digest"
	HeaderReceiptSize        = "Flightd-Size"
	HeaderExternalID         = "Flightd-External-Id"
	HeaderReceiptOutcome     = "Flightd-Outcome"
	HeaderLastEvent          = "Last-Event-Id"
	HeaderAuthorization      = "Authorization"
	HeaderAuthenticate       = "Www-Authenticate"
)

// Content types.
const (
	TypeJSON = "application/json"
	// TypeIncomplete is the content type of a receipt without the caller's whole result, because the result could not be encoded as JSON.
	TypeIncomplete = "text/plain; charset=utf-8; flightd=incomplete"
	TypeProblem    = "application/problem+json"
	TypeEvents     = "text/event-stream"
	TypeTar        = "application/x-tar"
)

// The names of messages in a stream of events. Events have no name.
const (
	MessageGap        = "gap"
	MessageDuplicates = "duplicates"
)

// Limits of request bodies. Inputs and receipts have their own limits, in package flight.
const (
	DefaultWaitMS = 20_000
	MaxWaitMS     = 55_000
	// MaxOpenBody is the greatest input and 64 KiB for the other fields.
	MaxOpenBody = 256<<10 + 64<<10
	// MaxReportBody is far above the stored part of a receipt: a long receipt is truncated and not rejected.
	MaxReportBody = 16 << 20
	// MaxSmallBody is the bound of all other requests.
	MaxSmallBody = 64 << 10
)

// DefaultNamespace is the namespace of requests without HeaderNamespace.
const DefaultNamespace = "default"

// AllNamespaces is the value of HeaderNamespace that lists all namespaces.
const AllNamespaces = "*"
