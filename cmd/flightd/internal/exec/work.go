package exec

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// WorkFlags hold the flags of work.
type WorkFlags struct {
	Flags
	concurrency int
	drain       time.Duration
	declared    declaredFlags
}

// declaredFlags are the policy that the worker brings.
type declaredFlags struct {
	recovery        *cli.Choice
	window, timeout time.Duration
	attempts        int
}

// NewWorkFlags returns the defaults of the flags that have a type of their own.
func NewWorkFlags() *WorkFlags {
	return &WorkFlags{Flags: *NewFlags(), declared: declaredFlags{recovery: &cli.Choice{Words: []string{"hold", "resend"}}}}
}

// CheckArgs rejects a command line without actions before the --, or without a command behind it. dash is the number of arguments
// before the --, or negative without one.
func (wf *WorkFlags) CheckArgs(dash int, args []string) error {
	if dash < 1 || len(args) == dash {
		return cli.UsageError("name an action, and write the command after --, as in flightd work charge -- ./charge.sh")
	}
	return nil
}

// Add adds the flags to those of a command.
func (wf *WorkFlags) Add(flags *pflag.FlagSet) {
	flags.IntVar(&wf.concurrency, "concurrency", 1, "how many jobs run at once, at most 1000")
	cli.DurationVar(flags, &wf.drain, "drain", 30*time.Second, "how long to wait for running commands after a signal; then they are ended")
	flags.Var(wf.declared.recovery, "recovery", "declare the policy of the actions: what follows an unknown outcome")
	cli.DurationVar(flags, &wf.declared.window, "provider-window", 0, "with --recovery resend: how long the provider knows an idempotency key; 0: always")
	cli.DurationVar(flags, &wf.declared.timeout, "timeout", 0, "declare how long an attempt may take; 0: as the action has it")
	flags.IntVar(&wf.declared.attempts, "attempts", 0, "declare how many attempts may end without an effect; 0: as the action has it")
	wf.addCommon(flags)
}

// options returns the policy that the worker brings.
func (df *declaredFlags) options() (all []client.JobOption) {
	switch df.recovery.Value {
	case "hold":
		all = append(all, client.Hold())
	case "resend":
		all = append(all, client.Resend(df.window))
	}
	if df.timeout > 0 {
		all = append(all, client.Timeout(df.timeout))
	}
	if df.attempts > 0 {
		all = append(all, client.Retry{Attempts: df.attempts})
	}
	return all
}

// errSecondSignal ends the commands that a worker waits for.
var errSecondSignal = errors.New("a second signal ended the worker")

// Work performs the jobs of the actions by a command, until a signal. Then it claims nothing more, and returns when the running
// commands have ended and are reported. If the process dies, its commands are killed, and the policies of their jobs decide.
func Work(ctx context.Context, a *cli.App, f *WorkFlags, actions, argv []string) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.concurrency < 1 || f.concurrency > wire.MaxSlots || f.drain < 0 {
		return cli.UsageError("--concurrency must be 1 to %d, and --drain cannot be negative", wire.MaxSlots)
	}
	if d := &f.declared; d.window < 0 || d.timeout < 0 || d.attempts < 0 || d.attempts > 1000 || d.window > 0 && d.recovery.Value != "resend" {
		return cli.UsageError("--provider-window needs --recovery resend, --attempts is 0 to 1000, and a duration cannot be negative")
	}
	for _, action := range actions {
		if _, err := flight.NewKey(a.Namespace, action, "id"); err != nil {
			return cli.UsageError("action %s: %v", action, err)
		}
	}
	signalled := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	kill, killAll := context.WithCancel(context.WithoutCancel(ctx))
	defer killAll()
	defer catchSignals(signalled, func(s syscall.Signal) {
		switch {
		case s == syscall.SIGUSR1 || s == syscall.SIGUSR2:
		case s == syscall.SIGTSTP:
			a.Say("a worker cannot be stopped with Ctrl-Z, since its session would end; Ctrl-C ends it when its commands have ended")
		case ctx.Err() == nil:
			a.Say("%v: no more jobs are claimed; the worker ends when its commands have ended, or after %v (--drain); another signal ends them", s, f.drain)
			stop()
		default:
			killAll()
		}
	})()
	c, err := a.Connect(ctx, client.WithSessionTTL(f.ttl), client.WithReportTimeout(max(f.reportWait, time.Millisecond)))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	w := c.Worker(client.Concurrency(f.concurrency), client.Drain(f.drain))
	for _, action := range actions {
		w.Handle(action, nil, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			e := &execution{app: a, flags: &f.Flags, argv: argv, capture: newCapture(flight.MaxReceiptBody, io.Discard, io.Discard)}
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(kill, func() { cancel(errSecondSignal) })()
			end, err := e.runCommand(ctx, at, at.Input(), a.Err)
			if err != nil {
				return effect.Answer{}, err
			}
			answer := jobAnswer(end.code, e.capture)
			if answer.ContentType == receiptType {
				a.Say("%s: the receipt does not hold the whole output of %d bytes; store it elsewhere, and print its id", at.Key(), e.capture.out.size)
			}
			return answer, e.classify(end)
		}, f.declared.options()...)
	}
	a.Say("working on %s; Ctrl-C ends it", strings.Join(actions, ", "))
	err = w.Run(ctx)
	done, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTimeout)
	defer cancel()
	_ = c.Close(done) // a report that was not stored stays in the spool
	if differs, ok := errors.AsType[*client.PolicyDiffers](err); ok {
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "flightd actions show " + differs.Action + " prints the document"}
	}
	return a.CallError(err)
}

// jobAnswer returns the standard output of a command as the receipt of its job. Output that is too long for a receipt is in a
// document of exec, which says so.
func jobAnswer(code int, c *capture) effect.Answer {
	c.mu.Lock()
	out, size := c.out.kept.Bytes(), c.out.size
	c.mu.Unlock()
	switch {
	case int64(len(out)) < size:
		return effect.Answer{ContentType: receiptType, Body: encodeReceipt(code, c)}
	case len(out) == 0:
		return effect.Answer{}
	}
	contentType, body := cli.ReceiptBody(out)
	return effect.Answer{ContentType: contentType, Body: body}
}
