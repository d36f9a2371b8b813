package wire

import (
	"encoding/json"
)

// OpenRequest is the body of POST /v1/flights:open. The namespace travels in a header.
type OpenRequest struct {
	Action      string          `json:"action" limit:"word"`
	ID          string          `json:"id" limit:"word"`
	Input       json.RawMessage `json:"input,omitzero" null:"absent"`
	Fingerprint string          `json:"fingerprint,omitzero" limit:"word"` // "sha256:…", "none", or empty: computed from the input
	Nonce       string          `json:"nonce,omitzero" limit:"nonce"`
	NotAfter    int64           `json:"not_after,omitzero" limit:"ledger_time"` // ledger time in ms after which the open has no effect
	Session     string          `json:"session,omitzero" limit:"token"`
	Owner       string          `json:"owner,omitzero" limit:"word"`
	TTLMS       int64           `json:"ttl_ms,omitzero" limit:"ms"` // of a session that this request creates
	WaitMS      *int64          `json:"wait_ms,omitzero" limit:"wait_ms"`
	Callback    bool            `json:"callback,omitzero"` // the answer proceed has a callback_url
	Policy
}

// Policy is declared by the first caller of a key. Its fields are part of the request.
type Policy struct {
	AttemptTimeoutMS int64  `json:"attempt_timeout_ms,omitzero" limit:"ms"`
	SettleMS         int64  `json:"settle_ms,omitzero" limit:"ms"`
	ProviderWindowMS int64  `json:"provider_window_ms,omitzero" limit:"ms"`
	Recovery         string `json:"recovery,omitzero" limit:"word"` // hold, resend or verify
	Lookup           bool   `json:"lookup,omitzero"`                // the caller can ask the provider, with any recovery
	VerifyAttempts   int64  `json:"verify_attempts,omitzero" limit:"tries"`
	Retention        string `json:"retention,omitzero" limit:"word"` // "30d", "12h"
	// Approval demands a person's approval before the first attempt; nil: none.
	Approval *Approval `json:"approval,omitzero"`
}

// Body is the body of a receipt in a report: any JSON, or base64 with a content type. The beginning of a long body is
// enough, marked as truncated, with the length and the digest of the whole body.
type Body struct {
	ExternalID  string          `json:"external_id,omitzero" limit:"text"`
	JSON        json.RawMessage `json:"body,omitzero"`
	Base64      []byte          `json:"body_base64,omitzero"`
	ContentType string          `json:"content_type,omitzero" limit:"word"`
	Truncated   bool            `json:"truncated,omitzero"`
	Size        int64           `json:"size,omitzero" limit:"size"`
	Digest      string          `json:"digest,omitzero" limit:"word"`
}

// AbandonRequest is the body of POST /v1/flights:abandon. The caller promises that nothing was sent under this nonce
// and that nothing will be. The namespace travels in a header.
type AbandonRequest struct {
	Action   string `json:"action" limit:"word"`
	ID       string `json:"id" limit:"word"`
	Nonce    string `json:"nonce" limit:"nonce"`
	NotAfter int64  `json:"not_after" limit:"ledger_time"` // as in the open
	Reason   string `json:"reason,omitzero" limit:"text"`
}

// ReportRequest is the body of POST /v1/flights/{id}/report.
type ReportRequest struct {
	FencingToken string `json:"fencing_token" limit:"token"`
	Key          string `json:"key,omitzero" limit:"word"` // the full key, as the answer to the open names it
	Outcome      string `json:"outcome" limit:"word"`      // succeeded, refused, not_done or unknown
	Error        string `json:"error,omitzero" limit:"text"`
	RetryAfterMS int64  `json:"retry_after_ms,omitzero"` // with not_done: the pause that the provider asked for; no value is invalid
	Body
}

// SuspendRequest is the body of POST /v1/flights/{id}/suspend. It has exactly one deadline of the callback: deadline_ms counts
// from the arrival of the request. The deadline of the first suspend counts for its repeats.
type SuspendRequest struct {
	FencingToken string `json:"fencing_token" limit:"token"`
	Key          string `json:"key,omitzero" limit:"word"`
	DeadlineMS   int64  `json:"deadline_ms,omitzero" limit:"ms"`
	Deadline     int64  `json:"deadline,omitzero" limit:"ledger_time"`
}

// CallbackRequest is the body of POST /v1/callbacks/{token} without the parameter outcome.
type CallbackRequest struct {
	Outcome string `json:"outcome" limit:"word"`
	Error   string `json:"error,omitzero" limit:"text"`
	Body
}

// VerificationRequest is the body of POST /v1/flights/{id}/verification. Session, nonce, not_after, owner, ttl_ms and
// wait_ms are used as in an open if the effect did not happen. The nonce must be new: the nonce of the open that was
// answered with the verification token cannot open an attempt any more.
type VerificationRequest struct {
	Verification string `json:"verification" limit:"token"`
	Result       string `json:"result" limit:"word"` // happened, not_happened or unknown
	Session      string `json:"session,omitzero" limit:"token"`
	Nonce        string `json:"nonce,omitzero" limit:"nonce"`
	NotAfter     int64  `json:"not_after,omitzero" limit:"ledger_time"`
	Owner        string `json:"owner,omitzero" limit:"word"`
	TTLMS        int64  `json:"ttl_ms,omitzero" limit:"ms"`
	WaitMS       *int64 `json:"wait_ms,omitzero" limit:"wait_ms"`
	Callback     bool   `json:"callback,omitzero"`
	Body
}

// OperatorRequest is the body of POST /v1/flights/{id}/cancel, /retry, /free and /redact.
type OperatorRequest struct {
	Key    string `json:"key,omitzero" limit:"word"` // required to free a tombstone, which does not have its key
	Reason string `json:"reason" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"` // the person who decides; the header Flightd-Actor has the same meaning
}

// ResolveRequest is the body of POST /v1/flights/{id}/resolve.
type ResolveRequest struct {
	Result string `json:"result" limit:"word"` // happened, not_happened or fail
	Reason string `json:"reason" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"`
	// NoReceipt states that the person has neither a body nor an external id, with happened.
	NoReceipt bool `json:"no_receipt,omitzero"`
	Body
}
