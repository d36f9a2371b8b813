package effect

import (
	"errors"
	"time"
)

// pauseError carries the pause that a provider asked for.
type pauseError struct {
	err   error
	pause time.Duration
}

func (e *pauseError) Error() string { return e.err.Error() }
func (e *pauseError) Unwrap() error { return e.err }

// RetryAfter marks an error with the pause that the provider asked for, as by its header Retry-After: the next attempt
// comes no sooner. It does not change what outcome the error means. A pause of 0 or less asks for nothing.
//
// It is for an executor in the same process, whose policies may retry. Through a client it delays nothing: retries are the
// caller's own there, and a report has no place for the pause. The caller finds it with AskedPause in the *Unsettled that it
// gets.
func RetryAfter(err error, pause time.Duration) error {
	if err == nil || pause <= 0 {
		return err
	}
	return &pauseError{err: err, pause: pause}
}

// AskedPause is the pause that RetryAfter put into err; 0 when nobody asked for one.
func AskedPause(err error) time.Duration {
	var asked *pauseError
	if errors.As(err, &asked) {
		return asked.pause
	}
	return 0
}
