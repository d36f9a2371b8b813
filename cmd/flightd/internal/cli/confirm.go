package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// OperatorFlags hold the actor and the reason of an operator's decision. Both are recorded.
type OperatorFlags struct{ Reason, Actor string }

func (o *OperatorFlags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&o.Reason, "reason", "", "the reason for the decision; required and recorded")
	flags.StringVar(&o.Actor, "actor", "", "name of the person who decides; recorded (your user name)")
}

// Check rejects a decision without a reason.
func (o *OperatorFlags) Check() error {
	if strings.TrimSpace(o.Reason) == "" {
		return &Error{Code: ExitUsage, Err: fmt.Errorf("--reason is missing: a decision is recorded with its reason"),
			Hint: "give it, as in --reason 'the bank statement shows no charge'; flightd audit ls shows it later"}
	}
	return nil
}

// Confirm asks the person at the terminal, unless --yes was given. Without a terminal, an irreversible command needs
// --yes; any other command proceeds.
func (a *App) Confirm(irreversible bool, format string, args ...any) error {
	switch {
	case a.Yes:
		return nil
	case !isTerminal(a.In) && irreversible:
		return &Error{Code: ExitUsage, Err: fmt.Errorf(format+" Standard input is not a terminal, so nothing was changed", args...),
			Hint: "pass --yes to confirm"}
	case !isTerminal(a.In):
		return nil
	}
	_, _ = fmt.Fprintf(a.Err, format+" [y/N] ", args...)
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &Error{Code: ExitFailed, Err: fmt.Errorf("nothing was changed")}
}
