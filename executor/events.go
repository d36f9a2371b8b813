package executor

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// Events are told what happens; each function may be nil, must not block and must not call the executor.
type Events struct {
	// Called: a call of Do or an open of a remote caller was answered after d. The result is one of Results.
	Called func(key flight.Key, result string, d time.Duration)
	// Claimed: a call was let act, waited after it was made; the wait for other holders is in it.
	Claimed func(key flight.Key, waited time.Duration)
	// Opened: an attempt was opened.
	Opened func(key flight.Key, attempt uint32)
	// Closed: an attempt ended, d after it was opened. Of one that was taken for lost and reports after all it is told,
	// too.
	Closed func(key flight.Key, attempt uint32, outcome flight.Outcome, d time.Duration)
	// Lost: the holder of an attempt turned out to be gone, so that its outcome is unknown.
	Lost func(key flight.Key, attempt uint32)
	// Abandoned: an attempt ended because nothing was sent for it: nobody was told to act, or who was did not.
	Abandoned func(key flight.Key, attempt uint32)
	// Doubted: the flight waits for a person from now on; cause says why.
	Doubted func(key flight.Key, attempt uint32, cause string)
	// Fenced: a report came too late and was kept as evidence.
	Fenced func(key flight.Key, attempt uint32)
	// Overlap: evidence of a second effect was seen.
	Overlap func(key flight.Key)
	// Recovered: the sweeper ended an attempt whose session has ended; state is what the rules made of its flight.
	Recovered func(key flight.Key, attempt uint32, state flight.State)
	// SweepFailed: one round of the sweeper could not be finished; the next one tries again.
	SweepFailed func(err error)
}

// Note passes on what the ledger told along with its answer to a command about key. Whoever proposes commands past the
// executor calls it, too.
func (e *Events) Note(key flight.Key, told []flight.Event) {
	for i := range told {
		switch one := &told[i]; {
		case one.Kind == flight.EventLost && e.Lost != nil:
			e.Lost(key, one.Attempt)
		case one.Kind == flight.EventAbandoned && e.Abandoned != nil:
			e.Abandoned(key, one.Attempt)
		case one.Kind == flight.EventInDoubt && e.Doubted != nil:
			e.Doubted(key, one.Attempt, one.Note)
		case one.Kind == flight.EventOverlap && e.Overlap != nil:
			e.Overlap(key)
		}
	}
}

// NoteReport passes on what the ledger made of the report of an attempt. Whoever brings one in past the executor calls
// it, too.
func (e *Events) NoteReport(reply *flight.Reply, number uint32, outcome flight.Outcome) {
	f := reply.Flight
	if f == nil {
		return
	}
	e.Note(f.Key, reply.Events)
	if !reply.Changed {
		return // it was told before
	}
	if e.Closed != nil && reply.Decision == flight.Accepted {
		e.Closed(f.Key, number, outcome, tookOf(reply, number))
	}
	if e.Fenced != nil && reply.Decision == flight.Fenced {
		e.Fenced(f.Key, number)
	}
}

// tookOf is how long an attempt took until it reported. That is not when the record says that it was closed where it was
// taken for lost before.
func tookOf(reply *flight.Reply, number uint32) time.Duration {
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

// The words with which Events.Called names how a call ended: where its result came from, what an open let its caller
// do, or the class of the error.
const (
	ResultExecuted    = "executed"
	ResultJoined      = "joined"
	ResultReplayed    = "replayed"
	ResultProceed     = "proceed" // a remote caller may act
	ResultVerify      = "verify"  // a remote caller was sent to look
	ResultFailed      = "failed"
	ResultInDoubt     = "in_doubt"
	ResultConflict    = "conflict"
	ResultBusy        = "busy"
	ResultUnavailable = "unavailable" // no leader, no etcd, draining
	ResultGone        = "gone"        // its caller did not wait for the end
	ResultError       = "error"       // anything else
)

// Results are all of these words.
func Results() []string {
	return []string{ResultExecuted, ResultJoined, ResultReplayed, ResultProceed, ResultVerify, ResultFailed, ResultInDoubt,
		ResultConflict, ResultBusy, ResultUnavailable, ResultGone, ResultError}
}

// ErrorWord is the word for a call that ended with an error.
func ErrorWord(err error) string {
	var (
		declined    *effect.Declined
		failed      *effect.Failed
		doubt       *effect.InDoubt
		conflict    *effect.Conflict
		busy        *effect.Busy
		unavailable *effect.Unavailable
	)
	switch {
	case errors.As(err, &declined):
		return declined.Result.Source.String()
	case errors.As(err, &failed):
		return ResultFailed
	case errors.As(err, &doubt):
		return ResultInDoubt
	case errors.As(err, &conflict):
		return ResultConflict
	case errors.As(err, &busy):
		return ResultBusy
	case errors.As(err, &unavailable), errors.Is(err, effect.ErrClosed):
		return ResultUnavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ResultGone
	}
	return ResultError
}
