package main

import (
	"bytes"
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
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// execution is one run of exec. Its command runs at most once in it.
type execution struct {
	app     *app
	flags   execFlags
	argv    []string
	capture *capture

	mu       sync.Mutex
	client   *client.Client          // set when there is one
	at       *effect.Attempt         // of the command
	kill     context.CancelCauseFunc // makes the command end
	child    *child                  // set while it may run
	called   os.Signal               // a signal that came before it started: it must not start any more
	end      *childEnd               // set when it ran to its end
	ended    bool                    // a signal that asks it to end was passed on to it: its exit code promises nothing any more
	cut      bool                    // it was made to end before its time
	startErr error                   // set when it could not be started
	told     bool                    // somebody who wanted this to end was told what it still waits for
	landed   bool                    // the outcome is reported, or on disk
}

// exec runs a command once, or replays what it did.
func (a *app) exec(ctx context.Context, f execFlags, argv []string) error {
	call, err := a.execCall(f, argv)
	if err != nil {
		return err
	}
	e := &execution{app: a, flags: f, argv: argv, capture: newCapture(int(f.capture), a.out, a.err)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer e.passSignals(cancel)()
	c, err := a.connect(ctx, client.WithTTL(f.ttl), client.WithReportWait(max(f.reportWait, time.Millisecond)))
	if err != nil {
		return err
	}
	e.connected(c)
	result, err := c.Do(ctx, call, e.handle)
	e.reported()
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer stop()
	_ = c.Close(done) // what could not be reported stays on disk
	return e.conclude(call.Key, result, err)
}

// handle performs the effect: it runs the command. It is the handler of the attempt.
//
// If this process dies before Sending returned, nothing was started. From then on until the report is committed or in
// the spool, a death leaves it open what the command did, and takes the command along; the recovery policy decides.
func (e *execution) handle(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
	var input commandInput
	if err := json.Unmarshal(at.Input(), &input); err != nil {
		return effect.Answer{}, effect.NotDone(fmt.Errorf("the stored input is none of exec's: %w", err))
	}
	spec := childSpec{argv: e.argv, env: e.environment(at), out: &e.capture.out, err: &e.capture.err}
	if stdin := input.stdin(); stdin != nil {
		spec.stdin = bytes.NewReader(stdin)
	}
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	c, err := e.start(at, kill, spec)
	if err != nil {
		return effect.Answer{}, err
	}
	told, end := e.watch(ctx, at, c)
	return effect.Answer{ContentType: receiptType, Body: encodeReceipt(end.code, e.capture)}, e.classify(end, told)
}

// insideExec is the variable of the environment that tells a flightd that it runs inside of an exec.
const insideExec = "FLIGHTD_FLIGHT_ID"

// environment is what the command finds about its attempt.
func (e *execution) environment(at *effect.Attempt) []string {
	return append(os.Environ(),
		"FLIGHTD_KEY="+at.Key().String(),
		insideExec+"="+at.Key().FlightID().String(),
		"FLIGHTD_FENCING_TOKEN="+at.FencingToken(),
		fmt.Sprintf("FLIGHTD_ATTEMPT=%d", at.Number()),
		"IDEMPOTENCY_KEY="+at.IdempotencyKey(),
	)
}

func (e *execution) start(at *effect.Attempt, kill context.CancelCauseFunc, spec childSpec) (*child, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.called != nil {
		return nil, effect.NotDone(fmt.Errorf("%v came before the command was started", e.called))
	}
	if err := at.Sending(); err != nil {
		return nil, err
	}
	e.at, e.kill = at, kill
	if e.child, e.startErr = startChild(spec); e.startErr != nil {
		return nil, effect.NotDone(e.startErr)
	}
	return e.child, nil
}

// watch waits for the command. told says that it was made to end before its time.
func (e *execution) watch(ctx context.Context, at *effect.Attempt, c *child) (told bool, end childEnd) {
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		select {
		case <-at.LeaseLost():
			e.leaseLost()
		case <-c.done:
		}
	}()
	end = c.wait(ctx)
	<-lost
	told = ctx.Err() != nil
	if told {
		why := context.Cause(ctx)
		if errors.Is(why, context.DeadlineExceeded) {
			why = errors.New("its time is over (--timeout)")
		}
		e.app.say("the command was made to end: %v", why)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	told = told || e.ended
	e.end, e.cut = &end, told
	return told, end
}

var errLeaseLost = errors.New("the claim on the key was lost (--on-lease-lost kill)")

func (e *execution) leaseLost() {
	if e.flags.leaseLost.value == "kill" {
		e.kill(errLeaseLost)
		return
	}
	e.app.say("the claim on the key is lost; the command goes on, and its outcome is reported late")
}

// classify says what the end of the command means: nil for succeeded. One that was killed could not say how far it got, nor
// could a shell one of whose commands was killed. No exit code means that nothing was done unless the caller said so: a script
// may have charged the card before the command whose code it ends with.
func (e *execution) classify(end childEnd, told bool) error {
	what := fmt.Errorf("exit status %d", end.code)
	switch {
	case end.err != nil:
		return end.err
	case end.signal != 0:
		return fmt.Errorf("killed by signal %d (%v)", end.signal, end.signal)
	case end.code == 0:
		return nil
	case slices.Contains(e.flags.notDone, end.code):
		return effect.NotDone(what)
	case told, end.code > signalBase && end.code <= signalBase+lastSignal:
		return what
	case e.flags.failure.value == "not_done":
		return effect.NotDone(what)
	case e.flags.failure.value == "refused":
		return effect.Refused(what)
	}
	return what
}

// conclude turns what Do answered into what a person sees and the exit code.
func (e *execution) conclude(key flight.Key, result effect.Result, err error) error {
	e.mu.Lock()
	end, startErr, called := e.end, e.startErr, e.called
	e.mu.Unlock()
	switch {
	case end != nil:
		if lost := e.capture.failed(); lost != nil {
			e.app.say("%s: it ran, but what it printed could not all be written here: %v; the same exec again prints what is kept of it", key, lost)
		}
		return e.afterRun(key, end, result, err)
	case startErr != nil:
		return notStarted(e.argv[0], startErr)
	case called != nil:
		return &coded{code: signalBase + int(called.(syscall.Signal)), err: fmt.Errorf("%v: gave up; nothing was started here", called)}
	}
	var declined *effect.Declined
	if err == nil || errors.As(err, &declined) {
		return e.app.replay(result)
	}
	var conflict *effect.Conflict
	if errors.As(err, &conflict) {
		return otherCommand(conflict)
	}
	var doubt *effect.InDoubt
	if errors.As(err, &doubt) {
		return e.heldBack(doubt)
	}
	return callError(err)
}

// heldBack says that a command was not run because nobody knows whether an earlier one did it.
func (e *execution) heldBack(d *effect.InDoubt) error {
	return &coded{code: exitInDoubt, err: fmt.Errorf("%s: %s is in doubt: %s; nothing was run", wire.InDoubt, d.Key, d.Cause),
		hint: e.waysOut(d.Key, "")}
}

// waysOut are what a person can do about a doubt, and what avoids it.
func (e *execution) waysOut(key flight.Key, more string) string {
	notDone := "--not-done-exit 75 for a command that exits so when nothing was done, or "
	if codes := e.flags.notDone; len(codes) > 0 {
		notDone = fmt.Sprintf("exit %d when nothing was done, or ", codes[0])
	}
	return fmt.Sprintf("settle it:  flightd doubt resolve %s --reason WHY --happened --receipt @FILE | --did-not-happen | --fail\n"+
		"  next time:  %s%s--recovery resend where a repeat does no harm", key, notDone, more)
}

// otherCommand says what is another one than when the key was first used, in words of the command line: what is stored of a
// command is no business of its caller's.
func otherCommand(c *effect.Conflict) error {
	var line, input bool
	var foreign []string
	for _, field := range c.Fields {
		switch field {
		case "/program", "/argv_sha256":
			line = true
		case "/stdin", "/stdin_base64":
			input = true
		default:
			foreign = append(foreign, field)
		}
	}
	what := "the command line or the input differs"
	switch {
	case foreign != nil:
		what = "not by exec, its input has other fields: " + strings.Join(foreign, " ")
	case line && input:
		what = "the command line and the input differ"
	case line:
		what = "the command line differs"
	case input:
		what = "the input differs"
	}
	return &coded{code: exitUsage, err: fmt.Errorf("%s: %s was first used otherwise: %s; nothing was run", wire.Conflict, c.Key, what),
		hint: "another intent needs a key of its own; where it is the same one, --fingerprint none lets it through"}
}

// notStarted ends with the codes that shells use for it. The key is as free as before.
func notStarted(program string, err error) error {
	code, hint := 126, "nothing was done; the key is free for this command line, and with --fingerprint none for another one"
	if errors.Is(err, syscall.ENOEXEC) {
		hint = "a script says in its first line what runs it, as in #!/bin/sh; " + hint
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	return &coded{code: code, err: fmt.Errorf("%s could not be started: %w", program, err), hint: hint}
}

// afterRun ends as the command did, and says what that means for its key.
func (e *execution) afterRun(key flight.Key, end *childEnd, result effect.Result, err error) error {
	var (
		declined   *effect.Declined
		unsettled  *effect.Unsettled
		doubt      *effect.InDoubt
		unrecorded *effect.Unrecorded
	)
	code := end.code
	if errors.As(err, &declined) {
		result, err = declined.Result, nil
	}
	switch {
	case err == nil && result.Source == effect.Executed:
	case errors.As(err, &unsettled) && unsettled.Outcome == flight.NotDone:
		e.app.say("%s: not done (exit %d); the key is free to be tried again", key, code)
	case errors.As(err, &unsettled):
		e.app.say("%s: it is not known whether it was done (exit %d); the next exec runs it again (--recovery resend)", key, code)
	case errors.As(err, &doubt) && code != exitOK:
		e.app.say("%s is in doubt: exit %d does not say whether it was done.\n  %s", key, code,
			e.waysOut(key, e.failureHint(end)))
	case errors.As(err, &unrecorded):
		e.app.say("%s: it ran, but its outcome is not recorded yet; %s", key, whereabouts(unrecorded, code))
	case err == nil || superseded(err):
		e.app.say("%s: this run came too late: another one or a decision has taken its place; its outcome is kept as evidence; see flightd why %s", key, key)
		code = exitInDoubt
	default:
		e.app.say("%s: it ran, but %v", key, err)
	}
	if code == exitOK {
		return nil
	}
	return silent(code)
}

// whereabouts says what becomes of an outcome that is not recorded.
func whereabouts(u *effect.Unrecorded, code int) string {
	switch {
	case errors.Is(u.Cause, client.ErrNotKept):
		return fmt.Sprintf("no disk has taken it either, so it is lost with this process: note that the command ended with exit %d, for whoever settles the doubt", code)
	case client.PutAside(u):
		return fmt.Sprintf("the server refused it (%s), and it is put aside beside the reports that wait", client.CodeOf(u.Cause))
	}
	return "it stays on disk and is reported by the next flightd command that reaches a server"
}

// failureHint is the part of --failure in what to do next time. Of a command that was killed it says nothing: see classify.
func (e *execution) failureHint(end *childEnd) string {
	if e.cut || end.signal != 0 {
		return ""
	}
	return "--failure not_done, or "
}

// superseded reports whether a report came after something else was decided.
func superseded(err error) bool {
	var fenced *effect.Fenced
	var doubt *effect.InDoubt
	var failed *effect.Failed
	var expired *effect.Expired
	return errors.As(err, &fenced) || errors.As(err, &doubt) || errors.As(err, &failed) || errors.As(err, &expired)
}

// sayBehind is say on a line of its own, also where what was printed does not end with one.
func (a *app) sayBehind(printed []byte, format string, args ...any) {
	if n := len(printed); n > 0 && printed[n-1] != '\n' {
		_, _ = io.WriteString(a.err, "\n")
	}
	a.say(format, args...)
}

// replay writes what a run printed, and says that it is a replay. What a person or another program left as a receipt
// is printed as it is.
func (a *app) replay(result effect.Result) error {
	answer, when := result.Answer, result.At.Local().Format(time.RFC3339)
	erased := ""
	if result.Truncated && len(answer.Body) == 0 { // what was only shortened begins with something
		erased = fmt.Sprintf("; its %d bytes are erased", result.Size)
	}
	if answer.ContentType != receiptType {
		if _, err := a.out.Write(answer.Body); err != nil {
			return err
		}
		a.sayBehind(answer.Body, "%s: %s receipt of %s; nothing was run%s", result.Key, result.Source, when, erased)
		if result.Outcome == flight.Refused {
			return silent(exitFailed)
		}
		return nil
	}
	if erased != "" { // whoever goes on with what the command printed must not take nothing for it
		return fmt.Errorf("%s %s at %s; nothing was run, and its output cannot be printed%s", result.Key, result.Outcome, when, erased)
	}
	var r receipt
	if err := json.Unmarshal(answer.Body, &r); err != nil {
		return fmt.Errorf("%s has a receipt that cannot be read: %w", result.Key, err)
	}
	out, errOut := r.streams()
	_, writeErr := a.out.Write(out)
	_, _ = a.err.Write(errOut)
	more := ""
	if r.Truncated {
		more = fmt.Sprintf(" (output shortened: of %d and %d bytes, %d and %d were kept)", r.StdoutBytes, r.StderrBytes, len(out), len(errOut))
	}
	a.sayBehind(append(out, errOut...), "%s: %s, it ran at %s; nothing was run%s", result.Key, result.Source, when, more)
	if writeErr != nil {
		return writeErr
	}
	if r.ExitCode != exitOK {
		return silent(r.ExitCode)
	}
	return nil
}
