package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// operatorFlags say who decides something about a flight, and why. Both are recorded.
type operatorFlags struct{ reason, as string }

func (d *operatorFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&d.reason, "reason", "", "why, which must be said; it is recorded")
	flags.StringVar(&d.as, "as", "", "who decides; it is recorded (your user name)")
}

// check refuses a decision without a reason.
func (d *operatorFlags) check() error {
	if strings.TrimSpace(d.reason) == "" {
		return &coded{code: exitUsage, err: fmt.Errorf("--reason is missing: a decision is recorded with its reason"),
			hint: "say what you know, as in --reason 'the bank statement shows no charge'; flightd why shows it to whoever comes later"}
	}
	return nil
}

// confirm asks the person at the terminal, unless --yes was given. Where there is no terminal, an irreversible command needs
// --yes, and any other one is carried out.
func (a *app) confirm(irreversible bool, format string, args ...any) error {
	switch {
	case a.yes:
		return nil
	case !isTerminal(a.in) && irreversible:
		return &coded{code: exitUsage, err: fmt.Errorf(format+" There is no terminal to ask at: nothing was changed", args...),
			hint: "--yes answers yes"}
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
