package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// importFlags hold the command line of an import.
type importFlags struct {
	file      string
	dryRun    bool
	keepGoing bool
	actor     string
}

func newImportCommand(a *cli.App) *cobra.Command {
	var im importFlags
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Import receipts of effects that happened before flightd was used",
		Long: `Reads one JSON receipt per line and stores it under its key: every later call with the key gets the receipt, and the
effect is not run again. A key that exists already is not changed. An import may be interrupted and repeated.

  key           the full key: namespace/name/id; required
  outcome       succeeded or refused; required
  external_id, body or body_base64 with content_type
                the result of the effect
  input, or fingerprint ("sha256:…")
                the request; without them, calls are matched by key alone
  finished_at   time of the effect, as in 2026-11-20T14:03:00Z; empty: now. The retention starts then. A receipt past its
                retention is soon deleted, but its key stays guarded
  created_at    time of the request
  retention     as in 30d; empty: the default

FILE may be - for standard input.`,
		Example: `  flightd import receipts.ndjson --dry-run     # reports every invalid line, changes nothing
  flightd import receipts.ndjson
  psql -At -f - <<'SQL' | flightd import -                     # paid_at is a timestamptz
    select json_build_object('key', 'default/charge/' || id, 'outcome', 'succeeded', 'external_id', charge_id,
    'finished_at', to_char(paid_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) from orders where paid_at > now() - interval '30 days'
  SQL`,
		Args: cli.ExactArgs(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			im.file = args[0]
			return importFile(cmd.Context(), a, im)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&im.dryRun, "dry-run", false, "change nothing; report every invalid line and what would be imported")
	flags.BoolVar(&im.keepGoing, "keep-going", false, "skip invalid lines; the exit code is then 1")
	flags.StringVar(&im.actor, "actor", "", "name of the person who imports; recorded (your user name)")
	return c
}

func importFile(ctx context.Context, a *cli.App, im importFlags) error {
	from, err := cli.OpenFile(a, im.file)
	if err != nil {
		return err
	}
	defer from.Close()
	return a.WithClient(ctx, func(c *client.Client) error {
		run := &importRun{App: a, importFlags: im, client: c, start: time.Now()}
		err := run.run(ctx, from)
		if sum := run.summary(); err == nil {
			return errors.Join(showImport(a, &sum), run.status())
		}
		end := "repeat the command to continue"
		if im.dryRun {
			end = "nothing was changed"
		}
		a.Say("%s; %s", run.progress(), end)
		return err
	}, client.WithActor(cli.ActorName(im.actor)))
}

// importSummary is the result of an import.
type importSummary struct {
	Lines     int                    `json:"lines"`
	Imported  int                    `json:"imported"`
	Existing  int                    `json:"existing"`
	Differing []client.ImportTrouble `json:"differing"`
	Unread    int                    `json:"unread"` // invalid lines
	DryRun    bool                   `json:"dry_run,omitempty"`
	Seconds   float64                `json:"seconds"`
}

func showImport(a *cli.App, s *importSummary) error {
	var ids []string // of the flights that differ
	for i := range s.Differing {
		ids = append(ids, s.Differing[i].FlightID)
	}
	return a.Print(s, func(b *strings.Builder) {
		fmt.Fprintf(b, "%s in %.1f s: %d %s, %s, %s, %d invalid\n", cli.Pluralize(s.Lines, "line", "lines"), s.Seconds, s.Imported,
			importedWord(s.DryRun), cli.Pluralize(s.Existing, "existed already", "existed already"), cli.Pluralize(len(s.Differing), "differs", "differ"), s.Unread)
		for _, d := range s.Differing {
			fmt.Fprintf(b, "  line %d: %s: %s\n", d.Line, d.Key, d.Detail)
		}
	}, ids...)
}

// importedWord is the verb of the summary.
func importedWord(dryRun bool) string {
	if dryRun {
		return "would be imported"
	}
	return "imported"
}

// maxLine is enough for the largest input and the largest receipt in one line.
const maxLine = 1 << 20

// lineReader reads a file line by line.
type lineReader struct {
	in     *bufio.Reader
	number int // of the line that next returned last
}

// errLongLine is returned for a line of more than maxLine bytes.
var errLongLine = fmt.Errorf("longer than %d bytes", maxLine)

// next returns a line without its newline, valid until the next call. It returns io.EOF after the last line. After
// errLongLine, which skips the rest of the line, it may be called again.
func (r *lineReader) next() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if len(line) > 0 {
		r.number++
	}
	if r.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff")) // some editors begin a file with it
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, errLongLine
	case errors.Is(err, io.EOF) && len(line) > 0:
		err = nil
	}
	return bytes.TrimSpace(line), err
}

// importWorkers is the number of concurrent requests.
const importWorkers = 4

// importRun is a running import.
type importRun struct {
	*cli.App
	importFlags
	client *client.Client
	start  time.Time

	mu         sync.Mutex // guards all below
	sum        importSummary
	progressAt time.Time // of the last progress message
	firstErr   error     // the first error
}

// importBatch is the part of the file that is sent in one request.
type importBatch struct {
	lines   []byte
	numbers []int // of its lines in the file
}

// run imports the file, to its end or to the first error. It waits for its workers.
func (r *importRun) run(ctx context.Context, from io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches := make(chan *importBatch)
	var senders sync.WaitGroup
	for range importWorkers {
		senders.Go(func() {
			for b := range batches {
				if err := r.sendBatch(ctx, b); err != nil {
					r.setErr(err)
					cancel()
				}
			}
		})
	}
	r.setErr(r.read(ctx, from, batches))
	close(batches)
	senders.Wait()
	return r.firstErr
}

// setErr records the first error.
func (r *importRun) setErr(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstErr == nil {
		r.firstErr = err
	}
}

// read checks every line and sends batches. The valid lines before an invalid one are still sent. An invalid line ends
// the import; a dry run reports it and reads on, and --keep-going skips it.
func (r *importRun) read(ctx context.Context, from io.Reader, batches chan<- *importBatch) error {
	lines := &lineReader{in: bufio.NewReaderSize(from, maxLine)}
	b, now := new(importBatch), time.Now()
	flush := func() error {
		if len(b.numbers) == 0 {
			return nil
		}
		select {
		case batches <- b:
			b = new(importBatch)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		line, err := lines.next()
		if err != nil && !errors.Is(err, errLongLine) {
			if failed := flush(); failed != nil || !errors.Is(err, io.EOF) {
				return errors.Join(failed, err)
			}
			return r.invalidLines()
		}
		if err == nil && len(line) == 0 {
			continue
		}
		if err == nil {
			err = client.CheckImport(line, r.Namespace, now)
		}
		if err != nil {
			if !r.keepGoing && !r.dryRun {
				return errors.Join(flush(), &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("line %d: %w", lines.number, err),
					Hint: "correct it and repeat the command, or skip invalid lines with --keep-going"})
			}
			r.skipLine(lines.number, err)
			continue
		}
		if len(b.numbers) == client.MaxImportLines || len(b.lines)+len(line)+1 > client.MaxImportBody {
			if err := flush(); err != nil {
				return err
			}
		}
		b.lines = append(append(b.lines, line...), '\n')
		b.numbers = append(b.numbers, lines.number)
	}
}

// lineRange names the lines of a batch.
func (b *importBatch) lineRange() string {
	first, last := b.numbers[0], b.numbers[len(b.numbers)-1]
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d to %d", first, last)
}

// maxInvalidLines bounds how many invalid lines a dry run reports one by one.
const maxInvalidLines = 100

// skipLine reports and counts an invalid line.
func (r *importRun) skipLine(number int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Unread++
	r.sum.Lines++
	switch {
	case r.keepGoing:
		r.Say("line %d skipped: %v", number, err)
	case r.sum.Unread <= maxInvalidLines:
		r.Say("line %d: %v", number, err)
	}
}

// invalidLines returns the error of a dry run that has found invalid lines.
func (r *importRun) invalidLines() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.sum.Unread
	if n == 0 || r.keepGoing {
		return nil
	}
	if n > maxInvalidLines {
		r.Say("%s not shown", cli.Pluralize(n-maxInvalidLines, "more invalid line is", "more invalid lines are"))
	}
	return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s", cli.Pluralize(n, "line is invalid", "lines are invalid")),
		Hint: "correct them and repeat the command, or skip invalid lines with --keep-going"}
}

// sendBatch sends one batch to a server and adds up the answer.
func (r *importRun) sendBatch(ctx context.Context, b *importBatch) error {
	answer, err := r.client.Import(ctx, b.lines, r.dryRun)
	if err != nil {
		return fmt.Errorf("%s: %w", b.lineRange(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Lines += answer.Lines
	r.sum.Imported += answer.Imported
	r.sum.Existing += answer.Existing
	for _, d := range answer.Differing {
		if d.Line > 0 && d.Line <= len(b.numbers) {
			d.Line = b.numbers[d.Line-1]
		}
		r.sum.Differing = append(r.sum.Differing, d)
	}
	if now := time.Now(); now.Sub(r.progressAt) > time.Second {
		if !r.progressAt.IsZero() || now.Sub(r.start) > time.Second {
			r.Say("%s", r.progress())
		}
		r.progressAt = now
	}
	return nil
}

// progress describes the batches that were answered. The caller holds mu, or the run has ended.
func (r *importRun) progress() string {
	return fmt.Sprintf("%s, %d %s, %d existed already, %s", cli.Pluralize(r.sum.Lines, "line", "lines"), r.sum.Imported, importedWord(r.dryRun),
		r.sum.Existing, cli.Pluralize(len(r.sum.Differing), "differs", "differ"))
}

// summary returns the result of a run that has ended.
func (r *importRun) summary() importSummary {
	r.sum.DryRun, r.sum.Seconds = r.dryRun, time.Since(r.start).Seconds()
	if r.sum.Differing == nil {
		r.sum.Differing = []client.ImportTrouble{}
	}
	return r.sum
}

// status returns the exit code of an import that read the whole file.
func (r *importRun) status() error {
	if r.sum.Unread > 0 || len(r.sum.Differing) > 0 {
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}
