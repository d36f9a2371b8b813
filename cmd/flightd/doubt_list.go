package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newDoubtListCommand(a *cli.App) *cobra.Command {
	q := client.Query{States: []string{flight.StateInDoubt.String()}}
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the flights in doubt, the oldest doubt first",
		Long: `Lists the flights in doubt, the oldest doubt first: its age since the end of its last attempt, how many other calls were
answered without another effect and when the last one came, the beginning of the input, and the cause.`,
		Example: "  flightd doubt ls\n  flightd doubt ls -A                     # in all namespaces\n  flightd doubt ls --action charge --since 7d\n" +
			"  flightd doubt ls -o id | xargs -n1 flightd doubt show",
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listFlights(cmd.Context(), a, q, "doubts", oldest(doubtSince, "are in doubt", "younger doubt is", "younger doubts are"), func(b *strings.Builder, c *client.Client, doubts []client.Flight) {
				doubtTable(b, doubts, shortInputs(cmd.Context(), c, doubts), time.Now())
			})
		},
	}
	listFlags(c.Flags(), &q)
	return c
}

// oldest returns the listReader that lists flights by their age, the oldest first: since is the beginning of the age, state what the
// flights do, and singular and plural are the words for those beyond the limit. The server lists flights by their creation, so all are
// read, up to MaxListed.
func oldest(since func(*client.Flight) time.Time, state, singular, plural string) listReader {
	return func(ctx context.Context, c *client.Client, q client.Query) (page client.FlightPage, more string, err error) {
		limit := q.Limit
		q.Limit = max(limit, cli.MaxListed)
		all, next, err := cli.ListPages(ctx, c, q)
		if err != nil {
			return page, "", err
		}
		slices.SortStableFunc(all, func(x, y client.Flight) int { return since(&x).Compare(since(&y)) })
		page.Flights = all[:min(limit, len(all))]
		switch rest := len(all) - len(page.Flights); {
		case next != "":
			more = fmt.Sprintf("more than %d flights %s, and perhaps not the oldest are listed", len(all), state)
		case rest > 0:
			more = cli.Pluralize(rest, singular, plural) + " not listed; raise --limit to see all"
		}
		return page, more, nil
	}
}

// doubtSince returns when the last attempt of a doubt ended.
func doubtSince(f *client.Flight) time.Time {
	if l := f.LastAttempt; l != nil && !l.ClosedAt.IsZero() {
		return l.ClosedAt.Time
	}
	return f.CreatedAt.Time
}

// doubtTable prints doubts with the beginning of their inputs.
func doubtTable(b *strings.Builder, doubts []client.Flight, inputs []string, now time.Time) {
	rows := make([][]string, 0, len(doubts))
	for i, f := range doubts {
		calls := "0"
		if d := f.Duplicates; d != nil {
			calls = fmt.Sprintf("%d, %s ago", d.Count, cli.AgeText(now.Sub(d.LastAt.Time)))
		}
		rows = append(rows, []string{listedKey(&f), cli.AgeText(now.Sub(doubtSince(&f))), strconv.Itoa(int(f.Attempts)), calls, inputs[i], doubtCause(&f)})
	}
	cli.WriteTable(b, []string{"KEY", "AGE", "ATTEMPTS", "CALLS", "INPUT", "CAUSE"}, rows)
}

// maxShortInput bounds the characters of an input in the list of doubts.
const maxShortInput = 40

// shortInputs returns the beginnings of the inputs of flights, or "" where there is none, or where it cannot be read.
func shortInputs(ctx context.Context, c *client.Client, flights []client.Flight) []string {
	inputs := make([]string, len(flights))
	var readers sync.WaitGroup // waited for below
	slots := make(chan struct{}, 8)
	for i := range flights {
		slots <- struct{}{}
		readers.Go(func() {
			defer func() { <-slots }()
			inputs[i] = shortInput(ctx, c, flights[i].ID)
		})
	}
	readers.Wait()
	return inputs
}

func shortInput(ctx context.Context, c *client.Client, id string) string {
	parsed, err := flight.ParseID(id)
	if err != nil {
		return ""
	}
	in, err := c.Input(ctx, parsed)
	switch {
	case errors.As(err, new(*effect.Missing)) || client.CodeOf(err) == wire.Expired:
		return ""
	case err != nil:
		return "(unreadable)"
	}
	text, isText := textOf(in.Data, false)
	if !isText {
		return fmt.Sprintf("(%s of %s)", cli.Pluralize(len(in.Data), "byte", "bytes"), cmp.Or(in.ContentType, "unknown type"))
	}
	words := []rune(strings.Join(strings.Fields(text), " "))
	if len(words) > maxShortInput {
		words = append(words[:maxShortInput-1], '…')
	}
	return string(words)
}

// doubtCause returns the known cause of a doubt. The cause of recovery hold is omitted: it is the same in every row.
func doubtCause(f *client.Flight) string {
	switch l := f.LastAttempt; {
	case l == nil || l.Error == "":
		return f.Cause
	case f.Recovery == flight.RecoveryHold.String():
		return l.Error
	default:
		return l.Error + "; " + f.Cause
	}
}
