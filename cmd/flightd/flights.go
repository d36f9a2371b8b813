package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newFlightsCommand(a *cli.App) *cobra.Command {
	ls := flightList{what: "flights", read: newestFlights, show: flightTable}
	list := listCommand(a, &ls, &cobra.Command{
		Short: "List flights, the newest first",
		Example: `  flightd flights ls --state in_doubt,running
  flightd flights ls --action charge --since 1h -o json
  flightd flights ls --contains order-42
  flightd flights ls --external-id ch_17`,
	})
	flags := list.Flags()
	flags.StringVar(&ls.query.Cursor, "cursor", "", "list the page after this position, which the page before names")
	flags.StringVar(&ls.query.Contains, "contains", "", "only full keys with this text in them")
	flags.StringVar(&ls.query.ExternalID, "external-id", "", "only flights with this external id in their receipt or in evidence")
	flags.StringSliceVar(&ls.query.States, "state", nil, "only these states: "+strings.Join(stateWords(), ", "))
	return cli.CommandGroup("flights", "List, show, watch and wait for flights; cancel, retry, redact and free them", list,
		&cobra.Command{
			Use:   "get KEY-or-ID",
			Short: "Show one flight, with its input and its receipt",
			Example: `  flightd flights get charge/order-42
  flightd flights get fl_abc… -o json`,
			RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
				f, _, err := a.FindFlight(ctx, c, args[0], false)
				if err != nil {
					return err
				}
				w := readFullFlight(ctx, a, c, f)
				return a.Print(w, func(b *strings.Builder) {
					cli.WriteTable(b, []string{"FLIGHT", f.ID}, flightRows(f))
					w.write(b, cli.HideUser(a.Servers[0]))
				}, f.ID)
			}),
		},
		newFlightsWatchCommand(a), newFlightsWaitCommand(a),
		newOperatorCommand(a, "cancel", "scheduled ready awaiting_approval running waiting in_doubt", "Cancel a flight; a running attempt is asked to stop",
			false, "cancel %s?", (*client.Client).Cancel),
		newRetryCommand(a),
		newOperatorCommand(a, "redact", "", "Erase the input and the receipt's body of a finished flight; the effect is still not run again",
			true, "erase the input and the receipt's body of %s for good?", (*client.Client).Redact),
		newOperatorCommand(a, "free", "", "Free the key of a finished flight: the next call with it acts, although the effect may have happened",
			true, "free %s, so that the next call with it acts, although the effect may have happened?", (*client.Client).Free))
}

// allNamespacesFlag adds the flag of every command that reads a namespace.
func allNamespacesFlag(flags *pflag.FlagSet, all *bool) {
	flags.BoolVarP(all, "all-namespaces", "A", false, "read all namespaces; overrides --namespace")
}

// acceptAllNamespaces adds -A to a command that always lists what the token covers.
func acceptAllNamespaces(c *cobra.Command) *cobra.Command {
	c.Flags().BoolP("all-namespaces", "A", false, "list all namespaces that the token covers; this is the default")
	return c
}

func stateWords() (words []string) {
	for s := flight.StateScheduled; s < flight.StateExpired; s++ {
		words = append(words, s.String())
	}
	return words
}

// checkPrefix rejects a prefix that no key of the namespace can have.
func checkPrefix(a *cli.App, prefix string, everywhere bool) error {
	if _, bad := wire.ParseListNamespace(a.Namespace, prefix); bad != nil && !everywhere {
		return cli.UsageError("--prefix %s: no key of namespace %s has this prefix; a full key begins with its namespace; -n selects another namespace, -A all", prefix, a.Namespace)
	}
	return nil
}

// printEmptyList prints that a list is empty, since an empty table alone would be ambiguous.
func printEmptyList(a *cli.App, what string, everywhere bool) {
	if everywhere {
		a.Say("no %s", what)
		return
	}
	a.Say("no %s in namespace %s; -A reads all namespaces", what, a.Namespace)
}

// listReader reads the flights of a query, and returns the message about further ones, or "" if there are none.
type listReader func(ctx context.Context, c *client.Client, q client.Query) (page client.FlightPage, more string, err error)

// newestFlights is the listReader of flights ls.
func newestFlights(ctx context.Context, c *client.Client, q client.Query) (page client.FlightPage, more string, err error) {
	if page.Flights, page.Next, err = cli.ListPages(ctx, c, q); page.Next != "" {
		more = "there may be more; raise --limit to see them, or repeat the command with --cursor " + page.Next
	}
	return page, more, err
}

// flightTableWriter prints flights as a table.
type flightTableWriter func(ctx context.Context, b *strings.Builder, c *client.Client, flights []client.Flight)

// flightList is a list of flights. The field what is their plural noun.
type flightList struct {
	query client.Query
	what  string
	read  listReader
	show  flightTableWriter
}

// listCommand completes a command that lists flights.
func listCommand(a *cli.App, l *flightList, c *cobra.Command) *cobra.Command {
	q := &l.query
	c.Use = "ls"
	flags := c.Flags()
	allNamespacesFlag(flags, &q.AllNamespaces)
	flags.StringVar(&q.Action, "action", "", "only keys with this name")
	flags.StringVar(&q.KeyPrefix, "prefix", "", "only full keys with this prefix")
	cli.SinceVar(flags, &q.Since, "only flights created within this time, such as 1h or 30d, or since this time; 0: all")
	flags.IntVar(&q.Limit, "limit", 100, "list at most this many")
	c.PreRunE = func(*cobra.Command, []string) error {
		return cmp.Or(checkLimit(q.Limit), checkPrefix(a, q.KeyPrefix, q.AllNamespaces))
	}
	c.RunE = a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
		page, more, err := l.read(ctx, c, *q)
		if err != nil {
			return err
		}
		if more != "" && (page.Next == "" || a.Format == "table" || a.Format == "id") {
			a.Say("%s", more)
		}
		if len(page.Flights) == 0 && a.Format == "table" {
			printEmptyList(a, l.what, q.AllNamespaces)
		}
		var ids []string
		for _, f := range page.Flights {
			ids = append(ids, f.ID)
		}
		return a.Print(page, func(b *strings.Builder) { l.show(ctx, b, c, page.Flights) }, ids...)
	})
	return c
}

func flightTable(_ context.Context, b *strings.Builder, _ *client.Client, flights []client.Flight) {
	rows := make([][]string, 0, len(flights))
	for _, f := range flights {
		rows = append(rows, []string{listedKey(&f), f.State, strconv.Itoa(int(f.Attempts)), f.CreatedAt.Format(time.RFC3339), f.ID})
	}
	cli.WriteTable(b, []string{"KEY", "STATE", "ATTEMPTS", "CREATED", "ID"}, rows)
}

// displayKey returns the key, or the id of a tombstone, which has no key.
func displayKey(f *client.Flight) string {
	if f.Key == "" {
		return "(" + f.ID + ")"
	}
	return f.Key
}

// maxListedKey is the maximum number of characters of a key in a table.
const maxListedKey = 64

// listedKey returns the key of a flight for a table, where long keys lose their middle. -o id and -o json print the whole key.
func listedKey(f *client.Flight) string {
	key := []rune(displayKey(f))
	if len(key) <= maxListedKey {
		return string(key)
	}
	return string(key[:maxListedKey/2]) + "…" + string(key[len(key)-maxListedKey/2+1:])
}

// writeFlight prints one flight.
func writeFlight(a *cli.App, f *client.Flight) error {
	return a.PrintList([]string{"FLIGHT", f.ID}, flightRows(f), []string{f.ID}, f)
}

// flightRows returns the fields of a flight as rows of a table.
func flightRows(f *client.Flight) (rows [][]string) {
	add := func(name, format string, args ...any) {
		if s := strings.TrimSpace(fmt.Sprintf(format, args...)); s != "" {
			rows = append(rows, []string{name, s})
		}
	}
	add("key", "%s", f.Key)
	add("state", "%s", f.State)
	if f.State == flight.StateAbsent.String() { // the fields below belong to a generation that has not begun
		add("freed", "%s", freedBy(f))
		return rows
	}
	add("cause", "%s", f.Cause)
	add("recovery", "%s", f.Recovery)
	add("fingerprint", "%s", f.Fingerprint)
	if f.State == flight.StateExpired.String() { // a tombstone has neither attempts nor the source of the receipt
		if f.Receipt != nil {
			add("receipt", "%s; its body is no longer stored, %s", f.Receipt.Outcome, f.Receipt.Digest)
		}
		return rows
	}
	add("attempts", "%d", f.Attempts)
	if l := f.LastAttempt; l != nil {
		why := ""
		if l.Error != "" {
			why = " (" + l.Error + ")"
		}
		add("last attempt", "%d by %s: %s%s", l.Attempt, cmp.Or(l.Owner, "an unnamed caller"), cmp.Or(l.Outcome, "open"), why)
	}
	add("created", "%s", cli.FormatTime(f.CreatedAt.Time))
	add("finished", "%s", cli.FormatTime(f.FinishedAt.Time))
	if r := f.Receipt; r != nil {
		if r.Attempt > 0 {
			add("receipt", "%s by attempt %d, from a %s", r.Outcome, r.Attempt, r.From)
		} else {
			add("receipt", "%s, from an %s", r.Outcome, r.From)
		}
		add("external id", "%s", r.ExternalID)
		add("body", "%s of %s, %s", cli.Pluralize(r.Size, "byte", "bytes"), cmp.Or(r.ContentType, "unknown type"), r.Digest)
	}
	if m := f.Redacted; m != nil {
		add("redacted", "input and receipt erased %s by %s: %s", cli.FormatTime(m.At.Time), m.Actor, m.Reason)
	}
	if m := f.CancelRequested; m != nil {
		add("cancel requested", "%s by %s: %s", cli.FormatTime(m.At.Time), m.Actor, m.Reason)
	}
	if !f.CallbackUntil.IsZero() {
		add("callback", "%s", callbackText(f))
	}
	if !f.HeldUntil.IsZero() {
		add("held", "%s", heldText(f))
	}
	if r := f.Approval; r != nil {
		add("requested by", "%s", r.RequestedBy)
		add("decide until", "%s", cli.FormatTime(r.ExpiresAt.Time))
		add("policy", "%s", policyText(r))
	}
	if s := f.Resolution; s != nil && isApproval(s) {
		add(s.Result, "%s", decidedText(s))
	} else if s != nil {
		add("resolved", "%s, by %s: %s", resultText(s.Result), s.Actor, s.Reason)
	}
	for _, e := range f.Evidence {
		add("evidence", "attempt %d reported %s after it was superseded, at %s %s", e.Attempt, e.Outcome, cli.FormatTime(e.At.Time), e.ExternalID)
	}
	if f.Overlap {
		add("OVERLAP", "the evidence names a second effect")
	}
	return rows
}

// freedBy describes who freed a key, why, and the last state of its flight.
func freedBy(f *client.Flight) string {
	if len(f.PreviousGenerations) == 0 {
		return ""
	}
	last := f.PreviousGenerations[len(f.PreviousGenerations)-1]
	return fmt.Sprintf("%s by %s: %s; its state was %s", cli.FormatTime(last.At.Time), last.Actor, last.Reason, last.State)
}

// newRetryCommand returns the command that lets one flight, or many, run again.
func newRetryCommand(a *cli.App) *cobra.Command {
	const states = "failed cancelled"
	many := &selection{states: strings.Fields(states)}
	one := decideOne(a, true, "let %s run again?", (*client.Client).Retry)
	c := &cobra.Command{
		Use:   "retry (KEY-or-ID | --action NAME | --prefix KEY | --since TIME | --state STATE)",
		Short: "Let a flight, or many, that ended without a receipt run again",
		Example: operatorExample("retry") +
			"\n  flightd flights retry --action charge --state failed --since 1h --reason 'the bank is back'   # asks first, with their number",

		Annotations: map[string]string{statesAnnotation: states},
	}
	many.add(c)
	return a.Decision(c, nil, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		if len(args) == 1 {
			return one(ctx, c, args, reason)
		}
		return many.decideMany(ctx, a, c, "let them run again", flightTable, func(id flight.ID, f *client.Flight) error {
			_, err := c.Retry(ctx, id, f.Version, client.OperatorRequest{Key: f.Key, Reason: reason})
			return err
		})
	})
}

// operatorCall is a client method that carries out an operator's decision on one flight.
type operatorCall func(c *client.Client, ctx context.Context, id flight.ID, version string, r client.OperatorRequest) (*client.Flight, error)

// newOperatorCommand returns the command for do. question is the confirmation prompt. states are those in which the command
// applies, or "" for all.
func newOperatorCommand(a *cli.App, verb, states, short string, irreversible bool, question string, do operatorCall) *cobra.Command {
	return a.Decision(&cobra.Command{
		Use:     verb + " KEY-or-ID",
		Short:   short,
		Example: operatorExample(verb),

		Annotations: map[string]string{statesAnnotation: states},
	}, nil, decideOne(a, irreversible, question, do))
}

func operatorExample(verb string) string {
	return fmt.Sprintf("  flightd flights %s charge/order-42 --reason 'the customer called'", verb)
}

// decideOne asks about one flight, and carries out the decision.
func decideOne(a *cli.App, irreversible bool, question string, do operatorCall) cli.Ask {
	return func(ctx context.Context, c *client.Client, args []string, reason string) error {
		f, id, err := a.FindFlight(ctx, c, args[0], true)
		if err != nil {
			return err
		}
		if err := a.Confirm(irreversible, question, displayKey(f)); err != nil {
			return err
		}
		if f, err = do(c, ctx, id, f.Version, client.OperatorRequest{Key: f.Key, Reason: reason}); err != nil {
			return err
		}
		a.Say("%s: %s", displayKey(f), stateText(f))
		return writeFlight(a, f)
	}
}
