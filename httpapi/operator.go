package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// decisionRoutes serve the decisions of people about flights, and imports.
type decisionRoutes struct {
	*flightWriter
	operator Operator
}

// decision is a person's request about a flight, bound to the version that the person saw.
type decision struct {
	flightPath
	Seen flight.Version `json:"-" header:"If-Match"`
}

type (
	change struct {
		decision
		wire.OperatorRequest
	}
	resolution struct {
		decision
		wire.ResolveRequest
	}
)

func (dr *decisionRoutes) routes() []declaration {
	access := with(auth.Operate)
	changed := func(verb string, command func(*changeOf) (flight.Command, bool)) declaration {
		return Endpoint[change, wire.Flight]{Pattern: "POST /v1/flights/{id}/" + verb, Access: access, Body: wire.MaxSmallBody,
			Serve: func(q *Request, in *change) (*wire.Flight, error) { return dr.change(q, in, command) }}
	}
	return []declaration{
		Endpoint[resolution, wire.Flight]{Pattern: "POST /v1/flights/{id}/resolve",
			Access: access, Body: wire.MaxReportBody, Serve: dr.resolve},
		changed("cancel", func(c *changeOf) (flight.Command, bool) {
			return &flight.Cancel{Key: c.key, Generation: c.flight.Generation, Actor: c.actor, Reason: c.reason}, c.made(c.flight.Cancel)
		}),
		changed("retry", func(c *changeOf) (flight.Command, bool) {
			return &flight.Retry{Key: c.key, Generation: c.flight.Generation, Actor: c.actor, Reason: c.reason}, dr.endedPreviousGeneration(c, flight.EventRetried)
		}),
		changed("free", func(c *changeOf) (flight.Command, bool) {
			return &flight.FreeKey{Key: c.key, Generation: c.flight.Generation, Actor: c.actor, Reason: c.reason}, dr.endedPreviousGeneration(c, flight.EventFreed)
		}),
		changed("redact", func(c *changeOf) (flight.Command, bool) {
			return &flight.Redact{Key: c.key, Generation: c.flight.Generation, Actor: c.actor, Reason: c.reason}, c.made(c.flight.Redacted)
		}),
		route{pattern: "POST /v1/flights:import", serve: dr.importReceipts, access: access, query: true},
	}
}

// changeOf is a person's change of a flight.
type changeOf struct {
	flight        *flight.Flight
	key           flight.Key
	seen          flight.Version
	actor, reason string
}

// made reports whether the flight has the mark of the same change.
func (c *changeOf) made(m *flight.Attribution) bool {
	return m != nil && m.Actor == c.actor && m.Reason == c.reason
}

// endedPreviousGeneration reports whether c is a repeat: the same actor and reason ended the previous generation, after
// the version that c was made on, with the event of the same verb. The same words about a later version are a new decision, so the
// history is checked.
func (dr *decisionRoutes) endedPreviousGeneration(c *changeOf, verb flight.EventKind) bool {
	past := c.flight.PreviousGenerations
	if c.seen == c.flight.Version || len(past) == 0 || !c.made(&past[len(past)-1].EndedBy) {
		return false
	}
	history, err := dr.flights.History(c.flight.ID)
	return err == nil && slices.ContainsFunc(history, func(e flight.HistoryEvent) bool {
		return e.Kind == verb && e.Version.After(c.seen)
	})
}

// change applies a decision to the flight's generation. command also reports whether the flight shows that the
// same decision was applied already; then a repeat with the old ETag gets the same answer.
func (dr *decisionRoutes) change(q *Request, in *change, command func(*changeOf) (c flight.Command, decided bool)) (*wire.Flight, error) {
	of, err := dr.findChanged(q, in)
	if err != nil {
		return nil, err
	}
	c, decided := command(of)
	if of.seen != of.flight.Version {
		if decided {
			return dr.answer(q, of.flight)
		}
		return nil, preconditionFailed(of.flight, in.Seen)
	}
	reply, err := dr.operator.Propose(q.Context(), c)
	if f := reply.Flight; err == nil && reply.Decision == flight.DecisionFailedPrecondition && f.Phase == flight.PhaseCommitted && !f.State.Terminal() {
		if _, cancels := c.(*flight.Cancel); cancels {
			return nil, pastPivot(f)
		}
	}
	return dr.decided(q, in.Seen, reply, err)
}

// pastPivot says that a saga is not cancelled any more.
func pastPivot(f *flight.Flight) error {
	p := newKeyProblem(wire.PastPivot, f.Key, operatorRetryAfter)
	p.State, p.Version = f.State.String(), formatVersion(f.Version)
	p.Detail = "the pivot of the saga has succeeded, so it is completed, and no longer undone"
	p.Hint = "run flightd sagas get " + f.Key.String() + " to see what it waits for"
	return problemError{problem: p}
}

// findChanged reads the flight that a person changes.
func (dr *decisionRoutes) findChanged(q *Request, in *change) (c *changeOf, err error) {
	c = &changeOf{seen: in.Seen}
	var bad *wire.Invalid
	if c.actor, c.reason, bad = attribution(q.Request, in.Actor, in.Reason); bad == nil && in.Key != "" {
		q.key, bad = namedKey(q.Request, in.Key, in.Flight)
	}
	if bad != nil {
		return nil, bad
	}
	if c.flight, err = dr.flightOf(q.Request, in.Flight, q.key); err == nil && c.flight == nil {
		err = &effect.Missing{ID: in.Flight}
	}
	if err != nil {
		return nil, err
	}
	c.key = c.flight.Key
	if c.key.IsZero() { // a tombstone does not store its key
		if c.key = q.key; c.key.IsZero() {
			return nil, tombstoneNeedsKey()
		}
	}
	q.key = c.key
	return c, nil
}

// tombstoneNeedsKey is the error for a request about a tombstone that does not name its key.
func tombstoneNeedsKey() *wire.Invalid {
	return &wire.Invalid{Code: wire.KeyRequired, Hint: "send the full key in the field key of the request",
		FieldError: wire.FieldError{Pointer: "/key", Detail: "missing; this flight's record is a tombstone, which does not store its key"}}
}

// namedKey returns the key in the body of a request about a flight.
func namedKey(r *http.Request, text string, id flight.ID) (flight.Key, *wire.Invalid) {
	key, bad := wire.ParseKey(text, wire.BadField("/key", ""))
	if bad == nil {
		bad = allowKey(r, key, wire.FieldError{Pointer: "/key"})
	}
	if bad != nil {
		return flight.Key{}, bad
	}
	if key.FlightID() != id {
		return key, wire.BadField("/key", "this is the key of another flight, %s", key.FlightID())
	}
	return key, nil
}

// attribution returns who makes a change and why, without secrets.
func attribution(r *http.Request, as, why string) (who, reason string, bad *wire.Invalid) {
	if reason = flight.Sanitize(strings.TrimSpace(auth.Redact(why))); reason == "" {
		return "", "", wire.BadField("/reason", "missing; state why: the reason is stored in the flight's history")
	}
	who, bad = decider(r, as)
	return who, reason, bad
}

// decider returns who makes a change, without secrets.
func decider(r *http.Request, as string) (who string, bad *wire.Invalid) {
	if who = flight.Sanitize(auth.Redact(as)); who == "" {
		who, bad = actor(r)
	}
	return cmp.Or(recordedActor(r, who), wire.UnknownActor), bad
}

// actor returns the actor in the request's header, or "" if there is none.
func actor(r *http.Request) (string, *wire.Invalid) {
	who, bad := singleHeader(r, wire.HeaderActor)
	if bad != nil {
		return "", bad
	}
	if !utf8.ValidString(who) {
		return "", wire.BadHeader(wire.HeaderActor, "must be UTF-8")
	}
	return flight.Sanitize(auth.Redact(who)), nil
}

// resolve records the finding of a person about a flight in doubt.
func (dr *decisionRoutes) resolve(q *Request, in *resolution) (*wire.Flight, error) {
	c, bad := resolveCommand(q, in)
	if bad != nil {
		return nil, bad
	}
	f, err := dr.findFlight(q.Request, in.Flight, flight.Key{})
	if err != nil {
		return nil, err
	}
	if f.Key.IsZero() {
		return nil, preconditionFailed(f, in.Seen)
	}
	q.key, c.Key, c.Generation = f.Key, f.Key, f.Generation
	reply, err := dr.operator.Propose(q.Context(), c)
	if now := reply.Flight; err == nil && reply.Decision == flight.DecisionFailedPrecondition && now.Resolution != nil && now.Resolution.Version == c.Version {
		return nil, alreadyResolved(now)
	}
	return dr.decided(q, in.Seen, reply, err)
}

// alreadyResolved says that the doubt, at the version that the person saw, was resolved by another decision.
func alreadyResolved(f *flight.Flight) error {
	p := preconditionProblem(f)
	p.Detail = fmt.Sprintf("the doubt was already resolved differently: %s, by %s (%s)", wire.FindingWord(f.Resolution.Finding), f.Resolution.By.Actor, f.Resolution.By.Reason)
	p.Hint = "read the flight to see the first decision; it cannot be replaced"
	return problemError{problem: p}
}

// resolveCommand returns the command of a resolution; its key and generation are set later.
func resolveCommand(q *Request, in *resolution) (c *flight.Resolve, bad *wire.Invalid) {
	c = &flight.Resolve{Version: in.Seen, ExternalID: in.ExternalID}
	if c.Actor, c.Reason, bad = attribution(q.Request, in.Actor, in.Reason); bad != nil {
		return nil, bad
	}
	if c.Finding, bad = wire.ParseResolution(in.Result); bad != nil {
		return nil, bad
	}
	if c.Body, bad = in.Blob(); bad != nil {
		return nil, bad
	}
	switch hasReceipt := c.ExternalID != "" || c.Body.Size > 0; {
	case c.Finding != flight.FindingHappened && hasReceipt:
		bad = receiptWithoutEffect()
	case c.Finding != flight.FindingHappened && in.NoReceipt:
		bad = wire.BadField("/no_receipt", "allowed only with the result happened")
	case c.Finding != flight.FindingHappened || hasReceipt != in.NoReceipt:
	case hasReceipt:
		bad = wire.BadField("/no_receipt", "not allowed together with external_id or a body")
	default:
		bad = wire.BadField("/no_receipt", "the resolution has no receipt: send the body, or the external_id, or no_receipt if there is neither")
		bad.Hint = "look for the effect's id or answer at the provider; without it, later callers are told that the effect happened, and get no result"
	}
	return c, bad
}

// decided is the answer to a decision about the version seen, for which the ledger has this reply.
func (dr *decisionRoutes) decided(q *Request, seen flight.Version, reply flight.Reply, err error) (*wire.Flight, error) {
	switch {
	case err != nil:
		return nil, err
	case reply.Decision == flight.DecisionAccepted:
		return dr.answer(q, reply.Flight)
	case reply.Flight == nil:
		return nil, &effect.Missing{ID: q.key.FlightID()}
	case reply.Decision == flight.DecisionNotFound:
		return nil, absentError(reply.Flight)
	}
	return nil, preconditionFailed(reply.Flight, seen)
}

// preconditionFailed says that the flight's state or version does not allow a decision about the version seen.
func preconditionFailed(f *flight.Flight, seen flight.Version) error {
	p := preconditionProblem(f)
	if f.Redacted != nil {
		p.Detail += ", and its input was erased"
	}
	if seen == f.Version { // another ETag would not help
		p.Hint = "the flight's state does not allow this; read its history: GET /v1/flights/{id}/events"
	}
	return problemError{problem: p}
}

// preconditionProblem is the problem for a flight whose state or version does not allow a decision.
func preconditionProblem(f *flight.Flight) *wire.Problem {
	p := newKeyProblem(wire.PreconditionFailed, f.Key, 0)
	p.FlightID, p.State, p.Version = f.ID.String(), f.State.String(), formatVersion(f.Version)
	p.Detail = "the flight is " + f.State.String() + " at version " + f.Version.String()
	return p
}
