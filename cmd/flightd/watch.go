package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

const (
	// watchWait is how long one question for news of a flight may wait for them.
	watchWait = 50 * time.Second
	// watchPatience is how long a server may be away while somebody watches.
	watchPatience = time.Minute
)

func (a *app) flightsWatch() *cobra.Command {
	return &cobra.Command{
		Use:   "watch KEY-or-ID",
		Short: "Tell what happens to one flight until it has ended",
		Long: `Tell what happened to one flight, and what happens to it until it has ended.

Exit codes: 0 it succeeded, 1 it failed or was cancelled. A flight in doubt is watched until somebody has settled it.`,
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

// watch writes the events of a flight until it has ended.
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

// watched is nil where whoever watches has had enough.
func watched(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func isOver(state string) bool {
	s, err := flight.ParseState(state)
	return err == nil && s.Terminal()
}

// endOfWatch says how the flight stands, and ends the program accordingly.
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

// succeeded reports whether a flight that is over did; a tombstone says how it ended.
func succeeded(f *client.Flight) bool {
	return f.State == flight.StateSucceeded.String() ||
		f.State == flight.Expired.String() && f.Receipt != nil && f.Receipt.Outcome == flight.Succeeded.String()
}
