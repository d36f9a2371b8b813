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

const (
	// watchWait bounds one long poll.
	watchWait = 50 * time.Second
	// watchTimeout is how long watch retries while no server answers.
	watchTimeout = time.Minute
)

func newFlightsWatchCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "watch KEY-or-ID",
		Short: "Follow the events of one flight until it ends",
		Long: `Prints the past events of one flight, and follows its events until it ends.

The exit code is 0 if the flight succeeded, and 1 if it failed or was cancelled. A flight in doubt is watched until it is
resolved.`,
		Example: `  flightd flights watch charge/order-42
  flightd flights watch fl_abc… -o json`,
		RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			return watchFlight(ctx, a, c, args[0])
		}, client.WithRetryTimeout(watchTimeout)),
	}
}

// watchFlight prints the events of a flight until it ends.
func watchFlight(ctx context.Context, a *cli.App, c *client.Client, word string) error {
	f, id, err := a.FindFlight(ctx, c, word, false)
	if err != nil {
		return err
	}
	printed, doubtVersion := 0, ""
	for {
		story, err := c.History(ctx, id)
		if err != nil {
			return ignoreCancelled(ctx, err)
		}
		for _, e := range story.Events[min(printed, len(story.Events)):] {
			e.Key, e.FlightID = f.Key, f.ID
			if err := writeEvent(a, e); err != nil {
				return err
			}
		}
		printed = max(printed, len(story.Events))
		if isTerminalState(f.State) {
			return finishWatch(a, f, story.Duplicates)
		}
		if f.State == flight.StateInDoubt.String() && doubtVersion != f.Version {
			doubtVersion = f.Version
			a.Say("%s is %s", displayKey(f), stateText(f))
		}
		if f, err = c.WaitFlight(ctx, id, f.Version, watchWait); err != nil {
			return ignoreCancelled(ctx, err)
		}
	}
}

// ignoreCancelled returns nil if Ctrl-C ended the watch.
func ignoreCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// isTerminalState reports whether a flight in this state has ended.
func isTerminalState(state string) bool {
	s, err := flight.ParseState(state)
	return err == nil && s.Terminal()
}

// finishWatch prints the final state and returns the exit code.
func finishWatch(a *cli.App, f *client.Flight, d *client.Duplicates) error {
	for _, line := range duplicateLines(d) {
		a.Say("%s", line)
	}
	a.Say("%s: %s", displayKey(f), stateText(f))
	if !succeeded(f) {
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}

// succeeded reports whether a flight that has ended succeeded; a tombstone has the outcome in its receipt.
func succeeded(f *client.Flight) bool {
	return f.State == flight.StateSucceeded.String() ||
		f.State == flight.StateExpired.String() && f.Receipt != nil && f.Receipt.Outcome == flight.OutcomeSucceeded.String()
}

func newFlightsWaitCommand(a *cli.App) *cobra.Command {
	var wait time.Duration
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
			return waitForReceipt(ctx, a, c, key, wait)
		}, client.WithRetryTimeout(watchTimeout)),
	}
	cli.WaitVar(c.Flags(), &wait, "wait", cli.Forever, "how long to wait: a duration, 0 or forever")
	return c
}

// errWaitOver is the end of --wait.
var errWaitOver = errors.New("it has not ended, and --wait is over")

// withWait returns a context that ends with errWaitOver when the wait is over.
func withWait(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait == cli.Forever {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, wait, errWaitOver)
}

// waitForReceipt waits until a flight has ended, and prints its receipt.
func waitForReceipt(ctx context.Context, a *cli.App, c *client.Client, key flight.Key, wait time.Duration) error {
	waitCtx, cancel := withWait(ctx, wait)
	defer cancel()
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
