package remote

import (
	"time"

	"github.com/flightd/flightd/flight"
)

// OpenRequest asks for the right to perform an effect.
type OpenRequest struct {
	Key        flight.Key
	Submission flight.Submission
	// Nonce is new for each open, and the same for each repeat. Key and nonce identify the open at every node and under
	// every session: a repeat gets the same answer while the attempt is open.
	Nonce flight.Nonce
	// NotAfter is the ledger time after which the open opens nothing, at most flight.MaxOpenLife ahead. The caller sets
	// it once per nonce. 0: this node sets it.
	NotAfter flight.Time
	// Session holds the attempt; empty: a session is created for this open alone, and ends with its report.
	Session  flight.SessionID
	Owner    string
	TTL      time.Duration // of a session that is created; 0: the default
	Wait     time.Duration // how long to wait for another holder's attempt; 0: not at all
	Callback bool          // the answer to proceed has the callback URL
	// PublicURL is that of the API, without a slash at its end; "": nothing is opened for a callback.
	PublicURL string
	Trace     flight.Trace // that an attempt belongs to; zero: none
	NoNonce   bool         // the caller sent no nonce and cannot repeat the open; this node creates Nonce
	// StillAllowed is called after each wait, and before an attempt is opened. If it returns an error, that is the answer,
	// and nothing is opened. nil: the caller stays allowed.
	StillAllowed func() error
}

// OpenAnswer says how the caller continues: act (DecisionProceed, the only answer that means it), use the receipt
// (DecisionReplay), or look up the outcome first (DecisionVerify).
type OpenAnswer struct {
	Decision       flight.Decision
	Flight         *flight.Flight
	Joined         bool             // with DecisionReplay: this call has waited for another holder's attempt
	Session        flight.SessionID // the attempt's session, perhaps not the one in the request: renew and trust this one
	FencingToken   string           // with DecisionProceed
	IdempotencyKey string           // with DecisionProceed and DecisionVerify
	Input          flight.Blob      // as first submitted, with its bytes, with DecisionProceed and DecisionVerify
	Verification   string           // with DecisionVerify: the token for the VerificationRequest
	Trust          time.Duration    // counted from when the caller sent the request
	RenewEvery     time.Duration
	ResendWithin   *time.Duration  // with DecisionProceed: the effect must start within it, counted like Trust; nil: no bound
	CallbackURL    string          // with DecisionProceed, if it was asked for
	Previous       *flight.Attempt // the attempt before; nil: none
	PolicyDiffers  bool            // the first caller's policy applies, and differs from the request's
}

// AbandonRequest is the statement of the caller that created the nonce: nothing was sent under it, and nothing ever
// will be.
type AbandonRequest struct {
	Key      flight.Key
	Nonce    flight.Nonce
	NotAfter flight.Time // of the open; required
	Error    string      // why, for people
}

// ReportRequest reports the outcome of an attempt.
type ReportRequest struct {
	ID           flight.ID
	Key          flight.Key // zero: this node reads it from the flight
	FencingToken string
	Outcome      flight.Outcome
	ExternalID   string
	Body         flight.Blob
	Error        string
	RetryAfter   time.Duration // with OutcomeNotDone: the pause that the provider has asked for
}

// SuspendRequest hands an attempt over to its callback.
type SuspendRequest struct {
	ID           flight.ID
	Key          flight.Key // zero: this node reads it from the flight
	FencingToken string
	Until        flight.Time // the deadline of the callback
}

// CallbackRequest is the report of a callback.
type CallbackRequest struct {
	Token      flight.CallbackToken
	Outcome    flight.Outcome
	ExternalID string
	Body       flight.Blob
	Error      string
}

// VerificationRequest reports the finding of a look-up.
type VerificationRequest struct {
	ID           flight.ID
	Verification string
	Result       flight.Finding // FindingHappened, FindingNotHappened or FindingNone
	ExternalID   string
	Body         flight.Blob
	Open         OpenRequest // follows if the effect did not happen; needs a new nonce; Key and Submission may be zero
}

// RenewRequest renews a session.
type RenewRequest struct {
	// OpenDigest is the Digest of the attempts that the caller believes to be open under the session. If it matches, or
	// is empty, the answer lists no attempts.
	OpenDigest string
	After      flight.ID // list the flights after this one; zero: from the first
}

// SessionAnswer says how long the owner of a session may trust it, and which attempts are open under it.
type SessionAnswer struct {
	Session         flight.SessionID
	Trust           time.Duration // counted from when the caller sent the request
	RenewEvery      time.Duration
	CancelRequested []flight.ID // flights of the session for which cancellation was requested
	OpenDigest      string      // Digest of all attempts open under the session
	// Open lists the attempts open under the session, ordered by the flights' ids, at most MaxListed. It is empty if
	// the digests match.
	Open []OpenAttempt
	More bool // the list is incomplete: renew again with After
}

// OpenAttempt is one attempt that is open under a session.
type OpenAttempt struct {
	Key          flight.Key
	FlightID     flight.ID
	Nonce        flight.Nonce
	Number       uint32
	FencingToken string
}
