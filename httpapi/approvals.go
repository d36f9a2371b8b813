package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// approvalRoutes serve the flights that await approval, and the decisions of people about them.
type approvalRoutes struct {
	decisions *decisionRoutes
	flights   *flightRoutes
}

func (ar *approvalRoutes) routes() []declaration {
	return []declaration{
		Endpoint[flightFilters, wire.FlightPage]{Pattern: "GET /v1/approvals", Access: with(auth.Read), Serve: ar.list},
		ar.decision("approve", flight.FindingApproved),
		ar.decision("reject", flight.FindingRejected),
	}
}

func (ar *approvalRoutes) decision(verb string, finding flight.Finding) declaration {
	return Endpoint[approval, wire.Flight]{Pattern: "POST /v1/flights/{id}/" + verb, Access: with(auth.Operate), Body: wire.MaxSmallBody,
		Serve: func(q *Request, in *approval) (*wire.Flight, error) { return ar.decide(q, in, finding) }}
}

// approval is a person's decision about a flight that awaits it.
type approval struct {
	decision
	wire.ApprovalDecision
}

// list returns the flights that await approval.
func (ar *approvalRoutes) list(q *Request, in *flightFilters) (*wire.FlightPage, error) {
	query, bad := ar.flights.query(q, in)
	if bad != nil {
		return nil, bad
	}
	query.States = []flight.State{flight.StateAwaitingApproval}
	return ar.flights.page(q, query)
}

// decide applies a person's decision to the version that the person saw. The first decision in the log counts: the same one again
// gets its answer, and another one is told who decided before.
func (ar *approvalRoutes) decide(q *Request, in *approval, finding flight.Finding) (*wire.Flight, error) {
	who, bad := decider(q.Request, in.Actor)
	if bad != nil {
		return nil, bad
	}
	f, err := ar.decisions.findFlight(q.Request, in.Flight, flight.Key{})
	if err != nil {
		return nil, err
	}
	if f.Key.IsZero() { // a tombstone
		return nil, preconditionFailed(f, in.Seen)
	}
	q.key = f.Key
	reply, err := ar.decisions.operator.Propose(q.Context(), &flight.DecideApproval{Key: f.Key, Generation: f.Generation, Fingerprint: f.Fingerprint,
		Version: in.Seen, Finding: finding, Actor: who, Reason: flight.Sanitize(strings.TrimSpace(auth.Redact(in.Reason)))})
	if err != nil {
		return nil, err
	}
	replayed := reply.Decision == flight.DecisionAccepted && !reply.Changed
	if reply.Decision == flight.DecisionFailedPrecondition {
		first, err := ar.firstDecision(reply.Flight, in.Seen)
		if err != nil {
			return nil, err
		}
		switch replayed = first != nil && (first.Kind == flight.EventApproved) == (finding == flight.FindingApproved) && first.Kind != flight.EventCancelled; {
		case replayed:
		case first != nil:
			return nil, alreadyDecided(reply.Flight, first)
		case reply.Flight.Version == in.Seen && reply.Flight.State == flight.StateAwaitingApproval: // the sweep has not rejected it yet
			return nil, tooLate(reply.Flight)
		}
	}
	if !replayed {
		return ar.decisions.decided(q, in.Seen, reply, nil)
	}
	q.header[wire.HeaderReplayed] = headerTrue
	shown, err := ar.decisions.answer(q, reply.Flight)
	if err != nil {
		return nil, err
	}
	shown.Source = effect.SourceReplayed.String()
	return shown, nil
}

// firstDecision returns the event that followed the given version of a flight, if it decided about an approval; nil: it did not.
// The flight's record keeps only its last resolution, which may be that of a later doubt.
func (ar *approvalRoutes) firstDecision(f *flight.Flight, seen flight.Version) (*flight.HistoryEvent, error) {
	history, err := ar.decisions.flights.History(f.ID)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(history, func(e flight.HistoryEvent) bool { return e.Version.After(seen) })
	if i < 0 || !slices.Contains([]flight.EventKind{flight.EventApproved, flight.EventRejected, flight.EventCancelled}, history[i].Kind) {
		return nil, nil
	}
	return &history[i], nil
}

// alreadyDecided says who decided before, and when.
func alreadyDecided(f *flight.Flight, first *flight.HistoryEvent) error {
	p, at := preconditionProblem(f), first.At.AsTime().Format(wire.TimeFormat)
	switch {
	case first.Kind == flight.EventRejected && first.Actor == "":
		p.Detail = fmt.Sprintf("the approval expired on %s: %s", at, first.Note)
	case first.Note == "":
		p.Detail = fmt.Sprintf("the flight was already %s on %s by %s", first.Kind, at, cmp.Or(first.Actor, wire.UnknownActor))
	default:
		p.Detail = fmt.Sprintf("the flight was already %s on %s by %s: %s", first.Kind, at, cmp.Or(first.Actor, wire.UnknownActor), first.Note)
	}
	p.Hint = "read the flight to see the first decision; it cannot be replaced, but a flight that was rejected or cancelled can be retried, which asks again"
	return problemError{problem: p}
}

// tooLate says that the time for an approval has passed.
func tooLate(f *flight.Flight) error {
	p := preconditionProblem(f)
	p.Detail = fmt.Sprintf("the approval expired on %s; the flight is being rejected", f.ApprovalDeadline().AsTime().Format(wire.TimeFormat))
	p.Hint = "retry the flight when it is cancelled: the retry asks for another approval"
	return problemError{problem: p}
}

// setRequester records who submits a saga, or a flight that needs an approval: the actor of the request, or else the name of the caller.
func setRequester(r *http.Request, s *flight.Submission, owner string) *wire.Invalid {
	if !s.Policy.Approval && !s.Policy.Saga {
		return nil
	}
	who, bad := actor(r)
	s.Requester = recordedActor(r, cmp.Or(who, flight.Sanitize(auth.Redact(callerName(r, owner)))))
	return bad
}
