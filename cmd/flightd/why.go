package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newWhyCommand(a *cli.App) *cobra.Command {
	var full bool
	c := &cobra.Command{
		Use:     "why KEY-or-ID",
		Short:   "Print the history of one flight in plain English",
		Example: "  flightd why charge/order-42\n  flightd why charge/order-42 --full\n  flightd why fl_abc… -o json",
		RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			return writeWhy(ctx, a, c, args[0], full)
		}),
	}
	c.Flags().BoolVar(&full, "full", false, "print the input and the receipt, too")
	return c
}

// writeWhy prints the history of a flight; full adds its input and its receipt.
func writeWhy(ctx context.Context, a *cli.App, c *client.Client, word string, full bool) error {
	f, id, err := a.FindFlight(ctx, c, word, false)
	if freedErr := new(cli.FreedError); errors.As(err, &freedErr) {
		f, err = freedErr.Flight(), nil
	}
	if err != nil {
		return err
	}
	story, err := c.History(ctx, id)
	if err != nil {
		return err
	}
	w := fullFlight{Flight: f}
	if full {
		w = readFullFlight(ctx, a, c, f)
	}
	data := struct {
		Flight     fullFlight         `json:"flight"`
		Events     []client.Event     `json:"events"`
		Duplicates *client.Duplicates `json:"duplicates,omitempty"`
	}{w, story.Events, story.Duplicates}
	return a.Print(data, func(b *strings.Builder) {
		writeHistory(b, f, story)
		if full {
			w.write(b, cli.HideUser(a.Servers[0]))
		}
	}, f.ID)
}

// writeHistory writes the events, the duplicates and the state of a flight.
func writeHistory(b *strings.Builder, f *client.Flight, story *client.History) {
	fmt.Fprintf(b, "%s  (%s)\n", displayKey(f), f.ID)
	generation := uint32(1)
	for _, e := range story.Events {
		if e.Generation > generation {
			generation = e.Generation
			fmt.Fprintf(b, "-- generation %d --\n", generation)
		}
		fmt.Fprintf(b, "  %s  %s\n", cli.FormatTime(e.At.Time), cli.OneLine(eventText(e)))
	}
	for _, line := range duplicateLines(story.Duplicates) {
		fmt.Fprintln(b, "  "+line)
	}
	fmt.Fprintf(b, "now: %s\n", stateText(f))
}

// duplicateLines describes the duplicate calls, which were answered without another effect.
func duplicateLines(d *client.Duplicates) []string {
	if d == nil || d.Count == 0 {
		return nil
	}
	first, last := cli.FormatTime(d.FirstAt.Time), cli.FormatTime(d.LastAt.Time)
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
		actor, n := list[i].Actor, 0
		for ; i >= 0 && list[i].Actor == actor; i-- {
			n++
		}
		if n > 1 {
			actor += fmt.Sprintf(" (%d times)", n)
		}
		words = append(words, cmp.Or(actor, "an unnamed caller"))
	}
	return cli.OneLine(strings.Join(words, ", "))
}

// eventTexts describe events by their kind, and reports by their outcome, too. CALLER and PERSON are the actor, NOTE is the note in
// parentheses.
var eventTexts = map[string]string{
	flight.EventSubmitted.String():            "the flight was submittedBYNOTE",
	flight.EventOpened.String():               "attempt ATTEMPT was opened by CALLER: the effect may happen from now on",
	flight.EventReported.String():             "attempt ATTEMPT reported an unknown outcomeNOTE",
	reportOf(flight.OutcomeSucceeded):         "attempt ATTEMPT reported success; the receipt is storedNOTE",
	reportOf(flight.OutcomeRefused):           "attempt ATTEMPT was finally refused; the receipt is storedNOTE",
	reportOf(flight.OutcomeNotDone):           "attempt ATTEMPT reported that nothing was doneNOTE",
	flight.EventAbandoned.String():            "attempt ATTEMPT was abandoned before anything was sentNOTE",
	flight.EventLost.String():                 "attempt ATTEMPT was declared lostNOTE: the effect may have happened",
	flight.EventReportFenced.String():         "attempt ATTEMPT reported OUTCOME after it was superseded; the report is stored as evidenceNOTE",
	flight.EventOverlap.String():              "OVERLAP: attempt ATTEMPT reports another effect than the receiptNOTE",
	flight.EventVerifying.String():            "the provider will be asked whether the effect happened",
	flight.EventVerificationReported.String(): "the look-up found: FINDING",
	flight.EventInDoubt.String():              "the flight is in doubt and waits for a personNOTE",
	flight.EventScheduled.String():            "another attempt is scheduled",
	flight.EventDuplicates.String():           "COUNT duplicate calls were answered without another effect, the last one of CALLER",
	flight.EventResolved.String():             "PERSON resolved itDECISION",
	flight.EventCancelRequested.String():      "PERSON requested its cancellationNOTE",
	flight.EventCancelled.String():            "the flight was cancelledNOTE",
	flight.EventFailed.String():               "the flight ended without a receiptNOTE",
	flight.EventApproved.String():             "PERSON approved itNOTE",
	flight.EventRejected.String():             "PERSON rejected itNOTE",
	flight.EventRetried.String():              "PERSON let it run againNOTE",
	flight.EventFreed.String():                "PERSON freed the keyNOTE",
	flight.EventRedacted.String():             "PERSON erased its input and receiptNOTE",
	flight.EventImported.String():             "PERSON imported its receipt: the effect had happened before the importNOTE",
	flight.EventUndoBegun.String():            "the saga undoes what has happenedNOTE",
	flight.EventPivotPassed.String():          "the pivot of the saga has succeeded: it is only completed from here on",
	flight.EventExpired.String():              "the retention of its receipt ended; a tombstone guards the key",
}

// reportOf is the entry of eventTexts for the report of an outcome.
func reportOf(o flight.Outcome) string { return flight.EventReported.String() + " " + o.String() }

// eventText describes one event.
func eventText(e client.Event) string {
	text := cmp.Or(eventTexts[e.Kind+" "+e.Outcome], eventTexts[e.Kind], e.Kind+"NOTE")
	if e.Kind == flight.EventDuplicates.String() && e.Count == 1 {
		text = "a duplicate call of CALLER was answered without another effect"
	}
	by, person := "", e.Actor
	if person == wire.UnknownActor {
		person = ""
	}
	if e.Actor != "" {
		by = " by " + e.Actor
	}
	if e.Kind == flight.EventRejected.String() && e.Actor == "" { // by its deadline
		text = "its approval expired: nobody decided in time"
	}
	result, why, _ := strings.Cut(e.Note, ": ")
	return strings.NewReplacer("ATTEMPT", fmt.Sprint(e.Attempt), "CALLER", cmp.Or(e.Actor, "an unnamed caller"), "PERSON", cmp.Or(person, "an unnamed person"),
		"BY", by, "OUTCOME", cmp.Or(e.Outcome, "an outcome"), "FINDING", cmp.Or(e.Note, "nothing certain"), "COUNT", fmt.Sprint(e.Count),
		"DECISION", noteSuffix(resultText(result)+": "+why), "NOTE", noteSuffix(e.Note)).Replace(text)
}

// noteSuffix returns a note in parentheses, or "" without a note.
func noteSuffix(note string) string {
	if note == "" {
		return ""
	}
	return " (" + cli.OneLine(note) + ")"
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
		if strings.Contains(f.Key, "#") {
			s += "its saga decides what follows: flightd sagas get " + sagaOfStep(f.Key)
		} else if f.Receipt != nil {
			s += "every later call gets this answer; use a new id for another try"
		} else if f.Redacted != nil {
			s += "its input is erased; use a new id for another try"
		} else {
			s += "run flightd flights retry " + f.Key + " --reason WHY to let it run again"
		}
	case flight.StateInDoubt.String():
		s = "in doubt" + noteSuffix(f.Cause) + "; check whether the effect happened, then run:\n" +
			"     " + resolveText(f)
	case flight.StateRunning.String():
		s = "running"
		if f.Verifying {
			s = "verifying: the provider is being asked whether the effect happened"
		} else if f.LastAttempt != nil {
			s += " by " + cli.OneLine(f.LastAttempt.Owner)
		}
	case flight.StateAwaitingApproval.String():
		s = approvalText(f)
	case flight.StateReady.String():
		s = "ready; no attempt is open, and the next caller runs it"
		if len(f.BlockedBy) > 0 {
			s = "ready"
		}
	case flight.StateAbsent.String():
		s = "free; the next call with this key acts"
	case flight.StateExpired.String():
		s = "expired; its receipt is no longer stored, and the effect is not run again"
	}
	for _, block := range f.BlockedBy {
		if block.Reason != wire.BlockedByDoubt && block.Reason != wire.BlockedByCallback { // said above and below
			s += "\n     blocked: " + cli.OneLine(block.Detail)
		}
	}
	if m := f.CancelRequested; m != nil && !isTerminalState(f.State) {
		s += "\n     " + cli.OneLine(cmp.Or(m.Actor, "an unnamed person")) + " requested its cancellation" + noteSuffix(m.Reason)
		if f.State == flight.StateRunning.String() && !f.Verifying {
			s += "; the running attempt learns it at its next renewal, and its report decides"
		}
	}
	if !f.CallbackUntil.IsZero() {
		s += "\n     " + callbackText(f)
	}
	if !f.HeldUntil.IsZero() {
		s += "\n     " + heldText(f)
	}
	if f.Overlap {
		s += "\n     OVERLAP: the evidence names a second effect; see flightd flights get " + f.ID + " -o json"
	}
	return s
}

// sagaOfStep returns the key of the saga that a step belongs to.
func sagaOfStep(key string) string {
	saga, _, _ := strings.Cut(key, "#")
	return saga
}

// callbackText explains what an attempt waits for whose caller has left.
func callbackText(f *client.Flight) string {
	return "its effect was started, and it waits for the callback of its provider until " + cli.FormatTime(f.CallbackUntil.Time) + "; then its outcome is unknown, and its recovery decides"
}

// heldText explains why no caller takes over a flight although its holder may be dead.
func heldText(f *client.Flight) string {
	return "etcd lost its claim, and the lease epoch was raised: no other caller takes it over before " + cli.FormatTime(f.HeldUntil.Time) + "; a report of its own attempt is accepted at any time"
}

// fullFlight is a flight with its input, in the fields of an open answer. The receipt is part of the flight.
type fullFlight struct {
	*client.Flight
	Input       json.RawMessage `json:"input,omitempty"`
	InputBase64 []byte          `json:"input_base64,omitempty"`
	InputType   string          `json:"input_content_type,omitempty"`

	input *client.InputBody // nil: no input to show
}

// readFullFlight reads the input of a flight. If that fails, it prints a message and returns the flight alone.
func readFullFlight(ctx context.Context, a *cli.App, c *client.Client, f *client.Flight) fullFlight {
	w := fullFlight{Flight: f}
	id, err := flight.ParseID(f.ID)
	if err != nil || a.Format == "id" || f.State == flight.StateAbsent.String() || f.State == flight.StateExpired.String() || f.Redacted != nil {
		return w
	}
	w.input, err = c.Input(ctx, id)
	if err != nil {
		if !errors.As(err, new(*effect.Missing)) && client.CodeOf(err) != wire.Expired {
			a.Say("read the input: %v", err)
		}
		return w
	}
	w.InputType = w.input.ContentType
	if json.Valid(w.input.Data) {
		w.Input = w.input.Data
	} else {
		w.InputBase64 = w.input.Data
	}
	return w
}

// write prints the input and the receipt's body as text.
func (f *fullFlight) write(b *strings.Builder, server string) {
	path := server + "/v1/flights/" + f.ID
	if in := f.input; in != nil {
		writeContent(b, "input", path+"/input", in.ContentType, in.Digest, in.Data, len(in.Data))
	}
	if r := f.Receipt; r != nil && r.Body != nil {
		writeContent(b, "receipt", path+"/receipt", r.ContentType, r.Digest, r.Body, r.Size)
	} else if r != nil && r.BodyBase64 != nil {
		writeContent(b, "receipt", path+"/receipt", r.ContentType, r.Digest, r.BodyBase64, r.Size)
	}
}

// maxContentShown bounds the bytes of an input or a receipt that are printed.
const maxContentShown = 4 << 10

// writeContent prints text with every line indented, so that no line looks like one of this program. For bytes that are
// not text, and for the rest of a long text, it prints the command that fetches them.
func writeContent(b *strings.Builder, name, url, contentType, digest string, data []byte, size int) {
	shown, isText := textOf(data, size > len(data))
	fmt.Fprintf(b, "%s: %s of %s, %s\n", name, cli.Pluralize(size, "byte", "bytes"), cli.OneLine(cmp.Or(contentType, "unknown type")), digest)
	if isText {
		for line := range strings.Lines(shown) {
			fmt.Fprintln(b, "  "+cli.Printable(strings.TrimRight(line, "\r\n")))
		}
	}
	var more []string
	switch {
	case !isText:
		more = append(more, "it is not text")
	case len(shown) < len(data):
		more = append(more, fmt.Sprintf("the first %d bytes are shown", len(shown)))
	}
	if size > len(data) {
		more = append(more, fmt.Sprintf("only the first %d bytes are stored", len(data)))
	}
	if len(shown) < len(data) || !isText {
		more = append(more, "to fetch it: curl -s -o FILE "+url)
	}
	if len(more) > 0 {
		fmt.Fprintf(b, "  (%s)\n", strings.Join(more, "; "))
	}
}

// textOf returns the first maxContentShown bytes as text. cut reports that the data may end inside a character.
func textOf(data []byte, cut bool) (shown string, isText bool) {
	text := data
	if len(text) > maxContentShown {
		text, cut = text[:maxContentShown], true
	}
	for n := 1; cut && n < utf8.UTFMax && n <= len(text); n++ { // drop a character that was cut in two
		if last := text[len(text)-n]; utf8.RuneStart(last) {
			if !utf8.FullRune(text[len(text)-n:]) {
				text = text[:len(text)-n]
			}
			break
		}
	}
	return string(text), utf8.Valid(text) && !bytes.ContainsFunc(text, func(r rune) bool { return r == 0 })
}
