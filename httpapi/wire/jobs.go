package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

// The states of a submission.
const (
	StatusQueued    = "queued"    // the job is new
	StatusDuplicate = "duplicate" // the key has a flight already, with the same input
)

// Bounds of a submission of many jobs.
const (
	MaxSubmitLines = 10_000
	MaxSubmitBody  = 16 << 20
)

// MaxPriority is the greatest priority of a job; the lowest is its negative.
const MaxPriority = 1000

// SubmitRequest is the body of POST /v1/flights:submit, or one line of it. The namespace travels in a header.
type SubmitRequest struct {
	Action      string          `json:"action" limit:"word"`
	ID          string          `json:"id" limit:"word"`
	Input       json.RawMessage `json:"input,omitzero" null:"absent"`
	Fingerprint string          `json:"fingerprint,omitzero" limit:"word"` // as in an open
	Lane        string          `json:"lane,omitzero" limit:"word"`
	LaneLimit   int64           `json:"lane_limit,omitzero" limit:"lane_limit"` // how many jobs of the lane may run at once; 0: one
	Priority    int64           `json:"priority,omitzero"`                      // -1000 to 1000; jobs of a greater one are handed out first
	RunAt       string          `json:"run_at,omitzero" limit:"word"`           // RFC 3339
	DelayMS     int64           `json:"delay_ms,omitzero" limit:"ms"`
	Retry       *Retry          `json:"retry,omitzero"`
	Policy
}

// Retry says how often a job is handed out again after its effect surely did not happen.
type Retry struct {
	Attempts int64 `json:"attempts" limit:"tries"` // the first one included
	FirstMS  int64 `json:"first_ms,omitzero" limit:"ms"`
	MaxMS    int64 `json:"max_ms,omitzero" limit:"ms"`
	WithinMS int64 `json:"within_ms,omitzero" limit:"ms"` // from the first attempt
}

// DefaultRetry is the retry policy of a job that declares none.
var DefaultRetry = flight.RetryPolicy{Attempts: 8, MinBackoff: time.Second, MaxBackoff: time.Minute}

// SubmitAnswer is the answer to a submission.
type SubmitAnswer struct {
	Status  string  `json:"status"` // queued or duplicate
	Warning string  `json:"warning,omitzero"`
	Flight  *Flight `json:"flight"`
}

// SubmitLine says what became of one line of a submission of many jobs. Problem is the document that a single submission would
// have been answered with.
type SubmitLine struct {
	Line     int      `json:"line"` // from 1
	ID       string   `json:"id,omitzero"`
	Status   string   `json:"status"` // queued, duplicate, or the code of the problem
	FlightID string   `json:"flight_id,omitzero"`
	Problem  *Problem `json:"problem,omitzero"`
}

// ClaimRequest is the body of POST /v1/flights:claim. The namespace travels in a header.
type ClaimRequest struct {
	Session  string   `json:"session" limit:"token"`
	Nonce    string   `json:"nonce" limit:"claim_nonce"`              // new for each claim, the same for each repeat
	NotAfter int64    `json:"not_after,omitzero" limit:"ledger_time"` // of each attempt's open; 0: the node sets it
	Actions  []string `json:"actions"`
	// WithoutLookUp are those of the actions whose unknown outcomes the worker cannot look up: others are handed these jobs.
	WithoutLookUp []string `json:"without_look_up,omitzero"`
	Slots         int64    `json:"slots" limit:"tries"`
	WaitMS        *int64   `json:"wait_ms,omitzero" limit:"wait_ms"`
	Owner         string   `json:"owner,omitzero" limit:"word"`
	Callback      bool     `json:"callback,omitzero"` // each job has a callback URL, if the server has a public one
}

// ClaimAnswer is the answer to a claim.
type ClaimAnswer struct {
	Nonce    string `json:"nonce"`
	Jobs     []Job  `json:"jobs"`                             // none: ask again
	ServedMS int64  `json:"served_ms,omitzero" limit:"count"` // how long the server took
}

// Job is an attempt, or a verification, that is handed to a worker: the answer to an open, whose nonce is JobNonce of the claim's,
// and whose policy is always named.
type Job struct {
	OpenAnswer
	Action string `json:"action,omitzero"`               // that the claim named, if it is not the name of the key: the job is a step of a saga
	AgeMS  int64  `json:"age_ms,omitzero" limit:"count"` // the attempt was opened that long before this answer
}

// JobNonce returns the nonce of the attempt that a claim opens of a flight.
func JobNonce(claim string, id flight.ID) string { return claim + "." + id.String() }

// Parse returns the submission in the terms of package flight; now is the ledger's time. After an error the key is set if it is valid.
func (r *SubmitRequest) Parse(namespace string, now flight.Time) (key flight.Key, s flight.Submission, q flight.Queue, bad *Invalid) {
	if key, bad = Key(namespace, r.Action, r.ID); bad != nil {
		return key, s, q, bad
	}
	open := OpenRequest{Input: r.Input, Fingerprint: r.Fingerprint, Policy: r.Policy}
	if s, bad = open.submission(); bad != nil {
		return key, s, q, bad
	}
	if s.Policy.Retry, bad = r.Retry.flight(); bad != nil {
		return key, s, q, bad
	}
	if bad = checkRetention(s.Policy, s.Policy.Retry.Within); bad != nil {
		return key, s, q, bad
	}
	switch {
	case r.Priority > MaxPriority || r.Priority < -MaxPriority:
		return key, s, q, BadField("/priority", "must be %d to %d", -MaxPriority, MaxPriority)
	case checkLane(r.Lane, "/lane") != nil:
		return key, s, q, checkLane(r.Lane, "/lane")
	case r.LaneLimit > 0 && r.Lane == "":
		return key, s, q, BadField("/lane_limit", "is allowed only with a lane")
	case r.RunAt != "" && r.DelayMS > 0:
		return key, s, q, BadField("/delay_ms", "is not allowed together with run_at")
	}
	q = flight.Queue{Priority: int16(r.Priority), Lane: r.Lane, Limit: uint16(r.LaneLimit)}
	if r.DelayMS > 0 {
		q.RunAt = now.Add(time.Duration(r.DelayMS) * time.Millisecond)
	}
	if r.RunAt != "" {
		at, err := time.Parse(time.RFC3339, r.RunAt)
		if err != nil || at.UnixMilli() < 0 || at.UnixMilli() > MaxLedgerTime {
			return key, s, q, setHint(BadField("/run_at", "must be a time like 2027-01-31T09:30:00Z, not %.40q", r.RunAt), "send run_at in RFC 3339, or delay_ms")
		}
		q.RunAt = flight.Time(at.UnixMilli())
	}
	return key, s, q, nil
}

// flight returns the retry policy as the ledger stores it.
func (r *Retry) flight() (flight.RetryPolicy, *Invalid) {
	if r == nil {
		return DefaultRetry, nil
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	p := flight.RetryPolicy{Attempts: int(r.Attempts), MinBackoff: ms(r.FirstMS), MaxBackoff: ms(r.MaxMS), Within: ms(r.WithinMS)}
	switch {
	case p.Attempts < 1:
		return p, BadField("/retry/attempts", "must be 1 to 1000; the first attempt is one of them")
	case p.MaxBackoff > 0 && p.MaxBackoff < p.MinBackoff:
		return p, BadField("/retry/max_ms", "must not be less than first_ms")
	}
	return WithPauses(p), nil
}

// WithPauses returns the retry policy with defaults for the pauses that it does not declare. Without a pause, an outage of seconds would
// use up all attempts.
func WithPauses(p flight.RetryPolicy) flight.RetryPolicy {
	if p.MinBackoff == 0 {
		p.MinBackoff = DefaultRetry.MinBackoff
		if p.MaxBackoff > 0 {
			p.MinBackoff = min(p.MinBackoff, p.MaxBackoff)
		}
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = max(p.MinBackoff, DefaultRetry.MaxBackoff)
	}
	return p
}

// checkRetention rejects a retention that ends while the flight may still be retried.
func checkRetention(p flight.Policy, within time.Duration) *Invalid {
	if retention := cmp.Or(p.Retention, flight.DefaultRetention); retention < within {
		return setHint(BadField("/retention", "%s is shorter than retry.within, %s: a duplicate would find no receipt while the flight may still be retried",
			FormatRetention(retention), FormatRetention(within)), "keep receipts for at least as long as the retries may take")
	}
	return nil
}

// Parse returns the actions and checks the bounds of a claim.
func (r *ClaimRequest) Parse() *Invalid {
	switch {
	case r.Session == "":
		return setHint(BadField("/session", "missing"), "create a session with POST /v1/sessions, renew it, and send its id")
	case r.Nonce == "":
		return setHint(BadField("/nonce", "missing"), "draw a nonce for each claim, and send the same one in each repeat")
	case len(r.Actions) == 0 || len(r.Actions) > MaxClaimActions:
		return BadField("/actions", "name 1 to %d actions", MaxClaimActions)
	case r.Slots < 1 || r.Slots > MaxSlots:
		return BadField("/slots", "must be 1 to %d", MaxSlots)
	}
	for i, action := range r.Actions {
		if _, err := flight.NewKey(DefaultNamespace, action, "x"); err != nil {
			return BadField(fmt.Sprintf("/actions/%d", i), "%v", err)
		}
		if slices.Contains(r.Actions[:i], action) { // its jobs would be handed out twice
			return BadField(fmt.Sprintf("/actions/%d", i), "the action is named twice")
		}
	}
	for i, action := range r.WithoutLookUp {
		if !slices.Contains(r.Actions, action) {
			return BadField(fmt.Sprintf("/without_look_up/%d", i), "not one of the actions")
		}
	}
	return nil
}

// Bounds of a claim.
const (
	MaxClaimActions = 64
	MaxSlots        = 1000
)
