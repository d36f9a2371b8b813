// Package cli is what all commands of flightd share: the settings of an invocation, the client that they describe, the forms of
// the output, and the errors with their exit codes and hints.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
)

// Terminal holds the standard streams and the environment: data goes to out, messages go to err.
type Terminal struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string
	Environ  []string // all environment variables; nil in tests
	Etc      string   // directory of the machine's settings; empty if the machine has none
}

// App is one invocation of the program: its terminal and its settings.
type App struct {
	Terminal
	Settings
	Yes          bool
	UnknownTopic error  // help was requested for an unknown command
	Version      string // of this program
	Silent       bool   // flightd dev --nodes has started this process, and prints the banner itself
}

// Complain prints an error message and a hint without control characters and credentials; either may be empty.
func (a *App) Complain(message, hint string) {
	if message != "" {
		_, _ = fmt.Fprintln(a.Err, a.Paint(a.Err, Red, "flightd:")+" "+Message(message))
	}
	if hint != "" {
		_, _ = fmt.Fprintln(a.Err, "  "+Message(hint))
	}
}

// UnknownVersion is the version of a build without version information, as by go run.
const UnknownVersion = "devel"

// NotifyContext returns a context that ends at the first of these signals, except those that are ignored. TakeSignals then
// returns the signal.
func NotifyContext(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	notified := NotIgnored(signals...)
	if len(notified) == 0 { // an empty list would mean all signals
		return ctx, func() {}
	}
	received, noMore := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(received, notified...)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		defer close(noMore)
		if s, ok := <-received; ok {
			cancel(signalError{s})
		}
	}()
	stop := sync.OnceFunc(func() {
		signal.Stop(received)
		close(received)
		<-noMore
	})
	return context.WithValue(ctx, stopKey{}, stop), func() { stop(); cancel(nil) }
}

// stopKey is the key of the function that ends the delivery of signals to a context of NotifyContext.
type stopKey struct{}

type signalError struct{ os.Signal }

func (e signalError) Error() string { return e.String() + " signal received" }

// TakeSignals ends the delivery of signals to a context of NotifyContext. It returns the signal that has ended the context before, or nil.
func TakeSignals(ctx context.Context) os.Signal {
	if stop, ok := ctx.Value(stopKey{}).(func()); ok {
		stop()
	}
	if received, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
		return received.Signal
	}
	return nil
}

// NotIgnored returns the signals that this process does not ignore. nohup and a shell's & start a program with ignored
// signals; to catch such a signal would also end its being ignored in the commands that this program runs.
func NotIgnored(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }

// InsideExecEnv is the environment variable by which a flightd detects that it runs inside an exec.
const InsideExecEnv = "FLIGHTD_FLIGHT_ID"
