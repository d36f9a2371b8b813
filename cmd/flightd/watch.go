package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

const (
	// watchWait bounds one long poll.
	watchWait = 50 * time.Second
	// watchTimeout is how long watch retries while no server answers.
	watchPatience = time.Minute
)

func (a *app) flightsWatch() *cobra.Command {
	return &cobra.Command{
		Use:   "watch KEY-or-ID",
		Short: "Follow the events of one flight until it ends",
		Long: `Prints the past events of one flight, and follows its events until it ends.

The exit code is 0 if the flight succeeded, and 1 if it failed or was cancelled. A flight in doubt is watched until it is
resolved.`,
		Example: `  flightd flights watch charge/order-42
  flightd flights watch fl_abc… -o json`,
		Args: exactly(1, "a key or an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				return a.watch(cmd.Context(), c, args[0])
			}, client.WithPatience(watchPatience))
		},
	}
}

// watch prints the events of a flight until it ends.
func (a *app) watch(ctx context.Context, c *client.Client, word string) error {
	f, err := a.find(ctx, c, word)
	if err != nil {
		return err
	}
	id, err := flight.ParseID(f.ID)
	if err != nil {
		return err
	}
	told, doubted := 0, ""
	for {
		story, err := c.History(ctx, id)
		if err != nil {
			return watched(ctx, err)
		}
		for _, e := range story.Events[min(told, len(story.Events)):] {
			e.Key, e.FlightID = f.Key, f.ID
			if err := a.writeEvent(e); err != nil {
				return err
			}
		}
		told = max(told, len(story.Events))
		if isOver(f.State) {
			return a.endOfWatch(f, story.Duplicates)
		}
		if f.State == flight.InDoubt.String() && doubted != f.Version {
			doubted = f.Version
			a.say("%s is %s", keyOf(f), present(f))
		}
		if f, err = c.WaitFlight(ctx, id, f.Version, watchWait); err != nil {
			return watched(ctx, err)
		}
	}
}

// ignoreCancelled returns nil if Ctrl-C ended the watch.
func watched(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// isTerminalState reports whether a flight in this state has ended.
func isOver(state string) bool {
	s, err := flight.ParseState(state)
	return err == nil && s.Terminal()
}

// finishWatch prints the final state and returns the exit code.
func (a *app) endOfWatch(f *client.Flight, d *client.Duplicates) error {
	for _, line := range duplicates(d) {
		a.say("%s", line)
	}
	a.say("%s: %s", keyOf(f), present(f))
	if !succeeded(f) {
		return silent(exitFailed)
	}
	return nil
}

// succeeded reports whether a flight that has ended succeeded; a tombstone has the outcome in its receipt.
func succeeded(f *client.Flight) bool {
	return f.State == flight.StateSucceeded.String() ||
		f.State == flight.Expired.String() && f.Receipt != nil && f.Receipt.Outcome == flight.Succeeded.String()
}
