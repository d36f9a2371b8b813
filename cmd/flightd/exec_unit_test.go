package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// newTestAttempt returns an execution and its attempt; lost: the lease is lost, so that the attempt may not start.
func newTestAttempt(t *testing.T, argv []string, lost bool) (*execution, *effect.Attempt) {
	t.Helper()
	a := &app{terminal: terminal{out: io.Discard, err: io.Discard}, namespace: "default"}
	f := execFlags{recovery: newChoice("hold"), fingerprint: newChoice("command"), failure: newChoice("unknown"), leaseLost: newChoice("finish")}
	s, err := a.execSubmission(f, argv)
	if err != nil {
		t.Fatal(err)
	}
	key, err := a.newKey("unit")
	if err != nil {
		t.Fatal(err)
	}
	spec := effect.Spec{Key: key, Number: 1, Input: s.Input, LeaseLost: func() <-chan struct{} { return nil }, Context: t.Context()}
	if lost {
		spec.MayStart = func() error { return effect.ErrLeaseLost }
	}
	return &execution{app: a, flags: f, argv: argv, capture: newCapture(1024, io.Discard, io.Discard)}, effect.NewAttempt(spec)
}

func TestExec_LostLeaseStartsNothing(t *testing.T) {
	mark := t.TempDir() + "/mark"
	e, at := newTestAttempt(t, []string{"/bin/sh", "-c", "echo x > " + mark}, true)
	_, err := e.handle(t.Context(), at)
	if !errors.Is(err, effect.ErrLeaseLost) || effect.Classify(err, at) != flight.OutcomeNotDone {
		t.Errorf("got %v, which is %v", err, effect.Classify(err, at))
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran")
	}
}

func TestExec_SignalBeforeStartStartsNothing(t *testing.T) {
	e, at := newTestAttempt(t, []string{"/bin/false"}, false)
	var cause error
	e.onSignal(syscall.SIGTERM, func(err error) { cause = err })
	_, err := e.handle(t.Context(), at)
	if effect.Classify(err, at) != flight.OutcomeNotDone || e.end != nil || cause == nil {
		t.Errorf("got %v, cause %v, end %v", err, cause, e.end)
	}
	if code, _, _ := explain(e.conclude(at.Key(), effect.Result{}, err)); code != signalBase+int(syscall.SIGTERM) {
		t.Errorf("exit %d", code)
	}
}

// failingWriter is an output on a full disk, or a closed pipe.
type failingWriter struct{ error }

func (b failingWriter) Write([]byte) (int, error) { return 0, b.error }

// TestExec_OutputWriteErrorIsReported: the command does not see write errors, so exec reports them. A closed pipe is
// not an error.
func TestExec_OutputWriteErrorIsReported(t *testing.T) {
	for cause, told := range map[error]bool{syscall.ENOSPC: true, syscall.EPIPE: false} {
		var talk strings.Builder
		e, at := newTestAttempt(t, []string{"/bin/echo", "paid"}, false)
		e.app.err = &talk
		e.capture = newCapture(1024, failingWriter{cause}, io.Discard)
		if _, err := e.handle(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		if err := e.conclude(at.Key(), effect.Result{Source: effect.SourceExecuted}, nil); err != nil {
			t.Errorf("%v: it ends with %v", cause, err)
		}
		if got := strings.Contains(talk.String(), cause.Error()); got != told {
			t.Errorf("%v: it says %q", cause, &talk)
		}
	}
}

// TestExec_ConflictNamesCommandLineOrInput: the message does not show fields of the stored input.
func TestExec_ConflictNamesCommandLineOrInput(t *testing.T) {
	for want, fields := range map[string][]string{
		"the command line differs":                               {"/argv_sha256"},
		"the command line or the input differs":                  nil,
		"the input differs":                                      {"/stdin"},
		"the command line and the input differ":                  {"/argv_sha256", "/program", "/stdin_base64"},
		"not by exec; its input has other fields: /cents /order": {"/argv_sha256", "/cents", "/order", "/program"},
	} {
		e, at := newTestAttempt(t, []string{"/bin/false"}, false)
		code, text, hint := explain(e.conclude(at.Key(), effect.Result{}, &effect.Conflict{Key: at.Key(), Fields: fields}))
		if code != exitUsage || !strings.Contains(text, want) || !strings.Contains(text, "idempotency_conflict: default/exec/unit ") ||
			strings.Contains(text, "sha256") || strings.Contains(text, "stdin") || !strings.Contains(hint, "--fingerprint none") {
			t.Errorf("%v: exit %d, %q, %q", fields, code, text, hint)
		}
	}
}
