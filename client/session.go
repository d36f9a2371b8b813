package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// session is one party that holds attempts at the server.
type session struct {
	client *Client
	id     string
	once   bool // the server made it for one attempt and ends it with its report
	every  time.Duration
	trust  trust
	watch  *time.Timer     // looks at trust when it should be over
	dying  context.Context // ends when the right to start effects is lost
	lost   context.CancelCauseFunc
	stop   chan struct{} // closed when nobody renews it any more

	mu       sync.Mutex
	held     map[string]*attempt // by nonce: awaited (nil) or running
	retired  bool                // nothing new is opened under it
	strays   bool                // an open was given up that may still arrive
	stopped  bool
	seen     string        // the version in the last answer to a renewal
	renewing chan struct{} // closed when the renewal on its way was answered; nil when there is none
}

// hold lists the nonce of an open that is about to be sent. It answers false when the session takes none any more.
//
// It waits while a renewal is on its way: the list of that renewal does not have the nonce, and the server abandons
// what is not listed. A renewal of which nobody knows whether it will still arrive retires the session for the same
// reason.
func (s *session) hold(ctx context.Context, nonce string) (bool, error) {
	for {
		s.mu.Lock()
		if s.retired {
			s.mu.Unlock()
			return false, nil
		}
		renewing := s.renewing
		if renewing == nil {
			s.held[nonce] = nil
			s.mu.Unlock()
			return true, nil
		}
		s.mu.Unlock()
		select {
		case <-renewing:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// run notes the attempt that a nonce has opened.
func (s *session) run(nonce string, a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[nonce] = a
}

// drop takes a nonce off the list: its attempt was reported, or nobody awaits its answer any more. stray says that its
// open may still arrive: the next renewal, which does not list it, has it abandoned.
func (s *session) drop(nonce string, stray bool) {
	s.mu.Lock()
	delete(s.held, nonce)
	s.strays = s.strays || stray
	over := s.retired && len(s.held) == 0
	s.mu.Unlock()
	if over {
		s.end()
	}
}

// reportHold bounds how long a session is renewed for a report that is on its way into the ledger.
const reportHold = 10 * time.Minute

// outlast holds an attempt whose effect is over and whose report waits in the spool. It stays on the list for as long as the
// session is renewed: one that is not listed is abandoned, as if nothing had been sent, and somebody else would act again. So
// nothing new is opened under the session, and it ends when it holds nothing but what was reported, or never will be.
func (s *session) outlast(nonce, report string) {
	s.mu.Lock()
	if a := s.held[nonce]; a != nil {
		a.report, a.since = report, time.Now()
	}
	s.mu.Unlock()
	s.retire()
}

// waiting reports whether the report of an effect that is over still waits.
func (s *session) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.held {
		if a.waits(s.client.spool) {
			return true
		}
	}
	return false
}

// acting reports whether an effect may still be under way: a handler has not returned. Nobody is to be let act beside it.
func (s *session) acting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.held {
		if a != nil && a.report == "" {
			return true
		}
	}
	return false
}

func (a *attempt) waits(p *spool) bool {
	return a != nil && a.report != "" && time.Since(a.since) < reportHold && p.has(a.report)
}

// over reports whether the session is needed for nothing but attempts that are over.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.held {
		if a == nil || a.report == "" {
			return false
		}
	}
	return s.retired
}

// granted takes the trust that an answer to one of the session's requests gave.
func (s *session) granted(sent moment, trustMS int64) {
	if trustMS > 0 {
		s.trust.extend(sent, trustMS)
	}
}

// mayStart is nil while an effect may be started.
func (s *session) mayStart() error {
	if s.dying.Err() != nil || s.trust.left() <= 0 {
		return effect.ErrLeaseLost
	}
	return nil
}

// checkTrust runs when trust should be over, and ends it if nothing has prolonged it.
func (s *session) checkTrust() {
	if left := s.trust.left(); left > 0 {
		s.watch.Reset(left)
		return
	}
	s.lose()
}

// lose ends the right to start effects.
func (s *session) lose() {
	s.retire()
	s.lost(effect.ErrLeaseLost)
}

// retire opens nothing under the session any more. It is marked first: whoever makes it the current one meanwhile sees that,
// or is seen.
func (s *session) retire() {
	s.mu.Lock()
	s.retired = true
	over := len(s.held) == 0
	s.mu.Unlock()
	s.client.sessions.retire(s)
	if over {
		s.end()
	}
}

func (s *session) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// end stops renewing. It may be called often.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		s.watch.Stop()
		close(s.stop)
	}
}

// keep renews the session until it ends.
func (s *session) keep() {
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			if s.isRetired() && s.client.ending.Err() == nil {
				s.giveUp(s.client.ending)
			}
			if s.client.ending.Err() == nil { // else Close gives it up
				s.client.sessions.forget(s)
			}
			return
		case <-s.client.life.Done():
			return // Close gives it up
		case <-timer.C:
		}
		if s.over() && !s.waiting() {
			s.end()
			continue
		}
		next := s.every
		if !s.renew() {
			next = min(next, longPause)
		}
		timer.Reset(next)
	}
}

// giveUp tells the server that the session is over. If it does not hear of it, the session ends by its time to live.
func (s *session) giveUp(ctx context.Context) {
	s.mu.Lock()
	strays, nonces := s.strays, slices.Collect(maps.Keys(s.held))
	s.mu.Unlock()
	if (s.once || s.dying.Err() != nil) && len(nonces) == 0 && !strays {
		return // the server knows
	}
	ctx, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	if strays { // what nobody awaited is abandoned, and leaves no doubt: what was open when the renewal before was served
		for range 2 {
			_, _ = s.send(ctx, nonces, 0, 0)
		}
	}
	if !s.waiting() && !s.acting() { // else the report may come before the session ends by its time to live
		_ = s.client.CloseSession(ctx, s.id)
	}
}

// renew renews the session once and answers whether that went well.
func (s *session) renew() bool {
	s.mu.Lock()
	nonces := slices.Collect(maps.Keys(s.held))
	renewing := make(chan struct{})
	s.renewing = renewing
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.renewing = nil
		s.mu.Unlock()
		close(renewing)
	}()
	a, err := s.send(s.client.life, nonces, max(s.every/2, time.Second), 1)
	if a.unsure {
		s.retire()
	}
	if isLeaseLost(err) {
		s.lose()
		s.end()
		return true
	}
	if err != nil {
		return false
	}
	s.granted(a.sent, a.TrustMS)
	for _, id := range a.CancelRequested {
		s.cancel(id)
	}
	return true
}

// send sends a renewal, which says what the one before was answered.
func (s *session) send(ctx context.Context, nonces []string, timeout time.Duration, tries int) (SessionAnswer, error) {
	s.mu.Lock()
	seen := s.seen
	s.mu.Unlock()
	a, err := s.client.renew(ctx, s.id, nonces, seen, timeout, tries)
	if err == nil {
		s.mu.Lock()
		s.seen = a.Version
		s.mu.Unlock()
	}
	return a, err
}

// cancel ends the attempts of a flight that somebody wants cancelled.
func (s *session) cancel(word string) {
	id, err := flight.ParseID(word)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.held {
		if a != nil && a.key.FlightID() == id {
			a.cancel(errCancelled)
		}
	}
}
