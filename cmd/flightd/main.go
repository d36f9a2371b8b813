package main

import (
	"context"
	"os"
	"syscall"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

func main() {
	ctx, stop := cli.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, cli.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Environ: os.Environ(), Etc: "/etc"}, os.Args[1:])
	stop()
	os.Exit(code)
}
