package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/strictjson"
)

// claim asks for jobs once, under the client's session. A claim that is not answered is given up: what it may have been handed
// is abandoned, now or when a renewal lists it.
func (w *Worker) claim(ctx context.Context, slots int) ([]*handedJob, error) {
	c := w.client
	if err := w.declare(ctx); err != nil {
		return nil, err
	}
	s, err := c.sessions.require(ctx)
	if err != nil {
		return nil, err
	}
	claim := s.beginClaim()
	if claim == nil { // it was just retired
		return nil, nil
	}
	wait := claimWait.Milliseconds()
	r := wire.ClaimRequest{Session: s.id, Nonce: claim.nonce, NotAfter: claim.notAfter, Actions: w.names, WithoutLookUp: w.withoutLookUp(), Slots: int64(slots), WaitMS: &wait, Owner: c.opts.owner, Callback: true}
	jobs, err := w.sendClaim(ctx, s, claim, &r)
	switch {
	case err == nil:
		return jobs, nil
	case errors.As(err, new(*effect.LeaseLost)):
		s.markLost() // it is renewed for the jobs that run under it
	case problemOf(err) == nil, ctx.Err() != nil: // perhaps jobs were handed out whose answer was lost: ask once more, without a wait
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTryTimeout)
		defer cancel()
		*r.WaitMS = 0
		if jobs, failed := w.sendClaim(again, s, claim, &r); failed == nil {
			if ctx.Err() == nil {
				return jobs, nil
			}
			for _, j := range jobs {
				j.opening.abandonInBackground(context.WithoutCancel(ctx))
			}
		}
	}
	s.endClaim(claim, nil, true)
	return nil, err
}

// sendClaim sends a claim until a server answers, and begins to track the jobs in the answer.
func (w *Worker) sendClaim(ctx context.Context, s *session, claim *sentClaim, r *wire.ClaimRequest) ([]*handedJob, error) {
	resp, err := w.client.ask(ctx, request{
		method: http.MethodPost, path: "/v1/flights:claim", body: strictjson.Append(nil, r), timeout: wire.Wait(r.WaitMS) + defaultTryTimeout,
	})
	a, err := decode[claimAnswer](resp, err)
	if err != nil {
		return nil, err
	}
	var jobs []*handedJob
	for _, given := range a.Jobs {
		job, unread := decodeJob(given)
		j, err := newHandedJob(s, claim, job, unread, resp.sentAt, a.ServedMS)
		if err != nil {
			w.client.opts.logger.Error("flightd: a job cannot be read by this client, and is given back; is the client older than the server?", "key", job.Key, "error", err)
			continue
		}
		jobs = append(jobs, j)
	}
	s.endClaim(claim, jobs, false)
	return jobs, nil
}

// claimAnswer is wire.ClaimAnswer with jobs that are read one by one: a job that cannot be read spoils no other.
type claimAnswer struct {
	Jobs     []json.RawMessage `json:"jobs"`
	ServedMS int64             `json:"served_ms"`
}

// decodeJob reads one job of an answer. With an error, the job has only the fields that name its attempt, if these can be read.
func decodeJob(given []byte) (*wire.Job, error) {
	j := new(wire.Job)
	err := wire.DecodeAnswer(given, j)
	if err == nil {
		return j, nil
	}
	var named struct {
		Decision     string `json:"decision"`
		Nonce        string `json:"nonce"`
		FlightID     string `json:"flight_id"`
		Key          string `json:"key"`
		FencingToken string `json:"fencing_token"`
		Session      string `json:"session"`
		Deployment   string `json:"deployment"`
		Action       string `json:"action"`
	}
	if wire.DecodeAnswer(given, &named) == nil {
		*j = wire.Job{Action: named.Action, OpenAnswer: wire.OpenAnswer{Decision: named.Decision, Nonce: named.Nonce, FlightID: named.FlightID,
			Key: named.Key, FencingToken: named.FencingToken, Session: named.Session, Deployment: named.Deployment}}
	}
	return j, err
}

// newHandedJob returns one job of an answer. A job whose content this client cannot read is performed as not done, with the reason: nothing
// was sent, and the retry policy bounds how often it is tried. The error is about an attempt that is not this claim's, or about an unread job
// that has to be looked up: a renewal lists such an attempt, and it is abandoned.
func newHandedJob(s *session, claim *sentClaim, j *wire.Job, unread error, sent clock.Instant, servedMS int64) (*handedJob, error) {
	c := s.client
	key, err := flight.ParseStoredKey(j.Key)
	if err != nil || j.Session != s.id || j.FlightID != key.FlightID().String() || j.Nonce != wire.JobNonce(claim.nonce, key.FlightID()) || j.Deployment != c.deployment {
		return nil, cmp.Or(unread, errors.New("it names no attempt of this claim"))
	}
	policy := flight.Policy{}
	switch {
	case unread != nil:
	case j.Policy == nil:
		unread = errors.New("it has no policy")
	default:
		var bad *wire.Invalid
		if policy, bad = j.Policy.Flight(); bad != nil {
			unread = fmt.Errorf("policy%s: %s", bad.Pointer, bad.Detail)
		}
	}
	switch j.Decision {
	case wire.DecisionProceed:
	case wire.DecisionVerify:
		if unread != nil {
			return nil, unread
		}
	default:
		return nil, fmt.Errorf("unknown decision %q", j.Decision)
	}
	call := &effect.Call{Key: key, Submission: flight.Submission{Policy: policy}, Callback: j.CallbackURL != ""}
	o := &opening{client: c, key: key, call: call, policy: policy, nonce: j.Nonce, notAfter: claim.notAfter, expiresAt: claim.expiresAt, phase: phaseAwaited, job: true,
		waitUntil: time.Now()} // a job that has to wait is left, and handed out again
	answer := OpenAnswer{OpenAnswer: j.OpenAnswer, SentAt: sent.Time, sentAt: sent}
	call.Submission.Input = o.input(&answer)
	o.firstSent = sent.Add(time.Duration(servedMS-j.AgeMS) * time.Millisecond) // or earlier: the attempt's time-out runs from then
	return &handedJob{opening: o, action: cmp.Or(j.Action, key.Name()), answer: answer, unread: unread}, nil
}

// sentClaim is a claim request, from before it is sent until no copy of it can open an attempt.
type sentClaim struct {
	nonce     string
	notAfter  int64
	expiresAt clock.Instant // not_after has surely passed
	ended     bool
	endedAt   clock.Instant
	lost      bool               // it has ended without an answer
	handed    map[flight.ID]bool // by its answer
}

// settled reports whether nothing that the claim has opened is unknown: it was answered, or a renewal has listed what is open since no copy of
// it can open anything. If no server lists anything for so long, the session has ended. The caller holds s.mu.
func (s *session) settled(claim *sentClaim) bool {
	listed := s.listedAt.After(claim.expiresAt.Time) && s.listedAt.After(claim.endedAt.Time)
	return claim.ended && (!claim.lost || listed || time.Since(claim.endedAt.Time) > maxReportHold)
}

// beginClaim makes a claim, before it is sent under the session. It returns nil if the session is retired.
func (s *session) beginClaim() *sentClaim {
	clk := &s.client.ledgerClock
	validity := clk.validity(claimWait)
	claim := &sentClaim{nonce: newNonce(), notAfter: clk.notAfter(validity), expiresAt: clock.Now().Add(validity)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil
	}
	for len(s.claims) > 0 && s.settled(s.claims[0]) && s.claims[0].expiresAt.Remaining() < -s.renewEvery { // a renewal has listed what its copies opened
		s.claims = s.claims[1:]
	}
	s.claims = append(s.claims, claim)
	return claim
}

// endClaim ends a claim; lost: without an answer. Attempts of its nonce that are listed later, and are not among the jobs, are abandoned.
func (s *session) endClaim(claim *sentClaim, jobs []*handedJob, lost bool) {
	s.mu.Lock()
	if claim.ended { // an answer to its repeat has come before
		lost = false
	}
	claim.ended, claim.endedAt, claim.lost, claim.handed = true, clock.Now(), lost, make(map[flight.ID]bool, len(jobs))
	for _, j := range jobs {
		claim.handed[j.opening.key.FlightID()] = true
		j.opening.session = s
		s.nonces[wire.NonceHex(j.opening.nonce)] = j.opening
	}
	over := s.retired && !s.isNeeded((*opening).needsSession)
	s.mu.Unlock()
	if over {
		s.stopRenewing()
	}
}

// openingOfClaim returns the opening of a listed attempt that a claim of this session has opened, although no job of it was
// handed to this process: while the claim is not answered, its answer may still bring the job; then nobody knows it. It returns nil
// for any other attempt. The caller holds s.mu.
func (s *session) openingOfClaim(key flight.Key, nonceHex string) *opening {
	id := key.FlightID()
	for _, claim := range s.claims {
		nonce := wire.JobNonce(claim.nonce, id)
		if wire.NonceHex(nonce) != nonceHex || claim.handed[id] {
			continue
		}
		o := &opening{client: s.client, key: key, nonce: nonce, notAfter: claim.notAfter, expiresAt: claim.expiresAt, session: s, phase: phaseAwaited}
		if claim.ended {
			o.phase = phaseGivenUp
		}
		return o
	}
	return nil
}

// isNeeded reports whether the session has to be renewed for a claim, or for a nonce of that kind. The caller holds s.mu.
func (s *session) isNeeded(kind func(*opening) bool) bool {
	for _, claim := range s.claims {
		if !s.settled(claim) {
			return true
		}
	}
	return s.anyNonce(kind)
}
