package main

import (
	"errors"
	"fmt"
)

// The exit codes, those of sysexits.h where it has a word for it.
const (
	exitOK          = 0
	exitFailed      = 1  // it did not work, and none of the others says why
	exitUsage       = 64 // the command line is wrong, or the key belongs to something else
	exitUnreachable = 69 // flightd is not there, or cannot decide now; nothing was started
	exitDied        = 70 // a running node could not go on
	exitBusy        = 75 // somebody else is at it; ask again
	exitInDoubt     = 76 // the effect may have happened; a person has to say
	exitForbidden   = 77
	exitConfig      = 78
	exitBusyInside  = 79 // exitBusy of a flightd that runs inside of an exec
)

// exitCode is one of them, for people.
type exitCode struct {
	code  int
	means string
}

// exitCodes is the table that the help and the manual show.
func exitCodes() []exitCode {
	return []exitCode{
		{exitOK, "it worked"},
		{exitFailed, "it did not, and none of the others says why: no such flight, an effect that failed, a check that found something"},
		{exitUsage, "the command line is wrong, or the key belongs to another input"},
		{exitUnreachable, "flightd is not there or cannot decide now, or its address is taken; nothing was started"},
		{exitDied, "a running flightd dev could not go on, mostly because of its disk, and ended at once; nothing that was acknowledged is lost"},
		{exitBusy, "somebody else is at it; ask again"},
		{exitInDoubt, "the effect may have happened; a person has to say (flightd doubt)"},
		{exitForbidden, "not allowed"},
		{exitConfig, "the settings are wrong, or the data directory is somebody else's"},
		{exitBusyInside, "as 75, inside of flightd exec: the command around it may have done something already"},
	}
}

// coded is an error that ends the program with its code.
type coded struct {
	code int
	err  error
	hint string // what to do about it, "" for nothing
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// usage is a mistake in the command line.
func usage(format string, args ...any) error {
	return &coded{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// silent ends the program with a code after everything was said.
type silent int

func (s silent) Error() string { return fmt.Sprintf("exit %d", int(s)) }

// explain gives the exit code of an error, and what to tell about it; "" when nothing is left to tell.
func explain(err error) (code int, message, hint string) {
	var c *coded
	var s silent
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
