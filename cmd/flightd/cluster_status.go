package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
)

func newClusterStatusCommand(a *cli.App) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the cluster: who leads, who is behind, whose clock is off, whose disk is damaged",
		Long: `Shows the nodes as the leader of the ledger sees them, at most a second old. Any node of the cluster can be asked.

A cluster of three serves callers while two of them answer. BEHIND is how many entries of the ledger a node lacks; CLOCK is how
far its wall clock is ahead of the leader's.

The exit code is 0 if the cluster is whole: a node leads, and every node answers, votes, reaches its etcd and has the ledger. With
--wait, each node must have what the ledger had when the command began; without it, a node may be 1,000 entries behind.`,
		Example: `  flightd cluster status
  flightd cluster status --wait 60s      # until the cluster is whole
  flightd cluster status -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return clusterStatus(cmd.Context(), a, c, wait) })
		},
	}
	cli.DurationVar(c.Flags(), &wait, "wait", 0, "wait until the cluster is whole, at most so long; 0: ask once")
	return c
}

// maxBehind is the number of entries that a node may lack in a whole cluster, as in the alert FlightdNodeLags.
const maxBehind = 1000

// clusterStatus prints the nodes as soon as the cluster is whole, or when the wait ends. Its error then names the nodes that are not whole.
func clusterStatus(ctx context.Context, a *cli.App, c *client.Client, wait time.Duration) error {
	deadline, applied := time.Now().Add(wait), uint64(1) // applied is the index that each node must reach
	for first := true; ; first = false {
		state, err := c.Cluster(ctx)
		var broken []string
		if err == nil {
			if first && wait > 0 {
				for _, n := range state.Nodes {
					applied = max(applied, n.Applied+n.Behind)
				}
			}
			broken = markProblems(state, applied)
		}
		if time.Until(deadline) > 0 && (err != nil || broken != nil) {
			if !clock.Sleep(ctx, 200*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
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
		err = a.PrintList([]string{"NODE", "ROLE", "APPLIED", "BEHIND", "CLOCK", "ETCD", "VERSION", "PROBLEM"}, rows, []string{state.Leader}, state)
		if err == nil && broken != nil {
			err = &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("the cluster is not whole: %s", strings.Join(broken, "; ")), Hint: "flightd doctor compares the nodes, and --wait 60s waits for them"}
		}
		return err
	}
}

// markProblems sets the problem of each node that is not whole, and returns all problems of the cluster.
func markProblems(state *client.Cluster, applied uint64) (broken []string) {
	if state.Leader == "" {
		broken = append(broken, "no node leads")
	}
	for i := range state.Nodes {
		n := &state.Nodes[i]
		switch {
		case n.Problem != "":
		case n.Role == wire.RoleUnreachable:
			n.Problem = "does not answer"
		case n.Behind > 0 && n.Applied < applied, n.Behind > maxBehind:
			n.Problem = "lacks " + cli.Pluralize(int(n.Behind), "entry", "entries") + " of the ledger"
		case !n.EtcdOK:
			n.Problem = "its etcd does not answer"
		}
		if n.Problem != "" {
			broken = append(broken, n.Name+": "+n.Problem)
		}
	}
	return broken
}
