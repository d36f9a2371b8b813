package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
)

func (a *app) clusterStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the cluster: who leads, who is behind, whose clock is off",
		Long: `Shows the nodes as the leader of the ledger sees them, at most a second old. Any node of the cluster can be asked.

A cluster of three serves callers while two of them answer. BEHIND is how many entries of the ledger a node lacks; CLOCK is how
far its wall clock is ahead of the leader's.`,
		Example: `  flightd cluster status
  flightd cluster status -o json`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.clusterStatus(cmd.Context()) },
	}
}

func (a *app) clusterStatus(ctx context.Context) error {
	return a.withClient(ctx, func(c *client.Client) error {
		state, err := c.Cluster(ctx)
		if err != nil {
			return err
		}
		switch a.format {
		case "json", "yaml":
			return a.printData(state)
		case "id":
			_, err := fmt.Fprintln(a.out, state.Leader)
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
		return writeTable(a.out, []string{"NODE", "ROLE", "APPLIED", "BEHIND", "CLOCK", "ETCD", "VERSION", "PROBLEM"}, rows)
	})
}
