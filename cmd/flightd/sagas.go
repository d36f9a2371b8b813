package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newSagasCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("sagas", "Define, start, show and cancel sagas: steps that all happen, or are undone",
		newSagasLintCommand(a), newSagasApplyCommand(a), newSagasVersionsCommand(a), newSagasDeleteCommand(a), newSagasStartCommand(a), newSagasListCommand(a), newSagasGetCommand(a), newSagasWatchCommand(a), newSagasCancelCommand(a), newSagasUndoLateCommand(a))
}

// findSaga reads the saga that a word names.
func findSaga(ctx context.Context, a *cli.App, c *client.Client, word string) (*client.Saga, flight.ID, error) {
	if key, _, isStep := strings.Cut(word, "#"); isStep {
		return nil, flight.ID{}, cli.UsageError("%s is a step; use the key of its saga: %s", word, key)
	}
	f, err := a.FindFlight(ctx, c, word, false)
	if err != nil {
		return nil, flight.ID{}, err
	}
	id, err := flight.ParseID(f.ID)
	if err != nil {
		return nil, id, err
	}
	s, err := c.Saga(ctx, id)
	if expired := (*effect.Expired)(nil); errors.As(err, &expired) { // a tombstone has no key; the user's word has
		key, bad := flight.ParseStoredKey(f.Key)
		return nil, id, cmp.Or(bad, error(&effect.Expired{Key: key, Outcome: expired.Outcome}))
	}
	return s, id, err
}

func newSagasListCommand(a *cli.App) *cobra.Command {
	var q client.SagaQuery
	states := &cli.Choice{Words: wire.SagaStates()}
	c := &cobra.Command{
		Use:     "ls [NAME]",
		Short:   "List sagas, the newest first",
		Example: "  flightd sagas ls\n  flightd sagas ls trip --state in_doubt",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.Limit <= 0 {
				return cli.UsageError("--limit %d: at least 1", q.Limit)
			}
			if q.State = states.Value; len(args) == 1 {
				q.Name = args[0]
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return listSagas(cmd.Context(), a, c, q) })
		},
	}
	flags := c.Flags()
	allNamespacesFlag(flags, &q.AllNamespaces)
	flags.Var(states, "state", "only sagas in this state: "+strings.Join(wire.SagaStates(), ", "))
	flags.IntVar(&q.Limit, "limit", 100, "list at most this many")
	return c
}

// listSagas reads pages until it has as many sagas as the query wants.
func listSagas(ctx context.Context, a *cli.App, c *client.Client, q client.SagaQuery) error {
	all, limit := client.SagaPage{Sagas: []client.Saga{}}, q.Limit
	for len(all.Sagas) < limit {
		q.Limit = min(limit-len(all.Sagas), cli.MaxPage)
		page, err := c.ListSagas(ctx, q)
		if err != nil {
			return err
		}
		all.Sagas = append(all.Sagas, page.Sagas...)
		if all.Next, q.Cursor = page.Next, page.Next; page.Next == "" {
			break
		}
	}
	if all.Next != "" {
		a.Say("there may be more; raise --limit to see them")
	}
	if len(all.Sagas) == 0 && a.Format == "table" {
		printEmptyList(a, "sagas", q.AllNamespaces)
	}
	rows, ids := make([][]string, 0, len(all.Sagas)), make([]string, 0, len(all.Sagas))
	for i := range all.Sagas {
		s := &all.Sagas[i]
		rows = append(rows, []string{s.Key, s.Definition, s.State, s.CreatedAt.Format(time.RFC3339), s.Cause})
		ids = append(ids, s.ID)
	}
	return a.PrintList([]string{"KEY", "DEFINITION", "STATE", "CREATED", "CAUSE"}, rows, ids, all)
}

func newSagasVersionsCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "versions NAME",
		Short:   "List the versions of a saga, the oldest first, with the number of sagas that are not over",
		Example: "  flightd sagas versions trip",
		Args:    cli.ExactArgs(1, "the name of a saga"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				all, err := c.SagaVersions(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if len(all.Versions) == 0 && a.Format == "table" {
					a.Say("nobody has defined the saga %s in namespace %s; flightd sagas apply FILE defines it", args[0], a.Namespace)
				}
				rows, ids := make([][]string, 0, len(all.Versions)), make([]string, 0, len(all.Versions))
				for _, v := range all.Versions {
					rows = append(rows, []string{v.Definition, strconv.Itoa(v.Steps), strconv.Itoa(v.Running), v.CreatedAt.Format(time.RFC3339), v.By})
					ids = append(ids, v.Definition)
				}
				return a.PrintList([]string{"DEFINITION", "STEPS", "RUNNING", "CREATED", "BY"}, rows, ids, all)
			})
		},
	}
}
