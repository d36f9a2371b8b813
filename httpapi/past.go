package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// redact serves POST /v1/flights/{id}/redact.
func (a *api) redact(w http.ResponseWriter, r *http.Request) {
	a.operate(w, r, func(d *decision) (flight.Command, bool) {
		m := d.flight.Redacted
		return &flight.Redact{Key: d.key, Generation: d.flight.Generation, Who: d.who, Why: d.why},
			m != nil && m.Who == d.who && m.Why == d.why
	})
}

// bringReceipts serves POST /v1/flights:import: a receipt a line, of effects that happened before flightd was asked. A
// line that cannot be what it should be refuses the whole request; a key that is known is left alone.
func (a *api) bringReceipts(w http.ResponseWriter, r *http.Request) {
	dry, bad := dryRun(r)
	var body []byte
	if bad == nil {
		body, bad = readLines(w, r)
	}
	var who string
	if bad == nil {
		who, bad = actor(r)
	}
	var ns string
	if bad == nil {
		ns, bad = namespace(r)
	}
	var commands []*flight.Import
	if bad == nil {
		commands, bad = importsOf(body, ns, who)
	}
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	replies, open, err := a.rehearse(commands)
	if err == nil && !dry {
		err = a.perform(r.Context(), commands, replies, open)
	}
	if err != nil {
		a.fail(w, r, flight.Key{}, err)
		return
	}
	answer := wire.ImportAnswer{Lines: len(commands), DryRun: dry}
	for i := range replies {
		tally(&answer, i+1, commands[i], &replies[i])
	}
	a.sendValue(w, r, http.StatusOK, &answer)
}

// dryRun reads the one parameter there is. Another one may be this one mistyped, and then nothing may be changed.
func dryRun(r *http.Request) (dry bool, bad *wire.Invalid) {
	params, bad := parameters(r)
	if bad != nil {
		return false, bad
	}
	for name, values := range params {
		switch {
		case name != "dry_run":
			return false, wire.BadParameter(name, "unknown parameter; allowed: dry_run")
		case len(values) == 1 && values[0] == "true":
			dry = true
		case len(values) > 1 || values[0] != "" && values[0] != "false":
			return false, wire.BadParameter(name, "it is true or false")
		}
	}
	return dry, nil
}

// readLines reads a body of one JSON object a line.
func readLines(w http.ResponseWriter, r *http.Request) ([]byte, *wire.Invalid) {
	if kind := r.Header.Get("Content-Type"); !wire.IsNDJSONType(kind) {
		return nil, wire.BadHeader("Content-Type", "the body must be one JSON object a line, as %s, not %.100q", wire.TypeNDJSON, kind)
	}
	r.Header.Del("Content-Type") // what readBody would refuse
	return readBody(w, r, wire.MaxImportBody)
}

// importsOf reads the lines. Each must hold an object: an empty one may be what is left of something.
func importsOf(body []byte, namespace, who string) (commands []*flight.Import, bad *wire.Invalid) {
	now, number := time.Now(), 0
	for line := range bytes.Lines(body) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			return nil, lineError(number, wire.BadField("", "it is empty"))
		}
		if number > wire.MaxImportLines {
			bad := wire.BadField("", "there are more than %d lines; send the others in another request", wire.MaxImportLines)
			bad.Code = wire.PayloadTooLarge
			return nil, bad
		}
		one, bad := wire.DecodeImport(line)
		if bad != nil {
			return nil, lineError(number, bad)
		}
		c, bad := one.Command(namespace, now)
		if bad != nil {
			return nil, lineError(number, bad)
		}
		c.Who = who
		commands = append(commands, c)
	}
	if len(commands) == 0 {
		return nil, wire.BadField("", "there is no line; one JSON object a line is expected")
	}
	return commands, nil
}

// lineError says in which line something is wrong.
func lineError(number int, bad *wire.Invalid) *wire.Invalid {
	bad.Pointer = fmt.Sprintf("/%d%s", number, bad.Pointer)
	bad.Detail = fmt.Sprintf("line %d: %s", number, bad.Detail)
	return bad
}

// rehearse says what the lines would do, by the rules that the ledger will apply, and changes nothing. open are those
// that only the ledger can answer; of the others the key is known here already, and an import changes no such flight.
func (a *api) rehearse(commands []*flight.Import) (replies []flight.Reply, open []int, err error) {
	stage := make(map[flight.ID]*flight.Flight, len(commands))
	replies = make([]flight.Reply, len(commands))
	now := flight.Time(time.Now().UnixMilli())
	for i, c := range commands {
		id := c.Key.FlightID()
		f, staged := stage[id]
		if !staged {
			if f, err = a.cfg.Ledger.Flight(id); err != nil {
				return nil, nil, err
			}
		}
		after, reply := flight.Apply(flight.View{Header: flight.Header{Now: now}, Flight: f}, c)
		stage[id], replies[i] = after.Flight, reply
		if staged || reply.Changed {
			open = append(open, i)
		}
	}
	return replies, open, nil
}

// perform brings the open lines into the ledger, and puts its answers in the place of those that were rehearsed.
func (a *api) perform(ctx context.Context, commands []*flight.Import, replies []flight.Reply, open []int) error {
	if len(open) == 0 {
		return nil
	}
	all := make([]flight.Command, len(open))
	for i, at := range open {
		all[i] = commands[at]
	}
	answers, err := a.cfg.Operator.ProposeAll(ctx, all)
	if err != nil {
		return err
	}
	for i, at := range open {
		replies[at] = answers[i]
	}
	return nil
}

// tally counts what became of one line.
func tally(answer *wire.ImportAnswer, line int, c *flight.Import, reply *flight.Reply) {
	if reply.Decision == flight.Accepted && reply.Changed {
		answer.Imported++
		return
	}
	switch reply.Decision {
	case flight.Accepted, flight.Replay, flight.Gone:
		answer.Existing++
		return
	}
	f := reply.Flight
	trouble := wire.ImportTrouble{Line: line, Key: c.Key.String(), FlightID: c.Key.FlightID().String(), State: f.State.String()}
	switch {
	case reply.Decision == flight.Conflict && !f.Fingerprint.Matches(c.Fingerprint):
		trouble.Detail = "the key was used with another input"
	case reply.Decision == flight.Conflict && f.Receipt == nil:
		trouble.Detail = "the flight ended without a receipt"
	case reply.Decision == flight.Conflict:
		trouble.Detail = fmt.Sprintf("the flight has another receipt: %s %s", f.Receipt.Outcome, f.Receipt.ExternalID)
	case reply.Decision == flight.Precluded:
		trouble.Detail = "a person freed the key so that the effect runs again"
	default:
		trouble.Detail = "the flight is " + f.State.String() + " here"
	}
	answer.Differing = append(answer.Differing, trouble)
}
