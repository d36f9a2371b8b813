package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
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

func newDoubtCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("doubt", "List, show and resolve the flights in doubt: their effect may or may not have happened",
		listCommand(a, &flightList{
			query: client.Query{States: []string{flight.StateInDoubt.String()}}, what: "doubts",
			read: oldest(doubtSince, "are in doubt", "younger doubt is", "younger doubts are"), show: showDoubts,
		}, &cobra.Command{
			Short: "List the flights in doubt, the oldest doubt first",
			Long: `Lists the flights in doubt, the oldest doubt first: its age since the end of its last attempt, how many other calls were
answered without another effect and when the last one came, the beginning of the input, and the cause.`,
			Example: "  flightd doubt ls\n  flightd doubt ls -A                     # in all namespaces\n  flightd doubt ls --action charge --since 7d\n" +
				"  flightd doubt ls -o id | xargs -n1 flightd doubt show",
		}),
		newShowCommand(a, "doubt show charge/order-42", flight.StateInDoubt, "Show everything stored about one flight in doubt: history, input, receipt"),
		newDoubtResolveCommand(a))
}

// newShowCommand returns the command that shows everything about a flight in a state.
func newShowCommand(a *cli.App, example string, state flight.State, short string) *cobra.Command {
	return &cobra.Command{
		Use:     "show KEY-or-ID",
		Short:   short,
		Example: "  flightd " + example,

		Annotations: map[string]string{statesAnnotation: state.String()},
		RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			return writeWhy(ctx, a, c, args[0], true)
		}),
	}
}

// resolution is a person's decision about a flight in doubt.
type resolution struct {
	happened, didNotHappen, fail bool
	receipt, externalID          string
	noReceipt                    bool
	cli.OperatorFlags
}

func newDoubtResolveCommand(a *cli.App) *cobra.Command {
	var v resolution
	many := &selection{states: []string{flight.StateInDoubt.String()}}
	c := &cobra.Command{
		Use:   "resolve (KEY-or-ID | --action NAME | --prefix KEY | --since TIME) (--happened (--receipt R | --external-id ID | --no-receipt) | --did-not-happen | --fail)",
		Short: "Resolve a flight in doubt, or many; waiting callers get the result",
		Long: `Resolves a flight in doubt by the decision of a person who has checked whether the effect happened.

  --happened        the effect happened; --receipt and --external-id become the receipt that every later caller gets. With
                    --no-receipt, and with an external id alone, later callers learn that the effect happened, and get an
                    error instead of a result (exit code 74 of exec)
  --did-not-happen  the effect did not happen; the next caller runs it
  --fail            the effect did not happen and must not be tried again

For a step of a saga, such as trip/b-42#hotel, --did-not-happen lets it run again, and --fail lets an undo, or a step after the
pivot, pass: the saga goes on without it. Before the pivot, --fail undoes the saga.

--action, --prefix and --since select many flights in doubt for one decision. Their number and three of their inputs are shown
first. A flight that changes meanwhile is skipped and counted.

--reason records how the person knows. Without a terminal, --yes is required.`,
		Example: `  flightd doubt resolve charge/order-42 --happened --receipt @answer.json --external-id ch_123 --reason 'the bank statement shows it'
  flightd doubt resolve charge/order-42 --did-not-happen --reason 'looked at the bank statement'
  flightd doubt resolve --action mail --since 1h --did-not-happen --reason 'the log of the mail server'`,

		Annotations: map[string]string{statesAnnotation: flight.StateInDoubt.String()},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, meaning, err := resolveRequest(a, v)
			if err != nil {
				return err
			}
			if len(args) == 0 && v.happened && !v.noReceipt {
				return cli.UsageError("one receipt cannot be that of many flights; --happened needs --no-receipt here")
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				if len(args) == 0 {
					return many.decideMany(cmd.Context(), a, c, meaning, showDoubts, func(id flight.ID, f *client.Flight) error {
						_, err := c.Resolve(cmd.Context(), id, f.Version, r)
						return err
					})
				}
				return resolveDoubt(cmd.Context(), a, c, args[0], r, meaning)
			}, client.WithActor(cli.ActorName(v.Actor)))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&v.happened, "happened", false, "the effect happened")
	flags.BoolVar(&v.didNotHappen, "did-not-happen", false, "the effect did not happen; it may be tried again")
	flags.BoolVar(&v.fail, "fail", false, "the effect did not happen and must not be tried again")
	flags.StringVar(&v.receipt, "receipt", "", "with --happened: the body of the receipt; @FILE reads a file, @- standard input")
	flags.StringVar(&v.externalID, "external-id", "", "with --happened: the provider's id of the effect")
	flags.BoolVar(&v.noReceipt, "no-receipt", false, "with --happened: there is neither a receipt nor an external id")
	v.Add(flags, cli.DecisionReason)
	many.add(c)
	return c
}

// resolveRequest converts the decision for the API. word describes it to a person.
func resolveRequest(a *cli.App, v resolution) (r client.ResolveRequest, word string, err error) {
	r.Reason = v.Reason
	chosen := 0
	for _, choice := range []struct {
		flag         bool
		result, more string
	}{{v.happened, "happened", ""}, {v.didNotHappen, "not_happened", " and may run again"}, {v.fail, "fail", ""}} {
		if choice.flag {
			chosen++
			r.Result, word = choice.result, resultText(choice.result)+choice.more
		}
	}
	if chosen != 1 {
		return r, "", cli.UsageError("choose one of --happened, --did-not-happen and --fail")
	}
	if !v.happened && (v.receipt != "" || v.externalID != "" || v.noReceipt) {
		return r, "", cli.UsageError("--receipt, --external-id and --no-receipt need --happened")
	}
	if err := v.Check(); err != nil {
		return r, "", err
	}
	body := []byte(v.receipt)
	if name, isFile := strings.CutPrefix(v.receipt, "@"); isFile {
		body, err = cli.ReadFile(a, name, flight.MaxReceiptBody)
	} else {
		err = checkReceiptText(v.receipt)
	}
	if err != nil {
		return r, "", err
	}
	switch hasReceipt := len(body) > 0 || v.externalID != ""; {
	case hasReceipt && v.noReceipt:
		return r, "", cli.UsageError("choose one of --no-receipt, and --receipt and --external-id")
	case v.happened && !hasReceipt && !v.noReceipt:
		return r, "", &cli.Error{Code: cli.ExitUsage, Err: errors.New("--happened has no receipt: later callers would get no result"),
			Hint: "pass the provider's answer with --receipt, or its id with --external-id; if there is neither, pass --no-receipt"}
	case v.happened && len(body) == 0:
		word += ", and later callers get no result"
	}
	if r.ExternalID, r.NoReceipt = v.externalID, v.noReceipt; len(body) > 0 {
		r.ContentType, r.Base64 = cli.ReceiptBody(body)
	}
	return r, word, nil
}

// checkReceiptText rejects a receipt that is probably a mistake: a receipt can never be changed.
func checkReceiptText(text string) error {
	if start := strings.TrimSpace(text); strings.HasPrefix(start, "{") && !json.Valid([]byte(text)) {
		return cli.UsageError("--receipt %s: invalid JSON; correct it, or pass it as a file with @FILE to store it as it is", text)
	}
	if f, err := os.Stat(text); err == nil && f.Mode().IsRegular() {
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("--receipt %s: this is the name of a file; @FILE reads a file", text), Hint: cli.DidYouMean("@" + text)}
	}
	return nil
}

// resultText describes the result of a resolution.
func resultText(result string) string {
	switch result {
	case "happened":
		return "it happened"
	case "not_happened":
		return "it did not happen"
	case "fail":
		return "it did not happen and must not run"
	}
	return result
}

func resolveDoubt(ctx context.Context, a *cli.App, c *client.Client, word string, r client.ResolveRequest, meaning string) error {
	f, id, err := a.FindFlight(ctx, c, word, false)
	if err != nil {
		return err
	}
	if err := a.Confirm(true, "%s: %s?", displayKey(f), meaning); err != nil {
		return err
	}
	if f, err = c.Resolve(ctx, id, f.Version, r); err != nil {
		return err
	}
	a.Say("%s: %s", displayKey(f), stateText(f))
	return writeFlight(a, f)
}

// oldest returns a listReader that lists the oldest flights first. since returns the beginning of a flight's age; state, singular and
// plural are the words for the flights beyond the limit. The server lists flights by their creation, so all are read, up to MaxListed.
func oldest(since func(*client.Flight) time.Time, state, singular, plural string) listReader {
	return func(ctx context.Context, c *client.Client, q client.Query) (page client.FlightPage, more string, err error) {
		limit := q.Limit
		q.Limit = max(limit, cli.MaxListed)
		all, next, err := cli.ListPages(ctx, c, q)
		if err != nil {
			return page, "", err
		}
		slices.SortStableFunc(all, func(x, y client.Flight) int { return since(&x).Compare(since(&y)) })
		page.Flights = all[:min(limit, len(all))]
		switch rest := len(all) - len(page.Flights); {
		case next != "":
			more = fmt.Sprintf("more than %d flights %s, and perhaps not the oldest are listed", len(all), state)
		case rest > 0:
			more = cli.Pluralize(rest, singular, plural) + " not listed; raise --limit to see all"
		}
		return page, more, nil
	}
}

// doubtSince returns when the last attempt of a doubt ended.
func doubtSince(f *client.Flight) time.Time {
	if l := f.LastAttempt; l != nil && !l.ClosedAt.IsZero() {
		return l.ClosedAt.Time
	}
	return f.CreatedAt.Time
}

func showDoubts(ctx context.Context, b *strings.Builder, c *client.Client, doubts []client.Flight) {
	doubtTable(b, doubts, shortInputs(ctx, c, doubts), time.Now())
}

// doubtTable prints doubts with the beginning of their inputs.
func doubtTable(b *strings.Builder, doubts []client.Flight, inputs []string, now time.Time) {
	rows := make([][]string, 0, len(doubts))
	for i, f := range doubts {
		calls := "0"
		if d := f.Duplicates; d != nil {
			calls = fmt.Sprintf("%d, %s ago", d.Count, cli.AgeText(now.Sub(d.LastAt.Time)))
		}
		rows = append(rows, []string{listedKey(&f), cli.AgeText(now.Sub(doubtSince(&f))), strconv.Itoa(int(f.Attempts)), calls, inputs[i], doubtCause(&f)})
	}
	cli.WriteTable(b, []string{"KEY", "AGE", "ATTEMPTS", "CALLS", "INPUT", "CAUSE"}, rows)
}

// maxShortInput bounds the characters of an input in the list of doubts.
const maxShortInput = 40

// shortInputs returns the beginnings of the inputs of flights, or "" where there is none, or where it cannot be read.
func shortInputs(ctx context.Context, c *client.Client, flights []client.Flight) []string {
	inputs := make([]string, len(flights))
	eightAtOnce(len(flights), func(i int) { inputs[i] = shortInput(ctx, c, flights[i].ID) })
	return inputs
}

func shortInput(ctx context.Context, c *client.Client, id string) string {
	parsed, err := flight.ParseID(id)
	if err != nil {
		return ""
	}
	in, err := c.Input(ctx, parsed)
	switch {
	case errors.As(err, new(*effect.Missing)) || client.CodeOf(err) == wire.Expired:
		return ""
	case err != nil:
		return "(unreadable)"
	}
	text, isText := textOf(in.Data, false)
	if !isText {
		return fmt.Sprintf("(%s of %s)", cli.Pluralize(len(in.Data), "byte", "bytes"), cmp.Or(in.ContentType, "unknown type"))
	}
	words := []rune(strings.Join(strings.Fields(text), " "))
	if len(words) > maxShortInput {
		words = append(words[:maxShortInput-1], '…')
	}
	return string(words)
}

// doubtCause returns the known cause of a doubt. The cause of recovery hold is omitted: it is the same in every row.
func doubtCause(f *client.Flight) string {
	switch l := f.LastAttempt; {
	case l == nil || l.Error == "":
		return f.Cause
	case f.Recovery == flight.RecoveryHold.String():
		return l.Error
	default:
		return l.Error + "; " + f.Cause
	}
}
