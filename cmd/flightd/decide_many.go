package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// selection is the part of the command line that selects many flights for one decision.
type selection struct {
	states []string // in which the decision is possible; without --state, flights in the first are selected
	q      client.Query
}

// add adds the flags to those of a command, and lets it take them in the place of a key.
func (s *selection) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&s.q.Action, "action", "", "decide about all flights whose key has this name")
	flags.StringVar(&s.q.KeyPrefix, "prefix", "", "decide about all flights whose full key has this prefix")
	cli.SinceVar(flags, &s.q.Since, "decide about all flights created within this time, such as 1h or 30d, or since this time; 0: all")
	if s.q.States = s.states[:1]; len(s.states) > 1 {
		flags.StringSliceVar(&s.q.States, "state", s.states[:1], "decide about all flights in these states")
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if many := s.used(cmd); len(args) > 1 || many == (len(args) == 1) {
			return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s takes a key or an id, or flags that select many flights, such as --action", cmd.CommandPath()), Hint: "see " + cmd.CommandPath() + " --help"}
		}
		for _, state := range s.q.States {
			if !slices.Contains(s.states, state) {
				return cli.UsageError("--state %s: want %s", state, strings.Join(s.states, " or "))
			}
		}
		return nil
	}
}

// used reports whether a flag selects flights.
func (s *selection) used(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"action", "prefix", "since", "state"}, cmd.Flags().Changed)
}

// decisionSummary says what became of the selected flights.
type decisionSummary struct {
	Flights int `json:"flights"`
	Decided int `json:"decided"`
	Skipped int `json:"skipped"` // they had changed since they were listed
}

// eightAtOnce calls do for each number below n, eight at a time, and waits for all of them.
func eightAtOnce(n int, do func(i int)) {
	var calls sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	calls.Wait()
}

// decideMany lists the selected flights, asks a person, and makes the decision about each of them, if it is still at the version
// that was listed. If the process dies, some are decided; the rest can be selected again.
func (s *selection) decideMany(ctx context.Context, a *cli.App, c *client.Client, meaning string, show flightTableWriter, do func(id flight.ID, f *client.Flight) error) error {
	if err := checkPrefix(a, s.q.KeyPrefix, false); err != nil {
		return err
	}
	s.q.Limit = cli.MaxListed
	flights, next, err := cli.ListPages(ctx, c, s.q)
	if err != nil {
		return err
	}
	flights = slices.DeleteFunc(flights, func(f client.Flight) bool { return f.Receipt != nil }) // a refusal is final
	if next != "" {
		a.Say("only the newest %d are read; repeat the command for the others", cli.MaxListed)
	}
	if len(flights) > 0 && !a.Yes {
		var b strings.Builder
		shown := flights[:min(3, len(flights))]
		show(ctx, &b, c, shown)
		if rest := len(flights) - len(shown); rest > 0 {
			fmt.Fprintf(&b, "and %d more\n", rest)
		}
		_, _ = fmt.Fprint(a.Err, b.String())
	}
	if len(flights) > 0 {
		if err := a.Confirm(true, "%s: %s; go on?", cli.Pluralize(len(flights), "flight", "flights"), meaning); err != nil {
			return err
		}
	}
	var (
		mu     sync.Mutex // guards all below
		sum    = decisionSummary{Flights: len(flights)}
		ids    []string
		failed error
	)
	eightAtOnce(len(flights), func(i int) {
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			return
		}
		id, err := flight.ParseID(flights[i].ID)
		if err == nil {
			err = do(id, &flights[i])
		}
		mu.Lock()
		defer mu.Unlock()
		switch code := client.CodeOf(err); {
		case err == nil:
			sum.Decided, ids = sum.Decided+1, append(ids, flights[i].ID)
		case code == wire.PreconditionFailed || code == wire.NotFound:
			sum.Skipped++
		case failed == nil:
			failed = err
		}
	})
	text := fmt.Sprintf("%s: %d decided, %d skipped because they had changed", cli.Pluralize(sum.Flights, "flight", "flights"), sum.Decided, sum.Skipped)
	if failed != nil {
		a.Say("%s; the same command continues", text)
		return failed
	}
	return a.Print(sum, cli.Text("%s\n", text), ids...)
}
