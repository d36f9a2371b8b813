package wire

import (
	"cmp"

	"github.com/flightd/flightd/flight"
)

// Approval is the part of a policy that demands a person's approval before the first attempt.
type Approval struct {
	ExpiresMS int64 `json:"expires_ms,omitzero" limit:"ms"` // from the submission to the rejection, if nobody decides; 0: never
}

// Text describes the approval in a table; it is empty for nil, no approval.
func (a *Approval) Text() string {
	if a == nil {
		return ""
	}
	return "expires " + cmp.Or(SpanText(a.ExpiresMS), "never")
}

// ApprovalRequest is what a person decides about, beside the input.
type ApprovalRequest struct {
	RequestedBy string `json:"requested_by,omitzero"`
	ExpiresAt   Time   `json:"expires_at,omitzero"` // zero: never
	Policy      Policy `json:"policy"`
	Retry       *Retry `json:"retry,omitzero"` // of a job
}

// ApprovalDecision is the body of POST /v1/flights/{id}/approve and /reject.
type ApprovalDecision struct {
	Reason string `json:"reason,omitzero" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"` // the person who decides; the header Flightd-Actor has the same meaning
}

// approvalRequestOf returns what a person has to know of a flight that awaits approval, or nil for another flight.
func approvalRequestOf(f *flight.Flight) *ApprovalRequest {
	if f.State != flight.StateAwaitingApproval {
		return nil
	}
	a := &ApprovalRequest{RequestedBy: f.Requester, ExpiresAt: timeOf(f.ApprovalDeadline()), Policy: PolicyOf(f.Policy)}
	if r := f.Policy.Retry; r.Declared() {
		a.Retry = &Retry{Attempts: int64(r.Attempts), FirstMS: r.MinBackoff.Milliseconds(), MaxMS: r.MaxBackoff.Milliseconds(), WithinMS: r.Within.Milliseconds()}
	}
	return a
}
