package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/client"
)

// OperatorFlags hold the actor and the reason of an operator's decision. Both are recorded.
type OperatorFlags struct {
	Reason, Actor string

	required bool
	instead  string // is recorded if no reason is given
}

// DecisionReason describes a reason that Check requires.
const DecisionReason = "the reason for the decision; required and recorded"

// Add adds --actor and --reason to the flags of a command. about describes the reason.
func (o *OperatorFlags) Add(flags *pflag.FlagSet, about string) {
	flags.StringVar(&o.Reason, "reason", "", about)
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

// Ask sends the requests of a command. reason is the value of --reason.
type Ask func(ctx context.Context, c *client.Client, args []string, reason string) error

// Decision completes the command of a person's decision: it adds --reason and --actor, rejects an empty reason, and calls check, unless
// that is nil, before it connects.
func (a *App) Decision(c *cobra.Command, check func(args []string) error, do Ask, opts ...client.Option) *cobra.Command {
	o := OperatorFlags{required: true}
	o.Add(c.Flags(), DecisionReason)
	return a.decide(c, &o, check, do, opts...)
}

// Change completes the command of a change that takes nothing from anybody, and so needs no reason, as Decision does.
func (a *App) Change(c *cobra.Command, check func(args []string) error, do Ask) *cobra.Command {
	return a.Optional(c, "the reason, for the audit log", "none given", check, do)
}

// Optional is Change with another description of the reason, and another reason that is recorded without --reason.
func (a *App) Optional(c *cobra.Command, about, reason string, check func(args []string) error, do Ask) *cobra.Command {
	o := OperatorFlags{instead: reason}
	o.Add(c.Flags(), about)
	return a.decide(c, &o, check, do)
}

func (a *App) decide(c *cobra.Command, o *OperatorFlags, check func(args []string) error, do Ask, opts ...client.Option) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.Check(); o.required && err != nil {
			return err
		}
		if check != nil {
			if err := check(args); err != nil {
				return err
			}
		}
		return a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			return do(ctx, c, args, cmp.Or(o.Reason, o.instead))
		}, append(opts, client.WithActor(ActorName(o.Actor)))...)(cmd, args)
	}
	return c
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
