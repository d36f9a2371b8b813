package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := context.Background(), func() {}
	if ends := heeded(os.Interrupt, syscall.SIGTERM); len(ends) > 0 { // none would mean all
		ctx, stop = signal.NotifyContext(ctx, ends...)
	}
	code := run(ctx, terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv}, os.Args[1:])
	stop()
	os.Exit(code)
}

// heeded are those of the signals that whoever started this program did not have it ignore, as nohup and a shell's & do.
// To listen to one that is ignored would end that, for the commands that this program runs, too.
func heeded(signals ...os.Signal) []os.Signal { return slices.DeleteFunc(signals, signal.Ignored) }
