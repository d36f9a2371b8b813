package wire

import (
	"encoding/json"
	"time"
)

// Time is a moment as the API writes it: RFC 3339 in UTC with milliseconds.
type Time struct{ time.Time }

// TimeFormat is RFC 3339 in UTC with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(make([]byte, 0, 26), `"`+TimeFormat+`"`), nil
}

// The decisions of an open. Only Proceed means act.
const (
	DecisionProceed = "proceed"
	DecisionReplay  = "replay"
	DecisionVerify  = "verify"
)

// OpenAnswer is the answer to an open or a verdict.
type OpenAnswer struct {
	Decision       string          `json:"decision"`
	Nonce          string          `json:"nonce,omitempty"` // of the open that this answers
	FlightID       string          `json:"flight_id,omitempty"`
	Key            string          `json:"key,omitempty"`
	Generation     uint32          `json:"generation,omitempty"`
	Attempt        uint32          `json:"attempt,omitempty"`
	FencingToken   string          `json:"fencing_token,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	Probe          string          `json:"probe,omitempty"`
	Input          json.RawMessage `json:"input,omitempty"` // as first submitted: send this, not your own
	InputBase64    []byte          `json:"input_base64,omitempty"`
	InputType      string          `json:"input_content_type,omitempty"`
	Session        string          `json:"session,omitempty"`
	TrustMS        int64           `json:"trust_ms,omitempty"` // counted from when the request was sent
	RenewEveryMS   int64           `json:"renew_every_ms,omitempty"`
	ResendMS       *int64          `json:"resend_ms,omitempty"`      // counted like trust_ms: the effect starts within it, or not at all; nil: no bound
	Deployment     string          `json:"deployment,omitempty"`     // whose the attempt is, and its report
	PolicyDiffers  bool            `json:"policy_differs,omitempty"` // the first caller's, another one, stands
	Policy         *Policy         `json:"policy,omitempty"`         // the one that stands, where it differs
	Previous       *Attempt        `json:"previous,omitempty"`
	Flight         *Flight         `json:"flight,omitempty"` // with replay
}

// Attempt is one try at the effect.
type Attempt struct {
	Attempt  uint32 `json:"attempt"`
	Outcome  string `json:"outcome,omitempty"` // empty while it is open
	Error    string `json:"error,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Lost     bool   `json:"lost,omitempty"` // concluded to be lost, not reported
	OpenedAt Time   `json:"opened_at,omitzero"`
	ClosedAt Time   `json:"closed_at,omitzero"`
}

// Flight is the record of one key as the API shows it.
type Flight struct {
	ID              string     `json:"id"`
	Key             string     `json:"key,omitempty"` // empty in a tombstone
	State           string     `json:"state"`
	Source          string     `json:"source,omitempty"` // of this answer: executed, joined or replayed
	Version         string     `json:"version"`
	Generation      uint32     `json:"generation"`
	Attempts        uint32     `json:"attempts,omitempty"` // a tombstone does not know them
	Recovery        string     `json:"recovery,omitempty"`
	Fingerprint     string     `json:"fingerprint,omitempty"`
	Cause           string     `json:"cause,omitempty"` // why it is in doubt, failed or cancelled
	Tainted         bool       `json:"tainted,omitempty"`
	Looking         bool       `json:"looking,omitempty"` // a look-up is due
	Overlap         bool       `json:"overlap,omitempty"` // evidence of a second effect was seen
	CreatedAt       Time       `json:"created_at,omitzero"`
	NotBefore       Time       `json:"not_before,omitzero"`
	HeldUntil       Time       `json:"held_until,omitzero"` // nobody takes the open attempt over before: etcd lost the claim on it
	FinishedAt      Time       `json:"finished_at,omitzero"`
	ExpiresAt       Time       `json:"expires_at,omitzero"`
	CancelRequested *Mark      `json:"cancel_requested,omitempty"`
	Settled         *Settled   `json:"settled,omitempty"`
	Redacted        *Mark      `json:"redacted,omitempty"` // the bytes of its input and receipt were erased
	LastAttempt     *Attempt   `json:"last_attempt,omitempty"`
	Receipt         *Receipt   `json:"receipt,omitempty"`
	Evidence        []Evidence `json:"evidence,omitempty"`
	EvidenceMore    uint32     `json:"evidence_more,omitempty"`
	Past            []Past     `json:"past,omitempty"`
}

// Mark is who asked for something, when and why.
type Mark struct {
	Who string `json:"who"`
	Why string `json:"why,omitempty"`
	At  Time   `json:"at,omitzero"`
}

// Settled is what a person decided about a doubt.
type Settled struct {
	Result string `json:"result"`
	Mark
}

// Receipt is the stored first outcome of a flight. Every duplicate gets the same bytes. Of a tombstone's only the outcome
// and the digest are known.
type Receipt struct {
	Outcome     string          `json:"outcome"` // succeeded or refused
	ExternalID  string          `json:"external_id,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	Body        json.RawMessage `json:"body,omitempty"`        // where it is JSON
	BodyBase64  []byte          `json:"body_base64,omitempty"` // where it is not, or was shortened
	Size        int             `json:"size,omitempty"`        // full length in bytes
	Truncated   bool            `json:"truncated,omitempty"`
	Digest      string          `json:"digest"` // over the whole body
	Attempt     uint32          `json:"attempt,omitempty"`
	From        string          `json:"from,omitempty"` // report, lookup, person or import
	At          Time            `json:"at,omitzero"`
}

// Evidence is a report that came too late. It is kept and shown, and never overwrites anything.
type Evidence struct {
	Generation uint32 `json:"generation"`
	Attempt    uint32 `json:"attempt"`
	Outcome    string `json:"outcome"`
	ExternalID string `json:"external_id,omitempty"`
	Digest     string `json:"digest,omitempty"`
	Error      string `json:"error,omitempty"`
	At         Time   `json:"at,omitzero"`
}

// Past is what stays of an earlier generation of a key.
type Past struct {
	Generation uint32 `json:"generation"`
	State      string `json:"state"`
	Who        string `json:"who,omitempty"`
	Why        string `json:"why,omitempty"`
	At         Time   `json:"at,omitzero"`
	ExternalID string `json:"external_id,omitempty"`
	Digest     string `json:"digest,omitempty"`
}

// FlightPage is the answer of GET /v1/flights. Its flights come without the bodies of their receipts.
type FlightPage struct {
	Flights []Flight `json:"flights"`
	Next    string   `json:"next,omitempty"` // the cursor of the next page; empty: there is none
}

// Event is one line in the history of a flight.
type Event struct {
	ID         string `json:"id"`                  // the version that it made
	FlightID   string `json:"flight_id,omitempty"` // where events of several flights may come, and in streams
	Key        string `json:"key,omitempty"`
	Kind       string `json:"kind"`
	At         Time   `json:"at"`
	Generation uint32 `json:"generation,omitempty"`
	Attempt    uint32 `json:"attempt,omitempty"`
	Outcome    string `json:"outcome,omitempty"`
	Who        string `json:"who,omitempty"`
	Note       string `json:"note,omitempty"`
	Count      uint64 `json:"count,omitempty"` // with duplicates: how many
}

// History is the answer of GET /v1/flights/{id}/events.
type History struct {
	FlightID   string      `json:"flight_id"`
	Events     []Event     `json:"events"`
	Duplicates *Duplicates `json:"duplicates,omitempty"`
}

// Duplicates tells of the calls of a key that were answered without another effect.
type Duplicates struct {
	Count   uint64   `json:"count"` // a crash may lose those of the last second
	FirstAt Time     `json:"first_at"`
	LastAt  Time     `json:"last_at"`
	Callers []Caller `json:"callers"` // the last eight, newest last
}

// Caller is who called, as it said itself, and when.
type Caller struct {
	Who string `json:"who"`
	At  Time   `json:"at"`
}

// EventPage is the answer of GET /v1/events.
type EventPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next"` // the place to go on behind, also when there is nothing yet
}

// Gap is what a stream says in place of events that it can no longer give.
type Gap struct {
	After string `json:"after"` // what came behind this place is missing
	Until string `json:"until"` // up to this one
}

// Version is the answer of GET /version.
type Version struct {
	Version    string `json:"version"`
	API        string `json:"api"` // v1
	Go         string `json:"go,omitempty"`
	Deployment string `json:"deployment,omitempty"`
	LedgerTime int64  `json:"ledger_time"` // milliseconds since 1970
}

// Ready is the answer of GET /readyz. Checks are told with ?verbose or when one of them fails, Node with ?verbose.
type Ready struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks,omitempty"`
	Node   *Node   `json:"node,omitempty"`
}

// Node is what a node tells about itself to those who look after it.
type Node struct {
	Time       Time   `json:"time"`        // by its own clock
	LedgerTime Time   `json:"ledger_time"` // what the ledger would stamp now
	Data       string `json:"data"`        // its data directory
	Spool      *Spool `json:"spool,omitempty"`
	Etcd       *Etcd  `json:"etcd,omitempty"`
}

// Spool is what lies on a node's disk of reports that its ledger has not taken.
type Spool struct {
	Waiting  int `json:"waiting"`
	PutAside int `json:"put_aside"` // the node cannot read them
}

// Etcd is the state of the etcd that a node claims in.
type Etcd struct {
	Version   string `json:"version"`
	Problem   string `json:"problem,omitempty"` // why this version must not be used
	Revision  int64  `json:"revision"`
	Compacted int64  `json:"compacted"` // revisions below are forgotten; 0: none
	Size      int64  `json:"size"`      // bytes of its file
	InUse     int64  `json:"in_use"`    // bytes of it that hold something
	Quota     int64  `json:"quota"`     // bytes at which it takes no more writes; 0: not told
}

// Check is one part of a node and whether it is ready.
type Check struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type         string       `json:"type"`
	Title        string       `json:"title"`
	Status       int          `json:"status"`
	Detail       string       `json:"detail,omitempty"`
	Code         Code         `json:"code"`
	Retryable    bool         `json:"retryable"`
	Hint         string       `json:"hint,omitempty"`
	FlightID     string       `json:"flight_id,omitempty"`
	Key          string       `json:"key,omitempty"`
	State        string       `json:"state,omitempty"`
	Version      string       `json:"version,omitempty"` // of the flight, for If-Match
	RetryAfterMS int64        `json:"retry_after_ms,omitempty"`
	Errors       []FieldError `json:"errors,omitempty"`
	RequestID    string       `json:"request_id,omitempty"`
	TraceID      string       `json:"trace_id,omitempty"` // of the request's traceparent
	Outcome      string       `json:"outcome,omitempty"`  // where the retention is over: how the flight had ended
	Digest       string       `json:"digest,omitempty"`   // where the retention is over: of the receipt that was kept
	Decision     string       `json:"decision,omitempty"`
	Flight       *Flight      `json:"flight,omitempty"`      // with flight_failed
	Proposed     *bool        `json:"proposed,omitempty"`    // with idempotency_in_flight and in_doubt: the open was proposed
	LedgerTime   int64        `json:"ledger_time,omitempty"` // with open_expired: milliseconds since 1970
}

// FieldError is one place in a request and what is wrong with it: a JSON pointer into the body, or the name of a header
// or of a query parameter.
type FieldError struct {
	Pointer   string `json:"pointer,omitempty"`
	Header    string `json:"header,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Detail    string `json:"detail"`
}
