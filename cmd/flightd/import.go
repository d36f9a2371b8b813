package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
)

// importing is what the command line says of an import.
type importing struct {
	file      string
	dryRun    bool
	keepGoing bool
	as        string
}

func (a *app) importCommand() *cobra.Command {
	var im importing
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Bring receipts from before, so that the first day does not redo last month",
		Long: `Reads one receipt a line, as JSON, and stores it under its key: whoever asks for that key gets it, and the effect
does not run again. A key that is known is left alone. It may be interrupted and repeated: what is in is in.

  key           the full key: namespace/name/id; required
  outcome       succeeded or refused; required
  external_id, body or body_base64 with content_type
                what the effect left behind
  input, or fingerprint ("sha256:…")
                what was asked for; without them the key alone decides
  finished_at   when it happened, as in 2026-11-20T14:03:00Z; empty: now. The retention counts from it: what is past
                that guards its key, and its receipt is soon dropped
  created_at    when it was asked for
  retention     as in 30d; empty: the default

FILE may be - for standard input.`,
		Example: `  flightd import receipts.ndjson --dry-run     # reads everything, changes nothing
  flightd import receipts.ndjson
  psql -Atc "select json_build_object('key', 'default/charge/' || id, 'outcome', 'succeeded', 'external_id', charge_id,
    'finished_at', paid_at at time zone 'utc' || 'Z') from orders where paid_at > now() - interval '30 days'" | flightd import -`,
		Args: exactly(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			im.file = args[0]
			return a.importFile(cmd.Context(), im)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&im.dryRun, "dry-run", false, "change nothing; say what would happen")
	flags.BoolVar(&im.keepGoing, "keep-going", false, "pass over lines that cannot be read; the exit code is 1 then")
	flags.StringVar(&im.as, "as", "", "who imports; it is recorded (your user name)")
	return c
}

func (a *app) importFile(ctx context.Context, im importing) error {
	var from io.Reader = a.in
	if im.file != "-" {
		file, err := os.Open(im.file)
		if err != nil {
			return &coded{code: exitUsage, err: err}
		}
		defer file.Close()
		from = file
	}
	return a.withClient(ctx, func(c *client.Client) error {
		run := &importRun{app: a, importing: im, client: c, start: time.Now()}
		err := run.all(ctx, from)
		if sum := run.summary(); err == nil {
			return errors.Join(a.showImport(&sum), run.verdict())
		}
		end := "what is in is in, and the same command goes on from there"
		if im.dryRun {
			end = "nothing was changed"
		}
		a.say("%s; %s", run.progress(), end)
		return err
	}, client.WithActor(person(im.as)))
}

// importSummary is what an import comes to.
type importSummary struct {
	Lines     int                    `json:"lines"`
	Imported  int                    `json:"imported"`
	Existing  int                    `json:"existing"`
	Differing []client.ImportTrouble `json:"differing"`
	Unread    int                    `json:"unread"` // lines that could not be read
	DryRun    bool                   `json:"dry_run,omitempty"`
	Seconds   float64                `json:"seconds"`
}

func (a *app) showImport(s *importSummary) error {
	switch a.format {
	case "id": // of those that are worth a look
		for i := range s.Differing {
			if _, err := fmt.Fprintln(a.out, s.Differing[i].FlightID); err != nil {
				return err
			}
		}
		return nil
	case "json", "yaml":
		return a.print(s)
	}
	_, err := fmt.Fprintf(a.out, "%s in %.1f s: %d %s, %s, %s, %d could not be read\n", counted(s.Lines, "line", "lines"), s.Seconds, s.Imported,
		imported(s.DryRun), counted(s.Existing, "was there already", "were there already"), counted(len(s.Differing), "differs", "differ"), s.Unread)
	for i := 0; i < len(s.Differing) && err == nil; i++ {
		d := &s.Differing[i]
		_, err = fmt.Fprintf(a.out, "  line %d: %s: %s\n", d.Line, d.Key, d.Detail)
	}
	return err
}

// imported is the word for what became, or would become, of a line.
func imported(dryRun bool) string {
	if dryRun {
		return "would be imported"
	}
	return "imported"
}

// longestLine is that of a line with the greatest input and receipt, and some room.
const longestLine = 1 << 20

// lineReader gives the lines of a file with their numbers.
type lineReader struct {
	in     *bufio.Reader
	number int
}

// next gives a line without its end, which is valid until the next call; io.EOF behind the last one.
func (r *lineReader) next() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if len(line) > 0 {
		r.number++
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, usage("line %d is longer than %d bytes", r.number, longestLine)
	case errors.Is(err, io.EOF) && len(line) > 0:
		err = nil
	}
	return bytes.TrimSpace(line), err
}
