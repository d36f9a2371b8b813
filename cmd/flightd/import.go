package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
