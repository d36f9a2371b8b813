package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// maxNamedLeft bounds how many flights a table of namespace copy names.
const maxNamedLeft = 50

// namespaceCopyFlags hold the command line of a copy.
type namespaceCopyFlags struct {
	from, to string
	leave    int // how many flights and tombstones may stay behind
	actor    string
}

func newNamespaceCopyCommand(a *cli.App) *cobra.Command {
	var flags namespaceCopyFlags
	c := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy the receipts of one namespace to another, so that their effects do not run again there",
		Long: `The namespace is a part of the key: pay-7 in another namespace is another key, and its effect runs again. This command stores
every final receipt of FROM under the same name and id in TO, as flightd import does. FROM keeps its flights, and a key that
exists in TO is not changed. Without --yes the command changes nothing and says what it would do. Stop the callers of FROM
first. A copy may be interrupted and repeated.

A key without a final receipt is not copied, and the next call with it in TO acts: an open flight, a doubt, a flight that
ended without a receipt or with an unknown one, and a tombstone, which has no key any more. The command counts and names them, and copies nothing
until you accept their number with --leave. Tombstones are counted in all namespaces, because a tombstone has none.

Your token must be one of all namespaces that may read, operate and admin, such as the token admin.`,
		Example: `  flightd namespace copy default billing                    # changes nothing
  flightd namespace copy default billing --leave 2 --yes`,
		Args: cli.ExactArgs(2, "two namespaces"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.from, flags.to = args[0], args[1]
			if flags.from == flags.to {
				return cli.UsageError("both namespaces are %s", flags.from)
			}
			return copyNamespace(cmd.Context(), a, flags)
		},
	}
	c.Flags().IntVar(&flags.leave, "leave", 0, "the number of flights and tombstones that may stay behind, as the command has counted them")
	c.Flags().StringVar(&flags.actor, "actor", "", "name of the person who copies; recorded (your user name)")
	return c
}

// namespaceCopyResult is what a copy has done, or would do.
type namespaceCopyResult struct {
	From       string                 `json:"from"`
	To         string                 `json:"to"`
	Copied     int                    `json:"copied"`
	Existing   int                    `json:"existing"`
	Differing  []client.ImportTrouble `json:"differing"`
	Left       []leftFlight           `json:"left"`       // flights without a final receipt
	Tombstones int                    `json:"tombstones"` // of all namespaces
	DryRun     bool                   `json:"dry_run,omitempty"`
}

// leftFlight is a flight that is not copied.
type leftFlight struct {
	Key   string `json:"key"`
	State string `json:"state"`
}

func (r *namespaceCopyResult) left() int { return len(r.Left) + r.Tombstones }

// copyNamespace counts first, by a dry run, and copies if that is confirmed and exactly as much stays behind as was accepted.
func copyNamespace(ctx context.Context, a *cli.App, flags namespaceCopyFlags) error {
	a.Namespace = flags.to
	return a.WithClient(ctx, func(to *client.Client) error {
		return a.WithClient(ctx, func(from *client.Client) error {
			result, err := copyReceipts(ctx, a, from, to, flags, true)
			if err != nil {
				return err
			}
			repeat := "--yes"
			if n := result.left(); n > 0 {
				repeat = fmt.Sprintf("--yes --leave %d", n)
			}
			switch {
			case !a.Yes:
				a.Say("nothing was changed; to copy, repeat the command with %s", repeat)
				return showNamespaceCopy(a, result)
			case result.left() != flags.leave:
				return errors.Join(showNamespaceCopy(a, result), &cli.Error{Code: cli.ExitFailed,
					Err:  fmt.Errorf("%s would stay behind, and --leave is %d; nothing was changed", cli.Pluralize(result.left(), "key", "keys"), flags.leave),
					Hint: "settle them in namespace " + flags.from + ", or repeat the command with " + repeat})
			}
			if result, err = copyReceipts(ctx, a, from, to, flags, false); err != nil {
				a.Say("the copy is not complete; repeat the command to continue")
				return err
			}
			err = showNamespaceCopy(a, result)
			if result.left() != flags.leave || len(result.Differing) > 0 {
				err = errors.Join(err, cli.ExitStatus(cli.ExitFailed)) // flights came meanwhile, or TO has other receipts
			}
			return err
		}, client.WithNamespace(flags.from))
	}, client.WithActor(cli.ActorName(flags.actor)))
}

// copyReceipts imports the final receipts of a namespace into another one.
func copyReceipts(ctx context.Context, a *cli.App, from, to *client.Client, flags namespaceCopyFlags, dryRun bool) (*namespaceCopyResult, error) {
	usage, err := from.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	result := &namespaceCopyResult{From: flags.from, To: flags.to, Left: []leftFlight{}, Tombstones: int(usage.Tombstones), DryRun: dryRun}
	lines, sink := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := writeReceipts(ctx, from, flags.to, sink, &result.Left)
		sink.CloseWithError(err) // nil: the end of the lines
		written <- err
	}()
	run := &importRun{App: a, importFlags: importFlags{dryRun: dryRun}, client: to, start: time.Now()}
	err = run.run(ctx, lines)
	_ = lines.CloseWithError(errors.New("the import has ended")) // lets the writer end; it returns no error
	if failed := <-written; err == nil {
		err = failed
	}
	sum := run.summary()
	result.Copied, result.Existing, result.Differing = sum.Imported, sum.Existing, sum.Differing
	return result, err
}

// writeReceipts writes an import line for each final receipt of the client's namespace. It adds the other flights to left, except the steps
// of copied sagas.
func writeReceipts(ctx context.Context, from *client.Client, to string, lines io.Writer, left *[]leftFlight) error {
	var copied []string
	steps := make(map[string][]leftFlight) // by the key of their saga
	for q := (client.Query{Limit: cli.MaxPage}); ; {
		page, err := from.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Flights {
			line, err := receiptLine(ctx, from, to, &page.Flights[i])
			switch {
			case err != nil:
				return err
			case line == nil:
				if saga, _, step := strings.Cut(page.Flights[i].Key, "#"); step {
					steps[saga] = append(steps[saga], leftFlight{Key: page.Flights[i].Key, State: page.Flights[i].State})
					continue
				}
				state := page.Flights[i].State
				if page.Flights[i].Receipt != nil {
					state = "no_receipt" // a person knew only that it happened; an import would be an empty result
				}
				*left = append(*left, leftFlight{Key: page.Flights[i].Key, State: state})
			default:
				copied = append(copied, page.Flights[i].Key)
				if _, err := lines.Write(append(strictjson.Append(nil, &line), '\n')); err != nil {
					return err
				}
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			for _, key := range copied {
				delete(steps, key) // a copied saga has ended, so its steps do not run again
			}
			for _, of := range steps {
				*left = append(*left, of...)
			}
			return nil
		}
	}
}

// receiptLine returns the import line of a flight's receipt in another namespace, or nil if the flight has no final receipt, or
// one without any result, or a key that cannot be imported. A redacted receipt is one whose bytes are not known.
func receiptLine(ctx context.Context, from *client.Client, to string, f *client.Flight) (*client.ImportLine, error) {
	key, err := flight.ParseStoredKey(f.Key)
	if err != nil {
		return nil, err
	}
	if f.Receipt == nil || f.Receipt.Truncated && f.Receipt.Size == 0 || key.IsStep() {
		return nil, nil
	}
	if key, err = flight.NewKey(to, key.Name(), key.BusinessID()); err != nil {
		return nil, nil // stored by a build with other Unicode tables, by which the id was in normalization form C
	}
	line := &client.ImportLine{Key: key.String(), Outcome: f.Receipt.Outcome, Fingerprint: f.Fingerprint,
		CreatedAt: f.CreatedAt.UTC().Format(time.RFC3339Nano), FinishedAt: f.FinishedAt.UTC().Format(time.RFC3339Nano),
		Retention: wire.FormatRetention(f.ExpiresAt.Sub(f.FinishedAt.Time))}
	line.ExternalID = f.Receipt.ExternalID
	if f.Receipt.Size == 0 {
		return line, nil
	}
	if f.Redacted != nil {
		line.ContentType, line.Base64, line.Truncated = "application/octet-stream", []byte{}, true
		line.Size, line.Digest = int64(f.Receipt.Size), f.Receipt.Digest
		return line, nil
	}
	id, err := flight.ParseID(f.ID)
	if err != nil {
		return nil, err
	}
	body, err := from.Receipt(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Key, err)
	}
	line.ContentType, line.Base64 = body.ContentType, body.Data
	if body.Size > len(body.Data) {
		line.Truncated, line.Size, line.Digest = true, int64(body.Size), body.Digest
	}
	return line, nil
}

func showNamespaceCopy(a *cli.App, r *namespaceCopyResult) error {
	var ids []string // of what stays behind
	for _, f := range r.Left {
		ids = append(ids, f.Key)
	}
	return a.Print(r, r.write, ids...)
}

// write writes the result for people.
func (r *namespaceCopyResult) write(b *strings.Builder) {
	verb := "copied"
	if r.DryRun {
		verb = "would be copied"
	}
	fmt.Fprintf(b, "from %s to %s: %s %s, %d existed already, %s\n", r.From, r.To, cli.Pluralize(r.Copied, "receipt", "receipts"), verb, r.Existing,
		cli.Pluralize(len(r.Differing), "differs", "differ"))
	for _, d := range r.Differing {
		fmt.Fprintf(b, "  %s: %s\n", d.Key, d.Detail)
	}
	if r.left() == 0 {
		return
	}
	rows := [][]string{}
	slices.SortFunc(r.Left, func(x, y leftFlight) int { return cmp.Or(cmp.Compare(x.State, y.State), cmp.Compare(x.Key, y.Key)) })
	for _, f := range r.Left[:min(len(r.Left), maxNamedLeft)] {
		rows = append(rows, []string{f.State, f.Key})
	}
	if more := len(r.Left) - len(rows); more > 0 {
		rows = append(rows, []string{"…", fmt.Sprintf("%d more; -o id lists all", more)})
	}
	if r.Tombstones > 0 {
		rows = append(rows, []string{"expired", cli.Pluralize(r.Tombstones, "tombstone", "tombstones") + " of all namespaces"})
	}
	fmt.Fprintf(b, "not copied, and would run again in %s: %d\n", r.To, r.left())
	cli.WriteTable(b, []string{"STATE", "KEY"}, rows)
}
