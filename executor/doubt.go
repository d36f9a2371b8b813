package executor

import (
	"context"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/caller"
)

// lookUp asks the provider what happened and brings the verdict. Nothing is opened under the claim with which the ledger sent it
// to look: the late report that makes that needless takes it away.
func (ex *Executor) lookUp(t *trip, reply flight.Reply) (step, effect.Result, error) {
	f := reply.Flight
	if t.call.LookUp == nil {
		return landed, effect.Result{}, &effect.InDoubt{Key: t.call.Key, Version: f.Version, Cause: caller.NoLookUp}
	}
	if wait := ex.settle.remaining(f); wait > 0 { // by this process's own clock, from its own observation
		return claimAnew, effect.Result{}, ex.pause(t, flight.Reply{Flight: f, Wait: wait})
	}
	verb, answer := ex.ask(t, f)
	// A look-up changes nothing at the provider: if the process dies before its verdict is recorded, the next one asks
	// again.
	verdict, err := ex.insist(ex.asking.Context(), &flight.Verdict{
		Key: f.Key, Generation: f.Generation, Probe: reply.Probe, Result: verb,
		ExternalID: answer.ExternalID, Body: flight.NewBlob(answer.ContentType, answer.Body, flight.MaxReceiptBody),
	})
	if err != nil {
		return landed, effect.Result{}, ex.unavailable(t.call.Key, err)
	}
	ex.settle.forget(f.ID)
	ex.cfg.Events.Note(f.Key, verdict.Events)
	if isSettled(verdict.Flight) {
		result, err := ex.answer(verdict.Flight, &t.call, effect.Replayed)
		return landed, result, err
	}
	if t.interest.Err() != nil {
		return landed, effect.Result{}, context.Cause(&t.interest)
	}
	return claimAnew, effect.Result{}, nil
}

// ask calls the caller's look-up.
func (ex *Executor) ask(t *trip, f *flight.Flight) (flight.Verb, effect.Answer) {
	input, err := ex.input(&t.call.Submission, f)
	if err != nil {
		return flight.NoVerb, effect.Answer{}
	}
	newest := *f.Newest()
	look := caller.Look{
		Up: t.call.LookUp, Doer: ex, Timeout: f.Policy.AttemptTimeout, HungAfter: ex.cfg.HungAfter, Go: ex.crew.more,
		Spec: effect.Spec{
			Key: f.Key, Number: newest.Number, Input: input, Recovery: f.Policy.Recovery, Previous: &newest,
			IdempotencyKey: ex.idempotencyKey(f), FencingToken: ex.seal(f, newest.Token()), LeaseLost: lost(t.right),
		},
	}
	return look.Ask(effect.WithTraceparent(ex.life, t.trace))
}

// pause waits as long as the ledger said that it is not worth asking again, or for a change of the flight.
func (ex *Executor) pause(t *trip, reply flight.Reply) error {
	wait := reply.Wait
	if f := reply.Flight; f.Looking() {
		wait = max(wait, ex.settle.remaining(f))
	}
	if wait <= 0 {
		wait = jitter(firstPoll)
	}
	ex.waitChange(&t.interest, t.id, version(reply.Flight), wait)
	if t.interest.Err() != nil {
		return context.Cause(&t.interest)
	}
	return nil
}

// settling measures settle delays by this process's own monotonic clock, from the moment at which it first saw that an
// attempt was lost. The ledger's time may only lengthen them (DESIGN.md 3, Time).
type settling struct {
	mu   sync.Mutex
	seen map[flight.ID]settle
}

type settle struct {
	attempt uint32
	until   time.Time
}

// muchSettling is how many delays are kept before those that are long over are dropped: flights that others settled.
const muchSettling = 1024

// settleDelay is how long after the loss of an attempt its effect may still show.
func settleDelay(p flight.Policy) time.Duration {
	if p.SettleDelay > 0 {
		return p.SettleDelay
	}
	return p.AttemptTimeout + flight.PauseBound
}

// observe starts the delay of the flight's newest attempt, unless it runs already or has been over before: later looks
// at the same attempt wait only for their backoff, which is the ledger's.
func (s *settling) observe(f *flight.Flight) {
	if f.Looking() && f.Probe.Tries == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.observeLocked(f)
	}
}

func (s *settling) observeLocked(f *flight.Flight) time.Duration {
	known, ok := s.seen[f.ID]
	if !ok || known.attempt != f.AttemptNumber() {
		if s.seen == nil {
			s.seen = make(map[flight.ID]settle)
		}
		known = settle{attempt: f.AttemptNumber(), until: time.Now().Add(settleDelay(f.Policy))}
		s.pruneLocked()
		s.seen[f.ID] = known
	}
	return time.Until(known.until)
}

func (s *settling) pruneLocked() {
	if len(s.seen) < muchSettling {
		return
	}
	for id, known := range s.seen {
		if time.Since(known.until) > flight.MaxOpenLife {
			delete(s.seen, id)
		}
	}
}

// remaining is how much of the delay is left.
func (s *settling) remaining(f *flight.Flight) time.Duration {
	if !f.Looking() || f.Probe.Tries > 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observeLocked(f)
}

func (s *settling) forget(id flight.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
}
