package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newSagasStartCommand(a *cli.App) *cobra.Command {
	var id, input string
	var wait time.Duration
	c := &cobra.Command{
		Use:   "start NAME[@VERSION] --id ID [--input JSON]",
		Short: "Start a saga; the same id is the same run",
		Long: `Starts a saga, with its newest version or the one that is named, and prints its key. The same id is the same run, however often it
is started, so a start may be repeated; to run a saga again, use another id.

With --wait it prints the steps when the saga is over, or when --wait is. The exit code is 0 if all happened, 1 if it was undone
or cancelled, 76 if a person must decide about a step, and 75 if it goes on when --wait is over.`,
		Example: `  flightd sagas start trip --id b-42 --input @booking.json
  flightd sagas start trip@3 --id b-43 --input '{"cents": 1999}' --wait forever`,
		Args: cli.ExactArgs(1, "the name of a saga"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if id == "" {
				return cli.UsageError("--id is missing: it names the run, such as the number of the booking")
			}
			data, err := jsonInput(a, input, cmd.Flags().Changed("input"))
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				started, err := c.StartSaga(cmd.Context(), args[0], id, data)
				if err != nil {
					return err
				}
				if wait != 0 {
					return waitForSaga(cmd.Context(), a, c, started.Saga, wait)
				}
				s := started.Saga
				return a.Print(started, cli.Text("%s: %s, %s of %s\n", s.Key, started.Status, s.State, s.Definition), s.ID)
			}, client.WithRetryTimeout(watchTimeout), client.WithActor(cli.ActorName("")))
		},
	}
	flags := c.Flags()
	flags.StringVar(&id, "id", "", "the id of the run; required")
	flags.StringVar(&input, "input", "", "the input of the saga, as JSON; @FILE reads a file, @- standard input")
	cli.WaitVar(flags, &wait, "wait", 0, "wait for the end of the saga, and print its steps: a duration, 0 or forever")
	return c
}

// jsonInput reads the JSON of a flag: the text itself, or a file after @. If the flag is not given, jsonInput prints a warning about data
// on standard input, which stays unread.
func jsonInput(a *cli.App, text string, given bool) (json.RawMessage, error) {
	if !given {
		if cli.UnreadInput(a.In, cli.FirstByte) {
			a.Say("standard input has data, which is not read: --input @- makes it the input")
		}
		return nil, nil
	}
	data := []byte(text)
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		var err error
		if data, err = cli.ReadFile(a, name, flight.MaxInput); err != nil {
			return nil, err
		}
	}
	switch {
	case len(data) == 0:
		return nil, &cli.Error{Code: cli.ExitUsage, Err: errors.New("--input is empty"), Hint: "leave the flag out for no input; check the variable, the file or the command that it comes from"}
	case !json.Valid(data):
		return nil, &cli.Error{Code: cli.ExitUsage, Err: errors.New("--input is not JSON"), Hint: `quote a text, as in '"text"'; @FILE reads a file`}
	}
	return data, nil
}

// waitForSaga waits until a saga is over, or waits for a person, and prints it.
func waitForSaga(ctx context.Context, a *cli.App, c *client.Client, s *client.Saga, wait time.Duration) error {
	id, err := flight.ParseID(s.ID)
	if err != nil {
		return err
	}
	waitCtx, cancel := withWait(ctx, wait)
	defer cancel()
	now, err := c.WaitSaga(waitCtx, id)
	if err != nil && waitCtx.Err() != nil && ctx.Err() == nil { // the wait is over
		now, err = c.Saga(ctx, id)
	}
	if err != nil {
		return err
	}
	if err := printSaga(a, now); err != nil {
		return err
	}
	return sagaExit(now)
}

// sagaExit returns the exit code for the state of a saga.
func sagaExit(s *client.Saga) error {
	switch {
	case s.State == wire.SagaDone:
		return nil
	case s.State == wire.SagaInDoubt:
		return cli.ExitStatus(cli.ExitInDoubt)
	case s.Over():
		return cli.ExitStatus(cli.ExitFailed)
	}
	return cli.ExitStatus(cli.ExitBusy)
}

func printSaga(a *cli.App, s *client.Saga) error {
	return a.Print(s, func(b *strings.Builder) { writeSaga(b, s, time.Now()) }, s.ID)
}

// sagaInterval is how often watch reads a saga.
const sagaInterval = time.Second

func watchSaga(ctx context.Context, a *cli.App, c *client.Client, word string) error {
	s, id, err := findSaga(ctx, a, c, word)
	drawn, lines := "", 0
	for ; ; s, err = c.Saga(ctx, id) {
		if err != nil {
			return ignoreCancelled(ctx, err)
		}
		var b strings.Builder
		writeSaga(&b, s, time.Now())
		redraws := a.Format == "table" && a.OutOnTerminal()
		shown := sagaSignature(s)
		if redraws {
			if lines > 0 {
				_, _ = fmt.Fprintf(a.Out, "\x1b[%dA\x1b[J", lines)
			}
			lines = strings.Count(b.String(), "\n")
			_, _ = fmt.Fprint(a.Out, b.String())
		} else if shown != drawn {
			if err := printSaga(a, s); err != nil {
				return err
			}
		}
		if drawn = shown; s.Over() || s.State == wire.SagaInDoubt {
			return sagaExit(s)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(sagaInterval):
		}
	}
}

// sagaSignature is a text that differs when something has happened in a saga.
func sagaSignature(s *client.Saga) string {
	text := s.State + s.Version
	for _, step := range s.Steps {
		for _, f := range [...]*client.Flight{step.Flight, step.Undo} {
			if text += "|"; f != nil {
				text += f.Version
			}
		}
	}
	return text
}

// cancelSaga cancels a saga in whatever version it is: the decision is about the saga, which changes with each of its steps.
func cancelSaga(ctx context.Context, a *cli.App, c *client.Client, word, reason string) error {
	s, id, err := findSaga(ctx, a, c, word)
	if err != nil {
		return err
	}
	if err := a.Confirm(false, "cancel %s, and undo what has happened?", s.Key); err != nil {
		return err
	}
	for {
		version := s.Version
		if _, err = c.Cancel(ctx, id, version, client.OperatorRequest{Key: s.Key, Reason: reason}); err == nil {
			break
		}
		if client.CodeOf(err) != wire.PreconditionFailed {
			return err
		}
		now, failed := c.Saga(ctx, id)
		if failed != nil || now.Version == version || now.Over() {
			return err
		}
		s = now
	}
	if s, err = c.Saga(ctx, id); err != nil {
		return err
	}
	return printSaga(a, s)
}
