package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

func newSagasLintCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE...",
		Short: "Find what is wrong with definitions of sagas; no server is asked",
		Long: `Prints everything that is wrong with the definitions in the files, YAML or JSON, with line and column. The exit code is 1 if
there is anything. flightd sagas apply makes the same check. What is allowed and often a mistake is a warning on standard error: a step
under hold without a timeout keeps its saga silent while its worker hangs. Policies and lanes in the documents of actions (flightd
actions) are for jobs: none of them counts for a step, whose policy stands in the definition.`,
		Example: "  flightd sagas lint trip.yaml\n  flightd sagas lint sagas/*.yaml -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, found, err := readDefinitions(a, args)
			if err != nil {
				return err
			}
			return printFindings(a, found)
		},
	}
}

// finding is something that is wrong in a file.
type finding struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	saga.Finding
}

// readDefinitions reads the definitions in the files, and what is wrong with them. A file that cannot be parsed has one finding.
func readDefinitions(a *cli.App, files []string) (all []*saga.Definition, found []finding, err error) {
	for _, file := range files {
		text, err := cli.ReadFile(a, file, flight.MaxDocument)
		if err != nil {
			return nil, nil, err
		}
		add := func(places saga.Places, more []saga.Finding) {
			for _, f := range more {
				at := places.Of(f.Pointer)
				found = append(found, finding{File: file, Line: at.Line, Column: at.Column, Finding: f})
			}
		}
		d, places, err := saga.ParseYAML(text)
		if unknown := new(saga.UnknownFields); errors.As(err, &unknown) {
			add(places, unknown.Found)
			continue
		}
		if err != nil {
			f := finding{File: file, Finding: saga.Finding{Detail: err.Error()}}
			if bad := new(wire.Invalid); errors.As(err, &bad) {
				f.Finding = saga.Finding{Pointer: bad.Pointer, Detail: bad.Detail, Hint: bad.Hint}
			}
			if n, _ := fmt.Sscanf(f.Detail, "line %d, column %d:", &f.Line, &f.Column); n == 2 {
				_, f.Detail, _ = strings.Cut(f.Detail, ": ")
			} else if n, _ := fmt.Sscanf(f.Detail, "[%d:%d]", &f.Line, &f.Column); n == 2 {
				_, f.Detail, _ = strings.Cut(f.Detail, "] ")
			}
			found = append(found, f)
			continue
		}
		all = append(all, d)
		add(places, saga.Lint(d))
		for _, w := range saga.Warnings(d) {
			at := places.Of(w.Pointer)
			a.Say("warning: %s:%d:%d: step %s: %s (%s)", file, at.Line, at.Column, w.Step, w.Detail, w.Hint)
		}
	}
	return all, found, nil
}

// printFindings prints findings, and returns exit code 1 if there are any.
func printFindings(a *cli.App, found []finding) error {
	err := a.Print(append([]finding{}, found...), func(b *strings.Builder) {
		for _, f := range found {
			fmt.Fprintf(b, "%s:%d:%d: ", f.File, f.Line, f.Column)
			if f.Step != "" {
				fmt.Fprintf(b, "step %s: ", f.Step)
			} else if f.Pointer != "" {
				b.WriteString(f.Pointer + ": ")
			}
			b.WriteString(cli.Printable(f.Detail))
			if f.Hint != "" {
				fmt.Fprintf(b, " (%s)", f.Hint)
			}
			b.WriteString("\n")
		}
	})
	if err == nil && len(found) > 0 {
		err = cli.ExitStatus(cli.ExitFailed)
	}
	return err
}

func newSagasApplyCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "apply FILE...",
		Short: "Store definitions of sagas at the server; a stored version never changes",
		Long: `Stores the definitions in the files, YAML or JSON. For each it prints created, or unchanged if the server has it. A version never
changes, because sagas that run stay with theirs: to change a saga, raise the version. Nothing is stored if lint finds anything.`,
		Example: "  flightd sagas apply trip.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, found, err := readDefinitions(a, args)
			if err != nil {
				return err
			}
			if len(found) > 0 {
				return printFindings(a, found)
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return applyDefinitions(cmd.Context(), a, c, all) },
				client.WithActor(cli.ActorName("")))
		},
	}
}

// applyDefinitions stores definitions. It may be interrupted and repeated.
func applyDefinitions(ctx context.Context, a *cli.App, c *client.Client, all []*saga.Definition) error {
	type applied struct {
		Definition string `json:"definition"`
		Status     string `json:"status"`
	}
	done, rows, ids := []applied{}, [][]string{}, []string{}
	for _, d := range all {
		status := "unchanged"
		stored, err := c.SagaDefinition(ctx, d.Saga, int(d.Version))
		if err != nil && client.CodeOf(err) != wire.NotFound {
			return err
		}
		if err != nil || !bytes.Equal(stored, d.JSON()) {
			status = "created"
			if err := c.DefineSaga(ctx, d.Saga, int(d.Version), d.JSON()); client.CodeOf(err) == wire.Conflict {
				return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %s is stored with another content, and a version never changes", wire.Conflict, d.ID()),
					Hint: "give the changed definition a new version; sagas that run go on with theirs. See flightd sagas versions " + d.Saga}
			} else if err != nil {
				return err
			}
		}
		warnOfActions(ctx, a, c, d)
		done, rows, ids = append(done, applied{d.ID(), status}), append(rows, []string{d.ID(), status}), append(ids, d.ID())
	}
	return a.PrintList([]string{"DEFINITION", "STATUS"}, rows, ids, done)
}

// warnOfActions warns of steps with an action that has a policy in its document, because that policy does not apply to steps.
func warnOfActions(ctx context.Context, a *cli.App, c *client.Client, d *saga.Definition) {
	warned := make(map[string]bool)
	for i := range d.Steps {
		for _, undo := range [...]bool{false, d.Steps[i].Undo != nil} {
			action := d.ActionOf(i, undo)
			if d.Steps[i].Approval != nil || d.Steps[i].Timer != 0 || warned[action] {
				continue
			}
			warned[action] = true
			if _, err := c.Action(ctx, action); err == nil {
				a.Say("warning: %s: the action %s has a document, whose policy and lane do not count for step %s; compare flightd actions show %s with the definition",
					d.ID(), action, d.Steps[i].Name, action)
			}
		}
	}
}

func newSagasDeleteCommand(a *cli.App) *cobra.Command {
	parse := func(word string) (name string, version int, err error) {
		name, number, _ := strings.Cut(word, "@")
		if version, err = strconv.Atoi(number); err != nil || version < 1 {
			err = cli.UsageError("%s names no version; write NAME@VERSION, as in trip@1", word)
		}
		return name, version, err
	}
	return a.Optional(&cobra.Command{
		Use:   "delete NAME@VERSION",
		Short: "Delete a version of a saga that nobody starts any more",
		Long: `Deletes a version of a saga, and so its place among the 1,000 documents of the namespace. While a saga of it is not over, it is kept: flightd
sagas versions counts them. Sagas that are over keep their receipts, but flightd sagas get shows no times of their steps, and undo-late does not
undo them any more.`,
		Example: "  flightd sagas delete trip@1 --yes",
		Args:    cli.ExactArgs(1, "NAME@VERSION"),
	}, "the reason; recorded", "deleted", func(args []string) error {
		if _, _, err := parse(args[0]); err != nil {
			return err
		}
		return a.Confirm(true, "delete %s?", args[0])
	}, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		name, version, _ := parse(args[0])
		if err := c.DeleteSagaDefinition(ctx, name, version, reason); err != nil {
			return err
		}
		return a.PrintDone("deleted", a.Namespace, args[0], "deleted "+args[0])
	})
}
