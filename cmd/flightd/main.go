package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := until(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv}, os.Args[1:])
	stop()
	os.Exit(code)
}

// notifyContext returns a context that ends at the first of these signals, except those that are ignored.
func until(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	if ends := heeded(signals...); len(ends) > 0 { // an empty list would mean all signals
		return signal.NotifyContext(ctx, ends...)
	}
	return ctx, func() {}
}

// notIgnored returns the signals that this process does not ignore. nohup and a shell's & start a program with ignored
// signals; to catch such a signal would also end its being ignored in the commands that this program runs.
func heeded(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }
