package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// confirm asks the person at the terminal. Where there is none, or --yes was given, it asks nothing: a script has
// decided when it was written.
func (a *app) confirm(format string, args ...any) error {
	in, ok := a.in.(*os.File)
	if a.yes || !ok || !isatty.IsTerminal(in.Fd()) {
		return nil
	}
	_, _ = fmt.Fprintf(a.err, format+" [y/N] ", args...)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &coded{code: exitFailed, err: fmt.Errorf("nothing was changed")}
}
