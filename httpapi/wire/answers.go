package wire

import (
	"encoding/json"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flightd/flightd/internal/strictjson"
)

// Time is a time as the API writes it: RFC 3339 in UTC with milliseconds.
type Time struct{ time.Time }

// TimeFormat is RFC 3339 in UTC with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) { return t.appendJSON(nil), nil }

// MarshalJSONTo writes the same as MarshalJSON without allocating.
func (t Time) MarshalJSONTo(to *jsontext.Encoder) error {
	return to.WriteValue(t.appendJSON(to.AvailableBuffer()))
}

// appendJSON appends the time in TimeFormat. AppendFormat is fast only for its own RFC 3339 layout.
func (t Time) appendJSON(b []byte) []byte {
	b = t.UTC().AppendFormat(append(b, '"'), time.RFC3339)
	ms := t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z', '"')
}

// The decisions about an open. The caller may start the effect only after DecisionProceed.
const (
	DecisionProceed = "proceed"
	DecisionReplay  = "replay"
	DecisionVerify  = "verify"
)

// OpenAnswer is the answer to an open or a verification.
type OpenAnswer struct {
	Decision         string          `json:"decision"`
	Nonce            string          `json:"nonce,omitzero"` // the nonce of the answered open
	FlightID         string          `json:"flight_id,omitzero"`
	Key              string          `json:"key,omitzero"`
	Generation       uint32          `json:"generation,omitzero"`
	Attempt          uint32          `json:"attempt,omitzero"`
	FencingToken     string          `json:"fencing_token,omitzero"`
	IdempotencyKey   string          `json:"idempotency_key,omitzero"`
	Verification     string          `json:"verification,omitzero"`
	Input            json.RawMessage `json:"input,omitzero"` // as the first caller submitted it: send this input, not your own
	InputBase64      []byte          `json:"input_base64,omitzero"`
	InputContentType string          `json:"input_content_type,omitzero"`
	Session          string          `json:"session,omitzero"`
	TrustMS          int64           `json:"trust_ms,omitzero"` // counted from when the request was sent
	RenewEveryMS     int64           `json:"renew_every_ms,omitzero" limit:"count"`
	ResendMS         *int64          `json:"resend_ms,omitzero" limit:"count"` // counted like trust_ms: the effect must start within it, or not at all; nil: no bound
	CallbackURL      string          `json:"callback_url,omitzero"`            // with callback: a secret; its bearer may report the attempt
	Traceparent      string          `json:"traceparent,omitzero"`             // with proceed: of the attempt's span, for the provider
	Deployment       string          `json:"deployment,omitzero"`              // owns the attempt and takes its report
	PolicyDiffers    bool            `json:"policy_differs,omitzero"`          // the first caller declared another policy, which applies
	Policy           *Policy         `json:"policy,omitzero"`                  // the policy that applies, if it differs
	Previous         *Attempt        `json:"previous,omitzero"`
	Flight           *Flight         `json:"flight,omitzero"` // with replay
}

// AbandonAnswer is the answer to an abandon.
type AbandonAnswer struct {
	Nonce string `json:"nonce"` // of the abandoned open
}

// CallbackAnswer is the answer to a callback. It says nothing more of the flight: a provider is not a caller.
type CallbackAnswer struct {
	Outcome string `json:"outcome"` // that is recorded
}

// Attempt is one try to perform the effect.
type Attempt struct {
	Attempt  uint32 `json:"attempt"`
	Outcome  string `json:"outcome,omitzero"` // empty while the attempt is open
	Error    string `json:"error,omitzero"`
	Owner    string `json:"owner,omitzero"`
	Lost     bool   `json:"lost,omitzero"` // declared lost: no report came
	OpenedAt Time   `json:"opened_at,omitzero"`
	ClosedAt Time   `json:"closed_at,omitzero"`
}

// Flight is the record of one key as the API shows it.
type Flight struct {
	ID                  string               `json:"id"`
	Key                 string               `json:"key,omitzero"`    // empty in a tombstone
	Action              string               `json:"action,omitzero"` // of the workers that claim the job, where the key names another
	State               string               `json:"state"`
	Source              string               `json:"source,omitzero"` // of this answer: executed, joined or replayed
	Version             string               `json:"version"`
	Generation          uint32               `json:"generation"`
	Attempts            uint32               `json:"attempts,omitzero"` // 0 in a tombstone
	Recovery            string               `json:"recovery,omitzero"`
	Fingerprint         string               `json:"fingerprint,omitzero"`
	Cause               string               `json:"cause,omitzero"` // the reason for in doubt, failed or cancelled
	Tainted             bool                 `json:"tainted,omitzero"`
	Verifying           bool                 `json:"verifying,omitzero"` // a verification is due
	Overlap             bool                 `json:"overlap,omitzero"`   // evidence of a second effect was seen
	CreatedAt           Time                 `json:"created_at,omitzero"`
	NotBefore           Time                 `json:"not_before,omitzero"`
	HeldUntil           Time                 `json:"held_until,omitzero"`     // the open attempt is not taken over before this time: etcd lost its claim
	CallbackUntil       Time                 `json:"callback_until,omitzero"` // the attempt waits for its callback, until then
	BlockedBy           []Block              `json:"blocked_by,omitempty"`    // of a single flight: what it waits for; changes without the version
	FinishedAt          Time                 `json:"finished_at,omitzero"`
	ExpiresAt           Time                 `json:"expires_at,omitzero"`
	CancelRequested     *Attribution         `json:"cancel_requested,omitzero"`
	Approval            *ApprovalRequest     `json:"approval,omitzero"` // the flight awaits approval
	Resolution          *Resolution          `json:"resolution,omitzero"`
	Redacted            *Attribution         `json:"redacted,omitzero"` // the bytes of the input and the receipt were erased
	LastAttempt         *Attempt             `json:"last_attempt,omitzero"`
	Receipt             *Receipt             `json:"receipt,omitzero"`
	Duplicates          *DuplicateStats      `json:"duplicates,omitzero"` // in lists, of a flight in doubt
	Evidence            []Evidence           `json:"evidence,omitempty"`
	EvidenceMore        uint32               `json:"evidence_more,omitzero"`
	PreviousGenerations []PreviousGeneration `json:"previous_generations,omitempty"`
}

// Attribution names the person who asked for a change, with the reason and the time.
type Attribution struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason,omitzero"`
	At     Time   `json:"at,omitzero"`
}

// Resolution is a person's decision about a flight in doubt, or about its approval. An approval that expired is rejected, and
// names no actor.
type Resolution struct {
	Result string `json:"result"`
	Attribution
}

// Receipt is the stored first outcome of a flight. Every duplicate gets the same bytes. In a tombstone only the
// outcome and the digest are left.
type Receipt struct {
	Outcome     string          `json:"outcome"` // succeeded or refused
	ExternalID  string          `json:"external_id,omitzero"`
	ContentType string          `json:"content_type,omitzero"`
	Body        json.RawMessage `json:"body,omitzero"`               // if it is JSON
	BodyBase64  []byte          `json:"body_base64,omitzero"`        // if it is not JSON, or was truncated
	Size        int             `json:"size,omitzero" limit:"count"` // full length in bytes
	Truncated   bool            `json:"truncated,omitzero"`
	Digest      string          `json:"digest"` // of the whole body
	Attempt     uint32          `json:"attempt,omitzero"`
	From        string          `json:"from,omitzero"` // report, lookup, person or import
	At          Time            `json:"at,omitzero"`
}

// Evidence is a report that came too late. It is stored and shown, and never overwrites anything.
type Evidence struct {
	Generation uint32 `json:"generation"`
	Attempt    uint32 `json:"attempt"`
	Outcome    string `json:"outcome"`
	ExternalID string `json:"external_id,omitzero"`
	Digest     string `json:"digest,omitzero"`
	Error      string `json:"error,omitzero"`
	At         Time   `json:"at,omitzero"`
}

// PreviousGeneration is the summary of an earlier generation of a key.
type PreviousGeneration struct {
	Generation uint32 `json:"generation"`
	State      string `json:"state"`
	Actor      string `json:"actor,omitzero"`
	Reason     string `json:"reason,omitzero"`
	At         Time   `json:"at,omitzero"`
	ExternalID string `json:"external_id,omitzero"`
	Digest     string `json:"digest,omitzero"`
}

// FlightPage is the answer of GET /v1/flights. Its flights have no bodies of receipts.
type FlightPage struct {
	Flights []Flight `json:"flights"`
	Next    string   `json:"next,omitzero"` // the cursor of the next page; empty on the last page
}

// Event is one entry in the history of a flight.
type Event struct {
	ID         string `json:"id"`                 // the version of the flight that it created
	FlightID   string `json:"flight_id,omitzero"` // in lists of several flights, and in streams
	Key        string `json:"key,omitzero"`
	Document   string `json:"document,omitzero"` // of an event about a document: namespace/kind/name
	Kind       string `json:"kind"`
	At         Time   `json:"at"`
	Generation uint32 `json:"generation,omitzero"`
	Attempt    uint32 `json:"attempt,omitzero"`
	Outcome    string `json:"outcome,omitzero"`
	Actor      string `json:"actor,omitzero"`
	Note       string `json:"note,omitzero"`
	Count      uint64 `json:"count,omitzero"` // with duplicates: how many
}

// History is the answer of GET /v1/flights/{id}/events.
type History struct {
	FlightID   string          `json:"flight_id"`
	Events     []Event         `json:"events"`
	Next       string          `json:"next,omitzero"` // the position after which to continue; empty on the last page
	Duplicates *DuplicateStats `json:"duplicates,omitzero"`
}

// DuplicateStats counts the calls of a key that were answered without another effect.
type DuplicateStats struct {
	Count   uint64   `json:"count"` // a crash may lose the calls of the last second
	FirstAt Time     `json:"first_at"`
	LastAt  Time     `json:"last_at"`
	Callers []Caller `json:"callers"` // the last eight, newest last
}

// Caller is the name that a caller gave itself, and the time of its call.
type Caller struct {
	Actor string `json:"actor"`
	At    Time   `json:"at"`
}

// EventPage is the answer of GET /v1/events.
type EventPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next"` // the position after which to continue; never empty
}

// Gap replaces events that are no longer available in a stream.
type Gap struct {
	After string `json:"after"` // events after this position are missing
	Until string `json:"until"` // up to this position, inclusive
}

// Version is the answer of GET /version.
type Version struct {
	Version      string `json:"version"`
	API          string `json:"api"` // v1
	Go           string `json:"go,omitzero"`
	Deployment   string `json:"deployment,omitzero"`
	LedgerTime   int64  `json:"ledger_time"`            // milliseconds since 1970
	FeatureLevel uint32 `json:"feature_level,omitzero"` // of the ledger
}

// Ready is the answer of GET /readyz. Checks are present with ?verbose or if one of them fails, Node only with
// ?verbose.
type Ready struct {
	Ready  bool        `json:"ready"`
	Ledger *LedgerInfo `json:"ledger,omitzero"`
	Checks []Check     `json:"checks,omitempty"`
	Node   *Node       `json:"node,omitzero"`
}

// LedgerInfo describes what a ledger holds, so that a person notices the wrong one. A server that needs a token says
// without one only whether the ledger is empty.
type LedgerInfo struct {
	Empty   bool  `json:"empty"` // no key was ever used
	Flights int64 `json:"flights,omitzero"`
	InDoubt int64 `json:"in_doubt,omitzero"`
	Newest  Time  `json:"newest,omitzero"` // when the newest flight was created
}

// Node describes a node to its operators.
type Node struct {
	Time       Time   `json:"time"`                 // by its own clock
	LedgerTime Time   `json:"ledger_time,omitzero"` // the time that the ledger would record now; absent where the node does not lead
	Data       string `json:"data"`                 // its data directory
	Spool      *Spool `json:"spool,omitzero"`
	Etcd       *Etcd  `json:"etcd,omitzero"`

	DiskFree           uint64 `json:"disk_free,omitzero"`              // bytes on the disk of the ledger; 0: unknown
	LedgerBytes        uint64 `json:"ledger_bytes,omitzero"`           // of the ledger and its log on that disk
	CertificateExpires Time   `json:"certificate_expires_at,omitzero"` // of the API; absent without TLS
	// NotifyFailing names the targets of notifications that have taken nothing for a minute, at the node that leads.
	NotifyFailing []string `json:"notify_failing,omitempty"`
}

// Spool counts the reports on a node's disk that its ledger has not stored yet.
type Spool struct {
	Waiting     int `json:"waiting"`
	Quarantined int `json:"quarantined"` // quarantined: the node cannot read them
}

// Etcd is the state of the etcd that stores the claims of a node.
type Etcd struct {
	Version   string `json:"version"`
	Problem   string `json:"problem,omitzero"` // why this version must not be used
	Revision  int64  `json:"revision"`
	Compacted int64  `json:"compacted"` // older revisions are gone; 0: none is
	Size      int64  `json:"size"`      // bytes of its file
	InUse     int64  `json:"in_use"`    // bytes of the file that are in use
	Quota     int64  `json:"quota"`     // bytes at which etcd rejects writes; 0: unknown

	Endpoints []EtcdMember `json:"endpoints,omitzero"` // of an etcd of the operator's own; none: the node embeds a member
}

// EtcdMember is a member of an etcd of the operator's own, as the node reaches it.
type EtcdMember struct {
	URL     string `json:"url"`
	Version string `json:"version,omitzero"`
	Error   string `json:"error,omitzero"` // why it does not answer
}

// Check is one part of a node and whether it is ready.
type Check struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitzero"`
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type         string       `json:"type"`
	Title        string       `json:"title"`
	Status       int          `json:"status"`
	Detail       string       `json:"detail,omitzero"`
	Code         Code         `json:"code"`
	Retryable    bool         `json:"retryable"`
	Hint         string       `json:"hint,omitzero"`
	FlightID     string       `json:"flight_id,omitzero"`
	Key          string       `json:"key,omitzero"`
	Nonce        string       `json:"nonce,omitzero"`   // of the open or the abandon that is answered
	Session      string       `json:"session,omitzero"` // of the renewal or the close that is answered
	State        string       `json:"state,omitzero"`
	Version      string       `json:"version,omitzero"` // of the flight, for If-Match
	RetryAfterMS int64        `json:"retry_after_ms,omitzero"`
	Errors       []FieldError `json:"errors,omitempty"`
	RequestID    string       `json:"request_id,omitzero"`
	TraceID      string       `json:"trace_id,omitzero"` // of the request's traceparent
	Outcome      string       `json:"outcome,omitzero"`  // after the retention: the outcome of the flight
	Digest       string       `json:"digest,omitzero"`   // after the retention: the digest of the receipt
	Decision     string       `json:"decision,omitzero"`
	Flight       *Flight      `json:"flight,omitzero"`      // with flight_failed
	Proposed     *bool        `json:"proposed,omitzero"`    // with idempotency_in_flight and in_doubt: the open was proposed
	LedgerTime   int64        `json:"ledger_time,omitzero"` // with open_expired: milliseconds since 1970
}

// FieldError is one place in a request, and its fault. The place is a JSON pointer into the body, or the name of a
// header or of a query parameter.
type FieldError struct {
	Pointer   string `json:"pointer,omitzero"`
	Header    string `json:"header,omitzero"`
	Parameter string `json:"parameter,omitzero"`
	Detail    string `json:"detail"`
}

// MarshalJSON implements json.Marshaler. A FieldError about the whole document has the pointer "".
func (e FieldError) MarshalJSON() ([]byte, error) {
	if e.Pointer == "" && e.Header == "" && e.Parameter == "" {
		return strictjson.Append(nil, struct {
			Pointer string `json:"pointer"`
			Detail  string `json:"detail"`
		}{Detail: e.Detail}), nil
	}
	type fields FieldError // without this method
	return strictjson.Append(nil, fields(e)), nil
}
