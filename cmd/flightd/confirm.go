package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// operatorFlags hold the actor and the reason of an operator's decision. Both are recorded.
type operatorFlags struct{ reason, actor string }

func (o *operatorFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.reason, "reason", "", "the reason for the decision; required and recorded")
	flags.StringVar(&o.actor, "actor", "", "name of the person who decides; recorded (your user name)")
}

// check rejects a decision without a reason.
func (o *operatorFlags) check() error {
	if strings.TrimSpace(o.reason) == "" {
		return &exitError{code: exitUsage, err: fmt.Errorf("--reason is missing: a decision is recorded with its reason"),
			hint: "give it, as in --reason 'the bank statement shows no charge'; flightd audit ls shows it later"}
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
		return &exitError{code: exitUsage, err: fmt.Errorf(format+" Standard input is not a terminal, so nothing was changed", args...),
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
	return &exitError{code: exitFailed, err: fmt.Errorf("nothing was changed")}
}
