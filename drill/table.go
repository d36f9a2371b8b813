package drill

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

// Result says in one word whether the run kept the promises.
func (r Row) Verdict() string {
	switch {
	case r.Trouble != "":
		return "NOT COMPLETED"
	case len(r.Broken) > 0:
		return "BROKEN"
	}
	return "kept"
}

// WriteTable writes the rows as a table, then the broken promises, then the summary.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SCENARIO\tRECOVERY\tSAME KEY\tTICKETS\tRECEIPTS\tHISTORY\tSTATE\tTOOK\tRESULT") // Flush returns the error
	for _, row := range r.Rows {
		_, _ = fmt.Fprintln(t, strings.Join(row.cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range r.Rows {
		for _, b := range row.Broken {
			if _, err := fmt.Fprintf(w, "%s, %s: %s\n", row.Mishap, row.Recovery, b); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintln(w, r.Summary())
	return err
}

func (r Row) cells() []string {
	same := "yes"
	switch {
	case len(r.Requests) == 0:
		same = "-"
	case !r.KeySame:
		same = "NO"
	}
	receipts, state, history := strconv.Itoa(len(r.Receipts)), r.State, story(r.History)
	if r.Recovery == NoRecovery {
		same, receipts, state, history = "-", "-", "-", "-"
	}
	took := (time.Duration(r.TookMS) * time.Millisecond).Round(100 * time.Millisecond)
	return []string{r.Mishap, r.Recovery, same, strconv.Itoa(len(r.Tickets)), receipts, history, state, took.String(), r.Verdict()}
}

// Summary returns the last line of the table.
func (r Report) Summary() string {
	took := r.Took.Round(100 * time.Millisecond)
	if r.Broken == 0 {
		return fmt.Sprintf("%d runs in %s: every promise was kept", len(r.Rows), took)
	}
	s := fmt.Sprintf("%d runs in %s: a promise was broken in %d", len(r.Rows), took, r.Broken)
	if r.Dir != "" {
		s += "; logs and data are in " + r.Dir
	}
	return s
}

// summarizeHistory returns the history in a few words.
func story(events []client.Event) string {
	var words []string
	for _, e := range events {
		switch e.Kind {
		case flight.EventLost.String():
			words = append(words, fmt.Sprintf("#%d lost", e.Attempt))
		case flight.EventAbandoned.String():
			words = append(words, fmt.Sprintf("#%d abandoned", e.Attempt))
		case flight.EventReported.String():
			words = append(words, fmt.Sprintf("#%d %s", e.Attempt, e.Outcome))
		case flight.EventFencedReport.String():
			words = append(words, fmt.Sprintf("#%d fenced", e.Attempt))
		case flight.EventVerdict.String():
			words = append(words, "look-up: "+orUnknown(e.Note))
		case flight.EventResolved.String():
			said, _, _ := strings.Cut(e.Note, ":")
			words = append(words, "person: "+orUnknown(said))
		case flight.EventInDoubt.String():
			words = append(words, "in doubt")
		case flight.EventOverlap.String():
			words = append(words, "OVERLAP")
		}
	}
	return strings.Join(words, ", ")
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return strings.ReplaceAll(s, "_", " ")
}
