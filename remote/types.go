package remote

import (
	"time"

	"github.com/flightd/flightd/flight"
)

// OpenRequest asks for permission to perform an effect.
type OpenRequest struct {
	Key        flight.Key
	Submission flight.Submission
	// Nonce is one per open that is wanted. Key and nonce identify the open, through whichever node and session it comes:
	// a repeat gets the same answer while its attempt is open.
	Nonce flight.Nonce
	// NotAfter is the ledger time after which the open opens nothing, at most flight.MaxOpenLife ahead. A caller sets it
	// once per nonce. 0: this node sets it.
	NotAfter flight.Time
	// Session holds the attempt; empty: one is made for this open alone, and ends with its report.
	Session flight.SessionID
	Owner   string
	TTL     time.Duration // of a session that is made; 0: the default
	Wait    time.Duration // how long to wait for somebody else's attempt; 0: not at all
	Unnamed bool          // the caller sent no nonce: it cannot repeat the open, so Nonce was made for it here
}

// OpenAnswer is what may be done now: act (Proceed, the only answer that means it), take the receipt (Replay), or
// look first (Look).
type OpenAnswer struct {
	Decision       flight.Decision
	Flight         *flight.Flight
	Joined         bool             // with Replay: somebody else's attempt was waited for
	Session        flight.SessionID // the attempt's, which need not be the one that the caller sent: renew and trust this one
	FencingToken   string           // with Proceed
	IdempotencyKey string           // with Proceed and Look
	Input          flight.Blob      // with its data, as first submitted, with Proceed and Look
	Probe          string           // with Look: what a verdict must bring
	Trust          time.Duration    // counted from before the request was served
	RenewEvery     time.Duration
	Resend         *time.Duration  // with Proceed: the effect starts within it, counted like Trust, or not at all; nil: no bound
	Previous       *flight.Attempt // the attempt before, nil when there is none
	PolicyDiffers  bool            // the first caller's policy, another one, stands
}

// AbandonRequest is the word of the caller that made the nonce: nothing was sent, and nothing ever will be under it.
type AbandonRequest struct {
	Key      flight.Key
	Nonce    flight.Nonce
	NotAfter flight.Time // of the open; required
	Error    string      // why, for people
}

// ReportRequest brings the outcome of an attempt.
type ReportRequest struct {
	ID           flight.ID
	Key          flight.Key // zero: this node looks it up
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
	Open       OpenRequest // what to open when it did not happen, under a nonce of its own; Key and Submission may be left out
}

// Renewal is what a caller says when it renews its session.
type Renewal struct {
	// OpenDigest is the Digest of what the caller believes to be open under the session. Where it is right the answer
	// lists nothing. Empty: it does not say.
	OpenDigest string
	After      flight.ID // list what comes behind this flight; zero: from the first one on
}

// SessionAnswer says how long a session's owner may trust it, and what is open under it.
type SessionAnswer struct {
	Session         flight.SessionID
	Trust           time.Duration // counted from before the request was served
	RenewEvery      time.Duration
	CancelRequested []flight.ID // flights of the session that somebody wants cancelled
	OpenDigest      string      // Digest of all attempts open under the session
	// Open lists the attempts open under the session, in the order of their flights' ids, at most MaxListed, where the
	// digests differ.
	Open []OpenAttempt
	More bool // there are more: renew again with After
}

// OpenAttempt is one attempt that is open under a session.
type OpenAttempt struct {
	Key          flight.Key
	FlightID     flight.ID
	Nonce        flight.Nonce
	Number       uint32
	FencingToken string
}
