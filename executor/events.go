package executor

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
)

// Events has a function for each event. Each function may be nil, must not block and must not call the executor.
type Events struct {
	// Called: a Do, or the open of a remote caller, was answered after d. The result is one of Results.
	Called func(key flight.Key, result string, d time.Duration)
	// Claimed: a call may act. waited is the time since the call was made, with the wait for other holders.
	Claimed func(key flight.Key, waited time.Duration)
	// Opened: an attempt was opened.
	Opened func(key flight.Key, attempt uint32)
	// Closed: an attempt was reported, d after it was opened. The event is also published when a lost attempt reports
	// late.
	Closed func(key flight.Key, attempt uint32, outcome flight.Outcome, d time.Duration)
	// Lost: the session of an attempt has ended, so the attempt's outcome is unknown.
	Lost func(key flight.Key, attempt uint32)
	// Abandoned: an attempt ended, and nothing was sent for it.
	Abandoned func(key flight.Key, attempt uint32)
	// InDoubt: the flight waits for a person; cause is the reason.
	InDoubt func(key flight.Key, attempt uint32, cause string)
	// Fenced: a report came too late and was stored as evidence.
	Fenced func(key flight.Key, attempt uint32)
	// Overlap: there is evidence of a second effect.
	Overlap func(key flight.Key)
	// Recovered: the sweeper ended an attempt whose session had ended; state is the flight's state after that.
	Recovered func(key flight.Key, attempt uint32, state flight.State)
	// SweepFailed: a round of the sweeper failed; the next round tries again.
	SweepFailed func(err error)
}

// Publish publishes the events of the ledger's reply to a command about key. Packages that propose commands without the
// executor call Publish, too.
func (e *Events) Publish(key flight.Key, events []flight.Event) {
	for i := range events {
		switch event := &events[i]; {
		case event.Kind == flight.EventLost && e.Lost != nil:
			e.Lost(key, event.Attempt)
		case event.Kind == flight.EventAbandoned && e.Abandoned != nil:
			e.Abandoned(key, event.Attempt)
		case event.Kind == flight.EventInDoubt && e.InDoubt != nil:
			e.InDoubt(key, event.Attempt, event.Note)
		case event.Kind == flight.EventOverlap && e.Overlap != nil:
			e.Overlap(key)
		}
	}
}

// PublishReport publishes the events of the ledger's reply to the report of an attempt. Packages that send reports
// without the executor call PublishReport, too.
func (e *Events) PublishReport(reply *flight.Reply, number uint32, outcome flight.Outcome) {
	f := reply.Flight
	if f == nil {
		return
	}
	e.Publish(f.Key, reply.Events)
	if !reply.Changed {
		return // a repeat: its events are published already
	}
	if e.Closed != nil && reply.Decision == flight.DecisionAccepted {
		e.Closed(f.Key, number, outcome, attemptDuration(reply, number))
	}
	if e.Fenced != nil && reply.Decision == flight.DecisionFenced {
		e.Fenced(f.Key, number)
	}
}

// attemptDuration is the time from the open of an attempt to its report. A lost attempt was closed earlier than it
// reported; the time of the report counts.
func attemptDuration(reply *flight.Reply, number uint32) time.Duration {
	a := reply.Flight.Newest()
	if a == nil || a.Number != number {
		return 0
	}
	end := a.ClosedAt
	for i := range reply.Events {
		if e := &reply.Events[i]; e.Kind == flight.EventReported {
			end = e.At
		}
	}
	return end.Until(a.OpenedAt)
}

// The results of Events.Called: the source of the result, the decision on an open, or the class of the error.
const (
	ResultExecuted    = "executed"
	ResultJoined      = "joined"
	ResultReplayed    = "replayed"
	ResultProceed     = "proceed" // a remote caller may act
	ResultVerify      = "verify"  // a remote caller must look up the outcome
	ResultFailed      = "failed"
	ResultInDoubt     = "in_doubt"
	ResultConflict    = "conflict"
	ResultBusy        = "busy"
	ResultUnavailable = "unavailable" // no leader, no etcd, or draining
	ResultReconciling = "reconciling" // the ledger was restored, and nothing opens yet
	ResultCancelled   = "cancelled"   // the caller has cancelled the call
	ResultError       = "error"       // anything else
)

// Results returns all results of Events.Called.
func Results() []string {
	return []string{ResultExecuted, ResultJoined, ResultReplayed, ResultProceed, ResultVerify, ResultFailed, ResultInDoubt,
		ResultConflict, ResultBusy, ResultUnavailable, ResultReconciling, ResultCancelled, ResultError}
}

// ErrorResult returns the result of Events.Called for an error.
func ErrorResult(err error) string {
	var (
		declined    *effect.Declined
		unavailable *effect.Unavailable
	)
	switch {
	case errors.As(err, &declined):
		return declined.Result.Source.String()
	case errors.As(err, new(*effect.Failed)):
		return ResultFailed
	case errors.As(err, new(*effect.InDoubt)):
		return ResultInDoubt
	case errors.As(err, new(*effect.Conflict)):
		return ResultConflict
	case errors.As(err, new(*effect.Busy)):
		return ResultBusy
	case errors.As(err, &unavailable) && unavailable.Code == answer.CodeReconciling:
		return ResultReconciling
	case errors.As(err, &unavailable), errors.Is(err, effect.ErrClosed):
		return ResultUnavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ResultCancelled
	}
	return ResultError
}
