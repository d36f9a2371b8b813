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
	"github.com/flightd/flightd/internal/wire"
)

func (a *app) whyCommand() *cobra.Command {
	var full bool
	c := &cobra.Command{
		Use:     "why KEY-or-ID",
		Short:   "Tell the story of one flight in plain English",
		Example: "  flightd why charge/order-42\n  flightd why charge/order-42 --full\n  flightd why fl_abc… -o json",
		Args:    exactly(1, "a key or an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error { return a.tell(cmd.Context(), c, args[0], full) })
		},
	}
	c.Flags().BoolVar(&full, "full", false, "show the input, too, and the receipt")
	return c
}

// tell writes the story of a flight; full: with its input and its receipt.
func (a *app) tell(ctx context.Context, c *client.Client, word string, full bool) error {
	f, err := a.find(ctx, c, word)
	if was := new(freed); errors.As(err, &was) {
		f, err = was.flight(), nil
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
		w = a.readFull(ctx, c, f)
	}
	switch a.format {
	case "id":
		_, err := fmt.Fprintln(a.out, f.ID)
		return err
	case "table":
		if err := writeStory(a.out, f, story); err != nil || !full {
			return err
		}
		return w.write(a.out, a.servers[0])
	}
	return a.print(struct {
		Flight     fullFlight         `json:"flight"`
		Events     []client.Event     `json:"events"`
		Duplicates *client.Duplicates `json:"duplicates,omitempty"`
	}{w, story.Events, story.Duplicates})
}

func writeStory(w io.Writer, f *client.Flight, story *client.History) error {
	_, err := fmt.Fprintf(w, "%s  (%s)\n", keyOf(f), f.ID)
	generation := uint32(1)
	for _, e := range story.Events {
		if e.Generation > generation && err == nil {
			generation = e.Generation
			_, err = fmt.Fprintf(w, "-- generation %d --\n", generation)
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s  %s\n", moment(e.At.Time), oneLine(sentence(e)))
		}
	}
	for _, line := range duplicates(story.Duplicates) {
		if err == nil {
			_, err = fmt.Fprintln(w, "  "+line)
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "now: %s\n", present(f))
	}
	return err
}

// duplicates tells of the calls that were answered without another effect.
func duplicates(d *client.Duplicates) []string {
	if d == nil || d.Count == 0 {
		return nil
	}
	first, last := moment(d.FirstAt.Time), moment(d.LastAt.Time)
	if d.Count == 1 {
		return []string{fmt.Sprintf("1 duplicate was answered without another effect, at %s: %s", last, callers(d.Callers))}
	}
	return []string{
		fmt.Sprintf("%d duplicates were answered without another effect, the first at %s, the last at %s", d.Count, first, last),
		"the last callers: " + callers(d.Callers),
	}
}

// callers names who called, the last one first, and how often each did so in a row.
func callers(list []wire.Caller) string {
	var words []string
	for i := len(list) - 1; i >= 0; {
		who, n := list[i].Who, 0
		for ; i >= 0 && list[i].Who == who; i-- {
			n++
		}
		if n > 1 {
			who += fmt.Sprintf(" (%d times)", n)
		}
		words = append(words, orWord(who, "somebody"))
	}
	return oneLine(strings.Join(words, ", "))
}

// sentence says one event in plain English.
func sentence(e client.Event) string {
	switch e.Kind {
	case flight.EventSubmitted.String():
		return "somebody asked for it"
	case flight.EventOpened.String():
		return fmt.Sprintf("attempt %d was opened by %s: from here on the effect may happen", e.Attempt, orWord(e.Who, "somebody"))
	case flight.EventReported.String():
		return reported(e)
	case flight.EventAbandoned.String():
		return fmt.Sprintf("attempt %d was given up before anything was sent%s", e.Attempt, because(e.Note))
	case flight.EventLost.String():
		return fmt.Sprintf("attempt %d was taken for lost%s: it may have happened", e.Attempt, because(e.Note))
	case flight.EventFencedReport.String():
		return fmt.Sprintf("attempt %d reported %s, too late; it is kept as evidence%s", e.Attempt, orWord(e.Outcome, "something"), because(e.Note))
	case flight.EventOverlap.String():
		return fmt.Sprintf("OVERLAP: attempt %d speaks of another effect than the receipt%s", e.Attempt, because(e.Note))
	case flight.EventLooking.String():
		return "the provider is to be asked what happened"
	case flight.EventVerdict.String():
		return "the look-up says: " + orWord(e.Note, "nothing certain")
	case flight.EventInDoubt.String():
		return "it is in doubt and waits for a person" + because(e.Note)
	case flight.EventScheduled.String():
		return "it will be tried again"
	case flight.EventDuplicates.String():
		return suppressed(e)
	}
	return decision(e)
}

func suppressed(e client.Event) string {
	if e.Count == 1 {
		return fmt.Sprintf("%s asked for it again and was answered without another effect", orWord(e.Who, "somebody"))
	}
	return fmt.Sprintf("%d duplicates were answered without another effect, the last one of %s", e.Count, orWord(e.Who, "somebody"))
}

// decision says an event that a person, or the end of a flight, brought about.
func decision(e client.Event) string {
	who := orWord(e.Who, "somebody")
	switch e.Kind {
	case flight.EventResolved.String():
		result, why, _ := strings.Cut(e.Note, ": ")
		return fmt.Sprintf("%s settled it%s", who, because(inWords(result)+": "+why))
	case flight.EventCancelRequested.String():
		return fmt.Sprintf("%s asked to cancel it%s", who, because(e.Note))
	case flight.EventCancelled.String():
		return "it was cancelled" + because(e.Note)
	case flight.EventFailed.String():
		return "it ended without a receipt" + because(e.Note)
	case flight.EventApproved.String():
		return fmt.Sprintf("%s approved it%s", who, because(e.Note))
	case flight.EventRejected.String():
		return fmt.Sprintf("%s rejected it%s", who, because(e.Note))
	case flight.EventRetried.String():
		return fmt.Sprintf("%s let it run again%s", who, because(e.Note))
	case flight.EventFreed.String():
		return fmt.Sprintf("%s freed the key%s", who, because(e.Note))
	case flight.EventRedacted.String():
		return fmt.Sprintf("%s had its input and receipt erased%s", who, because(e.Note))
	case flight.EventImported.String():
		return fmt.Sprintf("%s imported its receipt: it had happened before flightd was asked%s", who, because(e.Note))
	case flight.EventExpired.String():
		return "its receipt's retention ended; a tombstone guards the key"
	}
	return e.Kind + because(e.Note)
}

func reported(e client.Event) string {
	switch e.Outcome {
	case flight.Succeeded.String():
		return fmt.Sprintf("attempt %d reported that it happened; the receipt is stored%s", e.Attempt, because(e.Note))
	case flight.Refused.String():
		return fmt.Sprintf("attempt %d was refused for good; the receipt says so%s", e.Attempt, because(e.Note))
	case flight.NotDone.String():
		return fmt.Sprintf("attempt %d reported that nothing was done%s", e.Attempt, because(e.Note))
	}
	return fmt.Sprintf("attempt %d could not tell whether it happened%s", e.Attempt, because(e.Note))
}

func because(note string) string {
	if note == "" {
		return ""
	}
	return " (" + oneLine(note) + ")"
}

// present says how a flight stands and what may be done about it.
func present(f *client.Flight) string {
	s := f.State
	switch f.State {
	case flight.StateSucceeded.String():
		s = "succeeded; everybody who asks gets the receipt, and nothing runs again"
		if f.Redacted != nil {
			s = "succeeded; everybody who asks is told so, without the body that was erased, and nothing runs again"
		}
	case flight.StateFailed.String(), flight.StateCancelled.String():
		s = f.State + because(f.Cause) + "; "
		if f.Receipt != nil {
			s += "everybody who asks gets that answer; another try is a new intent with an id of its own"
		} else if f.Redacted != nil {
			s += "its input is erased, so that another try is a new intent with an id of its own"
		} else {
			s += "flightd flights retry " + f.Key + " --reason WHY lets it run again"
		}
	case flight.InDoubt.String():
		s = "in doubt" + because(f.Cause) + "; look at what really happened, then:\n" +
			"     flightd doubt resolve " + f.Key + " --reason WHY --happened --receipt @FILE | --did-not-happen | --fail"
	case flight.Running.String():
		s = "running"
		if f.Looking {
			s = "waiting for a look at the provider"
		} else if f.LastAttempt != nil {
			s += " by " + oneLine(f.LastAttempt.Owner)
		}
	case flight.Absent.String():
		s = "free; the next call with it acts"
	case flight.Queued.String():
		s = "nobody is at it; the next caller runs it"
	case flight.Absent.String():
		s = "free; the next call with it acts"
	case flight.Expired.String():
		s = "over; its receipt is no longer kept, and the effect is not run again"
	}
	if m := f.CancelRequested; m != nil && !isOver(f.State) {
		s += "\n     " + oneLine(orWord(m.Who, "somebody")) + " asked to cancel it" + because(m.Why)
		if f.State == flight.Running.String() && !f.Looking {
			s += "; whoever runs it learns that by its next renewal, and what it reports decides"
		}
	}
	if !f.HeldUntil.IsZero() {
		s += "\n     " + held(f)
	}
	if f.Overlap {
		s += "\n     there is evidence of a second effect: see the evidence in flightd flights get " + f.ID + " -o json"
	}
	return s
}

// held says why nobody takes over a flight whose holder may be long dead.
func held(f *client.Flight) string {
	return "etcd lost the claim on it, and the lease epoch was raised: nobody takes it over before " + moment(f.HeldUntil.Time) + "; its own report counts at any time"
}
