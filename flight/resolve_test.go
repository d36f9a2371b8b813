package flight_test

import (
	"testing"

	"github.com/flightd/flightd/flight"
)

// TestResolve_Repeat: a resolution with another receipt than the stored one is not accepted as a repeat.
func TestResolve_Repeat(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), endSession(1)).expect(flight.DecisionAccepted, flight.StateInDoubt)
	seen := p.flight().Version
	happened := func(id string, body flight.Blob) step {
		return func(*ledger) flight.Command {
			return &flight.Resolve{Key: soloKey, Generation: 1, Version: seen, Finding: flight.FindingHappened, ExternalID: id, Body: body, Actor: "ann", Reason: "asked them"}
		}
	}
	text := bodies["x"]
	text.ContentType = "application/x-other"
	p.run(happened("x", bodies["x"])).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.run(happened("x", bodies["x"])).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.run(happened("y", bodies["x"])).expect(flight.DecisionFailedPrecondition, flight.StateSucceeded)
	p.run(happened("x", bodies["y"])).expect(flight.DecisionFailedPrecondition, flight.StateSucceeded)
	p.run(happened("x", flight.Blob{})).expect(flight.DecisionFailedPrecondition, flight.StateSucceeded)
	p.run(happened("x", text)).expect(flight.DecisionFailedPrecondition, flight.StateSucceeded)
	redact := func(*ledger) flight.Command {
		return &flight.Redact{Key: soloKey, Generation: 1, Actor: "ann", Reason: "asked to"}
	}
	p.run(redact, happened("x", bodies["x"])).expect(flight.DecisionAccepted, flight.StateSucceeded)
}

// TestReopen_Repeat: a repeat of a free or a retry is accepted as long as its generation is stored. The one is never taken for a repeat of
// the other: it would be acknowledged, and do nothing.
func TestReopen_Repeat(t *testing.T) {
	retryFirst := func(*ledger) flight.Command { return &flight.Retry{Key: soloKey, Generation: 1, Actor: "ann"} }
	freeFirst := func(*ledger) flight.Command { return &flight.FreeKey{Key: soloKey, Generation: 1, Actor: "ann"} }

	p := newScript(t, hold).run(submit, cancel, retryFirst, retryFirst).expect(flight.DecisionAccepted, flight.StateReady)
	p.run(freeFirst).expect(flight.DecisionFailedPrecondition, flight.StateReady)
	p.run(cancel, retryFirst).expect(flight.DecisionAccepted, flight.StateCancelled)
	p.run(freeFirst).expect(flight.DecisionFailedPrecondition, flight.StateCancelled)
	p.run(afterTime(retention), expire, retryFirst).expect(flight.DecisionFailedPrecondition, flight.StateExpired)
	p.run(freeFirst).expect(flight.DecisionFailedPrecondition, flight.StateExpired)
	p.run(free).check(p.flight().Generation == 3, "a free of the present generation")

	p = newScript(t, hold).run(submit, cancel, freeFirst, freeFirst).expect(flight.DecisionAccepted, flight.StateAbsent)
	p.run(retryFirst).expect(flight.DecisionNotFound, flight.StateAbsent)
	p.run(submit, freeFirst).expect(flight.DecisionAccepted, flight.StateReady)
	p.run(retryFirst).expect(flight.DecisionFailedPrecondition, flight.StateReady)
}
