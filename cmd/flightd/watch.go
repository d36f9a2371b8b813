package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
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
