package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/internal/wire"
)

func (a *app) namespaceCommand() *cobra.Command {
	return commandGroup("namespace", "Set, list and remove the limits of namespaces", a.namespaceSet(), a.namespaceList(), a.namespaceRemove())
}

// limitFlag is a flag for one limit: a number, or default. It remembers whether it was given.
type limitFlag struct {
	given bool
	value *int64 // nil: the server's default
}

func (l *limitFlag) String() string { return limitText(l.value) }

func (l *limitFlag) Set(s string) error {
	l.given, l.value = true, nil
	if s == "default" {
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("want a whole number, or default")
	}
	l.value = &n
	return nil
}

func (l *limitFlag) Type() string { return "number" }

// limitText returns a limit for people.
func limitText(limit *int64) string {
	if limit == nil {
		return "default"
	}
	return strconv.FormatInt(*limit, 10)
}

// limitFlags are the flags for all limits, by the names of package wire.
type limitFlags struct {
	opensPerSecond, burst, maxOpen, maxFlights, maxWaits, maxStreams limitFlag
}

func (l *limitFlags) flags(flags *pflag.FlagSet) {
	flags.Var(&l.opensPerSecond, "opens-per-second", "opens of flights per second")
	flags.Var(&l.burst, "burst", "opens at once above that rate")
	flags.Var(&l.maxOpen, "max-open", "flights that are held without a report")
	flags.Var(&l.maxFlights, "max-flights", "stored flights")
	flags.Var(&l.maxWaits, "max-waits", "requests that wait")
	flags.Var(&l.maxStreams, "max-streams", "streams of events")
}

// change sets the limits that were given. It reports whether any was.
func (l *limitFlags) change(limits *client.Limits) (changed bool) {
	for _, one := range []struct {
		flag *limitFlag
		to   **int64
	}{
		{&l.opensPerSecond, &limits.OpensPerSecond}, {&l.burst, &limits.Burst}, {&l.maxOpen, &limits.MaxOpen},
		{&l.maxFlights, &limits.MaxFlights}, {&l.maxWaits, &limits.MaxWaits}, {&l.maxStreams, &limits.MaxStreams},
	} {
		if one.flag.given {
			*one.to, changed = one.flag.value, true
		}
	}
	return changed
}

func (a *app) namespaceSet() *cobra.Command {
	var limits limitFlags
	var reason, actor string
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Set limits of a namespace; the others stay",
		Long: `Sets the limits that are given, and leaves the others as they are; default removes one. New work above a limit is rejected
as rate_limited or too_many_open. Reports are always taken.`,
		Example: `  flightd namespace set billing --opens-per-second 200 --burst 400
  flightd namespace set billing --max-flights default`,
		Args: exactArgs(1, "a namespace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !limits.change(new(client.Limits)) {
				return &exitError{code: exitUsage, err: fmt.Errorf("no limit is given"), hint: "see flightd namespace set --help"}
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				return a.setNamespace(cmd.Context(), c, args[0], &limits, reason)
			}, client.WithActor(actorName(actor)))
		},
	}
	limits.flags(c.Flags())
	c.Flags().StringVar(&reason, "reason", "", "the reason, for the audit log")
	c.Flags().StringVar(&actor, "actor", "", "name of the person who decides; recorded (your user name)")
	return c
}

// setNamespace reads the limits of a namespace and writes them with the changes.
func (a *app) setNamespace(ctx context.Context, c *client.Client, name string, change *limitFlags, reason string) error {
	all, err := c.Namespaces(ctx)
	if err != nil {
		return err
	}
	r := client.NamespaceRequest{Reason: reason}
	for _, n := range all {
		if n.Name == name {
			r.Limits = n.Limits
		}
	}
	change.change(&r.Limits)
	n, err := c.SetNamespace(ctx, name, r)
	if err != nil {
		return err
	}
	n.Name = name
	return a.printNamespaces([]client.Namespace{*n}, n)
}

func (a *app) namespaceList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List namespaces with their limits and their use",
		Example: "  flightd namespace ls",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				all, err := c.Namespaces(cmd.Context())
				if err != nil {
					return err
				}
				return a.printNamespaces(all, wire.Namespaces{Namespaces: all})
			})
		},
	}
}

func (a *app) printNamespaces(all []client.Namespace, data any) error {
	rows, ids := [][]string{}, []string{}
	for _, n := range all {
		rows = append(rows, []string{n.Name, limitText(n.OpensPerSecond), limitText(n.Burst), limitText(n.MaxOpen), limitText(n.MaxFlights), limitText(n.MaxWaits), limitText(n.MaxStreams),
			strconv.FormatInt(n.Open, 10), strconv.FormatInt(n.Stored, 10)})
		ids = append(ids, n.Name)
	}
	return a.printList([]string{"NAME", "OPENS/S", "BURST", "MAX OPEN", "MAX FLIGHTS", "MAX WAITS", "MAX STREAMS", "OPEN", "STORED"}, rows, ids, data)
}

func (a *app) namespaceRemove() *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use:     "rm NAME",
		Short:   "Remove the limits of a namespace; its flights and tokens stay",
		Example: "  flightd namespace rm billing --reason 'the defaults are enough'",
		Args:    exactArgs(1, "a namespace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := a.confirm(false, "remove the limits of namespace %s?", args[0]); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				if err := c.DeleteNamespace(cmd.Context(), args[0], o.reason); err != nil {
					return err
				}
				return a.printDone("removed the limits", args[0], args[0])
			}, client.WithActor(actorName(o.actor)))
		},
	}
	o.flags(c.Flags())
	return c
}
