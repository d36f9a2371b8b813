package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
)

func newLanesCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("lanes", "Show the jobs of a lane, and what blocks it", newLanesShowCommand(a))
}

func newLanesShowCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show (ACTION LANE | KEY-or-ID)",
		Short: "Show the jobs of a lane in their order, and what blocks it",
		Long: `Shows the jobs of a lane that are not over, in the order in which they run, which of them the lane lets open, and what keeps the lane
from going on. Name the lane by its action and its name, or by one of its jobs.`,
		Example: "  flightd lanes show charge customer/7\n  flightd lanes show charge/order-42               # the lane of this job",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return cli.ExactArgs(2, "an action and a lane, or a key or an id")(cmd, args)
		},
		RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			lane, err := findLane(ctx, a, c, args)
			if err != nil {
				return err
			}
			var ids []string
			for _, j := range lane.Jobs {
				ids = append(ids, j.FlightID)
			}
			return a.Print(lane, func(b *strings.Builder) { writeLane(b, lane) }, ids...)
		}),
	}
}

// findLane reads the lane that is named by an action and a name, or by one of its jobs.
func findLane(ctx context.Context, a *cli.App, c *client.Client, args []string) (*client.LaneJobs, error) {
	if len(args) == 2 {
		return c.LaneJobs(ctx, args[0], args[1])
	}
	f, err := a.FindFlight(ctx, c, args[0], false)
	if err != nil {
		return nil, err
	}
	key, err := flight.ParseStoredKey(f.Key)
	if err != nil {
		return nil, err
	}
	return c.LaneOf(ctx, key)
}

func writeLane(b *strings.Builder, lane *client.LaneJobs) {
	fmt.Fprintf(b, "lane %s of %s/%s: %s\n", cli.OneLine(lane.Lane), lane.Namespace, lane.Action, cli.Pluralize(lane.Total, "job", "jobs"))
	if len(lane.Jobs) == 0 {
		return
	}
	var rows [][]string
	for i, j := range lane.Jobs {
		open := "waits"
		if j.MayOpen {
			open = "may run"
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), j.Key, j.State, open})
	}
	cli.WriteTable(b, []string{"#", "KEY", "STATE", "LANE"}, rows)
	if more := lane.Total - len(lane.Jobs); more > 0 {
		fmt.Fprintf(b, "%s not shown\n", cli.Pluralize(more, "more job is", "more jobs are"))
	}
	if lane.BlockedBy != "" {
		fmt.Fprintf(b, "blocked: %s\n", cli.OneLine(lane.BlockedBy))
	} else {
		fmt.Fprintln(b, "nothing blocks it")
	}
}
