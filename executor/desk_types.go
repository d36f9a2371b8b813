package executor

import (
	"time"

	"github.com/flightd/flightd/flight"
)

// OpenRequest asks for permission to perform an effect.
type OpenRequest struct {
	Key        flight.Key
	Submission flight.Submission
	// Nonce is one per open that is wanted: a repeat with the same session and nonce gets the same answer while that
	// attempt is open.
	Nonce flight.Nonce
	// Session holds the claim; empty: one is made for this flight alone, and ends with its report.
	Session flight.SessionID
	Owner   string
	TTL     time.Duration // of a session that is made; 0: the default
	Wait    time.Duration // how long to wait for somebody else's attempt; 0: not at all
}

// unnamed begins the nonces of callers who bring none: it tells them from those that a caller can list, also in the ledger,
// and so after a restart and at another node.
const unnamed = "unnamed:"

// UnnamedNonce is the nonce for a caller who brings none. It cannot repeat itself, nor list what it holds.
func UnnamedNonce() flight.Nonce {
	n := newNonce()
	copy(n[:], unnamed)
	return n
}

func isUnnamed(n flight.Nonce) bool { return string(n[:len(unnamed)]) == unnamed }

// OpenAnswer is what may be done now: act (Proceed, the only answer that means it), take the receipt (Replay), or
// look first (Look).
type OpenAnswer struct {
	Decision       flight.Decision
	Flight         *flight.Flight
	Joined         bool // with Replay: it was somebody else's attempt that was waited for
	Session        flight.SessionID
	FencingToken   string        // with Proceed
	IdempotencyKey string        // with Proceed and Look
	Input          flight.Blob   // with its data, as first submitted, with Proceed and Look
	Probe          string        // with Look: what a verdict must bring
	Trust          time.Duration // counted from before the request was served
	RenewEvery     time.Duration
	Previous       *flight.Attempt // the attempt before, nil when there is none
	PolicyDiffers  bool            // the first caller's policy, another one, stands
}

// ReportRequest brings the outcome of an attempt.
type ReportRequest struct {
	ID           flight.ID
	FencingToken string
	Outcome      flight.Outcome
	ExternalID   string
	Body         flight.Blob
	Error        string
}

// VerdictRequest brings the result of a look-up.
type VerdictRequest struct {
	ID         flight.ID
	Probe      string
	Result     flight.Verb // Happened, DidNotHappen, NoVerb
	ExternalID string
	Body       flight.Blob
	Open       OpenRequest // what to open when it did not happen; Key and Submission may be left out
}

// Renewal is what a caller says when it renews its session.
type Renewal struct {
	Nonces []flight.Nonce // of the opens that it awaits or holds; nil: it says nothing of them
	Seen   flight.Version // in the last answer about the session that it has had; zero: it does not say
}

// SessionAnswer says how long a session's holder may believe in it.
type SessionAnswer struct {
	Session         flight.SessionID
	Trust           time.Duration // counted from before the request was served
	RenewEvery      time.Duration
	Version         flight.Version // of the ledger, when the request was served
	CancelRequested []flight.ID    // flights of the session that somebody wants cancelled
}
