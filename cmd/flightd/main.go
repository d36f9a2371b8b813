package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := notifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, etc: "/etc"}, os.Args[1:])
	stop()
	os.Exit(code)
}

// notifyContext returns a context that ends at the first of these signals, except those that are ignored.
func notifyContext(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	if notified := notIgnored(signals...); len(notified) > 0 { // an empty list would mean all signals
		return signal.NotifyContext(ctx, notified...)
	}
	return ctx, func() {}
}

// notIgnored returns the signals that this process does not ignore. nohup and a shell's & start a program with ignored
// signals; to catch such a signal would also end its being ignored in the commands that this program runs.
func notIgnored(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }
