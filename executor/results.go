package executor

import (
	"context"
	"errors"

	"github.com/flightd/flightd/effect"
)

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

// resultWord names the end of a call for events.
func resultWord(r effect.Result, err error) string {
	if err == nil { // nearly always; what errors.As needs would be made for nothing
		return r.Source.String()
	}
	return ErrorWord(err)
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
