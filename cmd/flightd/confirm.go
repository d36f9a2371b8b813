package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// operatorFlags hold the actor and the reason of an operator's decision. Both are recorded.
type operatorFlags struct{ reason, as string }

func (d *operatorFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&d.reason, "reason", "", "the reason for the decision; required and recorded")
	flags.StringVar(&d.as, "as", "", "name of the person who decides; recorded (your user name)")
}

// check rejects a decision without a reason.
func (d *operatorFlags) check() error {
	if strings.TrimSpace(d.reason) == "" {
		return &coded{code: exitUsage, err: fmt.Errorf("--reason is missing: a decision is recorded with its reason"),
			hint: "give it, as in --reason 'the bank statement shows no charge'; flightd why shows it later"}
	}
	return nil
}

// confirm asks the person at the terminal, unless --yes was given. Without a terminal, an irreversible command needs
// --yes; any other command proceeds.
func (a *app) confirm(irreversible bool, format string, args ...any) error {
	switch {
	case a.yes:
		return nil
	case !isTerminal(a.in) && irreversible:
		return &coded{code: exitUsage, err: fmt.Errorf(format+" Standard input is not a terminal, so nothing was changed", args...),
			hint: "pass --yes to confirm"}
	case !isTerminal(a.in):
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
