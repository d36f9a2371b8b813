package main

import (
	"errors"
	"fmt"
)

// The exit codes; those of sysexits.h where it has a suitable one.
const (
	exitOK          = 0
	exitFailed      = 1  // failed, for a reason without a code of its own
	exitUsage       = 64 // the command line is invalid, or the key was first used with another input
	exitUnreachable = 69 // no server answers, or it cannot decide now; nothing was started
	exitDied        = 70 // a running node could not continue
	exitTruncated   = 74 // exec printed a replay that is not the complete output
	exitBusy        = 75 // another caller holds the key; retry
	exitInDoubt     = 76 // the effect may have happened; a person must resolve it
	exitForbidden   = 77
	exitConfig      = 78
	exitBusyInside  = 79 // exitBusy of a flightd that runs inside an exec
)

// exitCode is a code with its description.
type exitCode struct {
	code  int
	means string
}

// exitCodes is the table in the help and the manual.
func exitCodes() []exitCode {
	return []exitCode{
		{exitOK, "success"},
		{exitFailed, "failure without a code of its own: no such flight, a failed effect, a check with a finding"},
		{exitUsage, "the command line is invalid, or the key was first used with another input"},
		{exitUnreachable, "no server answers, it cannot decide now, or its address is in use; nothing was started"},
		{exitDied, "a running node stopped at once because it could not continue, mostly because of its disk; nothing acknowledged is lost, unless its files were deleted"},
		{exitTruncated, "flightd exec cannot replay the whole output, because it is not stored whole; --allow-truncated accepts that"},
		{exitBusy, "another caller holds the key; retry"},
		{exitInDoubt, "the effect may have happened; a person must resolve it (flightd doubt)"},
		{exitForbidden, "the server rejects the token, or the token does not allow this"},
		{exitConfig, "the settings are invalid, or the data directory cannot be used"},
		{exitBusyInside, "as 75, inside flightd exec: the surrounding command may have acted already"},
	}
}

// exitError is an error with the exit code of the program.
type exitError struct {
	code int
	err  error
	hint string // the remedy; may be empty
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usageError reports an invalid command line.
func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitStatus ends the program with a code and prints nothing.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit %d", int(s)) }

// explain returns the exit code, the message and the hint of an error; message and hint may be empty.
func explain(err error) (code int, message, hint string) {
	var c *exitError
	var s exitStatus
	switch {
	case err == nil:
		return exitOK, "", ""
	case errors.As(err, &s):
		return int(s), "", ""
	case errors.As(err, &c):
		return c.code, c.Error(), c.hint
	}
	return exitFailed, err.Error(), ""
}
