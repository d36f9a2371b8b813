package wire

import "encoding/json"

// OpenRequest is the body of POST /v1/flights:open. The namespace travels in a header.
type OpenRequest struct {
	Action      string          `json:"action"`
	ID          string          `json:"id"`
	Input       json.RawMessage `json:"input,omitempty"`
	Fingerprint string          `json:"fingerprint,omitempty"` // "sha256:…", "none", or empty: taken of the input
	Nonce       string          `json:"nonce,omitempty"`
	NotAfter    int64           `json:"not_after,omitempty"` // ledger time in ms after which the open opens nothing
	Session     string          `json:"session,omitempty"`
	Owner       string          `json:"owner,omitempty"`
	TTLMS       int64           `json:"ttl_ms,omitempty"` // of a session made by this request
	WaitMS      *int64          `json:"wait_ms,omitempty"`
	Policy
}

// Policy is what the first caller of a key declares. Its fields stand beside the others of a request.
type Policy struct {
	AttemptTimeoutMS int64  `json:"attempt_timeout_ms,omitempty"`
	SettleMS         int64  `json:"settle_ms,omitempty"`
	ProviderWindowMS int64  `json:"provider_window_ms,omitempty"`
	Recovery         string `json:"recovery,omitempty"` // hold, resend or verify
	Lookup           bool   `json:"lookup,omitempty"`   // the provider can be asked, whatever the recovery
	LookTries        int64  `json:"look_tries,omitempty"`
	Retention        string `json:"retention,omitempty"` // "30d", "12h"
}

// Body is the body of a receipt as a caller reports it: any JSON, or base64 with a content type. Of a long one the
// beginning is enough, marked as truncated, with the full length and the digest over all of it.
type Body struct {
	ExternalID  string          `json:"external_id,omitempty"`
	JSON        json.RawMessage `json:"body,omitempty"`
	Base64      []byte          `json:"body_base64,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	Truncated   bool            `json:"truncated,omitempty"`
	Size        int64           `json:"size,omitempty"`
	Digest      string          `json:"digest,omitempty"`
}

// AbandonRequest is the body of POST /v1/flights:abandon: nothing was sent under this nonce, and nothing ever will be.
// The namespace travels in a header.
type AbandonRequest struct {
	Action   string `json:"action"`
	ID       string `json:"id"`
	Nonce    string `json:"nonce"`
	NotAfter int64  `json:"not_after"` // as in the open
	Reason   string `json:"reason,omitempty"`
}

// ReportRequest is the body of POST /v1/flights/{id}/report.
type ReportRequest struct {
	FencingToken string `json:"fencing_token"`
	Key          string `json:"key,omitempty"` // the full key, as the answer to the open names it
	Outcome      string `json:"outcome"`       // succeeded, refused, not_done or unknown
	Error        string `json:"error,omitempty"`
	Body
}

// VerdictRequest is the body of POST /v1/flights/{id}/verdict. What to open when the effect did not happen follows
// from the probe; session, nonce, not_after, owner, ttl_ms and wait_ms are those of an open. The nonce is a new one: that
// of the open which was answered with the probe opens nothing any more.
type VerdictRequest struct {
	Probe    string `json:"probe"`
	Result   string `json:"result"` // happened, not_happened or unknown
	Session  string `json:"session,omitempty"`
	Nonce    string `json:"nonce,omitempty"`
	NotAfter int64  `json:"not_after,omitempty"`
	Owner    string `json:"owner,omitempty"`
	TTLMS    int64  `json:"ttl_ms,omitempty"`
	WaitMS   *int64 `json:"wait_ms,omitempty"`
	Body
}

// OperatorRequest is the body of POST /v1/flights/{id}/cancel, /retry, /free and /redact.
type OperatorRequest struct {
	Key    string `json:"key,omitempty"` // needed to free a tombstone, which does not know its own
	Reason string `json:"reason"`
	As     string `json:"as,omitempty"` // who decides; the header Flightd-As says the same
}

// ResolveRequest is the body of POST /v1/flights/{id}/resolve.
type ResolveRequest struct {
	Result string `json:"result"` // happened, not_happened or fail
	Reason string `json:"reason"`
	As     string `json:"as,omitempty"`
	Body
}
