package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

func newClusterStatusCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the cluster: who leads, who is behind, whose clock is off, whose disk is damaged",
		Long: `Shows the nodes as the leader of the ledger sees them, at most a second old. Any node of the cluster can be asked.

A cluster of three serves callers while two of them answer. BEHIND is how many entries of the ledger a node lacks; CLOCK is how
far its wall clock is ahead of the leader's.`,
		Example: `  flightd cluster status
  flightd cluster status -o json`,
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return clusterStatus(cmd.Context(), a) },
	}
}

func clusterStatus(ctx context.Context, a *cli.App) error {
	return a.WithClient(ctx, func(c *client.Client) error {
		state, err := c.Cluster(ctx)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, n := range state.Nodes {
			clock := (time.Duration(n.ClockMS) * time.Millisecond).String()
			etcd := "no answer"
			if n.EtcdOK {
				etcd = "ok"
			}
			rows = append(rows, []string{n.Name, n.Role, fmt.Sprint(n.Applied), fmt.Sprint(n.Behind), clock, etcd, n.Version, cmp.Or(n.Problem, "-")})
		}
		return a.PrintList([]string{"NODE", "ROLE", "APPLIED", "BEHIND", "CLOCK", "ETCD", "VERSION", "PROBLEM"}, rows, []string{state.Leader}, state)
	})
}
