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

func (dr *decisionRoutes) routes() []declaration {
	access := with(auth.Operate)
	return []declaration{
		route{pattern: "POST /v1/flights/{id}/resolve", serve: dr.resolve, access: access},
		route{pattern: "POST /v1/flights/{id}/cancel", serve: dr.cancel, access: access},
		route{pattern: "POST /v1/flights/{id}/retry", serve: dr.retry, access: access},
		route{pattern: "POST /v1/flights/{id}/free", serve: dr.free, access: access},
		route{pattern: "POST /v1/flights/{id}/redact", serve: dr.redact, access: access},
		route{pattern: "POST /v1/flights:import", serve: dr.importReceipts, access: access, query: true},
	}
}

// operatorRequest is a person's request about a flight, bound to the version that the person saw.
type operatorRequest struct {
	flight *flight.Flight
	key    flight.Key
	seen   flight.Version
	actor  string
	reason string
}

// cancel serves POST /v1/flights/{id}/cancel.
func (dr *decisionRoutes) cancel(w http.ResponseWriter, r *http.Request) error {
	return dr.runDecision(w, r, func(d *operatorRequest) (flight.Command, bool) {
		m := d.flight.Cancel
		return &flight.Cancel{Key: d.key, Generation: d.flight.Generation, Actor: d.actor, Reason: d.reason},
			m != nil && m.Actor == d.actor && m.Reason == d.reason
	})
}

// retry serves POST /v1/flights/{id}/retry.
func (dr *decisionRoutes) retry(w http.ResponseWriter, r *http.Request) error {
	return dr.runDecision(w, r, func(d *operatorRequest) (flight.Command, bool) {
		return &flight.Retry{Key: d.key, Generation: d.flight.Generation, Actor: d.actor, Reason: d.reason}, dr.endedPreviousGeneration(d, flight.EventRetried)
	})
}

// free serves POST /v1/flights/{id}/free.
func (dr *decisionRoutes) free(w http.ResponseWriter, r *http.Request) error {
	return dr.runDecision(w, r, func(d *operatorRequest) (flight.Command, bool) {
		return &flight.FreeKey{Key: d.key, Generation: d.flight.Generation, Actor: d.actor, Reason: d.reason}, dr.endedPreviousGeneration(d, flight.EventFreed)
	})
}

// redact serves POST /v1/flights/{id}/redact.
func (dr *decisionRoutes) redact(w http.ResponseWriter, r *http.Request) error {
	return dr.runDecision(w, r, func(d *operatorRequest) (flight.Command, bool) {
		m := d.flight.Redacted
		return &flight.Redact{Key: d.key, Generation: d.flight.Generation, Actor: d.actor, Reason: d.reason},
			m != nil && m.Actor == d.actor && m.Reason == d.reason
	})
}

// endedPreviousGeneration reports whether d is a repeat: the same actor and reason ended the previous generation, after
// the version that d was made on, with the event of the same verb. The same words about a later version are a new decision, so the
// history is checked.
func (dr *decisionRoutes) endedPreviousGeneration(d *operatorRequest, verb flight.EventKind) bool {
	past := d.flight.PreviousGenerations
	if d.seen == d.flight.Version || len(past) == 0 {
		return false
	}
	if m := past[len(past)-1].EndedBy; m.Actor != d.actor || m.Reason != d.reason {
		return false
	}
	history, err := dr.flights.History(d.flight.ID)
	return err == nil && slices.ContainsFunc(history, func(e flight.HistoryEvent) bool {
		return e.Kind == verb && e.Version.After(d.seen)
	})
}

// runDecision applies a decision to the flight's generation. command also reports whether the flight shows that the
// same decision was applied already; then a repeat with the old ETag gets the same answer.
func (dr *decisionRoutes) runDecision(w http.ResponseWriter, r *http.Request, command func(*operatorRequest) (c flight.Command, decided bool)) error {
	d, err := dr.loadDecision(w, r)
	if err != nil {
		return err
	}
	c, decided := command(d)
	if d.seen != d.flight.Version {
		if decided {
			return dr.writeFlight(w, r, d.flight)
		}
		return preconditionFailed(r, d.flight)
	}
	reply, err := dr.operator.Propose(r.Context(), c)
	if f := reply.Flight; err == nil && reply.Decision == flight.DecisionFailedPrecondition && f.Phase == flight.PhaseCommitted && !f.State.Terminal() {
		if _, cancels := c.(*flight.Cancel); cancels {
			return pastPivot(f)
		}
	}
	return dr.writeDecision(w, r, d.key, reply, err)
}

// pastPivot says that a saga is not cancelled any more.
func pastPivot(f *flight.Flight) error {
	p := newKeyProblem(wire.PastPivot, f.Key, operatorRetryAfter)
	p.State, p.Version = f.State.String(), formatVersion(f.Version)
	p.Detail = "the pivot of the saga has succeeded, so it is completed, and no longer undone"
	p.Hint = "run flightd sagas get " + f.Key.String() + " to see what it waits for"
	return problemError{problem: p}
}

// loadDecision parses a cancel, retry, free or redact, and reads its flight.
func (dr *decisionRoutes) loadDecision(w http.ResponseWriter, r *http.Request) (*operatorRequest, error) {
	d, id, bad := readDecision(r)
	var req wire.OperatorRequest
	if bad == nil {
		req, bad = receive(dr.receiveBody, w, r, wire.MaxSmallBody, wire.Decode[wire.OperatorRequest])
	}
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	var named flight.Key
	if bad == nil && req.Key != "" {
		named, bad = namedKey(r, req.Key, id)
	}
	if bad != nil {
		return nil, bad
	}
	f, err := dr.flightOf(r, id, named)
	if err == nil && f == nil {
		err = &effect.Missing{ID: id}
	}
	if err != nil {
		return nil, about(named, err)
	}
	d.flight, d.key = f, f.Key
	if d.key.IsZero() { // a tombstone does not store its key
		if d.key = named; named.IsZero() {
			return nil, tombstoneNeedsKey()
		}
	}
	return d, nil
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

// readDecision parses the path and If-Match. A decision must name the version that it was made on. With If-Match: *, a
// delayed request would apply to a version that nobody has seen.
func readDecision(r *http.Request) (*operatorRequest, flight.ID, *wire.Invalid) {
	id, bad := flightID(r)
	if bad != nil {
		return nil, id, bad
	}
	d := &operatorRequest{}
	tag, bad := singleHeader(r, "If-Match")
	switch {
	case bad != nil:
	case tag == "":
		bad = &wire.Invalid{Code: wire.PreconditionRequired, FieldError: wire.FieldError{Header: "If-Match", Detail: "missing"}}
	default:
		if d.seen, bad = parseETag("If-Match", tag); bad != nil {
			bad.Hint = "GET the flight first, decide by its state, and send its ETag in If-Match"
		}
	}
	return d, id, bad
}

// setAttribution sets the actor and the reason, without secrets.
func (or *operatorRequest) setAttribution(r *http.Request, as, reason string) *wire.Invalid {
	if or.reason = flight.Sanitize(strings.TrimSpace(auth.Redact(reason))); or.reason == "" {
		return wire.BadField("/reason", "missing; state why: the reason is stored in the flight's history")
	}
	return or.setActor(r, as)
}

// setActor sets the actor, without secrets.
func (or *operatorRequest) setActor(r *http.Request, as string) *wire.Invalid {
	var bad *wire.Invalid
	if or.actor = flight.Sanitize(auth.Redact(as)); or.actor == "" {
		or.actor, bad = actor(r)
	}
	or.actor = cmp.Or(recordedActor(r, or.actor), wire.UnknownActor)
	return bad
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

// resolve serves POST /v1/flights/{id}/resolve.
func (dr *decisionRoutes) resolve(w http.ResponseWriter, r *http.Request) error {
	c, bad := dr.resolveCommand(w, r)
	if bad != nil {
		return bad
	}
	id, _ := flightID(r)
	f, err := dr.findFlight(r, id, flight.Key{})
	if err != nil {
		return err
	}
	c.Key, c.Generation = f.Key, f.Generation
	if f.Key.IsZero() {
		return preconditionFailed(r, f)
	}
	reply, err := dr.operator.Propose(r.Context(), c)
	if now := reply.Flight; err == nil && reply.Decision == flight.DecisionFailedPrecondition && now.Resolution != nil && now.Resolution.Version == c.Version {
		return alreadyResolved(now)
	}
	return dr.writeDecision(w, r, f.Key, reply, err)
}

// alreadyResolved says that the doubt, at the version that the person saw, was resolved by another decision.
func alreadyResolved(f *flight.Flight) error {
	p := preconditionProblem(f)
	p.Detail = fmt.Sprintf("the doubt was already resolved differently: %s, by %s (%s)", wire.FindingWord(f.Resolution.Finding), f.Resolution.By.Actor, f.Resolution.By.Reason)
	p.Hint = "read the flight to see the first decision; it cannot be replaced"
	return problemError{problem: p}
}

// resolveCommand parses a resolve; its key and generation are set later.
func (dr *decisionRoutes) resolveCommand(w http.ResponseWriter, r *http.Request) (*flight.Resolve, *wire.Invalid) {
	d, _, bad := readDecision(r)
	if bad != nil {
		return nil, bad
	}
	req, bad := receive(dr.receiveBody, w, r, wire.MaxReportBody, wire.Decode[wire.ResolveRequest])
	if bad != nil {
		return nil, bad
	}
	if bad := d.setAttribution(r, req.Actor, req.Reason); bad != nil {
		return nil, bad
	}
	c := &flight.Resolve{Version: d.seen, ExternalID: req.ExternalID, Actor: d.actor, Reason: d.reason}
	if c.Finding, bad = wire.ParseResolution(req.Result); bad != nil {
		return nil, bad
	}
	if c.Body, bad = req.Blob(); bad != nil {
		return nil, bad
	}
	switch hasReceipt := c.ExternalID != "" || c.Body.Size > 0; {
	case c.Finding != flight.FindingHappened && hasReceipt:
		bad = receiptWithoutEffect()
	case c.Finding != flight.FindingHappened && req.NoReceipt:
		bad = wire.BadField("/no_receipt", "allowed only with the result happened")
	case c.Finding != flight.FindingHappened || hasReceipt != req.NoReceipt:
	case hasReceipt:
		bad = wire.BadField("/no_receipt", "not allowed together with external_id or a body")
	default:
		bad = wire.BadField("/no_receipt", "the resolution has no receipt: send the body, or the external_id, or no_receipt if there is neither")
		bad.Hint = "look for the effect's id or answer at the provider; without it, later callers are told that the effect happened, and get no result"
	}
	return c, bad
}

// writeDecision answers with the ledger's reply to a decision.
func (dr *decisionRoutes) writeDecision(w http.ResponseWriter, r *http.Request, key flight.Key, reply flight.Reply, err error) error {
	if err != nil {
		return about(key, err)
	}
	switch {
	case reply.Decision == flight.DecisionAccepted:
		return dr.writeFlight(w, r, reply.Flight)
	case reply.Flight == nil:
		return about(key, &effect.Missing{ID: key.FlightID()})
	case reply.Decision == flight.DecisionNotFound:
		return absentError(reply.Flight)
	default:
		return preconditionFailed(r, reply.Flight)
	}
}

// preconditionFailed says that the flight's state or version does not allow the decision.
func preconditionFailed(r *http.Request, f *flight.Flight) error {
	p := preconditionProblem(f)
	if f.Redacted != nil {
		p.Detail += ", and its input was erased"
	}
	if r.Header.Get("If-Match") == `"`+p.Version+`"` { // another ETag would not help
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
