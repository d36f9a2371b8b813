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
func (s *Service) Verify(ctx context.Context, req VerificationRequest) (OpenAnswer, error) {
	if req.Result != flight.FindingHappened && req.Result != flight.FindingNotHappened && req.Result != flight.FindingNone {
		return OpenAnswer{}, &flight.InvalidError{Field: "result", Detail: "unknown result; allowed: happened, not_happened, unknown"}
	}
	start := time.Now()
	header := s.cfg.Reader.Header()
	token, generation, err := flight.Unseal(req.Verification, header.Secret, req.ID)
	if err != nil || token.Number&verificationBit == 0 {
		return OpenAnswer{}, &flight.InvalidError{Field: "verification", Detail: "this is not a verification token of this flight"}
	}
	number := token.Number &^ verificationBit
	f, err := s.cfg.Ledger.Flight(req.ID)
	switch {
	case err != nil:
		return OpenAnswer{}, answer.Unavailable(flight.Key{}, err)
	case token.StoreEpoch != header.StoreEpoch, f != nil && f.Key.IsZero():
		return OpenAnswer{}, &effect.Fenced{}
	case f == nil:
		return OpenAnswer{}, &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("flight %s is not known at this node yet", req.ID)}
	}
	open := req.Open
	open.NoNonce = open.NoNonce || open.Nonce == (flight.Nonce{})
	open.Key = f.Key
	if err := checkOpen(&open); err != nil {
		return OpenAnswer{}, err
	}
	verifying := f.Verifying() && f.Verification.Number == number
	if verifying && f.Verification.Nonce == open.Nonce {
		return OpenAnswer{}, &flight.InvalidError{Field: "nonce", Detail: "a verification needs a new nonce, not the nonce of the open that was answered verify"}
	}
	reply, err := s.propose(s.requestDeadline.Context(), &flight.ReportFinding{
		Key: f.Key, Generation: generation, Verification: number, Finding: req.Result, ExternalID: req.ExternalID, Body: req.Body,
	})
	if err != nil {
		return OpenAnswer{}, answer.Unavailable(f.Key, err)
	}
	if holder := f.Holder(); verifying && holder != nil && holder.OneShot && holder.ID != open.Session {
		// The session was created for the look-up alone.
		s.runInBackground(func(ctx context.Context) { s.withdrawSession(ctx, f.Key, holder.ID) })
	}
	current := reply.Flight
	switch {
	case reply.Decision == flight.DecisionNotFound, reply.Decision == flight.DecisionFenced && (current.Verifying() || current.Generation != generation):
		return OpenAnswer{}, &effect.Fenced{Key: f.Key} // another caller has the verification, or the key was freed
	case req.Result == flight.FindingHappened && !answer.IsFinal(current):
		return OpenAnswer{}, &effect.Fenced{Key: f.Key} // decided otherwise, but a caller that has seen the effect must not act
	}
	s.lookUpDelay.Delete(f.ID)
	if err := open.stillAllowed(); err != nil { // the finding is recorded: no evidence is lost
		return OpenAnswer{}, err
	}
	open.Submission = flight.Submission{Fingerprint: current.Fingerprint, Input: current.Input, Policy: current.Policy}
	c := s.newCall(open)
	c.start, c.newerFlight = start, current
	return s.serve(ctx, c)
}

// verificationBit marks the sealed number of a verification token. No attempt number is that large.
const verificationBit = 1 << 31

func (s *Service) sealVerification(f *flight.Flight) string {
	header := s.cfg.Reader.Header()
	token := flight.Token{StoreEpoch: header.StoreEpoch, Number: f.Verification.Number | verificationBit}
	return token.Seal(header.Secret, f.ID, f.Generation, "")
}
