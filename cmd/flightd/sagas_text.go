package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

// writeSaga writes a saga as a waterfall: a row for each step and each undo, and the commands that move it on.
func writeSaga(b *strings.Builder, s *client.Saga, now time.Time) {
	fmt.Fprintf(b, "%s  %s, %s\n", s.Key, s.Definition, sagaStateText(s, now))
	end := now
	if s.Over() {
		end = s.FinishedAt.Time
	}
	summary := saga.Summary{}
	if s.Receipt != nil {
		_ = json.Unmarshal(s.Receipt.Body, &summary) // a receipt without a body says less
	}
	var rows, next = [][]string{}, []string{}
	for _, step := range s.Steps {
		text := ""
		if step.Flight != nil {
			text = stepText(step.Flight, step.Action, now)
		} else {
			text = idleText(s, &step, summary.Steps[step.Step].Outcome)
		}
		if step.Pivot {
			text += "; the pivot"
		}
		if summary.Steps[step.Step].Undo == "kept" {
			text += "; kept: it has no undo"
		}
		rows = append(rows, []string{"  " + step.Step, bar(step.Flight, s.CreatedAt.Time, end), text})
		if step.Undo != nil {
			rows = append(rows, []string{"   undo", bar(step.Undo, s.CreatedAt.Time, end), stepText(step.Undo, "", now)})
		}
		if step.LateUndo != nil {
			rows = append(rows, []string{"   late undo", "", stepText(step.LateUndo, "", now)})
		} else if step.Late {
			next = append(next, "flightd sagas undo-late "+s.Key+" "+step.Step+" --reason WHY    # it has happened after the saga had taken it for not done")
		}
		for _, f := range [...]*client.Flight{step.Flight, step.Undo} {
			if f != nil && f.State == flight.StateInDoubt.String() {
				next = append(next, resolveText(f))
			}
		}
		if f := step.Flight; f != nil && f.State == flight.StateReady.String() && f.Attempts == 0 && (s.Cancel == nil || s.State == wire.SagaCommitted) {
			next = append(next, "flightd work "+step.Action+" -- COMMAND    # a worker performs the step")
		}
	}
	if len(s.Steps) == 0 { // its definition was deleted
		for _, name := range slices.Sorted(maps.Keys(summary.Steps)) {
			step := summary.Steps[name]
			rows = append(rows, []string{"  " + name, "", strings.ReplaceAll(step.Outcome, "_", " ") + noteSuffix(step.Why)})
			if step.Undo != "" {
				rows = append(rows, []string{"   undo", "", step.Undo})
			}
		}
	}
	cli.WriteTable(b, []string{"  STEP", "TIME", ""}, rows)
	if !s.Over() && s.Cancel == nil && s.State == wire.SagaRunning {
		next = append(next, "flightd sagas cancel "+s.Key+" --reason WHY    # undoes what has happened")
	}
	for _, line := range next {
		fmt.Fprintln(b, "next: "+line)
	}
}

// sagaStateText describes the state of a saga, why it is undone, and who has decided it.
func sagaStateText(s *client.Saga, now time.Time) string {
	text := strings.ReplaceAll(s.State, "_", " ")
	switch {
	case s.Over() && !s.FinishedAt.IsZero():
		text += " after " + spanText(s.FinishedAt.Sub(s.CreatedAt.Time))
	case !s.Over():
		text += ", started " + cli.AgeText(now.Sub(s.CreatedAt.Time)) + " ago"
	}
	if s.State == wire.SagaCommitted {
		text += ": its pivot has succeeded, so it is completed"
	}
	c := s.Cancel
	if c == nil {
		return text
	}
	if text += ": " + cli.OneLine(cmp.Or(c.Reason, "cancelled")); c.Actor != "saga" {
		text += " (cancelled by " + cli.OneLine(cmp.Or(c.Actor, "an unnamed person")) + ")"
	}
	if s.State == wire.SagaDone || s.State == wire.SagaCommitted {
		text += ", too late"
	}
	return text
}

// barWidth is the number of characters of the whole time of a saga.
const barWidth = 24

// bar draws the time of a flight within that of its saga.
func bar(f *client.Flight, from, to time.Time) string {
	if f == nil || !to.After(from) || f.Attempts == 0 {
		return ""
	}
	at := func(t time.Time) int {
		return min(max(0, int(float64(barWidth)*float64(t.Sub(from))/float64(to.Sub(from)))), barWidth)
	}
	end := to
	if !f.FinishedAt.IsZero() {
		end = f.FinishedAt.Time
	}
	start := min(at(f.CreatedAt.Time), barWidth-1)
	return strings.Repeat("·", start) + strings.Repeat("█", max(1, at(end)-start))
}

// spanText rounds a duration for people.
func spanText(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", max(0, d.Seconds()))
	}
	return cli.AgeText(d)
}

// idleText describes a step that has no flight. outcome is that of the saga's receipt.
func idleText(s *client.Saga, step *client.SagaStep, outcome string) string {
	switch {
	case outcome == "skipped":
		return "skipped: its condition is false"
	case outcome == "succeeded":
		return "over"
	case s.Over() || s.Cancel != nil && s.State != wire.SagaCommitted:
		return "never started"
	}
	var open []string
	for _, other := range s.Steps {
		if slices.Contains(step.Needs, other.Step) && (other.Flight == nil || other.Flight.State != flight.StateSucceeded.String()) {
			open = append(open, other.Step)
		}
	}
	if len(open) > 0 {
		return "waits for " + strings.Join(open, ", ")
	}
	return "waits"
}

// stepText describes the flight of a step or an undo in one line.
func stepText(f *client.Flight, action string, now time.Time) string {
	last := f.LastAttempt
	why := cli.OneLine(f.Cause)
	if last != nil && last.Error != "" && !strings.Contains(why, last.Error) {
		why = strings.TrimPrefix(why+"; "+cli.OneLine(last.Error), "; ")
	}
	text := ""
	switch f.State {
	case flight.StateSucceeded.String():
		text = "done in " + spanText(f.FinishedAt.Sub(f.CreatedAt.Time))
		if f.Receipt != nil && f.Receipt.ExternalID != "" {
			text += ", " + cli.OneLine(f.Receipt.ExternalID)
		}
	case flight.StateFailed.String():
		text = "failed"
		if f.Receipt != nil {
			text = "refused"
		}
		text += noteSuffix(why)
	case flight.StateCancelled.String():
		if text = "cancelled"; f.Attempts == 0 {
			return "never started"
		}
	case flight.StateRunning.String():
		if text = "running"; last != nil {
			text += " for " + spanText(now.Sub(last.OpenedAt.Time)) + ", by " + cli.OneLine(cmp.Or(last.Owner, "an unnamed worker"))
		}
		if f.Verifying {
			text = "the provider is being asked whether it happened"
		}
	case flight.StateInDoubt.String():
		text = "in doubt for " + cli.AgeText(now.Sub(doubtSince(f))) + noteSuffix(why)
	case flight.StateWaiting.String():
		text = "waits for the callback of its provider"
	case flight.StateAwaitingApproval.String():
		text = "waits for an approval"
	default:
		text = "waits for a worker"
		if action != "" {
			text += " of " + action
		}
		if pause := f.NotBefore.Sub(now); !f.NotBefore.IsZero() && pause > 0 {
			text = "next attempt in " + spanText(pause)
		}
		text += noteSuffix(why)
	}
	if f.Attempts > 1 {
		text += fmt.Sprintf(", attempt %d", f.Attempts)
	}
	if r := f.Resolution; r != nil {
		text += "; " + cli.OneLine(cmp.Or(r.Actor, "an unnamed person")) + " decided: " + resultText(r.Result) + noteSuffix(r.Reason)
	}
	return text
}

// resolveText is the command with which a person resolves a doubt, with the meaning of its choices for a step of a saga.
func resolveText(f *client.Flight) string {
	command := "flightd doubt resolve " + f.Key + " --reason WHY "
	key, err := flight.ParseStoredKey(f.Key)
	switch {
	case err != nil || !key.IsStep():
		return command + "--happened --receipt @FILE | --did-not-happen | --fail"
	case key.IsUndo():
		return command + "--did-not-happen (it runs again) | --happened --receipt @FILE | --fail (let it pass: the saga goes on without it)"
	}
	return command + "--did-not-happen (it runs again) | --happened --receipt @FILE | --fail (before the pivot the saga is undone; after it, let it pass)"
}
