package exec

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// newTestAttempt returns an execution and its attempt; lost: the lease is lost, so that the attempt may not start.
func newTestAttempt(t *testing.T, argv []string, lost bool) (*execution, *effect.Attempt) {
	t.Helper()
	a := &cli.App{Terminal: cli.Terminal{Out: io.Discard, Err: io.Discard}, Settings: cli.Settings{Namespace: "default"}}
	f := &Flags{recovery: cli.NewChoice("hold"), fingerprint: cli.NewChoice("command"), failure: cli.NewChoice("unknown"), leaseLost: cli.NewChoice("finish")}
	s, err := newSubmission(a, f, argv)
	require.NoError(t, err)
	key, err := a.NewKey("unit")
	require.NoError(t, err)
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
	require.ErrorIs(t, err, effect.ErrLeaseLost, "got %v, which is %v", err, effect.Classify(err, at))
	require.Equal(t, flight.OutcomeNotDone, effect.Classify(err, at), "got %v, which is %v", err, effect.Classify(err, at))
	_, err = os.Stat(mark)
	require.Error(t, err, "the command ran")
}

func TestExec_SignalBeforeStartStartsNothing(t *testing.T) {
	e, at := newTestAttempt(t, []string{"/bin/false"}, false)
	var cause error
	e.onSignal(syscall.SIGTERM, func(err error) { cause = err })
	_, err := e.handle(t.Context(), at)
	require.Equal(t, flight.OutcomeNotDone, effect.Classify(err, at), "got %v, cause %v, end %v", err, cause, e.end)
	require.Nil(t, e.end, "got %v, cause %v, end %v", err, cause, e.end)
	require.Error(t, cause, "got %v, cause %v, end %v", err, cause, e.end)
	code, _, _ := cli.Explain(e.conclude(at.Key(), effect.Result{}, err))
	require.Equal(t, signalBase+int(syscall.SIGTERM), code, "exit %d", code)
}

// The time-out of an attempt makes its outcome unknown, also if the command ends with a code that promises that nothing was done.
func TestExec_TimeOutIsUnknownWhateverTheCode(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	script := "trap 'exit 75' TERM; echo charged > " + mark + "; while :; do sleep 0.05; done"
	e, at := newTestAttempt(t, []string{"/bin/sh", "-c", script}, false)
	e.flags.notDone = []int{75}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for _, err := os.Stat(mark); err != nil; _, err = os.Stat(mark) {
			time.Sleep(10 * time.Millisecond)
		}
		cancel(context.DeadlineExceeded)
	}()
	_, err := e.handle(ctx, at)
	require.Equal(t, flight.OutcomeUnknown, effect.Classify(err, at), "%v", err)
	code, _, _ := cli.Explain(e.conclude(at.Key(), effect.Result{}, &effect.InDoubt{Key: at.Key()}))
	require.Equal(t, 75, code)
}

// A report that comes after another attempt or a decision does not count, whatever the command's exit code.
func TestExec_SupersededAttempt(t *testing.T) {
	for _, err := range []error{&effect.Fenced{}, &effect.InDoubt{}} {
		var talk strings.Builder
		e, at := newTestAttempt(t, []string{"/bin/true"}, false)
		e.app.Err = &talk
		_, _ = e.handle(t.Context(), at)
		code, _, _ := cli.Explain(e.conclude(at.Key(), effect.Result{}, err))
		require.Equal(t, cli.ExitInDoubt, code)
		require.Contains(t, talk.String(), "does not count")
	}
}

// failingWriter is an output on a full disk, or a closed pipe.
type failingWriter struct{ error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.error }

// TestExec_OutputWriteErrorIsReported: the command does not see write errors, so exec reports them. A closed pipe is
// not an error.
func TestExec_OutputWriteErrorIsReported(t *testing.T) {
	for cause, reported := range map[error]bool{syscall.ENOSPC: true, syscall.EPIPE: false} {
		var talk strings.Builder
		e, at := newTestAttempt(t, []string{"/bin/echo", "paid"}, false)
		e.app.Err = &talk
		e.capture = newCapture(1024, failingWriter{cause}, io.Discard)
		_, err := e.handle(t.Context(), at)
		require.NoError(t, err)
		err = e.conclude(at.Key(), effect.Result{Source: effect.SourceExecuted}, nil)
		require.NoError(t, err, "%v: it ends with %v", cause, err)
		require.Equal(t, reported, strings.Contains(talk.String(), cause.Error()), "%v: it says %q", cause, &talk)
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
		code, text, hint := cli.Explain(e.conclude(at.Key(), effect.Result{}, &effect.Conflict{Key: at.Key(), Fields: fields}))
		require.Equal(t, cli.ExitUsage, code, "%v: exit %d, %q, %q", fields, code, text, hint)
		require.Contains(t, text, want, "%v: exit %d, %q, %q", fields, code, text, hint)
		require.Contains(t, text, "idempotency_conflict: default/exec/unit ", "%v: exit %d, %q, %q", fields, code, text, hint)
		require.NotContains(t, text, "sha256", "%v: exit %d, %q, %q", fields, code, text, hint)
		require.NotContains(t, text, "stdin", "%v: exit %d, %q, %q", fields, code, text, hint)
		require.Contains(t, hint, "--fingerprint none", "%v: exit %d, %q, %q", fields, code, text, hint)
	}
}

func TestCLI_CommandLinesAreToldApart(t *testing.T) {
	seen := make(map[string][]string)
	for _, argv := range [][]string{{"a"}, {"a", ""}, {"a", "b"}, {"ab"}, {"a b"}, {"", "a", "b"}, {"b", "a"}} {
		d := argvDigest(argv)
		other, ok := seen[d]
		require.False(t, ok, "%q and %q have the same digest", argv, other)
		seen[d] = argv
	}
}

// People see the command line with a doubt, unless its arguments are secrets. The fingerprint is the same either way.
func TestCLI_ArgumentsAreStoredUnlessTheyAreSecrets(t *testing.T) {
	a := &cli.App{Settings: cli.Settings{Namespace: "default"}}
	submit := func(secret bool, argv ...string) (flight.Submission, string) {
		s, err := newSubmission(a, &Flags{recovery: cli.NewChoice("hold"), fingerprint: cli.NewChoice("command"), secretArgs: secret}, argv)
		require.NoError(t, err)
		return s, string(s.Input.Data)
	}
	hidden, text := submit(true, "/opt/pay.sh", "--token", "s3cret")
	require.Equal(t, `{"program":"pay.sh","argv_sha256":"`+argvDigest([]string{"/opt/pay.sh", "--token", "s3cret"})+`"}`, text)
	shown, text := submit(false, "/opt/pay.sh", "--token", "s3cret")
	require.Contains(t, text, `"argv":["/opt/pay.sh","--token","s3cret"]`)
	require.Equal(t, hidden.Fingerprint, shown.Fingerprint)
	_, text = submit(false, "/opt/pay.sh", strings.Repeat("x", maxStoredArgv))
	require.NotContains(t, text, "xxx")
	for _, word := range []string{"\xff", "\uffff", "\ufdd0"} { // JSON would change the first, and an input may not have the others
		s, text := submit(false, "printf", word)
		require.NotContains(t, text, `"argv":`, "%q", word)
		_, err := flight.CanonicalJSON(s.Input.Data)
		require.NoError(t, err, "%q", word)
	}
	e, at := newTestAttempt(t, []string{"/bin/false"}, false)
	_, message, _ := cli.Explain(e.conclude(at.Key(), effect.Result{}, &effect.Conflict{Key: at.Key(), Fields: []string{"/argv", "/argv/1", "/argv_sha256"}}))
	require.Contains(t, message, "the command line differs")
}

// The token of exec is not that of its command.
func TestExec_CommandGetsNoToken(t *testing.T) {
	t.Setenv("FLIGHTD_TOKEN", "fltd_secret")
	for _, pass := range []bool{false, true} {
		e, at := newTestAttempt(t, []string{"/bin/false"}, false)
		e.flags.passToken = pass
		require.Equal(t, pass, slices.Contains(e.environment(at), "FLIGHTD_TOKEN=fltd_secret"))
		require.Contains(t, strings.Join(e.environment(at), "\n"), "FLIGHTD_FENCING_TOKEN=")
	}
}

// The line of JSON that a worker's command prints is stored as JSON.
func TestWork_LineOfJSON(t *testing.T) {
	for out, want := range map[string]string{"{\"id\": 1}\n": "application/json {\"id\": 1}", "paid\n": "text/plain; charset=utf-8 paid\n", " 7 \r\n": "application/json 7"} {
		c := newCapture(1024, io.Discard, io.Discard)
		_, err := io.WriteString(&c.out, out)
		require.NoError(t, err)
		answer := jobAnswer(0, c)
		require.Equal(t, want, answer.ContentType+" "+string(answer.Body))
	}
	c := newCapture(1024, io.Discard, io.Discard)
	_, err := io.WriteString(&c.out, strings.Repeat("x", 100_000))
	require.NoError(t, err)
	answer := jobAnswer(0, c)
	require.Equal(t, receiptType, answer.ContentType, "output that is too long for a receipt is stored as far as it goes")
	require.Contains(t, string(answer.Body), `"truncated":true,"stdout_bytes":100000`)
}

// The command belongs to the trace of its attempt, whatever the environment of exec says.
func TestExec_TraceOfTheAttempt(t *testing.T) {
	const attempt = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	t.Setenv("TRACEPARENT", "00-11111111111111111111111111111111-2222222222222222-01")
	e, _ := newTestAttempt(t, []string{"/bin/sh", "-c", `test "$TRACEPARENT" = ` + attempt}, false)
	at := effect.NewAttempt(effect.Spec{LeaseLost: func() <-chan struct{} { return nil }, Context: effect.WithTraceparent(t.Context(), attempt)})
	end, err := e.runCommand(t.Context(), at, nil, io.Discard)
	require.NoError(t, err)
	require.Zero(t, end.code)
}
