package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// decision is a person's request about a flight, bound to the version that the person saw.
type decision struct {
	flight *flight.Flight
	key    flight.Key
	seen   flight.Version
	who    string
	why    string
}

// unknownActor is recorded if a request names no actor.
const unknownActor = "unknown"

// cancel serves POST /v1/flights/{id}/cancel.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	a.operate(w, r, func(d *decision) (flight.Command, bool) {
		m := d.flight.Cancel
		return &flight.Cancel{Key: d.key, Generation: d.flight.Generation, Who: d.who, Why: d.why},
			m != nil && m.Who == d.who && m.Why == d.why
	})
}

// retry serves POST /v1/flights/{id}/retry.
func (a *api) retry(w http.ResponseWriter, r *http.Request) {
	a.operate(w, r, func(d *decision) (flight.Command, bool) {
		return &flight.Retry{Key: d.key, Generation: d.flight.Generation, Who: d.who, Why: d.why}, a.endedLast(d)
	})
}

// free serves POST /v1/flights/{id}/free.
func (a *api) free(w http.ResponseWriter, r *http.Request) {
	a.operate(w, r, func(d *decision) (flight.Command, bool) {
		return &flight.Free{Key: d.key, Generation: d.flight.Generation, Who: d.who, Why: d.why}, a.endedLast(d)
	})
}

// redact serves POST /v1/flights/{id}/redact.
func (a *api) redact(w http.ResponseWriter, r *http.Request) {
	a.operate(w, r, func(d *decision) (flight.Command, bool) {
		m := d.flight.Redacted
		return &flight.Redact{Key: d.key, Generation: d.flight.Generation, Who: d.who, Why: d.why},
			m != nil && m.Who == d.who && m.Why == d.why
	})
}

// endedPreviousGeneration reports whether d is a repeat: the same actor and reason ended the previous generation, after
// the version that d was made on. The same words about a later version are a new decision, so the history is checked.
func (a *api) endedLast(d *decision) bool {
	past := d.flight.Past
	if d.seen == d.flight.Version || len(past) == 0 {
		return false
	}
	if m := past[len(past)-1].EndedBy; m.Who != d.who || m.Why != d.why {
		return false
	}
	history, err := a.cfg.Ledger.History(d.flight.ID)
	return err == nil && slices.ContainsFunc(history, func(e Event) bool {
		return (e.Kind == flight.EventFreed || e.Kind == flight.EventRetried) && e.Version.Later(d.seen)
	})
}

// runDecision applies a decision to the flight's generation. command also reports whether the flight shows that the
// same decision was applied already; then a repeat with the old ETag gets the same answer.
func (a *api) operate(w http.ResponseWriter, r *http.Request, command func(*decision) (c flight.Command, decided bool)) {
	d, ok := a.decision(w, r)
	if !ok {
		return
	}
	c, decided := command(d)
	if d.seen != d.flight.Version {
		if decided {
			a.show(w, r, d.flight)
			return
		}
		a.stale(w, r, d.flight)
		return
	}
	reply, err := a.cfg.Operator.Propose(r.Context(), c)
	a.decided(w, r, d.key, reply, err)
}

// loadDecision parses a cancel, retry, free or redact, and reads its flight.
func (a *api) decision(w http.ResponseWriter, r *http.Request) (*decision, bool) {
	d, id, bad := readDecision(r)
	var body []byte
	var req wire.OperatorRequest
	if bad == nil {
		body, bad = readBody(w, r, wire.MaxSmallBody)
	}
	if bad == nil {
		req, bad = wire.DecodeOperator(body)
	}
	if bad == nil {
		bad = d.by(r, req.As, req.Reason)
	}
	var named flight.Key
	if bad == nil && req.Key != "" {
		named, bad = namedKey(req.Key, id)
	}
	if bad != nil {
		a.refuse(w, r, bad)
		return nil, false
	}
	f, err := a.cfg.Ledger.Flight(id)
	if err == nil && f == nil {
		err = &effect.Missing{ID: id}
	}
	if err != nil {
		a.fail(w, r, named, err)
		return nil, false
	}
	d.flight, d.key = f, f.Key
	if d.key.IsZero() { // a tombstone does not store its key
		if d.key = named; named.IsZero() {
			a.refuse(w, r, &wire.Invalid{Code: wire.KeyRequired, Hint: "send the full key in the field key of the request",
				FieldError: wire.FieldError{Pointer: "/key", Detail: "missing; this flight's record is a tombstone, which does not store its key"}})
			return nil, false
		}
	}
	return d, true
}

func namedKey(text string, id flight.ID) (flight.Key, *wire.Invalid) {
	key, bad := wire.ParseKey(text, wire.BadField("/key", ""))
	if bad != nil {
		return key, bad
	}
	if key.FlightID() != id {
		return key, wire.BadField("/key", "this is the key of another flight, %s", key.FlightID())
	}
	return key, nil
}

// readDecision parses the path and If-Match. A decision must name the version that it was made on. With If-Match: *, a
// delayed request would apply to a version that nobody has seen.
func readDecision(r *http.Request) (*decision, flight.ID, *wire.Invalid) {
	id, bad := flightID(r)
	if bad != nil {
		return nil, id, bad
	}
	d := &decision{}
	tag, bad := single(r, "If-Match")
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

// setAttribution sets the actor and the reason.
func (d *decision) by(r *http.Request, as, reason string) *wire.Invalid {
	if d.why = flight.Text(strings.TrimSpace(reason)); d.why == "" {
		return wire.BadField("/reason", "missing; state why: the reason is stored in the flight's history")
	}
	if d.who = flight.Text(as); d.who != "" {
		return nil
	}
	var bad *wire.Invalid
	if d.who, bad = actor(r); bad == nil && d.who == "" {
		d.who = unknownActor
	}
	return bad
}

// actor returns the actor in the request's header; "" if there is none.
func actor(r *http.Request) (string, *wire.Invalid) {
	who, bad := single(r, wire.HeaderActor)
	if bad != nil {
		return "", bad
	}
	if !utf8.ValidString(who) {
		return "", wire.BadHeader(wire.HeaderActor, "must be UTF-8")
	}
	return flight.Text(who), nil
}

// resolve serves POST /v1/flights/{id}/resolve.
func (a *api) resolve(w http.ResponseWriter, r *http.Request) {
	c, bad := resolution(w, r)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	id, _ := flightID(r)
	f, ok := a.find(w, r, id)
	if !ok {
		return
	}
	c.Key, c.Generation = f.Key, f.Generation
	if f.Key.IsZero() {
		a.stale(w, r, f)
		return
	}
	reply, err := a.cfg.Operator.Propose(r.Context(), c)
	if now := reply.Flight; err == nil && reply.Decision == flight.Precluded && now.Settled != nil && now.Settled.Version == c.Version {
		a.settled(w, r, now)
		return
	}
	a.decided(w, r, f.Key, reply, err)
}

// writeAlreadyResolved answers that the doubt, at the version that the person saw, was resolved by another decision.
func (a *api) settled(w http.ResponseWriter, r *http.Request, f *flight.Flight) {
	p := precluded(f)
	p.Detail = fmt.Sprintf("the doubt was already resolved differently: %s, by %s (%s)", wire.VerbWord(f.Settled.Verb), f.Settled.Mark.Who, f.Settled.Mark.Why)
	p.Hint = "read the flight to see the first decision; it cannot be replaced"
	a.answer(w, r, p, nil)
}

// resolveCommand parses a resolve; its key and generation are set later.
func resolution(w http.ResponseWriter, r *http.Request) (*flight.Resolve, *wire.Invalid) {
	d, _, bad := readDecision(r)
	if bad != nil {
		return nil, bad
	}
	body, bad := readBody(w, r, wire.MaxReportBody)
	if bad != nil {
		return nil, bad
	}
	req, bad := wire.DecodeResolve(body)
	if bad != nil {
		return nil, bad
	}
	if bad := d.by(r, req.As, req.Reason); bad != nil {
		return nil, bad
	}
	c := &flight.Resolve{Version: d.seen, ExternalID: req.ExternalID, Who: d.who, Why: d.why}
	if c.Verb, bad = wire.ParseResolution(req.Result); bad != nil {
		return nil, bad
	}
	if c.Body, bad = req.Blob(); bad != nil {
		return nil, bad
	}
	if c.Verb != flight.Happened && (c.ExternalID != "" || c.Body.Size > 0) {
		return nil, onlyWhatHappened()
	}
	return c, nil
}

// writeDecision answers with the ledger's reply to a decision.
func (a *api) decided(w http.ResponseWriter, r *http.Request, key flight.Key, reply flight.Reply, err error) {
	if err != nil {
		a.fail(w, r, key, err)
		return
	}
	switch {
	case reply.Decision == flight.Accepted:
		a.show(w, r, reply.Flight)
	case reply.Flight == nil:
		a.fail(w, r, key, &effect.Missing{ID: key.FlightID()})
	case reply.Decision == flight.Missing:
		a.gone(w, r, reply.Flight)
	default:
		a.stale(w, r, reply.Flight)
	}
}

// writePreconditionFailed answers that the flight's state or version does not allow the decision.
func (a *api) stale(w http.ResponseWriter, r *http.Request, f *flight.Flight) {
	p := precluded(f)
	if f.Redacted != nil {
		p.Detail += ", and its input was erased"
	}
	if r.Header.Get("If-Match") == `"`+p.Version+`"` { // another ETag would not help
		p.Hint = "the flight's state does not allow this; read its history: GET /v1/flights/{id}/events"
	}
	a.answer(w, r, p, nil)
}

// preconditionProblem is the problem for a flight whose state or version does not allow a decision.
func precluded(f *flight.Flight) *wire.Problem {
	p := about(wire.PreconditionFailed, f.Key, 0)
	p.FlightID, p.State, p.Version = f.ID.String(), f.State.String(), version(f.Version)
	p.Detail = "the flight is " + f.State.String() + " at version " + f.Version.String()
	return p
}
