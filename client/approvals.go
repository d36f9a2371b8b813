package client

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// ApprovalDecision is a person's decision about an approval as the API has it.
type ApprovalDecision = wire.ApprovalDecision

// Approve lets the effect of a flight that awaits approval happen, if the flight is still at that version. The same decision again, also
// by somebody else, returns the flight with source replayed; after another decision, the error says who decided.
func (re *requester) Approve(ctx context.Context, id flight.ID, version string, d ApprovalDecision) (*Flight, error) {
	return re.operatorRequest(ctx, id, "/approve", version, &d)
}

// Reject cancels a flight that awaits approval, as Approve approves it.
func (re *requester) Reject(ctx context.Context, id flight.ID, version string, d ApprovalDecision) (*Flight, error) {
	return re.operatorRequest(ctx, id, "/reject", version, &d)
}

// Approval demands a person's approval before the first attempt. If nobody decides within the time, the flight is rejected; 0:
// never.
func Approval(within time.Duration) JobOption {
	return jobOption(func(o *jobOptions) { o.policy.Approval = &wire.Approval{ExpiresMS: within.Milliseconds()} })
}
