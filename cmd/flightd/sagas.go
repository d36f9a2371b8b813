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
		newSagasLintCommand(a), newSagasApplyCommand(a),
		&cobra.Command{
			Use:     "versions NAME",
			Short:   "List the versions of a saga, the oldest first, with the number of sagas that are not over",
			Example: "  flightd sagas versions trip",
			Args:    cli.ExactArgs(1, "the name of a saga"),
			RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
				all, err := c.SagaVersions(ctx, args[0])
				if err != nil {
					return err
				}
				if len(all.Versions) == 0 && a.Format == "table" {
					a.Say("nobody has defined the saga %s in namespace %s; flightd sagas apply FILE defines it", args[0], a.Namespace)
				}
				return versionTable.Print(a, all.Versions, all)
			}),
		},
		newSagasDeleteCommand(a), newSagasStartCommand(a), newSagasListCommand(a),
		&cobra.Command{
			Use:   "get KEY-or-ID",
			Short: "Show a saga: its steps and undos, when they ran, and the command that moves it on",
			Example: `  flightd sagas get trip/b-42
  flightd sagas get trip/b-42 -o json`,
			RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
				s, _, err := findSaga(ctx, a, c, args[0])
				if err != nil {
					return err
				}
				return printSaga(a, s)
			}),
		},
		&cobra.Command{
			Use:   "watch KEY-or-ID",
			Short: "Follow a saga until it is over, or waits for a person",
			Long: `Shows a saga and draws it again when something has happened, until it is over or waits for a person. Where the output is no terminal,
it prints the saga once for each change.

The exit code is 0 if all happened, 1 if it was undone or cancelled, and 76 if a person must decide about a step.`,
			Example: "  flightd sagas watch trip/b-42",
			RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
				return watchSaga(ctx, a, c, args[0])
			}, client.WithRetryTimeout(watchTimeout)),
		},
		a.Decision(&cobra.Command{
			Use:   "cancel KEY-or-ID",
			Short: "Cancel a saga: no further step starts, and what has happened is undone",
			Long: `Cancels a saga. No further step starts; a step that runs, or may have happened, ends by its own policy; then everything that has
happened is undone, the last first. After the success of its pivot a saga is only completed, and a cancel is rejected.`,
			Example: "  flightd sagas cancel trip/b-42 --reason 'the customer called'",
		}, nil, func(ctx context.Context, c *client.Client, args []string, reason string) error {
			return cancelSaga(ctx, a, c, args[0], reason)
		}),
		a.Decision(&cobra.Command{
			Use:   "undo-late KEY-or-ID STEP",
			Short: "Undo a step that has happened after its saga, which is over, had taken it for not done",
			Long: `A step can happen too late: its saga has taken it for not done, has undone the rest, and is over. The late report shows on the
step, and flightd sagas get prints this command. It submits a job for the undo of the step, once, with what is known of the late
success: its external id. The saga stays as it is, and flightd sagas get shows the job.`,
			Example: "  flightd sagas undo-late trip/b-42 hotel --reason 'the hotel has booked after all'",
			Args:    cli.ExactArgs(2, "a key or an id, and the name of a step"),
		}, nil, func(ctx context.Context, c *client.Client, args []string, reason string) error {
			s, id, err := findSaga(ctx, a, c, args[0])
			if err == nil {
				err = a.Confirm(false, "undo the step %s of %s?", args[1], s.Key)
			}
			if err == nil {
				s, err = c.UndoLate(ctx, id, client.UndoLateRequest{Step: args[1], Reason: reason})
			}
			if err != nil {
				return err
			}
			return printSaga(a, s)
		}))
}

// findSaga reads the saga that a word names.
func findSaga(ctx context.Context, a *cli.App, c *client.Client, word string) (*client.Saga, flight.ID, error) {
	if key, _, isStep := strings.Cut(word, "#"); isStep {
		return nil, flight.ID{}, cli.UsageError("%s is a step; use the key of its saga: %s", word, key)
	}
	f, id, err := a.FindFlight(ctx, c, word, false)
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

var sagaTable = cli.Table[client.Saga]{
	Heading: []string{"KEY", "DEFINITION", "STATE", "CREATED", "CAUSE"},
	Row: func(s *client.Saga) (string, []string) {
		return s.ID, []string{s.Key, s.Definition, s.State, s.CreatedAt.Format(time.RFC3339), s.Cause}
	},
}

var versionTable = cli.Table[wire.SagaVersion]{
	Heading: []string{"DEFINITION", "STEPS", "RUNNING", "CREATED", "BY"},
	Row: func(v *wire.SagaVersion) (string, []string) {
		return v.Definition, []string{v.Definition, strconv.Itoa(v.Steps), strconv.Itoa(v.Running), v.CreatedAt.Format(time.RFC3339), v.By}
	},
}

func newSagasListCommand(a *cli.App) *cobra.Command {
	var q client.SagaQuery
	states := &cli.Choice{Words: wire.SagaStates()}
	c := &cobra.Command{
		Use:     "ls [NAME]",
		Short:   "List sagas, the newest first",
		Example: "  flightd sagas ls\n  flightd sagas ls trip --state in_doubt",
		Args:    cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return checkLimit(q.Limit) },
		RunE: sagaTable.List(a, func(ctx context.Context, c *client.Client, args []string) ([]client.Saga, any, error) {
			q.State, q.Name = states.Value, strings.Join(args, "")
			all, next, err := cli.Pages(q.Limit, cli.MaxPage, "", func(cursor string, limit int) ([]client.Saga, string, error) {
				q.Cursor, q.Limit = cursor, limit
				page, err := c.ListSagas(ctx, q)
				if err != nil {
					return nil, "", err
				}
				return page.Sagas, page.Next, nil
			})
			if next != "" {
				a.Say("there may be more; raise --limit to see them")
			}
			if err == nil && len(all) == 0 && a.Format == "table" {
				printEmptyList(a, "sagas", q.AllNamespaces)
			}
			return all, client.SagaPage{Sagas: all, Next: next}, err
		}),
	}
	flags := c.Flags()
	allNamespacesFlag(flags, &q.AllNamespaces)
	flags.Var(states, "state", "only sagas in this state: "+strings.Join(wire.SagaStates(), ", "))
	flags.IntVar(&q.Limit, "limit", 100, "list at most this many")
	return c
}
