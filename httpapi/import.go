package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// importReceipts serves POST /v1/flights:import: one receipt per line, of effects that happened before flightd was
// used. An invalid line rejects the whole request. A key that is already in use is not changed.
//
// Crash safety: a process that dies between proposals has imported a part of the lines. The caller has no answer and
// repeats the request; lines that were imported count as existing then.
func (dr *decisionRoutes) importReceipts(w http.ResponseWriter, r *http.Request) error {
	dry, bad := parseDryRun(r)
	var body []byte
	if bad == nil {
		body, bad = dr.receiveLines(w, r, wire.MaxImportBody)
	}
	var who string
	if bad == nil {
		who, bad = actor(r)
		who = recordedActor(r, who)
	}
	var ns string
	if bad == nil {
		ns, bad = namespace(r)
	}
	var commands []*flight.Import
	if bad == nil {
		commands, bad = parseImports(r, body, ns, who)
	}
	if bad != nil {
		return bad
	}
	replies, open, err := dr.simulateImports(r, commands)
	if err == nil && !dry && len(open) > 0 {
		err = dr.limits.AllowFlights(commands[0].Key, int64(len(open)))
	}
	if err == nil && !dry {
		err = dr.applyImports(r.Context(), commands, replies, open)
	}
	if err != nil {
		return err
	}
	answer := wire.ImportAnswer{Lines: len(commands), DryRun: dry}
	for i := range replies {
		countLine(&answer, i+1, commands[i], &replies[i])
	}
	return writeJSON(w, r, http.StatusOK, &answer)
}

// parseDryRun parses dry_run. It rejects every other parameter: dry-run mistyped must not import.
func parseDryRun(r *http.Request) (dry bool, bad *wire.Invalid) {
	params, bad := queryParameters(r)
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
			return false, wire.BadParameter(name, "must be true or false")
		}
	}
	return dry, nil
}

// parseImports parses the lines. An empty line is rejected, because it may be a truncated one.
func parseImports(r *http.Request, body []byte, namespace, actor string) (commands []*flight.Import, bad *wire.Invalid) {
	now, number := time.Now(), 0
	for line := range bytes.Lines(body) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			return nil, lineError(number, wire.BadField("", "empty line"))
		}
		if number > wire.MaxImportLines {
			bad := wire.BadField("", "more than %d lines; send the rest in another request", wire.MaxImportLines)
			bad.Code = wire.PayloadTooLarge
			return nil, bad
		}
		parsed, bad := wire.DecodeImport(line)
		if bad != nil {
			return nil, lineError(number, bad)
		}
		if key, err := flight.ParseKey(parsed.Key); err == nil {
			if bad := allowKey(r, key, wire.FieldError{Pointer: "/key"}); bad != nil {
				return nil, lineError(number, bad)
			}
		}
		c, bad := parsed.Command(namespace, now)
		if bad != nil {
			return nil, lineError(number, bad)
		}
		c.Actor = actor
		commands = append(commands, c)
	}
	if len(commands) == 0 {
		return nil, wire.BadField("", "the body has no lines; send one JSON object per line")
	}
	return commands, nil
}

// lineError adds the line number to an error.
func lineError(number int, bad *wire.Invalid) *wire.Invalid {
	bad.Pointer = fmt.Sprintf("/%d%s", number, bad.Pointer)
	bad.Detail = fmt.Sprintf("line %d: %s", number, bad.Detail)
	return bad
}

// simulateImports applies the lines to copies of the flights, by the ledger's rules, and changes nothing. open lists
// the lines that must be proposed. The other lines name keys that are in use, which an import does not change.
func (dr *decisionRoutes) simulateImports(r *http.Request, commands []*flight.Import) (replies []flight.Reply, open []int, err error) {
	simulated := make(map[flight.ID]*flight.Flight, len(commands))
	replies = make([]flight.Reply, len(commands))
	header := dr.ledger.Header() // a reconciling ledger accepts more imports
	header.Now = flight.Time(time.Now().UnixMilli())
	for i, c := range commands {
		id := c.Key.FlightID()
		f, seenBefore := simulated[id]
		if !seenBefore {
			if f, err = dr.flightOf(r, id, c.Key); err != nil {
				return nil, nil, err
			}
		}
		after, reply := flight.Apply(flight.View{Header: header, Flight: f}, c)
		simulated[id], replies[i] = after.Flight, reply
		if seenBefore || reply.Changed {
			open = append(open, i)
		}
	}
	return replies, open, nil
}

// applyImports proposes the open lines and replaces their simulated replies by the ledger's.
func (dr *decisionRoutes) applyImports(ctx context.Context, commands []*flight.Import, replies []flight.Reply, open []int) error {
	if len(open) == 0 {
		return nil
	}
	all := make([]flight.Command, len(open))
	for i, at := range open {
		all[i] = commands[at]
	}
	answers, err := dr.operator.ProposeAll(ctx, all)
	if err != nil {
		return err
	}
	for i, at := range open {
		replies[at] = answers[i]
	}
	return nil
}

// countLine adds the result of one line to the answer.
func countLine(answer *wire.ImportAnswer, line int, c *flight.Import, reply *flight.Reply) {
	if reply.Decision == flight.DecisionAccepted && reply.Changed {
		answer.Imported++
		return
	}
	switch reply.Decision {
	case flight.DecisionAccepted, flight.DecisionReplay, flight.DecisionExpired:
		answer.Existing++
		return
	}
	f := reply.Flight
	if f == nil {
		f = new(flight.Flight)
	}
	trouble := wire.ImportDifference{Line: line, Key: c.Key.String(), FlightID: c.Key.FlightID().String(), State: f.State.String()}
	switch {
	case reply.Decision == flight.DecisionConflict && !f.Fingerprint.Matches(c.Fingerprint):
		trouble.Detail = "the key was first used with another input"
	case reply.Decision == flight.DecisionConflict && f.Receipt == nil:
		trouble.Detail = "the flight ended without a receipt"
	case reply.Decision == flight.DecisionConflict:
		trouble.Detail = fmt.Sprintf("the flight has another receipt: %s %s", f.Receipt.Outcome, f.Receipt.ExternalID)
	case reply.Decision == flight.DecisionFailedPrecondition && c.Key.IsStep():
		trouble.Detail = "the key of a saga's step is imported only after a restore, before flightd restore finish"
	case reply.Decision == flight.DecisionFailedPrecondition:
		trouble.Detail = "a person freed the key so that the effect can run again"
	case f.Policy.Saga:
		trouble.Detail = "the saga is not over: after a restore import the receipts of its steps, as KEY#STEP, and it goes on from them"
	default:
		trouble.Detail = "the flight is " + f.State.String()
	}
	answer.Differing = append(answer.Differing, trouble)
}
