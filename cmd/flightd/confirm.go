package main

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks the person at the terminal. Where there is none, or --yes was given, it asks nothing: a script has
// decided when it was written.
func (a *app) confirm(format string, args ...any) error {
	if a.yes || !isTerminal(a.in) {
		return nil
	}
	_, _ = fmt.Fprintf(a.err, format+" [y/N] ", args...)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &coded{code: exitFailed, err: fmt.Errorf("nothing was changed")}
}
