package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
)

// Verify records the finding of a look-up, then answers like Open. The open that follows has a new nonce; a repeat with
// that nonce gets the same attempt. *effect.Fenced: the verification was assigned to another caller, or the flight was
// decided otherwise.
//
// If the process dies before the finding is committed, nothing is recorded. If it dies after that, a repeat continues
// with the open.
func (s *Service) Verdict(ctx context.Context, req VerdictRequest) (OpenAnswer, error) {
	if req.Result != flight.Happened && req.Result != flight.DidNotHappen && req.Result != flight.NoVerb {
		return OpenAnswer{}, &flight.InvalidError{Field: "result", Detail: "unknown result; allowed: happened, not_happened, unknown"}
	}
	start := time.Now()
	header := s.cfg.Memory.Header()
	token, generation, err := flight.OpenSeal(req.Probe, header.Secret, req.ID)
	if err != nil || token.Number&probeBit == 0 {
		return OpenAnswer{}, &flight.InvalidError{Field: "verification", Detail: "this is not a verification token of this flight"}
	}
	number := token.Number &^ probeBit
	f, err := s.cfg.Ledger.Flight(req.ID)
	switch {
	case err != nil:
		return OpenAnswer{}, answer.Unavailable(flight.Key{}, err)
	case token.StoreEpoch != header.StoreEpoch, f != nil && f.Key.IsZero():
		return OpenAnswer{}, &effect.Fenced{}
	case f == nil:
		return OpenAnswer{}, &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("flight %s is not known at this node yet", req.ID)}
	}
	o := req.Open
	o.Unnamed = o.Unnamed || o.Nonce == (flight.Nonce{})
	o.Key = f.Key
	if err := checkOpen(&o); err != nil {
		return OpenAnswer{}, err
	}
	looks := f.Looking() && f.Probe.Number == number
	if looks && f.Probe.Nonce == o.Nonce {
		return OpenAnswer{}, &flight.InvalidError{Field: "nonce", Detail: "a verification needs a new nonce, not the nonce of the open that was answered verify"}
	}
	reply, err := s.propose(s.asking.Context(), &flight.Verdict{
		Key: f.Key, Generation: generation, Probe: number, Result: req.Result, ExternalID: req.ExternalID, Body: req.Body,
	})
	if err != nil {
		return OpenAnswer{}, answer.Unavailable(f.Key, err)
	}
	if holder := f.Holder(); looks && holder != nil && holder.OneShot && holder.ID != o.Session {
		// The session was created for the look-up alone.
		s.background(func(ctx context.Context) { s.withdraw(ctx, f.Key, holder.ID) })
	}
	now := reply.Flight
	switch {
	case reply.Decision == flight.Missing, reply.Decision == flight.Fenced && (now.Looking() || now.Generation != generation):
		return OpenAnswer{}, &effect.Fenced{Key: f.Key} // another caller has the verification, or the key was freed
	case req.Result == flight.Happened && !answer.IsFinal(now):
		return OpenAnswer{}, &effect.Fenced{Key: f.Key} // decided otherwise, but a caller that has seen the effect must not act
	}
	s.settle.Forget(f.ID)
	o.Submission = flight.Submission{Fingerprint: now.Fingerprint, Input: now.Input, Policy: now.Policy}
	return s.serve(ctx, &openCall{Service: s, req: o, start: start, newer: now})
}

// verificationBit marks the sealed number of a verification token: no key has so many attempts.
const probeBit = 1 << 31

func (s *Service) sealProbe(f *flight.Flight) string {
	header := s.cfg.Memory.Header()
	token := flight.Token{StoreEpoch: header.StoreEpoch, Number: f.Probe.Number | probeBit}
	return token.Seal(header.Secret, f.ID, f.Generation, "")
}
