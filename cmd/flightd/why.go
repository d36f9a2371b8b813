package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func (a *app) whyCommand() *cobra.Command {
	var full bool
	c := &cobra.Command{
		Use:     "why KEY-or-ID",
		Short:   "Print the history of one flight in plain English",
		Example: "  flightd why charge/order-42\n  flightd why charge/order-42 --full\n  flightd why fl_abc… -o json",
		Args:    exactArgs(1, "a key or an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error { return a.writeWhy(cmd.Context(), c, args[0], full) })
		},
	}
	c.Flags().BoolVar(&full, "full", false, "print the input and the receipt, too")
	return c
}

// writeWhy prints the history of a flight; full adds its input and its receipt.
func (a *app) writeWhy(ctx context.Context, c *client.Client, word string, full bool) error {
	f, err := a.findFlight(ctx, c, word, false)
	if freedErr := new(freedError); errors.As(err, &freedErr) {
		f, err = freedErr.flight(), nil
	}
	if err != nil {
		return err
	}
	id, err := flight.ParseID(f.ID)
	if err != nil {
		return err
	}
	story, err := c.History(ctx, id)
	if err != nil {
		return err
	}
	w := fullFlight{Flight: f}
	if full {
		w = a.readFullFlight(ctx, c, f)
	}
	switch a.format {
	case "id":
		_, err := fmt.Fprintln(a.out, f.ID)
		return err
	case "table":
		if err := writeHistory(a.out, f, story); err != nil || !full {
			return err
		}
		return w.write(a.out, hideUser(a.servers[0]))
	}
	return a.printData(struct {
		Flight     fullFlight         `json:"flight"`
		Events     []client.Event     `json:"events"`
		Duplicates *client.Duplicates `json:"duplicates,omitempty"`
	}{w, story.Events, story.Duplicates})
}

// writeHistory prints the events, the duplicates and the state of a flight.
func writeHistory(w io.Writer, f *client.Flight, story *client.History) error {
	_, err := fmt.Fprintf(w, "%s  (%s)\n", displayKey(f), f.ID)
	generation := uint32(1)
	for _, e := range story.Events {
		if e.Generation > generation && err == nil {
			generation = e.Generation
			_, err = fmt.Fprintf(w, "-- generation %d --\n", generation)
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s  %s\n", formatTime(e.At.Time), oneLine(eventText(e)))
		}
	}
	for _, line := range duplicateLines(story.Duplicates) {
		if err == nil {
			_, err = fmt.Fprintln(w, "  "+line)
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "now: %s\n", stateText(f))
	}
	return err
}

// duplicateLines describes the duplicate calls, which were answered without another effect.
func duplicateLines(d *client.Duplicates) []string {
	if d == nil || d.Count == 0 {
		return nil
	}
	first, last := formatTime(d.FirstAt.Time), formatTime(d.LastAt.Time)
	if d.Count == 1 {
		return []string{fmt.Sprintf("1 duplicate call was answered without another effect, at %s: %s", last, callersText(d.Callers))}
	}
	return []string{
		fmt.Sprintf("%d duplicate calls were answered without another effect, the first at %s, the last at %s", d.Count, first, last),
		"the last callers: " + callersText(d.Callers),
	}
}

// callersText lists the callers, the last one first, and counts equal neighbours.
func callersText(list []wire.Caller) string {
	var words []string
	for i := len(list) - 1; i >= 0; {
		who, n := list[i].Actor, 0
		for ; i >= 0 && list[i].Actor == who; i-- {
			n++
		}
		if n > 1 {
			who += fmt.Sprintf(" (%d times)", n)
		}
		words = append(words, orDefault(who, "an unnamed caller"))
	}
	return oneLine(strings.Join(words, ", "))
}

// eventText describes one event.
func eventText(e client.Event) string {
	switch e.Kind {
	case flight.EventSubmitted.String():
		return "the flight was submitted"
	case flight.EventOpened.String():
		return fmt.Sprintf("attempt %d was opened by %s: the effect may happen from now on", e.Attempt, orDefault(e.Actor, "an unnamed caller"))
	case flight.EventReported.String():
		return reportedText(e)
	case flight.EventAbandoned.String():
		return fmt.Sprintf("attempt %d was abandoned before anything was sent%s", e.Attempt, noteSuffix(e.Note))
	case flight.EventLost.String():
		return fmt.Sprintf("attempt %d was declared lost%s: the effect may have happened", e.Attempt, noteSuffix(e.Note))
	case flight.EventReportFenced.String():
		return fmt.Sprintf("attempt %d reported %s after it was superseded; the report is stored as evidence%s", e.Attempt, orDefault(e.Outcome, "an outcome"), noteSuffix(e.Note))
	case flight.EventOverlap.String():
		return fmt.Sprintf("OVERLAP: attempt %d reports another effect than the receipt%s", e.Attempt, noteSuffix(e.Note))
	case flight.EventVerifying.String():
		return "the provider will be asked whether the effect happened"
	case flight.EventVerificationReported.String():
		return "the look-up found: " + orDefault(e.Note, "nothing certain")
	case flight.EventInDoubt.String():
		return "the flight is in doubt and waits for a person" + noteSuffix(e.Note)
	case flight.EventScheduled.String():
		return "another attempt is scheduled"
	case flight.EventDuplicates.String():
		return duplicatesText(e)
	}
	return decisionText(e)
}

// duplicatesText describes an event about duplicate calls.
func duplicatesText(e client.Event) string {
	if e.Count == 1 {
		return fmt.Sprintf("a duplicate call of %s was answered without another effect", orDefault(e.Actor, "an unnamed caller"))
	}
	return fmt.Sprintf("%d duplicate calls were answered without another effect, the last one of %s", e.Count, orDefault(e.Actor, "an unnamed caller"))
}

// decisionText describes an event caused by a person or by the end of a flight.
func decisionText(e client.Event) string {
	who := orDefault(e.Actor, "an unnamed person")
	switch e.Kind {
	case flight.EventResolved.String():
		result, why, _ := strings.Cut(e.Note, ": ")
		return fmt.Sprintf("%s resolved it%s", who, noteSuffix(resultText(result)+": "+why))
	case flight.EventCancelRequested.String():
		return fmt.Sprintf("%s requested its cancellation%s", who, noteSuffix(e.Note))
	case flight.EventCancelled.String():
		return "the flight was cancelled" + noteSuffix(e.Note)
	case flight.EventFailed.String():
		return "the flight ended without a receipt" + noteSuffix(e.Note)
	case flight.EventApproved.String():
		return fmt.Sprintf("%s approved it%s", who, noteSuffix(e.Note))
	case flight.EventRejected.String():
		return fmt.Sprintf("%s rejected it%s", who, noteSuffix(e.Note))
	case flight.EventRetried.String():
		return fmt.Sprintf("%s let it run again%s", who, noteSuffix(e.Note))
	case flight.EventFreed.String():
		return fmt.Sprintf("%s freed the key%s", who, noteSuffix(e.Note))
	case flight.EventRedacted.String():
		return fmt.Sprintf("%s erased its input and receipt%s", who, noteSuffix(e.Note))
	case flight.EventImported.String():
		return fmt.Sprintf("%s imported its receipt: the effect had happened before the import%s", who, noteSuffix(e.Note))
	case flight.EventExpired.String():
		return "the retention of its receipt ended; a tombstone guards the key"
	}
	return e.Kind + noteSuffix(e.Note)
}

// reportedText describes the report of an attempt.
func reportedText(e client.Event) string {
	switch e.Outcome {
	case flight.OutcomeSucceeded.String():
		return fmt.Sprintf("attempt %d reported success; the receipt is stored%s", e.Attempt, noteSuffix(e.Note))
	case flight.OutcomeRefused.String():
		return fmt.Sprintf("attempt %d was finally refused; the receipt is stored%s", e.Attempt, noteSuffix(e.Note))
	case flight.OutcomeNotDone.String():
		return fmt.Sprintf("attempt %d reported that nothing was done%s", e.Attempt, noteSuffix(e.Note))
	}
	return fmt.Sprintf("attempt %d reported an unknown outcome%s", e.Attempt, noteSuffix(e.Note))
}

// noteSuffix returns a note in parentheses; "": no note.
func noteSuffix(note string) string {
	if note == "" {
		return ""
	}
	return " (" + oneLine(note) + ")"
}

// stateText describes the state of a flight and the commands that apply to it.
func stateText(f *client.Flight) string {
	s := f.State
	switch f.State {
	case flight.StateSucceeded.String():
		s = "succeeded; every later call gets the receipt, and nothing is run again"
		if f.Redacted != nil {
			s = "succeeded; every later call gets the receipt without its erased body, and nothing is run again"
		}
	case flight.StateFailed.String(), flight.StateCancelled.String():
		s = f.State + noteSuffix(f.Cause) + "; "
		if f.Receipt != nil {
			s += "every later call gets this answer; use a new id for another try"
		} else if f.Redacted != nil {
			s += "its input is erased; use a new id for another try"
		} else {
			s += "run flightd flights retry " + f.Key + " --reason WHY to let it run again"
		}
	case flight.StateInDoubt.String():
		s = "in doubt" + noteSuffix(f.Cause) + "; check whether the effect happened, then run:\n" +
			"     flightd doubt resolve " + f.Key + " --reason WHY --happened --receipt @FILE | --did-not-happen | --fail"
	case flight.StateRunning.String():
		s = "running"
		if f.Verifying {
			s = "verifying: the provider is being asked whether the effect happened"
		} else if f.LastAttempt != nil {
			s += " by " + oneLine(f.LastAttempt.Owner)
		}
	case flight.StateReady.String():
		s = "ready; no attempt is open, and the next caller runs it"
	case flight.StateAbsent.String():
		s = "free; the next call with this key acts"
	case flight.StateExpired.String():
		s = "expired; its receipt is no longer stored, and the effect is not run again"
	}
	if m := f.CancelRequested; m != nil && !isTerminalState(f.State) {
		s += "\n     " + oneLine(orDefault(m.Actor, "an unnamed person")) + " requested its cancellation" + noteSuffix(m.Reason)
		if f.State == flight.StateRunning.String() && !f.Verifying {
			s += "; the running attempt learns it at its next renewal, and its report decides"
		}
	}
	if !f.HeldUntil.IsZero() {
		s += "\n     " + heldText(f)
	}
	if f.Overlap {
		s += "\n     OVERLAP: the evidence names a second effect; see flightd flights get " + f.ID + " -o json"
	}
	return s
}

// heldText explains why no caller takes over a flight although its holder may be dead.
func heldText(f *client.Flight) string {
	return "etcd lost its claim, and the lease epoch was raised: no other caller takes it over before " + formatTime(f.HeldUntil.Time) + "; a report of its own attempt is accepted at any time"
}
