package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newTailCommand(a *cli.App) *cobra.Command {
	var q client.EventQuery
	var noFollow bool
	c := &cobra.Command{
		Use:   "tail",
		Short: "Follow the events of all flights",
		Long: `Follows the events of the flights in a namespace, or in all namespaces, until Ctrl-C.

Events come in the order of the ledger's log. Duplicates are counted in memory first: their line has the number of calls,
and the time at which the count was logged, usually a quarter of a second after the calls.

With -o json every event is one line of JSON. After a restart of the server tail continues with the next event; none is
missed.`,
		Example: `  flightd tail
  flightd tail -A                                    # in all namespaces
  flightd tail --kind in_doubt,overlap --since 1h
  flightd tail --action charge --last 0 -o json`,
		PreRunE: func(*cobra.Command, []string) error {
			if q.Last < 0 {
				return cli.UsageError("--last %d: at least 0", q.Last)
			}
			return checkPrefix(a, q.KeyPrefix, q.AllNamespaces)
		},
		RunE: a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
			if noFollow {
				return printPastEvents(ctx, a, c, q)
			}
			return followEvents(ctx, a, c, q)
		}),
	}
	flags := c.Flags()
	allNamespacesFlag(flags, &q.AllNamespaces)
	flags.IntVar(&q.Last, "last", 10, "begin with this many past events")
	cli.SinceVar(flags, &q.Since, "only past events within this time, such as 1h or 30d, or since this time; 0: all")
	flags.StringVar(&q.After, "after", "", "begin after the event with this id instead")
	flags.StringVar(&q.Action, "action", "", "only keys with this name")
	flags.StringVar(&q.KeyPrefix, "prefix", "", "only full keys with this prefix")
	flags.StringSliceVar(&q.Kinds, "kind", nil, "only these kinds of events, such as opened, reported, in_doubt, overlap, duplicates")
	flags.BoolVar(&noFollow, "no-follow", false, "stop after the last past event")
	return c
}

// kindWords returns the kinds of events.
func kindWords() (words []string) {
	for k := flight.EventSubmitted; k <= flight.EventImported; k++ {
		words = append(words, k.String())
	}
	return words
}

// followEvents prints events as they arrive.
func followEvents(ctx context.Context, a *cli.App, c *client.Client, q client.EventQuery) error {
	lost := false
	q.OnDisconnect = func(why error) {
		if !lost {
			a.Say("the stream was interrupted (%v); it continues after the last event when a server answers", why)
		}
		lost = true
	}
	for e, err := range c.Events(ctx, q) {
		if err != nil {
			if ctx.Err() != nil {
				return nil // ended by Ctrl-C
			}
			return expiredError(err)
		}
		lost = false
		if e.Kind == wire.MessageGap {
			a.Say("%s; see flightd flights ls --since", e.Note)
			continue
		}
		if err := writeEvent(a, e); err != nil {
			return err
		}
	}
	return nil
}

// printPastEvents prints the events up to now.
func printPastEvents(ctx context.Context, a *cli.App, c *client.Client, q client.EventQuery) error {
	if q.Last == 0 && q.After == "" {
		return cli.UsageError("--last 0 --no-follow would print nothing")
	}
	var end flight.Version
	if q.After != "" { // without it, there is only one page
		var err error
		if end, err = endOfEvents(ctx, c); err != nil {
			return err
		}
	}
	for some := false; ; {
		page, err := c.EventPage(ctx, q, 0)
		if err != nil {
			return expiredError(err)
		}
		some = some || len(page.Events) > 0
		for _, e := range page.Events {
			if err := writeEvent(a, e); err != nil {
				return err
			}
		}
		next, err := flight.ParseVersion(page.Next)
		if q.After == "" || err != nil || !end.After(next) {
			if err == nil && !some && a.Format == "table" {
				printEmptyList(a, "events", q.AllNamespaces)
			}
			return err
		}
		q.After = page.Next
	}
}

// endOfEvents returns the position after the last event of now.
func endOfEvents(ctx context.Context, c *client.Client) (flight.Version, error) {
	page, err := c.EventPage(ctx, client.EventQuery{Last: 1, AllNamespaces: true}, 0)
	if err != nil {
		return flight.Version{}, err
	}
	return flight.ParseVersion(page.Next)
}

// expiredError adds a hint to the error for a position whose events are deleted.
func expiredError(err error) error {
	if e, ok := errors.AsType[*client.Error](err); ok && e.Problem.Code == wire.Expired {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("expired: %s", e.Problem.Detail),
			Hint: "omit --after; see the flights themselves for what was missed: flightd flights ls --since 1h, flightd why KEY"}
	}
	return err
}

// writeEvent prints one event on one line.
func writeEvent(a *cli.App, e client.Event) error {
	text := e.ID
	if a.Format == "table" {
		text = fmt.Sprintf("%s  %s  %s", cli.FormatTime(e.At.Time), cmp.Or(e.Key, e.FlightID), cli.OneLine(eventText(e)))
	}
	return a.PrintStreamed(e, text)
}
