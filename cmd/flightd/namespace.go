package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

var namespaceTable = cli.Table[client.Namespace]{
	Heading: []string{"NAME", "OPENS/S", "BURST", "MAX OPEN", "MAX FLIGHTS", "MAX WAITS", "MAX STREAMS", "OPEN", "STORED"},
	Row: func(n *client.Namespace) (string, []string) {
		row := []string{n.Name}
		for _, number := range [...]int64{n.OpensPerSecond, n.Burst, n.MaxOpen, n.MaxFlights, n.MaxWaits, n.MaxStreams, n.Open, n.Stored} {
			row = append(row, strconv.FormatInt(number, 10))
		}
		return n.Name, row
	},
}

func newNamespaceCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("namespace", "Set, list and remove the limits of namespaces, and copy receipts",
		newNamespaceSetCommand(a),
		acceptAllNamespaces(&cobra.Command{
			Use:     "ls",
			Short:   "List the namespaces that hold flights or declare limits, with the limits in force and their use",
			Example: "  flightd namespace ls",
			RunE: a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
				all, err := c.Namespaces(ctx)
				if err != nil {
					return err
				}
				return namespaceTable.Print(a, all.Namespaces, all)
			}),
		}),
		a.Decision(&cobra.Command{
			Use:     "rm NAME",
			Short:   "Remove the limits of a namespace; its flights and tokens stay",
			Example: "  flightd namespace rm billing --reason 'the defaults are enough'",
			Args:    cli.ExactArgs(1, "a namespace"),
		}, func(args []string) error {
			return a.Confirm(false, "remove %s?", limitsText(args[0]))
		}, func(ctx context.Context, c *client.Client, args []string, reason string) error {
			if err := c.DeleteNamespace(ctx, args[0], reason); err != nil {
				return err
			}
			return a.PrintDone("removed the limits", args[0], args[0], "removed "+limitsText(args[0]))
		}),
		newNamespaceCopyCommand(a))
}

func newNamespaceSetCommand(a *cli.App) *cobra.Command {
	var r client.NamespaceRequest
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Set the limits of a namespace",
		Long: `Sets all limits of a namespace: a limit that is not given has the value of the namespace *, else the default. New work
above a limit is rejected as rate_limited, too_many_open or quota_exceeded. Reports, verifications, abandons and renewals pass
every limit. A server without credentials, such as flightd dev, applies no limit of a namespace.`,
		Example: `  flightd namespace set billing --opens-per-second 200 --burst 400
  flightd namespace set '*' --max-flights 1000000        # for namespaces without limits of their own`,
		Args: cli.ExactArgs(1, "a namespace"),
	}
	flags := c.Flags()
	flags.Int64Var(&r.OpensPerSecond, "opens-per-second", 0, "opens and new sessions per second, at one node")
	flags.Int64Var(&r.Burst, "burst", 0, "opens and new sessions that may come at once (as many as per second)")
	flags.Int64Var(&r.MaxOpen, "max-open", 0, "attempts without a report")
	flags.Int64Var(&r.MaxFlights, "max-flights", 0, "stored flights, without tombstones")
	flags.Int64Var(&r.MaxWaits, "max-waits", 0, "requests that wait for a change, at one node")
	flags.Int64Var(&r.MaxStreams, "max-streams", 0, "open streams of events, at one node")
	return a.Change(c, func([]string) error {
		if r.NamespaceLimits == (client.NamespaceLimits{}) {
			return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("no limit is given"),
				Hint: "see flightd namespace set --help; flightd namespace rm removes all limits"}
		}
		return nil
	}, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		r.Reason = reason
		n, err := c.SetNamespace(ctx, args[0], r)
		if err != nil {
			return err
		}
		return namespaceTable.Print(a, []client.Namespace{*n}, n)
	})
}

// limitsText names the limits of a namespace for people.
func limitsText(namespace string) string {
	if namespace == wire.AllNamespaces {
		return "the limits * of namespaces without limits of their own"
	}
	return "the limits of namespace " + namespace
}
