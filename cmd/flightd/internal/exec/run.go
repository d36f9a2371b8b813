package exec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// execution is one invocation of exec. It runs the command at most once.
type execution struct {
	app     *cli.App
	flags   *Flags
	argv    []string
	capture *capture
	notices *waitNotices // of the wait for another holder

	mu            sync.Mutex              // guards all below, and orders signals against the start of the command
	client        *client.Client          // nil: not connected yet
	attempt       *effect.Attempt         // of the command; nil: not opened yet
	kill          context.CancelCauseFunc // ends the command
	child         *child                  // nil: not started
	pendingSignal os.Signal               // a signal that arrived before the start: the command must not start any more
	end           *childEnd               // nil: the command has not ended
	startErr      error                   // why the command was not started
	warned        bool                    // the first signal after the command's end was answered with a message
	reportDone    bool                    // the outcome is stored or spooled
}

// handle is the handler of the attempt: it runs the command.
//
// If this process dies before Sending returns, nothing was started. If it dies later, and before the report is stored
// or spooled, the command is killed and its outcome is unknown; the recovery policy decides.
func (e *execution) handle(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
	e.notices.stop()
	var input commandInput
	if err := json.Unmarshal(at.Input(), &input); err != nil {
		return effect.Answer{}, effect.NotDone(fmt.Errorf("the stored input was not written by exec: %w", err))
	}
	end, err := e.runCommand(ctx, at, input.stdin(), &e.capture.err)
	if err != nil {
		return effect.Answer{}, err
	}
	return effect.Answer{ContentType: receiptType, Body: encodeReceipt(end.code, e.capture)}, e.classify(end)
}

// runCommand runs the command of an attempt, for exec and for work, and waits for its end. After an error nothing was started.
func (e *execution) runCommand(ctx context.Context, at *effect.Attempt, stdin []byte, stderr io.Writer) (childEnd, error) {
	spec := childSpec{argv: e.argv, env: e.environment(at), out: &e.capture.out, err: stderr}
	if stdin != nil {
		spec.stdin = bytes.NewReader(stdin)
	}
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	c, err := e.start(at, kill, spec)
	if err != nil {
		return childEnd{}, err
	}
	return e.waitCommand(ctx, at, c), nil
}

// environment returns the command's environment, with the variables of its attempt. It has no FLIGHTD_TOKEN without --pass-token.
func (e *execution) environment(at *effect.Attempt) []string {
	env := os.Environ()
	if !e.flags.passToken {
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "FLIGHTD_TOKEN=") })
	}
	env = append(env,
		"FLIGHTD_KEY="+at.Key().String(),
		cli.InsideExecEnv+"="+at.Key().FlightID().String(),
		"FLIGHTD_FENCING_TOKEN="+at.FencingToken(),
		fmt.Sprintf("FLIGHTD_ATTEMPT=%d", at.Number()),
		"IDEMPOTENCY_KEY="+at.IdempotencyKey(),
	)
	if trace := at.Traceparent(); trace != "" {
		env = append(env, "TRACEPARENT="+trace)
	}
	return env
}

// start starts the command, unless a signal arrived before. Once Sending has returned, the attempt counts as sent.
func (e *execution) start(at *effect.Attempt, kill context.CancelCauseFunc, spec childSpec) (*child, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pendingSignal != nil {
		return nil, effect.NotDone(fmt.Errorf("%v arrived before the command was started", e.pendingSignal))
	}
	if err := at.Sending(); err != nil {
		return nil, err
	}
	e.attempt, e.kill = at, kill
	if e.child, e.startErr = startChild(spec); e.startErr != nil {
		return nil, effect.NotDone(e.startErr)
	}
	return e.child, nil
}

// waitCommand waits for the command.
func (e *execution) waitCommand(ctx context.Context, at *effect.Attempt, c *child) childEnd {
	lost := make(chan struct{}) // closed when the goroutine below has ended; waitCommand waits for it
	go func() {
		defer close(lost)
		select {
		case <-at.LeaseLost():
			e.onLeaseLost()
		case <-c.done:
		}
	}()
	end := c.wait(ctx)
	<-lost
	if end.cutBy != 0 && ctx.Err() != nil {
		why := context.Cause(ctx)
		if errors.Is(why, context.DeadlineExceeded) {
			why, end.timedOut = errors.New("its time-out has passed (--timeout)"), true
		}
		e.app.Say("the command was ended: %v", why)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end = &end
	return end
}

var errLeaseLost = errors.New("the session was lost (--on-lease-lost kill)")

// onLeaseLost kills the command if --on-lease-lost says so.
func (e *execution) onLeaseLost() {
	if e.flags.leaseLost.Value == "kill" {
		e.kill(errLeaseLost)
		return
	}
	e.app.Say("the session is lost; the command continues, and its outcome is reported late")
}

// classify returns the outcome of the command as an error of package effect, or nil if it succeeded. A command that was killed or cut
// short, or a shell whose command was killed, has an unknown outcome, whatever its exit code: a script may exit with 0 after
// the signal has killed the program that charges the card. No exit code means not done unless a flag names it: a script may
// have charged the card before the command whose exit code it returns.
func (e *execution) classify(end childEnd) error {
	status := fmt.Errorf("exit status %d", end.code)
	switch {
	case end.err != nil:
		return end.err
	case end.timedOut:
		return fmt.Errorf("time-out: the command took longer than its attempt may, and was ended by signal %d (%v)", end.cutBy, end.cutBy)
	case end.signal != 0:
		return fmt.Errorf("killed by signal %d (%v)", end.signal, end.signal)
	case end.cutBy != 0:
		return fmt.Errorf("cut short by signal %d (%v), then exit status %d", end.cutBy, end.cutBy, end.code)
	case end.code == 0:
		return nil
	case slices.Contains(e.flags.notDone, end.code):
		return effect.NotDone(status)
	case end.code > signalBase && end.code <= signalBase+lastSignal:
		return status
	case e.flags.failure.Value == "not_done":
		return effect.NotDone(status)
	case e.flags.failure.Value == "refused":
		return effect.Refused(status)
	}
	return status
}

// conclude turns the result of Do into messages and the exit code.
func (e *execution) conclude(key flight.Key, result effect.Result, err error) error {
	e.mu.Lock()
	end, startErr, pendingSignal := e.end, e.startErr, e.pendingSignal
	e.mu.Unlock()
	switch {
	case end != nil:
		if lost := e.capture.writeError(); lost != nil {
			e.app.Say("%s: the command ran, but its output could not be written completely: %v; repeat the exec to print the stored output", key, lost)
		}
		return e.finishRun(key, end, result, err)
	case startErr != nil:
		return notStartedError(e.argv[0], startErr)
	case pendingSignal != nil:
		return gaveUpError(pendingSignal)
	}
	if err == nil || errors.As(err, new(*effect.Declined)) {
		return e.replay(result)
	}
	if conflict, ok := errors.AsType[*effect.Conflict](err); ok {
		return conflictError(conflict)
	}
	if doubt, ok := errors.AsType[*effect.InDoubt](err); ok {
		return e.inDoubtError(doubt)
	}
	return e.app.CallError(err)
}

// gaveUpError reports that a signal ended the call before the command was started.
func gaveUpError(s os.Signal) error {
	return &cli.Error{Code: signalBase + int(s.(syscall.Signal)), Err: fmt.Errorf("%v: gave up; nothing was started here", s)}
}

// inDoubtError reports that the command was not run, because an earlier attempt may have performed the effect.
func (e *execution) inDoubtError(d *effect.InDoubt) error {
	return &cli.Error{Code: cli.ExitInDoubt, Err: fmt.Errorf("%s: %s is in doubt: %s; nothing was run", wire.InDoubt, d.Key, d.Cause),
		Hint: e.doubtHint(d.Key, nil)}
}

// doubtHint names the commands that resolve a doubt, and the flags that avoid it. end is nil if the command was not run.
func (e *execution) doubtHint(key flight.Key, end *childEnd) string {
	flags := "--not-done-exit 75 for a command that exits with 75 when nothing was done, or "
	if codes := e.flags.notDone; len(codes) > 0 {
		flags = fmt.Sprintf("exit %d when nothing was done, or ", codes[0])
	}
	switch {
	case end == nil:
	case end.signal != 0 || end.cutBy != 0: // no exit code counts
		flags = ""
	default:
		flags += "--failure not_done, or "
	}
	return fmt.Sprintf("resolve it:  flightd doubt resolve %s --reason WHY --happened --receipt @FILE | --did-not-happen | --fail\n"+
		"  next time:   %s--recovery resend if a repeat does no harm", key, flags)
}

// conflictError reports the difference to the key's first use in terms of the command line, not of the stored input.
func conflictError(c *effect.Conflict) error {
	var line, input bool
	var foreign []string
	for _, field := range c.Fields {
		switch field {
		case "/program", "/argv", "/argv_sha256":
			line = true
		case "/stdin", "/stdin_base64":
			input = true
		default:
			if strings.HasPrefix(field, "/argv/") {
				line = true
				continue
			}
			foreign = append(foreign, field)
		}
	}
	difference := "the command line or the input differs"
	switch {
	case foreign != nil:
		difference = "not by exec; its input has other fields: " + strings.Join(foreign, " ")
	case line && input:
		difference = "the command line and the input differ"
	case line:
		difference = "the command line differs"
	case input:
		difference = "the input differs"
	}
	return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %s was first used with another command: %s; nothing was run", wire.Conflict, c.Key, difference),
		Hint: "use a new key for a new intent; if the intent is the same, pass --fingerprint none"}
}

// notStartedError returns the exit code that shells use for a command that cannot be started. The key stays free.
func notStartedError(program string, err error) error {
	code, hint := 126, "nothing was done; the key is free for this command line, and for another one with --fingerprint none"
	if errors.Is(err, syscall.ENOEXEC) {
		hint = "name the interpreter in the first line of the script, as in #!/bin/sh; " + hint
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	return &cli.Error{Code: code, Err: fmt.Errorf("start %s: %w", program, err), Hint: hint}
}

// finishRun returns the command's exit code, and prints the state of its key if that is not succeeded. A command that was cut
// short and ended with 0 gets the code of a killed one, because 0 means that the effect happened.
func (e *execution) finishRun(key flight.Key, end *childEnd, result effect.Result, err error) error {
	var (
		unsettled  *effect.Unsettled
		unrecorded *effect.Unrecorded
	)
	code, ended := end.code, fmt.Sprintf("exit code %d", end.code)
	if end.cutBy != 0 {
		ended = fmt.Sprintf("the command was cut short, and %s", ended)
		code = cmp.Or(code, signalBase+int(end.cutBy))
	}
	if declined, ok := errors.AsType[*effect.Declined](err); ok {
		result, err = declined.Result, nil
	}
	switch {
	case err == nil && result.Source == effect.SourceExecuted:
		var r receipt
		if json.Unmarshal(result.Answer.Body, &r) == nil && r.Truncated && !e.flags.truncated {
			e.app.Say("%s: a replay will not be complete, and ends with exit code %d (%s; see --capture)", key, cli.ExitTruncated, r.shortened())
		}
	case errors.As(err, &unsettled) && unsettled.Outcome == flight.OutcomeNotDone:
		e.app.Say("%s: not done (exit %d); the key is free for another try", key, code)
	case errors.As(err, &unsettled):
		e.app.Say("%s: outcome unknown (exit %d); the next exec runs the command again (--recovery resend)", key, code)
	case errors.As(err, new(*effect.InDoubt)) && code != cli.ExitOK:
		e.app.Say("%s is in doubt: %s does not tell whether the effect happened\n  %s", key, ended, e.doubtHint(key, end))
	case errors.As(err, &unrecorded):
		e.app.Say("%s: the command ran, but its outcome is not stored yet; %s", key, unrecordedText(unrecorded, code))
	case err == nil || superseded(err):
		e.app.Say("%s: this attempt was superseded by another attempt or a decision; its outcome does not count; see flightd why %s", key, key)
		code = cli.ExitInDoubt
	default:
		e.app.Say("%s: the command ran, but %v", key, err)
	}
	if code == cli.ExitOK {
		return nil
	}
	return cli.ExitStatus(code)
}

// unrecordedText describes what happens to an outcome that is not stored.
func unrecordedText(u *effect.Unrecorded, code int) string {
	switch {
	case errors.Is(u.Cause, client.ErrNotSpooled):
		return fmt.Sprintf("it could not be spooled either, so it is lost with this process: note exit code %d for the person who resolves the doubt", code)
	case client.IsQuarantined(u):
		return fmt.Sprintf("the server rejected it (%s), and the report is quarantined in the spool", client.CodeOf(u.Cause))
	}
	return "it stays on disk, and the next flightd command that reaches a server reports it"
}

// superseded reports whether the report was rejected because the flight had been decided before.
func superseded(err error) bool {
	return errors.As(err, new(*effect.Fenced)) || errors.As(err, new(*effect.InDoubt)) || errors.As(err, new(*effect.Failed)) || errors.As(err, new(*effect.Expired))
}

// sayOnNewLine is say after a newline, if the printed output does not end with one.
func sayOnNewLine(a *cli.App, printed []byte, format string, args ...any) {
	if n := len(printed); n > 0 && printed[n-1] != '\n' {
		_, _ = io.WriteString(a.Err, "\n")
	}
	a.Say(format, args...)
}

// replay prints the stored output and a message that it is a replay. A receipt that exec did not write is printed as it
// is. A script must not mistake a part of the output for the whole, so that ends with cli.ExitTruncated.
func (e *execution) replay(result effect.Result) error {
	out, errOut, code := result.Answer.Body, []byte(nil), cli.ExitOK
	says := fmt.Sprintf("%s receipt of %s", result.Source, result.At.UTC().Format(time.RFC3339))
	if result.Outcome == flight.OutcomeRefused {
		code = cli.ExitFailed
	}
	missing := "" // the part of the output that is not stored
	switch {
	case result.Truncated && len(out) == 0:
		missing = fmt.Sprintf("its %d bytes are erased", result.Size)
		if result.Size == 0 {
			missing = "a person resolved it without a receipt's body"
		}
	case result.Truncated:
		missing = fmt.Sprintf("of its %d bytes, %d are stored", result.Size, len(out))
	case result.Answer.ContentType == receiptType:
		var r receipt
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("%s: decode the receipt: %w", result.Key, err)
		}
		out, errOut = r.streams()
		says = fmt.Sprintf("%s, it ran at %s", result.Source, result.At.UTC().Format(time.RFC3339))
		code, missing = r.ExitCode, r.shortened()
	}
	_, writeErr := e.app.Out.Write(out)
	_, _ = e.app.Err.Write(errOut)
	if missing != "" {
		says += " (" + missing + ")"
	}
	hint := ""
	if missing != "" && !e.flags.truncated {
		hint, code = fmt.Sprintf("\n  exit %d instead of %d, because this is not the whole output; --allow-truncated accepts that", cli.ExitTruncated, code), cli.ExitTruncated
	}
	sayOnNewLine(e.app, append(out, errOut...), "%s: %s; nothing was run%s", result.Key, says, hint)
	switch {
	case writeErr != nil:
		return writeErr
	case code != cli.ExitOK:
		return cli.ExitStatus(code)
	}
	return nil
}

// Run runs a command once, or replays its output.
func Run(ctx context.Context, a *cli.App, f *Flags, argv []string) error {
	call, err := newCall(a, f, argv)
	if err != nil {
		return err
	}
	e := &execution{app: a, flags: f, argv: argv, capture: newCapture(f.capture, a.Out, a.Err)}
	signalled := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // signals are forwarded to the command
	defer cancel(nil)
	defer catchSignals(signalled, func(s syscall.Signal) { e.onSignal(s, cancel) })()
	c, err := a.Connect(ctx, client.WithSessionTTL(f.ttl), client.WithReportTimeout(max(f.reportWait, time.Millisecond)))
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.pendingSignal != nil {
			return gaveUpError(e.pendingSignal)
		}
		return err
	}
	e.setClient(c)
	e.notices = &waitNotices{key: call.Key, wait: f.wait, say: a.Say, read: func(ctx context.Context) (*client.Flight, error) {
		return c.Flight(ctx, call.Key.FlightID())
	}}
	e.notices.start(ctx)
	result, err := c.Do(ctx, call, e.handle)
	e.notices.stop()
	e.setReportDone()
	if e.end != nil && f.input == "" && cli.UnreadInput(a.In, 0) { // data that arrived while the command ran
		a.Say("%s: standard input has data, which the command did not get: --input - stores it and passes it on", call.Key)
	}
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTimeout)
	defer stop()
	_ = c.Close(done) // a report that was not stored stays in the spool
	return e.conclude(call.Key, result, err)
}
