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

// until is ctx, which ends with the first of the signals that are heeded.
func until(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	if ends := heeded(signals...); len(ends) > 0 { // none would mean all
		return signal.NotifyContext(ctx, ends...)
	}
	return ctx, func() {}
}

// heeded are those of the signals that whoever started this program did not have it ignore, as nohup and a shell's & do.
// To listen to one that is ignored would end that, for the commands that this program runs, too.
func heeded(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }
