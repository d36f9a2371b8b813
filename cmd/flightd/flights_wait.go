package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newFlightsWaitCommand(a *cli.App) *cobra.Command {
	wait := cli.WaitValue(cli.Forever)
	c := &cobra.Command{
		Use:   "wait KEY-or-ID",
		Short: "Wait until a flight has ended, and print its receipt",
		Long: `Waits until a flight has ended, and prints its receipt to standard output, byte for byte.

The exit code is 0 if it succeeded, 1 if it was refused, failed or was cancelled, 76 if a person must resolve it, and 75 if
it has not ended when --wait is over.`,
		Example: "  flightd flights wait charge/order-42\n  flightd flights wait charge/order-42 --wait 30s",
		RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			f, _, err := a.FindFlight(ctx, c, args[0], false)
			if err != nil {
				return err
			}
			key, err := flight.ParseStoredKey(f.Key)
			if err != nil {
				return err
			}
			return waitForReceipt(ctx, a, c, key, time.Duration(wait))
		}, client.WithRetryTimeout(watchTimeout)),
	}
	c.Flags().Var(&wait, "wait", "how long to wait: a duration, 0 or forever")
	return c
}

// errWaitOver is the end of --wait.
var errWaitOver = errors.New("it has not ended, and --wait is over")

// waitForReceipt waits until a flight has ended, and prints its receipt.
func waitForReceipt(ctx context.Context, a *cli.App, c *client.Client, key flight.Key, wait time.Duration) error {
	waitCtx := ctx
	if wait != cli.Forever {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithTimeoutCause(ctx, wait, errWaitOver)
		defer cancel()
	}
	result, err := c.WaitResult(waitCtx, key)
	var declined *client.Declined
	switch {
	case errors.Is(err, errWaitOver):
		return &cli.Error{Code: cli.ExitBusy, Err: fmt.Errorf("%s: %w", key, err), Hint: fmt.Sprintf("run flightd why %s to see its state, or flightd flights wait %s", key, key)}
	case err != nil && !errors.As(err, &declined):
		return err
	case a.Format != "table":
		f, err := c.Flight(ctx, key.FlightID())
		if err != nil {
			return err
		}
		if err := writeFlight(a, f); err != nil {
			return err
		}
	default:
		if _, err := a.Out.Write(result.Answer.Body); err != nil {
			return err
		}
	}
	switch {
	case declined != nil:
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s: %w", wire.FlightFailed, err)}
	case result.Truncated && a.Format == "table":
		return &cli.Error{Code: cli.ExitTruncated, Err: &client.ReceiptTruncated{Result: result}}
	}
	return nil
}
