package flight_test

import (
	"testing"

	"github.com/flightd/flightd/flight"
)

// TestResolve_Repeat: a resolution with another receipt than the stored one is not accepted as a repeat.
func TestResolve_ARepeatIsTheSameDecision(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), ended(1)).expect(flight.Accepted, flight.InDoubt)
	seen := p.flight().Version
	happened := func(id string, body flight.Blob) say {
		return func(*world) flight.Command {
			return &flight.Resolve{Key: soloKey, Generation: 1, Version: seen, Verb: flight.Happened, ExternalID: id, Body: body, Who: "ann", Why: "asked them"}
		}
	}
	text := bodies["x"]
	text.ContentType = "application/x-other"
	p.do(happened("x", bodies["x"])).expect(flight.Accepted, flight.StateSucceeded)
	p.do(happened("x", bodies["x"])).expect(flight.Accepted, flight.StateSucceeded)
	p.do(happened("y", bodies["x"])).expect(flight.Precluded, flight.StateSucceeded)
	p.do(happened("x", bodies["y"])).expect(flight.Precluded, flight.StateSucceeded)
	p.do(happened("x", flight.Blob{})).expect(flight.Precluded, flight.StateSucceeded)
	p.do(happened("x", text)).expect(flight.Precluded, flight.StateSucceeded)
	redact := func(*world) flight.Command {
		return &flight.Redact{Key: soloKey, Generation: 1, Who: "ann", Why: "asked to"}
	}
	p.do(redact, happened("x", bodies["x"])).expect(flight.Accepted, flight.StateSucceeded)
}
