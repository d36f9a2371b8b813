package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func (a *app) flightsCommand() *cobra.Command {
	return commandGroup("flights", "List, show and watch flights; cancel, retry, redact and free them",
		a.flightsList(), a.flightsGet(), a.flightsWatch(),
		a.operatorCommand("cancel", "Cancel a flight; a running attempt is asked to stop",
			false, "cancel %s?", (*client.Client).Cancel),
		a.operatorCommand("retry", "Let a flight that ended without a receipt run again",
			true, "let %s run again?", (*client.Client).Retry),
		a.operatorCommand("redact", "Erase the input and the receipt's body of a finished flight; the effect is still not run again",
			true, "erase the input and the receipt's body of %s for good?", (*client.Client).Redact),
		a.operatorCommand("free", "Free the key of a finished flight: the next call with it acts, although the effect may have happened",
			true, "free %s, so that the next call with it acts, although the effect may have happened?", (*client.Client).Free))
}

func (a *app) flightsList() *cobra.Command {
	var q client.Query
	c := &cobra.Command{
		Use:   "ls",
		Short: "List flights, the newest first",
		Example: `  flightd flights ls --state in_doubt,running
  flightd flights ls --action charge --since 1h -o json`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.list(cmd.Context(), q, "flights", newestFlights, func(_ *client.Client, flights []client.Flight) error { return flightTable(a.out, flights) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&q.Cursor, "cursor", "", "list the page after this position, which the page before names")
	flags.StringSliceVar(&q.States, "state", nil, "only these states: "+strings.Join(stateWords(), ", "))
	listFlags(flags, &q)
	return c
}

// listFlags adds the flags of every command that lists flights.
func listFlags(flags *pflag.FlagSet, q *client.Query) {
	allNamespacesFlag(flags, &q.AllNamespaces)
	flags.StringVar(&q.Action, "action", "", "only keys with this name")
	flags.StringVar(&q.KeyPrefix, "prefix", "", "only full keys with this prefix")
	flags.Var((*sinceValue)(&q.Since), "since", "only flights created within this time, such as 1h or 30d, or since this time; 0: all")
	flags.IntVar(&q.Limit, "limit", 100, "list at most this many")
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
func (a *app) checkPrefix(prefix string, everywhere bool) error {
	if _, bad := wire.ParseListNamespace(a.namespace, prefix); bad != nil && !everywhere {
		return usageError("--prefix %s: no key of namespace %s has this prefix; a full key begins with its namespace; -n selects another namespace, -A all", prefix, a.namespace)
	}
	return nil
}

// sayNone prints that a list is empty, since an empty table alone would be ambiguous.
func (a *app) sayNone(what string, everywhere bool) {
	if everywhere {
		a.say("no %s", what)
		return
	}
	a.say("no %s in namespace %s; -A reads all namespaces", what, a.namespace)
}

// listReader reads the flights of a query, and returns the message about further ones; "": there are none.
type listReader func(ctx context.Context, c *client.Client, q client.Query) (page client.FlightPage, more string, err error)

// newestFlights is the listReader of flights ls.
func newestFlights(ctx context.Context, c *client.Client, q client.Query) (page client.FlightPage, more string, err error) {
	if page.Flights, page.Next, err = listPages(ctx, c, q); page.Next != "" {
		more = "there may be more; raise --limit to see them, or repeat the command with --cursor " + page.Next
	}
	return page, more, err
}

// list prints the flights of a query; what is the plural noun for them, and show prints them as a table.
func (a *app) list(ctx context.Context, q client.Query, what string, read listReader, show func(*client.Client, []client.Flight) error) error {
	if q.Limit <= 0 {
		return usageError("--limit %d: at least 1", q.Limit)
	}
	if err := a.checkPrefix(q.KeyPrefix, q.AllNamespaces); err != nil {
		return err
	}
	return a.withClient(ctx, func(c *client.Client) error {
		page, more, err := read(ctx, c, q)
		if err != nil {
			return err
		}
		if more != "" && (page.Next == "" || a.format == "table" || a.format == "id") {
			a.say("%s", more)
		}
		switch a.format {
		case "id":
			for _, f := range page.Flights {
				if _, err := fmt.Fprintln(a.out, f.ID); err != nil {
					return err
				}
			}
			return nil
		case "table":
			if len(page.Flights) == 0 {
				a.sayNone(what, q.AllNamespaces)
			}
			return show(c, page.Flights)
		}
		return a.printData(page)
	})
}

// maxPage is the largest page of the API.
const maxPage = 500

// listPages reads pages up to the query's limit. next is the cursor of the next page; "": none.
func listPages(ctx context.Context, c *client.Client, q client.Query) (flights []client.Flight, next string, err error) {
	flights = []client.Flight{}
	for limit := q.Limit; len(flights) < limit; {
		q.Limit = min(limit-len(flights), maxPage)
		page, err := c.List(ctx, q)
		if err != nil {
			return nil, "", err
		}
		flights = append(flights, page.Flights...)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	return flights, q.Cursor, nil
}

func flightTable(w io.Writer, flights []client.Flight) error {
	rows := make([][]string, 0, len(flights))
	for _, f := range flights {
		rows = append(rows, []string{displayKey(&f), f.State, strconv.Itoa(int(f.Attempts)), f.CreatedAt.Format(time.RFC3339), f.ID})
	}
	return writeTable(w, []string{"KEY", "STATE", "ATTEMPTS", "CREATED", "ID"}, rows)
}

// displayKey returns the key, or the id of a tombstone, which has no key.
func displayKey(f *client.Flight) string {
	if f.Key == "" {
		return "(" + f.ID + ")"
	}
	return f.Key
}

func (a *app) flightsGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get KEY-or-ID",
		Short: "Show one flight, with its input and its receipt",
		Example: `  flightd flights get charge/order-42
  flightd flights get fl_abc… -o json`,
		Args: exactArgs(1, "a key or an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				f, err := a.findFlight(cmd.Context(), c, args[0], false)
				if err != nil {
					return err
				}
				w := a.readFullFlight(cmd.Context(), c, f)
				switch a.format {
				case "id":
					return a.writeFlight(f)
				case "table":
					if err := a.writeFlight(f); err != nil {
						return err
					}
					return w.write(a.out, hideUser(a.servers[0]))
				}
				return a.printData(w)
			})
		},
	}
}

// writeFlight prints one flight.
func (a *app) writeFlight(f *client.Flight) error {
	switch a.format {
	case "id":
		_, err := fmt.Fprintln(a.out, f.ID)
		return err
	case "table":
		return writeTable(a.out, []string{"FLIGHT", f.ID}, flightRows(f))
	}
	return a.printData(f)
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
		add("last attempt", "%d by %s: %s%s", l.Attempt, orDefault(l.Owner, "an unnamed caller"), orDefault(l.Outcome, "open"), why)
	}
	add("created", "%s", formatTime(f.CreatedAt.Time))
	add("finished", "%s", formatTime(f.FinishedAt.Time))
	if r := f.Receipt; r != nil {
		if r.Attempt > 0 {
			add("receipt", "%s by attempt %d, from a %s", r.Outcome, r.Attempt, r.From)
		} else {
			add("receipt", "%s, from an %s", r.Outcome, r.From)
		}
		add("external id", "%s", r.ExternalID)
		add("body", "%s of %s, %s", pluralize(r.Size, "byte", "bytes"), orDefault(r.ContentType, "unknown type"), r.Digest)
	}
	if m := f.Redacted; m != nil {
		add("redacted", "input and receipt erased %s by %s: %s", formatTime(m.At.Time), m.Actor, m.Reason)
	}
	if m := f.CancelRequested; m != nil {
		add("cancel requested", "%s by %s: %s", formatTime(m.At.Time), m.Actor, m.Reason)
	}
	if !f.HeldUntil.IsZero() {
		add("held", "%s", heldText(f))
	}
	if s := f.Resolution; s != nil {
		add("resolved", "%s, by %s: %s", resultText(s.Result), s.Actor, s.Reason)
	}
	for _, e := range f.Evidence {
		add("evidence", "attempt %d reported %s after it was superseded, at %s %s", e.Attempt, e.Outcome, formatTime(e.At.Time), e.ExternalID)
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
	return fmt.Sprintf("%s by %s: %s; its state was %s", formatTime(last.At.Time), last.Actor, last.Reason, last.State)
}

func orDefault(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// operatorCall is a client method that carries out an operator's decision on one flight.
type operatorCall func(c *client.Client, ctx context.Context, id flight.ID, version string, r client.OperatorRequest) (*client.Flight, error)

// operatorCommand returns the command for do. question is the confirmation prompt.
func (a *app) operatorCommand(verb, short string, irreversible bool, question string, do operatorCall) *cobra.Command {
	var d operatorFlags
	c := &cobra.Command{
		Use:     verb + " KEY-or-ID",
		Short:   short,
		Example: fmt.Sprintf("  flightd flights %s charge/order-42 --reason 'the customer called'", verb),
		Args:    exactArgs(1, "a key or an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				f, err := a.findFlight(cmd.Context(), c, args[0], true)
				if err != nil {
					return err
				}
				id, err := flight.ParseID(f.ID)
				if err != nil {
					return err
				}
				if err := a.confirm(irreversible, question, displayKey(f)); err != nil {
					return err
				}
				if f, err = do(c, cmd.Context(), id, f.Version, client.OperatorRequest{Key: f.Key, Reason: d.reason}); err != nil {
					return err
				}
				a.say("%s: %s", displayKey(f), stateText(f))
				return a.writeFlight(f)
			}, client.WithActor(actorName(d.actor)))
		},
	}
	d.flags(c.Flags())
	return c
}
