package cli

import (
	"errors"
	"fmt"
)

// The exit codes; those of sysexits.h where it has a suitable one.
const (
	ExitOK          = 0
	ExitFailed      = 1  // failed, for a reason without a code of its own
	ExitUsage       = 64 // the command line is invalid, or the key was first used with another input
	ExitUnreachable = 69 // no server answers, or it cannot decide now; nothing was started
	ExitDied        = 70 // a running node could not continue
	ExitTruncated   = 74 // exec printed a replay that is not the complete output
	ExitBusy        = 75 // another caller holds the key; retry
	ExitInDoubt     = 76 // the effect may have happened; a person must resolve it
	ExitForbidden   = 77
	ExitConfig      = 78
	ExitBusyInside  = 79 // ExitBusy of a flightd that runs inside an exec
)

// exitCode is a code with its description.
type exitCode struct {
	Code  int
	Means string
}

// ExitCodes is the table in the help and the manual.
func ExitCodes() []exitCode {
	return []exitCode{
		{ExitOK, "success"},
		{ExitFailed, "failure without a code of its own: no such flight, a failed effect, a check with a finding"},
		{ExitUsage, "the command line is invalid, or the key was first used with another input"},
		{ExitUnreachable, "no server answers, it cannot decide now, or its address is in use; nothing was started"},
		{ExitDied, "a running node stopped at once because it could not continue, mostly because of its disk; nothing acknowledged is lost, unless its files were deleted"},
		{ExitTruncated, "flightd exec cannot replay the whole output, because it is not stored whole; --allow-truncated accepts that"},
		{ExitBusy, "another caller holds the key; retry"},
		{ExitInDoubt, "the effect may have happened; a person must resolve it (flightd doubt)"},
		{ExitForbidden, "the server rejects the token, or the token does not allow this"},
		{ExitConfig, "the settings are invalid, or the data directory cannot be used"},
		{ExitBusyInside, "as 75, inside flightd exec: the surrounding command may have acted already"},
	}
}

// Error is an error with the exit code of the program.
type Error struct {
	Code int
	Err  error
	Hint string // the remedy; may be empty
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// UsageError reports an invalid command line.
func UsageError(format string, args ...any) error {
	return &Error{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// ExitStatus ends the program with a code and prints nothing.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit %d", int(s)) }

// Explain returns the exit code, the message and the hint of an error; message and hint may be empty.
func Explain(err error) (code int, message, hint string) {
	var c *Error
	var s ExitStatus
	switch {
	case err == nil:
		return ExitOK, "", ""
	case errors.As(err, &s):
		return int(s), "", ""
	case errors.As(err, &c):
		return c.Code, c.Error(), c.Hint
	}
	return ExitFailed, err.Error(), ""
}
