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
func (r Row) Result() string {
	switch {
	case r.Error != "":
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
			if _, err := fmt.Fprintf(w, "%s, %s: %s\n", row.Scenario, row.Recovery, b); err != nil {
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
	receipts, state, history := strconv.Itoa(len(r.Receipts)), r.State, summarizeHistory(r.History)
	if r.Recovery == NoRecovery {
		same, receipts, state, history = "-", "-", "-", "-"
	}
	took := (time.Duration(r.TookMS) * time.Millisecond).Round(100 * time.Millisecond)
	return []string{r.Scenario, r.Recovery, same, strconv.Itoa(len(r.Tickets)), receipts, history, state, took.String(), r.Result()}
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
func summarizeHistory(events []client.Event) string {
	var parts []string
	for _, e := range events {
		switch e.Kind {
		case flight.EventLost.String():
			parts = append(parts, fmt.Sprintf("#%d lost", e.Attempt))
		case flight.EventAbandoned.String():
			parts = append(parts, fmt.Sprintf("#%d abandoned", e.Attempt))
		case flight.EventReported.String():
			parts = append(parts, fmt.Sprintf("#%d %s", e.Attempt, e.Outcome))
		case flight.EventReportFenced.String():
			parts = append(parts, fmt.Sprintf("#%d fenced", e.Attempt))
		case flight.EventVerificationReported.String():
			parts = append(parts, "look-up: "+orUnknown(e.Note))
		case flight.EventResolved.String():
			finding, _, _ := strings.Cut(e.Note, ":")
			parts = append(parts, "person: "+orUnknown(finding))
		case flight.EventInDoubt.String():
			parts = append(parts, "in doubt")
		case flight.EventOverlap.String():
			parts = append(parts, "OVERLAP")
		}
	}
	return strings.Join(parts, ", ")
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return strings.ReplaceAll(s, "_", " ")
}
