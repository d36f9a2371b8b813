package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

func newClusterReplaceCommand(a *cli.App) *cobra.Command {
	var operator cli.OperatorFlags
	var ca, out string
	request := client.ReplaceNode{}
	c := &cobra.Command{
		Use:   "replace NODE --ca DIR --out NEW --reason WHY",
		Short: "Replace a node that lost its disk by a new one",
		Long: `Makes a new directory for node NODE, as flightd cluster found does, and tells the cluster that the node with this certificate takes
the place of the one before. --ca is the directory with ca.crt and ca.key that flightd cluster found has made.

Then copy NEW to the host, and start the node with it and with an empty data directory: it gets the ledger from the others and votes
when it has it. flightd cluster status shows a problem of the node until then. From the command on, the certificate and the data
directory of the node before are refused for ever. A repeat with the same --out changes nothing.

The others must be a majority. Nodes that vote are replaced one after the other. The node keeps its name and its address; give the name in the
address to the new host if the node moves.`,
		Example: `  flightd cluster replace c --ca cluster --out cluster/c-2 --reason 'the disk of c died' --yes
  flightd serve --cluster cluster/c-2 --data /var/lib/flightd      # at the host of node c, after the copy`,
		Args: cli.ExactArgs(1, "a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := operator.Check(); err != nil {
				return err
			}
			if ca == "" || out == "" {
				return cli.UsageError("--ca and --out are needed: the directory that flightd cluster found has made, and a new one")
			}
			if err := a.Confirm(true, "From now on the data directory of node %s is refused for ever. Replace the node?", args[0]); err != nil {
				return err
			}
			request.Reason = operator.Reason
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return replaceNode(cmd.Context(), a, c, args[0], ca, out, request) },
				client.WithActor(cli.ActorName(operator.Actor)))
		},
	}
	operator.Add(c.Flags())
	c.Flags().StringVar(&ca, "ca", "", "directory with ca.crt and ca.key")
	c.Flags().StringVar(&out, "out", "", "new directory for the directory of the node")
	c.Flags().BoolVar(&request.WhileRunning, "while-running", false, "also if the node runs; it is cut off at once")
	return c
}

// replaceNode makes the directory first: the cluster never waits for a certificate that nobody has. If the process dies in
// between, a repeat takes the directory that is there. After a rejection a directory that this call has
// made is removed.
func replaceNode(ctx context.Context, a *cli.App, c *client.Client, name, ca, out string, request client.ReplaceNode) error {
	state, err := c.Cluster(ctx)
	if err != nil {
		return err
	}
	nodes := make([]peer.Node, 0, len(state.Nodes))
	for _, n := range state.Nodes {
		nodes = append(nodes, peer.Node{Name: n.Name, Address: n.Address, Etcd: n.Etcd})
	}
	_, statErr := os.Stat(out)
	made, err := peer.Replace(ca, out, state.ID, name, nodes)
	if errors.As(err, new(*fs.PathError)) {
		return &cli.Error{Code: cli.ExitConfig, Err: err}
	}
	if err != nil {
		return cli.UsageError("%w", err)
	}
	request.Certificate = made.Certificate()
	if _, err := c.ReplaceNode(ctx, name, request); err != nil {
		if problem, ok := errors.AsType[*client.Error](err); ok && problem.Problem.Status < 500 && errors.Is(statErr, fs.ErrNotExist) {
			err = errors.Join(err, os.RemoveAll(out))
		}
		return err
	}
	a.Say("node %s is being replaced: copy the directory to its host, remove it here, and start the node with an empty data directory", name)
	return printCluster(a, &madeCluster{ClusterID: made.ClusterID, Nodes: []madeNode{describeNode(made)}})
}
