package effect

import (
	"errors"
	"time"
)

// pauseError has the pause that a provider requested.
type pauseError struct {
	err        error
	retryAfter time.Duration
}

func (e *pauseError) Error() string { return e.err.Error() }
func (e *pauseError) Unwrap() error { return e.err }

// MaxPause bounds the pause that a provider requests: a wrong date in an answer must not delay an effect by years.
const MaxPause = 24 * time.Hour

// RetryAfter marks an error with the pause that the provider requested, for example in its header Retry-After: the next attempt does not
// start earlier. The error's outcome does not change. A pause of 0 or less is ignored, and a longer pause is cut to MaxPause.
//
// The pause applies to an executor in the same process, whose policies may retry. Through a client it delays nothing:
// there the caller retries, and reads the pause from its *Unsettled with RequestedPause.
func RetryAfter(err error, pause time.Duration) error {
	if err == nil || pause <= 0 {
		return err
	}
	return &pauseError{err: err, retryAfter: min(pause, MaxPause)}
}

// RequestedPause returns the pause that RetryAfter put into err, or 0 if there is none.
func RequestedPause(err error) time.Duration {
	if asked, ok := errors.AsType[*pauseError](err); ok {
		return asked.retryAfter
	}
	return 0
}
